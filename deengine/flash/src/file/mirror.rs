// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The records of a data file in memory, so that no engine waits for a disk to read or to write one.
//!
//! ```text
//!   start:    file ------------------------------> memory
//!             memory of a killed process: compared with the file, and taken
//!   engine:   record -> memory, and the bit of its page (64 records)
//!   sync:     bits taken -> their pages to the file -> fdatasync          (never on an engine's thread)
//!   end:      pages whose bits are set -> file
//! ```
//! The memory is a file of `/dev/shm`, beside that of the frames (`kept.rs`). So it outlives a killed
//! process, and the next start takes it: nothing that was programmed or erased is lost. Without such memory a
//! kill is a power failure, after which the file has the records of the last sync, or newer ones.
//!
//! ```text
//!   0       "GNSTRECS" | bytes of the records | a life of the SSD | another one
//!   4 KiB   records
//! ```
//! Each start gives the SSD's life a random number. It notes the number here, beside the one of the life
//! before, and then in the data file. So memory is of this file, and not of another time, if the file names
//! one of both lives. A new memory file names none until its records are whole.

use super::DataFile;
use super::memory::{open_left, path_of, remove, reserved};
use crate::PAGE_BYTES;
use crate::changes::Changes;
use crate::record::RECORD_BYTES;
use crate::sys;
use gnstor_base::region::HostRegion;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

const MAGIC: u64 = u64::from_le_bytes(*b"GNSTRECS");
/// Offset of the records in their memory file.
const RECORDS_AT: u64 = PAGE_BYTES as u64;
/// Words of its header; the last two are lives.
const HEAD_WORDS: usize = 4;
/// Bytes that a start reads at once.
const PIECE: usize = 1 << 20;
/// Bytes of a record.
const RECORD: usize = 64;
const _: () = assert!(RECORD as u64 == RECORD_BYTES);
/// Bytes of a record that keep their meaning over a power failure.
const DURABLE_BYTES: usize = 40;

/// Records in memory.
#[derive(Debug)]
pub(crate) struct Mirror {
    region: Arc<HostRegion>,
    /// Offset of the records in the data file.
    at: u64,
    /// A bit for each page of records that the data file does not have as it is.
    changes: Arc<Changes>,
    /// Held while pages are written: a sync that finds a bit taken waits for its page.
    writing: Mutex<()>,
    /// The memory file, if the records outlive the process.
    kept: Option<KeptRecords>,
}

/// The memory file of the records.
#[derive(Debug)]
struct KeptRecords {
    path: PathBuf,
    head: Arc<HostRegion>,
    /// A killed process left it.
    was_left: bool,
}

impl Mirror {
    /// The records of a file, in memory, for a life of this number. It waits for the disk.
    pub(crate) fn open(file: &DataFile, life: u64) -> io::Result<Arc<Self>> {
        let bytes = file.layout.geometry.pages() * RECORD_BYTES;
        let bytes = usize::try_from(bytes.next_multiple_of(PAGE_BYTES.into())).map_err(io::Error::other)?;
        let last = file.last_life()?;
        let kept = if file.keeps_memory() {
            KeptRecords::open(file, bytes, last)
                .inspect_err(|error| {
                    tracing::warn!(
                        path = %file.path().display(), %error,
                        "no memory for records that outlives this process: a kill is a power failure; make \
                         room in /dev/shm"
                    );
                })
                .ok()
        } else {
            remove(&path_of(file)?.with_extension("records"))?;
            None
        };
        let (region, kept) = match kept {
            Some((region, kept)) => (region, Some(kept)),
            None => (HostRegion::alloc(bytes)?, None),
        };
        let changes = Arc::new(Changes::none(bytes / PAGE_BYTES as usize));
        let mirror = Self { region, at: file.layout.records_at, changes, writing: Mutex::new(()), kept };
        mirror.fill(file.file(), file.kind == super::Kind::Device)?;
        if let Some(kept) = &mirror.kept {
            kept.set_life(bytes, last, life);
        }
        Ok(Arc::new(mirror))
    }

    pub(crate) fn region(&self) -> &Arc<HostRegion> {
        &self.region
    }

    pub(crate) fn changes(&self) -> &Arc<Changes> {
        &self.changes
    }

    /// Whether the records outlive the process.
    pub(crate) fn outlives(&self) -> bool {
        self.kept.is_some()
    }

    /// Whether a killed process left these records.
    pub(crate) fn was_left(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.was_left)
    }

    /// Takes the records from the file. Records that a killed process left are newer, and stay.
    fn fill(&self, file: &File, is_device: bool) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        let end = self.at + self.region.len() as u64;
        // A block device does not say where it holds zeros.
        let next_data = |at| if is_device { Ok(Some(at..end)) } else { sys::next_data(file, at) };
        let mut data = next_data(self.at)?;
        for from in (self.at..end).step_by(PIECE) {
            let to = (from + PIECE as u64).min(end);
            let bytes = usize::try_from(to - from).map_err(io::Error::other)?;
            while data.as_ref().is_some_and(|data| data.end <= from) {
                data = next_data(from)?;
            }
            let is_hole = data.as_ref().is_none_or(|data| data.start >= to);
            match (self.was_left(), is_hole) {
                (false, true) => {}
                (false, false) => self.region.read_file(from - self.at, bytes, file, from)?,
                (true, _) => {
                    piece.fill(0);
                    if !is_hole {
                        std::os::unix::fs::FileExt::read_exact_at(file, &mut piece[..bytes], from)?;
                    }
                    self.compare(from - self.at, &piece[..bytes]);
                }
            }
        }
        Ok(())
    }

    /// Notes the pages that the file has in another state.
    fn compare(&self, from: u64, of_file: &[u8]) {
        let mut own = [0; PAGE_BYTES as usize];
        for (page, of_file) in (from / u64::from(PAGE_BYTES)..).zip(of_file.chunks_exact(PAGE_BYTES as usize))
        {
            self.region.read(page * u64::from(PAGE_BYTES), &mut own);
            let records = own.chunks_exact(RECORD);
            if records
                .zip(of_file.chunks_exact(RECORD))
                .any(|(own, of_file)| own[..DURABLE_BYTES] != of_file[..DURABLE_BYTES])
            {
                self.changes.mark(page);
            }
        }
    }

    /// Hands all records that have changed to the kernel. What is noted meanwhile may stay for the next call.
    pub(crate) fn write(&self, file: &File) -> io::Result<()> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        for (first, word) in (0u64..).step_by(64).zip(self.changes.words()) {
            if word.load(Ordering::Acquire) == 0 {
                continue;
            }
            let mut left = word.swap(0, Ordering::AcqRel);
            while left != 0 {
                let from = left.trailing_zeros();
                let run = (left >> from).trailing_ones();
                let at = (first + u64::from(from)) * u64::from(PAGE_BYTES);
                let bytes = run as usize * PAGE_BYTES as usize;
                if let Err(error) = self.region.write_file(at, bytes, file, self.at + at) {
                    word.fetch_or(left, Ordering::AcqRel);
                    return Err(error);
                }
                left &= !(u64::MAX >> (64 - run) << from);
            }
        }
        Ok(())
    }

    /// The SSD ends in order: the file gets what it lacks. `stays`: the next start needs the memory.
    pub(crate) fn close(&self, file: &DataFile, stays: bool) {
        if let Err(error) = self.write(file.file()) {
            let path = file.path().display();
            tracing::error!(%path, %error, "records of pages could not be written to the data file");
        } else if let Some(kept) = self.kept.as_ref().filter(|_| !stays)
            && let Err(error) = remove(&kept.path)
        {
            tracing::warn!(path = %kept.path.display(), %error, "memory of records could not be removed");
        }
    }
}

impl KeptRecords {
    /// What a killed process left for this file, or new memory of zeros.
    fn open(file: &DataFile, bytes: usize, last: u64) -> io::Result<(Arc<HostRegion>, Self)> {
        let path = path_of(file)?.with_extension("records");
        let end = RECORDS_AT + bytes as u64;
        let map = |memory: &File| {
            let head = HostRegion::map_file(memory, 0, PAGE_BYTES as usize)?;
            Ok::<_, io::Error>((head, HostRegion::map_file(memory, RECORDS_AT, bytes)?))
        };
        // What cannot be trusted is replaced. The folder keeps a file of another user from being removed.
        let left = open_left(&path, file).unwrap_or_else(|error| {
            tracing::warn!(%error, "records of pages are not taken from memory that another user could change");
            None
        });
        if let Some(memory) = left.filter(|memory| memory.metadata().is_ok_and(|meta| meta.len() == end)) {
            let (head, region) = map(&memory)?;
            if is_of(&head, bytes, last) {
                return Ok((region, Self { path, head, was_left: true }));
            }
        }
        remove(&path)?;
        let memory = reserved(&path, end)?;
        let (head, region) = map(&memory).inspect_err(|_| drop(remove(&path)))?;
        Ok((region, Self { path, head, was_left: false }))
    }

    /// From now on a start of the file that names one of these lives takes the records.
    fn set_life(&self, bytes: usize, last: u64, life: u64) {
        let words = self.head.words64(0, HEAD_WORDS);
        words[0].store(MAGIC, Ordering::Relaxed);
        words[1].store(bytes as u64, Ordering::Relaxed);
        // The file names the last life until it names the next one.
        words[2].store(last, Ordering::Release);
        words[3].store(life, Ordering::Release);
    }
}

/// Whether the records are whole, and of this life of a file.
pub(crate) fn is_of(head: &HostRegion, bytes: usize, life: u64) -> bool {
    let [magic, found, lives @ ..] =
        [0, 1, 2, 3].map(|word| head.words64(0, HEAD_WORDS)[word].load(Ordering::Acquire));
    (magic, found) == (MAGIC, bytes as u64) && life != 0 && lives.contains(&life)
}

/// A random number for a life; never 0.
pub(super) fn new_life() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), MAGIC) | 1
}

/// A sound header.
#[cfg(test)]
pub(crate) fn sound(bytes: u64, life: u64) -> Vec<u8> {
    [MAGIC, bytes, 0, life].iter().flat_map(|word| word.to_le_bytes()).collect()
}
