// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of the table as cache lines: the only place that deals in addresses.
//!
//! Every access is checked against the bounds, once for a line.
#![expect(unsafe_code, reason = "a line of eight atomics by one check, and a prefetch, have no safe form")]

use crate::SLOTS;
use gnstor_base::region::HostRegion;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A bucket: one cache line, as the alignment ensures.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line([AtomicU64; SLOTS]);

impl Deref for Line {
    type Target = [AtomicU64; SLOTS];

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// The image: lines, and after them the words of the stash.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<AtomicU64>,
    lines: usize,
    words: usize,
    /// Keeps the memory mapped.
    region: Arc<HostRegion>,
}

// SAFETY: everything reached through `base` is an atomic in memory that the region keeps alive wherever it
// moves.
unsafe impl Send for Memory {}
// SAFETY: as above; atomics may be shared.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory of `lines` lines and `tail` words more. Memory that is never written costs nothing.
    pub(crate) fn new(lines: usize, tail: usize) -> std::io::Result<Self> {
        let too_large =
            || std::io::Error::new(std::io::ErrorKind::InvalidInput, "a map beyond the address space");
        let words =
            lines.checked_mul(SLOTS).and_then(|slots| slots.checked_add(tail)).ok_or_else(too_large)?;
        let bytes = words.checked_mul(8).filter(|&bytes| bytes <= usize::MAX / 4).ok_or_else(too_large)?;
        let region = HostRegion::alloc(bytes)?;
        let base = NonNull::<[AtomicU64]>::from(region.words64(0, words)).cast();
        assert!(base.cast::<Line>().is_aligned(), "a region begins with a page");
        Ok(Self { base, lines, words, region })
    }

    pub(crate) fn region(&self) -> &Arc<HostRegion> {
        &self.region
    }

    /// Cache line number `line`.
    ///
    /// # Panics
    /// If there is no such line.
    #[inline]
    pub(crate) fn line(&self, line: u64) -> &Line {
        let at = self.index(line);
        // SAFETY: `index` checked that the line's words are among the `words` atomics at `base`, which the
        // region keeps mapped as long as `self`. `new` checked the alignment of the first.
        unsafe { self.base.add(at).cast::<Line>().as_ref() }
    }

    /// All words.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `new` took the address from a slice of just these words; the region lives as long as
        // `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    /// The words after the lines.
    #[inline]
    pub(crate) fn tail(&self) -> &[AtomicU64] {
        &self.words()[self.lines * SLOTS..]
    }

    /// Prefetches a line into the cache. No effect where Rust names no such instruction of the processor.
    #[inline]
    pub(crate) fn prefetch(&self, line: u64) {
        let at = self.index(line);
        // SAFETY: as in `line`; a prefetch reads nothing that the program sees.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.base.add(at).as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a line number is below `lines`, a usize; checked here"
    )]
    fn index(&self, line: u64) -> usize {
        if line >= self.lines as u64 {
            self.beyond(line);
        }
        (line as usize).wrapping_mul(SLOTS)
    }

    /// A function of its own, so that a successful check costs no more than itself.
    #[cold]
    #[inline(never)]
    fn beyond(&self, line: u64) -> ! {
        panic!("line {line} of {}", self.lines)
    }
}
