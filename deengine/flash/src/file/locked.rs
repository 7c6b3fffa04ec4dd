// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds or makes the file or block device of an SSD, and locks it for this process.
//!
//! | | file | block device |
//! |---|---|---|
//! | lock | `flock` | `O_EXCL`: no mount, no other user |
//! | blank | empty, or zeros only | first and last MiB are zeros |
//! | space | reserved when the file is made | always there |

use super::header::{Layout, SYSTEM_AT};
use super::{DataFileError, signature, space};
use crate::sys;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Kind of a locked file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    File,
    Device,
}

/// An open file or device that no other process uses as an SSD.
#[derive(Debug)]
pub(super) struct LockedFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) kind: Kind,
    /// Length of the file.
    pub(super) end: u64,
    /// The file did not exist before.
    pub(super) made: bool,
}

/// Tries to open a device or to lock a file, and the pause between two of them.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Bytes that are checked at either end of a device.
const ENDS: u64 = 1 << 20;

impl LockedFile {
    /// Opens an existing file or device.
    pub(super) fn find(path: &Path) -> Result<Self, DataFileError> {
        let failed = |source| DataFileError::Io {
            path: path.into(),
            what: "cannot be opened to read and write",
            source,
        };
        let of = std::fs::metadata(path).map_err(failed)?.file_type();
        let odd = |what| DataFileError::NotAFile { path: path.into(), what };
        let kind = match () {
            () if of.is_file() => Kind::File,
            () if of.is_block_device() => Kind::Device,
            () if of.is_dir() => return Err(odd("a folder")),
            () if of.is_char_device() => return Err(odd("a character device")),
            () => return Err(odd("a pipe or a socket")),
        };
        let alone = if kind == Kind::Device { libc::O_EXCL } else { 0 };
        let open = || OpenOptions::new().read(true).write(true).custom_flags(alone).open(path);
        let mut file = open();
        for _ in 0..LOCK_TRIES {
            if !file.as_ref().is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
                break;
            }
            std::thread::sleep(LOCK_PAUSE);
            file = open();
        }
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => DataFileError::Busy(path.into()),
            _ => failed(error),
        })?;
        Self::lock(path, file, kind, false)
    }

    /// Opens an existing file or device, or makes a file.
    pub(super) fn find_or_make(path: &Path) -> Result<Self, DataFileError> {
        if !std::fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Self::find(path);
        }
        let failed = |what| move |source| DataFileError::Io { path: path.into(), what, source };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = parent.canonicalize().map_err(failed("cannot be made, for want of its folder"))?;
        if folder.starts_with("/dev") && !folder.starts_with("/dev/shm") {
            let none = io::Error::from_raw_os_error(libc::ENOENT);
            return Err(failed("is no device of this machine, and no file is made there")(none));
        }
        // The file holds the data of all volumes, so no other user of the machine may read it.
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        Self::lock(path, file.map_err(failed("cannot be made"))?, Kind::File, true)
    }

    fn lock(path: &Path, file: File, kind: Kind, made: bool) -> Result<Self, DataFileError> {
        let failed = |what| move |source| DataFileError::Io { path: path.into(), what, source };
        // The lock of a device is only advice: udev locks devices for a moment, too.
        let mut is_locked = sys::try_lock(&file).map_err(failed("cannot be locked"))?;
        // A process that this program starts has its descriptors until it runs another program.
        for _ in 0..LOCK_TRIES {
            if is_locked || kind == Kind::Device {
                break;
            }
            std::thread::sleep(LOCK_PAUSE);
            is_locked = sys::try_lock(&file).map_err(failed("cannot be locked"))?;
        }
        if !is_locked && kind == Kind::File {
            return Err(DataFileError::Locked(path.into()));
        }
        let end = (&file).seek(SeekFrom::End(0)).map_err(failed("its size cannot be found"))?;
        Ok(Self { path: path.into(), file, kind, end, made })
    }

    /// Checks that an SSD of `needs` bytes may be made in this file.
    pub(super) fn check_blank(&self, needs: u64) -> Result<(), DataFileError> {
        let occupied = |what| DataFileError::Occupied { path: self.path.clone(), what };
        let failed = |source| DataFileError::Io { path: self.path.clone(), what: "reading it", source };
        let read = |at: u64, bytes: u64| {
            let mut ends = vec![0; usize::try_from(bytes).unwrap_or(0)];
            self.file.read_exact_at(&mut ends, at).map(|()| ends).map_err(failed)
        };
        let begin = read(0, self.end.min(ENDS))?;
        let what = signature::of(&begin);
        match self.kind {
            Kind::File if self.end > 0 && space::has_data(&self.file).map_err(failed)? => Err(occupied(what)),
            Kind::File => Ok(()),
            Kind::Device if self.end < needs => {
                Err(DataFileError::TooSmall { path: self.path.clone(), has: self.end, needs })
            }
            Kind::Device => {
                // The other copy of a partition table, and the marks of RAID, are at the end.
                let last = read(self.end - ENDS.min(self.end), ENDS.min(self.end))?;
                if begin.iter().chain(&last).any(|&byte| byte != 0) { Err(occupied(what)) } else { Ok(()) }
            }
        }
    }

    /// Makes a blank file an SSD: space, then zeros, then the header. So an SSD that is half made has no
    /// header.
    pub(super) fn fill(&self, layout: &Layout) -> Result<(), DataFileError> {
        let failed = |what| move |source| DataFileError::Io { path: self.path.clone(), what, source };
        self.check_limit(layout.end)?;
        match self.kind {
            Kind::File => self.set_aside(layout)?,
            Kind::Device => {
                // Old bytes in the records would be taken for pages, and in the system area for a journal.
                let zeros = vec![0; 1 << 20];
                for at in (SYSTEM_AT..layout.data_at).step_by(zeros.len()) {
                    let bytes = usize::try_from(layout.data_at - at).unwrap_or(usize::MAX).min(zeros.len());
                    self.file.write_all_at(&zeros[..bytes], at).map_err(failed("clearing its records"))?;
                }
            }
        }
        self.file.sync_data().map_err(failed("syncing it"))?;
        self.file.write_all_at(&layout.encode(), 0).map_err(failed("writing its header"))?;
        self.file.sync_all().map_err(failed("syncing it"))?;
        if let Some(parent) = self.path.parent().filter(|_| self.made) {
            let folder = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("syncing its folder"))?;
        }
        Ok(())
    }

    fn set_aside(&self, layout: &Layout) -> Result<(), DataFileError> {
        let failed = |source| DataFileError::Io { path: self.path.clone(), what: "setting its size", source };
        // A hole is its owner's wish. Space that a killed maker had set aside already is none.
        let sparse = self.end > 0 && self.file.metadata().map_err(failed)?.blocks() == 0;
        if sparse || !space::reserve_data(&self.path, &self.file, layout.end)? {
            space::reserve(&self.path, &self.file, layout.data_at)?;
        }
        self.file.set_len(self.end.max(layout.end)).map_err(failed)
    }

    /// Whether this process may write that far; it would be ended by a signal.
    pub(super) fn check_limit(&self, needs: u64) -> Result<(), DataFileError> {
        match sys::file_limit() {
            Some(limit) if self.kind == Kind::File && limit < needs => {
                Err(DataFileError::Limited { path: self.path.clone(), needs, limit })
            }
            _ => Ok(()),
        }
    }

    /// Removes a file that was just made, or empties it again. A file with data is not touched.
    pub(super) fn take_back(&self) {
        if self.kind == Kind::Device || self.end > 0 && space::has_data(&self.file).unwrap_or(true) {
            return;
        }
        let undone = match self.made {
            true => std::fs::remove_file(&self.path),
            false => self.file.set_len(0).and_then(|()| self.file.set_len(self.end)),
        };
        if let Err(error) = undone {
            tracing::warn!(path = %self.path.display(), %error, "what was made of it could not be taken \
                back");
        }
    }
}
