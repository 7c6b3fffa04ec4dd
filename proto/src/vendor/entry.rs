// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The permission entry with checked fields.

use super::{ENTRY_BYTES, MAX_REPLICAS, RawEntry, entry_flags, state};
use crate::slba::{ClientId, Vid};
use alloc::string::String;
use alloc::vec::Vec;
use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// A checked permission entry. It tells a restarted daemon all that it needs to know of a volume.
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
    /// The volume is deleted, and its blocks are being swept.
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
    /// Replicas may differ until the volume is settled. It has no writer meanwhile.
    pub unsettled: bool,
    /// Lease epoch.
    pub lease_epoch: u32,
    /// Milliseconds that the write lease runs from receipt.
    pub lease_ms: u32,
    /// Ids of the last requests, newest first.
    pub request_ids: Vec<[u8; 16]>,
    /// Rate limits that each SSD applies to the volume.
    pub limits: Limits,
    /// When an operator last had copies merged that had all lost writes (rule 17), in seconds since 1970. 0:
    /// never.
    pub salvaged_s: u32,
}

/// Rate limits of one SSD for a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Commands per second; 0 = no limit.
    pub max_iops: u32,
    /// Bytes per second; 0 = no limit.
    pub max_bytes_per_s: u64,
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
    /// A field has a value that is not allowed.
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
        raw.salvaged_s = self.salvaged_s.into();
        raw.crc = crc32c::crc32c(&raw.as_bytes()[..ENTRY_BYTES - 4]).into();
        raw
    }

    /// Decodes and checks an entry.
    ///
    /// # Errors
    /// [`EntryError`] names the fault. Nothing of a faulty entry is used.
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
            salvaged_s: raw.salvaged_s.get(),
        })
    }

    /// Whether the client may read the volume: its readers and its writer may. The owner has no right of its
    /// own.
    pub fn may_read(&self, client: ClientId) -> bool {
        self.any_reader || self.writer == Some(client) || self.readers.contains(&client)
    }
}
