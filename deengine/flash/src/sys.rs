// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls that the standard library of the oldest supported toolchain does not have: an exclusive lock on an open file, and
//! space for a part of one.
#![expect(unsafe_code, reason = "flock, posix_fallocate")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Locks an open file; false where somebody else has it. The lock ends with the file's last descriptor.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: a call on an open descriptor.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        },
    }
}

/// Has the file system set space aside.
pub(crate) fn reserve(file: &File, at: u64, bytes: u64) -> io::Result<()> {
    let off = |value: u64| libc::off_t::try_from(value).map_err(io::Error::other);
    // SAFETY: a call on an open descriptor.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), off(at)?, off(bytes)?) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
