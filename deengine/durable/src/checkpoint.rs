// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writing a checkpoint: an image of the map's words, copied while the map changes, and the meta at its
//! beginning.
//!
//! ```text
//!   head (4 KiB) | table | meta | words
//!
//!   head    0      4        8     16       24    32     40     44  48
//!          +------+--------+-----+--------+-----+------+------+---+
//!          | crc  | "GNVK" | tag | number | seq | page | boot | 0 |
//!          +------+--------+-----+--------+-----+------+------+---+
//!           48          56           64        68          72
//!          +-----------+------------+---------+-----------+----+
//!          | map words | meta bytes | entries | table crc | 0  |
//!          +-----------+------------+---------+-----------+----+
//!   table   for each chunk of 1 MiB, first of the words, then of the meta: crc (4), kind (4)
//!           kind 0: all zero and not written; 1: written
//! ```
//! The table's checksum covers each chunk, the head's covers the table, and the header repeats the head.
//! `begin` takes the older checkpoint out of the header before that checkpoint is overwritten. `finish` puts
//! the new one in when all of it is durable.

mod finishing;

use crate::bytes::{CHUNK, index, round_up};
use crate::checkpoint_head::{HOLE, STORED, TABLE_ENTRY, push_entry};
use crate::durable::{Durable, UpdateNumber};
use crate::error::{DurableError, Patience, start_sync, start_write};
use crate::header::Slot;
use crate::journal::{Journal, Position};
use crate::meta::{AppliedStamp, Meta, push_history};
use crate::record::Seq;
use finishing::Stage;
use gnstor_proto::slba::Vid;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use zerocopy::IntoBytes;

pub use crate::checkpoint_head::CheckpointHead;
pub use finishing::Finishing;

/// Words of a chunk.
pub(crate) const CHUNK_WORDS: usize = CHUNK / 8;
/// Words that are written at once, a part of a chunk: the caller holds a lock meanwhile.
const PIECE_WORDS: usize = CHUNK_WORDS / 128;
const WRITING: &str = "writing a checkpoint";
/// Bytes of a piece. A chunk of metadata is also written in pieces of this size.
const PIECE_BYTES: usize = PIECE_WORDS * 8;

/// A checkpoint that is being written.
#[derive(Debug)]
pub struct Checkpoint {
    durable: Durable,
    /// The change of the header that removes the older checkpoint.
    opening: Option<UpdateNumber>,
    at: u64,
    which: usize,
    slot: Slot,
    needs: Seq,
    /// Lost writes of the store before the first one of this checkpoint.
    lost_before: u64,
    begun: Arc<AtomicU64>,
    table: Vec<u8>,
    meta: Vec<u8>,
    meta_table: Vec<u8>,
    /// How much of the meta has been written, and the checksum of its chunk in hand.
    meta_written: usize,
    meta_crc: u32,
    chunk: Chunk,
    piece: Vec<u64>,
    next: u64,
}

/// Progress of the chunk in hand.
#[derive(Debug, Default)]
struct Chunk {
    words: usize,
    crc: u32,
    /// The chunk is not all zeros, so it is in the store.
    is_stored: bool,
}

impl Checkpoint {
    /// Begins a checkpoint in the place of the older of the two. `meta` is the state exactly after
    /// `journal.last()`, and no transaction is open. The journal need not be flushed before.
    ///
    /// # Errors
    /// Where `meta` is too large or the store fails. The newest finished checkpoint stays valid in any case.
    ///
    /// # Panics
    /// If a transaction is open.
    pub fn begin(durable: &Durable, journal: &Journal, meta: &Meta) -> Result<Self, DurableError> {
        Self::begin_with(durable, journal, meta.encode(durable.sizes())?)
    }

    /// As [`Self::begin`], with the meta that [`Meta::encode_front`] made. The stamp histories follow one by
    /// one ([`Self::history`]). Pieces of the meta are written between pieces of the words.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_with(durable: &Durable, journal: &Journal, front: Vec<u8>) -> Result<Self, DurableError> {
        let mut checkpoint = Self::start_with(durable, journal, front)?;
        checkpoint.wait_ready()?;
        Ok(checkpoint)
    }

    /// As [`Self::begin_with`], without waiting for the medium: words are taken once [`Self::is_ready`].
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn start_with(durable: &Durable, journal: &Journal, front: Vec<u8>) -> Result<Self, DurableError> {
        Self::begin_at(durable, journal.position(), journal.begun(), front)
    }

    /// Whether the header has removed the checkpoint whose place this one takes.
    ///
    /// # Errors
    /// If the store fails. Then the caller drops this checkpoint.
    pub fn is_ready(&mut self) -> Result<bool, DurableError> {
        self.open(Patience::None)
    }

    pub(crate) fn wait_ready(&mut self) -> Result<(), DurableError> {
        self.open(Patience::Blocks).map(drop)
    }

    fn open(&mut self, patience: Patience) -> Result<bool, DurableError> {
        let Some(number) = self.opening else { return Ok(true) };
        if self.durable.end_update(number, patience)?.is_pending() {
            return Ok(false);
        }
        self.opening = None;
        Ok(true)
    }

    pub(crate) fn begin_at(
        durable: &Durable,
        position: Position,
        begun: Arc<AtomicU64>,
        meta: Vec<u8>,
    ) -> Result<Self, DurableError> {
        let room = durable.layout().meta_bytes;
        if meta.len() as u64 > room {
            return Err(DurableError::TooLarge { what: "bytes of a meta", has: meta.len() as u64, room });
        }
        let header = durable.header();
        let which = header.newest().map_or(0, |newest| 1 - newest);
        let number = header.slots.iter().map(|slot| slot.number).max().unwrap_or(0) + 1;
        // The newer checkpoint needs only a later part of the journal. The floor keeps this one's promise.
        let opening = (header.slots[which].number != 0)
            .then(|| {
                durable.start_update(|header| {
                    header.floor = header.must_reach();
                    header.slots[which] = Slot::default();
                })
            })
            .transpose()?;
        let Position { seq, page, boot } = position;
        Ok(Self {
            durable: durable.clone(),
            opening,
            at: durable.layout().checkpoints[which],
            which,
            slot: Slot { number, seq, page, boot },
            needs: seq,
            lost_before: durable.store().lost_writes(),
            begun,
            table: Vec::new(),
            meta,
            meta_table: Vec::new(),
            meta_written: 0,
            meta_crc: 0,
            chunk: Chunk::default(),
            piece: Vec::with_capacity(PIECE_WORDS),
            next: 0,
        })
    }

    /// Takes the next words of the map's image, which the caller has just read. Each call continues after the
    /// previous one. It may run beside the journal's thread if the map's words are stored with release order.
    ///
    /// # Errors
    /// If the words are not the next ones, or the store fails. Then the caller drops this checkpoint.
    pub fn words(&mut self, first: u64, words: &[u64]) -> Result<(), DurableError> {
        debug_assert!(self.opening.is_none(), "the older checkpoint still counts");
        let count = words.len() as u64;
        if first != self.next || count > self.durable.sizes().map_words - self.next {
            return Err(DurableError::WordsOrder { expected: self.next, first, count });
        }
        // Pairs with the store in `Journal::begin`. If one of these words was changed, the transaction of
        // that change is counted here.
        fence(Ordering::Acquire);
        self.needs = self.needs.max(self.begun.load(Ordering::Acquire));
        let mut left = words;
        while !left.is_empty() {
            let (now, rest) = left.split_at(left.len().min(PIECE_WORDS - self.piece.len()));
            self.piece.extend(now.iter().map(|word| word.to_le()));
            left = rest;
            if self.piece.len() == PIECE_WORDS {
                self.write_piece()?;
            }
        }
        self.next += count;
        Ok(())
    }

    /// Takes the stamp history of a volume, as it is after `seq`, the last transaction of the journal.
    /// Volumes come in ascending order, before [`Self::finish`]. The history comes in two parts, the older
    /// one first.
    ///
    /// # Errors
    /// If there is no room for it. Then the caller drops this checkpoint.
    pub fn history(&mut self, seq: Seq, vid: Vid, parts: [&[AppliedStamp]; 2]) -> Result<(), DurableError> {
        let ahead = seq.saturating_sub(self.slot.seq);
        push_history(&mut self.meta, self.durable.sizes(), vid, ahead, parts)?;
        // A restore that uses this history needs the transactions that it contains.
        self.needs = self.needs.max(seq);
        Ok(())
    }

    /// Whether as much of the meta is there and not written as is written at a time.
    pub fn has_meta_piece(&self) -> bool {
        self.meta.len() - self.meta_written >= PIECE_BYTES
    }

    /// Writes a piece of the meta if a whole piece is there. [`Self::finish`] writes the rest.
    ///
    /// # Errors
    /// If the store fails. Then the caller drops this checkpoint.
    pub fn meta_piece(&mut self) -> Result<(), DurableError> {
        if self.has_meta_piece() { self.write_meta_piece() } else { Ok(()) }
    }

    /// Writes the piece in hand; the chunk may be whole then.
    fn write_piece(&mut self) -> Result<(), DurableError> {
        const WHAT: &str = "writing a checkpoint's words";
        let Self { chunk, piece, .. } = self;
        let nth = (self.table.len() / TABLE_ENTRY) as u64;
        let first = self.at + self.durable.layout().words + nth * CHUNK as u64;
        if !chunk.is_stored && piece.iter().any(|&word| word != 0) {
            chunk.is_stored = true;
            if chunk.words > 0 {
                start_write(self.durable.store(), first, &vec![0; chunk.words * 8], WHAT)?;
            }
        }
        let bytes = piece.as_bytes();
        if chunk.is_stored {
            start_write(self.durable.store(), first + chunk.words as u64 * 8, bytes, WHAT)?;
        }
        chunk.crc = crc32c::crc32c_append(chunk.crc, bytes);
        chunk.words += piece.len();
        piece.clear();
        if chunk.words == CHUNK_WORDS {
            self.end_chunk();
        }
        Ok(())
    }

    /// Writes the next piece of the meta, of which something is left.
    fn write_meta_piece(&mut self) -> Result<(), DurableError> {
        let Self { meta, meta_written: from, .. } = self;
        let to = meta.len().min(*from + PIECE_BYTES);
        let piece = &meta[*from..to];
        let at = self.at + self.durable.layout().meta + *from as u64;
        start_write(self.durable.store(), at, piece, "writing a checkpoint's meta")?;
        self.meta_crc = crc32c::crc32c_append(self.meta_crc, piece);
        *from = to;
        if to.is_multiple_of(CHUNK) {
            push_entry(&mut self.meta_table, std::mem::take(&mut self.meta_crc), STORED);
        }
        Ok(())
    }

    fn end_chunk(&mut self) {
        match std::mem::take(&mut self.chunk) {
            Chunk { is_stored: true, crc, .. } => push_entry(&mut self.table, crc, STORED),
            Chunk { words: 1.., .. } => push_entry(&mut self.table, 0, HOLE),
            Chunk { .. } => {}
        }
    }

    /// The transaction at which it began: a restore replays the journal from there.
    pub fn seq(&self) -> Seq {
        self.slot.seq
    }

    /// The transaction up to which the journal must be durable before [`Self::finish`].
    pub fn needs(&self) -> Seq {
        self.needs
    }

    /// Makes this checkpoint the start of a restore, durably, and frees the ring before it. Returns the
    /// memory of the meta for the next checkpoint.
    ///
    /// # Errors
    /// Where words are missing, the journal is not durable up to [`Self::needs`], or the store fails. The
    /// checkpoint before stays the newest.
    ///
    /// # Panics
    /// If a transaction is open.
    pub fn finish(self, journal: &mut Journal) -> Result<Vec<u8>, DurableError> {
        self.start_finish(journal)?.wait(journal)
    }

    /// As [`Self::finish`], without waiting for the medium: [`Finishing::poll`] goes on with it.
    ///
    /// # Errors
    /// As [`Self::finish`].
    ///
    /// # Panics
    /// If a transaction is open.
    pub fn start_finish(self, journal: &Journal) -> Result<Finishing, DurableError> {
        assert!(!journal.is_open(), "a checkpoint is finished between transactions");
        // A transaction that had begun and was abandoned has no number.
        let (needed, durable) = (self.needs.min(journal.last()), journal.durable());
        if durable < needed {
            return Err(DurableError::NotDurable { needed, durable });
        }
        self.seal()
    }

    /// As [`Self::finish`], for an SSD without a journal so far.
    pub(crate) fn complete(self) -> Result<Vec<u8>, DurableError> {
        let mut finishing = self.seal()?;
        while finishing.advance(Patience::Blocks)?.is_pending() {}
        Ok(finishing.meta)
    }

    /// Writes the rest of the checkpoint, and starts its sync.
    fn seal(mut self) -> Result<Finishing, DurableError> {
        let of = self.durable.sizes().map_words;
        if self.next != of {
            return Err(DurableError::Incomplete { has: self.next, of });
        }
        if !self.piece.is_empty() {
            self.write_piece()?;
        }
        self.end_chunk();
        while self.meta_written < self.meta.len() {
            self.write_meta_piece()?;
        }
        if !self.meta.len().is_multiple_of(CHUNK) {
            push_entry(&mut self.meta_table, self.meta_crc, STORED);
        }
        self.table.extend_from_slice(&self.meta_table);
        let head = CheckpointHead {
            tag: self.durable.tag(),
            slot: self.slot,
            map_words: of,
            meta_bytes: self.meta.len() as u64,
            entries: u32::try_from(self.table.len() / TABLE_ENTRY).expect("bounded by the layout"),
            table_crc: crc32c::crc32c(&self.table),
        };
        let store = self.durable.store();
        self.table.resize(index(round_up(self.table.len() as u64, 512)), 0);
        let table_at = self.at + self.durable.layout().table;
        start_write(store, table_at, &self.table, "writing a checkpoint's table")?;
        start_write(store, self.at, &head.encode(), "writing a checkpoint's head")?;
        let stage = match start_sync(store, self.lost_before, WRITING)? {
            Some(sync) => Stage::Content(sync),
            None => Stage::Written,
        };
        let Self { durable, which, slot, meta, .. } = self;
        Ok(Finishing { durable, which, slot, meta, stage })
    }
}
