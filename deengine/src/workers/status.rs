// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that workers check between commands: when the firmware or the translation layer has something to do.

use super::WorkerSet;
use gnstor_base::time::{Span, Time};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// How long after the alarm's time other workers act in place of its keeper.
const LATE: Span = Span::from_ms(10);

/// State of the firmware that the workers need.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Status {
    /// When the alarm is due, in picoseconds.
    alarm: AtomicU64,
    /// The worker that set the alarm. Its thread is awake meanwhile, and does not sleep past it.
    keeper: AtomicUsize,
    /// Time in picoseconds at which to read the flash's health again, if something has changed.
    look_at: AtomicU64,
    /// The latest time that a worker has seen, to a millisecond, in picoseconds. A worker's own time may
    /// be older: its thread may not have run since.
    latest: AtomicU64,
    /// A fence waits for commands in flight.
    fencing: AtomicBool,
    /// Every write must be durable before its answer.
    writes_through: AtomicBool,
    layer: Layer,
}

/// State that each holder of the translation layer's lock writes. It has cache lines of its own, as every
/// command reads the rest.
#[derive(Debug)]
#[repr(align(128))]
struct Layer {
    /// When the layer has something to do, in picoseconds. The holder of its lock sets it; others only
    /// make it earlier.
    maintain_at: AtomicU64,
    /// The layer has changed since the health of the flash was looked at.
    changed: AtomicBool,
    /// A worker has the lock, for commits.
    committing: AtomicBool,
}

impl Default for Status {
    fn default() -> Self {
        let never = || AtomicU64::new(Time::NEVER.as_ps());
        Self {
            alarm: never(),
            keeper: AtomicUsize::new(0),
            look_at: never(),
            latest: AtomicU64::new(0),
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

/// Marks that a worker commits, until this is dropped.
pub(crate) struct Committing<'a>(&'a WorkerSet);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.status.layer.committing.store(false, Ordering::Relaxed);
    }
}

impl WorkerSet {
    /// Worker `by`, which holds the lock, publishes the firmware's state. A word that has not changed is not
    /// written, as all workers read it.
    pub(crate) fn publish(
        &self,
        by: usize,
        (alarm, look_at): (Time, Time),
        fencing: bool,
        writes_through: bool,
    ) {
        let status = &self.status;
        let publish = |word: &AtomicU64, time: Time| {
            let differs = word.load(Ordering::Relaxed) != time.as_ps();
            if differs {
                word.store(time.as_ps(), Ordering::Relaxed);
            }
            differs
        };
        publish(&status.look_at, look_at);
        // The alarm and its keeper are two words, and another worker may read an old value of either. Then it
        // wakes for nothing, or leaves the alarm to this worker. That is safe: this worker sees what it has
        // stored itself, and wakes in time.
        if publish(&status.alarm, alarm) && status.keeper.load(Ordering::Relaxed) != by {
            status.keeper.store(by, Ordering::Relaxed);
        }
        let flags = [(&status.fencing, fencing), (&status.writes_through, writes_through)];
        for (flag, is_set) in flags {
            if flag.load(Ordering::Relaxed) != is_set {
                flag.store(is_set, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    pub(crate) fn alarm(&self) -> Time {
        Time::from_ps(self.status.alarm.load(Ordering::Relaxed))
    }

    /// Time at which `worker` is to look for work of the firmware or of the layer. Only the keeper of the
    /// alarm comes when the alarm is due: so an alarm wakes one thread.
    #[inline]
    pub(crate) fn next(&self, worker: usize) -> Time {
        let status = &self.status;
        let is_keeper = status.keeper.load(Ordering::Relaxed) == worker;
        let alarm = if is_keeper { self.alarm() } else { self.alarm() + LATE };
        let look_at = if status.layer.changed.load(Ordering::Relaxed) {
            &status.look_at
        } else {
            &status.layer.maintain_at
        };
        let soonest = status.layer.maintain_at.load(Ordering::Relaxed).min(look_at.load(Ordering::Relaxed));
        alarm.min(Time::from_ps(soonest))
    }

    /// Notes a change in the layer.
    #[inline]
    pub(crate) fn note_change(&self) {
        if !self.status.layer.changed.load(Ordering::Relaxed) {
            self.status.layer.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it is time for the firmware to read the health of the flash.
    #[inline]
    pub(crate) fn is_to_look(&self, now: Time) -> bool {
        let status = &self.status;
        status.layer.changed.load(Ordering::Relaxed) && now.as_ps() >= status.look_at.load(Ordering::Relaxed)
    }

    /// Notes that the firmware reads the health of the flash now, so earlier changes no longer count.
    pub(crate) fn looked(&self) {
        self.status.layer.changed.store(false, Ordering::Relaxed);
    }

    /// A worker has seen this time.
    #[inline]
    pub(crate) fn saw(&self, now: Time) {
        let latest = &self.status.latest;
        if now.as_ps() >= latest.load(Ordering::Relaxed).saturating_add(Span::from_ms(1).as_ps()) {
            latest.fetch_max(now.as_ps(), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn latest(&self) -> Time {
        Time::from_ps(self.status.latest.load(Ordering::Relaxed))
    }

    /// The translation layer has something to do at `at`.
    pub(crate) fn maintain_by(&self, at: Time) {
        self.status.layer.maintain_at.fetch_min(at.as_ps(), Ordering::Relaxed);
    }

    /// The holder of the translation layer's lock says that the layer next has something to do at `at`.
    pub(crate) fn maintain_at(&self, at: Time) {
        self.status.layer.maintain_at.store(at.as_ps(), Ordering::Relaxed);
    }

    /// Marks that a worker is committing, until the guard is dropped. Meanwhile other workers do not try the
    /// lock.
    pub(crate) fn committing(&self) -> Committing<'_> {
        self.status.layer.committing.store(true, Ordering::Relaxed);
        Committing(self)
    }

    /// Whether a worker commits, so that trying the layer's lock would most probably fail.
    #[inline]
    pub(crate) fn is_committing(&self) -> bool {
        self.status.layer.committing.load(Ordering::Relaxed)
    }

    /// Whether the translation layer has something to do.
    #[inline]
    pub(crate) fn is_maintenance_due(&self, now: Time) -> bool {
        now.as_ps() >= self.status.layer.maintain_at.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_fencing(&self) -> bool {
        self.status.fencing.load(Ordering::Relaxed)
    }

    /// Whether a write may be answered only when it is durable.
    #[inline]
    pub(crate) fn writes_through(&self) -> bool {
        self.status.writes_through.load(Ordering::Relaxed)
    }
}
