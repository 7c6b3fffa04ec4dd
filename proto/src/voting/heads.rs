// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The structures of 64 bytes: MAP HOLD, ACTIVATE, LEASE ASK.

use super::{FORMAT, HEAD_BYTES, MapName, VotingError, check, length, seal, with_map};
use crate::nvme::Sqe;
use crate::vendor::opcode;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// MAP HOLD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The term of the daemon that proposes the map.
    pub term: u64,
    /// Number of the daemon's start.
    pub instance: u64,
    /// Id of the array.
    pub array: [u8; 16],
    /// Epoch of the map.
    pub epoch: u64,
    /// The epoch that the patch changes; 0: the map is whole.
    pub base: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHold {
    magic: [u8; 4],
    format: U16,
    reserved: U16,
    term: U64,
    instance: U64,
    array: [u8; 16],
    epoch: U64,
    base: U64,
    length: U32,
    crc: U32,
}
const _: () = assert!(size_of::<RawHold>() == HEAD_BYTES && offset_of!(RawHold, crc) == 60);

impl Hold {
    /// The bytes of the command's data, padded to dwords.
    ///
    /// # Panics
    /// If `map` is longer than [`HELD_MAP_BYTES`](super::HELD_MAP_BYTES).
    pub fn encode(&self, map: &[u8]) -> Vec<u8> {
        let raw = RawHold {
            magic: *b"GNVH",
            format: FORMAT.into(),
            reserved: 0.into(),
            term: self.term.into(),
            instance: self.instance.into(),
            array: self.array,
            epoch: self.epoch.into(),
            base: self.base.into(),
            length: length(map),
            crc: 0.into(),
        };
        with_map(raw.as_bytes(), map)
    }

    /// Decodes and checks the data. Returns the bytes of the map or patch, too; bytes after them are ignored.
    ///
    /// # Errors
    /// [`VotingError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), VotingError> {
        let (raw, rest) = RawHold::ref_from_prefix(bytes).map_err(|_| VotingError::Length)?;
        let map = rest.get(..raw.length.get() as usize).ok_or(VotingError::Length)?;
        check(&bytes[..HEAD_BYTES + map.len()], *b"GNVH", raw.format, offset_of!(RawHold, crc))?;
        if raw.reserved.get() != 0 || map.is_empty() {
            return Err(VotingError::Field);
        }
        let hold = Self {
            term: raw.term.get(),
            instance: raw.instance.get(),
            array: raw.array,
            epoch: raw.epoch.get(),
            base: raw.base.get(),
        };
        Ok((hold, map))
    }
}

/// ACTIVATE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Activation {
    /// Id of the array.
    pub array: [u8; 16],
    /// The map to activate.
    pub map: MapName,
    /// The epoch that the patch changes; 0: the map is whole, or the command means the held map.
    pub base: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawActivation {
    magic: [u8; 4],
    format: U16,
    reserved: U16,
    array: [u8; 16],
    epoch: U64,
    base: U64,
    digest: U64,
    length: U32,
    reserved2: [u8; 8],
    crc: U32,
}
const _: () = assert!(size_of::<RawActivation>() == HEAD_BYTES && offset_of!(RawActivation, crc) == 60);

impl Activation {
    /// The bytes of the command's data, padded to dwords. Without a map the SSD activates the one that it
    /// holds.
    ///
    /// # Panics
    /// If `map` is longer than [`HELD_MAP_BYTES`](super::HELD_MAP_BYTES).
    pub fn encode(&self, map: Option<&[u8]>) -> Vec<u8> {
        let map = map.unwrap_or_default();
        let raw = RawActivation {
            magic: *b"GNVA",
            format: FORMAT.into(),
            reserved: 0.into(),
            array: self.array,
            epoch: self.map.epoch.into(),
            base: self.base.into(),
            digest: self.map.digest.into(),
            length: length(map),
            reserved2: [0; 8],
            crc: 0.into(),
        };
        with_map(raw.as_bytes(), map)
    }

    /// Decodes and checks the data. `None` instead of map bytes: the command means the held map. Bytes after
    /// the map are ignored.
    ///
    /// # Errors
    /// [`VotingError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Option<&[u8]>), VotingError> {
        let (raw, rest) = RawActivation::ref_from_prefix(bytes).map_err(|_| VotingError::Length)?;
        let map = rest.get(..raw.length.get() as usize).ok_or(VotingError::Length)?;
        check(&bytes[..HEAD_BYTES + map.len()], *b"GNVA", raw.format, offset_of!(RawActivation, crc))?;
        let has_base = map.is_empty() && raw.base.get() != 0;
        if raw.reserved.get() != 0 || raw.reserved2 != [0; 8] || has_base {
            return Err(VotingError::Field);
        }
        let map_name = MapName { epoch: raw.epoch.get(), digest: raw.digest.get() };
        let activation = Self { array: raw.array, map: map_name, base: raw.base.get() };
        Ok((activation, (!map.is_empty()).then_some(map)))
    }
}

/// LEASE ASK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Number of the asking SSD: its index in the map.
    pub ssd: u16,
    /// Id of the array.
    pub array: [u8; 16],
    /// Epoch of the map by which the SSD serves.
    pub epoch: u64,
    /// The incarnation of its content.
    pub incarnation: u32,
    /// How often the SSD was started with this content.
    pub opening: u32,
    /// The SSD's uuid; zero: not stated.
    pub uuid: [u8; 16],
    /// The SSD asks for nothing: it has given its lease up, and does not ask again.
    pub is_goodbye: bool,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAsk {
    magic: [u8; 4],
    format: U16,
    ssd: U16,
    array: [u8; 16],
    epoch: U64,
    incarnation: U32,
    opening: U32,
    uuid: [u8; 16],
    goodbye: u8,
    reserved: [u8; 3],
    crc: U32,
}
const _: () = assert!(size_of::<RawAsk>() == HEAD_BYTES && offset_of!(RawAsk, crc) == 60);

impl Ask {
    /// The bytes.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let raw = RawAsk {
            magic: *b"GNVL",
            format: FORMAT.into(),
            ssd: self.ssd.into(),
            array: self.array,
            epoch: self.epoch.into(),
            incarnation: self.incarnation.into(),
            opening: self.opening.into(),
            uuid: self.uuid,
            goodbye: self.is_goodbye.into(),
            reserved: [0; 3],
            crc: 0.into(),
        };
        let bytes = seal(raw.as_bytes().to_vec(), offset_of!(RawAsk, crc));
        bytes.try_into().expect("the structure's size is asserted")
    }

    /// Decodes and checks.
    ///
    /// # Errors
    /// [`VotingError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, VotingError> {
        let bytes = bytes.get(..HEAD_BYTES).ok_or(VotingError::Length)?;
        let raw = RawAsk::ref_from_bytes(bytes).map_err(|_| VotingError::Length)?;
        check(bytes, *b"GNVL", raw.format, offset_of!(RawAsk, crc))?;
        if raw.reserved != [0; 3] || raw.goodbye > 1 {
            return Err(VotingError::Field);
        }
        Ok(Self {
            ssd: raw.ssd.get(),
            array: raw.array,
            epoch: raw.epoch.get(),
            incarnation: raw.incarnation.get(),
            opening: raw.opening.get(),
            uuid: raw.uuid,
            is_goodbye: raw.goodbye == 1,
        })
    }

    /// The command that carries the question. The queue adds flags, id and data pointer.
    #[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
    pub fn command() -> Sqe {
        let cdw10 = (HEAD_BYTES as u32 / 4).into();
        Sqe { opcode: opcode::LEASE_ASK, nsid: 1.into(), cdw10, ..Sqe::default() }
    }
}
