// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fill asks other SSDs for a block that the first of its group cannot read. The filling SSD may take over
//! the place of the one that has the last good copy.
//!
//! ```text
//!   first: cannot read it, three times --> the next SSD that serves it --> a copy that a scrub would take
//!                                               ^   '-- none, or no answer
//!                                               '------------'   none is left: a page that cannot be read
//! ```

use super::apply::{PeerAnswer, Theirs, theirs};
use super::state::{Name, Unread, Walk, Window};
use crate::controller::Ssd;
use gnstor_base::time::Time;
use gnstor_fleet::repair::scrubs_beside_writers;
use gnstor_ftl::other_than;
use gnstor_proto::pull::{Kind, Row};

/// How often an SSD that does not answer is asked for such a block: for 2 s, if it refuses. The fill does not
/// wait for an SSD for ever, as the map may keep one that only this SSD cannot reach.
const TRIES: u32 = 100;

impl Ssd {
    /// Asks other SSDs for a block that the first cannot read. `false`: there is none to ask.
    pub(super) fn asks_others(&self, walk: &Walk, window: &mut Window, row: &Row) -> bool {
        let entry = self.entry_for(walk, window.vid).zip(self.table.fleet());
        let Some((entry, fleet)) = entry.filter(|_| walk.name == Name::Fill) else { return false };
        if fleet.merges(entry, row.block) || window.pull.front() != Some(&row.block) {
            return false;
        }
        let mut peers = fleet.serving_peers(entry, row.block);
        peers.retain(|peer| *peer != window.peer);
        window.unread = (!peers.is_empty()).then(|| Unread { row: *row, peers: peers.into(), tries: 0 });
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
        let first = theirs(Some(&window.unread.as_ref()?.row));
        let is_at_rest =
            self.entry_for(walk, window.vid).is_some_and(|entry| entry.writer.is_none() && !entry.unsettled);
        let copy = (theirs(Some(&row)), !matches!(row.kind, Kind::Unreadable { .. }));
        if scrubs_beside_writers((first, false), copy, false, is_at_rest) {
            let page = match row.kind {
                Kind::Block { sum } => page.map(|page| (page, sum)),
                Kind::Unreadable { .. } | Kind::Nothing | Kind::Tombstone => None,
            };
            self.take_row(now, walk, window, &Theirs { row, page });
        } else {
            self.has_no_copy(now, walk, window);
        }
        Some(())
    }

    /// An SSD other than the first did not answer. After some tries it counts as one without a good copy.
    pub(super) fn asks_another(&mut self, now: Time, walk: &mut Walk, window: &mut Window) {
        let Some(unread) = &mut window.unread else { return };
        unread.tries += 1;
        if unread.tries >= TRIES {
            self.has_no_copy(now, walk, window);
        }
    }

    /// The asked SSD has no good copy. After the last one this SSD gets a page that cannot be read.
    fn has_no_copy(&mut self, now: Time, walk: &mut Walk, window: &mut Window) {
        let Some(unread) = &mut window.unread else { return };
        unread.tries = 0;
        if unread.peers.len() > 1 {
            unread.peers.pop_front();
            return;
        }
        let row = unread.row;
        let Kind::Unreadable { sum } = row.kind else { return };
        if self.take_row(now, walk, window, &Theirs { row, page: Some((&other_than(sum), sum)) }) {
            walk.unreadable += 1;
        }
    }
}
