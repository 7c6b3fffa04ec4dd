// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fill asks other SSDs for a block that the first of its group cannot read. The filling SSD may take over
//! the place of the one that has the last good copy. So that SSD is asked before the others, and its copy
//! counts also beside a writer. The group then has the copies that it had before.
//!
//! ```text
//!   first: cannot read it, three times --> the next SSD that serves it --> a copy that a scrub would take
//!     ^                                         ^   '-- none, or no answer for 2 s
//!     '-- once more, if none is left -----------'------------'
//!     '-- still not: a page that cannot be read
//! ```

use super::apply::{PeerAnswer, Theirs, theirs};
use super::state::{Name, Unread, Walk, Window, Work};
use crate::controller::Ssd;
use gnstor_base::time::{Span, Time};
use gnstor_fleet::repair::scrubs_beside_writers;
use gnstor_proto::pull::{Kind, Row};

/// An SSD has so long to answer. The fill does not wait for it for ever: the map may keep an SSD that this
/// one alone cannot reach.
const ANSWERS: Span = Span::from_ms(2_000);

impl Ssd {
    /// Asks other SSDs for a block that the first cannot read. `false`: there is none to ask.
    pub(super) fn asks_others(&self, now: Time, walk: &Walk, window: &mut Window, row: &Row) -> bool {
        let entry = self.entry_for(walk, window.vid).zip(self.table.fleet());
        let Some((entry, fleet)) = entry.filter(|_| walk.name == Name::Fill) else { return false };
        let is_next = window.pull.front() == Some(&row.block) && window.alone != Some(row.block);
        if fleet.merges(entry, row.block) || !is_next {
            return false;
        }
        let mut peers = fleet.serving_peers(entry, row.block);
        peers.retain(|peer| *peer != window.peer && !walk.silent.contains(peer));
        let taken_over = fleet.taken_over(entry, row.block);
        peers.sort_by_key(|peer| Some(*peer) != taken_over);
        let until = now + ANSWERS;
        window.unread = (!peers.is_empty()).then(|| Unread { row: *row, peers: peers.into(), until });
        window.unread.is_some()
    }

    /// Takes the block from another SSD than the first, if its copy is good. `None`: the data is no answer to
    /// the question.
    pub(super) fn take_from_other(
        &mut self,
        now: Time,
        walk: &mut Walk,
        window: &mut Window,
        answer: &PeerAnswer<'_>,
    ) -> Option<()> {
        let rows = answer.rows_with_blocks()?;
        let (row, page) = *rows.first()?;
        let unread = window.unread.as_ref()?;
        let (first, asked) = (theirs(Some(&unread.row)), *unread.peers.front()?);
        let entry = self.entry_for(walk, window.vid)?;
        let is_at_rest = entry.writer.is_none() && !entry.unsettled;
        let is_taken_over = self.table.fleet()?.taken_over(entry, row.block) == Some(asked);
        let is_good = !matches!(row.kind, Kind::Unreadable { .. });
        let copy = (theirs(Some(&row)), is_good);
        if !(is_taken_over && is_good || scrubs_beside_writers((first, false), copy, false, is_at_rest)) {
            window.asks_next(now + ANSWERS);
            return Some(());
        }
        let page = match row.kind {
            Kind::Block { sum } => page.map(|page| (page, sum)),
            Kind::Unreadable { .. } | Kind::Nothing | Kind::Tombstone => None,
        };
        window.retry_at = self.turn(now, Work::Write, 1);
        self.take_row(now, walk, window, &Theirs { row, page });
        Some(())
    }
}

impl Window {
    /// The asked SSD has no good copy. After the last one the first is asked once more.
    fn asks_next(&mut self, until: Time) {
        let Some(unread) = &mut self.unread else { return };
        unread.peers.pop_front();
        unread.until = until;
        if unread.peers.is_empty() {
            self.alone = Some(unread.row.block);
            self.unread = None;
        }
    }

    /// An SSD other than the first refused, or did not answer. After a time the walk asks it no more.
    pub(super) fn has_no_answer(&mut self, now: Time, walk: &mut Walk) {
        let late = self.unread.as_ref().filter(|unread| unread.until <= now);
        if let Some(peer) = late.and_then(|unread| unread.peers.front().copied()) {
            walk.silent.insert(peer);
            self.asks_next(now + ANSWERS);
        }
    }
}
