// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checkpoint, journal and the dump's tail, in this order, into the state they add up to.

use crate::parts::{Parts, Progress};
use crate::space::{Space, Stream};
use crate::stamp_history::StampHistories;
use crate::stats::LayerStats;
use gnstor_durable::{
    DumpState, Durable, DurableError, End, HistoryMeta, Journal, Meta, Record, Seq, SuperblockState, Unusable,
};
use gnstor_flash::{Flash, Superblock, Unit};
use gnstor_map::MapWriter;
use gnstor_proto::slba::Vid;
use std::collections::BTreeMap;

/// State that checkpoint, journal and dump add up to.
pub(crate) struct Found {
    pub(crate) space: Space,
    pub(crate) histories: StampHistories,
    pub(crate) page_seq: u64,
    pub(crate) stats: LayerStats,
    pub(crate) replayed: u64,
    pub(crate) records: u64,
    /// Words of the map still to be set.
    words: Vec<(u64, u64)>,
    /// The last transaction that each stamp history of a checkpoint contains.
    known: BTreeMap<Vid, Seq>,
}

/// Words set together.
const AHEAD: usize = 64;

impl Found {
    pub(crate) fn empty(flash: &Flash) -> Self {
        Self {
            space: Space::new(flash.geometry().superblocks(), |superblock| good_pages(flash, superblock)),
            histories: StampHistories::default(),
            page_seq: 0,
            stats: LayerStats::default(),
            replayed: 0,
            records: 0,
            words: Vec::with_capacity(AHEAD),
            known: BTreeMap::new(),
        }
    }

    fn from_meta(flash: &Flash, meta: &Meta, from: Seq) -> Result<Self, String> {
        let geometry = flash.geometry();
        if meta.superblocks.len() != geometry.superblocks() as usize {
            return Err(format!(
                "a checkpoint of {} superblocks, not {}",
                meta.superblocks.len(),
                geometry.superblocks()
            ));
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
                SuperblockState::Open { stream } => {
                    found.space.reopen(number, stream_of(stream)?, entry.order)
                }
            }
            found.space.get_mut(number).order = entry.order;
        }
        found.space.set_opened(meta.next_order);
        for HistoryMeta { vid, ahead, stamps } in &meta.histories {
            stamps.iter().for_each(|entry| found.histories.load(*vid, entry.vba(), entry.stamp()));
            found.known.insert(*vid, from + Seq::from(*ahead));
        }
        found.page_seq = meta.page_seq;
        found.stats.host_pages = meta.written_host;
        found.stats.flash_pages = meta.written_flash;
        Ok(found)
    }

    /// Sets the words collected so far. They are spread over the map. Reading all of them first lets the
    /// memory fetch them in parallel.
    fn redo(&mut self, writer: &mut MapWriter) -> Result<(), String> {
        let mut sum = 0;
        for &(index, _) in &self.words {
            let mut word = [0];
            writer.map().read_words(index, &mut word);
            sum ^= word[0];
        }
        std::hint::black_box(sum);
        for (index, value) in self.words.drain(..) {
            writer.redo(index, value).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Whether the volume's stamp history contains this transaction already: it was copied after the
    /// checkpoint began.
    fn knows(&self, vid: Vid, seq: Seq) -> bool {
        self.known.get(&vid).is_some_and(|known| seq <= *known)
    }

    fn apply(
        &mut self,
        flash: &Flash,
        writer: &mut MapWriter,
        seq: Seq,
        records: &[Record],
    ) -> Result<(), String> {
        for &record in records {
            match record {
                Record::Word { index, value } => {
                    self.words.push((index, value));
                    if self.words.len() == AHEAD {
                        self.redo(writer)?;
                    }
                }
                Record::Applied { vid, vba, stamp } => {
                    self.page_seq += 1;
                    // The journal has the changes in the order in which they were applied.
                    if !self.knows(vid, seq) {
                        self.histories.load(vid, vba, stamp);
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
                Record::Forgotten { vid, .. } if self.knows(vid, seq) => {}
                Record::Forgotten { vid, .. } => self.histories.remove(vid),
            }
        }
        self.replayed += 1;
        self.records += records.len() as u64;
        Ok(())
    }
}

/// Restores the map and all other state from checkpoint, journal and the dump's tail. Returns the reason if
/// it cannot.
pub(crate) fn from_journal(
    parts: &mut Parts,
    durable: &Durable,
    dump: &DumpState,
    progress: Progress<'_>,
) -> Result<(Found, Journal), String> {
    let mut attempt = durable.checkpoint();
    loop {
        let mut restored = attempt.map_err(|unusable| unusable.reason)?;
        let number = restored.number();
        match replay(parts, durable, dump, &mut restored, progress) {
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
    progress: Progress<'_>,
) -> Result<(Found, Journal), String> {
    let Parts { flash, writer, .. } = parts;
    let mut found = Found::from_meta(flash, &restored.meta, restored.seq)?;
    restored
        .for_each(|first, words| {
            progress(first, durable.sizes().map_words);
            writer.load_words(first, words).map_err(|e| Reason(e.to_string()))
        })
        .map_err(|Reason(reason)| reason)?;
    let replayed = durable
        .replay(restored.seq, |seq, records| found.apply(flash, writer, seq, records).map_err(Reason))
        .map_err(|Reason(reason)| reason)?;
    if let End::Damaged { reason } = &replayed.end {
        return Err(format!("the journal is damaged: {reason}"));
    }
    if let DumpState::Intact(dump) = dump {
        dump.replay(replayed.last, |seq, records| found.apply(flash, writer, seq, records).map_err(Reason))
            .map_err(|Reason(reason)| reason)?;
    }
    found.redo(writer)?;
    let geometry = flash.geometry();
    let per_superblock = geometry.superblock_pages();
    let space = &mut found.space;
    writer
        .finish_load(|page| space.get_mut(Superblock(page / per_superblock)).valid += 1)
        .map_err(|e| e.to_string())?;
    found.histories.link_all();
    let journal = durable.into_journal(&replayed).map_err(|e| e.to_string())?;
    Ok((found, journal))
}

pub(crate) fn good_pages(flash: &Flash, superblock: Superblock) -> u32 {
    let geometry = flash.geometry();
    let first = geometry.first_unit(superblock).0;
    let good =
        (first..first + geometry.dies()).filter(|unit| !flash.is_bad(geometry.block_of(Unit(*unit)))).count();
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
