// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls that the standard library of the oldest supported toolchain lacks. They are an exclusive lock on an
//! open file, its space and holes, and the limit of a file's length.
#![expect(unsafe_code, reason = "flock, fallocate, lseek, fstatvfs, getrlimit, geteuid, fcntl")]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Locks an open file; false where another process has the lock. The lock ends with the file's last
/// descriptor.
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

/// Takes a second kind of lock on an open file. Returns false if another open file has it. Requests that the
/// kernel still works on hold this lock, even if their process is gone. If the file system has no such locks,
/// the file counts as locked.
pub(crate) fn try_lock_io(file: &File) -> io::Result<bool> {
    // SAFETY: all bytes zero is a valid value of this structure of numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::c_short::try_from(libc::F_WRLCK).unwrap_or_default();
    lock.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default();
    // SAFETY: a call on an open descriptor with a structure that it only reads.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            error if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOLCK | libc::EOPNOTSUPP)) => {
                Ok(true)
            }
            error => Err(error),
        },
    }
}

fn length(bytes: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
}

/// Allocates space for the first `bytes`. If the file system cannot, it writes the blocks one by one.
pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    loop {
        // SAFETY: a call on an open descriptor.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length(bytes)?) } {
            0 => return Ok(()),
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// As [`reserve`], but returns `Unsupported` if the file system cannot allocate space without writing.
pub(crate) fn reserve_at_once(file: &File, bytes: u64) -> io::Result<()> {
    loop {
        // SAFETY: a call on an open descriptor.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length(bytes)?) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
            error => return Err(error),
        }
    }
}

/// The next part of a file from `at` on that may hold something other than zeros; `None` at its end.
/// Allocated space that was read counts as such a part. If the file system does not know, the whole file
/// counts.
pub(crate) fn next_data(file: &File, at: u64) -> io::Result<Option<Range<u64>>> {
    let seek = |at: u64, what| {
        // SAFETY: a call on an open descriptor.
        let found = unsafe { libc::lseek(file.as_raw_fd(), length(at)?, what) };
        u64::try_from(found).map_err(|_| io::Error::last_os_error())
    };
    match seek(at, libc::SEEK_DATA) {
        Ok(from) => Ok(Some(from..seek(from, libc::SEEK_HOLE)?)),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Free bytes of a file's file system, without root's reserve; `None` where it keeps no count.
pub(crate) fn room(file: &File) -> io::Result<Option<u64>> {
    let mut stat = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: an open descriptor, and room for the answer.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above filled it in.
    let stat = unsafe { stat.assume_init() };
    Ok((stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize)))
}

/// Whether requests to this file may wait in the call that submits them to `io_uring`. Only some file systems
/// are known to hand such requests to another thread instead. FUSE says that it does, and waits.
pub(crate) fn waits_at_submit(file: &File) -> io::Result<bool> {
    const EXT4: i64 = 0xEF53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683E;
    const TMPFS: i64 = 0x0102_1994;
    if std::os::unix::fs::FileTypeExt::is_block_device(&file.metadata()?.file_type()) {
        return Ok(false);
    }
    let mut stat = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: an open descriptor, and room for the answer.
    if unsafe { libc::fstatfs(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above filled it in.
    let kind = unsafe { stat.assume_init() }.f_type;
    Ok(![EXT4, XFS, BTRFS, TMPFS].contains(&kind))
}

/// The longest file that this process may write, if there is a limit.
pub(crate) fn file_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call only fills in its argument.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    Some(limit.rlim_cur).filter(|&limit| known && limit != libc::RLIM_INFINITY)
}

/// The user that this process acts as.
pub(crate) fn user() -> u32 {
    // SAFETY: the call has no argument and always succeeds.
    unsafe { libc::geteuid() }
}

/// Whether a file was opened to be read and written past the page cache.
#[cfg(test)]
pub(crate) fn is_direct(file: &File) -> bool {
    // SAFETY: a call on an open descriptor.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags >= 0 && flags & libc::O_DIRECT != 0
}
