// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of Identify Controller in which an SSD states its capacity, identity and abilities.
//!
//! ```text
//!   280              296
//!  +----------------+
//!  | TNVMCAP, bytes |
//!  +----------------+
//!  3072     3076     3078    3080          3084   3088               3104
//!  +--------+--------+-------+-------------+------+------------------+
//!  | "GNSI" | format | flags | incarnation |  0   | uuid             |
//!  +--------+--------+-------+-------------+------+------------------+
//! ```
//! flags: bit 0 the SSD accepts fleet maps of format 3, bit 1 it has lost acknowledged writes. An SSD of an
//! earlier version has zeros there.
//!
//! OPENING: how often the SSD was opened, as the daemon knows it and as the SSD counts.

use crate::nvme::Sqe;
use crate::vendor::opcode;
use core::mem::size_of;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Offset of the vendor-specific part in Identify Controller.
pub const IDENTITY_AT: usize = 3072;

/// Offset and length of the Total NVM Capacity in Identify Controller.
const TNVMCAP_AT: usize = 280;
const TNVMCAP_BYTES: usize = 16;

const FORMAT: u16 = 1;
const TAKES_MAP3: u16 = 1;
const LOSSY: u16 = 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 4],
    format: U16,
    flags: U16,
    incarnation: U32,
    reserved: U32,
    uuid: [u8; 16],
}
const _: () = assert!(size_of::<Raw>() == 32);

/// Identity and abilities of an SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SsdSays {
    /// The SSD's uuid.
    pub uuid: [u8; 16],
    /// Incarnation: the number of its content (rule 1a).
    pub incarnation: u32,
    /// The SSD accepts fleet maps of format 3, and can vote on them.
    pub takes_map3: bool,
    /// The SSD has lost acknowledged writes, and no map has recorded that it has them back.
    pub is_lossy: bool,
    /// Capacity in bytes; 0: not stated.
    pub capacity_bytes: u64,
}

impl SsdSays {
    /// Writes the fields into Identify Controller.
    pub fn put(&self, identify: &mut [u8; 4096]) {
        let flags = if self.takes_map3 { TAKES_MAP3 } else { 0 } | if self.is_lossy { LOSSY } else { 0 };
        let raw = Raw {
            magic: *b"GNSI",
            format: FORMAT.into(),
            flags: flags.into(),
            incarnation: self.incarnation.into(),
            reserved: 0.into(),
            uuid: self.uuid,
        };
        identify[IDENTITY_AT..IDENTITY_AT + size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        let capacity = u128::from(self.capacity_bytes).to_le_bytes();
        identify[TNVMCAP_AT..TNVMCAP_AT + TNVMCAP_BYTES].copy_from_slice(&capacity);
    }

    /// Reads the fields from Identify Controller; `None`: they are absent, or of a format that this version
    /// does not know.
    pub fn of(identify: &[u8]) -> Option<Self> {
        let (raw, _) = Raw::ref_from_prefix(identify.get(IDENTITY_AT..)?).ok()?;
        let capacity = identify.get(TNVMCAP_AT..)?.first_chunk::<TNVMCAP_BYTES>()?;
        let flags = raw.flags.get();
        let is_known = raw.magic == *b"GNSI" && raw.format.get() == FORMAT && raw.reserved.get() == 0;
        (is_known && flags & !(TAKES_MAP3 | LOSSY) == 0).then_some(Self {
            uuid: raw.uuid,
            incarnation: raw.incarnation.get(),
            takes_map3: flags & TAKES_MAP3 != 0,
            is_lossy: flags & LOSSY != 0,
            capacity_bytes: u64::try_from(u128::from_le_bytes(*capacity)).unwrap_or(u64::MAX),
        })
    }
}

/// The command OPENING, which has no data. It names the highest number of openings that the daemon knows of
/// the SSD. The answer's DW0 is the SSD's own number, and DW1 names the start that counted it. An SSD that
/// has a lower number is an older image, and serves no more reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownOpening(pub u32);

impl KnownOpening {
    /// Encodes the command.
    pub fn command(self) -> Sqe {
        Sqe { opcode: opcode::OPENING, nsid: 1.into(), cdw12: self.0.into(), ..Sqe::default() }
    }

    /// Decodes the command.
    pub fn of(sqe: &Sqe) -> Self {
        Self(sqe.cdw12.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn golden_opening() {
        let _deadline = Deadline::after(LIMIT);
        let sqe = KnownOpening(0x0102_0304).command();
        let bytes = sqe.as_bytes();
        assert_eq!((bytes[0], bytes[4]), (0xE8, 1));
        assert_eq!(bytes[48..52], [4, 3, 2, 1]);
        assert!(bytes[8..48].iter().chain(&bytes[52..]).all(|&byte| byte == 0));
        assert_eq!(KnownOpening::of(&sqe), KnownOpening(0x0102_0304));
    }

    #[test]
    fn what_an_ssd_says_comes_back_and_zeros_say_nothing() {
        let _deadline = Deadline::after(LIMIT);
        let mut identify = [0; 4096];
        assert_eq!(SsdSays::of(&identify), None);
        for (takes_map3, is_lossy) in [(true, false), (false, true), (true, true)] {
            let (uuid, incarnation, capacity_bytes) = ([5; 16], 0x0102_0304, 0x0A_0000_1000);
            let says = SsdSays { uuid, incarnation, takes_map3, is_lossy, capacity_bytes };
            says.put(&mut identify);
            assert_eq!(SsdSays::of(&identify), Some(says));
        }
        assert_eq!(identify[3072..3084], *b"GNSI\x01\x00\x03\x00\x04\x03\x02\x01");
        assert_eq!(identify[280..296], *b"\0\x10\0\0\x0a\0\0\0\0\0\0\0\0\0\0\0");
        identify[288] = 1;
        assert_eq!(SsdSays::of(&identify).unwrap().capacity_bytes, u64::MAX, "beyond 2^64");
        identify[3078] = 4;
        assert_eq!(SsdSays::of(&identify), None, "a flag that is not known");
        assert_eq!(SsdSays::of(&identify[..100]), None);
    }
}
