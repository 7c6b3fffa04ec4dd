// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Healing of wrong copies. The scrub asks other serving SSDs for theirs, and uses only data that matches its
//! sum.

use crate::controller::Ssd;
use crate::repair::apply::{Page, PeerAnswer, held, theirs};
use crate::repair::state::{Name, Range, Wrong};
use crate::repair::{NO_ROOM, PAUSE};
use gnstor_base::controller::AskId;
use gnstor_base::time::Time;
use gnstor_fleet::repair::{Held, scrubs_beside_writers};
use gnstor_ftl::{NewBlock, Target};
use gnstor_proto::placement::Rows;
use gnstor_proto::pull::{Kind, MOST_BLOCKS, PeerRead, Row, Wanted};

/// Largest number of tries. A write may be on its way to a copy whose stamp differs, so the scrub compares
/// again.
const MOST_TRIES: u32 = 50;

/// The copy of another SSD, which may be good.
struct Good<'a> {
    peer: u16,
    row: &'a Row,
    page: Option<&'a Page>,
}

/// Result for a wrong copy.
enum Heal {
    /// The copy is good now, or a client has written it anew.
    Done,
    /// A write may be under way.
    Later,
    /// The asked SSD has no usable copy.
    NotFrom,
    /// The layer has no room.
    NoRoom,
}

impl Ssd {
    /// Asks what the range needs next.
    pub(super) fn ask_of_range(&mut self, now: Time, range: &mut Range) {
        let Some(epoch) = self.table.fleet().map(|fleet| fleet.map().wire_epoch()) else { return };
        let (vid, generation) = (range.vid, range.generation);
        let (peer, first, wanted) = if let Some(&first) = range.firsts.last() {
            (first, range.first, Wanted::Rows(range.blocks))
        } else {
            let Some(wrong) = range.wrong.front() else { return };
            let Some(&peer) = wrong.peers.front() else {
                // No SSD is left to ask for a good copy: the copy stays as it is.
                range.wrong.pop_front();
                return;
            };
            let first = wrong.vba;
            let same = range.wrong.iter().filter(|wrong| wrong.peers.front() == Some(&peer));
            let near = same.filter_map(|wrong| wrong.vba.checked_sub(first)).filter(|at| *at < MOST_BLOCKS);
            (peer, first, Wanted::Blocks(near.fold(0, |mask, at| mask | 1 << at)))
        };
        let of_any = matches!(wanted, Wanted::Blocks(_));
        let read = PeerRead { epoch, vid, generation, first, wanted, of_any };
        match self.ask_peer(now, Name::Scrub, peer, read) {
            Some(ask) => range.ask = Some((ask, peer)),
            None => self.repair.scrub.due = now + NO_ROOM,
        }
    }

    /// An answer to a question of the scrub; `None`: the SSD was not reached.
    pub(in crate::repair) fn scrub_answered(
        &mut self,
        now: Time,
        ask: AskId,
        read: &PeerRead,
        answer: Option<&PeerAnswer<'_>>,
    ) {
        let Some(mut range) =
            self.repair.scrub.range.take_if(|range| range.ask.is_some_and(|it| it.0 == ask))
        else {
            return;
        };
        let peer = range.ask.take().map_or(0, |(_, peer)| peer);
        let taken = answer.and_then(|answer| match read.wanted {
            Wanted::Rows(_) | Wanted::Digests(_) => {
                self.compare_scrubbed(&mut range, peer, answer.rows, answer.data)
            }
            Wanted::Blocks(_) => self.heal_from(now, &mut range, peer, answer),
        });
        self.repair.scrub.log.waits_for = taken.is_none().then_some(peer);
        if taken.is_none() {
            // Another SSD may have a good copy.
            if let Some(wrong) = range.wrong.front_mut()
                && read.of_any
            {
                wrong.peers.rotate_left(1);
            }
            self.repair.scrub.due = now + PAUSE;
        }
        self.repair.scrub.range = Some(range);
    }

    /// Takes blocks with their data. `None`: the data is no answer to the question.
    fn heal_from(&mut self, now: Time, range: &mut Range, peer: u16, answer: &PeerAnswer<'_>) -> Option<()> {
        for (row, page) in answer.rows_with_blocks()? {
            let Some(at) = range.wrong.iter().position(|wrong| wrong.vba == row.block) else { continue };
            let Some(mut wrong) = range.wrong.remove(at) else { continue };
            match self.heal(now, range, &wrong, &Good { peer, row: &row, page }) {
                Heal::Done => range.healed += 1,
                Heal::NotFrom => {
                    wrong.peers.pop_front();
                    range.wrong.push_front(wrong);
                }
                Heal::NoRoom => {
                    range.wrong.push_front(wrong);
                    self.repair.scrub.due = now + NO_ROOM;
                }
                Heal::Later => {
                    wrong.tries += 1;
                    if wrong.tries.is_multiple_of(MOST_TRIES) {
                        wrong.peers.pop_front();
                    }
                    self.repair.scrub.due = now + PAUSE;
                    range.wrong.push_back(wrong);
                }
            }
        }
        Some(())
    }

    /// Replaces this SSD's copy by the other SSD's, if the rule says so.
    fn heal(&mut self, now: Time, range: &Range, wrong: &Wrong, good: &Good<'_>) -> Heal {
        let &Good { peer, row, page } = good;
        let (vid, generation, vba) = (range.vid, range.generation, wrong.vba);
        let peer_is_good = !matches!(row.kind, Kind::Unreadable { .. });
        let entry = self.scrubbed(vid).zip(self.table.fleet());
        let is_first = entry.is_some_and(|(entry, fleet)| fleet.source(entry, vba) == Some(peer));
        let is_at_rest = self.is_at_rest(range);
        let their = theirs(Some(row));
        let block = match (page, their) {
            (Some(page), Held::Block { sum, .. }) => {
                let Some(frame) = self.ftl().take_frame() else { return Heal::NoRoom };
                self.ftl().flash().write_frame(frame, page);
                Some(NewBlock { frame, sum })
            }
            _ => None,
        };
        let mut commits = self.ftl().commits();
        let is_same = held(commits.kept(vid, generation, vba)) == wrong.own.0;
        let takes = is_same && scrubs_beside_writers(wrong.own, (their, peer_is_good), is_first, is_at_rest);
        let stamp = their.stamp();
        let target = Target { vid, generation, vba, stamp, only_mapped: false, fills: false };
        let replaced = takes.then(|| commits.replace(now, &target, block));
        let at = commits.advance(now);
        drop(commits);
        self.maintain_by(at);
        if let Some(block) = block.filter(|_| !matches!(replaced, Some(Ok(_)))) {
            self.ftl().give_frame(block.frame);
        }
        match replaced {
            Some(Ok(_)) => Heal::Done,
            Some(Err(_)) => Heal::NoRoom,
            None if !is_same => Heal::Done,
            None if peer_is_good && !is_at_rest && their.stamp() != wrong.own.0.stamp() => Heal::Later,
            None => Heal::NotFrom,
        }
    }
}
