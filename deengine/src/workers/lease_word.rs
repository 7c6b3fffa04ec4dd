// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of the serving lease: a word beside the rules, which every check loads. A renewal stores it, and
//! copies no rules.
//!
//! ```text
//!   worker   1 load the version   2 load the word, judge   3 under the layer's lock: same version? commit
//!   firmware, a renewal                  1 store the word   2 answer
//!   firmware, an end that comes nearer   1 store the word   2 count the version up   3 answer
//! ```
//! An old word is an earlier end, and refuses more: a renewal needs no more than the store. An end that comes
//! nearer must also reach a write that was judged by the later end and waits for its commit. So it counts as
//! a change of the rules. The word comes first: a worker that finds the new version in step 1 finds the new
//! word in step 2. `tests/loom/in_flight.rs` checks every interleaving.

use super::in_flight::Version;
use super::sync::{AtomicU64, Ordering};

/// Until when the SSD serves, in picoseconds of the SSD's clock. Only the firmware writes it.
#[derive(Debug)]
pub(crate) struct LeaseWord(AtomicU64);

impl LeaseWord {
    /// A lease that ends then.
    pub(crate) fn new(until: u64) -> Self {
        Self(AtomicU64::new(until))
    }

    /// End of the lease.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        // Pairs with the store. With the version of step 1 it returns the word that was stored before that
        // version.
        self.0.load(Ordering::Acquire)
    }

    /// Sets the end of the lease.
    pub(crate) fn set(&self, until: u64, version: &Version) {
        let is_nearer = until < self.get();
        // The answer, which leaves behind it, must not be seen by a host before the word is. A command that
        // the host sends then may be judged by any worker.
        self.0.store(until, Ordering::SeqCst);
        if is_nearer {
            version.change();
        }
    }
}
