// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk whose every barrier takes long: half a second, or `GNSTOR_SYNC_MS`. The tests of the SSD and of its
//! translation layer include this file by its path.
#![expect(clippy::disallowed_methods, reason = "a disk is slow in real time")]

use gnstor_flash::{FileStore, Started, Store, SyncTicket};
use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Time of a barrier.
pub(crate) fn barrier_time() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    *TIME.get_or_init(|| {
        let told = std::env::var("GNSTOR_SYNC_MS").ok();
        Duration::from_millis(told.map_or(500, |ms| ms.parse().expect("GNSTOR_SYNC_MS is a number")))
    })
}

/// A call that takes longer has waited, for a disk or because the machine is busy.
pub(crate) fn still_after() -> Duration {
    (barrier_time() / 2).min(Duration::from_millis(250))
}

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
            self.due.lock().unwrap().insert(ticket, Instant::now() + barrier_time());
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
        std::thread::sleep(barrier_time());
        self.inner.sync()
    }

    fn barrier(&self) -> io::Result<bool> {
        let took = self.inner.barrier()?;
        std::thread::sleep(barrier_time() * u32::from(took));
        Ok(took)
    }

    fn start_write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.inner.start_write(at, data)
    }

    fn lost_writes(&self) -> u64 {
        self.inner.lost_writes()
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
