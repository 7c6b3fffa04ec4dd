// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Structures of repair: the data of SETTLE, and the log page of a fill. Both have 64 bytes.
//! `docs/formats-fleet.md` has the byte boxes.

use crate::slba::Vid;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of each of the structures.
pub const REPAIR_BYTES: usize = 64;
/// Log page of the fill.
pub const FILL_LID: u8 = 0xC3;
pub(crate) const FORMAT: u16 = 1;
pub(crate) const NO_SSD: u16 = u16::MAX;
pub(crate) const CRC_AT: usize = REPAIR_BYTES - 4;

/// Why a structure of repair was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairError {
    /// Wrong length, magic or version.
    Format,
    /// The checksum does not match.
    Checksum,
    /// A field is out of its range.
    Field(&'static str),
}

impl core::fmt::Display for RepairError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Format => f.write_str("it is not a structure of repair of this version"),
            Self::Checksum => f.write_str("its checksum does not match"),
            Self::Field(name) => write!(f, "field {name} is out of range"),
        }
    }
}

impl core::error::Error for RepairError {}

pub(crate) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&bytes[..CRC_AT]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(crate) fn check(bytes: &[u8], magic: [u8; 4], format: U16) -> Result<(), RepairError> {
    if bytes[..4] != magic || format.get() != FORMAT {
        return Err(RepairError::Format);
    }
    if bytes[CRC_AT..] != crc32c::crc32c(&bytes[..CRC_AT]).to_le_bytes() {
        return Err(RepairError::Checksum);
    }
    Ok(())
}

/// Data of SETTLE: which volume to settle, and under which map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettleData {
    /// Term of the daemon.
    pub term: u64,
    /// Epoch of the map by which the daemon settles.
    pub epoch: u64,
    /// Id of the array.
    pub array: [u8; 16],
    /// The volume.
    pub vid: Vid,
    /// Generation of the volume.
    pub generation: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSettle {
    magic: [u8; 4],
    format: U16,
    reserved: U16,
    term: U64,
    epoch: U64,
    array: [u8; 16],
    vid: U16,
    reserved2: U16,
    generation: U32,
    reserved3: [u8; 12],
    crc: U32,
}
const _: () = assert!(size_of::<RawSettle>() == REPAIR_BYTES && offset_of!(RawSettle, crc) == CRC_AT);

impl SettleData {
    const MAGIC: [u8; 4] = *b"GNVS";

    /// Encodes the data of the command.
    pub fn encode(&self) -> Vec<u8> {
        let raw = RawSettle {
            magic: Self::MAGIC,
            format: FORMAT.into(),
            reserved: 0.into(),
            term: self.term.into(),
            epoch: self.epoch.into(),
            array: self.array,
            vid: self.vid.get().into(),
            reserved2: 0.into(),
            generation: self.generation.into(),
            reserved3: [0; 12],
            crc: 0.into(),
        };
        seal(raw.as_bytes().to_vec())
    }

    /// Decodes and checks the command's data.
    ///
    /// # Errors
    /// [`RepairError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, RepairError> {
        let raw = RawSettle::ref_from_bytes(bytes).map_err(|_| RepairError::Format)?;
        check(bytes, Self::MAGIC, raw.format)?;
        if raw.reserved.get() != 0 || raw.reserved2.get() != 0 || raw.reserved3 != [0; 12] {
            return Err(RepairError::Field("reserved"));
        }
        Ok(Self {
            term: raw.term.get(),
            epoch: raw.epoch.get(),
            array: raw.array,
            vid: Vid::new(raw.vid.get()).ok_or(RepairError::Field("vid"))?,
            generation: raw.generation.get(),
        })
    }
}

/// State of an SSD's fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FillState {
    /// The SSD has no place that fills.
    Nothing,
    /// The SSD fills.
    Filling,
    /// All its places have filled.
    Filled,
}

/// The log page of a fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FillLog {
    /// State of the fill.
    pub state: FillState,
    /// Epoch of the active map that the state is about.
    pub epoch: u64,
    /// The SSD's incarnation.
    pub incarnation: u32,
    /// The SSD for whose answer the fill waits.
    pub waits_for: Option<u16>,
    /// Blocks that the SSD has compared.
    pub compared: u64,
    /// Number of blocks to compare.
    pub all: u64,
    /// Blocks that the SSD has copied.
    pub pulled: u64,
    /// Copied blocks whose data the other SSD cannot read. They cannot be read on this SSD either.
    pub unreadable: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFill {
    magic: [u8; 4],
    format: U16,
    state: U16,
    epoch: U64,
    incarnation: U32,
    waits_for: U16,
    reserved: U16,
    compared: U64,
    all: U64,
    pulled: U64,
    unreadable: U64,
    reserved2: [u8; 4],
    crc: U32,
}
const _: () = assert!(size_of::<RawFill>() == REPAIR_BYTES && offset_of!(RawFill, crc) == CRC_AT);

impl FillLog {
    const MAGIC: [u8; 4] = *b"GNVF";

    /// The bytes of the log page.
    pub fn encode(&self) -> Vec<u8> {
        let raw = RawFill {
            magic: Self::MAGIC,
            format: FORMAT.into(),
            state: match self.state {
                FillState::Nothing => 0,
                FillState::Filling => 1,
                FillState::Filled => 2,
            }
            .into(),
            epoch: self.epoch.into(),
            incarnation: self.incarnation.into(),
            waits_for: self.waits_for.unwrap_or(NO_SSD).into(),
            reserved: 0.into(),
            compared: self.compared.into(),
            all: self.all.into(),
            pulled: self.pulled.into(),
            unreadable: self.unreadable.into(),
            reserved2: [0; 4],
            crc: 0.into(),
        };
        seal(raw.as_bytes().to_vec())
    }

    /// Decodes and checks the log page.
    ///
    /// # Errors
    /// [`RepairError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, RepairError> {
        let raw = RawFill::ref_from_bytes(bytes).map_err(|_| RepairError::Format)?;
        check(bytes, Self::MAGIC, raw.format)?;
        let state = match raw.state.get() {
            0 => FillState::Nothing,
            1 => FillState::Filling,
            2 => FillState::Filled,
            _ => return Err(RepairError::Field("state")),
        };
        Ok(Self {
            state,
            epoch: raw.epoch.get(),
            incarnation: raw.incarnation.get(),
            waits_for: Some(raw.waits_for.get()).filter(|&ssd| ssd != NO_SSD),
            compared: raw.compared.get(),
            all: raw.all.get(),
            pulled: raw.pulled.get(),
            unreadable: raw.unreadable.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn the_structures_come_back_as_they_went_and_a_flipped_bit_is_found() {
        let _deadline = Deadline::after(LIMIT);
        let settle =
            SettleData { term: 7, epoch: 9, array: [3; 16], vid: Vid::new(5).unwrap(), generation: 2 };
        let state = FillState::Filled;
        let fill = FillLog {
            state,
            epoch: 4,
            incarnation: 6,
            waits_for: None,
            compared: 1,
            all: 2,
            pulled: 3,
            unreadable: 4,
        };
        assert_eq!(SettleData::decode(&settle.encode()), Ok(settle));
        assert_eq!(FillLog::decode(&fill.encode()), Ok(fill));
        let waits = FillLog { waits_for: Some(3), state: FillState::Filling, ..fill };
        assert_eq!(FillLog::decode(&waits.encode()), Ok(waits));
        for bit in 0..REPAIR_BYTES * 8 {
            let (mut a, mut b) = (settle.encode(), fill.encode());
            a[bit / 8] ^= 1 << (bit % 8);
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(SettleData::decode(&a).is_err() && FillLog::decode(&b).is_err(), "bit {bit}");
        }
        assert_eq!(FillLog::decode(&fill.encode()[..63]), Err(RepairError::Format));
        assert_eq!((fill.encode()[6], settle.encode()[40], fill.encode()[20]), (2, 5, 0xFF));
    }
}
