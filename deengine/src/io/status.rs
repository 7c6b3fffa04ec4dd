// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the workers look at between commands: when the firmware wants to be called, and what it waits for.

use super::workers::WorkerSet;
use gnstor_base::time::{Span, Time};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the workers need to know of the firmware's state.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct State {
    /// In picoseconds.
    alarm: AtomicU64,
    /// When the health of the flash is to be looked at again where something has changed, in picoseconds.
    look_at: AtomicU64,
    /// The latest time that a worker has seen, to a millisecond, in picoseconds: a worker may have been kept waiting since it looked at its own.
    latest: AtomicU64,
    /// Commands wait for the modelled firmware: whoever comes now is not the next.
    waiting: AtomicBool,
    /// Somebody waits for commands in flight.
    fencing: AtomicBool,
    /// Every write is to be durable before it is answered.
    writes_through: AtomicBool,
    layer: Layer,
}

/// What every hold of the translation layer's lock writes, apart from what every command reads.
#[derive(Debug)]
#[repr(align(128))]
struct Layer {
    /// When the layer has something to do, in picoseconds. Whoever has its lock says when; others can only make it earlier.
    maintain_at: AtomicU64,
    /// Something has become of it since the health of the flash was looked at.
    changed: AtomicBool,
    /// A worker has the lock, for commits.
    committing: AtomicBool,
}

impl Default for State {
    fn default() -> Self {
        let never = || AtomicU64::new(Time::NEVER.as_ps());
        Self {
            alarm: never(),
            look_at: never(),
            latest: AtomicU64::new(0),
            waiting: AtomicBool::new(false),
            fencing: AtomicBool::new(false),
            writes_through: AtomicBool::new(false),
            layer: Layer {
                maintain_at: never(),
                changed: AtomicBool::new(false),
                committing: AtomicBool::new(false),
            },
        }
    }
}

/// Somebody commits as long as it is there.
pub(super) struct Committing<'a>(&'a WorkerSet);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.state.layer.committing.store(false, Ordering::Relaxed);
    }
}

impl WorkerSet {
    /// What the workers need to know of the firmware's state. What is as it was is not written: all workers read it.
    pub(super) fn publish(
        &self,
        (alarm, look_at): (Time, Time),
        waiting: bool,
        fencing: bool,
        writes_through: bool,
    ) {
        let state = &self.state;
        for (word, time) in [(&state.alarm, alarm), (&state.look_at, look_at)] {
            if word.load(Ordering::Relaxed) != time.as_ps() {
                word.store(time.as_ps(), Ordering::Relaxed);
            }
        }
        let flags =
            [(&state.waiting, waiting), (&state.fencing, fencing), (&state.writes_through, writes_through)];
        for (flag, is_set) in flags {
            if flag.load(Ordering::Relaxed) != is_set {
                flag.store(is_set, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    pub(super) fn alarm(&self) -> Time {
        Time::from_ps(self.state.alarm.load(Ordering::Relaxed))
    }

    /// When either has something to do.
    #[inline]
    pub(super) fn next(&self) -> Time {
        let state = &self.state;
        let look_at = if state.layer.changed.load(Ordering::Relaxed) {
            &state.look_at
        } else {
            &state.layer.maintain_at
        };
        let soonest = state.layer.maintain_at.load(Ordering::Relaxed).min(look_at.load(Ordering::Relaxed));
        self.alarm().min(Time::from_ps(soonest))
    }

    /// The layer has done something.
    #[inline]
    pub(super) fn note_change(&self) {
        if !self.state.layer.changed.load(Ordering::Relaxed) {
            self.state.layer.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the firmware is to look what has become of the flash.
    #[inline]
    pub(super) fn is_to_look(&self, now: Time) -> bool {
        let state = &self.state;
        state.layer.changed.load(Ordering::Relaxed) && now.as_ps() >= state.look_at.load(Ordering::Relaxed)
    }

    /// It looks.
    pub(super) fn looked(&self) {
        self.state.layer.changed.store(false, Ordering::Relaxed);
    }

    /// A worker has seen this time.
    #[inline]
    pub(super) fn saw(&self, now: Time) {
        let latest = &self.state.latest;
        if now.as_ps() >= latest.load(Ordering::Relaxed).saturating_add(Span::from_ms(1).as_ps()) {
            latest.fetch_max(now.as_ps(), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn latest(&self) -> Time {
        Time::from_ps(self.state.latest.load(Ordering::Relaxed))
    }

    /// The translation layer has something to do at `at`.
    pub(crate) fn maintain_by(&self, at: Time) {
        self.state.layer.maintain_at.fetch_min(at.as_ps(), Ordering::Relaxed);
    }

    /// The translation layer next has something to do at `at`, says whoever has its lock.
    pub(super) fn maintain_at(&self, at: Time) {
        self.state.layer.maintain_at.store(at.as_ps(), Ordering::Relaxed);
    }

    /// Says to those who would only disturb by trying the lock that somebody commits, until the guard goes.
    pub(super) fn committing(&self) -> Committing<'_> {
        self.state.layer.committing.store(true, Ordering::Relaxed);
        Committing(self)
    }

    /// Whether trying the lock of the translation layer is in vain, most probably.
    #[inline]
    pub(super) fn is_committing(&self) -> bool {
        self.state.layer.committing.load(Ordering::Relaxed)
    }

    /// Whether the translation layer has something to do.
    #[inline]
    pub(super) fn is_maintenance_due(&self, now: Time) -> bool {
        now.as_ps() >= self.state.layer.maintain_at.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.state.waiting.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_fencing(&self) -> bool {
        self.state.fencing.load(Ordering::Relaxed)
    }

    /// Whether a write may be answered only when it is durable.
    #[inline]
    pub(super) fn writes_through(&self) -> bool {
        self.state.writes_through.load(Ordering::Relaxed)
    }
}
