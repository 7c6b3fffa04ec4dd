// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that more than one agent touches: flash media, queues, rings.
//!
//! This is one of the few places with `unsafe`. A [`HostRegion`] is plain memory that Rust code, device code and (with
//! CUDA) the GPU read and write at the same time. No reference to its bytes ever leaves this module: data goes in and
//! out by copy, shared words through atomics.
#![expect(unsafe_code, reason = "the window to memory that other agents write while Rust runs")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Names a region within the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub u32);

/// Bytes within a region: data by reference, as the mover gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalRef {
    /// The region.
    pub region: RegionId,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// A piece of page-aligned, zeroed host memory with a stable address.
#[derive(Debug)]
pub struct HostRegion {
    id: RegionId,
    base: NonNull<u8>,
    bytes: usize,
    mapped: usize,
}

// SAFETY: the memory is owned by the region, stays mapped until drop, and is only touched by copies and atomics.
unsafe impl Send for HostRegion {}
// SAFETY: as above; concurrent copies may tear, which callers exclude by protocol (docs/ordering.md), never by Rust references.
unsafe impl Sync for HostRegion {}

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl HostRegion {
    /// Maps `bytes` of zeroed memory; untouched pages cost nothing.
    ///
    /// # Errors
    /// The operating system's error, where it has no such amount of address space.
    pub fn alloc(bytes: usize) -> std::io::Result<Arc<Self>> {
        let mapped = bytes.max(1).next_multiple_of(2 << 20);
        // SAFETY: a fresh anonymous private mapping; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the mapping above; a hint only.
        unsafe { libc::madvise(base, mapped, libc::MADV_HUGEPAGE) };
        let id = RegionId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let base = NonNull::new(base.cast()).expect("mmap never returns null on success");
        Ok(Arc::new(Self { id, base, bytes, mapped }))
    }

    /// The region's name.
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Address of byte 0, for agents that are told addresses (the mover, CUDA).
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// A reference to `bytes` at `offset`.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn slice(&self, offset: u64, bytes: u32) -> LocalRef {
        let _ = self.at(offset, bytes as usize);
        LocalRef { region: self.id, offset, bytes }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let from = self.at(offset, out.len());
        // SAFETY: `at` checked the range; `out` is a distinct Rust buffer.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn write(&self, offset: u64, data: &[u8]) {
        let to = self.at(offset, data.len());
        // SAFETY: `at` checked the range; `data` is a distinct Rust buffer.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }

    /// Fills bytes.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn fill(&self, offset: u64, bytes: usize, value: u8) {
        let to = self.at(offset, bytes);
        // SAFETY: `at` checked the range.
        unsafe { std::ptr::write_bytes(to, value, bytes) };
    }

    /// A shared 32-bit word.
    ///
    /// # Panics
    /// If it leaves the region or is not aligned.
    pub fn word32(&self, offset: u64) -> &AtomicU32 {
        let at = self.at(offset, 4).cast::<AtomicU32>();
        assert!(at.is_aligned(), "a shared word must be aligned");
        // SAFETY: in range, aligned, alive as long as `self`; an atomic may be shared with any other agent.
        unsafe { &*at }
    }

    /// A run of shared 64-bit words.
    ///
    /// # Panics
    /// If it leaves the region or is not aligned.
    pub fn words64(&self, offset: u64, count: usize) -> &[AtomicU64] {
        let at = self.at(offset, count * 8).cast::<AtomicU64>();
        assert!(at.is_aligned(), "shared words must be aligned");
        // SAFETY: in range, aligned, alive as long as `self`; atomics may be shared with any other agent.
        unsafe { std::slice::from_raw_parts(at, count) }
    }

    fn at(&self, offset: u64, bytes: usize) -> *mut u8 {
        let offset = usize::try_from(offset).expect("64-bit host");
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "bytes {offset}..+{bytes} leave a region of {} bytes",
            self.bytes
        );
        // SAFETY: checked above.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for HostRegion {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `alloc`, unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}
