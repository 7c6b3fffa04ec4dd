// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a journal begins and ends: each boot of the SSD begins one, and a shutdown ends it.

use crate::durable::Durable;
use crate::error::DurableError;
use crate::header::{Mode, Slot};
use crate::journal::Journal;
use crate::page::PAYLOAD;
use crate::record::MIN_TRANSACTION_BYTES;
use crate::replay::{End, Replayed};

impl Durable {
    /// Continues after a replay, with a new boot number that is durable before this returns. From here on the
    /// SSD counts as running. The caller adopts an intact dump next ([`Journal::adopt`]). Sequence numbers of
    /// replay and dump are not used again. A number may be used again if it was only on a page that never
    /// became durable. Such a page is void, because its boot is older.
    ///
    /// # Errors
    /// If the replay met damage (then call [`Self::fresh_journal`]), or the store fails.
    pub fn into_journal(&self, replayed: &Replayed) -> Result<Journal, DurableError> {
        if let End::Damaged { reason } = &replayed.end {
            return Err(DurableError::JournalDamaged { last: replayed.last, reason: reason.clone() });
        }
        self.update(|header| {
            header.boot += 1;
            header.mode = Mode::Running;
            header.journal_page = replayed.page;
            header.floor = header.must_reach().max(replayed.last);
            // A newer checkpoint that could not be used must not be kept in place of the usable one.
            for slot in header.slots.iter_mut().filter(|slot| slot.number > replayed.slot.number) {
                *slot = Slot::default();
            }
        })?;
        Ok(Journal::new(self.clone(), self.boot(), replayed.slot.page, replayed.page, replayed.last))
    }

    /// Begins a new journal after a rebuild from the pages' records. The old checkpoints and the old journal
    /// count no longer. [`Self::checkpoint`] returns an error until a checkpoint is finished. Page and
    /// transaction numbers start above all numbers that may be on the store.
    ///
    /// # Errors
    /// If the store fails.
    pub fn fresh_journal(&self) -> Result<Journal, DurableError> {
        let ring = self.ring_pages();
        self.update(|header| {
            let newest = header.newest().map_or(0, |newest| header.slots[newest].page);
            let per_page = (PAYLOAD / MIN_TRANSACTION_BYTES) as u64;
            header.boot += 1;
            header.mode = Mode::Running;
            // A ring holds pages of less than two laps after the newest checkpoint's.
            header.journal_page = header.journal_page.max(newest) + 2 * ring;
            header.floor = header.must_reach() + 2 * ring * per_page;
            header.slots = [Slot::default(); 2];
        })?;
        let header = self.header();
        Ok(Journal::new(self.clone(), header.boot, header.journal_page, header.journal_page, header.floor))
    }

    /// Marks the SSD as clean: everything is durable and no write follows. The next open returns
    /// [`State::Clean`](crate::State::Clean). A later flush removes the mark first.
    ///
    /// # Errors
    /// If the journal has a tail that is not durable, or the store fails.
    pub fn mark_clean(&self, journal: &Journal) -> Result<(), DurableError> {
        if journal.durable() < journal.last() {
            return Err(DurableError::NotDurable { needed: journal.last(), durable: journal.durable() });
        }
        self.update(|header| {
            header.mode = Mode::Clean;
            header.floor = header.must_reach().max(journal.last());
        })
    }
}
