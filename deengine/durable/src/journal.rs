// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The journal: transactions in memory, written in whole pages behind the data that they speak of.

mod flush;

use crate::bytes::{PAGE, PAGE_U64};
use crate::dump::Dump;
use crate::durable::Durable;
use crate::error::{DurableError, Patience, Running, end_sync, start_barrier, start_sync, start_write};
use crate::page::{HEAD, PAYLOAD, PageHead};
use crate::record::{Bounds, MIN_TRANSACTION_BYTES, Record, Seq, transaction_head};
use crate::tail::Tail;
use gnstor_flash::{KeptTail, Started};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of pages that one call to the store writes.
const BATCH: usize = 64;

/// The journal of a running SSD. [`crate::page`] describes its pages, [`crate::record`] its records.
///
/// ```text
///  ring:  ... old lap | start ........ checkpoint needs these ........ next | free until start comes
///  tail:                                                               durable+1 ........ last | open
/// ```
/// A page is written once. A durable page is never overwritten before a newer checkpoint makes it
/// unnecessary.
#[derive(Debug)]
pub struct Journal {
    durable_area: Durable,
    bounds: Bounds,
    boot: u32,
    /// The first page that a restore needs.
    start: u64,
    /// The next page to write. All before it are durable.
    next: u64,
    tail: Tail,
    last: Seq,
    durable: Seq,
    begun: Arc<AtomicU64>,
    syncs: JournalSyncs,
    flushing: Option<Flushing>,
    /// The tail again, in memory that outlives the process.
    kept: Option<KeptTail>,
    scratch: Vec<u8>,
}

/// Syncs that the journal asked its store for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JournalSyncs {
    /// Number of syncs after pages of the journal.
    pub journal: u64,
    /// Syncs before them, for the flash pages that they name; zero where flash is always durable.
    pub data: u64,
}

/// The position at which replay starts for a checkpoint that begins now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) seq: Seq,
    pub(crate) page: u64,
    pub(crate) boot: u32,
}

/// A flush on its way.
#[derive(Clone, Copy, Debug)]
enum Flushing {
    /// The data is being synced; pages follow.
    Data { sync: Running, upto: Seq, force: bool },
    /// The pages up to the cursor are being synced.
    Pages { sync: Running, cursor: Cursor },
}

const DATA: &str = "syncing the data before the journal";
const PAGES: &str = "writing the journal";

/// Progress of a flush. It becomes the journal's state when all of the flush is durable.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    page: u64,
    seq: Seq,
    bytes: usize,
}

impl Journal {
    pub(crate) fn new(durable_area: Durable, boot: u32, start: u64, next: u64, last: Seq) -> Self {
        Self {
            bounds: Bounds::from(durable_area.sizes()),
            durable_area,
            boot,
            start,
            next,
            tail: Tail::default(),
            last,
            durable: last,
            begun: Arc::new(AtomicU64::new(last)),
            syncs: JournalSyncs::default(),
            flushing: None,
            kept: None,
            scratch: vec![0; BATCH * PAGE],
        }
    }

    /// Opens a transaction.
    ///
    /// # Panics
    /// If one is open.
    #[inline]
    pub fn begin(&mut self) {
        self.tail.begin();
        // Before any word of the map changes. Pairs with the load in `Checkpoint::words`, which follows an
        // acquire fence after the words were read. A reader of a changed word sees that its transaction had
        // begun.
        self.begun.store(self.last + 1, Ordering::Release);
    }

    /// Adds a record to the open transaction.
    ///
    /// # Panics
    /// If none is open, if the record names something that this SSD does not have, or if the transaction
    /// becomes larger than [`crate::MAX_TRANSACTION_BYTES`].
    #[inline]
    pub fn add(&mut self, record: Record) {
        assert!(self.bounds.allow(&record), "{record:?} is beyond this SSD");
        self.tail.add(&record);
    }

    /// Closes the transaction; its number.
    ///
    /// # Panics
    /// If none is open.
    #[inline]
    pub fn commit(&mut self) -> Seq {
        let transaction = self.tail.commit();
        if let Some(kept) = &mut self.kept {
            kept.push(transaction);
        }
        self.last += 1;
        self.last
    }

    /// Drops the open transaction, because its changes were not made or were undone.
    pub fn abandon(&mut self) {
        self.tail.abandon();
    }

    /// Changes words of the map in the transactions from `since` on that are not durable. `change` gets the
    /// index and value of each word and returns the new value.
    ///
    /// # Panics
    /// If a transaction is open.
    pub fn amend(&mut self, since: Seq, change: impl FnMut(u64, u64) -> u64) {
        assert!(!self.tail.is_open(), "a transaction is open");
        self.tail.amend(&self.bounds, since.saturating_sub(self.durable + 1), change);
        if let Some(kept) = &mut self.kept {
            kept.replace(self.durable, self.tail.committed());
        }
    }

    /// The last transaction committed.
    #[inline]
    pub fn last(&self) -> Seq {
        self.last
    }

    /// The last transaction that is durable.
    #[inline]
    pub fn durable(&self) -> Seq {
        self.durable
    }

    /// Syncs since the store was opened.
    pub fn syncs(&self) -> JournalSyncs {
        self.syncs
    }

    /// Encoded bytes that are not durable.
    #[inline]
    pub fn tail_bytes(&self) -> u64 {
        self.tail.committed().len() as u64
    }

    /// How full the ring is since the last finished checkpoint, in thousandths.
    pub fn fill_permille(&self) -> u32 {
        let permille = (self.next - self.start) * 1000 / self.ring_pages();
        u32::try_from(permille).expect("at most 1000")
    }

    /// Whether the tail and `bytes` more fit into the ring with a sixteenth to spare, in any packing.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.fits_but(bytes, self.ring_pages() / 16)
    }

    /// As [`Self::has_room`], for a restore: it may use half of the spare room, so that it needs no
    /// checkpoint first.
    pub fn has_room_to_restore(&self, bytes: u64) -> bool {
        self.fits_but(bytes, self.ring_pages() / 32)
    }

    fn fits_but(&self, bytes: u64, spare: u64) -> bool {
        // A transaction that does not fit opens the next page. So two neighbouring pages together hold more
        // than one page's worth.
        let pages = (self.tail_bytes().saturating_add(bytes) / (PAYLOAD as u64 / 2)).saturating_add(2);
        (self.next - self.start).saturating_add(pages) <= self.ring_pages() - spare
    }

    /// Keeps the tail in this memory as well, which outlives the process.
    ///
    /// # Panics
    /// If a transaction is open, or the tail does not fit.
    pub fn keep(&mut self, mut kept: KeptTail) {
        assert!(!self.tail.is_open(), "a transaction is open");
        kept.replace(self.durable, self.tail.committed());
        self.kept = Some(kept);
    }

    /// Whether `bytes` more of transactions fit into the memory that outlives the process, if the SSD has it.
    pub fn has_kept_room(&self, bytes: u64) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.has_room(bytes))
    }

    /// Appends the transactions of a dump, unchanged and with their numbers, except transactions that replay
    /// has found. They are not durable yet: the caller flushes them, and then invalidates the dump.
    ///
    /// # Errors
    /// Where the dump begins after the journal's end.
    ///
    /// # Panics
    /// If transactions of this boot are in the journal already.
    pub fn adopt(&mut self, dump: &Dump) -> Result<(), DurableError> {
        assert!(self.last == self.durable && !self.tail.is_open(), "a dump is adopted first of all");
        if dump.durable() > self.last {
            return Err(DurableError::DumpGap { dump: dump.durable(), reached: self.last });
        }
        let (reached, mut rest) = (self.last, dump.tail());
        for seq in dump.durable() + 1..=dump.last() {
            let (bytes, _) = transaction_head(rest).expect("checked when the dump was read");
            let (transaction, left) = rest.split_at(bytes);
            rest = left;
            if seq > reached {
                self.tail.adopt(transaction);
                self.last = seq;
            }
        }
        self.begun.store(self.last, Ordering::Release);
        Ok(())
    }

    pub(crate) fn position(&self) -> Position {
        assert!(!self.tail.is_open(), "a checkpoint begins between transactions");
        Position { seq: self.last, page: self.next, boot: self.boot }
    }

    pub(crate) fn begun(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.begun)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.tail.is_open()
    }

    pub(crate) fn boot(&self) -> u32 {
        self.boot
    }

    pub(crate) fn tail(&self) -> &[u8] {
        self.tail.committed()
    }

    /// A checkpoint is durable that needs the ring only from `page` on.
    pub(crate) fn release_before(&mut self, page: u64) {
        self.start = page;
    }

    fn ring_pages(&self) -> u64 {
        self.durable_area.ring_pages()
    }

    fn store(&self) -> &dyn gnstor_flash::Store {
        self.durable_area.store()
    }
}
