// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Power cuts at a chosen operation.
//!
//! ```text
//!   operations:   1   2   3   4   5 ...            programs, erases, store writes, store syncs
//!   cut_after(3): ok  ok  TORN  -   -              the third is torn from the seed, nothing happens after it
//! ```
//! The flash and the stores of an SSD share one [`Power`]. A crash test runs a script with [`Power::steady`]
//! and asks [`Power::ops`] how many operations it had. Then it runs the script again with the power cut at
//! each of them.

use gnstor_proto::placement::mix64;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The power of an SSD.
#[derive(Debug)]
pub struct Power {
    cut: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    done: u64,
    /// Number of operations until the torn one, including it.
    left: Option<u64>,
    seed: u64,
}

/// How a durable operation ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The operation happens.
    Whole,
    /// The power goes while it happens; how far it gets is drawn from this seed.
    Torn(u64),
    /// The operation does not happen.
    Off,
}

impl Power {
    /// Power that stays.
    pub fn steady() -> Self {
        Self { cut: AtomicBool::new(false), state: Mutex::new(State { done: 0, left: None, seed: 0 }) }
    }

    /// Power that fails during durable operation number `ops` (from 1): that operation is torn, and later
    /// ones do not happen. With 0 no operation happens at all.
    pub fn cut_after(ops: u64, seed: u64) -> Self {
        let power = Self::steady();
        power.arm(ops, seed);
        power
    }

    /// From now on the power fails as in [`Self::cut_after`]. Turns the power on if it was cut.
    pub fn arm(&self, ops: u64, seed: u64) {
        let mut state = self.lock();
        state.left = Some(ops);
        state.seed = seed;
        self.cut.store(ops == 0, Ordering::Release);
    }

    /// Cuts the power between two operations.
    pub fn cut(&self) {
        let _state = self.lock();
        self.cut.store(true, Ordering::Release);
    }

    /// Whether the power is off.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Whether it is to fail at a later operation.
    pub fn is_armed(&self) -> bool {
        self.lock().left.is_some()
    }

    /// Number of durable operations begun, including a torn one.
    pub fn ops(&self) -> u64 {
        self.lock().done
    }

    /// The power is back, and stays.
    pub fn restore(&self) {
        self.lock().left = None;
        self.cut.store(false, Ordering::Release);
    }

    /// A durable operation is about to happen: whether it does. For implementers of a [`crate::Store`].
    pub fn step(&self) -> Step {
        if self.is_cut() {
            return Step::Off;
        }
        let mut state = self.lock();
        if self.is_cut() {
            return Step::Off;
        }
        state.done += 1;
        match &mut state.left {
            None => Step::Whole,
            Some(left) => {
                *left -= 1;
                if *left > 0 {
                    return Step::Whole;
                }
                self.cut.store(true, Ordering::Release);
                Step::Torn(mix64(state.seed ^ mix64(state.done)))
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Default for Power {
    fn default() -> Self {
        Self::steady()
    }
}
