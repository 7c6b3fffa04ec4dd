// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header: identity and sizes of the store, and where a restore starts.

use crate::bytes::{COUNTER_MAX, COUNTER_MAX_32, Fields};
use crate::error::{DurableError, Refused};
use crate::layout::Sizes;
use crate::record::Seq;
use gnstor_proto::placement::mix64;

const WHAT: &str = "the header";

/// State of the SSD in the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Formatting has not finished.
    Formatting,
    /// Formatted and never used.
    Fresh,
    /// Shut down with everything flushed.
    Clean,
    /// In use.
    Running,
}

/// A finished checkpoint, as the header knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slot {
    /// Number of the checkpoint, from 1; 0: none.
    pub number: u64,
    /// Replay starts after this transaction..
    pub seq: Seq,
    /// ..and with this page of the journal..
    pub page: u64,
    /// ..which was or will be written by this boot or a later one.
    pub boot: u32,
}

/// The header, a cell of its own in two copies.
///
/// ```text
///    0        8        16                                    60       61   64       68      72
///   +--------+--------+-------------------------------------+--------+----+--------+-------+
///   | id     | life   | map words (8), superblocks (4),     | mode   |held| boot   | tomb- |
///   |        |        | blocks (4), journal bytes (8), dump |        |    |        | stones|
///   |        |        | bytes (8), volumes (4), map bytes (4), entries (4) |        |       |
///   +--------+--------+-------------------------------------+--------+----+--------+-------+
///   72              80          88            96
///   +---------------+-----------+-------------+------------------------------------------------------+
///   | journal page  | floor     | dump number | 2 slots: number (8), seq (8), page (8), boot (4), 0 (4) |
///   +---------------+-----------+-------------+------------------------------------------------------+
/// ```
/// *Held*: 1 where there is room for a held map, then two bytes of 0. A store of an earlier version has 0.
/// All other structures of the store carry a *tag*, a hash of `id` and `life`. Each formatting has a new
/// `life`, so that structures of an earlier one never count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Id that the caller gave at formatting.
    pub id: u64,
    /// Number of times that the store was formatted.
    pub life: u64,
    /// The layout.
    pub sizes: Sizes,
    /// Number of places of permission entries that have a cell. Places behind them were never used.
    pub entries: u32,
    /// Number of places of tombstones that have a cell.
    pub tombstones: u32,
    /// The last shutdown.
    pub mode: Mode,
    /// Grows with each restore, before the first journal page of it is written.
    pub boot: u32,
    /// The first journal page of this boot.
    pub journal_page: u64,
    /// The journal was durable up to here: a replay that does not reach it has met damage.
    pub floor: Seq,
    /// A dump with another number does not count.
    pub dump: u64,
    /// Checkpoints A and B.
    pub slots: [Slot; 2],
}

impl Header {
    pub(crate) fn tag(&self) -> u64 {
        mix64(self.id ^ mix64(self.life))
    }

    /// Index of the newest finished checkpoint.
    pub(crate) fn newest(&self) -> Option<usize> {
        let index = usize::from(self.slots[1].number > self.slots[0].number);
        (self.slots[index].number > 0).then_some(index)
    }

    /// A replay must reach this.
    pub(crate) fn must_reach(&self) -> Seq {
        self.slots.iter().map(|slot| slot.seq).fold(self.floor, Seq::max)
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        let sizes = &self.sizes;
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.life.to_le_bytes());
        out.extend_from_slice(&sizes.map_words.to_le_bytes());
        out.extend_from_slice(&sizes.superblocks.to_le_bytes());
        out.extend_from_slice(&sizes.blocks.to_le_bytes());
        out.extend_from_slice(&sizes.journal_bytes.to_le_bytes());
        out.extend_from_slice(&sizes.dump_bytes.to_le_bytes());
        out.extend_from_slice(&sizes.volumes.to_le_bytes());
        out.extend_from_slice(&sizes.map_bytes.to_le_bytes());
        out.extend_from_slice(&self.entries.to_le_bytes());
        out.extend_from_slice(&[self.mode as u8, u8::from(sizes.held_map), 0, 0]);
        out.extend_from_slice(&self.boot.to_le_bytes());
        out.extend_from_slice(&self.tombstones.to_le_bytes());
        out.extend_from_slice(&self.journal_page.to_le_bytes());
        out.extend_from_slice(&self.floor.to_le_bytes());
        out.extend_from_slice(&self.dump.to_le_bytes());
        for slot in &self.slots {
            out.extend_from_slice(&slot.number.to_le_bytes());
            out.extend_from_slice(&slot.seq.to_le_bytes());
            out.extend_from_slice(&slot.page.to_le_bytes());
            out.extend_from_slice(&u64::from(slot.boot).to_le_bytes());
        }
        out
    }

    /// Decodes and checks.
    ///
    /// # Errors
    /// [`Refused`] where a field has a value that it must not have.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refused> {
        let mut fields = Fields::new(WHAT, bytes);
        let (id, life) = (fields.u64()?, fields.u64()?);
        let mut sizes = Sizes {
            map_words: fields.u64()?,
            superblocks: fields.u32()?,
            blocks: fields.u32()?,
            journal_bytes: fields.u64()?,
            dump_bytes: fields.u64()?,
            volumes: fields.u32()?,
            map_bytes: fields.u32()?,
            held_map: false,
        };
        let entries = fields.u32()?;
        let [mode, held_map, zeros @ ..] = fields.u32()?.to_le_bytes();
        if held_map > 1 || zeros != [0, 0] {
            return Err(Refused::new(WHAT, "reserved bytes are set"));
        }
        sizes.held_map = held_map == 1;
        let mode = match mode {
            0 => Mode::Formatting,
            1 => Mode::Fresh,
            2 => Mode::Clean,
            3 => Mode::Running,
            other => return Err(Refused::new(WHAT, format!("mode {other}"))),
        };
        let (boot, tombstones) = (fields.u32()?, fields.u32()?);
        let (journal_page, floor, dump) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let mut slots = [Slot::default(); 2];
        for slot in &mut slots {
            *slot =
                Slot { number: fields.u64()?, seq: fields.u64()?, page: fields.u64()?, boot: fields.u32()? };
            if fields.u32()? != 0 {
                return Err(Refused::new(WHAT, "reserved bytes are set"));
            }
        }
        fields.end()?;
        sizes.check().map_err(|error| Refused::new(WHAT, error.to_string()))?;
        if entries > sizes.volumes || tombstones > sizes.tombstones() {
            return Err(Refused::new(
                WHAT,
                format!("{entries} entries and {tombstones} tombstones have no room"),
            ));
        }
        let counters = [journal_page, floor, dump, life].into_iter();
        if counters.chain(slots.iter().flat_map(|s| [s.number, s.seq, s.page])).any(|n| n > COUNTER_MAX)
            || boot > COUNTER_MAX_32
        {
            return Err(Refused::new(WHAT, "a counter is out of range"));
        }
        Ok(Self { id, life, sizes, entries, tombstones, mode, boot, journal_page, floor, dump, slots })
    }

    /// The caller's sizes must be the store's.
    pub(crate) fn check_sizes(&self, sizes: &Sizes) -> Result<(), DurableError> {
        for ((field, found), (_, wanted)) in self.sizes.fields().into_iter().zip(sizes.fields()) {
            if found != wanted {
                return Err(DurableError::OtherSizes { field, found, wanted });
            }
        }
        Ok(())
    }
}
