// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Restores a layer after a shutdown or a power failure (protocol rule 11).
//!
//! ```text
//!   checkpoint --> map words, superblocks, stamp histories
//!   journal    --> every change since, in order
//!   dump       --> the journal's tail, and the pages that were in the buffer: written anew, made durable
//!   then the dump is invalidated, and only then is anything new written
//! ```
//! Until the dump is invalidated, a power cut leaves everything as it was. Replaying the journal, the
//! dump's tail and the dump's pages in this order gives the same content, however far an earlier attempt
//! came.

use crate::announce::state::CommitState;
use crate::checkpoints::state::Checkpoints;
use crate::collect::state::Collector;
use crate::config::geometry_for;
use crate::config::{FtlConfig, OpenError, sizes};
use crate::edits::Edits;
use crate::erase::state::Erasures;
use crate::flushing::Flushing;
use crate::layer::{Apart, Ftl, Inner};
use crate::parts::{Parts, Progress};
use crate::power::arm;
use crate::rebuild::rebuild;
use crate::replay::{Found, from_journal};
use crate::reserve::reserved_superblocks;
use crate::stamps::Stamps;
use crate::stream::Writing;
use crate::written::Written;
use gnstor_durable::{DumpPage, DumpState, Durable, Journal, MetadataStore, Seq, Sizes};
use gnstor_flash::{Flash, FlashConfig, KeptOwner, LeftBehind, MediaConfig};
use gnstor_map::Map;
use gnstor_model::Timing;
use gnstor_proto::slba::Vid;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What an SSD's state was restored from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Empty: just formatted.
    Fresh,
    /// After a shutdown: nothing was in the buffer.
    Clean,
    /// After a power failure with its dump whole: every acknowledged write is there.
    Dump,
    /// After a power failure without a whole dump: only flushed writes are there (the reason).
    NoDump(String),
    /// From the out-of-band records, because journal or checkpoint could not be read (the reason).
    Rebuilt(String),
}

/// Findings of a restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Boot {
    /// What the SSD's state was restored from.
    pub origin: Origin,
    /// Blocks mapped.
    pub mapped: u64,
    /// Transactions replayed from journal and dump.
    pub replayed: u64,
    /// The last transaction that was restored.
    pub last: Seq,
    /// Buffered pages written anew from the dump.
    pub rewritten: u64,
    /// Bytes read from the system area, and out-of-band bytes of a rebuild: the modelled time follows from
    /// them.
    pub bytes_read: u64,
}

impl Boot {
    /// Acknowledged writes may be missing: the SSD must be filled by its peers before it serves.
    pub fn is_lossy(&self) -> bool {
        matches!(self.origin, Origin::NoDump(_) | Origin::Rebuilt(_))
    }
}

/// A layer that serves, with its permission metadata store.
#[derive(Debug)]
pub struct OpenedFtl {
    /// The layer.
    pub ftl: Ftl,
    /// Permission entries, tombstones, term and fleet map.
    pub metadata: MetadataStore,
    /// The findings of a restore.
    pub boot: Boot,
}

impl Ftl {
    /// An empty layer; the old content of media and store is given up.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn format(config: &FtlConfig) -> Result<OpenedFtl, OpenError> {
        let flash = open_flash(config)?;
        Self::format_on(flash, config)
    }

    /// As [`Self::format`], on existing flash, which must be erased.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn format_on(flash: Arc<Flash>, config: &FtlConfig) -> Result<OpenedFtl, OpenError> {
        let parts = parts(flash, config)?;
        let sizes = sizes_of(config, &parts)?;
        let opened = Durable::format(Arc::clone(&config.store), sizes, config.seed)?;
        parts.flash.factory_bad().into_iter().for_each(|block| parts.flash.mark_bad(block));
        let found = Found::empty(&parts.flash);
        let journal = opened.durable.fresh_journal()?;
        let ftl = assemble(config, parts, opened.durable, journal, found);
        ftl.checkpoint_now(&mut ftl.lock())?;
        ftl.durable.invalidate_dump()?;
        let enough = ftl.logical_pages
            + u64::from(crate::reserve::LEAST) * u64::from(ftl.flash.geometry().superblock_pages());
        let good = ftl.lock().space.good_pages();
        if good + u64::from(ftl.flash.geometry().superblock_pages()) < enough {
            return Err(OpenError::Capacity(format!(
                "{good} good pages are too few for {} logical ones: too many factory bad blocks for the \
                 over-provisioning",
                ftl.logical_pages
            )));
        }
        ftl.keep_tail();
        arm(&ftl.flash, ftl.durable.kept_owner());
        let boot =
            Boot { origin: Origin::Fresh, mapped: 0, replayed: 0, last: 0, rewritten: 0, bytes_read: 0 };
        Ok(OpenedFtl { ftl, metadata: opened.metadata, boot })
    }

    /// Restores a layer from media and store. `is_live` returns whether a rebuild may bring back a volume in
    /// a generation; it gets the metadata store.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        config: &FtlConfig,
        is_live: impl Fn(&MetadataStore, Vid, u32) -> bool + Sync,
        progress: Progress<'_>,
    ) -> Result<OpenedFtl, OpenError> {
        let flash = open_flash(config)?;
        Self::open_on(flash, config, is_live, progress)
    }

    /// As [`Self::open`], on flash that is there: RAM that outlived its power cut.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_on(
        flash: Arc<Flash>,
        config: &FtlConfig,
        is_live: impl Fn(&MetadataStore, Vid, u32) -> bool + Sync,
        progress: Progress<'_>,
    ) -> Result<OpenedFtl, OpenError> {
        let mut parts = parts(flash, config)?;
        let sizes = sizes_of(config, &parts)?;
        let opened = Durable::open(Arc::clone(&config.store), sizes)?;
        let (durable, metadata) = (opened.durable, opened.metadata);
        let clean = opened.state == gnstor_durable::State::Clean;
        let before = look_before(&parts.flash, &durable, metadata.contents().filling, clean);
        let mut bytes_read = parts.map.words() * 8;
        let (found, mut journal, origin) = match from_journal(&mut parts, &durable, &before.dump, progress) {
            Ok((found, journal)) => {
                bytes_read += found.records * RECORD_BYTES;
                (found, journal, before.origin())
            }
            Err(reason) => {
                tracing::warn!("{reason}; the map is rebuilt from the out-of-band records");
                bytes_read = parts.flash.geometry().pages() * 64;
                let live = |vid, generation| is_live(&metadata, vid, generation);
                let found = from_records(&mut parts, &metadata, &live, progress)?;
                (found, durable.fresh_journal()?, Origin::Rebuilt(reason))
            }
        };
        let rebuilt = matches!(origin, Origin::Rebuilt(_));
        let mut replayed = found.replayed;
        if let (false, DumpState::Intact(dump)) = (rebuilt, &before.dump) {
            replayed += dump.last().saturating_sub(journal.last());
            journal.adopt(dump)?;
        }
        let last = journal.last();
        let ftl = assemble(config, parts, durable, journal, found);
        ftl.tidy();
        let mut rewritten = 0;
        if let (false, DumpState::Intact(dump)) = (rebuilt, &before.dump) {
            rewritten = ftl.rewrite(dump)?;
        }
        if rebuilt {
            ftl.checkpoint_now(&mut ftl.lock())?;
        }
        ftl.durable.invalidate_dump()?;
        ftl.durable.mark_running()?;
        ftl.keep_tail();
        if !before.is_whole() || rebuilt {
            let owner = ftl.durable.kept_owner();
            arm(&ftl.flash, KeptOwner { lossy: true, filling: metadata.contents().filling, ..owner });
        }
        let boot = Boot { origin, mapped: ftl.mapped(), replayed, last, rewritten, bytes_read };
        Ok(OpenedFtl { ftl, metadata, boot })
    }
}

/// The state in which the previous process left the SSD.
struct Before {
    /// Whether the SSD was shut down in order.
    clean: bool,
    /// The SSD's dump, or a dump made of the memory that a killed process left.
    dump: DumpState,
    /// The process was killed before it could store that writes were lost.
    was_lossy: bool,
}

impl Before {
    /// Whether all acknowledged writes of the previous process can be restored.
    fn is_whole(&self) -> bool {
        self.clean || matches!(self.dump, DumpState::Intact(_))
    }

    /// The origin of an SSD that is restored from its journal.
    fn origin(&self) -> Origin {
        match &self.dump {
            _ if self.was_lossy => {
                Origin::NoDump("writes were lost before, and a kill came before that was noted".into())
            }
            _ if self.clean => Origin::Clean,
            DumpState::Intact(_) => Origin::Dump,
            DumpState::Torn { reason } => Origin::NoDump(format!("the dump is torn: {reason}")),
            DumpState::Missing => Origin::NoDump("there is no dump".into()),
        }
    }
}

/// Reads the dump, or makes one of the memory that a killed process left. If nothing is lost so far, it arms
/// the memory for a further kill. `filling` is the metadata store's.
fn look_before(flash: &Flash, durable: &Durable, filling: Option<u64>, clean: bool) -> Before {
    let mut dump = durable.read_dump();
    let owner = KeptOwner { filling, ..durable.kept_owner() };
    let left = flash.left_behind().filter(|left| left.owner.is_of(&owner) && !clean);
    if let (Some(left), false) = (&left, matches!(dump, DumpState::Intact(_))) {
        match dump_left_behind(flash, durable, left) {
            Ok(()) => dump = durable.read_dump(),
            Err(error) => tracing::error!("memory of a killed process cannot be used: {error}"),
        }
    }
    let was_lossy = left.is_some_and(|left| left.owner.lossy && left.owner.filling == owner.filling);
    let before = Before { clean, dump, was_lossy };
    if before.is_whole() {
        // From here on a kill loses nothing, because there is nothing new yet.
        let (boot, dump) = (owner.boot + 1, owner.dump + 1);
        arm(flash, KeptOwner { boot, dump, lossy: was_lossy, ..owner });
    }
    before
}

/// Rebuilds the map from the out-of-band records.
fn from_records(
    parts: &mut Parts,
    metadata: &MetadataStore,
    live: &(impl Fn(Vid, u32) -> bool + Sync),
    progress: Progress<'_>,
) -> Result<Found, OpenError> {
    if let Some(kept) = parts.flash.kept() {
        kept.disarm();
    }
    let mut found = rebuild(&parts.flash, &mut parts.writer, live, progress).map_err(OpenError::Damaged)?;
    let mean = metadata.contents().smart_counters.mean_erases_milli / 1000;
    found.space.assume_erases(u32::try_from(mean).unwrap_or(u32::MAX));
    tracing::warn!("the erase counts of single superblocks are lost: each counts as the mean of all, {mean}");
    Ok(found)
}

/// Makes a dump of what a killed process left in memory.
fn dump_left_behind(flash: &Flash, durable: &Durable, left: &LeftBehind) -> Result<(), OpenError> {
    let Some((reached, tail)) = left.tail() else {
        return Err(OpenError::Damaged("the journal's tail contradicts itself".into()));
    };
    let pages: Vec<_> = flash
        .left_pages(left)
        .into_iter()
        .map(|(page, oob, frame)| {
            let mut data = Box::new([0; gnstor_flash::PAGE_BYTES as usize]);
            left.read_frame(frame, &mut data);
            (page, oob, data)
        })
        .collect();
    let pages = pages.iter().map(|(page, oob, data)| DumpPage { page: *page, oob: *oob, data: Some(data) });
    let bytes = durable.dump_left_behind(reached, &tail, pages)?;
    tracing::info!(bytes, "the process before was killed; what it had acknowledged was still in memory");
    Ok(())
}

/// Bytes of a record of the journal, near enough for a modelled time.
const RECORD_BYTES: u64 = 18;

fn sizes_of(config: &FtlConfig, parts: &Parts) -> Result<Sizes, OpenError> {
    let (geometry, words) = (parts.flash.geometry(), parts.map.words());
    sizes(geometry, config.preset.buffer_pages, config.logical_pages, words, config.dump_bytes)
}

fn open_flash(config: &FtlConfig) -> Result<Arc<Flash>, OpenError> {
    let geometry = geometry_for(&config.preset, config.logical_pages)?;
    Ok(Arc::new(Flash::new(FlashConfig {
        geometry,
        spare_frames: config.spare_frames,
        media: config.media.clone(),
        faults: Arc::clone(&config.faults),
        power: Arc::clone(&config.power),
    })?))
}

fn parts(flash: Arc<Flash>, config: &FtlConfig) -> Result<Parts, OpenError> {
    let (map, writer) = Map::new(config.logical_pages, flash.geometry().pages(), config.seed)?;
    Ok(Parts { flash, map, writer, logical_pages: config.logical_pages })
}

fn assemble(config: &FtlConfig, parts: Parts, durable: Durable, journal: Journal, found: Found) -> Ftl {
    let geometry = parts.flash.geometry().clone();
    let timing = (!config.preset.is_null()).then(|| {
        let mut timing = Timing::new(&config.preset, &geometry);
        (0..geometry.dies()).for_each(|die| timing.set_slow(die, config.faults.slow_factor(die)));
        Apart(Mutex::new(timing))
    });
    let inner = Inner {
        edits: Edits::new(parts.writer),
        space: found.space,
        streams: [Writing::default(), Writing::default()],
        stamps: Stamps::new(found.histories),
        written: Written::since(journal.last()),
        journal,
        flushing: Flushing::default(),
        checkpoints: Checkpoints::default(),
        collector: Collector::default(),
        erasures: Erasures::default(),
        commits: CommitState::new(found.page_seq),
        stats: found.stats,
    };
    Ftl {
        flash: parts.flash,
        power: Arc::clone(&config.power),
        map: parts.map,
        journal_bytes: durable.sizes().journal_bytes,
        dump_budget: config
            .preset
            .power_protected
            .then_some(config.dump_bytes.min(durable.sizes().dump_bytes)),
        durable,
        logical_pages: parts.logical_pages,
        collection: config.collection,
        in_memory: matches!(config.media, MediaConfig::Ram { .. }),
        // Two are open.
        low: reserved_superblocks(&config.preset, &geometry, parts.logical_pages) - 2,
        timing,
        firmware_free: Apart(AtomicU64::new(0)),
        inner: Apart(Mutex::new(inner)),
    }
}
