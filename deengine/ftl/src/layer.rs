// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The translation layer in one hand: what readers may do without a lock, and the lock under which everything else
//! happens.
//!
//! ```text
//!   readers (any core)     map --probe--> page --pin, look again--> frame            no lock
//!   writers                Inner: streams, space, journal, windows, collection       one lock
//!   both                   Timing, unless the preset takes no time                   one lock, never held with data
//! ```
//! A page that a reader has pinned and that the map still names *after* the pin is not erased before the reader lets go:
//! the collection unmaps first and looks at the pins afterwards, so one of the two sees the other.

use crate::collect::{Erasing, Victim};
use crate::config::{FtlConfig, OpenError};
use crate::reserve::reserved_superblocks;
use crate::settle::Running;
use crate::space::Space;
use crate::stats::{Health, LayerStats};
use crate::stream::Writing;
use crate::sweep::Sweep;
use crate::windows::{Window, Windows};
use crate::write::Ahead;
use gnstor_base::region::HostRegion;
use gnstor_base::time::Time;
use gnstor_durable::{Durable, Journal, Seq, Sizes};
use gnstor_flash::{Flash, Frame, Power, Ppa};
use gnstor_map::{Map, MapWriter, Probe};
use gnstor_model::{Collection, Preset, Timing};
use gnstor_proto::slba::{Stamp, Vid};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Where a block is. A [`Extent::Page`] is pinned: it goes back with [`Ftl::unpin`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// On this page; the data has this block sum.
    Page(Ppa, u32),
    /// Nowhere: never written, or forgotten. It reads as zeros.
    Unmapped,
    /// On a page of another life of the volume id: it reads as zeros (protocol rule 10).
    StaleGeneration,
    /// On a page whose record names another block, or none: an internal error.
    WrongKey,
}

/// Which blocks a write is for. Block `i` of the write is `vba + i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The volume.
    pub vid: Vid,
    /// Its life.
    pub generation: u32,
    /// First block.
    pub vba: u32,
    /// Stamp of the write.
    pub stamp: Stamp,
}

/// A block whose data is there and which is not mapped yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewBlock {
    /// The frame with the data; the layer owns it once the write is committed.
    pub frame: Frame,
    /// Block sum of the data.
    pub sum: u32,
}

/// A write that readers see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// When the model has the data in the write buffer.
    pub done: Time,
    /// Its last transaction: durable once [`Ftl::durable`] has come to it.
    pub seq: Seq,
    /// Blocks applied.
    pub applied: u32,
    /// Blocks left alone because a newer or the same stamp was there (protocol rule 6).
    pub overtaken: u32,
}

/// Why a write cannot be committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing has been done; the same call is to be made again after [`Ftl::settle`] has run.
    #[error("collection has to finish first")]
    Stalled,
    /// Too many blocks have gone bad.
    #[error("the flash is worn out: no space is left beyond what is written")]
    WornOut,
    /// More blocks would be mapped than there are logical pages (protocol rule 5).
    #[error("the SSD is full")]
    Full,
}

/// The translation layer of one SSD.
#[derive(Debug)]
pub struct Ftl {
    pub(crate) flash: Arc<Flash>,
    pub(crate) power: Arc<Power>,
    pub(crate) map: Arc<Map>,
    pub(crate) durable: Durable,
    pub(crate) journal_bytes: u64,
    pub(crate) logical_pages: u64,
    pub(crate) in_memory: bool,
    /// Most bytes of a dump; `None` where a power failure leaves time for none.
    pub(crate) dump_budget: Option<u64>,
    pub(crate) collection: Collection,
    /// Superblocks free or about to be, at and below which writes pay for collection.
    pub(crate) low: u32,
    /// `None` where nothing takes time.
    pub(crate) timing: Option<Apart<Mutex<Timing>>>,
    /// As the model last said, ps.
    pub(crate) firmware_free: Apart<AtomicU64>,
    pub(crate) inner: Apart<Mutex<Inner>>,
}

/// On cache lines of its own: it is written all the time, and what is beside it is read by everybody.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// What only one at a time may touch.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) writer: MapWriter,
    pub(crate) space: Space,
    pub(crate) streams: [Writing; 2],
    pub(crate) windows: Windows,
    pub(crate) journal: Journal,
    pub(crate) checkpoint: Option<Running>,
    pub(crate) victim: Option<Victim>,
    /// Superblocks without a valid page, to be erased when that is safe.
    pub(crate) emptied: Vec<gnstor_flash::Superblock>,
    /// The one of them that is being erased; and whether nothing but time is in the way of erasing on.
    pub(crate) erasing: Option<Erasing>,
    pub(crate) more_to_erase: bool,
    pub(crate) sweeps: Vec<Sweep>,
    /// Words written behind the front of a sweep.
    pub(crate) behind: Vec<(u64, u64)>,
    pub(crate) page_seq: u64,
    /// Somebody waits for this transaction to be durable.
    pub(crate) wanted: Seq,
    /// When the host last wrote, for background collection.
    pub(crate) last_write: Time,
    /// Background collection has looked and found nothing worth it; until something changes.
    pub(crate) nothing_to_collect: bool,
    pub(crate) worn_out: bool,
    /// A dump is being written to new places.
    pub(crate) restoring: bool,
    pub(crate) stats: LayerStats,
    /// Which blocks of the write in hand are to be applied, and where the map has them.
    pub(crate) fresh: Vec<Option<Probe>>,
    pub(crate) words: Vec<u64>,
    /// Memory of a checkpoint's meta, used again: fresh pages would be cleared while commits wait.
    pub(crate) meta_buffer: Vec<u8>,
    pub(crate) ahead: Ahead,
    /// Transactions of the blocks that hosts wrote, for tests that look at each.
    #[cfg(test)]
    pub(crate) applied_at: Vec<Seq>,
}

/// Looks at a lock before a thread sleeps for it, and pauses between two of them: locks are held for microseconds, and being woken takes tens of
/// them. Each look takes the lock's cache line from whoever has it.
const LOOKS: u32 = 64;
const PAUSES: u32 = 8;

/// `None` where somebody has the lock. A panic under it is a broken invariant; whoever still runs sees the state it left.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for _ in 0..LOOKS {
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ftl {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner.0)
    }

    /// `None` where somebody has the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Inner>> {
        try_lock(&self.inner.0)
    }

    pub(crate) fn timing(&self) -> Option<MutexGuard<'_, Timing>> {
        self.timing.as_ref().map(|timing| lock(&timing.0))
    }

    /// Blocks that can be mapped.
    pub fn logical_pages(&self) -> u64 {
        self.logical_pages
    }

    /// Blocks that are mapped.
    pub fn mapped(&self) -> u64 {
        self.map.len()
    }

    /// The merged map.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// The flash below.
    pub fn flash(&self) -> &Arc<Flash> {
        &self.flash
    }

    /// Memory to be registered with whoever moves data.
    pub fn regions(&self) -> Vec<Arc<HostRegion>> {
        self.flash.regions()
    }

    /// The memory that only the layer itself touches.
    pub fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        let store = self.durable.store().memory();
        self.flash.own_memory().chain([Arc::clone(self.map.region())]).chain(store).collect()
    }

    /// Whether every page is in memory, so that none is ever loaded.
    #[inline]
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Whether the preset takes no time, so that nobody need ask the model.
    #[inline]
    pub fn is_timeless(&self) -> bool {
        self.timing.is_none()
    }

    /// The last transaction that survives a power cut without a dump.
    pub fn durable(&self) -> Seq {
        self.lock().journal.durable()
    }

    /// The stamp window of a volume, oldest first.
    pub fn window(&self, vid: Vid) -> Vec<(u32, Stamp)> {
        self.lock().windows.get(vid).map(|window| Window::iter(window).collect()).unwrap_or_default()
    }

    /// What has been counted since the start.
    pub fn stats(&self) -> LayerStats {
        let inner = self.lock();
        LayerStats { syncs: inner.journal.syncs(), ..inner.stats }
    }

    /// How the flash is.
    pub fn health(&self) -> Health {
        let inner = self.lock();
        let geometry = self.flash.geometry();
        let spare = geometry.pages() - self.logical_pages;
        let left = inner.space.good_pages().saturating_sub(self.logical_pages);
        Health {
            wear: inner.space.wear(),
            spare_percent: u8::try_from((left * 100).checked_div(spare).unwrap_or(0).min(100)).expect("at most 100"),
            worn_out: inner.worn_out,
            free_superblocks: inner.space.free(),
            bad_blocks: inner.stats.bad_blocks,
        }
    }
}

/// What [`Ftl::forget`] did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Forgotten {
    /// Blocks that were mapped.
    pub mapped: u32,
    /// Blocks with a newer or the same stamp.
    pub overtaken: u32,
    /// The last transaction.
    pub seq: Seq,
}

/// The geometry of an SSD of this preset that promises `logical_pages`.
///
/// # Errors
/// Where no such geometry exists.
pub fn geometry_for(preset: &Preset, logical_pages: u64) -> Result<gnstor_flash::Geometry, OpenError> {
    if logical_pages == 0 {
        return Err(OpenError::Capacity("an SSD holds at least one block of 4 KiB".into()));
    }
    let geometry = preset.geometry(logical_pages)?;
    let held = preset.physical_pages(logical_pages).div_ceil(geometry.superblock_pages().into());
    let superblocks = held + u64::from(reserved_superblocks(preset, &geometry, logical_pages));
    let superblocks =
        u32::try_from(superblocks).map_err(|_| OpenError::Capacity(format!("{logical_pages} blocks are too many")))?;
    Ok(gnstor_flash::Geometry::new(*geometry.shape(), superblocks)?)
}

impl FtlConfig {
    /// How large the store for the system area must be.
    ///
    /// # Errors
    /// As [`geometry_for`].
    pub fn store_bytes(preset: &Preset, logical_pages: u64, dump_bytes: u64) -> Result<u64, OpenError> {
        Ok(Self::sizes(preset, logical_pages, dump_bytes)?.store_bytes())
    }

    /// Bytes of disk that the data file of such an SSD takes: system area, records and data.
    ///
    /// # Errors
    /// As [`geometry_for`], or where no such file is possible.
    pub fn data_file_bytes(preset: &Preset, logical_pages: u64, dump_bytes: u64) -> Result<u64, OpenError> {
        let system_bytes = Self::store_bytes(preset, logical_pages, dump_bytes)?;
        let geometry = geometry_for(preset, logical_pages)?;
        gnstor_flash::DataFile::bytes_for(&geometry, system_bytes).map_err(OpenError::Capacity)
    }

    /// What the system area is formatted with.
    ///
    /// # Errors
    /// As [`geometry_for`].
    pub fn sizes(preset: &Preset, logical_pages: u64, dump_bytes: u64) -> Result<Sizes, OpenError> {
        let geometry = geometry_for(preset, logical_pages)?;
        let words = Map::words_for(logical_pages, geometry.pages())
            .ok_or_else(|| OpenError::Capacity(format!("a map of {logical_pages} blocks is not possible")))?;
        crate::config::sizes(&geometry, preset.buffer_pages, logical_pages, words, dump_bytes)
    }
}
