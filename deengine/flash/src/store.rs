// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system area: a flat range of durable bytes, where journal, checkpoint, dump and metadata store live.
//!
//! ```text
//!   write  write  write  sync  write  write  (power goes)
//!   `------ durable ------'    `--- each kept, dropped or torn, from the seed ---'
//! ```
//! An engine never waits for a disk: it starts a sync and polls for its end.
//!
//! ```text
//!   start_write  start_sync -> ticket   start_write   poll_sync(ticket): Pending .. Pending  Ready(Ok)
//!   `---- durable at Ready(Ok) ----'    `--- not covered ---'
//! ```

use crate::power::{Power, Step};
use gnstor_base::region::HostRegion;
use gnstor_proto::placement::mix64;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// Number of a sync that runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SyncTicket(pub u64);

/// State of a sync that has just started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Started {
    /// Everything was durable already.
    NotNeeded,
    /// The sync has succeeded.
    Ended,
    /// [`Store::poll_sync`] tells its end.
    Running(SyncTicket),
}

/// Durable bytes.
///
/// Written bytes are readable at once. They are durable when a [`Store::sync`] that began later has returned
/// `Ok`. After a power cut before that, any part of a write may be there, in sectors of 512 bytes.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Length in bytes; it never changes.
    fn len(&self) -> u64;
    /// Whether the store has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Reads bytes; bytes that were never written are zero.
    ///
    /// # Errors
    /// `InvalidInput` for bytes outside, else the medium's error.
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()>;
    /// Writes bytes.
    ///
    /// # Errors
    /// `InvalidInput` for bytes outside; an error without power; else the medium's error.
    fn write(&self, at: u64, data: &[u8]) -> io::Result<()>;
    /// Makes all written bytes durable.
    ///
    /// # Errors
    /// An error without power; else the medium's error. After an error no write counts as durable.
    fn sync(&self) -> io::Result<()>;
    /// Makes programs and erases of the same SSD's [`crate::Flash`] durable, so that later writes may name
    /// their pages. Returns whether a sync was needed: none is if all of it is durable already.
    ///
    /// # Errors
    /// As [`Self::sync`].
    fn barrier(&self) -> io::Result<bool>;
    /// As [`Self::write`], without waiting for the medium. An error of the medium comes with the end of a
    /// sync that was started later. That may be the sync of another user of the store, so each user also
    /// compares [`Self::lost_writes`].
    ///
    /// # Errors
    /// As [`Self::write`].
    fn start_write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.write(at, data)
    }
    /// Number of times that the medium has not taken what [`Self::start_write`] took. If it is the same after
    /// the end of a sync as before the first write, none of these writes is lost.
    fn lost_writes(&self) -> u64 {
        0
    }
    /// Begins to make all written bytes durable, without waiting for the medium.
    ///
    /// # Errors
    /// As [`Self::sync`].
    fn start_sync(&self) -> io::Result<Started> {
        self.sync().map(|()| Started::Ended)
    }
    /// As [`Self::barrier`], without waiting for the medium.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    fn start_barrier(&self) -> io::Result<Started> {
        Ok(if self.barrier()? { Started::Ended } else { Started::NotNeeded })
    }
    /// Whether a sync has ended. Its end is told once.
    ///
    /// # Errors
    /// As [`Self::sync`], and the error of a write that [`Self::start_write`] took.
    fn poll_sync(&self, ticket: SyncTicket) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::Error::other(format!("{ticket:?} was never started"))))
    }
    /// Waits for the end of a sync.
    ///
    /// # Errors
    /// As [`Self::poll_sync`].
    fn wait_sync(&self, ticket: SyncTicket) -> io::Result<()> {
        loop {
            match self.poll_sync(ticket) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::yield_now(),
            }
        }
    }
    /// Bytes that [`Self::start_write`] took and the medium has not.
    fn queued_bytes(&self) -> u64 {
        0
    }
    /// The memory of the store, if it is in memory.
    fn memory(&self) -> Option<Arc<HostRegion>> {
        None
    }
}

/// Smallest piece that a power cut leaves whole.
pub const SECTOR_BYTES: usize = 512;

/// Most unsynced bytes that a [`RamStore`] keeps apart. Beyond it the oldest become durable, as in a disk's
/// cache.
const APART_BYTES: usize = 64 << 20;

pub(crate) fn power_is_gone() -> io::Error {
    io::Error::other("the SSD has no power")
}

pub(crate) fn check_range(at: u64, bytes: usize, len: u64) -> io::Result<()> {
    if at.checked_add(bytes as u64).is_none_or(|end| end > len) {
        let text = format!("bytes {at}..+{bytes} are outside of a store of {len} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

/// Number of bytes that a torn write of `bytes` leaves: whole sectors, less than all.
pub(crate) fn torn_prefix(bytes: usize, seed: u64) -> usize {
    let sectors = bytes.div_ceil(SECTOR_BYTES).max(1) as u64;
    usize::try_from(mix64(seed) % sectors).unwrap_or(0) * SECTOR_BYTES
}

/// A store in memory that loses unsynced writes at a power cut, as a disk does.
#[derive(Debug)]
pub struct RamStore {
    power: Arc<Power>,
    len: u64,
    region: Arc<HostRegion>,
    /// Number of polls until a started sync ends.
    polls: u32,
    inner: Mutex<Unsynced>,
}

/// Writes since the last sync, oldest first.
#[derive(Debug, Default)]
struct Unsynced {
    writes: VecDeque<Before>,
    bytes: usize,
    /// Number of the first write in `writes`; all before it are durable.
    durable: u64,
    syncs: Vec<Running>,
    tickets: u64,
}

/// A sync that runs.
#[derive(Debug)]
struct Running {
    ticket: SyncTicket,
    /// The sync makes writes below this number durable.
    upto: u64,
    polls: u32,
}

impl Unsynced {
    /// The oldest write is durable.
    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.writes.pop_front() else { return false };
        self.bytes -= oldest.old.len();
        self.durable += 1;
        true
    }

    fn make_durable(&mut self, upto: u64) {
        while self.durable < upto && self.forget_oldest() {}
    }

    fn next(&self) -> u64 {
        self.durable + self.writes.len() as u64
    }
}

/// Bytes before a write.
#[derive(Debug)]
struct Before {
    at: u64,
    old: Vec<u8>,
}

impl RamStore {
    /// A store of `len` zero bytes. Only written parts use memory.
    ///
    /// # Panics
    /// If the host has too little address space.
    pub fn new(len: u64, power: Arc<Power>) -> Self {
        let bytes = usize::try_from(len).expect("64-bit host");
        let region = HostRegion::alloc(bytes).expect("address space for a store");
        Self { power, len, region, polls: 0, inner: Mutex::default() }
    }

    /// As a slow disk: a sync that is started ends at the poll of this number. A blocking sync stays as it
    /// was.
    #[must_use]
    pub fn with_slow_syncs(self, polls: u32) -> Self {
        Self { polls, ..self }
    }

    /// Continues after a power cut. The seed decides whether each write since the last sync is kept, dropped
    /// or torn. If all was synced, nothing changes.
    pub fn after_power_cut(&self, seed: u64) {
        let mut inner = self.lock();
        inner.syncs.clear();
        inner.durable = inner.next();
        // Undo the newest write first. Then the store holds exactly the bytes before each older one.
        let mut redo = Vec::new();
        while let Some(Before { at, old }) = inner.writes.pop_back() {
            let mut new = vec![0; old.len()];
            self.region.read(at, &mut new);
            self.region.write(at, &old);
            redo.push((at, new));
        }
        inner.bytes = 0;
        for (number, (at, new)) in redo.into_iter().rev().enumerate() {
            let dice = mix64(seed ^ mix64(number as u64 + 1));
            match dice % 4 {
                0 => {}
                1 => self.region.write(at, &new),
                2 => self.region.write(at, &new[..torn_prefix(new.len(), dice)]),
                _ => {
                    let sectors = new.chunks(SECTOR_BYTES).enumerate();
                    for (sector, bytes) in
                        sectors.filter(|(sector, _)| mix64(dice ^ *sector as u64).is_multiple_of(2))
                    {
                        self.region.write(at + (sector * SECTOR_BYTES) as u64, bytes);
                    }
                }
            }
        }
    }

    fn put(&self, inner: &mut Unsynced, at: u64, data: &[u8]) {
        let mut old = vec![0; data.len()];
        self.region.read(at, &mut old);
        self.region.write(at, data);
        inner.bytes += old.len();
        inner.writes.push_back(Before { at, old });
        while inner.bytes > APART_BYTES && inner.forget_oldest() {}
    }

    fn lock(&self) -> MutexGuard<'_, Unsynced> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for RamStore {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        check_range(at, out.len(), self.len)?;
        self.region.read(at, out);
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        check_range(at, data.len(), self.len)?;
        let mut inner = self.lock();
        match self.power.step() {
            Step::Whole => self.put(&mut inner, at, data),
            Step::Torn(seed) => {
                self.put(&mut inner, at, &data[..torn_prefix(data.len(), seed)]);
                return Err(power_is_gone());
            }
            Step::Off => return Err(power_is_gone()),
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.lock();
        match self.power.step() {
            Step::Whole => {
                let all = inner.next();
                inner.make_durable(all);
                Ok(())
            }
            Step::Torn(_) | Step::Off => Err(power_is_gone()),
        }
    }

    fn start_sync(&self) -> io::Result<Started> {
        if self.polls == 0 {
            return self.sync().map(|()| Started::Ended);
        }
        if self.power.is_cut() {
            return Err(power_is_gone());
        }
        let mut inner = self.lock();
        inner.tickets += 1;
        let ticket = SyncTicket(inner.tickets);
        let running = Running { ticket, upto: inner.next(), polls: self.polls };
        inner.syncs.push(running);
        Ok(Started::Running(ticket))
    }

    fn poll_sync(&self, ticket: SyncTicket) -> Poll<io::Result<()>> {
        let mut inner = self.lock();
        let Some(at) = inner.syncs.iter().position(|sync| sync.ticket == ticket) else {
            return Poll::Ready(Err(power_is_gone()));
        };
        inner.syncs[at].polls -= 1;
        if inner.syncs[at].polls > 0 && !self.power.is_cut() {
            return Poll::Pending;
        }
        let Running { upto, .. } = inner.syncs.swap_remove(at);
        Poll::Ready(match self.power.step() {
            Step::Whole => {
                inner.make_durable(upto);
                Ok(())
            }
            Step::Torn(_) | Step::Off => Err(power_is_gone()),
        })
    }

    /// Flash in memory is durable as soon as it is programmed.
    fn barrier(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn memory(&self) -> Option<Arc<HostRegion>> {
        Some(Arc::clone(&self.region))
    }
}
