// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the metadata store holds: records that are durable before their command completes (protocol rules
//! 3, 10 and 12).
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

use crate::smart_counters::SmartCounters;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::REQUEST_IDS;
use std::collections::BTreeMap;

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

/// The generation in the bytes of a permission entry that has been checked.
pub(crate) fn entry_generation(bytes: &[u8]) -> u32 {
    crate::bytes::u32_at(bytes, 8)
}
