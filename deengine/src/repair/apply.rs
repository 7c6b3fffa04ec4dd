// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a walk applies an answer: `gnstor_fleet::fill` judges each block while the layer is locked, so no
//! client's write comes in between.

use super::state::{Name, Walk, Window, Work};
use super::{NO_ROOM, PAUSE};
use crate::controller::Ssd;
use gnstor_base::time::Time;
use gnstor_durable::Seq;
use gnstor_fleet::fill::Filling;
use gnstor_fleet::repair::Held;
use gnstor_ftl::{CommitError, Commits, Kept, NewBlock, Target, other_than};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::pull::{DATA_AT, Kind, PeerRead, Row, Wanted};
use gnstor_proto::slba::Stamp;
use std::collections::BTreeMap;

/// Result for a block.
enum Outcome {
    /// The block does not change.
    Same,
    /// The block, which has no data, got the other SSD's stamp by this transaction.
    Noted(Seq),
    /// The block got the other SSD's content by this transaction.
    Replaced(Seq, Time),
    /// The other SSD's data is needed.
    Differs,
}

pub(super) type Page = [u8; BLOCK_BYTES as usize];

/// The answer of another SSD.
pub(super) struct PeerAnswer<'a> {
    pub(super) read: &'a PeerRead,
    /// Number of rows that the answer claims to have in `data`.
    pub(super) rows: u32,
    pub(super) data: &'a [u8],
}

impl<'a> PeerAnswer<'a> {
    fn rows(&self) -> Option<Vec<Row>> {
        Row::decode_all(self.data, usize::try_from(self.rows).ok()?)
    }

    /// The rows, each with its block if it has one. `None`: they are not the requested ones, or a block does
    /// not match its sum.
    pub(super) fn rows_with_blocks(&self) -> Option<Vec<(Row, Option<&'a Page>)>> {
        let rows = self.rows()?;
        if !rows.iter().map(|row| row.block).eq(self.read.blocks()) {
            return None;
        }
        let mut pages = self.data.get(DATA_AT..)?.chunks(BLOCK_BYTES as usize);
        let with_block = |row: Row| {
            let Kind::Block { sum } = row.kind else { return Some((row, None)) };
            let page: &Page = pages.next()?.try_into().ok()?;
            (block_sum(page) == sum).then_some((row, Some(page)))
        };
        rows.into_iter().map(with_block).collect()
    }
}

/// The other SSD's copy of a block.
pub(super) struct Theirs<'a> {
    pub(super) row: Row,
    /// The data and its sum, if they are needed.
    pub(super) page: Option<(&'a Page, u32)>,
}

pub(super) fn held(kept: Kept) -> Held {
    match kept {
        Kept::Nothing => Held::Nothing,
        Kept::Block { stamp, sum } => Held::Block { stamp, sum },
        Kept::Tombstone { stamp } => Held::Tombstone { stamp },
    }
}

pub(super) fn theirs(row: Option<&Row>) -> Held {
    match row.map(|row| (row.kind, row.stamp)) {
        Some((Kind::Block { sum } | Kind::Unreadable { sum }, stamp)) => Held::Block { stamp, sum },
        Some((Kind::Tombstone, stamp)) => Held::Tombstone { stamp },
        Some((Kind::Nothing, _)) | None => Held::Nothing,
    }
}

/// Which of two copies of a block is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// The other SSD's, unless a client has written here since.
    Copy,
    /// The copy with the higher stamp: no copy serves (rule 17).
    Merge,
    /// The other SSD's.
    Settle,
}

/// The other SSD's copy of a block, for the layer.
struct Copied {
    held: Held,
    /// Data of the block, in a frame of the layer.
    data: Option<NewBlock>,
}

/// Whether both are blocks with the same sum.
fn has_data_of(own: Held, theirs: Held) -> bool {
    matches!((own, theirs), (Held::Block { sum, .. }, Held::Block { sum: other, .. }) if sum == other)
}

/// Judges a block. Replaces it by the other SSD's copy if that is right and needs no data or has it.
fn judge(
    commits: &mut Commits<'_>,
    now: Time,
    (target, rule): &(Target, Rule),
    copied: Copied,
) -> Result<Outcome, CommitError> {
    let Copied { held: theirs, data } = copied;
    let Target { vid, generation, vba, fills, .. } = *target;
    let own = held(commits.kept(vid, generation, vba));
    let is_current = !fills || commits.is_current(vid, generation, vba);
    let mut block = Filling { held: own, is_current };
    let replaces = match rule {
        Rule::Copy => block.copy(theirs),
        Rule::Merge => block.merge(theirs),
        // The record has rotted on the first: its data is the same, and the stamp here is the right one.
        Rule::Settle if theirs.stamp() == Stamp::default() && has_data_of(own, theirs) => false,
        Rule::Settle => block.settle(theirs),
    };
    let holds = block.held;
    let mut outcome = Outcome::Same;
    if replaces {
        let target = Target { stamp: theirs.stamp(), ..*target };
        let block = match theirs {
            Held::Block { .. } if data.is_none() => return Ok(Outcome::Differs),
            Held::Block { .. } => data,
            Held::Nothing | Held::Tombstone { .. } => None,
        };
        let (seq, done) = commits.replace(now, &target, block)?;
        outcome = Outcome::Replaced(seq, done);
    } else if !matches!(holds, Held::Block { .. }) && (holds != own || fills) {
        // A block that is not mapped may have a stamp of an earlier life.
        let target = Target { stamp: holds.stamp(), ..*target };
        if let Some(seq) = commits.note_stamp(now, &target)? {
            outcome = Outcome::Noted(seq);
        }
    }
    if fills {
        commits.mark_current(vid, generation, vba);
    }
    Ok(outcome)
}

impl Ssd {
    /// Takes the rows of a part of a window. `None`: the data is no answer to the question.
    pub(super) fn compare_rows(
        &mut self,
        now: Time,
        walk: &mut Walk,
        window: &mut Window,
        answer: &PeerAnswer<'_>,
    ) -> Option<()> {
        let rows: BTreeMap<u32, Row> = answer.rows()?.into_iter().map(|row| (row.block, row)).collect();
        let listed = *window.to_list.front()?;
        if (answer.read.first, answer.read.wanted) != (listed.0, Wanted::Rows(listed.1)) {
            return None;
        }
        window.to_list.pop_front();
        let Some(targets) = self.targets(walk, window, listed.0..=listed.0 + (listed.1 - 1)) else {
            return Some(());
        };
        window.pull.clear();
        for part in targets.chunks(64) {
            let mut commits = self.ftl().commits();
            for target in part {
                let theirs = theirs(rows.get(&target.0.vba));
                match judge(&mut commits, now, target, Copied { held: theirs, data: None }) {
                    Ok(Outcome::Same) => {}
                    Ok(Outcome::Noted(seq)) => walk.last = walk.last.max(seq),
                    Ok(Outcome::Replaced(seq, _)) => {
                        (walk.pulled, walk.last) = (walk.pulled + 1, walk.last.max(seq));
                    }
                    Ok(Outcome::Differs) => window.pull.push_back(target.0.vba),
                    Err(_) => {
                        // There is no room now. The window is compared anew; blocks that are done stay done.
                        window.to_list.push_front(listed);
                        window.retry_at = now + NO_ROOM;
                        window.pull.clear();
                        let at = commits.advance(now);
                        drop(commits);
                        self.maintain_by(at);
                        return Some(());
                    }
                }
            }
            let at = commits.advance(now);
            drop(commits);
            self.maintain_by(at);
        }
        Some(())
    }

    /// Takes blocks with their data. `None`: the data is no answer to the question.
    pub(super) fn take_blocks(
        &mut self,
        now: Time,
        walk: &mut Walk,
        window: &mut Window,
        answer: &PeerAnswer<'_>,
    ) -> Option<()> {
        let rows = answer.rows_with_blocks()?;
        window.retry_at = self.turn(now, Work::Write, rows.len());
        for (row, page) in rows {
            let page = match row.kind {
                Kind::Block { sum } => page.map(|page| (page, sum)),
                Kind::Unreadable { sum } => {
                    if !window.gives_up(row.block) {
                        window.retry_at = now + PAUSE;
                        return Some(());
                    }
                    if self.asks_others(now, walk, window, &row) {
                        return Some(());
                    }
                    walk.unreadable += 1;
                    if self.keeps_own(walk, window, &row) {
                        window.pulled(row.block);
                        continue;
                    }
                    Some((other_than(sum), sum))
                }
                Kind::Nothing | Kind::Tombstone => None,
            };
            if !self.take_row(now, walk, window, &Theirs { row, page }) {
                return Some(());
            }
        }
        Some(())
    }

    /// Takes one block. `false`: it is asked for again, later.
    pub(super) fn take_row(
        &mut self,
        now: Time,
        walk: &mut Walk,
        window: &mut Window,
        from: &Theirs<'_>,
    ) -> bool {
        let block = from.row.block;
        let Some(targets) = self.targets(walk, window, block..=block) else { return false };
        if let Some(target) = targets.first() {
            let Some(done) = self.take_block(now, walk, target, from) else {
                window.retry_at = now + NO_ROOM;
                return false;
            };
            // The next question waits until the write buffer has these blocks.
            window.retry_at = window.retry_at.max(done);
        }
        window.pulled(block);
        true
    }

    /// Whether this SSD keeps its copy of a block that the other SSD cannot read.
    ///
    /// * If its record has rotted there, this SSD most likely has the same content.
    /// * Of two copies a newer one is the only content that is left. An older one is replaced: clients may
    ///   have seen the other content.
    /// * Of three copies another one may have the content. A scrub finds it.
    fn keeps_own(&self, walk: &Walk, window: &Window, row: &Row) -> bool {
        let Some(entry) = self.entry_for(walk, window.vid).filter(|_| walk.name != Name::Fill) else {
            return false;
        };
        let own = || held(self.ftl().commits().kept(window.vid, window.generation, row.block));
        row.stamp == Stamp::default() || entry.replicas == 2 && own().stamp() >= row.stamp
    }

    /// Writes one block with its data. Returns when the write buffer has it. `None`: there is no room now.
    fn take_block(
        &mut self,
        now: Time,
        walk: &mut Walk,
        target: &(Target, Rule),
        from: &Theirs<'_>,
    ) -> Option<Time> {
        let block = match from.page {
            None => None,
            Some((page, sum)) => {
                let frame = self.ftl().take_frame()?;
                self.ftl().flash().write_frame(frame, page);
                Some(NewBlock { frame, sum })
            }
        };
        let mut commits = self.ftl().commits();
        let copied = Copied { held: theirs(Some(&from.row)), data: block };
        let outcome = judge(&mut commits, now, target, copied);
        let at = commits.advance(now);
        drop(commits);
        self.maintain_by(at);
        match outcome {
            Ok(Outcome::Replaced(seq, done)) => {
                (walk.pulled, walk.last) = (walk.pulled + 1, walk.last.max(seq));
                return Some(done);
            }
            Ok(Outcome::Noted(seq)) => walk.last = walk.last.max(seq),
            Ok(Outcome::Same | Outcome::Differs) | Err(_) => {}
        }
        if let Some(block) = block {
            self.ftl().give_frame(block.frame);
        }
        outcome.is_ok().then_some(now)
    }

    /// The blocks among these that the window's SSD decides. `None`: the volume is gone, or has a writer.
    fn targets(
        &self,
        walk: &Walk,
        window: &Window,
        blocks: std::ops::RangeInclusive<u32>,
    ) -> Option<Vec<(Target, Rule)>> {
        let entry = self.entry_for(walk, window.vid)?;
        let fleet = self.table.fleet()?;
        let &Window { vid, generation, peer, .. } = window;
        let target = |vba: u32| {
            let rule = match walk.name {
                Name::Settle(_) => Rule::Settle,
                Name::Fill if fleet.merges(entry, vba) => Rule::Merge,
                Name::Fill | Name::Scrub => Rule::Copy,
            };
            // In a merge all stamps count.
            let fills = rule != Rule::Merge && fleet.fills_block(entry, vba);
            let stamp = Stamp::default();
            (Target { vid, generation, vba, stamp, only_mapped: false, fills }, rule)
        };
        let is_meant = |vba: &u32| self.asks_about(walk.name, entry, *vba, peer);
        (entry.generation == generation).then(|| blocks.filter(is_meant).map(target).collect())
    }
}
