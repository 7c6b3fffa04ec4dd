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
//!             flags (8: bit 0 a serving lease was granted; there is: bit 1 an identity, bit 2 a verifier,
//!             bit 3 a grant),
//!             openings of the array's SSDs 0, 1, .. (8 each),
//!             identity: uuid (16) incarnation (8), verifier of the manager key (32),
//!             grant: term (8) instance (8)
//!   map       the bytes of the fleet map; no content: there is none
//!   held map  term of MAP HOLD (8), then the bytes of the map; no content: none was ever held
//!   entry     VID (2) 0 (2) generation (4) 0 (8), then the 4,096 bytes of the entry
//!   tombstone VID (2) ids (2) generation (4) buried at (8) term (8) version (8),
//!             then 8 times: id (16) time (8);
//!             no content: the place is free, as for an entry
//!   counters  [`crate::SmartCounters`]
//! ```

use crate::cell::{CellWrite, Kind};
use crate::changes::Changes;
use crate::durable::Durable;
use crate::error::{DurableError, Patience};
use crate::layout::Twin;
use crate::smart_counters::SmartCounters;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::REQUEST_IDS;
use std::collections::BTreeMap;

/// Bytes of places that get their cells together.
pub(crate) const PLACES_AT_ONCE: u64 = if cfg!(test) { 8192 } else { 1 << 16 };

pub(crate) const ENTRY_HEAD: usize = 16;
pub(crate) const HELD_HEAD: usize = 8;
pub(crate) const TOMBSTONE_BYTES: usize = 32 + REQUEST_IDS * 24;

/// The end of the last generation of a volume id.
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

/// Identity of the SSD and number of its content: a fleet map gives its places to both (rule 1a).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SsdIdentity {
    /// Drawn when the SSD is formatted.
    pub uuid: [u8; 16],
    /// Counted up when the content may be incomplete.
    pub incarnation: u32,
}

/// A term that this SSD has granted as a voter, and to which start of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The term.
    pub term: u64,
    /// The instance.
    pub instance: u64,
}

/// A fleet map that this SSD holds as a voter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldMap {
    /// Term of the MAP HOLD.
    pub term: u64,
    /// The map's bytes.
    pub map: Vec<u8>,
}

/// Everything in the metadata store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Metadata {
    /// The permission entries, encoded by `gnstor_proto::vendor::VolumeEntry::encode`.
    pub entries: BTreeMap<Vid, Vec<u8>>,
    /// The tombstone of each volume id whose volume is gone.
    pub tombstones: BTreeMap<Vid, Tombstone>,
    /// Highest daemon term.
    pub term: u64,
    /// Epoch of the fleet map at which acknowledged writes were lost. They are missing until a newer map
    /// arrives.
    pub filling: Option<u64>,
    /// A serving lease was granted once: without a running lease the SSD does not serve.
    pub leased: bool,
    /// Identity of the SSD; files of earlier versions have none.
    pub identity: Option<SsdIdentity>,
    /// How often each SSD of the array has been opened and shut down, by its number; its own number among
    /// them. Empty: no array has told it.
    pub openings: Vec<u64>,
    /// What tells the manager key that hosts must know; `None`: any host is believed, so far.
    pub key_verifier: Option<[u8; 32]>,
    /// The fleet map.
    pub map: Option<Vec<u8>>,
    /// The last term granted as a voter.
    pub grant: Option<Grant>,
    /// The last map that the SSD held as a voter. It counts only if it is newer than the active one.
    pub held: Option<HeldMap>,
    /// SMART counters of the SSD.
    pub smart_counters: SmartCounters,
}

/// The metadata store of an SSD. A call whose name does not begin with `start` returns when its change is
/// durable in both copies. Changes that were started end in order ([`MetadataStore::poll`]).
///
/// After an error the next open may or may not find the change. The contents in memory do not have it.
#[derive(Debug)]
pub struct MetadataStore {
    pub(crate) durable: Durable,
    pub(crate) contents: Metadata,
    pub(crate) entries: Places,
    pub(crate) tombstones: Places,
    /// Version of the last cell written.
    pub(crate) version: u64,
    pub(crate) damaged: Vec<String>,
    pub(crate) lost: Vec<Kind>,
    /// SMART counters on their way to the store.
    pub(crate) counting: Option<CellWrite>,
    /// Other changes in progress.
    pub(crate) changes: Changes,
}

/// Assigns the places of a table to volumes.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) of: BTreeMap<Vid, u32>,
    pub(crate) free: Vec<u32>,
}

impl Places {
    /// The volume's place, or a free one.
    pub(crate) fn find(&self, vid: Vid) -> Option<u32> {
        self.of.get(&vid).or(self.free.last()).copied()
    }

    pub(crate) fn take(&mut self, vid: Vid, place: u32) {
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
        self.start_entry(vid, bytes);
        self.finish()
    }

    /// Ends a generation of a volume id: removes the entry and writes the tombstone, both or neither. It
    /// keeps the first eight request ids. A generation below that of the present tombstone is buried already.
    /// The same generation replaces the ids.
    ///
    /// # Errors
    /// If no place is left or the store fails.
    pub fn bury(&mut self, vid: Vid, tombstone: Tombstone) -> Result<(), DurableError> {
        self.start_bury(vid, tombstone);
        self.finish()
    }

    /// Sets the daemon's term.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn set_term(&mut self, term: u64) -> Result<(), DurableError> {
        self.start_term(term);
        self.finish()
    }

    /// Acknowledged writes were lost when the map had this epoch.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn set_filling(&mut self, epoch: u64) -> Result<(), DurableError> {
        self.start_filling(epoch);
        self.finish()
    }

    /// Sets which SSD this is. With `lossy_at` it also notes that acknowledged writes were lost when the map
    /// had this epoch. Both become durable, or neither does.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn set_identity(&mut self, identity: SsdIdentity, lossy_at: Option<u64>) -> Result<(), DurableError> {
        self.start_identity(identity, lossy_at);
        self.finish()
    }

    /// Sets how often each SSD of the array has been opened.
    ///
    /// # Errors
    /// Where there are more than 64 of them, or the store fails.
    pub fn set_openings(&mut self, openings: &[u64]) -> Result<(), DurableError> {
        self.start_openings(openings);
        self.finish()
    }

    /// Sets the verifier of the manager key, by which the SSD checks that a host knows it.
    ///
    /// # Errors
    /// If the store fails.
    pub fn set_key_verifier(&mut self, verifier: [u8; 32]) -> Result<(), DurableError> {
        self.start_key_verifier(verifier);
        self.finish()
    }

    /// Sets the fleet map.
    ///
    /// # Errors
    /// Where it is longer than the place for it, or the store fails.
    pub fn set_map(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        self.start_map(bytes);
        self.finish()
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
        let mut write = self.start_cell(kind, place, content)?;
        while write.advance(self.durable.store(), Patience::Blocks)?.is_pending() {}
        Ok(())
    }

    pub(crate) fn table(&mut self, kind: Kind) -> &mut Places {
        if kind == Kind::Tombstone { &mut self.tombstones } else { &mut self.entries }
    }

    /// Whether it has room for a map that is held: a store of an earlier version has none.
    pub fn can_hold(&self) -> bool {
        self.durable.layout().held.is_some()
    }

    pub(crate) fn twin(&self, kind: Kind) -> &Twin {
        let layout = self.durable.layout();
        match kind {
            Kind::Held => layout.held.as_ref().expect("`begin` has looked for the room"),
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
