// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One file or block device that holds all of an SSD.
//!
//! ```text
//!   0         4 KiB   12 KiB   36 KiB       60 KiB  64 KiB                          multiple of 1 MiB
//!   | header  | boots | note   | note again | zero  | system area | records         | data         |
//!   |         |       |        |            |       |             | 64 B a page     | 4 KiB a page |
//!   `- written once; the rest below is little-endian
//!
//!   header:  0 magic "GNSTFLSH"   8 version u32  12 shape 6 x u32  36 superblocks u32  40 system bytes u64
//!            48 records at u64    56 data at u64  64 end u64         72 label length u32
//!            76 label, 256 bytes   332 zeros   4092 crc32c
//!   note:    a text that may change, such as the whole preset (`note.rs`)
//!   boots:   two pages that say the same: 0 magic "GNSTBOOT", 8 boot u32, 12 crc32c,
//!            16 random number of this life u64, 24 crc32c of all before it
//! ```
//! All space of a new file is allocated when it is made, so that a full disk shows then and never later. A
//! file that its owner made sparse (`truncate -s 4K it`) stays sparse, except for records and system area.
//! So a sync of records and system area never finds the disk full. Writes of data to a sparse file on a full
//! disk wait until there is room.
//!
//! Data bypasses the page cache where the file system allows it; records and system area go through it. The
//! records are in memory, and a sync hands them to the kernel (`mirror.rs`). A killed process loses nothing
//! that was programmed, because that memory outlives it. After a power failure of the *host*, everything that
//! a [`FileStore`] synced is there, and everything that was programmed before.

mod error;
pub(crate) mod header;
mod locked;
pub(crate) mod memory;
pub(crate) mod mirror;
mod mode;
pub(crate) mod note;
mod signature;
mod space;
mod syncs;
mod system;
mod writer;

pub use error::DataFileError;
pub use mode::IoMode;
pub use note::NOTE_BYTES;
pub use system::FileStore;

#[cfg(test)]
pub(crate) use error::Size;

use crate::PAGE_BYTES;
use crate::boot::LAST_BOOT;
use crate::geometry::{Geometry, Ppa};
use crate::sys;
use gnstor_base::region::HostRegion;
use header::Layout;
use locked::{Kind, LockedFile};
use mirror::Mirror;
pub(crate) use space::is_full;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
pub(crate) use syncs::Syncs;
pub(crate) use writer::Writer;

/// A file that holds an SSD, locked for this process.
#[derive(Debug)]
pub struct DataFile {
    path: PathBuf,
    /// Through the page cache; this descriptor has the lock.
    file: Arc<File>,
    /// The file without the page cache, if the file system allows that.
    data: File,
    kind: Kind,
    layout: Layout,
    io: IoMode,
    /// Frames are in memory that outlives a killed process.
    keeps_memory: bool,
    syncs: Arc<Syncs>,
    writer: Writer,
    /// A [`crate::Flash`] is over it.
    used: AtomicBool,
}

/// A flash is over the file, until this is dropped.
#[derive(Debug)]
pub(crate) struct Entered(Arc<DataFile>);

impl Entered {
    /// # Errors
    /// If another flash is over the file.
    pub(crate) fn new(file: &Arc<DataFile>) -> io::Result<Self> {
        match file.used.swap(true, Ordering::AcqRel) {
            false => Ok(Self(Arc::clone(file))),
            true => Err(DataFileError::Locked(file.path.clone()).into()),
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.used.store(false, Ordering::Release);
    }
}

impl DataFile {
    /// Bytes of disk that [`Self::create`] takes for an SSD of this geometry.
    ///
    /// # Errors
    /// The reason why no such file is possible.
    pub fn bytes_for(geometry: &Geometry, system_bytes: u64) -> Result<u64, String> {
        Layout::new(geometry.clone(), system_bytes, String::new()).map(|layout| layout.end)
    }

    /// Makes a new SSD. The file must be absent, empty or all zeros; a block device must begin and end with
    /// zeros. `label` describes the SSD in at most 256 bytes.
    ///
    /// # Errors
    /// If the file cannot be opened, holds data, or has no room. The file is then as it was before.
    pub fn create(
        path: &Path,
        geometry: &Geometry,
        system_bytes: u64,
        label: &str,
    ) -> Result<Self, DataFileError> {
        let layout = Layout::new(geometry.clone(), system_bytes, label.into())
            .map_err(|reason| DataFileError::Refused { path: path.into(), reason })?;
        Self::create_in(LockedFile::find_or_make(path)?, layout)
    }

    fn create_in(locked: LockedFile, layout: Layout) -> Result<Self, DataFileError> {
        match locked.check_blank(layout.end).and_then(|()| locked.fill(&layout)) {
            Ok(()) => Self::with(locked, layout),
            Err(error) => {
                locked.take_back();
                Err(error)
            }
        }
    }

    /// Opens an SSD that [`Self::create`] made.
    ///
    /// # Errors
    /// If the file cannot be opened, is in use, or is no SSD; the error names the reason.
    pub fn open(path: &Path) -> Result<Self, DataFileError> {
        let locked = LockedFile::find(path)?;
        let LockedFile { path, file, end, .. } = &locked;
        let failed = |what| move |source| DataFileError::Io { path: path.clone(), what, source };
        let refused = |reason: String| DataFileError::Refused { path: path.clone(), reason };
        if *end == 0 {
            return Err(DataFileError::Blank(path.clone()));
        }
        let mut bytes = [0; PAGE_BYTES as usize];
        if *end < u64::from(PAGE_BYTES) {
            return Err(refused(format!("it has {end} bytes, less than a header")));
        }
        file.read_exact_at(&mut bytes, 0).map_err(failed("reading its header"))?;
        if bytes == [0; PAGE_BYTES as usize] {
            return Err(DataFileError::Blank(path.clone()));
        }
        let layout = Layout::decode(&bytes).map_err(refused)?;
        if *end < layout.end {
            return Err(refused(format!(
                "it was cut short: {end} bytes, of {} that its header speaks of",
                layout.end
            )));
        }
        locked.check_limit(layout.end)?;
        Self::with(locked, layout)
    }

    fn with(locked: LockedFile, layout: Layout) -> Result<Self, DataFileError> {
        let LockedFile { path, file, kind, .. } = locked;
        let direct =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).and_then(
                |data| {
                    // Some file systems refuse direct I/O only at the first read, and so does a device of
                    // larger sectors.
                    HostRegion::alloc(PAGE_BYTES as usize)?.read_file(0, PAGE_BYTES as usize, &data, 0)?;
                    Ok(data)
                },
            );
        let data = match direct {
            Ok(data) => data,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "no direct I/O here: flash data goes \
                    through the page cache");
                let failed =
                    |source| DataFileError::Io { path: path.clone(), what: "a second descriptor", source };
                file.try_clone().map_err(failed)?
            }
        };
        lock_io(&path, &data)?;
        let io = IoMode::asked(std::env::var_os(IoMode::NO_URING).as_deref());
        let (file, syncs) = (Arc::new(file), Arc::new(Syncs::default()));
        let keeps_memory =
            std::env::var_os(Self::VOLATILE).is_none_or(|value| value.is_empty() || value == "0");
        let (writer, used) = (Writer::new(Arc::clone(&file), Arc::clone(&syncs)), AtomicBool::new(false));
        Ok(Self { path, file, kind, data, layout, io, keeps_memory, syncs, writer, used })
    }

    /// Sets how data gets to the file.
    #[must_use]
    pub fn with_io(self, io: IoMode) -> Self {
        Self { io, ..self }
    }

    /// Anything but nothing and `0` in this environment variable is [`Self::volatile`].
    pub const VOLATILE: &'static str = "GNSTOR_VOLATILE";

    /// Keeps buffered data in memory that ends with the process: a kill is a power failure without a dump.
    #[must_use]
    pub fn volatile(self) -> Self {
        Self { keeps_memory: false, ..self }
    }

    /// Whether buffered data is in memory that outlives a killed process.
    pub fn keeps_memory(&self) -> bool {
        self.keeps_memory
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Geometry of the SSD.
    pub fn geometry(&self) -> &Geometry {
        &self.layout.geometry
    }

    /// The label that was passed to [`Self::create`].
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

    /// The thread that writes and syncs it.
    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Makes all writes durable: records, and data that bypasses the page cache.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.writer.drain();
        self.syncs.sync(&self.file)
    }

    /// Data or records were changed, and the kernel has them.
    pub(crate) fn note_change(&self) {
        self.syncs.note_change();
    }

    /// Data or records were changed since the last sync.
    pub(crate) fn has_unsynced(&self) -> bool {
        self.syncs.has_unsynced()
    }

    /// From now on each sync takes `ms` longer, as on a slow disk.
    #[cfg(test)]
    pub(crate) fn slow_syncs(&self, ms: u64) {
        self.syncs.delay_ms.store(ms, Ordering::Relaxed);
    }

    /// Whether data bypasses the page cache.
    #[cfg(test)]
    pub(crate) fn is_direct(&self) -> bool {
        sys::is_direct(&self.data)
    }

    /// Replaces the file to which data is written.
    #[cfg(test)]
    pub(crate) fn with_data(self, data: File) -> Self {
        Self { data, ..self }
    }

    /// As [`Self::create`], but it treats the file as a block device.
    #[cfg(test)]
    pub(crate) fn create_as_device(
        path: &Path,
        geometry: &Geometry,
        label: &str,
    ) -> Result<Self, DataFileError> {
        let layout = Layout::new(geometry.clone(), 100_000, label.into()).expect("a layout");
        Self::create_in(LockedFile { kind: Kind::Device, ..LockedFile::find(path)? }, layout)
    }

    /// Offset of a page's data in the file.
    pub(crate) fn data_at(&self, page: Ppa) -> u64 {
        self.layout.data_at + u64::from(page.0) * u64::from(PAGE_BYTES)
    }

    pub(crate) fn check_geometry(&self, geometry: &Geometry) -> io::Result<()> {
        let Some((figure, has, wanted)) = self.layout.geometry.difference(geometry) else { return Ok(()) };
        let reason = format!("it was made with {has} {figure}, and {wanted} are asked for");
        Err(self.refused(reason))
    }

    /// A random number for the next life of this SSD.
    pub(crate) fn new_life() -> u64 {
        mirror::new_life()
    }

    /// The records, in memory, with disk space under them. Syncs cover them from now on.
    pub(crate) fn records(&self, life: u64) -> io::Result<Arc<Mirror>> {
        if self.kind == Kind::File {
            space::reserve(&self.path, &self.file, self.layout.data_at)?;
        }
        let records = Mirror::open(self, life)?;
        self.syncs.cover(Some(Arc::clone(&records)));
        Ok(records)
    }

    /// The SSD ends in order, or while its thread panics. `stays`: the next start needs its memory.
    pub(crate) fn close_records(&self, records: &Mirror, stays: bool) {
        self.syncs.cover(None);
        if !std::thread::panicking() {
            records.close(self, stays);
        }
    }

    /// The last boot of this SSD, and the random number of its life; 0 if it had none.
    fn last_slot(&self) -> io::Result<(u32, u64)> {
        let mut slots = [[0; header::SLOT_BYTES]; 2];
        for (slot, bytes) in (0..).zip(&mut slots) {
            self.file.read_exact_at(bytes, header::boot_at(slot))?;
        }
        match slots.iter().filter_map(header::decode_slot).max() {
            Some(last) => Ok(last),
            None if slots.iter().all(|slot| slot[..16] == [0; 16]) => Ok((0, 0)),
            None => Err(self.refused("both counts of its boots are damaged".into())),
        }
    }

    pub(crate) fn last_life(&self) -> io::Result<u64> {
        self.last_slot().map(|(_, life)| life)
    }

    fn refused(&self, reason: String) -> io::Error {
        DataFileError::Refused { path: self.path.clone(), reason }.into()
    }

    /// A number that no earlier life of this SSD had. `life` names this one, in this file alone.
    pub(crate) fn next_boot(&self, life: u64) -> io::Result<u32> {
        let (last, _) = self.last_slot()?;
        if last >= LAST_BOOT {
            let reason = format!("its counts of boots say {last}, and it can be opened {LAST_BOOT} times");
            return Err(self.refused(reason));
        }
        let next = last + 1;
        // One slot after the other, so that one of them always has a number which no used boot exceeds.
        for slot in 0..2 {
            self.file.write_all_at(&header::encode_slot(next, life), header::boot_at(slot))?;
            self.sync()?;
        }
        Ok(next)
    }
}

/// Largest number of pauses while waiting for requests of a killed process.
const PAUSES: u32 = 2000;
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until the kernel has finished what a killed process asked of this file. A write of that process must
/// not follow one of this process.
fn lock_io(path: &Path, data: &File) -> Result<(), DataFileError> {
    let failed = |source| DataFileError::Io { path: path.into(), what: "cannot be locked", source };
    for _ in 0..PAUSES {
        if sys::try_lock_io(data).map_err(failed)? {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(DataFileError::Locked(path.into()))
}
