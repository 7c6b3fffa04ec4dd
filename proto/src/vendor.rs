// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Vendor admin commands and the permission entry they carry (paper 4.1; protocol rules 3, 8, 10, 12).
//!
//! | command | opcode | data | CDW12 | meaning |
//! |---|---|---|---|---|
//! | VOLUME ADD | C1h | entry, to the SSD | - | a new volume |
//! | VOLUME LIST | C2h | entries, to the host | first VID to report | the permission table, in VID order |
//! | VOLUME DELETE | C4h | none | VID (15:0) | the volume's generation dies, its pages are swept |
//! | VOLUME CHMOD | C5h | entry, to the SSD | - | readers, writer, lease; a renewal is a CHMOD too |
//! | LEASE RENEW | C8h | none | milliseconds | the SSD may serve for so long (rule 2) |
//! | MAP SET | C9h | fleet map, to the SSD | - | a new fleet map |
//! | MAP GET | CAh | fleet map, to the host | bit 0: the held one | the map that the SSD serves by |
//!
//! Those of voters (TERM TAKE, MAP HOLD, ACTIVATE, LEASE ASK) are in [`crate::voting`].
//!
//! Bits 1:0 of an opcode give the data direction. NSID is 1. CDW10 is the number of dwords of data
//! (one-based). Only the daemon may send them, but for MAP GET, which is for any host. In detail:
//!
//! * ADD, CHMOD: one [`RawEntry`]; term and version are in it. ADD of a volume id that is there:
//!   `VolumeExists`. CHMOD of an entry that is not: `VolumeAbsent`. A lower term than the SSD has seen:
//!   `StaleTerm`. A version not above the SSD's: `StaleVersion`. A write lease out of [`WRITE_LEASE_MS`]:
//!   `InvalidField`.
//! * LIST: fills the buffer with the entries whose VID is at least CDW12 (15:0), in VID order, deleting
//!   ones included. The rest of the buffer is zero. DW0 of the completion is the number of entries. Fewer
//!   than fit: the end.
//! * DELETE: CDW12 15:0 VID, CDW13 generation, CDW2 (low) and CDW3 (high) the version of the deletion,
//!   CDW14 (low) and CDW15 (high) the term. Deleting a generation that is already being deleted succeeds. A
//!   volume id whose sweep is not done refuses ADD with `SweepPending`; LIST reports it as deleting until
//!   then.
//! * LIST with CDW13 bit 0: the volumes that are gone, each a [`RawTombstone`], in the order of VID and
//!   generation. A VID may come up several times. CDW12 31:16 is the number of those of the first VID to
//!   leave out. An SSD remembers one for [`TOMBSTONE_HOURS`] hours (rule 12): a daemon that restarts can
//!   tell a repeated request from a new one.
//! * LEASE RENEW: CDW12 milliseconds from receipt (0 ends the lease at once), CDW2-3 version, CDW14-15
//!   term, as in DELETE. A lower term: `StaleTerm`; a lower version than the SSD has seen in that term:
//!   `StaleVersion`; a length out of [`SERVING_LEASE_MS`]: `InvalidField`. Before the first renewal an SSD
//!   serves without a lease.
//! * MAP SET: a map as [`crate::placement::FleetMap::encode`] gives it, zero-padded to dwords. A lower
//!   term: `StaleTerm`; a lower epoch than the SSD's: `StaleVersion`; the same epoch with another term is
//!   taken.
//! * MAP GET: fills the buffer with as much of the map as fits; DW0 is the map's length in bytes, 0 if
//!   there is none. CDW12 bit 0: the map that the SSD holds as a voter.

mod entry;

pub use entry::{EntryError, Limits, VolumeEntry};

use core::mem::{offset_of, size_of};
use core::ops::RangeInclusive;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Vendor admin opcodes.
pub mod opcode {
    /// VOLUME ADD.
    pub const VOLUME_ADD: u8 = 0xC1;
    /// VOLUME LIST.
    pub const VOLUME_LIST: u8 = 0xC2;
    /// VOLUME DELETE.
    pub const VOLUME_DELETE: u8 = 0xC4;
    /// VOLUME CHMOD.
    pub const VOLUME_CHMOD: u8 = 0xC5;
    /// LEASE RENEW.
    pub const LEASE_RENEW: u8 = 0xC8;
    /// MAP SET.
    pub const MAP_SET: u8 = 0xC9;
    /// MAP GET.
    pub const MAP_GET: u8 = 0xCA;
    /// MAP HOLD ([`crate::voting::Hold`]).
    pub const MAP_HOLD: u8 = 0xD1;
    /// TERM TAKE ([`crate::voting::TermTake`]).
    pub const TERM_TAKE: u8 = 0xD2;
    /// ACTIVATE ([`crate::voting::Activation`]).
    pub const ACTIVATE: u8 = 0xD5;
    /// LEASE ASK ([`crate::voting::Ask`]).
    pub const LEASE_ASK: u8 = 0xD9;
    /// SETTLE: make a volume's copies equal to the first copy of each group, or report the progress of it.
    pub const SETTLE: u8 = 0xDD;
    /// PEER READ ([`crate::pull::PeerRead`]).
    pub const PEER_READ: u8 = 0xDE;
    /// CLIENT END ([`crate::client_end::ClientEnd`]).
    pub const CLIENT_END: u8 = 0xE0;
    /// REPAIR ([`crate::scrub::RepairOrder`]).
    pub const REPAIR: u8 = 0xE4;
    /// OPENING ([`crate::ssd_identity::KnownOpening`]).
    pub const OPENING: u8 = 0xE8;
}

/// MAP GET, CDW12: the map that a voter holds, instead of the active one.
pub const GET_HELD: u32 = 1;

/// Longest volume name, bytes of UTF-8.
pub const NAME_BYTES: usize = 64;
/// Room for labels, bytes.
pub const LABEL_BYTES: usize = 1024;
/// Most readers a volume can list one by one.
pub const MAX_READERS: usize = 512;
/// Number of request ids that an entry remembers.
pub const REQUEST_IDS: usize = 8;
/// Most replicas a volume can have.
pub const MAX_REPLICAS: u8 = 4;

/// Milliseconds of a write lease that an SSD accepts, beside 0 (no lease). The shortest is a tenth of the
/// daemon's shortest lease, and far longer than a write takes. The longest is the daemon's longest lease, so
/// it bounds how long a dead writer stays the writer.
pub const WRITE_LEASE_MS: RangeInclusive<u32> = 100..=3_600_000;
/// Milliseconds of a serving lease that an SSD accepts, beside 0, which ends the lease. The fleet's is 300
/// ms, and simulators use 20. With a shorter one no renewal would come in time. The longest bounds how long
/// an SSD that the daemon does not reach serves by an old map.
pub const SERVING_LEASE_MS: RangeInclusive<u32> = 10..=60_000;

/// Whether an SSD accepts a lease of `ms` milliseconds.
pub fn takes_lease(ms: u32, lengths: &RangeInclusive<u32>) -> bool {
    ms == 0 || lengths.contains(&ms)
}

/// State of a volume in the permission table.
pub mod state {
    /// Serving I/O.
    pub const ACTIVE: u8 = 1;
    /// Deleted; its pages are being swept.
    pub const DELETING: u8 = 2;
}

/// Flags of a permission entry.
pub mod entry_flags {
    /// A write lease ended before all its writes were known to be on all replicas, so replicas may differ.
    pub const UNSETTLED: u8 = 1;
}

/// The permission entry as bytes: 4 KiB, little-endian, CRC-32C over everything before the last four bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawEntry {
    /// `GNVE`.
    pub magic: [u8; 4],
    /// Format version, [`RawEntry::FORMAT`].
    pub format: U16,
    /// Volume id.
    pub vid: U16,
    /// Generation of the volume id: a deleted and re-created volume differs in it.
    pub generation: U32,
    /// Lease epoch: grows with each grant of the write lease.
    pub lease_epoch: U32,
    /// Version of this entry; an SSD refuses a version that is not newer.
    pub version: U64,
    /// Term of the daemon that wrote the entry.
    pub term: U64,
    /// Capacity in blocks of 4 KiB.
    pub capacity_blocks: U64,
    /// Hash factor of the volume's placement.
    pub factor: U64,
    /// Duration of the write lease, in milliseconds from the moment the SSD accepts the entry; 0 = none.
    pub lease_ms: U32,
    /// Client that created the volume.
    pub owner: U16,
    /// Client that holds the write lease; 0 = none.
    pub writer: U16,
    /// [`state`].
    pub state: u8,
    /// Number of replicas.
    pub replicas: u8,
    /// log2 of the chunk, in blocks (4 = 64 KiB).
    pub chunk_shift: u8,
    /// 1: any client may read.
    pub any_reader: u8,
    /// Number of entries of `readers` in use.
    pub reader_count: U16,
    /// Bytes of `name` in use.
    pub name_len: U16,
    /// Bytes of `labels` in use.
    pub labels_len: U16,
    /// [`entry_flags`].
    pub flags: u8,
    /// Reserved.
    pub reserved: [u8; 5],
    /// Ids of the last requests that changed the entry, newest first.
    pub request_ids: [[u8; 16]; REQUEST_IDS],
    /// Name, UTF-8.
    pub name: [u8; NAME_BYTES],
    /// Labels, `key=value` lines in UTF-8.
    pub labels: [u8; LABEL_BYTES],
    /// Clients that may read.
    pub readers: [U16; MAX_READERS],
    /// Bytes per second that this SSD lets the volume read and write together; 0 = no limit.
    pub max_bytes_per_s: U64,
    /// Commands per second, reads and writes together; 0 = no limit.
    pub max_iops: U32,
    /// When an operator last had copies of the volume merged that had all lost writes (rule 17). Seconds
    /// since 1970; 0 = never.
    pub salvaged_s: U32,
    /// Reserved.
    pub reserved2: [u8; 1764],
    /// CRC-32C of the bytes before.
    pub crc: U32,
}
/// Bytes of a permission entry.
pub const ENTRY_BYTES: usize = 4096;
const _: () = assert!(size_of::<RawEntry>() == ENTRY_BYTES);
const _: () = assert!(offset_of!(RawEntry, flags) == 66);
const _: () = assert!(offset_of!(RawEntry, capacity_blocks) == 32 && offset_of!(RawEntry, state) == 56);
const _: () =
    assert!(offset_of!(RawEntry, max_bytes_per_s) == 2312 && offset_of!(RawEntry, max_iops) == 2320);
const _: () =
    assert!(offset_of!(RawEntry, request_ids) == 72 && offset_of!(RawEntry, crc) == ENTRY_BYTES - 4);

impl RawEntry {
    /// Magic of an entry.
    pub const MAGIC: [u8; 4] = *b"GNVE";
    /// Version of this format.
    pub const FORMAT: u16 = 1;
}

/// A deleted volume, as VOLUME LIST reports it: 192 bytes, little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawTombstone {
    /// `GNVT`.
    pub magic: [u8; 4],
    /// Format version, 1.
    pub format: U16,
    /// Volume id.
    pub vid: U16,
    /// The generation that was deleted.
    pub generation: U32,
    /// Seconds since its blocks were swept.
    pub age_s: U32,
    /// Version of the deletion.
    pub version: U64,
    /// Term of the daemon that deleted it.
    pub term: U64,
    /// Ids of the last requests that changed the entry, newest first; unused ones are zeros.
    pub request_ids: [[u8; 16]; REQUEST_IDS],
    /// Reserved.
    pub reserved: [u8; 32],
}
/// CDW13 of LIST: the volumes that are gone.
pub const LIST_TOMBSTONES: u32 = 1;
/// Bytes of a tombstone.
pub const TOMBSTONE_BYTES: usize = 192;
const _: () =
    assert!(size_of::<RawTombstone>() == TOMBSTONE_BYTES && offset_of!(RawTombstone, request_ids) == 32);
/// How long an SSD remembers a deleted volume.
pub const TOMBSTONE_HOURS: u64 = 24;

impl RawTombstone {
    /// Magic of a tombstone.
    pub const MAGIC: [u8; 4] = *b"GNVT";
    /// Version of this format.
    pub const FORMAT: u16 = 1;
}

#[cfg(test)]
mod tests;
