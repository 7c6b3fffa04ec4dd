// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This SSD repairs itself (rules 13 and 14 of the fleet): it fills its places, and settles volumes. Both are
//! one walk over blocks, and the rule for a block is `gnstor_fleet::fill`. It scrubs what it serves, too
//! ([`scrub`]).
//!
//! ```text
//!   map: places that fill --.                .-- digests -- rows --> differs? -- blocks --> the layer
//!                            +--> walk: windows of 1,024 blocks, each asked of one SSD
//!   SETTLE of a volume -----'                '-- no answer: asked again
//! ```
//! * A window asks for digests first, one for each 64 blocks. Where they equal the SSD's own, it asks for
//!   no rows.
//! * A walk belongs to one map. A newer one ends settles. It starts a fill over where other places fill, and
//!   else its open windows. What was compared stays current in the layer ([`gnstor_ftl::Commits`]).
//! * A fill starts over, too, where copies have merged and one of them serves now. No block of a merge is
//!   current, so a late write may have replaced a newer one.
//! * A fill takes a volume that is added while it is under way or over. An SSD in the place of another one
//!   may learn the map before it has the volumes.
//! * [`WINDOWS`] windows have at most one question each, with [`MOST_BLOCKS`] blocks of data.
//! * A fill is over when all blocks that it copied are durable.

mod answer;
mod apply;
mod ask;
mod digest;
mod order;
mod scrub;
mod settle;
pub(crate) mod state;
mod unread;
mod walk;

use crate::controller::Ssd;
use crate::permission::fleet::FilledPlace;
use gnstor_base::controller::AskId;
use gnstor_base::time::{Span, Time};
use gnstor_proto::placement::Rows;
use gnstor_proto::pull::MOST_BLOCKS;
use gnstor_proto::repair::{FillLog, FillState};
use gnstor_proto::slba::Vid;
use state::{Name, Walk, Work};

/// Windows of a walk that are open at a time.
const WINDOWS: usize = 4;
const _: () = assert!(MOST_BLOCKS <= 64, "a window's question is a mask");
/// An SSD that does not answer, or refuses, is asked again after this time.
const PAUSE: Span = Span::from_ms(20);
/// Pause before a block is requested again, if the layer has no room for it.
const NO_ROOM: Span = Span::from_ms(2);
/// A question that has no answer after this time gets none.
const PATIENCE: Span = Span::from_ms(2000);
/// Interval of checks whether all copied blocks are durable.
const DURABLE_POLL: Span = Span::from_ms(1);
/// How soon a fill that is paused looks whether a new term has ended the pause.
const PAUSED_POLL: Span = Span::from_ms(100);
/// The top bit of a question's name: it is of a repair.
const MARK: u32 = 1 << 31;

/// Whether a question belongs to a repair.
pub(crate) fn is_of_repair(ask: AskId) -> bool {
    ask.0 & MARK != 0
}

impl Ssd {
    /// Makes repairs follow a new map of the table.
    pub(crate) fn follow_fill(&mut self, now: Time) {
        self.scrub_by_new_map(now);
        self.repair.walks.retain(|name, _| *name == Name::Fill);
        let fleet = self.table.fleet().filter(|fleet| !fleet.has_forgotten());
        let places = fleet.map_or_else(Vec::new, |fleet| fleet.fills().to_vec());
        if places.is_empty() {
            // This must not be done earlier: now no write that the older map judged can be committed any
            // more.
            if !std::mem::take(&mut self.repair.places).is_empty() {
                self.repair.walks.clear();
                self.ftl().forget_current();
            }
            return;
        }
        match self.repair.walks.get_mut(&Name::Fill).filter(|_| self.repair.places == places) {
            Some(walk) => walk.restart_windows(None),
            None => {
                let mut walk = Walk::from(Name::Fill, Vid::MIN, 0);
                let same = |(a, b): (&FilledPlace, &FilledPlace)| (a.0, a.1) == (b.0, b.1);
                let is_same = self.repair.places.len() == places.len()
                    && self.repair.places.iter().zip(&places).all(same);
                if let Some(merged) = self.repair.walks.get(&Name::Fill).filter(|_| is_same) {
                    (walk.pulled, walk.unreadable) = (merged.pulled, merged.unreadable);
                }
                self.repair.walks.insert(Name::Fill, walk);
                self.keep_current();
            }
        }
        self.repair.places = places;
        self.wake_at(now);
    }

    /// Adds a new volume to the fill.
    pub(crate) fn fill_added(&mut self, now: Time, vid: Vid) {
        if let Some(walk) = self.repair.walks.get_mut(&Name::Fill) {
            walk.add(vid);
            self.wake_at(now);
        }
    }

    /// If the place continues to fill, current blocks stay current. A place that a map took away may come
    /// back later.
    fn keep_current(&self) {
        self.ftl().retain_current(|vid, generation, vba| {
            let volume = Vid::new(vid).and_then(|vid| self.table.volume(vid));
            volume.filter(|volume| volume.entry().generation == generation).is_some_and(|volume| {
                self.table.fleet().is_some_and(|fleet| fleet.fills_block(volume.entry(), vba))
            })
        });
    }

    /// When work of a repair on so many pages may have ended.
    fn turn(&mut self, now: Time, work: Work, pages: usize) -> Time {
        let commands = self.workers().tally().entered;
        let (read, write) = self.config().preset.page_costs();
        let cost = if work == Work::Read { read } else { write };
        self.repair.pace.turn(now, commands, cost, pages)
    }

    /// Whether an operator has paused fills. The next daemon does not know of the pause, so its term ends it.
    pub(crate) fn is_fill_paused(&self) -> bool {
        self.repair.paused_in == Some(self.table.term())
    }

    /// Continues all walks. Returns the time of the next call.
    pub(crate) fn repair_on(&mut self, now: Time) -> Time {
        if self.repair.walks.is_empty() && self.repair.open.is_empty() && !self.repair.scrub.runs() {
            return Time::NEVER;
        }
        let mut next = self.end_late_questions(now).min(self.scrub_on(now));
        let names: Vec<Name> = self.repair.walks.keys().copied().collect();
        for name in names {
            if name == Name::Fill && self.is_fill_paused() {
                next = next.min(now + PAUSED_POLL);
                continue;
            }
            if let Some(mut walk) = self.repair.walks.remove(&name) {
                next = next.min(self.walk_on(now, &mut walk));
                self.repair.walks.insert(name, walk);
            }
        }
        next
    }

    /// The log page of the fill.
    pub(crate) fn fill_log(&self) -> FillLog {
        let walk = self.repair.walks.get(&Name::Fill);
        let state = match walk {
            None => FillState::Nothing,
            Some(walk) if walk.is_over() => FillState::Filled,
            Some(_) => FillState::Filling,
        };
        let walked = walk.map_or(0, |walk| walk.walked);
        let all = walk.map_or(0, |_| {
            let volumes = self.table.volumes_from(0).map(|volume| volume.entry());
            let blocks = volumes.filter(|entry| !entry.deleting).map(|entry| entry.capacity_blocks);
            blocks.sum::<u64>().max(walked)
        });
        FillLog {
            state,
            epoch: self.table.fleet().map_or(0, |fleet| fleet.map().epoch()),
            incarnation: self.identity().incarnation,
            waits_for: walk.and_then(Walk::waits_for),
            compared: walked,
            all,
            pulled: walk.map_or(0, |walk| walk.pulled),
            unreadable: walk.map_or(0, |walk| walk.unreadable),
        }
    }
}
