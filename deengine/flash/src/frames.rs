// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames: 4 KiB pieces of memory that the mover can reach, and the list of free ones.
//!
//! ```text
//!   | frame 0 | frame 1 | ... | frame n-1 | zeros |        one region; behind the frames the page of zeros
//!     links:    free frames, last given first taken
//!     `fresh`:  frames that were never taken (memory that was never touched)
//! ```
//! Taking and giving back take no lock. Only frames that were used have memory, so that an SSD of 1 TiB costs
//! nothing at first.

use crate::PAGE_BYTES;
use gnstor_base::region::{HostRegion, LocalRef};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u32);

/// Link of a frame that is not free. The link of a free frame is 1 + the next free frame, or [`LAST`].
const TAKEN: u32 = 0;
const LAST: u32 = u32::MAX;

/// The frames of one SSD.
#[derive(Debug)]
pub(crate) struct Frames {
    region: Arc<HostRegion>,
    links: Arc<HostRegion>,
    count: u32,
    hot: Hot,
}

/// Words that every take and give writes, kept away from words that every reader reads.
#[derive(Debug)]
#[repr(align(128))]
struct Hot {
    /// Low half: link to the first free frame. High half: counts changes, so that a slow taker notices that
    /// the first frame was taken and given back meanwhile.
    head: AtomicU64,
    /// This frame and all after it were never taken.
    fresh: AtomicU32,
    free: AtomicU32,
}

impl Frames {
    pub(crate) fn new(count: u64, shared: bool) -> io::Result<Self> {
        let bytes = usize::try_from(Self::region_bytes(count)).map_err(io::Error::other)?;
        Self::over(count, if shared { HostRegion::shared(bytes)? } else { HostRegion::alloc(bytes)? })
    }

    /// Bytes of the region of so many frames, with the page of zeros.
    fn region_bytes(count: u64) -> u64 {
        count.saturating_add(1).saturating_mul(PAGE_BYTES.into())
    }

    /// Frames in this memory, which must be all zeros.
    pub(crate) fn over(count: u64, region: Arc<HostRegion>) -> io::Result<Self> {
        let too_many =
            || io::Error::new(io::ErrorKind::InvalidInput, format!("an SSD has no use for {count} frames"));
        let count = u32::try_from(count).ok().filter(|&count| count < LAST - 1).ok_or_else(too_many)?;
        let links = HostRegion::alloc(usize::try_from(u64::from(count) * 4).map_err(io::Error::other)?)?;
        let head = AtomicU64::new(u64::from(LAST));
        let hot = Hot { head, fresh: AtomicU32::new(0), free: AtomicU32::new(count) };
        Ok(Self { region, links, count, hot })
    }

    pub(crate) fn region(&self) -> &Arc<HostRegion> {
        &self.region
    }

    pub(crate) fn links(&self) -> &Arc<HostRegion> {
        &self.links
    }

    #[inline]
    pub(crate) fn at(&self, frame: Frame) -> LocalRef {
        debug_assert!(frame.0 < self.count, "{frame:?} is not a frame");
        LocalRef { region: self.region.id(), offset: Self::offset(frame), bytes: PAGE_BYTES }
    }

    #[inline]
    pub(crate) fn offset(frame: Frame) -> u64 {
        u64::from(frame.0) * u64::from(PAGE_BYTES)
    }

    /// The page of zeros, as if it were a frame.
    #[inline]
    pub(crate) fn zeros(&self) -> LocalRef {
        LocalRef { region: self.region.id(), offset: Self::offset(Frame(self.count)), bytes: PAGE_BYTES }
    }

    /// Frames that can be taken.
    #[inline]
    pub(crate) fn free(&self) -> u32 {
        self.hot.free.load(Ordering::Relaxed)
    }

    /// Takes a frame if more than `reserve` are free.
    pub(crate) fn take(&self, reserve: u32) -> Option<Frame> {
        let mut frame = None;
        self.take_some(reserve, 1, |taken| frame = Some(taken));
        frame
    }

    /// Takes up to `most` frames while more than `reserve` are free. The shared word changes once for most of
    /// them.
    pub(crate) fn take_some(&self, reserve: u32, most: u32, mut each: impl FnMut(Frame)) {
        let can = |free: u32| free.saturating_sub(reserve).min(most);
        let keep = |free: u32| (can(free) > 0).then(|| free - can(free));
        let Ok(free) = self.hot.free.fetch_update(Ordering::Acquire, Ordering::Relaxed, keep) else { return };
        // The count reserves this many frames for the caller; the loop below finds them.
        let mut left = can(free);
        while left > 0 {
            let head = self.hot.head.load(Ordering::Acquire);
            let took = match split(head).0 {
                LAST => self.take_fresh(left, &mut each),
                _ => self.take_listed(head, left, &mut each),
            };
            left -= took;
            if took == 0 {
                std::hint::spin_loop();
            }
        }
    }

    /// Takes up to `most` frames that were never taken.
    fn take_fresh(&self, most: u32, each: &mut impl FnMut(Frame)) -> u32 {
        let end = |at: u32| at.saturating_add(most).min(self.count);
        let go_on = |at: u32| (end(at) > at).then(|| end(at));
        let Ok(first) = self.hot.fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, go_on) else {
            return 0;
        };
        (first..end(first)).map(Frame).for_each(each);
        end(first) - first
    }

    /// Takes up to `most` frames from the list that was found to begin at `head`.
    fn take_listed(&self, head: u64, most: u32, each: &mut impl FnMut(Frame)) -> u32 {
        let (first, turn) = split(head);
        let (mut behind, mut count) = (first, 0);
        while count < most && behind != LAST {
            behind = self.link(Frame(behind - 1)).load(Ordering::Relaxed);
            if behind == TAKEN {
                // Another thread has taken from the list meanwhile.
                return 0;
            }
            count += 1;
        }
        let list = &self.hot.head;
        if list.compare_exchange(head, join(behind, turn), Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return 0;
        }
        let mut at = first;
        for _ in 0..count {
            let frame = Frame(at - 1);
            at = self.link(frame).swap(TAKEN, Ordering::Relaxed);
            each(frame);
        }
        count
    }

    pub(crate) fn give(&self, frame: Frame) {
        self.give_all(std::iter::once(frame));
    }

    /// Gives frames back. The shared word changes once.
    pub(crate) fn give_all(&self, frames: impl Iterator<Item = Frame>) {
        let (mut first, mut last, mut count) = (LAST, None, 0);
        for frame in frames {
            assert!(frame.0 < self.hot.fresh.load(Ordering::Relaxed), "{frame:?} was never taken");
            let link = self.link(frame);
            assert_eq!(link.swap(first, Ordering::Relaxed), TAKEN, "{frame:?} is given back twice");
            last.get_or_insert(link);
            (first, count) = (frame.0 + 1, count + 1);
        }
        let Some(last) = last else { return };
        loop {
            let head = self.hot.head.load(Ordering::Relaxed);
            let (behind, turn) = split(head);
            last.store(behind, Ordering::Relaxed);
            let exchange = self.hot.head.compare_exchange_weak(
                head,
                join(first, turn),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if exchange.is_ok() {
                break;
            }
        }
        self.hot.free.fetch_add(count, Ordering::Release);
    }

    /// Frames that were ever taken.
    pub(crate) fn used(&self) -> u32 {
        self.hot.fresh.load(Ordering::Relaxed)
    }

    /// Frees all frames except the frames in `held`. No other thread may use the frames meanwhile.
    pub(crate) fn reset(&self, held: impl Fn(Frame) -> bool) {
        let mut first = LAST;
        let mut free = self.count - self.used();
        for frame in (0..self.used()).rev().map(Frame) {
            if held(frame) {
                self.link(frame).store(TAKEN, Ordering::Relaxed);
            } else {
                self.link(frame).store(first, Ordering::Relaxed);
                first = frame.0 + 1;
                free += 1;
            }
        }
        let (_, turn) = split(self.hot.head.load(Ordering::Relaxed));
        self.hot.head.store(join(first, turn), Ordering::Release);
        self.hot.free.store(free, Ordering::Release);
    }

    #[inline]
    fn link(&self, frame: Frame) -> &AtomicU32 {
        self.links.word32(u64::from(frame.0) * 4)
    }
}

fn split(head: u64) -> (u32, u32) {
    ((head & 0xFFFF_FFFF) as u32, (head >> 32) as u32)
}

fn join(first: u32, turn: u32) -> u64 {
    u64::from(turn.wrapping_add(1)) << 32 | u64::from(first)
}
