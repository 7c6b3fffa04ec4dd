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

use crate::slba::{ClientId, Vid};
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use core::ops::RangeInclusive;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

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
    /// SETTLE: make a volume's copies those of each group's first, or say how far that is.
    pub const SETTLE: u8 = 0xDD;
    /// PEER READ ([`crate::pull::PeerRead`]).
    pub const PEER_READ: u8 = 0xDE;
    /// REPAIR ([`crate::scrub::RepairOrder`]).
    pub const REPAIR: u8 = 0xE4;
}

/// MAP GET, CDW12: the map that a voter holds, not the active one.
pub const GET_HELD: u32 = 1;

/// Longest volume name, bytes of UTF-8.
pub const NAME_BYTES: usize = 64;
/// Room for labels, bytes.
pub const LABEL_BYTES: usize = 1024;
/// Most readers a volume can list one by one.
pub const MAX_READERS: usize = 512;
/// Request ids an entry remembers.
pub const REQUEST_IDS: usize = 8;
/// Most replicas a volume can have.
pub const MAX_REPLICAS: u8 = 4;

/// Milliseconds of a write lease that an SSD takes, beside 0, which is none. The shortest is a tenth of what
/// the daemon grants at least, and far above the time of a write. The longest is what the daemon grants at
/// most: a dead writer keeps its place no longer.
pub const WRITE_LEASE_MS: RangeInclusive<u32> = 100..=3_600_000;
/// Milliseconds of a serving lease that an SSD takes, beside 0, which ends it. The fleet's is 300 and
/// simulators use 20. Below the shortest, no renewal would come in time. The longest bounds how long an SSD
/// that the daemon does not reach goes on by an old map.
pub const SERVING_LEASE_MS: RangeInclusive<u32> = 10..=60_000;

/// Whether an SSD takes a lease of so many milliseconds.
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
    /// A write lease ended before all its writes were known to be on all replicas: they may differ.
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
    /// Milliseconds the write lease runs from the moment the SSD takes the entry; 0 = none.
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
    /// Commands per second of the same kind; 0 = no limit.
    pub max_iops: U32,
    /// Reserved.
    pub reserved2: [u8; 1768],
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

/// A checked permission entry: it tells a restarted daemon all it needs of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeEntry {
    /// Volume id.
    pub vid: Vid,
    /// Generation of the volume id.
    pub generation: u32,
    /// Version of this entry.
    pub version: u64,
    /// Term of the daemon that wrote it.
    pub term: u64,
    /// Deleted and being swept.
    pub deleting: bool,
    /// Name, 1 to 64 bytes.
    pub name: String,
    /// Labels, `key=value` lines.
    pub labels: String,
    /// Capacity in blocks of 4 KiB, 1 to 2^32.
    pub capacity_blocks: u64,
    /// Number of replicas, 1 to [`MAX_REPLICAS`].
    pub replicas: u8,
    /// log2 of the chunk in blocks, 0 to 12.
    pub chunk_shift: u8,
    /// Hash factor.
    pub factor: u64,
    /// Client that created the volume.
    pub owner: ClientId,
    /// Any client may read.
    pub any_reader: bool,
    /// Clients that may read.
    pub readers: Vec<ClientId>,
    /// Client that holds the write lease.
    pub writer: Option<ClientId>,
    /// Replicas may differ until the volume is settled; it has no writer then.
    pub unsettled: bool,
    /// Lease epoch.
    pub lease_epoch: u32,
    /// Milliseconds that the write lease runs from receipt.
    pub lease_ms: u32,
    /// Ids of the last requests, newest first.
    pub request_ids: Vec<[u8; 16]>,
    /// How fast each SSD lets it go.
    pub limits: Limits,
}

/// How fast one SSD lets a volume go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Commands per second; 0 = no limit.
    pub max_iops: u32,
    /// Bytes per second; 0 = no limit.
    pub max_bytes_per_s: u64,
}

/// A volume that is gone, as VOLUME LIST reports it: 192 bytes, little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawTombstone {
    /// `GNVT`.
    pub magic: [u8; 4],
    /// Format version, 1.
    pub format: U16,
    /// Volume id.
    pub vid: U16,
    /// The generation that died.
    pub generation: U32,
    /// Seconds since its sweep was done.
    pub age_s: U32,
    /// Version of the deletion.
    pub version: U64,
    /// Term of the daemon that deleted it.
    pub term: U64,
    /// Ids of the last requests that changed the entry, newest first; zeros where there were fewer.
    pub request_ids: [[u8; 16]; REQUEST_IDS],
    /// Reserved.
    pub reserved: [u8; 32],
}
/// Bytes of a tombstone.
pub const TOMBSTONE_BYTES: usize = 192;
const _: () =
    assert!(size_of::<RawTombstone>() == TOMBSTONE_BYTES && offset_of!(RawTombstone, request_ids) == 32);
/// How long an SSD remembers a volume that is gone.
pub const TOMBSTONE_HOURS: u64 = 24;

impl RawTombstone {
    /// Magic of a tombstone.
    pub const MAGIC: [u8; 4] = *b"GNVT";
    /// Version of this format.
    pub const FORMAT: u16 = 1;
}

/// Why bytes are not a permission entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryError {
    /// Not 4,096 bytes.
    Length,
    /// Another magic or format version.
    Format,
    /// The checksum does not match.
    Checksum,
    /// A field has a value that it must not have.
    Field(&'static str),
}

impl core::fmt::Display for EntryError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length => write!(f, "a permission entry is {ENTRY_BYTES} bytes"),
            Self::Format => write!(f, "not a permission entry of format {}", RawEntry::FORMAT),
            Self::Checksum => write!(f, "the entry's checksum does not match"),
            Self::Field(name) => write!(f, "the entry's field `{name}` is not valid"),
        }
    }
}

impl VolumeEntry {
    /// Encodes the entry with its checksum.
    ///
    /// # Panics
    /// If a field exceeds its limit; [`Self::decode`] checks the same limits.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "lengths are bounded by the array sizes checked before"
    )]
    pub fn encode(&self) -> alloc::boxed::Box<RawEntry> {
        let mut raw = alloc::boxed::Box::new(RawEntry::new_zeroed());
        raw.magic = RawEntry::MAGIC;
        raw.format = RawEntry::FORMAT.into();
        raw.vid = self.vid.get().into();
        raw.generation = self.generation.into();
        raw.lease_epoch = self.lease_epoch.into();
        raw.version = self.version.into();
        raw.term = self.term.into();
        raw.capacity_blocks = self.capacity_blocks.into();
        raw.factor = self.factor.into();
        raw.lease_ms = self.lease_ms.into();
        raw.owner = self.owner.get().into();
        raw.writer = self.writer.map_or(0, ClientId::get).into();
        raw.state = if self.deleting { state::DELETING } else { state::ACTIVE };
        raw.replicas = self.replicas;
        raw.chunk_shift = self.chunk_shift;
        raw.any_reader = u8::from(self.any_reader);
        raw.flags = if self.unsettled { entry_flags::UNSETTLED } else { 0 };
        raw.reader_count = (self.readers.len() as u16).into();
        raw.name_len = (self.name.len() as u16).into();
        raw.labels_len = (self.labels.len() as u16).into();
        raw.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        raw.labels[..self.labels.len()].copy_from_slice(self.labels.as_bytes());
        for (slot, reader) in raw.readers[..self.readers.len()].iter_mut().zip(&self.readers) {
            *slot = reader.get().into();
        }
        for (slot, id) in raw.request_ids.iter_mut().zip(&self.request_ids) {
            *slot = *id;
        }
        raw.max_iops = self.limits.max_iops.into();
        raw.max_bytes_per_s = self.limits.max_bytes_per_s.into();
        raw.crc = crc32c::crc32c(&raw.as_bytes()[..ENTRY_BYTES - 4]).into();
        raw
    }

    /// Decodes and checks an entry.
    ///
    /// # Errors
    /// [`EntryError`] names the fault; nothing of a wrong entry is used.
    pub fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        let raw = RawEntry::ref_from_bytes(bytes).map_err(|_| EntryError::Length)?;
        if raw.magic != RawEntry::MAGIC || raw.format.get() != RawEntry::FORMAT {
            return Err(EntryError::Format);
        }
        if raw.crc.get() != crc32c::crc32c(&bytes[..ENTRY_BYTES - 4]) {
            return Err(EntryError::Checksum);
        }
        let field = |ok: bool, name| if ok { Ok(()) } else { Err(EntryError::Field(name)) };
        let client = |raw: U16, name| ClientId::new(raw.get()).ok_or(EntryError::Field(name));
        field(matches!(raw.state, state::ACTIVE | state::DELETING), "state")?;
        field((1..=MAX_REPLICAS).contains(&raw.replicas), "replicas")?;
        field(raw.chunk_shift <= 12, "chunk_shift")?;
        field(raw.any_reader <= 1, "any_reader")?;
        field(raw.flags & !entry_flags::UNSETTLED == 0, "flags")?;
        field(raw.flags == 0 || raw.writer.get() == 0, "flags")?;
        field((1..=1 << 32).contains(&raw.capacity_blocks.get()), "capacity_blocks")?;
        field(raw.reserved.iter().chain(&raw.reserved2).all(|&b| b == 0), "reserved")?;
        let text = |field: &[u8], len: U16, name| {
            let used = field.get(..usize::from(len.get())).ok_or(EntryError::Field(name))?;
            core::str::from_utf8(used).map(String::from).map_err(|_| EntryError::Field(name))
        };
        let name = text(&raw.name, raw.name_len, "name")?;
        field(!name.is_empty(), "name")?;
        let count = usize::from(raw.reader_count.get());
        let readers = raw.readers.get(..count).ok_or(EntryError::Field("reader_count"))?;
        Ok(Self {
            vid: Vid::new(raw.vid.get()).ok_or(EntryError::Field("vid"))?,
            generation: raw.generation.get(),
            version: raw.version.get(),
            term: raw.term.get(),
            deleting: raw.state == state::DELETING,
            name,
            labels: text(&raw.labels, raw.labels_len, "labels")?,
            capacity_blocks: raw.capacity_blocks.get(),
            replicas: raw.replicas,
            chunk_shift: raw.chunk_shift,
            factor: raw.factor.get(),
            owner: client(raw.owner, "owner")?,
            any_reader: raw.any_reader == 1,
            readers: readers.iter().map(|&r| client(r, "readers")).collect::<Result<_, _>>()?,
            writer: if raw.writer.get() == 0 { None } else { Some(client(raw.writer, "writer")?) },
            unsettled: raw.flags & entry_flags::UNSETTLED != 0,
            lease_epoch: raw.lease_epoch.get(),
            lease_ms: raw.lease_ms.get(),
            request_ids: raw.request_ids.iter().filter(|id| **id != [0; 16]).copied().collect(),
            limits: Limits { max_iops: raw.max_iops.get(), max_bytes_per_s: raw.max_bytes_per_s.get() },
        })
    }

    /// The client may read the volume: the owner does not automatically; a writer does.
    pub fn may_read(&self, client: ClientId) -> bool {
        self.any_reader || self.writer == Some(client) || self.readers.contains(&client)
    }
}

#[cfg(test)]
mod tests;
