// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Engines that change threads. The cores of a virtual machine are not equally fast, and which one is slow changes; requests go to all SSDs
//! alike, so an engine that stays with a slow core holds up everybody. With one thread more than engines, a thread whose turn ends hands its
//! engine to the one that has none, and waits for another: no engine waits, and each is served by every thread in turn.
//!
//! ```text
//!   thread a: engine 0 --turn ends--> slot --> thread x, which had none
//!   thread a: none     <------------- slot <-- the next one whose turn ends
//! ```

use super::{NAP, Served};
use crate::time::{Span, Time};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a busy engine stays with a thread. Its state has to come from one core's cache to another's then, which takes some microseconds;
/// requests in flight last for a few hundred.
const TURN: Span = Span::from_ns(100_000);
/// How long the thread without an engine polls for one, where none comes.
const POLLS: Duration = Duration::from_millis(20);

/// Where an engine is handed over.
#[derive(Default)]
pub(super) struct Relay {
    slot: Mutex<Option<Served>>,
    /// There is an engine in the slot, more or less.
    full: AtomicBool,
    /// Threads without an engine that poll: an engine does not wait for one that sleeps. Counted down under the lock.
    polling: AtomicU32,
    /// Somebody would hand an engine over.
    wanted: AtomicBool,
}

impl Relay {
    fn slot(&self) -> MutexGuard<'_, Option<Served>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an engine to a thread that has none. `Err`: it goes on here.
    #[expect(clippy::result_large_err, reason = "the engine comes back")]
    pub(super) fn pass_on(&self, served: Served) -> Result<(), Served> {
        if self.polling.load(Ordering::Relaxed) == 0 {
            self.wanted.store(true, Ordering::Relaxed);
            return Err(served);
        }
        let mut slot = self.slot();
        // Another thread's turn may have ended just now, and its engine not have been taken yet.
        if slot.is_some() || self.polling.load(Ordering::Relaxed) == 0 {
            return Err(served);
        }
        *slot = Some(served);
        self.full.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for an engine; `None` when the threads are to end.
    #[expect(clippy::disallowed_methods, reason = "the runtime of this crate")]
    pub(super) fn take(&self, stop: &AtomicBool) -> Option<Served> {
        self.polling.fetch_add(1, Ordering::Relaxed);
        let mut since = Instant::now();
        while !stop.load(Ordering::Acquire) {
            if self.full.load(Ordering::Relaxed) {
                let mut slot = self.slot();
                if let Some(served) = slot.take() {
                    self.full.store(false, Ordering::Relaxed);
                    self.polling.fetch_sub(1, Ordering::Relaxed);
                    return Some(served);
                }
            }
            std::hint::spin_loop();
            if since.elapsed() >= POLLS {
                self.sleep(stop);
                since = Instant::now();
            }
        }
        None
    }

    /// Sleeps until an engine would be handed over, unless there is one.
    fn sleep(&self, stop: &AtomicBool) {
        let slot = self.slot();
        if slot.is_some() {
            return;
        }
        self.polling.fetch_sub(1, Ordering::Relaxed);
        drop(slot);
        while !stop.load(Ordering::Acquire) && !self.wanted.swap(false, Ordering::Relaxed) {
            std::thread::sleep(NAP);
        }
        self.polling.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread's time with an engine.
pub(super) struct Turn {
    since: Time,
    last: Time,
    busy: Span,
}

impl Turn {
    pub(super) fn new(now: Time) -> Self {
        Self { since: now, last: now, busy: Span::from_ns(0) }
    }

    /// After a step: whether the turn ends of an engine that had work for more than half of it. Another one stays where it is.
    pub(super) fn ends(&mut self, now: Time, worked: bool) -> bool {
        if worked {
            self.busy = self.busy + now.since(self.last);
        }
        self.last = now;
        let passed = now.since(self.since);
        if passed < TURN {
            return false;
        }
        let is_busy = self.busy.as_ps() > passed.as_ps() / 2;
        *self = Self::new(now);
        is_busy
    }
}
