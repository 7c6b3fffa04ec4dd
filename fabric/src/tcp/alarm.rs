// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a stream reports, from any thread, that it has something to send.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

/// Streams with something to send, by their tokens, for the transport that polls them.
#[derive(Default)]
pub(crate) struct Alarm {
    rung: AtomicBool,
    tokens: Mutex<Vec<u32>>,
    /// Ends the sleep of the transport's thread.
    bell: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("rung", &self.rung).finish_non_exhaustive()
    }
}

impl Alarm {
    /// Sets what wakes the transport's thread. Only the first call counts.
    pub(crate) fn ring_by(&self, bell: impl Fn() + Send + Sync + 'static) {
        _ = self.bell.set(Box::new(bell));
    }

    /// As [`Self::ring`], on any thread: that of the transport may sleep.
    pub(super) fn ring_and_wake(&self, token: u32) {
        self.ring(token);
        if let Some(bell) = self.bell.get() {
            bell();
        }
    }

    /// For calls on the transport's thread, which checks the alarm before it sleeps.
    pub(super) fn ring(&self, token: u32) {
        self.tokens.lock().expect("no panic while held").push(token);
        // Pairs with the acquire in `take`: a transport that sees the flag finds the token.
        self.rung.store(true, Ordering::Release);
    }

    /// Hands over the tokens since the last call.
    #[inline]
    pub(crate) fn take(&self, mut each: impl FnMut(u32)) {
        if self.rung.load(Ordering::Acquire) {
            self.rung.store(false, Ordering::Relaxed);
            self.tokens.lock().expect("no panic while held").drain(..).for_each(&mut each);
        }
    }
}
