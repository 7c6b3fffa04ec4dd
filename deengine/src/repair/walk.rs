// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Progress of a walk: its next windows, and the next question of each.

use super::state::{Name, Walk, Window};
use super::{DURABLE_POLL, NO_ROOM, WINDOWS};
use crate::controller::Ssd;
use crate::permission::fleet::{Fleet, Place};
use gnstor_base::time::{Span, Time};
use gnstor_proto::placement::Rows;
use gnstor_proto::pull::{MOST_BLOCKS, MOST_ROWS, PeerRead, Wanted};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::{BTreeSet, VecDeque};

/// Most ranges that one step checks. Many of them may have nothing to compare.
const RANGES: usize = 256;
/// Pause between two such steps: clients' commands come first, and a large volume takes many steps.
const TURN: Span = Span::from_ns(200_000);

impl Ssd {
    /// Index of the SSD whose copy this SSD's copy of a block must equal. `None`: the copy stays as it is.
    pub(super) fn source_of(&self, name: Name, entry: &VolumeEntry, vba: u32) -> Option<u16> {
        let fleet = self.table.fleet()?;
        let source = fleet.source(entry, vba).filter(|source| Some(*source) != fleet.own());
        source.filter(|_| match name {
            Name::Fill => fleet.fills_block(entry, vba),
            Name::Settle(_) => fleet.place(entry, vba) != Place::Absent,
            Name::Scrub => matches!(fleet.place(entry, vba), Place::Serving { .. }),
        })
    }

    /// The SSDs that a walk asks about a block. Where the copies of a group merge, a fill asks all others.
    fn sources_of(&self, name: Name, entry: &VolumeEntry, vba: u32) -> Vec<u16> {
        let merges = |fleet: &&Fleet| name == Name::Fill && fleet.merges(entry, vba);
        match self.table.fleet().filter(merges) {
            Some(fleet) if fleet.fills_block(entry, vba) => fleet.sources(entry, vba),
            Some(_) => Vec::new(),
            None => self.source_of(name, entry, vba).into_iter().collect(),
        }
    }

    /// Whether a walk asks this SSD about a block.
    pub(super) fn asks_about(&self, name: Name, entry: &VolumeEntry, vba: u32, peer: u16) -> bool {
        let merges = |fleet: &&Fleet| name == Name::Fill && fleet.merges(entry, vba);
        match self.table.fleet().filter(merges) {
            Some(fleet) => {
                fleet.fills_block(entry, vba)
                    && fleet.own() != Some(peer)
                    && fleet.has_member(entry, vba, peer)
            }
            None => self.source_of(name, entry, vba) == Some(peer),
        }
    }

    /// The entry of a volume if its blocks are still to be compared.
    pub(super) fn entry_for(&self, walk: &Walk, vid: Vid) -> Option<&VolumeEntry> {
        let volume = self.table.volume(vid)?;
        let is_meant = match walk.name {
            Name::Fill | Name::Scrub => true,
            Name::Settle(_) => volume.entry().unsettled && volume.serial() == walk.serial,
        };
        Some(volume.entry()).filter(|entry| is_meant && !entry.deleting)
    }

    /// Continues a walk. Returns the time of the next call.
    pub(super) fn walk_on(&mut self, now: Time, walk: &mut Walk) -> Time {
        walk.windows.retain(|window| !window.is_done());
        let mut looked = 0;
        while walk.windows.len() < WINDOWS && looked < RANGES {
            looked += 1;
            if let Some((vid, first)) = walk.again.pop() {
                let walked = walk.walked;
                self.open_windows(walk, vid, first);
                walk.walked = walked;
                continue;
            }
            if let Some((vid, first)) = walk.added.pop_first() {
                let next = self.open_windows(walk, vid, first).filter(|(next, _)| *next == vid);
                walk.added.extend(next);
                continue;
            }
            let Some((vid, first)) = walk.next else { break };
            walk.next = self.open_windows(walk, vid, first);
        }
        let mut next = if looked == RANGES { now + TURN } else { Time::NEVER };
        for at in 0..walk.windows.len() {
            let window = &walk.windows[at];
            let (vid, generation) = (window.vid, window.generation);
            if window.ask.is_some() {
                continue;
            }
            if self.entry_for(walk, vid).is_none_or(|entry| entry.generation != generation) {
                // The volume is gone, or it has a writer again.
                let window = &mut walk.windows[at];
                (window.is_digested, window.to_list, window.pull) = (true, VecDeque::new(), VecDeque::new());
                next = now;
                continue;
            }
            if walk.windows[at].retry_at <= now && !self.ask_window(now, walk.name, &mut walk.windows[at]) {
                walk.windows[at].retry_at = now + NO_ROOM;
            }
            if walk.windows[at].ask.is_none() {
                next = next.min(walk.windows[at].retry_at);
            }
        }
        next.min(self.end_walk(now, walk))
    }

    /// All windows are done. Waits until the copied blocks are durable.
    fn end_walk(&self, now: Time, walk: &mut Walk) -> Time {
        if !walk.has_compared_all() || walk.is_durable {
            return Time::NEVER;
        }
        walk.is_durable = walk.last <= self.ftl().durable();
        if walk.is_durable {
            return Time::NEVER;
        }
        self.ftl().make_durable(now);
        self.workers().maintain_by(now);
        now + DURABLE_POLL
    }

    /// Opens the windows of a range, one for each SSD to ask. Returns the position after the range.
    fn open_windows(&self, walk: &mut Walk, vid: Vid, first: u64) -> Option<(Vid, u64)> {
        let name = walk.name;
        let (vid, first) = match name {
            Name::Settle(_) => (vid, first),
            Name::Fill | Name::Scrub => {
                let volume = self.table.volumes_from(vid.get()).next()?;
                let found = volume.entry().vid;
                (found, if found == vid { first } else { 0 })
            }
        };
        let behind = match name {
            Name::Settle(_) => None,
            Name::Fill | Name::Scrub => vid.get().checked_add(1).and_then(Vid::new).map(|vid| (vid, 0)),
        };
        let Some(entry) = self.entry_for(walk, vid) else { return behind };
        let end = entry.capacity_blocks.min(first + u64::from(MOST_ROWS));
        let chunk = 1u64 << entry.chunk_shift;
        let (mut peers, mut at) = (BTreeSet::new(), first);
        while at < end {
            let vba = u32::try_from(at).ok();
            peers.extend(vba.into_iter().flat_map(|vba| self.sources_of(name, entry, vba)));
            at = (at / chunk + 1) * chunk;
        }
        let (first, blocks) = (u32::try_from(first).ok()?, u32::try_from(end - first).ok()?);
        walk.windows.extend(peers.into_iter().map(|peer| Window {
            vid,
            generation: entry.generation,
            first,
            blocks,
            peer,
            is_digested: false,
            to_list: VecDeque::new(),
            pull: VecDeque::new(),
            ask: None,
            retry_at: Time::ZERO,
            waits: false,
            tried: (0, 0),
            unread: None,
            alone: None,
        }));
        walk.walked += u64::from(blocks);
        if end < entry.capacity_blocks { Some((vid, end)) } else { behind }
    }

    /// The next question of a window.
    pub(super) fn question_of(&self, window: &Window) -> Option<PeerRead> {
        let epoch = self.table.fleet()?.map().wire_epoch();
        let of_any = window.unread.is_some();
        let (first, wanted) = match window.pull.front() {
            None => match window.to_list.front() {
                Some(&(first, blocks)) => (first, Wanted::Rows(blocks)),
                None => (window.first, Wanted::Digests(window.blocks)),
            },
            Some(&first) if of_any => (first, Wanted::Blocks(1)),
            Some(&first) => {
                let places = window.pull.iter().map(|block| block - first).filter(|at| *at < MOST_BLOCKS);
                (first, Wanted::Blocks(places.fold(0, |mask, at| mask | 1 << at)))
            }
        };
        Some(PeerRead { epoch, vid: window.vid, generation: window.generation, first, wanted, of_any })
    }
}
