// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk whose every barrier takes half a second. The tests of the SSD and of its translation layer include
//! this file by its path.
#![expect(clippy::disallowed_methods, reason = "a disk is slow in real time")]

use gnstor_flash::{FileStore, Started, Store, SyncTicket};
use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Time of a barrier.
pub(crate) const BARRIER: Duration = Duration::from_millis(500);
/// A call that takes longer has waited, for a disk or because the machine is busy.
pub(crate) const STILL: Duration = Duration::from_millis(250);

/// The system area of a file on a slow disk.
#[derive(Debug)]
pub(crate) struct SlowStore {
    inner: FileStore,
    due: Mutex<HashMap<SyncTicket, Instant>>,
}

impl SlowStore {
    pub(crate) fn new(inner: FileStore) -> Self {
        Self { inner, due: Mutex::default() }
    }

    fn slowly(&self, started: io::Result<Started>) -> io::Result<Started> {
        let started = started?;
        if let Started::Running(ticket) = started {
            self.due.lock().unwrap().insert(ticket, Instant::now() + BARRIER);
        }
        Ok(started)
    }

    fn due(&self, ticket: SyncTicket) -> Instant {
        self.due.lock().unwrap()[&ticket]
    }
}

impl Store for SlowStore {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(at, out)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(at, data)
    }

    fn sync(&self) -> io::Result<()> {
        std::thread::sleep(BARRIER);
        self.inner.sync()
    }

    fn barrier(&self) -> io::Result<bool> {
        let took = self.inner.barrier()?;
        std::thread::sleep(BARRIER * u32::from(took));
        Ok(took)
    }

    fn start_write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.inner.start_write(at, data)
    }

    fn start_sync(&self) -> io::Result<Started> {
        self.slowly(self.inner.start_sync())
    }

    fn start_barrier(&self) -> io::Result<Started> {
        self.slowly(self.inner.start_barrier())
    }

    fn poll_sync(&self, ticket: SyncTicket) -> Poll<io::Result<()>> {
        if Instant::now() < self.due(ticket) { Poll::Pending } else { self.inner.poll_sync(ticket) }
    }

    fn wait_sync(&self, ticket: SyncTicket) -> io::Result<()> {
        std::thread::sleep(self.due(ticket).saturating_duration_since(Instant::now()));
        self.inner.wait_sync(ticket)
    }

    fn queued_bytes(&self) -> u64 {
        self.inner.queued_bytes()
    }
}
