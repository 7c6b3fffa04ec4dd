// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the cores look at between commands: when the firmware wants to be called, and what it waits for.

use super::roster::Roster;
use gnstor_fabric::time::Time;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the cores need to know of the firmware's state.
#[derive(Debug)]
pub(super) struct State {
    /// In picoseconds.
    alarm: AtomicU64,
    /// When the translation layer has something to do, in picoseconds. Whoever has its lock says when; others can only make it earlier.
    settle_at: AtomicU64,
    /// A core has the lock of the translation layer, for commits.
    committing: AtomicBool,
    /// Cores wait for their commits longer than they should.
    wants_help: AtomicBool,
    /// Somebody commits all the time who does nothing else.
    has_help: AtomicBool,
    /// Commands wait for the modelled firmware: whoever comes now is not the next.
    waiting: AtomicBool,
    /// Somebody waits for commands in flight.
    fencing: AtomicBool,
    /// Every write is to be durable before it is answered.
    writes_through: AtomicBool,
}

impl Default for State {
    fn default() -> Self {
        let never = || AtomicU64::new(Time::NEVER.as_ps());
        Self {
            alarm: never(),
            settle_at: never(),
            committing: AtomicBool::new(false),
            wants_help: AtomicBool::new(false),
            has_help: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            fencing: AtomicBool::new(false),
            writes_through: AtomicBool::new(false),
        }
    }
}

impl Roster {
    /// What the cores need to know of the firmware's state. What is as it was is not written: all cores read it.
    pub(super) fn publish(&self, alarm: Time, waiting: bool, fencing: bool, writes_through: bool) {
        let state = &self.state.0;
        if state.alarm.load(Ordering::Relaxed) != alarm.as_ps() {
            state.alarm.store(alarm.as_ps(), Ordering::Relaxed);
        }
        let flags = [(&state.waiting, waiting), (&state.fencing, fencing), (&state.writes_through, writes_through)];
        for (flag, is_set) in flags {
            if flag.load(Ordering::Relaxed) != is_set {
                flag.store(is_set, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    pub(super) fn alarm(&self) -> Time {
        Time::from_ps(self.state.0.alarm.load(Ordering::Relaxed))
    }

    /// When either has something to do.
    #[inline]
    pub(super) fn next(&self) -> Time {
        self.alarm().min(Time::from_ps(self.state.0.settle_at.load(Ordering::Relaxed)))
    }

    /// The translation layer has something to do at `at`.
    pub(crate) fn settle_by(&self, at: Time) {
        self.state.0.settle_at.fetch_min(at.as_ps(), Ordering::Relaxed);
    }

    /// The translation layer next has something to do at `at`, says whoever has its lock.
    pub(super) fn settle_at(&self, at: Time) {
        self.state.0.settle_at.store(at.as_ps(), Ordering::Relaxed);
    }

    /// Says so to those who would only disturb whoever commits by trying the lock.
    pub(super) fn set_committing(&self, is_committing: bool) {
        self.state.0.committing.store(is_committing, Ordering::Relaxed);
    }

    /// Whether trying the lock of the translation layer is in vain, most probably.
    #[inline]
    pub(super) fn is_committing(&self) -> bool {
        self.state.0.committing.load(Ordering::Relaxed)
    }

    /// A core waits for its commits.
    pub(super) fn ask_for_help(&self) {
        self.state.0.wants_help.store(true, Ordering::Relaxed);
    }

    pub(super) fn wants_help(&self) -> bool {
        self.state.0.wants_help.load(Ordering::Relaxed)
    }

    pub(super) fn set_help(&self, has_help: bool) {
        self.state.0.has_help.store(has_help, Ordering::Relaxed);
        self.state.0.wants_help.store(false, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn has_help(&self) -> bool {
        self.state.0.has_help.load(Ordering::Relaxed)
    }

    /// Whether the translation layer has something to do.
    #[inline]
    pub(super) fn is_to_settle(&self, now: Time) -> bool {
        now.as_ps() >= self.state.0.settle_at.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.state.0.waiting.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_fencing(&self) -> bool {
        self.state.0.fencing.load(Ordering::Relaxed)
    }

    /// Whether a write may be answered only when it is durable.
    #[inline]
    pub(super) fn writes_through(&self) -> bool {
        self.state.0.writes_through.load(Ordering::Relaxed)
    }
}
