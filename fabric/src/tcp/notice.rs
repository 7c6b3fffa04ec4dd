// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders of a host's account to one of its connections. Any thread may write them; the connection's engine
//! reads them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while held")
}

/// Orders to a connection to close queue pairs, or to end.
#[derive(Default)]
pub(super) struct Notice {
    /// Whether there are orders that were not read yet.
    is_new: AtomicBool,
    must_end: AtomicBool,
    /// Queue pairs to close, by the client's numbers.
    pairs: Mutex<Vec<u32>>,
    /// Wakes the connection.
    bell: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notice").field("must_end", &self.must_end).finish_non_exhaustive()
    }
}

impl Notice {
    /// Sets what wakes the connection when it is to read its notice.
    pub(super) fn on_news(&self, bell: impl Fn() + Send + Sync + 'static) {
        // The first one stays: a connection has one owner.
        let _ = self.bell.set(Box::new(bell));
        if self.is_new.load(Ordering::Acquire) {
            self.ring();
        }
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell();
        }
    }

    fn post(&self) {
        // Pairs with the acquire in `take`: a reader of the flag sees what was written before it.
        self.is_new.store(true, Ordering::Release);
        self.ring();
    }

    /// Orders the connection to end.
    pub(super) fn end(&self) {
        self.must_end.store(true, Ordering::Release);
        self.post();
    }

    /// Orders the connection to close this queue pair, by the client's number.
    pub(super) fn close(&self, pair: u32) {
        lock(&self.pairs).push(pair);
        self.post();
    }

    /// Whether the connection is to end.
    pub(super) fn must_end(&self) -> bool {
        self.must_end.load(Ordering::Acquire)
    }

    /// The queue pairs to close that were not returned before.
    pub(super) fn take(&self) -> Vec<u32> {
        if !self.is_new.load(Ordering::Relaxed) || !self.is_new.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut lock(&self.pairs))
    }
}
