// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cell: a small record that is kept twice. A cut during a write leaves exactly the old or the new one.
//!
//! ```text
//!    0        4    6      8              16               24       28       32     36      64
//!   +--------+----+------+--------------+----------------+--------+--------+------+-------+--------------+
//!   | "GNVC" | 2  | kind | tag          | version        | place  | length | crc  | zero  | content      |
//!   +--------+----+------+--------------+----------------+--------+--------+------+-------+--------------+
//! ```
//! `crc` covers bytes 0 to 31 and the content. A write goes to copy A, is synced, goes to copy B, and is
//! synced, so that one copy is whole at every moment. A reader takes the whole copy with the highest version,
//! and repairs the other copy before it uses the result. A place has a cell before it counts, so zeros in it
//! are damage.

use crate::bytes::{COUNTER_MAX, index, round_up, set, u16_at, u32_at, u64_at};
use crate::error::{
    DurableError, Patience, Refused, Running, end_sync, start_sync, start_write, sync, write,
};
use crate::layout::Twin;
use gnstor_flash::Store;
use std::ops::Range;
use std::task::Poll;

const WHAT: &str = "a cell";
const WRITING: &str = "writing a cell";
const MAGIC: u32 = u32::from_le_bytes(*b"GNVC");
const FORMAT: u16 = 2;
/// Bytes before the content.
pub(crate) const HEAD: usize = 64;
const SECTOR: usize = 512;

/// Kind of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Kind {
    /// The header of the system area.
    Header = 1,
    /// The daemon's term.
    Term = 2,
    /// The fleet map.
    Map = 3,
    /// A permission entry.
    Entry = 4,
    /// A tombstone.
    Tombstone = 5,
    /// SMART counters of the SSD's whole life.
    SmartCounters = 6,
    /// The fleet map that the SSD holds as a voter.
    Held = 7,
}

/// A cell whose checksum is correct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell<'a> {
    /// Tag of the format.
    pub tag: u64,
    /// Grows with each write.
    pub version: u64,
    /// Content.
    pub content: &'a [u8],
}

impl<'a> Cell<'a> {
    /// Reads and checks a cell.
    ///
    /// # Errors
    /// [`Refused`] where the bytes are no whole cell of this kind and place.
    pub fn decode(bytes: &'a [u8], kind: Kind, place: u32) -> Result<Self, Refused> {
        let Some((head, rest)) = bytes.split_at_checked(HEAD) else {
            return Err(Refused::new(WHAT, format!("{} bytes", bytes.len())));
        };
        if head.iter().all(|&byte| byte == 0) {
            return Err(Refused::new(WHAT, "zeros"));
        }
        if u32_at(head, 0) != MAGIC {
            return Err(Refused::new(WHAT, "another magic"));
        }
        if u16_at(head, 4) != FORMAT {
            let found = u16_at(head, 4);
            return Err(Refused::new(
                WHAT,
                format!("format {found}, and this program reads format {FORMAT}"),
            ));
        }
        let length = u32_at(head, 28) as usize;
        let Some(content) = rest.get(..length) else {
            return Err(Refused::new(WHAT, format!("{length} bytes do not fit its place")));
        };
        if crc32c::crc32c_append(crc32c::crc32c(&head[..32]), content) != u32_at(head, 32) {
            return Err(Refused::new(WHAT, "the checksum does not match"));
        }
        if u16_at(head, 6) != kind as u16 || u32_at(head, 24) != place || head[36..] != [0; HEAD - 36] {
            return Err(Refused::new(WHAT, "stands in the wrong place"));
        }
        let (tag, version) = (u64_at(head, 8), u64_at(head, 16));
        if version > COUNTER_MAX {
            return Err(Refused::new(WHAT, format!("version {version} is out of range")));
        }
        Ok(Self { tag, version, content })
    }

    /// The cell as bytes, whole sectors.
    pub(crate) fn encode(&self, kind: Kind, place: u32) -> Vec<u8> {
        let bytes = round_up((HEAD + self.content.len()) as u64, SECTOR as u64);
        let mut out = vec![0; index(bytes)];
        set(&mut out, 0, MAGIC.to_le_bytes());
        set(&mut out, 4, FORMAT.to_le_bytes());
        set(&mut out, 6, (kind as u16).to_le_bytes());
        set(&mut out, 8, self.tag.to_le_bytes());
        set(&mut out, 16, self.version.to_le_bytes());
        set(&mut out, 24, place.to_le_bytes());
        set(
            &mut out,
            28,
            u32::try_from(self.content.len()).expect("checked against its place").to_le_bytes(),
        );
        out[HEAD..HEAD + self.content.len()].copy_from_slice(self.content);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out[..32]), self.content);
        set(&mut out, 32, crc.to_le_bytes());
        out
    }
}

/// Both copies of a cell, as the store has them.
#[derive(Clone, Copy)]
pub(crate) struct Copies<'a> {
    pub(crate) kind: Kind,
    pub(crate) place: u32,
    /// The tag that cells must have; `None`: any.
    pub(crate) tag: Option<u64>,
    pub(crate) bytes: [&'a [u8]; 2],
}

impl Twin {
    fn at(&self, copy: usize, place: u32) -> u64 {
        debug_assert!(place < self.count);
        self.copies[copy] + u64::from(place) * self.pitch
    }

    fn write_copy(
        &self,
        store: &dyn Store,
        copy: usize,
        place: u32,
        bytes: &[u8],
    ) -> Result<(), DurableError> {
        write(store, self.at(copy, place), bytes, WRITING)?;
        sync(store, WRITING)
    }

    /// Chooses between the two copies of a place, and repairs the other copy. `None` if neither is whole.
    pub(crate) fn reconcile<'a>(
        &self,
        store: &dyn Store,
        read: Copies<'a>,
        notes: &mut Notes,
    ) -> Result<Option<Cell<'a>>, DurableError> {
        let Copies { kind, place, tag, bytes } = read;
        let read = bytes.map(|bytes| match Cell::decode(bytes, kind, place) {
            Ok(cell) if tag.is_some_and(|tag| tag != cell.tag) => {
                Err(Refused::new(WHAT, "of an earlier format"))
            }
            other => other,
        });
        for (copy, result) in ["A", "B"].into_iter().zip(&read) {
            if let Err(refused) = result {
                notes.refused.push(format!("{kind:?} {place}, copy {copy}: {refused}"));
            }
        }
        let (winner, loser) = match read {
            [Ok(a), Ok(b)] if a == b => return Ok(Some(a)),
            [Ok(a), Ok(b)] if b.version > a.version => (b, 0),
            [Ok(a), _] => (a, 1),
            [Err(_), Ok(b)] => (b, 0),
            [Err(_), Err(_)] => {
                notes.lost.push(kind);
                return Ok(None);
            }
        };
        self.write_copy(store, loser, place, &winner.encode(kind, place))?;
        Ok(Some(winner))
    }

    /// Writes a run of cells without content, both copies; the caller syncs.
    pub(crate) fn prepare(
        &self,
        store: &dyn Store,
        kind: Kind,
        places: Range<u32>,
        (tag, version): (u64, u64),
    ) -> Result<(), DurableError> {
        let (first, pitch) = (places.start, index(self.pitch));
        let mut bytes = vec![0; places.len() * pitch];
        for (place, room) in places.zip(bytes.chunks_exact_mut(pitch)) {
            let cell = Cell { tag, version, content: &[] }.encode(kind, place);
            room[..cell.len()].copy_from_slice(&cell);
        }
        for copy in 0..2 {
            start_write(store, self.at(copy, first), &bytes, "preparing places of the metadata store")?;
        }
        Ok(())
    }
}

/// A cell on its way to both copies: copy A, its sync, copy B, its sync.
#[derive(Debug)]
pub(crate) struct CellWrite {
    twin: Twin,
    place: u32,
    bytes: Vec<u8>,
    /// The copy in hand; 2: both are durable.
    copy: usize,
    sync: Option<Running>,
}

impl CellWrite {
    pub(crate) fn start(
        twin: Twin,
        store: &dyn Store,
        kind: Kind,
        place: u32,
        cell: &Cell<'_>,
    ) -> Result<Self, DurableError> {
        let room = twin.pitch - HEAD as u64;
        if cell.content.len() as u64 > room {
            return Err(DurableError::TooLarge {
                what: "bytes of a cell",
                has: cell.content.len() as u64,
                room,
            });
        }
        let mut write = Self { twin, place, bytes: cell.encode(kind, place), copy: 0, sync: None };
        write.write_copies(store)?;
        Ok(write)
    }

    /// Writes copies until the sync of one is running.
    fn write_copies(&mut self, store: &dyn Store) -> Result<(), DurableError> {
        while self.copy < 2 {
            let lost_before = store.lost_writes();
            start_write(store, self.twin.at(self.copy, self.place), &self.bytes, WRITING)?;
            self.sync = start_sync(store, lost_before, WRITING)?;
            if self.sync.is_some() {
                return Ok(());
            }
            self.copy += 1;
        }
        Ok(())
    }

    /// Continues after a sync. Ready when both copies are durable.
    pub(crate) fn advance(
        &mut self,
        store: &dyn Store,
        patience: Patience,
    ) -> Result<Poll<()>, DurableError> {
        let Some(sync) = self.sync else { return Ok(Poll::Ready(())) };
        if end_sync(store, sync, patience, WRITING)?.is_pending() {
            return Ok(Poll::Pending);
        }
        self.copy += 1;
        self.sync = None;
        self.write_copies(store)?;
        Ok(if self.sync.is_some() { Poll::Pending } else { Poll::Ready(()) })
    }
}

/// Findings of a read of cells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Notes {
    /// Copies that were refused, with reasons.
    pub(crate) refused: Vec<String>,
    /// Kinds of the places of which no copy was whole.
    pub(crate) lost: Vec<Kind>,
}
