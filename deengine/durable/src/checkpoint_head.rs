// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Head and table of a checkpoint; [`crate::checkpoint`] describes their format.

use crate::bytes::{PAGE, is_sealed, seal, set, u32_at, u64_at};
use crate::error::Refused;
use crate::header::Slot;

const WHAT: &str = "a checkpoint's head";
const MAGIC: u32 = u32::from_le_bytes(*b"GNVK");
/// Kind of a chunk that is all zeros and not in the store.
pub(crate) const HOLE: u32 = 0;
/// Kind of a chunk that was written.
pub(crate) const STORED: u32 = 1;
/// Bytes of a chunk's entry in the table.
pub(crate) const TABLE_ENTRY: usize = 8;

/// The head of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointHead {
    /// Tag of the format.
    pub tag: u64,
    /// The header's entry for it.
    pub slot: Slot,
    /// Words of the map.
    pub map_words: u64,
    /// Bytes of the meta.
    pub meta_bytes: u64,
    /// Chunks in the table.
    pub entries: u32,
    /// Checksum of the table.
    pub table_crc: u32,
}

impl CheckpointHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        set(&mut page, 4, MAGIC.to_le_bytes());
        set(&mut page, 8, self.tag.to_le_bytes());
        set(&mut page, 16, self.slot.number.to_le_bytes());
        set(&mut page, 24, self.slot.seq.to_le_bytes());
        set(&mut page, 32, self.slot.page.to_le_bytes());
        set(&mut page, 40, self.slot.boot.to_le_bytes());
        set(&mut page, 48, self.map_words.to_le_bytes());
        set(&mut page, 56, self.meta_bytes.to_le_bytes());
        set(&mut page, 64, self.entries.to_le_bytes());
        set(&mut page, 68, self.table_crc.to_le_bytes());
        seal(&mut page);
        page
    }

    /// Reads and checks the head.
    ///
    /// # Errors
    /// [`Refused`] where the page is none.
    pub fn decode(page: &[u8]) -> Result<Self, Refused> {
        if page.len() != PAGE || u32_at(page, 4) != MAGIC {
            return Err(Refused::new(WHAT, "another length or magic"));
        }
        if !is_sealed(page) {
            return Err(Refused::new(WHAT, "the checksum does not match"));
        }
        if u32_at(page, 44) != 0 || page[72..].iter().any(|&byte| byte != 0) {
            return Err(Refused::new(WHAT, "reserved bytes are set"));
        }
        let slot = Slot {
            number: u64_at(page, 16),
            seq: u64_at(page, 24),
            page: u64_at(page, 32),
            boot: u32_at(page, 40),
        };
        Ok(Self {
            tag: u64_at(page, 8),
            slot,
            map_words: u64_at(page, 48),
            meta_bytes: u64_at(page, 56),
            entries: u32_at(page, 64),
            table_crc: u32_at(page, 68),
        })
    }
}

/// Whether a chunk was written, and its checksum. `None`: neither kind.
pub(crate) fn table_entry(table: &[u8], nth: usize) -> Option<Option<u32>> {
    let entry = &table[nth * TABLE_ENTRY..(nth + 1) * TABLE_ENTRY];
    match (u32_at(entry, 4), u32_at(entry, 0)) {
        (HOLE, 0) => Some(None),
        (STORED, crc) => Some(Some(crc)),
        _ => None,
    }
}

/// Appends the entry of a chunk to the table.
pub(crate) fn push_entry(table: &mut Vec<u8>, crc: u32, kind: u32) {
    table.extend_from_slice(&crc.to_le_bytes());
    table.extend_from_slice(&kind.to_le_bytes());
}
