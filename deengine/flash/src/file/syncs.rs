// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Syncs of a file. After a failed sync all later ones fail.

use super::mirror::Mirror;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A longer sync is logged, since commands wait for it.
const SLOW: Duration = Duration::from_secs(2);

/// Syncs of one file. After a failed sync the kernel may have dropped pages and report success for the next
/// sync. So every later sync counts as failed until the file is opened again.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    failed: AtomicBool,
    /// Number of changes of data and records, and the number that the last sync covered.
    changes: AtomicU64,
    synced: AtomicU64,
    /// Records that a sync hands to the kernel first.
    records: Mutex<Option<Arc<Mirror>>>,
    /// Additional time of each sync, in milliseconds, to act as a slow disk.
    #[cfg(test)]
    pub(crate) delay_ms: AtomicU64,
}

impl Syncs {
    pub(crate) fn run(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(io::Error::other(
                "an earlier sync of this file failed: what it holds is known only after a restart",
            ));
        }
        let result = sync();
        if result.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        result
    }

    /// Makes all writes to the file durable.
    #[expect(clippy::disallowed_methods, reason = "a disk takes real time")]
    pub(crate) fn sync(&self, file: &File) -> io::Result<()> {
        // This sync may miss changes that are made while it runs.
        let found = self.changes.load(Ordering::Acquire);
        let begun = Instant::now();
        #[cfg(test)]
        std::thread::sleep(std::time::Duration::from_millis(self.delay_ms.load(Ordering::Relaxed)));
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.run(|| records.map_or(Ok(()), |records| records.write(file)).and_then(|()| file.sync_data()))?;
        let took = begun.elapsed();
        if took > SLOW {
            tracing::warn!(?took, "the disk is slow: changes of volumes and flushes wait for its syncs");
        }
        self.synced.fetch_max(found, Ordering::AcqRel);
        Ok(())
    }

    /// From now on syncs cover these records, or none.
    pub(crate) fn cover(&self, records: Option<Arc<Mirror>>) {
        *self.records.lock().unwrap_or_else(PoisonError::into_inner) = records;
    }

    /// Data or records were changed: the kernel has the data, and memory has the records.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Data or records were changed since the last sync.
    pub(crate) fn has_unsynced(&self) -> bool {
        self.synced.load(Ordering::Acquire) != self.changes.load(Ordering::Acquire)
    }
}
