// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system area of a file as a [`Store`].

use super::DataFile;
use super::header::SYSTEM_AT;
use crate::power::{Power, Step};
use crate::store::{Started, Store, SyncTicket, check_range, power_is_gone, torn_prefix};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::Poll;

/// The system area of a [`DataFile`]. A killed process loses no write, synced or not. A sync covers the whole
/// file, records included.
#[derive(Debug)]
pub struct FileStore {
    file: Arc<DataFile>,
    power: Arc<Power>,
}

impl FileStore {
    /// The system area of `file`.
    pub fn new(file: Arc<DataFile>, power: Arc<Power>) -> Self {
        Self { file, power }
    }
}

impl Store for FileStore {
    fn len(&self) -> u64 {
        self.file.system_bytes()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        check_range(at, out.len(), self.len())?;
        self.file.writer().drain();
        self.file.file().read_exact_at(out, SYSTEM_AT + at)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        check_range(at, data.len(), self.len())?;
        // Queued writes are older.
        self.file.writer().drain();
        match self.power.step() {
            Step::Whole => self.file.file().write_all_at(data, SYSTEM_AT + at),
            Step::Torn(seed) => {
                self.file
                    .file()
                    .write_all_at(&data[..torn_prefix(data.len(), seed).min(data.len())], SYSTEM_AT + at)?;
                Err(power_is_gone())
            }
            Step::Off => Err(power_is_gone()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.power.step() {
            Step::Whole => self.file.sync(),
            Step::Torn(_) | Step::Off => Err(power_is_gone()),
        }
    }

    fn barrier(&self) -> io::Result<bool> {
        if !self.file.has_unsynced() {
            return Ok(false);
        }
        self.sync().map(|()| true)
    }

    fn start_write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        check_range(at, data.len(), self.len())?;
        match self.power.step() {
            Step::Whole => self.file.writer().write(SYSTEM_AT + at, data),
            Step::Torn(seed) => {
                self.file.writer().write(SYSTEM_AT + at, &data[..torn_prefix(data.len(), seed)])?;
                Err(power_is_gone())
            }
            Step::Off => Err(power_is_gone()),
        }
    }

    fn start_sync(&self) -> io::Result<Started> {
        match self.power.step() {
            Step::Whole => self.file.writer().sync(),
            Step::Torn(_) | Step::Off => Err(power_is_gone()),
        }
    }

    fn start_barrier(&self) -> io::Result<Started> {
        if self.file.has_unsynced() { self.start_sync() } else { Ok(Started::NotNeeded) }
    }

    fn poll_sync(&self, ticket: SyncTicket) -> Poll<io::Result<()>> {
        self.file.writer().poll(ticket)
    }

    fn wait_sync(&self, ticket: SyncTicket) -> io::Result<()> {
        self.file.writer().wait(ticket)
    }

    fn lost_writes(&self) -> u64 {
        self.file.writer().losses()
    }

    fn queued_bytes(&self) -> u64 {
        self.file.writer().queued_bytes()
    }
}
