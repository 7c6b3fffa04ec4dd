// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is next, where commands wait for the modelled firmware: under the lock, or with cores.

use super::roster::{Roster, Share, add};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Whose turn it is, where commands wait under the lock and with the cores: each side gets as many as it has controllers.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Turns {
    /// What the cores may still take before the firmware's own line is next, in parts of a command.
    credit: AtomicI64,
}

/// Parts of a command: shares are rounded to these.
const PARTS: i64 = 64;

/// What waits with a core for the modelled firmware.
#[derive(Debug, Default)]
pub(super) struct InLine {
    /// Controllers whose commands they are.
    controllers: AtomicU32,
    /// What the core has taken from there, in parts of a command for each controller: the core with the least is next.
    taken: AtomicU64,
}

impl Share {
    /// The commands of so many controllers wait with the core.
    #[inline]
    pub(super) fn set_in_line(&self, controllers: usize) {
        let (there, now) = (&self.in_line.0.controllers, u32::try_from(controllers).unwrap_or(u32::MAX));
        if there.load(Ordering::Relaxed) != now {
            there.store(now, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn in_line(&self) -> u32 {
        self.in_line.0.controllers.load(Ordering::Relaxed)
    }

    fn taken(&self) -> u64 {
        self.in_line.0.taken.load(Ordering::Relaxed)
    }
}

impl Roster {
    /// Controllers whose commands wait with their cores.
    fn in_lines(&self) -> i64 {
        self.shares.iter().map(|share| i64::from(share.in_line())).sum()
    }

    /// The least that a core with commands in line has taken; `core` is not asked.
    fn least_taken(&self, core: usize) -> Option<u64> {
        let others = self.shares.iter().enumerate().filter(|&(other, share)| other != core && share.in_line() > 0);
        others.map(|(_, share)| share.taken()).min()
    }

    /// The first command waits with the core: it is served from now on, and not for the time before.
    pub(super) fn join_line(&self, core: usize) {
        if let Some(least) = self.least_taken(core) {
            self.share(core).in_line.0.taken.fetch_max(least, Ordering::Relaxed);
        }
    }

    /// Whether no other core with commands in line has had less.
    pub(super) fn is_next(&self, core: usize) -> bool {
        self.least_taken(core).is_none_or(|least| self.share(core).taken() <= least)
    }

    /// Whether the firmware's own line is next.
    pub(crate) fn is_firmwares_turn(&self) -> bool {
        self.turns.credit.load(Ordering::Relaxed) < PARTS || self.in_lines() == 0
    }

    /// Whether a core is next.
    pub(super) fn is_cores_turn(&self) -> bool {
        !self.is_waiting() || self.turns.credit.load(Ordering::Relaxed) >= PARTS
    }

    /// The firmware has taken a command from its own line, in which so many controllers wait.
    pub(crate) fn firmware_took(&self, controllers: usize) {
        let (mine, theirs) = (i64::try_from(controllers).unwrap_or(i64::MAX).max(1), self.in_lines());
        let credit = self.turns.credit.load(Ordering::Relaxed);
        // What nobody has claimed in time is not kept.
        let most = PARTS * theirs.max(1);
        self.turns.credit.store((credit + PARTS * theirs / mine).min(most), Ordering::Relaxed);
    }

    /// A core has taken a command from its line.
    pub(super) fn core_took(&self, core: usize) {
        let share = self.share(core);
        add(&share.in_line.0.taken, PARTS.unsigned_abs() / u64::from(share.in_line().max(1)));
        let credit = self.turns.credit.load(Ordering::Relaxed);
        self.turns.credit.store((credit - PARTS).max(0), Ordering::Relaxed);
    }
}
