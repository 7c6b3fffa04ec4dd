// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The only module that hands memory to `io_uring`.
//!
//! The kernel reads and writes frames while Rust runs, which [`HostRegion`] allows. Its memory stays in place
//! until the completion: the ring holds the region and the file, and waits in drop.
#![expect(unsafe_code, reason = "the kernel is given addresses of frames")]

use crate::PAGE_BYTES;
use crate::file::DataFile;
use gnstor_base::region::HostRegion;
use io_uring::{IoUring, opcode, squeue, types};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// As the kernel's `iovec`, without the pointer type that may not leave its thread.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Piece {
    address: usize,
    bytes: usize,
}

const _: () = assert!(size_of::<Piece>() == size_of::<libc::iovec>());
const _: () = assert!(align_of::<Piece>() == align_of::<libc::iovec>());

/// Pages of the region that go to consecutive pages of the file, or come from there.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    pub(crate) is_write: bool,
    /// Offset of the first page in the file.
    pub(crate) at: u64,
    /// Offset of each page in the region.
    pub(crate) pages: &'a [u64],
    /// An earlier try did not end well. A worker of the kernel begins this one.
    pub(crate) is_again: bool,
}

/// A ring over one file and one region.
pub(crate) struct Uring {
    ring: IoUring,
    /// Memory that each slot passes to the kernel.
    pieces: Vec<Vec<Piece>>,
    in_flight: usize,
    /// Workers of the kernel begin all requests, since submitting them might wait for the medium.
    how: squeue::Flags,
    file: Arc<DataFile>,
    region: Arc<HostRegion>,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

impl Uring {
    pub(crate) fn new(file: Arc<DataFile>, region: Arc<HostRegion>, slots: usize) -> io::Result<Self> {
        let mut ring = IoUring::new(u32::try_from(slots).map_err(io::Error::other)?)?;
        // Where only making a ring is permitted, the first job would wait for ever.
        // SAFETY: it does nothing and refers to no memory.
        let pushed = unsafe { ring.submission().push(&opcode::Nop::new().build()) };
        pushed.map_err(io::Error::other)?;
        while let Err(error) = ring.submit_and_wait(1) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        ring.completion().next().ok_or_else(|| io::Error::other("io_uring completes nothing"))?;
        let waits = crate::sys::waits_at_submit(file.data())?;
        let how = if waits { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        Ok(Self { ring, pieces: vec![Vec::new(); slots], in_flight: 0, how, file, region })
    }

    /// Moves pages between the region and the file. The slot must not be in flight.
    pub(crate) fn submit(&mut self, slot: usize, transfer: &Transfer<'_>) {
        let &Transfer { is_write, at, pages, is_again } = transfer;
        let pieces = &mut self.pieces[slot];
        pieces.clear();
        for &page in pages {
            let inside = self.region.slice(page, PAGE_BYTES);
            let address = usize::try_from(self.region.address() + inside.offset).expect("64-bit host");
            pieces.push(Piece { address, bytes: PAGE_BYTES as usize });
        }
        let fd = types::Fd(self.file.data().as_raw_fd());
        let (first, count) =
            (pieces.as_ptr().cast::<libc::iovec>(), u32::try_from(pieces.len()).expect("a unit's pages"));
        let entry = if is_write {
            opcode::Writev::new(fd, first, count).offset(at).build()
        } else {
            opcode::Readv::new(fd, first, count).offset(at).build()
        };
        let how = if is_again { squeue::Flags::ASYNC } else { self.how };
        let entry = entry.user_data(slot as u64).flags(how);
        // SAFETY: `slice` checked that the pages are inside of the region. The region and `pieces[slot]` stay
        // in place until the completion (`in_flight`, and the wait in drop). The file is open as long as
        // `self.file`.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // The ring has as many entries as there are slots, and the kernel takes all of them at each submit.
        pushed.expect("an entry for each slot");
        self.in_flight += 1;
        self.enter(0);
    }

    /// A completion: slot and result (bytes, or an error below zero).
    pub(crate) fn next(&mut self) -> Option<(usize, i32)> {
        if self.in_flight == 0 {
            return None;
        }
        if !self.ring.submission().is_empty() {
            self.enter(0);
        }
        let entry = self.ring.completion().next()?;
        self.in_flight -= 1;
        Some((usize::try_from(entry.user_data()).expect("64-bit host"), entry.result()))
    }

    /// Waits for a completion, where one is to come.
    pub(crate) fn wait(&mut self) {
        if self.in_flight > 0 {
            self.enter(1);
        }
    }

    fn enter(&mut self, wait_for: usize) {
        if let Err(error) = self.ring.submit_and_wait(wait_for) {
            // Interrupted or busy: entries stay in the ring and go with the next call.
            tracing::debug!(%error, "io_uring took no entry now");
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            self.wait();
            while self.next().is_some() {}
        }
    }
}
