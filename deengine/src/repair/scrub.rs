// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A scrub: this SSD reads each of its copies that serve, and compares it with those of other SSDs (rule 13).
//! The rule for a block is [`gnstor_fleet::repair::scrubs`].
//!
//! ```text
//!   range of 1,024 blocks --> own copies are read: which do not match their sum?
//!        ^                --> rows of each group's first: where does this SSD's copy differ?
//!        '-- all done ------- data for what is wrong here, from one serving SSD after the other
//! ```
//! * The first of a group reads its copies and compares them with no other SSD's: the others compare with it.
//! * While clients write, copies with other stamps are no fault: only equal stamps are compared.
//! * Copies that are on the medium only are loaded while the engine goes on, and looked up anew after that.
//! * A copy is replaced while the layer is locked, and only if it is still the one that was found wrong.
//! * The scrub's state is not durable: after a restart, an SSD does not continue a scrub.

mod heal;
mod look;

use super::state::{Name, Range, Scrub};
use crate::controller::Ssd;
use crate::permission::fleet::Place;
use crate::request::Refused;
use gnstor_base::time::{Span, Time};
use gnstor_proto::pull::MOST_ROWS;
use gnstor_proto::scrub::{ScrubLog, ScrubState};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::VecDeque;

/// Most ranges that one step checks. Many of them may have nothing that this SSD serves.
const RANGES: usize = 64;
/// Pause between two such steps, because clients' commands come first.
const TURN: Span = Span::from_ns(200_000);

impl Ssd {
    pub(super) fn start_scrub(&mut self, now: Time) -> Result<(), Refused> {
        if !self.table.fleet().is_some_and(|fleet| fleet.serves() && !fleet.stands_in()) {
            return Err(Refusal::NotServing.into());
        }
        if !self.repair.scrub.runs() {
            let log = ScrubLog {
                state: ScrubState::Running,
                ended: self.repair.scrub.log.ended,
                ..ScrubLog::default()
            };
            self.repair.scrub = Scrub { log, next: Some((Vid::MIN, 0)), range: None, due: now };
            self.wake_at(now);
        }
        Ok(())
    }

    pub(super) fn stop_scrub(&mut self) {
        if self.repair.scrub.runs() {
            self.repair.scrub.end(ScrubState::Stopped);
            self.let_go_range();
        }
    }

    /// The log page of the scrub.
    pub(crate) fn scrub_log(&self) -> ScrubLog {
        let scrub = &self.repair.scrub;
        let (share, is_fill_paused) = (self.repair.pace.share, self.is_fill_paused());
        let mut log = ScrubLog { share, is_fill_paused, ..scrub.log };
        if let Some(range) = &scrub.range {
            (log.rotten, log.healed) = (log.rotten + range.rotten, log.healed + range.healed);
            log.differ += range.differ;
        }
        let volumes = self.table.volumes_from(0).map(|volume| volume.entry());
        let all = volumes.filter(|entry| !entry.deleting).map(|entry| entry.capacity_blocks).sum::<u64>();
        log.all = if scrub.runs() { all.max(log.compared) } else { log.compared };
        log
    }

    /// Follows a new map of the table, in which another SSD may be the first of a group, and other places may
    /// serve.
    pub(super) fn scrub_by_new_map(&mut self, now: Time) {
        let serves = self.table.fleet().is_some_and(|fleet| fleet.serves());
        if self.repair.scrub.runs() && !serves {
            return self.stop_scrub();
        }
        let scrub = &mut self.repair.scrub;
        if let Some(range) = scrub.range.take() {
            scrub.count(&range, false);
            scrub.next = Some((range.vid, range.first.into()));
            scrub.due = now;
            self.let_go_range();
            self.wake_at(now);
        }
    }

    /// Continues the scrub. Returns the time of the next call.
    pub(super) fn scrub_on(&mut self, now: Time) -> Time {
        for _ in 0..RANGES {
            if !self.repair.scrub.runs() {
                return Time::NEVER;
            }
            if self.awaits_pages() {
                return Time::NEVER;
            }
            if self.repair.scrub.due > now {
                return self.repair.scrub.due;
            }
            match self.repair.scrub.range.take() {
                None => self.open_range(),
                Some(range) if range.ask.is_some() => {
                    self.repair.scrub.range = Some(range);
                    return Time::NEVER;
                }
                Some(mut range) => {
                    let has_more = self.range_on(now, &mut range);
                    let scrub = &mut self.repair.scrub;
                    if has_more {
                        scrub.range = Some(range);
                    } else {
                        scrub.count(&range, true);
                        self.let_go_range();
                    }
                }
            }
        }
        now + TURN
    }

    /// The next step of a range; `false`: it is over.
    fn range_on(&mut self, now: Time, range: &mut Range) -> bool {
        if self.scrubbed(range.vid).is_none_or(|entry| entry.generation != range.generation) {
            // The volume is gone.
            return false;
        }
        if range.at < range.first + range.blocks {
            self.look_at_own(now, range);
        } else if !range.firsts.is_empty() || !range.wrong.is_empty() {
            self.ask_of_range(now, range);
        } else {
            return false;
        }
        true
    }

    /// The entry of a volume, unless it is being deleted.
    fn scrubbed(&self, vid: Vid) -> Option<&VolumeEntry> {
        self.table.volume(vid).map(|volume| volume.entry()).filter(|entry| !entry.deleting)
    }

    /// Opens the next range with blocks that this SSD serves, or ends the scrub.
    fn open_range(&mut self) {
        let Some((vid, first)) = self.repair.scrub.next else {
            return self.repair.scrub.end(ScrubState::Done);
        };
        let Some(volume) = self.table.volumes_from(vid.get()).next() else {
            self.repair.scrub.next = None;
            return;
        };
        let entry = volume.entry();
        let first = if entry.vid == vid { first } else { 0 };
        let end = entry.capacity_blocks.min(first + u64::from(MOST_ROWS));
        let behind = || entry.vid.get().checked_add(1).and_then(Vid::new).map(|vid| (vid, 0));
        let next =
            if entry.deleting || end >= entry.capacity_blocks { behind() } else { Some((entry.vid, end)) };
        let (blocks, is_meant) = (end.saturating_sub(first), !entry.deleting && end > first);
        let range = is_meant.then(|| self.range_of(entry, first, blocks)).flatten();
        let scrub = &mut self.repair.scrub;
        scrub.next = next;
        if range.is_none() && is_meant {
            scrub.log.compared += blocks;
        }
        scrub.range = range;
    }

    /// A range, if this SSD serves any block of it.
    fn range_of(&self, entry: &VolumeEntry, first: u64, blocks: u64) -> Option<Range> {
        let (first, blocks) = (u32::try_from(first).ok()?, u32::try_from(blocks).ok()?);
        let fleet = self.table.fleet()?;
        let serves = |vba: &u32| matches!(fleet.place(entry, *vba), Place::Serving { .. });
        // All blocks of a chunk are in one group.
        let chunk = 1u32.checked_shl(entry.chunk_shift.into()).unwrap_or(u32::MAX);
        let of_chunks = (first..first + blocks).filter(|vba| *vba == first || vba.is_multiple_of(chunk));
        let served: Vec<u32> = of_chunks.filter(serves).collect();
        let mut firsts: Vec<u16> =
            served.iter().filter_map(|vba| self.source_of(Name::Scrub, entry, *vba)).collect();
        firsts.sort_unstable();
        firsts.dedup();
        (!served.is_empty()).then(|| Range {
            vid: entry.vid,
            generation: entry.generation,
            first,
            blocks,
            at: first,
            firsts,
            wrong: VecDeque::new(),
            ask: None,
            rotten: 0,
            healed: 0,
            differ: 0,
        })
    }
}
