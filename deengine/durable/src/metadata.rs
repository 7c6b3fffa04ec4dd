// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metadata store: records that are durable before their command completes (protocol rules 3, 10 and 12).
//!
//! Every record is a cell in two copies ([`crate::cell`]), so that a cut leaves the old or the new one. A
//! burial writes one cell: the tombstone. The entry that it buries is dead from then on, because its
//! generation is not above the tombstone's. Its place is cleared afterwards.
//!
//! Term, map and SMART counters have a cell from the format on. Places of entries and tombstones get an empty
//! cell when none is free, a batch at a time, and then the header counts them. So zeros in a place that
//! should have a cell mean that the cell is lost, not free.
//!
//! ```text
//!   term      term (8) filling since (8: 0 no, else one more than the map's epoch)
//!             serving lease (8: 1 one was granted)
//!   map       the bytes of the fleet map; no content: there is none
//!   entry     VID (2) 0 (2) generation (4) 0 (8), then the 4,096 bytes of the entry
//!   tombstone VID (2) ids (2) generation (4) buried at (8) term (8) version (8),
//!             then 8 times: id (16) time (8);
//!             no content: the place is free, as for an entry
//!   counters  [`crate::SmartCounters`]
//! ```

use crate::cell::{Cell, CellWrite, HEAD, Kind};
use crate::durable::Durable;
use crate::error::DurableError;
use crate::layout::Twin;
use crate::smart_counters::SmartCounters;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::{ENTRY_BYTES, EntryError, REQUEST_IDS, VolumeEntry};
use std::collections::BTreeMap;

/// Bytes of places that get their cells together.
const BATCH: u64 = if cfg!(test) { 8192 } else { 1 << 16 };

pub(crate) const ENTRY_HEAD: usize = 16;
pub(crate) const TERM_BYTES: usize = 24;
pub(crate) const TOMBSTONE_BYTES: usize = 32 + REQUEST_IDS * 24;

/// A volume id whose last life is over.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tombstone {
    /// The generation that ended; the next one must be above it.
    pub generation: u32,
    /// Term of the daemon that ended it.
    pub term: u64,
    /// Version of its entry at the end.
    pub version: u64,
    /// Ids of the last requests, newest first, with their unix time in milliseconds.
    pub ids: Vec<([u8; 16], u64)>,
    /// Unix time of the burial in milliseconds.
    pub buried_at: u64,
}

/// Everything in the metadata store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Metadata {
    /// The permission entries, as [`VolumeEntry::encode`] gives them.
    pub entries: BTreeMap<Vid, Vec<u8>>,
    /// The last life of each volume id that had one.
    pub tombstones: BTreeMap<Vid, Tombstone>,
    /// Highest daemon term.
    pub term: u64,
    /// Epoch of the fleet map at which acknowledged writes were lost. They are missing until a newer map
    /// arrives.
    pub filling: Option<u64>,
    /// A serving lease was granted once: without a running lease the SSD does not serve.
    pub leased: bool,
    /// The fleet map.
    pub map: Option<Vec<u8>>,
    /// SMART counters of the SSD.
    pub smart_counters: SmartCounters,
}

/// The metadata store of an SSD. Each call returns when its change is durable in both copies.
///
/// After an error the next open may or may not find the change. The contents here do not have it.
#[derive(Debug)]
pub struct MetadataStore {
    pub(crate) durable: Durable,
    pub(crate) contents: Metadata,
    pub(crate) entries: Places,
    pub(crate) tombstones: Places,
    /// Of the last cell written.
    pub(crate) version: u64,
    pub(crate) damaged: Vec<String>,
    pub(crate) lost: Vec<Kind>,
    /// SMART counters on their way to the store.
    pub(crate) counting: Option<CellWrite>,
}

/// Which place of a table belongs to which volume.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) of: BTreeMap<Vid, u32>,
    pub(crate) free: Vec<u32>,
}

impl Places {
    /// The volume's place, or a free one.
    fn find(&self, vid: Vid) -> Option<u32> {
        self.of.get(&vid).or(self.free.last()).copied()
    }

    fn take(&mut self, vid: Vid, place: u32) {
        if self.of.insert(vid, place).is_none() {
            self.free.pop();
        }
    }
}

impl MetadataStore {
    /// Whether there is room for this volume's entry and, once the volume ends, for its tombstone.
    pub fn has_room(&self, vid: Vid) -> bool {
        let Metadata { entries, tombstones, .. } = &self.contents;
        let layout = self.durable.layout();
        let beside = entries.keys().filter(|other| **other != vid && !tombstones.contains_key(other)).count();
        let own = usize::from(!tombstones.contains_key(&vid));
        let is_there = entries.contains_key(&vid);
        (is_there || entries.len() < layout.entries.count as usize)
            && tombstones.len() + beside + own <= layout.tombstones.count as usize
    }

    /// Adds or replaces the entry of a volume. `bytes` is an encoded permission entry.
    ///
    /// # Errors
    /// Where the bytes are no entry of `vid`, its generation has been buried, no place is left, or the store
    /// fails.
    pub fn put_entry(&mut self, vid: Vid, bytes: &[u8]) -> Result<(), DurableError> {
        let entry = VolumeEntry::decode(bytes).map_err(|why| DurableError::Entry { vid, why })?;
        if entry.vid != vid {
            return Err(DurableError::Entry { vid, why: EntryError::Field("vid") });
        }
        let generation = entry.generation;
        if let Some(tombstone) = self.contents.tombstones.get(&vid).filter(|t| t.generation >= generation) {
            return Err(DurableError::Buried { vid, generation, buried: tombstone.generation });
        }
        let place = match self.entries.find(vid) {
            Some(place) => place,
            None => self.prepare(Kind::Entry)?,
        };
        let mut content = Vec::with_capacity(ENTRY_HEAD + ENTRY_BYTES);
        content.extend_from_slice(&vid.get().to_le_bytes());
        content.extend_from_slice(&[0; 2]);
        content.extend_from_slice(&generation.to_le_bytes());
        content.extend_from_slice(&[0; 8]);
        content.extend_from_slice(bytes);
        self.write(Kind::Entry, place, &content)?;
        self.entries.take(vid, place);
        self.contents.entries.insert(vid, bytes.to_vec());
        Ok(())
    }

    /// Ends a generation of a volume id: the entry is gone and the tombstone stands, both or neither. The
    /// first eight request ids are kept. A generation below the present tombstone's is buried already; the
    /// same generation replaces the ids.
    ///
    /// # Errors
    /// Where no place is left or the store fails.
    pub fn bury(&mut self, vid: Vid, mut tombstone: Tombstone) -> Result<(), DurableError> {
        tombstone.ids.truncate(REQUEST_IDS);
        let generation = tombstone.generation;
        if self.contents.tombstones.get(&vid).is_some_and(|tombstone| tombstone.generation > generation) {
            return Ok(());
        }
        let place = match self.tombstones.find(vid) {
            Some(place) => place,
            None => self.prepare(Kind::Tombstone)?,
        };
        let count = u16::try_from(tombstone.ids.len()).expect("at most REQUEST_IDS");
        let mut content = Vec::with_capacity(TOMBSTONE_BYTES);
        content.extend_from_slice(&vid.get().to_le_bytes());
        content.extend_from_slice(&count.to_le_bytes());
        content.extend_from_slice(&generation.to_le_bytes());
        content.extend_from_slice(&tombstone.buried_at.to_le_bytes());
        content.extend_from_slice(&tombstone.term.to_le_bytes());
        content.extend_from_slice(&tombstone.version.to_le_bytes());
        for (id, time) in &tombstone.ids {
            content.extend_from_slice(id);
            content.extend_from_slice(&time.to_le_bytes());
        }
        content.resize(TOMBSTONE_BYTES, 0);
        self.write(Kind::Tombstone, place, &content)?;
        self.tombstones.take(vid, place);
        self.contents.tombstones.insert(vid, tombstone);
        let dead = self.contents.entries.get(&vid).is_some_and(|bytes| entry_generation(bytes) <= generation);
        if dead {
            self.contents.entries.remove(&vid);
            if let Some(place) = self.entries.of.remove(&vid) {
                // The tombstone has decided already; where this fails, the next open does it.
                if let Err(error) = self.write(Kind::Entry, place, &[]) {
                    tracing::warn!(%vid, %error, "the place of a buried entry was not cleared");
                }
                self.entries.free.push(place);
            }
        }
        Ok(())
    }

    /// Gives the next places of a table their cells, durably, and then counts them in the header. Returns the
    /// first place.
    fn prepare(&mut self, kind: Kind) -> Result<u32, DurableError> {
        let (twin, header) = (*self.twin(kind), self.durable.header());
        let (what, first) = match kind {
            Kind::Tombstone => ("a tombstone", header.tombstones),
            _ => ("an entry", header.entries),
        };
        let batch = u32::try_from(BATCH / twin.pitch).expect("a small batch");
        let places = first..twin.count.min(first + batch);
        if places.is_empty() {
            return Err(DurableError::MetadataFull { what, slots: twin.count });
        }
        self.version += 1;
        twin.prepare(self.durable.store(), kind, places.clone(), (self.durable.tag(), self.version))?;
        self.durable.update(|header| match kind {
            Kind::Tombstone => header.tombstones = places.end,
            _ => header.entries = places.end,
        })?;
        let table = if kind == Kind::Tombstone { &mut self.tombstones } else { &mut self.entries };
        table.free.extend(places.rev());
        Ok(first)
    }

    /// Sets the daemon's term.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn set_term(&mut self, term: u64) -> Result<(), DurableError> {
        self.write_term(term, self.contents.filling, self.contents.leased)
    }

    /// Acknowledged writes were lost when the map had this epoch.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn set_filling(&mut self, epoch: u64) -> Result<(), DurableError> {
        self.write_term(self.contents.term, Some(epoch), self.contents.leased)
    }

    /// A daemon of this term grants serving leases from now on.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn set_leased(&mut self, term: u64) -> Result<(), DurableError> {
        self.write_term(term, self.contents.filling, true)
    }

    fn write_term(&mut self, term: u64, filling: Option<u64>, leased: bool) -> Result<(), DurableError> {
        let mut content = [0; TERM_BYTES];
        content[..8].copy_from_slice(&term.to_le_bytes());
        content[8..16].copy_from_slice(&filling.map_or(0, |epoch| epoch.saturating_add(1)).to_le_bytes());
        content[16..].copy_from_slice(&u64::from(leased).to_le_bytes());
        self.write(Kind::Term, 0, &content)?;
        (self.contents.term, self.contents.filling, self.contents.leased) = (term, filling, leased);
        Ok(())
    }

    /// Sets the fleet map.
    ///
    /// # Errors
    /// Where it is longer than the place for it, or the store fails.
    pub fn set_map(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        let room = u64::from(self.durable.sizes().map_bytes);
        if bytes.len() as u64 > room {
            return Err(DurableError::TooLarge {
                what: "bytes of the fleet map",
                has: bytes.len() as u64,
                room,
            });
        }
        self.write(Kind::Map, 0, bytes)?;
        self.contents.map = Some(bytes.to_vec());
        Ok(())
    }

    /// Contents of the metadata store.
    pub fn contents(&self) -> &Metadata {
        &self.contents
    }

    /// Copies of the metadata store or the header that were refused at open, with reasons. A single bad copy
    /// was repaired. A write that a power cut interrupts leaves one, too.
    pub fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// Kinds of the places of which no copy was whole: durable records are lost.
    pub fn lost(&self) -> &[Kind] {
        &self.lost
    }

    pub(crate) fn write(&mut self, kind: Kind, place: u32, content: &[u8]) -> Result<(), DurableError> {
        let twin = *self.twin(kind);
        // Also after a failed write: two copies of a cell never have the same version and different contents.
        self.version += 1;
        let cell = Cell { tag: self.durable.tag(), version: self.version, content };
        debug_assert!(HEAD + content.len() <= crate::bytes::index(twin.pitch));
        twin.write(self.durable.store(), kind, place, &cell)
    }

    pub(crate) fn twin(&self, kind: Kind) -> &Twin {
        let layout = self.durable.layout();
        match kind {
            Kind::Header => unreachable!("the header is written by Durable"),
            Kind::Term => &layout.term,
            Kind::Map => &layout.map,
            Kind::Entry => &layout.entries,
            Kind::Tombstone => &layout.tombstones,
            Kind::SmartCounters => &layout.smart_counters,
        }
    }
}

/// The generation in the bytes of a permission entry that has been checked.
pub(crate) fn entry_generation(bytes: &[u8]) -> u32 {
    crate::bytes::u32_at(bytes, 8)
}
