// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Syncs of a file, which all fail after a failed one.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Syncs of one file. After a failed sync the kernel may have dropped pages and report success for the next
/// sync. So every later sync counts as failed until the file is opened again.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    failed: AtomicBool,
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
}
