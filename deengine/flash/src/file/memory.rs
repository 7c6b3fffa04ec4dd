// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of memory that outlives a process: their names, how they are made and found again.

use super::DataFile;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The folder of memory that outlives processes and not the machine.
const FOLDER: &str = "/dev/shm";

/// Where the memory of a data file is. Another boot of the machine has another name.
pub(crate) fn path_of(file: &DataFile) -> io::Result<PathBuf> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let meta = file.file().metadata()?;
    // A device has no inode of its own: its number names it.
    let (device, inode) = if meta.rdev() == 0 { (meta.dev(), meta.ino()) } else { (meta.rdev(), 0) };
    Ok(Path::new(FOLDER).join(format!("gnstor-{device:x}-{inode:x}-{}", boot.trim())))
}

/// A new file of zeros, for its owner alone. All its space is reserved now, since a store to missing memory
/// would end the process.
pub(crate) fn reserved(path: &Path, bytes: u64) -> io::Result<File> {
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)?;
    memory
        .set_len(bytes)
        .and_then(|()| crate::sys::reserve_at_once(&memory, bytes))
        .inspect_err(|_| drop(remove(path)))?;
    Ok(memory)
}

/// A file that an earlier process left for this data file, if there is one.
pub(crate) fn open_left(path: &Path, file: &DataFile) -> io::Result<Option<File>> {
    let memory =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path);
    let memory = match memory {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let (meta, own) = (memory.metadata()?, file.file().metadata()?);
    if !meta.is_file() || meta.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!("{}: is none of ours", path.display())));
    }
    // Another user could have made it up, except the owner of the data file itself.
    if meta.uid() != crate::sys::user() && meta.uid() != own.uid() {
        return Err(io::Error::other(format!("{}: belongs to another user", path.display())));
    }
    Ok(Some(memory))
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
