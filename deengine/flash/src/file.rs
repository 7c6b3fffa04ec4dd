// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One file or block device that holds all of an SSD.
//!
//! ```text
//!   0          4 KiB     12 KiB        64 KiB                                    multiple of 1 MiB
//!   | header   | boots   | zero        | system area | records, 64 B a page      | data: unit after unit, 4 KiB a page |
//!   `- written once; the rest below is little-endian
//!
//!   header:  0 magic "GNSTFLSH"   8 version u32   12 shape 6 x u32   36 superblocks u32   40 system bytes u64
//!            48 records at u64    56 data at u64  64 end u64         72 label length u32
//!            76 label, 256 bytes   332 zeros   4092 crc32c
//!   boots:   two pages that say the same: 0 magic "GNSTBOOT", 8 boot u32, 12 crc32c
//! ```
//! Files are sparse. Data goes past the page cache where the file system can do that; records and system area go through it.
//! A killed process loses nothing that was programmed: data is handed to the kernel before its record. When the *host* loses
//! its power, what a [`FileStore`] synced is there, and all that was programmed before it.

mod header;
mod system;

pub use system::FileStore;

use crate::PAGE_BYTES;
use crate::geometry::{Geometry, Ppa};
use crate::record::RECORD_BYTES;
use crate::sys;
use gnstor_fabric::region::HostRegion;
use header::Layout;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// Why a file is not to be used as an SSD.
#[derive(Debug, Error)]
pub enum DataFileError {
    /// The operating system says no.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// Another process, or another handle of this one, has it.
    #[error("{}: in use by another process as an SSD; one file serves one SSD at a time", .0.display())]
    Locked(PathBuf),
    /// Creation would overwrite something.
    #[error("{}: holds something already; remove the file, or wipe the start of the device, to make a new SSD of it", .0.display())]
    Occupied(PathBuf),
    /// A block device with too little space.
    #[error("{}: has {has} bytes, but this SSD needs {needs}", path.display())]
    TooSmall {
        /// The device.
        path: PathBuf,
        /// Its size.
        has: u64,
        /// The least size.
        needs: u64,
    },
    /// Not an SSD of ours, or a damaged one.
    #[error("{}: is not an SSD of GNStor that can be opened: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl From<DataFileError> for io::Error {
    fn from(error: DataFileError) -> Self {
        let kind = match &error {
            DataFileError::Io { source, .. } => source.kind(),
            DataFileError::Locked(_) => io::ErrorKind::WouldBlock,
            DataFileError::Occupied(_) => io::ErrorKind::AlreadyExists,
            DataFileError::TooSmall { .. } => io::ErrorKind::StorageFull,
            DataFileError::Refused { .. } => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

/// How data gets to the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoMode {
    /// `io_uring` where it is permitted, else blocking calls.
    #[default]
    Auto,
    /// `io_uring` or an error.
    Uring,
    /// Blocking calls.
    Blocking,
}

/// A file that holds an SSD, locked for this process.
#[derive(Debug)]
pub struct DataFile {
    path: PathBuf,
    /// Through the page cache; this descriptor has the lock.
    file: File,
    /// Past the page cache, where that is possible.
    data: File,
    layout: Layout,
    io: IoMode,
    /// A [`crate::Flash`] is over it.
    used: AtomicBool,
}

impl DataFile {
    /// Makes a new SSD of a file that is not there or empty, or of a block device that starts with zeros. `label` says what
    /// it is, in at most 256 bytes.
    ///
    /// # Errors
    /// Where the file cannot be had, holds something, or has no room.
    pub fn create(path: &Path, geometry: &Geometry, system_bytes: u64, label: &str) -> Result<Self, DataFileError> {
        let layout = Layout::new(geometry.clone(), system_bytes, label.into())
            .map_err(|reason| DataFileError::Refused { path: path.into(), reason })?;
        let failed = |what| move |source| DataFileError::Io { path: path.into(), what, source };
        let mut options = OpenOptions::new();
        let open = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = lock(path, open.map_err(failed("cannot be made"))?)?;
        let end = (&file).seek(SeekFrom::End(0)).map_err(failed("size"))?;
        if file.metadata().map_err(failed("size"))?.file_type().is_block_device() {
            let needs = layout.end;
            if end < needs {
                return Err(DataFileError::TooSmall { path: path.into(), has: end, needs });
            }
            let mut start = vec![0; 64 << 10];
            file.read_exact_at(&mut start, 0).map_err(failed("reading its start"))?;
            if start.iter().any(|&byte| byte != 0) {
                return Err(DataFileError::Occupied(path.into()));
            }
            // Old bytes in the records would be taken for pages, and in the system area for a journal.
            let zeros = vec![0; 1 << 20];
            for at in (header::SYSTEM_AT..layout.data_at).step_by(zeros.len()) {
                let bytes = usize::try_from(layout.data_at - at).unwrap_or(usize::MAX).min(zeros.len());
                file.write_all_at(&zeros[..bytes], at).map_err(failed("clearing its records"))?;
            }
        } else {
            if end != 0 {
                return Err(DataFileError::Occupied(path.into()));
            }
            file.set_len(layout.end).map_err(failed("setting its size"))?;
        }
        // The header comes last: a half made SSD is none.
        file.sync_data().map_err(failed("syncing it"))?;
        file.write_all_at(&layout.encode(), 0).map_err(failed("writing its header"))?;
        file.sync_all().map_err(failed("syncing it"))?;
        Self::with(path, file, layout)
    }

    /// Opens an SSD that [`Self::create`] made.
    ///
    /// # Errors
    /// Where the file cannot be had, is in use, or is not what it should be; the reason is said.
    pub fn open(path: &Path) -> Result<Self, DataFileError> {
        let failed = |what| move |source| DataFileError::Io { path: path.into(), what, source };
        let refused = |reason: String| DataFileError::Refused { path: path.into(), reason };
        let open = OpenOptions::new().read(true).write(true).open(path);
        let file = lock(path, open.map_err(failed("cannot be opened"))?)?;
        let end = (&file).seek(SeekFrom::End(0)).map_err(failed("size"))?;
        if end < u64::from(PAGE_BYTES) {
            return Err(refused(format!("it has {end} bytes, less than a header")));
        }
        let mut bytes = [0; PAGE_BYTES as usize];
        file.read_exact_at(&mut bytes, 0).map_err(failed("reading its header"))?;
        let layout = Layout::decode(&bytes).map_err(refused)?;
        if end < layout.end {
            return Err(refused(format!("it was cut short: {end} bytes, of {} that its header speaks of", layout.end)));
        }
        Self::with(path, file, layout)
    }

    fn with(path: &Path, file: File, layout: Layout) -> Result<Self, DataFileError> {
        let failed = |what| move |source| DataFileError::Io { path: path.into(), what, source };
        let direct =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).and_then(|data| {
                // Some file systems refuse only when it comes to data.
                HostRegion::alloc(PAGE_BYTES as usize)?.read_file(0, PAGE_BYTES as usize, &data, 0)?;
                Ok(data)
            });
        let data = match direct {
            Ok(data) => data,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "no direct I/O here: flash data goes through the page cache");
                file.try_clone().map_err(failed("a second descriptor"))?
            }
        };
        Ok(Self { path: path.into(), file, data, layout, io: IoMode::Auto, used: AtomicBool::new(false) })
    }

    /// Sets how data gets to the file.
    #[must_use]
    pub fn with_io(self, io: IoMode) -> Self {
        Self { io, ..self }
    }

    /// Sets disk space aside for system area and records (1/64 of the capacity), which a sparse file else takes as it
    /// goes: with the disk full, writing a record would end the process (`SIGBUS`), while data that does not fit is a
    /// failed program.
    ///
    /// # Errors
    /// The file system's: no space, or it cannot do that. Block devices need it not.
    pub fn reserve(&self) -> io::Result<()> {
        if self.file.metadata()?.file_type().is_block_device() {
            return Ok(());
        }
        sys::reserve(&self.file, 0, self.layout.data_at)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where pages are.
    pub fn geometry(&self) -> &Geometry {
        &self.layout.geometry
    }

    /// What it was said to be when it was made.
    pub fn label(&self) -> &str {
        &self.layout.label
    }

    /// Bytes of the system area.
    pub fn system_bytes(&self) -> u64 {
        self.layout.system_bytes
    }

    pub(crate) fn io_mode(&self) -> IoMode {
        self.io
    }

    pub(crate) fn data(&self) -> &File {
        &self.data
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Where a page's data is.
    pub(crate) fn data_at(&self, page: Ppa) -> u64 {
        self.layout.data_at + u64::from(page.0) * u64::from(PAGE_BYTES)
    }

    pub(crate) fn check_geometry(&self, geometry: &Geometry) -> io::Result<()> {
        if *geometry == self.layout.geometry {
            return Ok(());
        }
        let reason = format!("it was made with another geometry ({:?}, not {geometry:?})", self.layout.geometry);
        Err(DataFileError::Refused { path: self.path.clone(), reason }.into())
    }

    /// The records, mapped.
    pub(crate) fn records(&self) -> io::Result<Arc<HostRegion>> {
        let bytes = usize::try_from(self.layout.geometry.pages() * RECORD_BYTES).map_err(io::Error::other)?;
        HostRegion::map_file(&self.file, self.layout.records_at, bytes)
    }

    /// A number that no earlier life of this SSD had.
    pub(crate) fn next_boot(&self) -> io::Result<u32> {
        let refused = |reason: &str| DataFileError::Refused { path: self.path.clone(), reason: reason.into() };
        let mut slots = [[0; 16]; 2];
        for (slot, bytes) in (0..).zip(&mut slots) {
            self.file.read_exact_at(bytes, header::boot_at(slot))?;
        }
        let last = match slots.iter().filter_map(header::decode_boot).max() {
            Some(last) => last,
            None if slots == [[0; 16]; 2] => 0,
            None => return Err(refused("both counts of its boots are damaged").into()),
        };
        let next = last.checked_add(1).ok_or_else(|| refused("it was opened four billion times"))?;
        // One after the other: either alone says a number that no used boot is above.
        for slot in 0..2 {
            self.file.write_all_at(&header::encode_boot(next), header::boot_at(slot))?;
            self.file.sync_data()?;
        }
        Ok(next)
    }

    /// A flash is over this file from now on.
    pub(crate) fn enter(&self) -> io::Result<()> {
        match self.used.swap(true, Ordering::AcqRel) {
            false => Ok(()),
            true => Err(DataFileError::Locked(self.path.clone()).into()),
        }
    }

    pub(crate) fn leave(&self) {
        self.used.store(false, Ordering::Release);
    }
}

fn lock(path: &Path, file: File) -> Result<File, DataFileError> {
    match sys::try_lock(&file) {
        Ok(true) => Ok(file),
        Ok(false) => Err(DataFileError::Locked(path.into())),
        Err(source) => Err(DataFileError::Io { path: path.into(), what: "cannot be locked", source }),
    }
}
