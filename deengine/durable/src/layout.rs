// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where everything stands in the system area.
//!
//! All offsets are multiples of 4 KiB. `V` = `volumes`, `M` = `map_bytes`, `J` = `journal_bytes`, `D` =
//! `dump_bytes`, each rounded up to 4 KiB where it is a length; `T` = min(65,536, 16 V), the tombstones.
//!
//! | from (bytes) | length | what | bytes described in |
//! |---|---|---|---|
//! | 0 | 4,096 | header, copy A | [`crate::Header`] |
//! | 4,096 | 4,096 | header, copy B | |
//! | 8,192 | 4,096 | daemon term, copy A | [`crate::MetadataStore`] |
//! | 12,288 | 4,096 | daemon term, copy B | |
//! | 16,384 | 4,096 + M | fleet map, copy A | [`crate::MetadataStore`] |
//! | 20,480 + M | 4,096 + M | fleet map, copy B | |
//! | 24,576 + 2M | 8,192 V | permission entries, copy A | [`crate::MetadataStore`] |
//! | + 8,192 V | 8,192 V | permission entries, copy B | |
//! | + 8,192 V | 512 T | tombstones, copy A | [`crate::MetadataStore`] |
//! | + 512 T | 512 T | tombstones, copy B | |
//! | + 512 T | 4,096 | SMART counters, copy A | [`crate::SmartCounters`] |
//! | + 4,096 | 4,096 | SMART counters, copy B | |
//! | + 4,096 | D | dump | [`crate::Dump`] |
//! | + D | J | journal ring | [`crate::Journal`] |
//! | + J | C | checkpoint A | [`crate::Checkpoint`] |
//! | + C | C | checkpoint B | |
//! | + C | 4,096 + M | held map, copy A; not in a store of an earlier version | [`crate::MetadataStore`] |
//! | + 4,096 + M | 4,096 + M | held map, copy B | |
//!
//! A checkpoint of C bytes: head 4,096 | table, 8 bytes for each chunk | meta | words, 8 bytes each. With `V`
//! = 4,096, `M` = 1 MiB, `D` = 64 MiB, `J` = 512 MiB: the dump starts at byte 136,347,648 and the ring at
//! byte 203,456,512.
//!
//! The header names all sizes. Opening a store takes `V`, `D` and `J` from it, so that a store keeps the
//! sizes with which it was formatted.
//!
//! Numbers in all formats are little-endian; checksums are CRC-32C; reserved bytes are zero.

use crate::bytes::{CHUNK, PAGE_U64, round_up};
use crate::error::DurableError;

/// Bytes of one permission entry's place.
pub(crate) const ENTRY_PITCH: u64 = 8192;
/// Bytes of one tombstone's place.
pub(crate) const TOMBSTONE_PITCH: u64 = 512;
/// Stamps of all volumes together that a checkpoint has room for, for each volume (protocol rule 6).
pub(crate) const STAMP_HISTORY: u64 = 4096;

/// How much there is of everything; decides the layout and never changes once formatted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Words of the map's image.
    pub map_words: u64,
    /// Superblocks of the flash.
    pub superblocks: u32,
    /// Blocks of the flash.
    pub blocks: u32,
    /// Journal ring.
    pub journal_bytes: u64,
    /// Energy budget of the power-failure dump.
    pub dump_bytes: u64,
    /// Volumes known at once.
    pub volumes: u32,
    /// Longest fleet map.
    pub map_bytes: u32,
    /// Whether there is room for a held map beside the active one.
    pub held_map: bool,
}

impl Sizes {
    /// Smallest size of the store.
    pub fn store_bytes(&self) -> u64 {
        Layout::new(self).end
    }

    /// Offset of the dump.
    pub fn dump_at(&self) -> u64 {
        Layout::new(self).dump
    }

    /// Offset of the journal ring.
    pub fn journal_at(&self) -> u64 {
        Layout::new(self).ring
    }

    /// Offsets of the two checkpoints.
    pub fn checkpoints_at(&self) -> [u64; 2] {
        Layout::new(self).checkpoints
    }

    pub(crate) fn check(&self) -> Result<(), DurableError> {
        for (field, value, low, high) in [
            ("map_words", self.map_words, 1, 1 << 40),
            ("superblocks", self.superblocks.into(), 1, 1 << 26),
            ("blocks", self.blocks.into(), 1, 1 << 31),
            ("journal_bytes", self.journal_bytes, 16 * PAGE_U64, 1 << 40),
            ("dump_bytes", self.dump_bytes, 16 * PAGE_U64, 1 << 36),
            ("volumes", self.volumes.into(), 1, 65_534),
            ("map_bytes", self.map_bytes.into(), 1, 1 << 26),
        ] {
            if !(low..=high).contains(&value) {
                return Err(DurableError::Size { field, value, low, high });
            }
        }
        Ok(())
    }

    pub(crate) fn fields(&self) -> [(&'static str, u64); 7] {
        [
            ("map_words", self.map_words),
            ("superblocks", self.superblocks.into()),
            ("blocks", self.blocks.into()),
            ("journal_bytes", self.journal_bytes),
            ("dump_bytes", self.dump_bytes),
            ("volumes", self.volumes.into()),
            ("map_bytes", self.map_bytes.into()),
        ]
    }

    pub(crate) fn tombstones(&self) -> u32 {
        self.volumes.saturating_mul(16).min(65_536)
    }
}

/// A place of something small: two copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Twin {
    pub(crate) copies: [u64; 2],
    /// Bytes from one place of a table to the next, and the largest content of a place.
    pub(crate) pitch: u64,
    pub(crate) count: u32,
}

/// Offsets of all areas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) header: Twin,
    pub(crate) term: Twin,
    pub(crate) map: Twin,
    pub(crate) entries: Twin,
    pub(crate) tombstones: Twin,
    pub(crate) smart_counters: Twin,
    pub(crate) dump: u64,
    pub(crate) dump_bytes: u64,
    pub(crate) ring: u64,
    pub(crate) ring_pages: u64,
    pub(crate) checkpoints: [u64; 2],
    /// Offset of the table from the start of a checkpoint.
    pub(crate) table: u64,
    pub(crate) meta: u64,
    pub(crate) meta_bytes: u64,
    pub(crate) words: u64,
    /// The map that the SSD holds as a voter.
    pub(crate) held: Option<Twin>,
    pub(crate) end: u64,
}

impl Layout {
    pub(crate) fn new(sizes: &Sizes) -> Self {
        let mut at = 0u64;
        let mut area = |bytes: u64| {
            let start = at;
            at = at.saturating_add(round_up(bytes, PAGE_U64));
            start
        };
        let mut twin = |pitch: u64, count: u32| {
            let bytes = pitch * u64::from(count);
            Twin { copies: [area(bytes), area(bytes)], pitch, count }
        };
        let header = twin(PAGE_U64, 1);
        let term = twin(PAGE_U64, 1);
        let map = twin(PAGE_U64 + round_up(sizes.map_bytes.into(), PAGE_U64), 1);
        let entries = twin(ENTRY_PITCH, sizes.volumes);
        let tombstones = twin(TOMBSTONE_PITCH, sizes.tombstones());
        let smart_counters = twin(PAGE_U64, 1);
        let dump_bytes = round_up(sizes.dump_bytes.min(1 << 36), PAGE_U64);
        let dump = area(dump_bytes);
        let ring_pages = sizes.journal_bytes.min(1 << 40).div_ceil(PAGE_U64);
        let ring = area(ring_pages * PAGE_U64);
        let map_words = sizes.map_words.min(1 << 40);
        let meta_bytes = round_up(
            64 + 16 * u64::from(sizes.superblocks)
                + 4 * u64::from(sizes.blocks)
                + u64::from(sizes.volumes) * (8 + 16 * STAMP_HISTORY),
            PAGE_U64,
        );
        let chunk = CHUNK as u64;
        let chunks = (map_words * 8).div_ceil(chunk) + meta_bytes.div_ceil(chunk);
        let table = PAGE_U64;
        let meta = table + round_up(chunks * 8, PAGE_U64);
        let words = meta + meta_bytes;
        let checkpoint_bytes = words + map_words * 8;
        let checkpoints = [area(checkpoint_bytes), area(checkpoint_bytes)];
        let held = sizes.held_map.then(|| Twin { copies: [area(map.pitch), area(map.pitch)], ..map });
        Self {
            header,
            term,
            map,
            entries,
            tombstones,
            smart_counters,
            dump,
            dump_bytes,
            ring,
            ring_pages,
            checkpoints,
            table,
            meta,
            meta_bytes,
            words,
            held,
            end: at,
        }
    }
}
