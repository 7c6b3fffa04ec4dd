// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The out-of-band record beside a page: 64 bytes, one cache line, eight 64-bit words (little-endian in a
//! file).
//!
//! ```text
//!   word 0   vba (63..32) | vid (31..16) | zero (15..8) | state (7..0)      written last
//!        1   generation (63..32) | block sum (31..0)
//!        2   sequence of the stamp
//!        3   order in which this SSD applied the write
//!        4   lease epoch of the stamp (63..32) | crc32c (31..0)
//!   ---- volatile: no meaning after a power cut ----
//!        5   mark (63..32) | frame (31..0)
//!        6   mark (63..32) | pins (31..0)
//!        7   zero
//! ```
//! The crc covers the page's number and words 0 to 4 as they are when the page is programmed. It is computed
//! when the page is placed, so that programming changes one byte only. The mark of the boot (`boot.rs`)
//! separates current volatile words from older ones. So opening a file of a billion records writes none of
//! them.

use crate::boot::mark;
use crate::changes::Changes;
use crate::geometry::Ppa;
use gnstor_base::region::HostRegion;
use gnstor_proto::slba::Stamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Contents of a page: enough to rebuild the map (protocol rule 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Oob {
    /// Volume id.
    pub vid: u16,
    /// Generation of the volume id.
    pub generation: u32,
    /// Block within the volume.
    pub vba: u32,
    /// Stamp of the write.
    pub stamp: Stamp,
    /// Block sum of the data.
    pub sum: u32,
    /// Order in which this SSD applied writes.
    pub seq: u64,
}

/// Bytes of a record.
pub const RECORD_BYTES: u64 = 64;

const WORDS: usize = 8;
const FRAME: usize = 5;
const PINS: usize = 6;
const LOW: u64 = 0xFFFF_FFFF;
const STATE: u64 = 0xFF;
/// Frame number of padding.
const NO_FRAME: u32 = u32::MAX;

/// The last byte of word 0. Anything else is damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    Erased = 0,
    /// In a frame only; of an older boot it is as good as erased.
    Buffered = 1,
    /// Padding whose unit is not programmed yet.
    Pad = 2,
    Programmed = 3,
    Padding = 4,
    /// An erase or a program failed half way.
    Broken = 5,
}

impl State {
    #[inline]
    fn of(word: u64) -> Self {
        match word & STATE {
            // Word 0 of an erased page is zero altogether.
            0 if word == 0 => Self::Erased,
            1 => Self::Buffered,
            2 => Self::Pad,
            3 => Self::Programmed,
            4 => Self::Padding,
            _ => Self::Broken,
        }
    }

    /// The state after the unit of a page in this state is programmed.
    #[inline]
    fn programmed(self) -> Self {
        match self {
            Self::Buffered => Self::Programmed,
            Self::Pad => Self::Padding,
            other => other,
        }
    }
}

/// All records of an SSD.
#[derive(Debug)]
pub(crate) struct Records {
    region: Arc<HostRegion>,
    /// Of this life of the flash: buffered pages and frames of another one are void.
    mark: u32,
    /// The mark of pins; a power cut changes it.
    pin_mark: AtomicU32,
    /// On file media: the changes that the file lacks.
    changes: Option<Arc<Changes>>,
}

impl Records {
    pub(crate) fn new(region: Arc<HostRegion>, boot: u32) -> Self {
        let mark = mark(boot);
        Self { region, mark, pin_mark: AtomicU32::new(mark), changes: None }
    }

    /// Records of a file. Each change is noted.
    pub(crate) fn noting(region: Arc<HostRegion>, changes: Arc<Changes>, boot: u32) -> Self {
        Self { changes: Some(changes), ..Self::new(region, boot) }
    }

    /// A record says something else after a power failure. What is only buffered says nothing then.
    #[inline]
    fn changed(&self, page: Ppa) {
        if let Some(changes) = &self.changes {
            changes.note(page);
        }
    }

    pub(crate) fn region(&self) -> &Arc<HostRegion> {
        &self.region
    }

    #[inline]
    fn words(&self, page: Ppa) -> &[AtomicU64; WORDS] {
        let words = self.region.words64(u64::from(page.0) * RECORD_BYTES, WORDS);
        words.first_chunk().expect("eight words were asked for")
    }

    #[inline]
    pub(crate) fn prefetch(&self, page: Ppa) {
        self.region.prefetch(u64::from(page.0) * RECORD_BYTES);
    }

    /// Current state: a page that an older boot buffered is erased.
    #[inline]
    pub(crate) fn state(&self, page: Ppa) -> State {
        let words = self.words(page);
        self.as_of_this_boot(State::of(words[0].load(Ordering::Acquire)), words)
    }

    #[inline]
    fn as_of_this_boot(&self, state: State, words: &[AtomicU64; WORDS]) -> State {
        match state {
            State::Buffered | State::Pad
                if words[FRAME].load(Ordering::Relaxed) >> 32 != u64::from(self.mark) =>
            {
                State::Erased
            }
            state => state,
        }
    }

    /// Volume id, generation, block and sum of a page that holds data.
    #[inline]
    pub(crate) fn key(&self, page: Ppa) -> Option<(u16, u32, u32, u32)> {
        let words = self.words(page);
        let first = words[0].load(Ordering::Acquire);
        let second = words[1].load(Ordering::Acquire);
        if !matches!(self.as_of_this_boot(State::of(first), words), State::Buffered | State::Programmed) {
            return None;
        }
        // The page was erased and placed anew meanwhile: the words belong to two writes. Impossible for a
        // pinned page.
        if words[0].load(Ordering::Relaxed) & !STATE != first & !STATE {
            return None;
        }
        Some((low16(first >> 16), high(second), high(first), low(second)))
    }

    pub(crate) fn oob(&self, page: Ppa) -> Oob {
        let words = self.words(page);
        let [first, second, sequence, seq, last] = Self::load(words);
        Oob {
            vid: low16(first >> 16),
            generation: high(second),
            vba: high(first),
            stamp: Stamp { lease_epoch: high(last), sequence },
            sum: low(second),
            seq,
        }
    }

    /// Whether the record is intact.
    pub(crate) fn is_sound(&self, page: Ppa) -> bool {
        let mut words = Self::load(self.words(page));
        let state = match State::of(words[0]) {
            State::Erased => return words == [0; 5],
            State::Broken => return false,
            other => other.programmed(),
        };
        words[0] = words[0] & !STATE | state as u64;
        low(words[4]) == crc(page, &words)
    }

    fn load(words: &[AtomicU64; WORDS]) -> [u64; 5] {
        let first = words[0].load(Ordering::Acquire);
        [
            first,
            words[1].load(Ordering::Relaxed),
            words[2].load(Ordering::Relaxed),
            words[3].load(Ordering::Relaxed),
            words[4].load(Ordering::Relaxed),
        ]
    }

    /// Writes the record of a page that is in `frame`.
    pub(crate) fn place(&self, page: Ppa, frame: u32, oob: &Oob) {
        let first = u64::from(oob.vba) << 32 | u64::from(oob.vid) << 16;
        let second = u64::from(oob.generation) << 32 | u64::from(oob.sum);
        let last = u64::from(oob.stamp.lease_epoch) << 32;
        let words = [first, second, oob.stamp.sequence, oob.seq, last];
        self.write(page, words, State::Buffered, frame);
    }

    /// Writes the record of a page without data.
    pub(crate) fn pad(&self, page: Ppa) {
        self.write(page, [0; 5], State::Pad, NO_FRAME);
    }

    /// The crc is that of the record after the unit is programmed.
    fn write(&self, page: Ppa, mut to: [u64; 5], now: State, frame: u32) {
        let words = self.words(page);
        to[0] |= now.programmed() as u64;
        to[4] |= u64::from(crc(page, &to));
        for at in 1..5 {
            words[at].store(to[at], Ordering::Relaxed);
        }
        words[FRAME].store(u64::from(self.mark) << 32 | u64::from(frame), Ordering::Relaxed);
        words[0].store(to[0] & !STATE | now as u64, Ordering::Release);
    }

    /// Changes the state of a page and nothing else.
    pub(crate) fn set_state(&self, page: Ppa, state: State) {
        let first = &self.words(page)[0];
        first.store(first.load(Ordering::Relaxed) & !STATE | state as u64, Ordering::Release);
        self.changed(page);
    }

    /// Marks the page as erased. Returns its frame, if it had one.
    pub(crate) fn erase(&self, page: Ppa) -> Option<u32> {
        let words = self.words(page);
        words[0].store(0, Ordering::Release);
        words[1..5].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.changed(page);
        self.take_frame(page)
    }

    /// Damages the record of a page as a torn program does: it says programmed, and its crc is wrong.
    pub(crate) fn damage(&self, page: Ppa, dice: u64) {
        let words = self.words(page);
        self.set_state(page, State::Programmed);
        // One flipped bit of words 1 to 4 or of the address is always noticed by a crc.
        let (at, bit) = ((dice & 3) as usize + 1, dice >> 8 & 63);
        words[at].fetch_xor(1 << bit, Ordering::Relaxed);
        self.changed(page);
    }

    /// A bit of words 0 to 4 flips.
    pub(crate) fn rot(&self, page: Ppa, bit: u32) {
        let words = &self.words(page)[..5];
        words[(bit / u64::BITS) as usize % words.len()].fetch_xor(1 << (bit % u64::BITS), Ordering::Relaxed);
        self.changed(page);
    }

    /// The frame that now holds the page's data.
    #[inline]
    pub(crate) fn frame(&self, page: Ppa) -> Option<u32> {
        let word = self.words(page)[FRAME].load(Ordering::SeqCst);
        self.own_frame(word)
    }

    /// The frame of a page that another boot, of this mark, has buffered.
    pub(crate) fn left_frame(&self, page: Ppa, mark: u32) -> Option<u32> {
        let words = self.words(page);
        let is_buffered = State::of(words[0].load(Ordering::Acquire)) == State::Buffered;
        let frame = words[FRAME].load(Ordering::Acquire);
        (is_buffered && frame >> 32 == u64::from(mark) && self.is_sound(page)).then_some(low(frame))
    }

    /// Marks the volatile words of this life of the flash.
    pub(crate) fn mark(&self) -> u32 {
        self.mark
    }

    #[inline]
    fn own_frame(&self, word: u64) -> Option<u32> {
        (word >> 32 == u64::from(self.mark) && low(word) != NO_FRAME).then_some(low(word))
    }

    /// The frame of a page whose data is in one.
    #[inline]
    pub(crate) fn resident(&self, page: Ppa) -> Option<u32> {
        let words = self.words(page);
        // Load the state first: a program changes it before it takes the frame away.
        match State::of(words[0].load(Ordering::Acquire)) {
            State::Buffered | State::Programmed => self.own_frame(words[FRAME].load(Ordering::SeqCst)),
            _ => None,
        }
    }

    /// Takes the frame from the page. The caller must check the pins afterwards, before it frees the frame. A
    /// reader pins first and looks for the frame afterwards, so one of the two sees the other.
    pub(crate) fn take_frame(&self, page: Ppa) -> Option<u32> {
        let words = self.words(page);
        self.own_frame(words[FRAME].swap(0, Ordering::SeqCst))
    }

    #[inline]
    pub(crate) fn pin(&self, page: Ppa) {
        let (pins, mark) = (&self.words(page)[PINS], u64::from(self.pin_mark.load(Ordering::Relaxed)));
        let mut now = pins.load(Ordering::Relaxed);
        loop {
            let next = if now >> 32 == mark { now + 1 } else { mark << 32 | 1 };
            match pins.compare_exchange_weak(now, next, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        // Pairs with the fence in `has_pins`. On x86 the exchange above is a full barrier already.
        #[cfg(not(target_arch = "x86_64"))]
        fence(Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn unpin(&self, page: Ppa) {
        let (pins, mark) = (&self.words(page)[PINS], u64::from(self.pin_mark.load(Ordering::Relaxed)));
        if pins.load(Ordering::Relaxed) >> 32 != mark {
            // A pin from before a power cut does not count.
            return;
        }
        let before = pins.fetch_sub(1, Ordering::Release);
        assert_ne!(before & LOW, 0, "{page:?} unpinned without a pin");
    }

    /// Whether any of the pages is pinned. The caller has unmapped them before: a reader whose pin this does
    /// not see will not find them in the map.
    pub(crate) fn has_pins(&self, mut pages: impl Iterator<Item = Ppa>) -> bool {
        fence(Ordering::SeqCst);
        let mark = u64::from(self.pin_mark.load(Ordering::Relaxed));
        pages.any(|page| {
            let pins = self.words(page)[PINS].load(Ordering::Acquire);
            pins >> 32 == mark && pins & LOW != 0
        })
    }

    /// Clears all pins.
    pub(crate) fn clear_pins(&self) {
        let mark = self.pin_mark.load(Ordering::Relaxed);
        // Only the crc part of the mark changes, so no later boot has this mark.
        self.pin_mark.store(mark & !0xFF | mark.wrapping_add(1) & 0xFF, Ordering::Relaxed);
    }
}

fn crc(page: Ppa, words: &[u64; 5]) -> u32 {
    let mut bytes = [0; 44];
    for (word, to) in
        [words[0], words[1], words[2], words[3], words[4] & !LOW].iter().zip(bytes.chunks_exact_mut(8))
    {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes[40..].copy_from_slice(&page.0.to_le_bytes());
    crc32c::crc32c(&bytes)
}

#[inline]
fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[inline]
fn low(word: u64) -> u32 {
    (word & LOW) as u32
}

#[inline]
fn low16(word: u64) -> u16 {
    (word & 0xFFFF) as u16
}
