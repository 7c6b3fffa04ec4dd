// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layer itself: what readers share without a lock, and the lock that guards everything else.
//!
//! ```text
//!   readers (any core)  map --probe--> page --pin, look up again--> frame     no lock
//!   writers             Inner: streams, space, journal, histories, collection one lock
//!   both                Timing, unless the preset takes no time               one lock, never held with data
//! ```
//! Collection never erases a page that a reader has pinned and that the map names *after* the pin. Collection
//! unmaps first and checks the pins afterwards, so one of the two sees the other.

use crate::announce::state::CommitState;
use crate::checkpoints::state::Checkpoints;
use crate::collect::state::Collector;
use crate::edits::Edits;
use crate::erase::state::Erasures;
use crate::flushing::Flushing;
use crate::space::Space;
use crate::stamp_history::StampHistory;
use crate::stamps::Stamps;
use crate::stats::{Health, LayerStats};
use crate::stream::Writing;
use crate::written::Written;
use gnstor_base::lock::spin_then_sleep;
use gnstor_base::region::HostRegion;
use gnstor_durable::{Durable, Journal, Seq};
use gnstor_flash::{Flash, Power};
use gnstor_map::Map;
use gnstor_model::{Collection, Timing};
use gnstor_proto::slba::{Stamp, Vid};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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
    /// Writes pay for collection while free and emptied superblocks are not more than this.
    pub(crate) low: u32,
    /// `None` if the preset takes no time.
    pub(crate) timing: Option<Apart<Mutex<Timing>>>,
    /// Time at which the modelled firmware is free, in ps.
    pub(crate) firmware_free: Apart<AtomicU64>,
    pub(crate) inner: Apart<Mutex<Inner>>,
}

/// A value on cache lines of its own: it is written often, and its neighbours are read by every core.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// State that only the holder of the layer's lock touches.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) edits: Edits,
    pub(crate) space: Space,
    pub(crate) streams: [Writing; 2],
    pub(crate) stamps: Stamps,
    pub(crate) journal: Journal,
    pub(crate) flushing: Flushing,
    pub(crate) written: Written,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) collector: Collector,
    pub(crate) erasures: Erasures,
    pub(crate) commits: CommitState,
    pub(crate) stats: LayerStats,
}

impl Inner {
    /// Everything committed so far is to become durable.
    pub(crate) fn want_all(&mut self) {
        self.flushing.want(self.journal.last());
    }
}

/// Number of times that a thread tries one of the layer's locks before it sleeps.
const TRIES: u32 = 64;
/// Pauses between two tries.
const PAUSES: u32 = 8;

impl Ftl {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        spin_then_sleep(&self.inner.0, TRIES, PAUSES)
    }

    /// `None` if another thread has the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Inner>> {
        self.inner.0.try_lock()
    }

    pub(crate) fn timing(&self) -> Option<MutexGuard<'_, Timing>> {
        self.timing.as_ref().map(|timing| spin_then_sleep(&timing.0, TRIES, PAUSES))
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

    /// Memory that the data mover registers.
    pub fn regions(&self) -> Vec<Arc<HostRegion>> {
        self.flash.regions()
    }

    /// Memory that only the layer itself accesses.
    pub fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        let store = self.durable.store().memory();
        self.flash.own_memory().chain([Arc::clone(self.map.region())]).chain(store).collect()
    }

    /// Whether every page is in memory, so that none is ever loaded.
    #[inline]
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Whether the preset takes no time, so that callers need not ask the model.
    #[inline]
    pub fn is_timeless(&self) -> bool {
        self.timing.is_none()
    }

    /// The last transaction that survives a power cut without a dump.
    pub fn durable(&self) -> Seq {
        self.lock().journal.durable()
    }

    /// The last transaction that may have changed the volume, and the last durable one.
    pub fn last_change(&self, vid: Vid) -> (Seq, Seq) {
        let inner = self.lock();
        (inner.written.of(vid), inner.journal.durable())
    }

    /// The stamp history of a volume, oldest first.
    pub fn stamp_history(&self, vid: Vid) -> Vec<(u32, Stamp)> {
        self.lock()
            .stamps
            .histories
            .get(vid)
            .map(|history| StampHistory::iter(history).collect())
            .unwrap_or_default()
    }

    /// Counters since the start.
    pub fn stats(&self) -> LayerStats {
        let inner = self.lock();
        LayerStats { syncs: inner.journal.syncs(), ..inner.stats }
    }

    /// State of the flash.
    pub fn health(&self) -> Health {
        let inner = self.lock();
        let geometry = self.flash.geometry();
        let spare = geometry.pages() - self.logical_pages;
        let left = inner.space.good_pages().saturating_sub(self.logical_pages);
        Health {
            wear: inner.space.wear(),
            spare_percent: u8::try_from((left * 100).checked_div(spare).unwrap_or(0).min(100))
                .expect("at most 100"),
            worn_out: inner.collector.is_worn_out(),
            free_superblocks: inner.space.free(),
            bad_blocks: inner.stats.bad_blocks,
        }
    }
}
