// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading a checkpoint back, chunk by chunk: no second copy of the map is ever in memory.

use crate::bytes::{CHUNK, PAGE, index};
use crate::checkpoint::CHUNK_WORDS;
use crate::checkpoint_head::{CheckpointHead, TABLE_ENTRY, table_entry};
use crate::durable::Durable;
use crate::error::{Unusable, read};
use crate::header::Slot;
use crate::meta::Meta;
use crate::record::Seq;
use zerocopy::IntoBytes;

/// A checkpoint whose head, table and meta are whole; its words are checked as they are read.
#[derive(Debug)]
pub struct Restored {
    /// The state besides the map.
    pub meta: Meta,
    /// Both are the state after this transaction, once the journal has been replayed from it.
    pub seq: Seq,
    number: u64,
    durable: Durable,
    words_at: u64,
    table: Vec<u8>,
}

impl Restored {
    /// Number of the checkpoint; see [`Durable::checkpoint_before`].
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Calls `f` with the map's words, in ascending order. Chunks that are all zero are left out: start with
    /// a clear map.
    ///
    /// # Errors
    /// What `f` returns; or why a chunk cannot be used, before `f` sees it: then clear the map and try
    /// [`Durable::checkpoint_before`], or rebuild.
    pub fn for_each<E: From<Unusable>>(
        &mut self,
        mut f: impl FnMut(u64, &[u64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let words = self.durable.sizes().map_words;
        let mut buffer = vec![0u64; CHUNK_WORDS.min(index(words))];
        for (nth, first) in (0..words).step_by(CHUNK_WORDS).enumerate() {
            let chunk = &mut buffer[..CHUNK_WORDS.min(index(words - first))];
            let at = self.words_at + nth as u64 * CHUNK as u64;
            if read_chunk(&self.durable, at, &self.table, nth, chunk.as_mut_bytes())? {
                for word in chunk.iter_mut() {
                    *word = u64::from_le(*word);
                }
                f(first, chunk)?;
            }
        }
        Ok(())
    }
}

/// Reads one chunk and checks its checksum. Returns false for a chunk of zeros, without writing to `out`.
fn read_chunk(
    durable: &Durable,
    at: u64,
    table: &[u8],
    nth: usize,
    out: &mut [u8],
) -> Result<bool, Unusable> {
    let refused =
        |why: &str| Unusable { reason: format!("chunk {nth}, at byte {at} of the system area: {why}") };
    match table_entry(table, nth).ok_or_else(|| refused("its table entry makes no sense"))? {
        None => Ok(false),
        Some(crc) => {
            read(durable.store(), at, out, "reading a checkpoint")?;
            if crc32c::crc32c(out) == crc { Ok(true) } else { Err(refused("the checksum does not match")) }
        }
    }
}

impl Durable {
    /// The newest checkpoint whose head, table and meta are whole. A formatted store has an empty one.
    ///
    /// # Errors
    /// [`Unusable`] with the reasons if there is none. Then the caller has to rebuild the map.
    pub fn checkpoint(&self) -> Result<Restored, Unusable> {
        self.checkpoint_before(u64::MAX)
    }

    /// The newest checkpoint that is older than checkpoint `number`. It is of use only where the journal
    /// still reaches back to it, which [`Self::replay`] finds out.
    ///
    /// # Errors
    /// As [`Self::checkpoint`].
    pub fn checkpoint_before(&self, number: u64) -> Result<Restored, Unusable> {
        let header = self.header();
        let mut slots: Vec<(usize, Slot)> = header.slots.into_iter().enumerate().collect();
        slots.retain(|(_, slot)| slot.number != 0 && slot.number < number);
        slots.sort_by_key(|(_, slot)| std::cmp::Reverse(slot.number));
        let mut reasons = Vec::new();
        for (which, slot) in slots {
            match self.read_checkpoint(which, slot) {
                Ok(restored) => return Ok(restored),
                Err(Unusable { reason }) => reasons.push(format!("number {}: {reason}", slot.number)),
            }
        }
        if reasons.is_empty() {
            reasons.push("none is finished".into());
        }
        Err(Unusable { reason: reasons.join("; ") })
    }

    fn read_checkpoint(&self, which: usize, slot: Slot) -> Result<Restored, Unusable> {
        let (layout, sizes, store) = (self.layout(), self.sizes(), self.store());
        let at = layout.checkpoints[which];
        let mut page = vec![0; PAGE];
        read(store, at, &mut page, "reading a checkpoint's head")?;
        let head = CheckpointHead::decode(&page)?;
        let chunk = CHUNK as u64;
        let word_chunks = (sizes.map_words * 8).div_ceil(chunk);
        let entries = word_chunks + head.meta_bytes.div_ceil(chunk);
        let right = head.tag == self.tag()
            && head.slot == slot
            && head.map_words == sizes.map_words
            && head.meta_bytes <= layout.meta_bytes
            && u64::from(head.entries) == entries;
        if !right {
            return Err(Unusable { reason: format!("its head is not that of checkpoint {}", slot.number) });
        }
        let mut table = vec![0; index(entries) * TABLE_ENTRY];
        read(store, at + layout.table, &mut table, "reading a checkpoint's table")?;
        if crc32c::crc32c(&table) != head.table_crc {
            return Err(Unusable { reason: "the checksum of its table does not match".into() });
        }
        let mut bytes = vec![0; index(head.meta_bytes)];
        for (nth, out) in bytes.chunks_mut(CHUNK).enumerate() {
            let at = at + layout.meta + nth as u64 * chunk;
            if !read_chunk(self, at, &table, index(word_chunks) + nth, out)? {
                return Err(Unusable { reason: "its meta is not there".into() });
            }
        }
        let meta = Meta::decode(&bytes, sizes)?;
        let words_at = at + layout.words;
        Ok(Restored { meta, seq: slot.seq, number: slot.number, durable: self.clone(), words_at, table })
    }
}
