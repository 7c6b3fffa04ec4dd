// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A folder for the data files of a test.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use tempfile::TempDir;

/// Folder of the protected memory of SSDs. A file's name is `gnstor-DEVICE-INODE-BOOT`, by the SSD's data
/// file.
const MEMORY: &str = "/dev/shm";

/// A folder that is removed when the test drops it. The protected memory of data files in it is removed, too.
/// An SSD that was killed leaves that memory for its next start, which may never come in a test.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// A new, empty folder.
    ///
    /// # Panics
    /// When none can be made.
    #[expect(clippy::new_without_default, reason = "it makes a folder on disk")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// A folder in memory, if the machine has such a file system, so that no sync waits for a disk.
    ///
    /// # Panics
    /// If no folder can be made.
    pub fn in_memory() -> Self {
        let is_there = Path::new(MEMORY).is_dir();
        if is_there { Self(tempfile::tempdir_in(MEMORY).expect("a folder")) } else { Self::new() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let files = std::fs::read_dir(self.path()).into_iter().flatten().flatten();
        let named: Vec<String> = files
            .filter_map(|file| file.metadata().ok())
            .map(|meta| format!("gnstor-{:x}-{:x}-", meta.dev(), meta.ino()))
            .collect();
        for memory in std::fs::read_dir(MEMORY).into_iter().flatten().flatten() {
            if named.iter().any(|name| memory.file_name().to_string_lossy().starts_with(name)) {
                _ = std::fs::remove_file(memory.path());
            }
        }
    }
}
