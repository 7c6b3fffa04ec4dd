// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From what survived to a layer that serves (protocol rule 11).
//!
//! ```text
//!   checkpoint --> map words, superblocks, stamp windows
//!   journal    --> every change since, in order
//!   dump       --> the journal's tail, and the pages that were in the buffer: written anew, made durable
//!   then the dump is invalidated, and only then is anything new written
//! ```
//! Until the dump is invalidated a power cut leaves everything as it was found: replaying the journal, the dump's tail
//! and the dump's pages in this order gives the same content however far an earlier attempt came.

use crate::collect::LOW;
use crate::config::{FtlConfig, OpenError, sizes};
use crate::layer::{Ftl, Inner, geometry_for};
use crate::rebuild::rebuild;
use crate::space::{Space, State, Stream};
use crate::stats::LayerStats;
use crate::stream::Writing;
use crate::windows::Windows;
use gnstor_durable::{
    Dump, DumpPage, DumpState, DumpWriter, Durable, DurableError, End, Journal, Ledger, Meta, Record, Seq,
    SuperblockState, Unusable,
};
use gnstor_fabric::time::Time;
use gnstor_flash::{Fetch, Flash, FlashConfig, PageState, Ppa, Superblock, Unit};
use gnstor_map::{Map, MapWriter};
use gnstor_model::Timing;
use gnstor_proto::slba::Vid;
use std::sync::{Arc, Mutex};

/// How an SSD came up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Empty: just formatted.
    Fresh,
    /// After a shutdown: nothing was in the buffer.
    Clean,
    /// After a power failure with its dump whole: every acknowledged write is there.
    Dump,
    /// After a power failure without a whole dump: what was flushed is there (the reason).
    NoDump(String),
    /// From the out-of-band records, because journal or checkpoint could not be read (the reason).
    Rebuilt(String),
}

/// What a restore found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Boot {
    /// How the SSD came up.
    pub origin: Origin,
    /// Blocks mapped.
    pub mapped: u64,
    /// Transactions replayed from journal and dump.
    pub replayed: u64,
    /// The last transaction whose work is there.
    pub last: Seq,
    /// Buffered pages written anew from the dump.
    pub rewritten: u64,
    /// Bytes read from the system area, and out-of-band bytes of a rebuild: what the modelled time follows from.
    pub bytes_read: u64,
}

impl Boot {
    /// Acknowledged writes may be missing: the SSD must be filled by its peers before it serves.
    pub fn is_lossy(&self) -> bool {
        matches!(self.origin, Origin::NoDump(_) | Origin::Rebuilt(_))
    }
}

/// A layer that serves, with its permission ledger.
#[derive(Debug)]
pub struct OpenedFtl {
    /// The layer.
    pub ftl: Ftl,
    /// Permission entries, tombstones, term and fleet map.
    pub ledger: Ledger,
    /// What was found.
    pub boot: Boot,
}

/// Progress of a restore that takes long: (pages looked at, pages in all).
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

struct Parts {
    flash: Arc<Flash>,
    map: Arc<Map>,
    writer: MapWriter,
    logical_pages: u64,
}

/// State that checkpoint, journal and dump add up to.
pub(crate) struct Found {
    pub(crate) space: Space,
    pub(crate) windows: Windows,
    pub(crate) page_seq: u64,
    stats: LayerStats,
    replayed: u64,
    records: u64,
}

impl Ftl {
    /// An empty layer; whatever was on media and store is given up.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn format(config: &FtlConfig) -> Result<OpenedFtl, OpenError> {
        let flash = open_flash(config)?;
        Self::format_on(flash, config)
    }

    /// As [`Self::format`], on flash that is there and erased.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn format_on(flash: Arc<Flash>, config: &FtlConfig) -> Result<OpenedFtl, OpenError> {
        let parts = parts(flash, config)?;
        let sizes = sizes(parts.flash.geometry(), config.logical_pages, parts.map.words(), config.dump_bytes)?;
        let opened = Durable::format(Arc::clone(&config.store), sizes, config.seed)?;
        parts.flash.factory_bad().into_iter().for_each(|block| parts.flash.mark_bad(block));
        let found = Found::empty(&parts.flash);
        let journal = opened.durable.fresh_journal()?;
        let ftl = assemble(config, parts, opened.durable, journal, found, sizes.journal_bytes);
        ftl.checkpoint_now(&mut ftl.lock())?;
        ftl.durable.invalidate_dump()?;
        let enough = ftl.logical_pages + crate::layer::RESERVE * u64::from(ftl.flash.geometry().superblock_pages());
        let good = ftl.lock().space.good_pages();
        if good + u64::from(ftl.flash.geometry().superblock_pages()) < enough {
            return Err(OpenError::Capacity(format!(
                "{good} good pages are too few for {} logical ones: too many factory bad blocks for the \
                 over-provisioning",
                ftl.logical_pages
            )));
        }
        let boot = Boot { origin: Origin::Fresh, mapped: 0, replayed: 0, last: 0, rewritten: 0, bytes_read: 0 };
        Ok(OpenedFtl { ftl, ledger: opened.ledger, boot })
    }

    /// A layer from what is on media and store. `is_live` tells which volumes, in which generation, a rebuild from
    /// out-of-band records may bring back; it is given the ledger.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        config: &FtlConfig,
        is_live: impl Fn(&Ledger, Vid, u32) -> bool + Sync,
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
        is_live: impl Fn(&Ledger, Vid, u32) -> bool + Sync,
        progress: Progress<'_>,
    ) -> Result<OpenedFtl, OpenError> {
        let mut parts = parts(flash, config)?;
        let sizes = sizes(parts.flash.geometry(), config.logical_pages, parts.map.words(), config.dump_bytes)?;
        let opened = Durable::open(Arc::clone(&config.store), sizes)?;
        let (durable, ledger) = (opened.durable, opened.ledger);
        let dump = durable.read_dump();
        let clean = opened.state == gnstor_durable::State::Clean;
        let mut bytes_read = parts.map.words() * 8;
        let (found, mut journal, origin) = match from_journal(&mut parts, &durable, &dump) {
            Ok((found, journal)) => {
                let origin = match &dump {
                    _ if clean => Origin::Clean,
                    DumpState::Intact(_) => Origin::Dump,
                    DumpState::Torn { reason } => Origin::NoDump(format!("the dump is torn: {reason}")),
                    DumpState::Missing => Origin::NoDump("there is no dump".into()),
                };
                bytes_read += found.records * RECORD_BYTES;
                (found, journal, origin)
            }
            Err(reason) => {
                tracing::warn!("{reason}; the map is rebuilt from the out-of-band records");
                let live = |vid, generation| is_live(&ledger, vid, generation);
                let found = rebuild(&parts.flash, &mut parts.writer, &live, progress).map_err(OpenError::Damaged)?;
                bytes_read = parts.flash.geometry().pages() * 64;
                (found, durable.fresh_journal()?, Origin::Rebuilt(reason))
            }
        };
        let rebuilt = matches!(origin, Origin::Rebuilt(_));
        let mut replayed = found.replayed;
        if let (false, DumpState::Intact(dump)) = (rebuilt, &dump) {
            replayed += dump.last().saturating_sub(journal.last());
            journal.adopt(dump)?;
        }
        let last = journal.last();
        let ftl = assemble(config, parts, durable, journal, found, sizes.journal_bytes);
        ftl.tidy();
        let mut rewritten = 0;
        if let (false, DumpState::Intact(dump)) = (rebuilt, &dump) {
            rewritten = ftl.rewrite(dump)?;
        }
        if rebuilt {
            ftl.checkpoint_now(&mut ftl.lock())?;
        }
        ftl.durable.invalidate_dump()?;
        ftl.durable.mark_running()?;
        let boot = Boot { origin, mapped: ftl.mapped(), replayed, last, rewritten, bytes_read };
        Ok(OpenedFtl { ftl, ledger, boot })
    }

    /// Brings the superblocks into a state to go on from: what counts as free is erased, and what is open goes on after
    /// its last page.
    fn tidy(&self) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let geometry = self.flash.geometry();
        let states: Vec<(Superblock, State, u64)> =
            inner.space.iter().map(|(superblock, entry)| (superblock, entry.state, entry.order)).collect();
        for &(superblock, state, _) in &states {
            if state == State::Free && self.units_used(superblock) > 0 {
                // Opened and written after the last durable transaction, or half erased.
                inner.space.close(superblock);
                inner.emptied.push(superblock);
            }
        }
        for stream in [Stream::Host, Stream::Collect] {
            let open = states.iter().filter(|(_, state, _)| *state == State::Open(stream));
            let newest = open.clone().map(|(_, _, order)| *order).max();
            for &(superblock, _, order) in open {
                let units = self.units_used(superblock);
                if Some(order) == newest && units < geometry.superblock_units() {
                    inner.streams[stream as usize].resume(superblock, units);
                    if inner.streams[stream as usize].has_page(&self.flash) {
                        continue;
                    }
                    inner.streams[stream as usize] = Writing::default();
                }
                inner.space.close(superblock);
                self.note_emptied(inner, superblock);
            }
        }
        let closed: Vec<Superblock> =
            inner.space.iter().filter(|(_, e)| e.state == State::Closed).map(|(superblock, _)| superblock).collect();
        for superblock in closed {
            self.note_emptied(inner, superblock);
        }
        self.erase_emptied(inner, Time::ZERO);
    }

    /// One more than the last unit of a superblock that somebody has begun to program. What a cut left undone before it
    /// stays empty: rows of a block only go up.
    fn units_used(&self, superblock: Superblock) -> u32 {
        let (geometry, first) = (self.flash.geometry(), self.flash.geometry().first_unit(superblock).0);
        let used = (0..geometry.dies()).map(|die| match self.flash.next_row(geometry.block_of(Unit(first + die))) {
            0 => 0,
            rows => (rows - 1) * geometry.dies() + die + 1,
        });
        used.max().unwrap_or(0)
    }

    /// Writes the pages of a dump to new places, and makes them and the dump's tail durable.
    fn rewrite(&self, dump: &Dump) -> Result<u64, OpenError> {
        let mut rewritten = 0;
        for DumpPage { page, oob, data } in dump.pages() {
            let (Some(data), Some(vid)) = (data, Vid::new(oob.vid)) else { continue };
            if self.map.get(vid, oob.vba) != Some(page.0) {
                continue;
            }
            let mut guard = self.lock();
            let inner = &mut *guard;
            self.make_room(inner, Time::ZERO, 1).map_err(|e| OpenError::Damaged(format!("restoring the dump: {e}")))?;
            let frame = self
                .flash
                .take_frame()
                .ok_or_else(|| OpenError::Damaged("restoring the dump: no frame is free".into()))?;
            self.flash.write_frame(frame, data);
            self.put(inner, Time::ZERO, Time::ZERO, Stream::Host, &oob, vid, frame, None);
            inner.page_seq = inner.page_seq.max(oob.seq);
            rewritten += 1;
            self.settle_due(inner, Time::NEVER, Time::ZERO);
        }
        self.flush_now()?;
        Ok(rewritten)
    }

    /// Makes everything durable, without regard to modelled time.
    pub(crate) fn flush_now(&self) -> Result<(), OpenError> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        self.cut_short(inner, Time::ZERO);
        // File media finish programs in their own time; a lost one shows as an error before that.
        for _ in 0..PATIENCE {
            self.settle_due(inner, Time::NEVER, Time::ZERO);
            if inner.streams.iter().all(|stream| stream.oldest().is_none()) {
                inner.journal.flush(inner.journal.last(), true)?;
                return Ok(());
            }
            if self.power.is_cut() {
                return Err(OpenError::Media(std::io::Error::other("the SSD has no power")));
            }
            let _ = self.flash.poll_loaded();
            std::thread::yield_now();
        }
        Err(OpenError::Damaged("the medium does not finish its programs".into()))
    }

    /// Stops in good order: everything durable, nothing to restore but the checkpoint and the journal.
    ///
    /// # Errors
    /// [`OpenError`]; then the next start is one after a power failure.
    pub fn shut_down(&self) -> Result<(), OpenError> {
        self.flush_now()?;
        self.durable.mark_clean(&self.lock().journal)?;
        Ok(())
    }

    /// The power fails, and there is energy for a dump; its bytes.
    ///
    /// # Errors
    /// [`DurableError`], where it is more than the budget or the store does not take it.
    pub fn power_fail(&self) -> Result<u64, DurableError> {
        let guard = self.lock();
        let inner = &*guard;
        let mut dump = DumpWriter::begin(&self.durable, &inner.journal)?;
        let mut data = [0; gnstor_flash::PAGE_BYTES as usize];
        let regions = self.flash.regions();
        for page in inner.streams.iter().flat_map(|stream| stream.buffered(self.flash.geometry())) {
            if let PageState::Buffered(oob) = self.flash.page(page) {
                let Fetch::Here(local) = self.flash.fetch(page) else { continue };
                let region = regions.iter().find(|region| region.id() == local.region).expect("one of its regions");
                region.read(local.offset, &mut data);
                dump.page(DumpPage { page, oob, data: Some(&data) })?;
            }
        }
        dump.finish()
    }

}

/// Bytes of a record of the journal, near enough for a modelled time.
const RECORD_BYTES: u64 = 18;
/// Looks at a medium that has not finished, of the order of ten seconds.
const PATIENCE: u32 = 50_000_000;

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

fn assemble(
    config: &FtlConfig,
    parts: Parts,
    durable: Durable,
    journal: Journal,
    found: Found,
    journal_bytes: u64,
) -> Ftl {
    let geometry = parts.flash.geometry().clone();
    let timing =
        (!config.preset.is_null()).then(|| Mutex::new(Timing::new(&config.preset, parts.flash.geometry())));
    let inner = Inner {
        writer: parts.writer,
        space: found.space,
        streams: [Writing::default(), Writing::default()],
        windows: found.windows,
        journal,
        checkpoint: None,
        victim: None,
        emptied: Vec::new(),
        sweeps: Vec::new(),
        behind: Vec::new(),
        claimed: 0,
        page_seq: found.page_seq,
        wanted: 0,
        last_write: Time::ZERO,
        worn_out: false,
        stats: found.stats,
        fresh: Vec::new(),
        words: Vec::new(),
        #[cfg(test)]
        applied_at: Vec::new(),
    };
    Ftl {
        flash: parts.flash,
        power: Arc::clone(&config.power),
        map: parts.map,
        durable,
        journal_bytes,
        logical_pages: parts.logical_pages,
        collection: config.collection,
        low: LOW.max(config.preset.reserved_superblocks(&geometry) - 1),
        timing,
        inner: Mutex::new(inner),
    }
}

impl Found {
    pub(crate) fn empty(flash: &Flash) -> Self {
        Self {
            space: Space::new(flash.geometry().superblocks(), |superblock| good_pages(flash, superblock)),
            windows: Windows::default(),
            page_seq: 0,
            stats: LayerStats::default(),
            replayed: 0,
            records: 0,
        }
    }

    fn from_meta(flash: &Flash, meta: &Meta) -> Result<Self, String> {
        let geometry = flash.geometry();
        if meta.superblocks.len() != geometry.superblocks() as usize {
            return Err(format!("a checkpoint of {} superblocks, not {}", meta.superblocks.len(), geometry.superblocks()));
        }
        for &block in &meta.bad {
            check_block(flash, block)?;
            flash.mark_bad(block);
        }
        let mut found = Self::empty(flash);
        for (number, entry) in (0u32..).map(Superblock).zip(&meta.superblocks) {
            let good = good_pages(flash, number);
            found.space.freed(number, entry.erases, good);
            match entry.state {
                SuperblockState::Free | SuperblockState::Dead => {}
                SuperblockState::Closed => found.space.close(number),
                SuperblockState::Open { stream } => found.space.reopen(number, stream_of(stream)?, entry.order),
            }
            found.space.get_mut(number).order = entry.order;
        }
        found.space.set_opened(meta.next_order);
        for (vid, window) in &meta.windows {
            window.iter().for_each(|&(vba, stamp)| found.windows.record(*vid, vba, stamp));
        }
        found.page_seq = meta.page_seq;
        found.stats.host_pages = meta.written_host;
        found.stats.flash_pages = meta.written_flash;
        Ok(found)
    }

    fn apply(&mut self, flash: &Flash, writer: &mut MapWriter, records: &[Record]) -> Result<(), String> {
        for &record in records {
            match record {
                Record::Word { index, value } => writer.redo(index, value).map_err(|e| e.to_string())?,
                Record::Applied { vid, vba, stamp } => {
                    self.page_seq += 1;
                    if self.windows.held(vid, vba).is_none_or(|held| stamp > held) {
                        self.windows.record(vid, vba, stamp);
                    }
                }
                Record::Opened { superblock, stream, order } => {
                    check_superblock(flash, superblock)?;
                    self.space.reopen(superblock, stream_of(stream)?, order);
                }
                Record::Closed { superblock } => {
                    check_superblock(flash, superblock)?;
                    self.space.close(superblock);
                }
                Record::Erased { superblock, erases } => {
                    check_superblock(flash, superblock)?;
                    self.space.freed(superblock, erases, good_pages(flash, superblock));
                }
                Record::Bad { block } => {
                    check_block(flash, block)?;
                    flash.mark_bad(block);
                    self.stats.bad_blocks += 1;
                }
                Record::Forgotten { vid, .. } => self.windows.forget(vid),
            }
        }
        self.replayed += 1;
        self.records += records.len() as u64;
        Ok(())
    }
}

/// The map and everything else from checkpoint, journal and the tail in the dump; the reason where that is not possible.
fn from_journal(parts: &mut Parts, durable: &Durable, dump: &DumpState) -> Result<(Found, Journal), String> {
    let mut attempt = durable.checkpoint();
    loop {
        let mut restored = attempt.map_err(|unusable| unusable.reason)?;
        let number = restored.number();
        match replay(parts, durable, dump, &mut restored) {
            Ok(done) => return Ok(done),
            Err(reason) => {
                tracing::warn!("checkpoint {number}: {reason}; trying the one before");
                parts.writer.clear();
                attempt = durable.checkpoint_before(number).map_err(|_| Unusable { reason });
            }
        }
    }
}

/// A reason on its way through readers that have error types of their own.
struct Reason(String);

impl From<Unusable> for Reason {
    fn from(unusable: Unusable) -> Self {
        Self(unusable.reason)
    }
}

impl From<DurableError> for Reason {
    fn from(error: DurableError) -> Self {
        Self(error.to_string())
    }
}

fn replay(
    parts: &mut Parts,
    durable: &Durable,
    dump: &DumpState,
    restored: &mut gnstor_durable::Restored,
) -> Result<(Found, Journal), String> {
    let Parts { flash, writer, .. } = parts;
    let mut found = Found::from_meta(flash, &restored.meta)?;
    restored
        .for_each(|first, words| writer.load_words(first, words).map_err(|e| Reason(e.to_string())))
        .map_err(|Reason(reason)| reason)?;
    let replayed = durable
        .replay(restored.seq, |_, records| found.apply(flash, writer, records).map_err(Reason))
        .map_err(|Reason(reason)| reason)?;
    if let End::Damaged { reason } = &replayed.end {
        return Err(format!("the journal is damaged: {reason}"));
    }
    if let DumpState::Intact(dump) = dump {
        dump.replay(replayed.last, |_, records| found.apply(flash, writer, records).map_err(Reason))
            .map_err(|Reason(reason)| reason)?;
    }
    let geometry = flash.geometry();
    let per_superblock = geometry.superblock_pages();
    let space = &mut found.space;
    writer
        .finish_load(|page| space.get_mut(Superblock(page / per_superblock)).valid += 1)
        .map_err(|e| e.to_string())?;
    let journal = durable.into_journal(&replayed).map_err(|e| e.to_string())?;
    Ok((found, journal))
}

pub(crate) fn good_pages(flash: &Flash, superblock: Superblock) -> u32 {
    let geometry = flash.geometry();
    let first = geometry.first_unit(superblock).0;
    let good = (first..first + geometry.dies()).filter(|unit| !flash.is_bad(geometry.block_of(Unit(*unit)))).count();
    u32::try_from(good).expect("dies") * geometry.rows() * geometry.unit_pages()
}

fn stream_of(raw: u8) -> Result<Stream, String> {
    match raw {
        0 => Ok(Stream::Host),
        1 => Ok(Stream::Collect),
        _ => Err(format!("stream {raw} is not known")),
    }
}

fn check_superblock(flash: &Flash, superblock: Superblock) -> Result<(), String> {
    let in_range = superblock.0 < flash.geometry().superblocks();
    if in_range { Ok(()) } else { Err(format!("{superblock:?} is beyond the geometry")) }
}

fn check_block(flash: &Flash, block: gnstor_flash::Block) -> Result<(), String> {
    let in_range = block.0 < flash.geometry().blocks();
    if in_range { Ok(()) } else { Err(format!("{block:?} is beyond the geometry")) }
}
