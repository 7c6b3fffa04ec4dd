// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In-flight epochs: how commands in flight and changes of the rules see each other without a lock.
//!
//! ```text
//!   worker, a read     1 count it in flight     2 load the version: another than that of its rules?
//!                                                 then uncount the read, and fetch the rules
//!   firmware, CHMOD    1 count the version up   2 load the counts of commands in flight
//! ```
//! All four accesses are sequentially consistent. So of a command and a change that meet, one sees the other.
//! The command is judged by the new rules, or the change waits for it (protocol rule 8). A worker fetches the
//! rules under the firmware's lock. So it never sees half a change, although the version is counted up before
//! the change.
//!
//! There is a count for each volume and worker, and only the worker writes it. A worker that fetches new
//! rules moves the counts of changed volumes to the older epoch, and then says which version it has seen.
//! So new commands of a volume never hold up a fence. `tests/loom/in_flight.rs` checks every interleaving.

use super::sync::{AtomicU32, AtomicU64, Ordering};

/// Counts the changes of the rules.
#[derive(Debug, Default)]
pub(crate) struct Version(AtomicU64);

impl Version {
    /// Counts up before a change of the rules.
    pub(crate) fn change(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The version that a worker judges by.
#[derive(Debug, Default)]
pub(crate) struct Seen(AtomicU64);

impl Seen {
    /// The worker judges by this version from now on, and has aged the counts of changed volumes.
    pub(crate) fn set(&self, version: u64) {
        self.0.store(version, Ordering::Release);
    }
}

/// Commands of one volume that one worker has in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Commands judged by the entry as the worker knows it.
    current: AtomicU32,
    /// Commands judged by an entry that has been replaced.
    older: AtomicU32,
}

impl InFlight {
    /// A command begins that was judged by version `mine` of the rules. `false`: that version is old, and
    /// nothing was counted.
    #[inline]
    pub(crate) fn enter(&self, version: &Version, mine: u64) -> bool {
        self.current.store(self.current.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
        if version.get() == mine {
            return true;
        }
        self.leave(true);
        false
    }

    /// A command is no longer in flight. `is_current`: it was judged by the entry as the worker knows it.
    #[inline]
    pub(crate) fn leave(&self, is_current: bool) {
        let count = if is_current { &self.current } else { &self.older };
        // `Release`: the read's accesses come before the end of the volume, which may wait for the read.
        count.store(count.load(Ordering::Relaxed) - 1, Ordering::Release);
    }

    /// The volume's entry has changed, as the worker sees now.
    pub(crate) fn age(&self) {
        let current = self.current.load(Ordering::Relaxed);
        // In this order: a thread that sees `current` cleared sees the commands among the older ones.
        self.older.store(self.older.load(Ordering::Relaxed) + current, Ordering::Release);
        self.current.store(0, Ordering::Release);
    }

    /// Whether no command is in flight that was judged by an entry older than version `at`. Only the firmware
    /// calls this.
    pub(crate) fn is_over(&self, seen: &Seen, at: u64) -> bool {
        let seen = seen.0.load(Ordering::Acquire) >= at;
        (seen || self.current.load(Ordering::SeqCst) == 0) && self.older.load(Ordering::Acquire) == 0
    }
}
