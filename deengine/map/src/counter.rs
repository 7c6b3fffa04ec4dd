// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters that one thread changes and others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that shares its cache line with nothing.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets a counter that only the writer changes. `Release`: see the head of `map.rs`.
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// As [`Self::get`], for a reader that then sees what the writer did before it set this value.
    #[inline]
    pub(crate) fn acquire(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
