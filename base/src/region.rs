// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that more than one agent touches: flash media, queues, rings.
//!
//! This is one of the few places with `unsafe`. A [`HostRegion`] is plain memory that Rust code, device code
//! and (with CUDA) the GPU read and write at the same time. No reference to its bytes ever leaves this
//! module: data goes in and out by copy, shared words through atomics.
#![expect(unsafe_code, reason = "the window to memory that other agents write while Rust runs")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
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

/// A piece of page-aligned host memory with a stable address: anonymous, shareable with other processes, or a
/// part of a file.
#[derive(Debug)]
pub struct HostRegion {
    id: RegionId,
    base: NonNull<u8>,
    bytes: usize,
    mapped: usize,
    /// File of a shared mapping, which another process can map, too.
    backing: Option<OwnedFd>,
}

// SAFETY: the memory is owned by the region, stays mapped until drop, and is only touched by copies and
// atomics.
unsafe impl Send for HostRegion {}
// SAFETY: as above; concurrent copies may tear, which callers exclude by protocol (docs/ordering.md), never
// by Rust references.
unsafe impl Sync for HostRegion {}

/// Regions consist of whole huge pages.
const HUGE_PAGE: usize = 2 << 20;

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl HostRegion {
    /// Maps `bytes` of zeroed memory; untouched pages cost nothing.
    ///
    /// # Errors
    /// The operating system's error, where it has no such amount of address space.
    pub fn alloc(bytes: usize) -> io::Result<Arc<Self>> {
        let mapped = bytes.max(1).next_multiple_of(HUGE_PAGE);
        let base = map(mapped, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, None)?;
        want_huge_pages(base, mapped);
        Ok(Self::over(base, bytes, mapped, None))
    }

    /// Maps `bytes` of zeroed memory that another process can map through the descriptor of
    /// [`Self::backing`]. The memory has huge pages if the machine has reserved enough of them
    /// (`vm.nr_hugepages`). Otherwise it has ordinary pages, which cost nothing until they are touched.
    ///
    /// # Errors
    /// The operating system's error if address space or descriptors are short.
    pub fn shared(bytes: usize) -> io::Result<Arc<Self>> {
        let huge = if bytes < HUGE_PAGE {
            Err(io::ErrorKind::Unsupported.into())
        } else {
            // Reserved as a whole: a huge page that is missing when it is touched ends the process.
            Self::in_memory_file(bytes, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB, 0)
        };
        huge.or_else(|error: io::Error| {
            tracing::debug!(bytes, %error, "shared memory is made of ordinary pages");
            let region = Self::in_memory_file(bytes, 0, libc::MAP_NORESERVE)?;
            want_huge_pages(region.base, region.mapped);
            Ok(region)
        })
    }

    fn in_memory_file(bytes: usize, of: libc::c_uint, how: libc::c_int) -> io::Result<Arc<Self>> {
        let mapped = bytes.max(1).next_multiple_of(HUGE_PAGE);
        // SAFETY: the name is a constant with a zero at its end.
        let fd = unsafe { libc::memfd_create(c"gnstor-region".as_ptr(), libc::MFD_CLOEXEC | of) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor with no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let file = File::from(fd);
        file.set_len(mapped as u64)?;
        let base = map(mapped, libc::MAP_SHARED | how, Some((file.as_fd(), 0)))?;
        Ok(Self::over(base, bytes, mapped, Some(file.into())))
    }

    /// Maps a part of a file. Writes reach the file without further ado; [`Self::sync`] waits until they are
    /// on its medium. The file must not become shorter while it is mapped: touching what is gone ends the
    /// process.
    ///
    /// # Errors
    /// `InvalidInput` for an offset that is not a multiple of 4 KiB or a range that ends behind the file;
    /// else the operating system's error.
    pub fn map_file(file: &File, offset: u64, bytes: usize) -> io::Result<Arc<Self>> {
        let mut end = file.metadata()?.len();
        if end == 0 {
            // Only a seek gives the size of a block device.
            let mut at = file;
            end = io::Seek::seek(&mut at, io::SeekFrom::End(0))?;
        }
        if !offset.is_multiple_of(4096) || offset.checked_add(bytes as u64).is_none_or(|last| last > end) {
            let text = format!("bytes {offset}..+{bytes} of a file of {end} bytes cannot be mapped");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mapped = bytes.max(1);
        let base = map(mapped, libc::MAP_SHARED, Some((file.as_fd(), offset)))?;
        Ok(Self::over(base, bytes, mapped, Some(file.as_fd().try_clone_to_owned()?)))
    }

    fn over(base: NonNull<u8>, bytes: usize, mapped: usize, backing: Option<OwnedFd>) -> Arc<Self> {
        let id = RegionId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        Arc::new(Self { id, base, bytes, mapped, backing })
    }

    /// The descriptor behind a region that can be shared; none for anonymous memory.
    pub fn backing(&self) -> Option<BorrowedFd<'_>> {
        self.backing.as_ref().map(AsFd::as_fd)
    }

    /// Waits until the whole region is on the medium of its file. Does nothing for memory without a file.
    ///
    /// # Errors
    /// The operating system's error: some of the region is not on the medium.
    pub fn sync(&self) -> io::Result<()> {
        if self.backing.is_none() {
            return Ok(());
        }
        // SAFETY: the region's own mapping.
        match unsafe { libc::msync(self.base.as_ptr().cast(), self.mapped, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Allocates all of its memory now. Otherwise the first touch of a huge page takes as long as the kernel
    /// needs to clear it, possibly under a lock. This is a hint: if the kernel cannot, it allocates memory as
    /// it is touched.
    pub fn populate(&self) {
        // SAFETY: the region's own mapping; what is in it stays.
        if unsafe { libc::madvise(self.base.as_ptr().cast(), self.mapped, libc::MADV_POPULATE_WRITE) } != 0 {
            let error = io::Error::last_os_error();
            tracing::debug!(bytes = self.mapped, %error, "memory is taken as it is touched");
        }
    }

    /// The region's name.
    #[inline]
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Address of byte 0, for agents that are told addresses (the mover, CUDA).
    #[inline]
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// A reference to `bytes` at `offset`.
    ///
    /// # Panics
    /// If the range leaves the region.
    #[inline]
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

    /// Copies bytes from one place of the region to another; the two must not overlap.
    ///
    /// # Panics
    /// If a range leaves the region, or the ranges overlap.
    pub fn copy_within(&self, from: u64, to: u64, bytes: usize) {
        assert!(from.abs_diff(to) >= bytes as u64, "a copy within a region must not overlap itself");
        let (from, to) = (self.at(from, bytes), self.at(to, bytes));
        // SAFETY: `at` checked both ranges, and they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }

    /// Copies bytes of another region to this one.
    ///
    /// # Panics
    /// If a range leaves its region, or both regions are the same.
    pub fn copy_from(&self, to: u64, other: &Self, from: u64, bytes: usize) {
        assert!(self.id != other.id, "a copy between regions needs two of them");
        let (from, to) = (other.at(from, bytes), self.at(to, bytes));
        // SAFETY: `at` checked both ranges, and mappings do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }

    /// Reads bytes of a file into the region, without a copy in between.
    ///
    /// # Errors
    /// `UnexpectedEof` where the file ends; else the operating system's error.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn read_file(&self, offset: u64, bytes: usize, file: &File, at: u64) -> io::Result<()> {
        let into = self.at(offset, bytes);
        let mut done = 0;
        while done < bytes {
            let from = file_offset(at, done)?;
            // SAFETY: `at` checked the range; the kernel writes at most what is left of it.
            let got = unsafe { libc::pread(file.as_raw_fd(), into.add(done).cast(), bytes - done, from) };
            done += progress(got, io::ErrorKind::UnexpectedEof)?;
        }
        Ok(())
    }

    /// Writes bytes of the region to a file, without a copy in between.
    ///
    /// # Errors
    /// `WriteZero` if the file accepts no more bytes; otherwise the operating system's error.
    ///
    /// # Panics
    /// If the range leaves the region.
    pub fn write_file(&self, offset: u64, bytes: usize, file: &File, at: u64) -> io::Result<()> {
        let from = self.at(offset, bytes);
        let mut done = 0;
        while done < bytes {
            let to = file_offset(at, done)?;
            // SAFETY: `at` checked the range; the kernel reads at most what is left of it.
            let put = unsafe { libc::pwrite(file.as_raw_fd(), from.add(done).cast(), bytes - done, to) };
            done += progress(put, io::ErrorKind::WriteZero)?;
        }
        Ok(())
    }

    /// Asks the processor to have the cache line at `offset` soon; a hint, and nothing where `offset` is
    /// outside.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        #[cfg(target_arch = "x86_64")]
        if let Ok(offset) = usize::try_from(offset)
            && offset < self.bytes
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: the address is inside the mapping; a prefetch changes nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().add(offset).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// A shared 32-bit word.
    ///
    /// # Panics
    /// If it leaves the region or is not aligned.
    #[inline]
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
    #[inline]
    pub fn words64(&self, offset: u64, count: usize) -> &[AtomicU64] {
        let at = self.at(offset, count * 8).cast::<AtomicU64>();
        assert!(at.is_aligned(), "shared words must be aligned");
        // SAFETY: in range, aligned, alive as long as `self`; atomics may be shared with any other agent.
        unsafe { std::slice::from_raw_parts(at, count) }
    }

    #[inline]
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

/// Asks for huge pages under a mapping. Without them everything works, with more misses of the translation
/// buffer.
fn want_huge_pages(base: NonNull<u8>, mapped: usize) {
    // SAFETY: a mapping of this module; a hint only.
    if unsafe { libc::madvise(base.as_ptr().cast(), mapped, libc::MADV_HUGEPAGE) } != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!(bytes = mapped, %error, "the kernel gives no huge pages");
    }
}

/// One mapping, readable and writable.
fn map(bytes: usize, flags: libc::c_int, file: Option<(BorrowedFd<'_>, u64)>) -> io::Result<NonNull<u8>> {
    let (fd, offset) = file.map_or((-1, 0), |(fd, offset)| (fd.as_raw_fd(), offset));
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    // SAFETY: a fresh mapping at an address of the kernel's choice; no existing memory is touched.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(base.cast()).expect("mmap never returns null on success"))
}

fn file_offset(at: u64, done: usize) -> io::Result<libc::off_t> {
    let at = at.checked_add(done as u64).ok_or(io::ErrorKind::InvalidInput)?;
    libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Number of bytes that one call moved; 0 if a signal interrupted it.
fn progress(result: isize, at_zero: io::ErrorKind) -> io::Result<usize> {
    match usize::try_from(result) {
        Ok(0) => Err(at_zero.into()),
        Ok(moved) => Ok(moved),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

impl Drop for HostRegion {
    fn drop(&mut self) {
        // SAFETY: the mapping made at creation, unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests;
