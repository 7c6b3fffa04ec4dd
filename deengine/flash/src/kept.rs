// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protected memory: what an SSD has acknowledged and not on flash outlives its process.
//!
//! A killed process is no power failure: the machine still has the memory. So an SSD in a file has its frames
//! and the tail of its journal in a file of `/dev/shm`. The data file and the machine's boot name that file.
//! The next start finds them there and treats them as a dump. An orderly end removes the file.
//!
//! ```text
//!   0        header: who it belongs to; valid once its magic is written
//!   4 KiB    state: which slot | slot 0: head, durable, end | slot 1: the same | ... | end
//!   8 KiB    owners: for each frame one more than the page that took it last (u32)
//!            tail: a ring of transactions, from `head` to the greater of both ends
//!            frames, 4 KiB each
//! ```
//! A kill comes between any two stores, so every state in between is valid:
//! * A page counts if its record (in the data file) says buffered, by this boot of the SSD, in this frame.
//!   The owner is written before the record, and only says where to look.
//! * A transaction counts once `end` is behind it. `end` moves after its bytes are written.
//! * Head and durable transaction move together: the unused slot is written, then one word selects it.

mod left_behind;

use crate::PAGE_BYTES;
use crate::file::DataFile;
use crate::file::memory::{path_of, remove, reserved};
use gnstor_base::region::HostRegion;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

pub use left_behind::LeftBehind;

const MAGIC: u64 = u64::from_le_bytes(*b"GNSTKEEP");
const VERSION: u64 = 1;
/// Offset of the state.
const STATE_AT: u64 = 4096;
/// Offset of the owners.
const OWNERS_AT: u64 = 8192;
/// Bytes of the ring of transactions: those of a hundred thousand writes.
const TAIL_BYTES: u64 = 8 << 20;
/// Words of the header.
const HEADER_WORDS: usize = 10;
/// Words of the state: the end has a cache line of its own.
const SLOT_WORD: usize = 0;
const SLOTS_WORD: [usize; 2] = [1, 4];
const END_WORD: usize = 16;

/// Identifies the SSD, and the start of it, that the memory belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptOwner {
    /// Identity of the system area.
    pub tag: u64,
    /// Boot number of the SSD.
    pub boot: u32,
    /// Number of the dump that would be written next.
    pub dump: u64,
    /// Acknowledged writes were lost before this life; `filling` is what the metadata store noted of earlier
    /// losses when it began.
    pub lossy: bool,
    /// An epoch of the fleet map; `None`: no loss was noted.
    pub filling: Option<u64>,
}

impl KeptOwner {
    /// Whether memory of this owner belongs to the life `now`. A start numbers its life before the header of
    /// the system area does, and the dump one further.
    pub fn is_of(&self, now: &Self) -> bool {
        self.tag == now.tag && self.boot == now.boot && (now.dump..=now.dump + 1).contains(&self.dump)
    }
}

/// Protected memory of a running SSD.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    fresh: PathBuf,
    shape: Layout,
    mark: u32,
    control: Arc<HostRegion>,
    frames: Arc<HostRegion>,
    /// Whether the file has the name under which the next start looks for it.
    is_named: AtomicBool,
    /// Whether the file stays when its owner drops it.
    stays: AtomicBool,
}

/// Sizes of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    frames: u64,
    tail_at: u64,
    frames_at: u64,
    end: u64,
}

impl Layout {
    fn new(frames: u64) -> Self {
        let page = u64::from(PAGE_BYTES);
        let tail_at = (OWNERS_AT + frames * 4).next_multiple_of(page);
        let frames_at = tail_at + TAIL_BYTES;
        Self { frames, tail_at, frames_at, end: frames_at + frames * page }
    }
}

fn map(file: &File, shape: &Layout) -> io::Result<(Arc<HostRegion>, Arc<HostRegion>)> {
    let bytes = |bytes: u64| usize::try_from(bytes).map_err(io::Error::other);
    let control = HostRegion::map_file(file, 0, bytes(shape.frames_at)?)?;
    let frames = HostRegion::map_file(file, shape.frames_at, bytes(shape.end - shape.frames_at)?)?;
    Ok((control, frames))
}

impl Kept {
    /// Makes memory for so many frames, the page of zeros included. The next start finds it once it is armed.
    pub(crate) fn create(file: &DataFile, frames: u64, mark: u32) -> io::Result<Self> {
        let path = path_of(file)?;
        let fresh = path.with_extension("new");
        remove(&fresh)?;
        let shape = Layout::new(frames);
        let memory = reserved(&fresh, shape.end)?;
        let (control, frames) = map(&memory, &shape).inspect_err(|_| drop(remove(&fresh)))?;
        Ok(Self {
            path,
            fresh,
            shape,
            mark,
            control,
            frames,
            is_named: AtomicBool::new(false),
            stays: AtomicBool::new(false),
        })
    }

    /// The frames, and the page of zeros after them.
    pub(crate) fn frames(&self) -> &Arc<HostRegion> {
        &self.frames
    }

    /// Notes that a page uses a frame.
    #[inline]
    pub(crate) fn own(&self, frame: u32, page: u32) {
        let owner = self.control.word32(OWNERS_AT + u64::from(frame) * 4);
        owner.store(page.wrapping_add(1), Ordering::Release);
    }

    /// The ring of transactions, empty.
    pub fn tail(&self) -> KeptTail {
        KeptTail { control: Arc::clone(&self.control), at: self.shape.tail_at, head: 0, end: 0 }
    }

    /// From now on the next start finds it, in place of what an earlier process left.
    ///
    /// # Errors
    /// Where the file cannot be renamed.
    pub fn arm(&self, owner: KeptOwner) -> io::Result<()> {
        self.disarm();
        let words = self.control.words64(0, HEADER_WORDS + 1);
        let header = header(&self.shape, self.mark, owner);
        for (word, value) in words[1..].iter().zip(&header[1..]) {
            word.store(*value, Ordering::Relaxed);
        }
        words[HEADER_WORDS].store(checksum(&header), Ordering::Relaxed);
        words[0].store(header[0], Ordering::Release);
        if !self.is_named.swap(true, Ordering::AcqRel) {
            std::fs::rename(&self.fresh, &self.path)?;
        }
        Ok(())
    }

    /// The data file could not take what is in it: the next start finds it, also after an orderly end.
    pub fn stay(&self) {
        self.stays.store(true, Ordering::Release);
    }

    /// Whether the next start finds it, also after an orderly end.
    pub(crate) fn stays(&self) -> bool {
        self.stays.load(Ordering::Acquire)
    }

    /// The next start does not use it.
    pub fn disarm(&self) {
        self.control.words64(0, 1)[0].store(0, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Nothing in it is needed any more: the next start does not look for it.
    pub fn remove(&self) {
        self.disarm();
        if self.is_named.load(Ordering::Acquire)
            && let Err(error) = remove(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "protected memory could not be removed");
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // A process that drops the memory in order removes it. A panic is not in order.
        if std::thread::panicking() || self.stays() {
            return;
        }
        self.remove();
        _ = remove(&self.fresh);
    }
}

fn header(shape: &Layout, mark: u32, owner: KeptOwner) -> [u64; HEADER_WORDS] {
    let KeptOwner { tag, boot, dump, lossy, filling } = owner;
    let filling = filling.map_or(0, |epoch| epoch.saturating_add(1));
    let (mark, boot, lossy) = (mark.into(), boot.into(), lossy.into());
    [MAGIC, VERSION, shape.frames, mark, tag, boot, dump, TAIL_BYTES, lossy, filling]
}

fn checksum(header: &[u64; HEADER_WORDS]) -> u64 {
    header.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes())).into()
}

/// The ring of transactions in protected memory.
#[derive(Debug)]
pub struct KeptTail {
    control: Arc<HostRegion>,
    at: u64,
    /// Positions grow for ever; the ring has them modulo its length.
    head: u64,
    end: u64,
}

impl KeptTail {
    /// Whether so many bytes fit, twice over: [`Self::replace`] needs room for a second copy.
    #[inline]
    pub fn has_room(&self, bytes: u64) -> bool {
        2 * (self.end - self.head + bytes) <= TAIL_BYTES
    }

    /// Adds a transaction.
    ///
    /// # Panics
    /// If it does not fit.
    #[inline]
    pub fn push(&mut self, transaction: &[u8]) {
        self.put(self.end, transaction);
        self.end += transaction.len() as u64;
        self.state(END_WORD).store(self.end, Ordering::Release);
    }

    /// The first `bytes` are durable, up to this transaction.
    pub fn drop_front(&mut self, bytes: u64, durable: u64) {
        self.head += bytes;
        self.select(durable);
    }

    /// Replaces all transactions after `durable` by these. Either the whole change counts or none of it.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn replace(&mut self, durable: u64, transactions: &[u8]) {
        self.put(self.end, transactions);
        self.head = self.end;
        self.end += transactions.len() as u64;
        self.select(durable);
        self.state(END_WORD).store(self.end, Ordering::Release);
    }

    /// Changes both ends and the durable transaction at once.
    fn select(&self, durable: u64) {
        let slot = 1 - (self.state(SLOT_WORD).load(Ordering::Relaxed) & 1);
        let first = SLOTS_WORD[usize::from(slot == 1)];
        for (word, value) in (first..).zip([self.head, durable, self.end]) {
            self.state(word).store(value, Ordering::Relaxed);
        }
        self.state(SLOT_WORD).store(slot, Ordering::Release);
    }

    #[inline]
    fn put(&self, from: u64, bytes: &[u8]) {
        assert!(from + bytes.len() as u64 - self.head <= TAIL_BYTES, "the tail outgrows protected memory");
        let at = from % TAIL_BYTES;
        let first = bytes.len().min(usize::try_from(TAIL_BYTES - at).unwrap_or(usize::MAX));
        self.control.write(self.at + at, &bytes[..first]);
        if first < bytes.len() {
            self.control.write(self.at, &bytes[first..]);
        }
    }

    #[inline]
    fn state(&self, word: usize) -> &std::sync::atomic::AtomicU64 {
        &self.control.words64(STATE_AT + word as u64 * 8, 1)[0]
    }
}

/// Sizes, mark and owner, if the header is whole.
pub(crate) fn decode(head: &HostRegion) -> Option<(Layout, u32, KeptOwner)> {
    let words = head.words64(0, HEADER_WORDS + 1);
    let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Acquire)).collect();
    let (found, crc) = words.split_first_chunk::<HEADER_WORDS>()?;
    let &[magic, version, frames, mark, tag, boot, dump, tail_bytes, lossy, filling] = found;
    if (magic, version, tail_bytes) != (MAGIC, VERSION, TAIL_BYTES) || crc[..] != [checksum(found)] {
        return None;
    }
    let (mark, boot) = (u32::try_from(mark).ok()?, u32::try_from(boot).ok()?);
    let frames = u32::try_from(frames).ok().filter(|&frames| frames > 0)?;
    let (lossy, filling) = (lossy != 0, filling.checked_sub(1));
    Some((Layout::new(frames.into()), mark, KeptOwner { tag, boot, dump, lossy, filling }))
}

/// The last durable transaction, and the bytes of all transactions after it.
pub(crate) fn decode_tail(control: &HostRegion, tail_at: u64) -> Option<(u64, Vec<u8>)> {
    let words = control.words64(STATE_AT, END_WORD + 1);
    let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Acquire)).collect();
    let first = SLOTS_WORD[usize::from(words[SLOT_WORD] & 1 == 1)];
    let (head, durable, end) = (words[first], words[first + 1], words[first + 2].max(words[END_WORD]));
    let bytes = end.checked_sub(head).filter(|&bytes| bytes <= TAIL_BYTES)?;
    let mut tail = vec![0; usize::try_from(bytes).ok()?];
    let at = head % TAIL_BYTES;
    let split = tail.len().min(usize::try_from(TAIL_BYTES - at).ok()?);
    let (front, back) = tail.split_at_mut(split);
    control.read(tail_at + at, front);
    control.read(tail_at, back);
    Some((durable, tail))
}

#[cfg(test)]
pub(crate) const TAIL: usize = 8 << 20;

/// Header and state as bytes, with this owner and this many bytes of tail.
#[cfg(test)]
pub(crate) fn sound(tag: u64, bytes: u64) -> Vec<u8> {
    let mut out = vec![0; 8192];
    let owner = KeptOwner { tag, boot: 3, dump: 9, lossy: false, filling: Some(tag) };
    let header = header(&Layout::new(100), 77, owner);
    for (word, value) in header.into_iter().chain([checksum(&header)]).enumerate() {
        out[word * 8..word * 8 + 8].copy_from_slice(&value.to_le_bytes());
    }
    for (word, value) in
        [(SLOTS_WORD[0], 50), (SLOTS_WORD[0] + 1, tag | 1), (END_WORD, 50 + bytes % TAIL_BYTES)]
    {
        let at = 4096 + word * 8;
        out[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    out
}
