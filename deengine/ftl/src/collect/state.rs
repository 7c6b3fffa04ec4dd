// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of collection under the layer's lock.

use gnstor_base::time::{Span, Time};
use gnstor_flash::{Copying, Frame, Oob, Ppa, Superblock};
use std::collections::VecDeque;

/// Hosts are idle when they have written nothing for this long.
pub(crate) const IDLE_AFTER: Span = Span::from_ms(10);

/// State of collection.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    pub(in crate::collect) victim: Option<Victim>,
    /// Pages on their way into frames, oldest first. They are pinned, and most are the victim's.
    pub(in crate::collect) loading: VecDeque<Loading>,
    /// Background collection found no victim worth its moves, and nothing has changed since.
    pub(in crate::collect) found_nothing: bool,
    pub(in crate::collect) worn_out: bool,
    /// Time of the last host write.
    pub(in crate::collect) last_write: Time,
}

/// A superblock that is being emptied.
#[derive(Clone, Copy, Debug)]
pub(in crate::collect) struct Victim {
    pub(in crate::collect) superblock: Superblock,
    /// Collection has moved all valid pages before this one.
    pub(in crate::collect) next: u32,
    /// Valid pages when the victim was chosen, and pages that its erase gains beyond them. `gain` host pages
    /// pay for `valid` moves, so that the victim is empty when its gain is used up.
    pub(in crate::collect) valid: u32,
    pub(in crate::collect) gain: u32,
    /// Number of moves that hosts have paid for and that are still to be made, times `gain`. If it is
    /// negative, moves were made in advance.
    pub(in crate::collect) owed: i64,
}

/// Valid pages of a unit on their way into frames.
#[derive(Debug)]
pub(in crate::collect) struct Loading {
    /// When they are read in the model.
    pub(in crate::collect) ready: Time,
    pub(in crate::collect) loads: Vec<Load>,
}

/// A page on its way into a frame.
#[derive(Debug)]
pub(in crate::collect) struct Load {
    pub(in crate::collect) page: Ppa,
    pub(in crate::collect) oob: Oob,
    pub(in crate::collect) frame: Frame,
    pub(in crate::collect) copy: Copying,
}

impl Collector {
    /// Whether pages are on their way into frames, or there and not placed yet.
    pub(crate) fn is_loading(&self) -> bool {
        !self.loading.is_empty()
    }

    /// A host has written, so there may be something to collect.
    pub(crate) fn host_wrote(&mut self, now: Time) {
        (self.last_write, self.found_nothing) = (now, false);
    }

    /// The numbers of valid pages have changed, so background collection searches again.
    pub(crate) fn look_again(&mut self) {
        self.found_nothing = false;
    }

    /// Time from which hosts count as idle.
    pub(crate) fn idle_from(&self) -> Time {
        self.last_write + IDLE_AFTER
    }

    /// A page is not valid any more, so collection may bring room again.
    pub(crate) fn has_more_room(&mut self) {
        self.worn_out = false;
    }

    /// Too many blocks have gone bad for more writes.
    pub(crate) fn is_worn_out(&self) -> bool {
        self.worn_out
    }

    /// The superblock has no valid page left: it is no victim any more.
    pub(crate) fn drop_victim(&mut self, superblock: Superblock) {
        self.victim.take_if(|victim| victim.superblock == superblock);
    }
}
