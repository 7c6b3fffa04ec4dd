// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVMe: the 64-byte submission entry, the 16-byte completion entry, the SGL descriptor, opcodes, Identify.
//!
//! Source: NVM Express Base Specification 2.x and NVM Command Set Specification 1.x. Offsets are asserted
//! below.

use crate::slba::{Slba, Stamp};
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A scatter-gather descriptor, keyed data block form (base specification, SGL Keyed Data Block).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct KeyedSgl {
    /// Address in the memory of the sender of the command.
    pub address: U64,
    /// Length in bytes, 24 bits, little-endian.
    pub length: [u8; 3],
    /// Remote key that authorises the transfer.
    pub key: U32,
    /// Descriptor type (high nibble) and subtype (low nibble).
    pub kind: u8,
}
const _: () = assert!(
    size_of::<KeyedSgl>() == 16 && offset_of!(KeyedSgl, key) == 11 && offset_of!(KeyedSgl, kind) == 15
);

impl KeyedSgl {
    /// Type 4h, subtype 0: keyed data block by address.
    pub const KEYED: u8 = 0x40;
    /// Longest transfer one descriptor can name.
    pub const MAX_BYTES: u32 = (1 << 24) - 1;

    /// A keyed descriptor. `bytes` must fit in 24 bits.
    pub fn keyed(address: u64, bytes: u32, key: u32) -> Self {
        assert!(bytes <= Self::MAX_BYTES, "an SGL descriptor names at most 2^24-1 bytes");
        let [a, b, c, _] = bytes.to_le_bytes();
        Self { address: address.into(), length: [a, b, c], key: key.into(), kind: Self::KEYED }
    }

    /// The length in bytes.
    pub fn bytes(&self) -> u32 {
        u32::from_le_bytes([self.length[0], self.length[1], self.length[2], 0])
    }
}

/// A submission queue entry. On fabrics it is the command capsule.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Sqe {
    /// Opcode; see [`admin`], [`io`] and [`crate::fabrics::OPCODE`].
    pub opcode: u8,
    /// Fused bits 1:0, PSDT bits 7:6 (01b on fabrics).
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// Namespace; bytes 4.. hold the fabrics command type when the opcode is 7Fh.
    pub nsid: U32,
    /// CDW2: the fleet-map epoch, in reads and writes.
    pub cdw2: U32,
    /// CDW3: the lease epoch, in reads and writes.
    pub cdw3: U32,
    /// Metadata pointer, unused.
    pub mptr: U64,
    /// SGL descriptor 1.
    pub dptr: KeyedSgl,
    /// CDW10: low half of the starting LBA in reads and writes.
    pub cdw10: U32,
    /// CDW11: high half of the starting LBA in reads and writes.
    pub cdw11: U32,
    /// CDW12: zero-based number of blocks (15:0) and FUA (bit 30) in reads and writes.
    pub cdw12: U32,
    /// CDW13.
    pub cdw13: U32,
    /// CDW14: low half of the write sequence.
    pub cdw14: U32,
    /// CDW15: high half of the write sequence.
    pub cdw15: U32,
}
/// Bytes of a submission entry.
pub const SQE_BYTES: usize = 64;
const _: () = assert!(size_of::<Sqe>() == SQE_BYTES);
const _: () = assert!(offset_of!(Sqe, cid) == 2 && offset_of!(Sqe, nsid) == 4 && offset_of!(Sqe, cdw2) == 8);
const _: () =
    assert!(offset_of!(Sqe, mptr) == 16 && offset_of!(Sqe, dptr) == 24 && offset_of!(Sqe, cdw10) == 40);
const _: () = assert!(offset_of!(Sqe, cdw12) == 48 && offset_of!(Sqe, cdw14) == 56);

/// PSDT = 01b: an SGL is used; mandatory on fabrics.
pub const FLAGS_SGL: u8 = 0x40;
/// Force unit access, CDW12 bit 30.
pub const CDW12_FUA: u32 = 1 << 30;

/// The fields of a read or write command to which GNStor gives its own meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadWrite {
    /// Volume, client and first block.
    pub slba: Slba,
    /// Number of blocks, one-based (1..=65,536).
    pub blocks: u32,
    /// The data must be durable before completion.
    pub fua: bool,
    /// The fleet-map epoch by which the client chose the SSD.
    pub map_epoch: u32,
    /// Stamp of a write; in a read the lease epoch of the reader's grant, sequence 0.
    pub stamp: Stamp,
}

impl ReadWrite {
    /// Writes the fields into an entry.
    pub fn encode(&self, sqe: &mut Sqe) {
        assert!((1..=0x1_0000).contains(&self.blocks), "a command covers 1 to 65,536 blocks");
        let slba = self.slba.0;
        sqe.cdw2 = self.map_epoch.into();
        sqe.cdw3 = self.stamp.lease_epoch.into();
        sqe.cdw10 = low(slba);
        sqe.cdw11 = high(slba);
        sqe.cdw12 = ((self.blocks - 1) | if self.fua { CDW12_FUA } else { 0 }).into();
        sqe.cdw14 = low(self.stamp.sequence);
        sqe.cdw15 = high(self.stamp.sequence);
    }

    /// Reads the fields of an entry. Any value can come out; the firmware checks them.
    pub fn decode(sqe: &Sqe) -> Self {
        let cdw12 = sqe.cdw12.get();
        Self {
            slba: Slba(join(sqe.cdw10, sqe.cdw11)),
            blocks: (cdw12 & 0xFFFF) + 1,
            fua: cdw12 & CDW12_FUA != 0,
            map_epoch: sqe.cdw2.get(),
            stamp: Stamp { lease_epoch: sqe.cdw3.get(), sequence: join(sqe.cdw14, sqe.cdw15) },
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn low(value: u64) -> U32 {
    (value as u32).into()
}

fn high(value: u64) -> U32 {
    low(value >> 32)
}

fn join(low: U32, high: U32) -> u64 {
    u64::from(low.get()) | u64::from(high.get()) << 32
}

/// A completion queue entry. On fabrics it is the response capsule.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Cqe {
    /// DW0: command specific; for a refused read or write [`crate::status::Detail`].
    pub dw0: U32,
    /// DW1: command specific; for a refused read or write the epoch that the refusal is about.
    pub dw1: U32,
    /// Submission queue head pointer.
    pub sqhd: U16,
    /// Submission queue identifier; reserved on fabrics.
    pub sqid: U16,
    /// Command identifier.
    pub cid: U16,
    /// Phase bit 0 (unused on fabrics), status 15:1.
    pub status: U16,
}
/// Bytes of a completion entry.
pub const CQE_BYTES: usize = 16;
const _: () =
    assert!(size_of::<Cqe>() == CQE_BYTES && offset_of!(Cqe, sqhd) == 8 && offset_of!(Cqe, status) == 14);

impl Cqe {
    /// The status without the phase bit, as tools print it (SCT in 10:8, SC in 7:0, DNR in 14).
    pub fn status_word(&self) -> u16 {
        self.status.get() >> 1
    }

    /// Sets the status from the form without the phase bit.
    pub fn set_status_word(&mut self, word: u16) {
        self.status = (word << 1).into();
    }
}

/// Admin opcodes.
pub mod admin {
    #![expect(missing_docs, reason = "names of the specification")]
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0A;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0C;
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// I/O opcodes.
pub mod io {
    #![expect(missing_docs, reason = "names of the specification")]
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Identify CNS values (CDW10 bits 7:0).
pub mod cns {
    /// Identify Namespace.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
}

/// The fields of the 4,096-byte Identify Controller structure that GNStor fills in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentifyController {
    /// Serial number, ASCII, at most 20 bytes.
    pub serial: alloc::string::String,
    /// Model number, ASCII, at most 40 bytes.
    pub model: alloc::string::String,
    /// Firmware revision, ASCII, at most 8 bytes.
    pub firmware: alloc::string::String,
    /// Maximum data transfer size, 2^n pages of 4 KiB.
    pub mdts: u8,
    /// Controller id.
    pub cntlid: u16,
    /// Keep-alive granularity, units of 100 ms.
    pub kas: u16,
    /// Volatile write cache present (0 with power-loss protection).
    pub vwc: u8,
    /// Largest number of outstanding commands on a queue.
    pub maxcmd: u16,
    /// Subsystem NQN.
    pub subnqn: alloc::string::String,
}

impl IdentifyController {
    /// Bytes of the structure on the wire.
    pub const BYTES: usize = 4096;

    /// Encodes the structure (base specification, Identify Controller data structure).
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut b = [0u8; Self::BYTES];
        put_ascii(&mut b[4..24], &self.serial, b' ');
        put_ascii(&mut b[24..64], &self.model, b' ');
        put_ascii(&mut b[64..72], &self.firmware, b' ');
        b[77] = self.mdts;
        b[78..80].copy_from_slice(&self.cntlid.to_le_bytes());
        b[80..84].copy_from_slice(&0x0002_0000u32.to_le_bytes()); // VER 2.0
        b[111] = 1; // CNTRLTYPE: I/O controller
        b[264] = 1; // AVSCC: vendor admin commands carry NDT/NDM
        b[320..322].copy_from_slice(&self.kas.to_le_bytes());
        b[512] = 0x66; // SQES: 64 bytes
        b[513] = 0x44; // CQES: 16 bytes
        b[514..516].copy_from_slice(&self.maxcmd.to_le_bytes());
        b[516..520].copy_from_slice(&1u32.to_le_bytes()); // NN
        b[525] = self.vwc;
        b[536..540].copy_from_slice(&0x0000_0005u32.to_le_bytes()); // SGLS: supported, keyed
        put_ascii(&mut b[768..1024], &self.subnqn, 0);
        b[1792..1796].copy_from_slice(&4u32.to_le_bytes()); // IOCCSZ: 64 bytes
        b[1796..1800].copy_from_slice(&1u32.to_le_bytes()); // IORCSZ: 16 bytes
        b[1803] = 1; // MSDBD
        b
    }

    /// Decodes what [`Self::encode`] writes; unknown fields are ignored.
    pub fn decode(b: &[u8; Self::BYTES]) -> Self {
        Self {
            serial: get_ascii(&b[4..24]),
            model: get_ascii(&b[24..64]),
            firmware: get_ascii(&b[64..72]),
            mdts: b[77],
            cntlid: u16::from_le_bytes([b[78], b[79]]),
            kas: u16::from_le_bytes([b[320], b[321]]),
            maxcmd: u16::from_le_bytes([b[514], b[515]]),
            vwc: b[525],
            subnqn: get_ascii(&b[768..1024]),
        }
    }
}

pub(crate) fn put_ascii(field: &mut [u8], text: &str, fill: u8) {
    field.fill(fill);
    let n = text.len().min(field.len());
    field[..n].copy_from_slice(&text.as_bytes()[..n]);
}

pub(crate) fn get_ascii(field: &[u8]) -> alloc::string::String {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    alloc::string::String::from_utf8_lossy(&field[..end]).trim_end_matches(' ').into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use crate::slba::{Address, ClientId, Vid};
    use proptest::prelude::*;

    #[test]
    fn golden_read_capsule() {
        let _deadline = Deadline::after(LIMIT);
        let mut sqe =
            Sqe { opcode: io::READ, flags: FLAGS_SGL, cid: 0x0102.into(), nsid: 1.into(), ..Sqe::default() };
        sqe.dptr = KeyedSgl::keyed(0x1122_3344_5566_7788, 0x2000, 0xAABB_CCDD);
        let address =
            Address { vid: Vid::new(0x0B0A).unwrap(), client: ClientId::new(0x0D0C).unwrap(), vba: 0x100 };
        ReadWrite {
            slba: Slba::pack(address),
            blocks: 2,
            fua: false,
            map_epoch: 7,
            stamp: Stamp { lease_epoch: 9, sequence: 0x0102_0304_0506_0708 },
        }
        .encode(&mut sqe);
        #[rustfmt::skip]
        let golden: [u8; 64] = [
            0x02, 0x40, 0x02, 0x01, 1, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
            0x00, 0x20, 0x00, 0xDD, 0xCC, 0xBB, 0xAA, 0x40, 0x00, 0x01, 0, 0, 0x0C, 0x0D, 0x0A, 0x0B,
            1, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1,
        ];
        assert_eq!(sqe.as_bytes(), golden);
    }

    #[test]
    fn golden_completion() {
        let _deadline = Deadline::after(LIMIT);
        let mut cqe = Cqe { dw0: 0x0403_0201.into(), sqhd: 5.into(), cid: 0x0908.into(), ..Cqe::default() };
        cqe.set_status_word(0x4286);
        assert_eq!(cqe.as_bytes(), [1, 2, 3, 4, 0, 0, 0, 0, 5, 0, 0, 0, 8, 9, 0x0C, 0x85]);
        assert_eq!(cqe.status_word(), 0x4286);
    }

    proptest! {
        #[test]
        fn read_write_fields_round_trip(
            slba: u64,
            blocks in 1u32..=0x1_0000,
            fua: bool,
            map_epoch: u32,
            (lease_epoch, sequence) in any::<(u32, u64)>(),
        ) {
            let _deadline = Deadline::after(LIMIT);
            let stamp = Stamp { lease_epoch, sequence };
            let fields = ReadWrite { slba: Slba(slba), blocks, fua, map_epoch, stamp };
            let mut sqe = Sqe::default();
            fields.encode(&mut sqe);
            prop_assert_eq!(ReadWrite::decode(&sqe), fields);
        }

        #[test]
        fn any_bytes_decode(bytes: [u8; 64]) {
            let _deadline = Deadline::after(LIMIT);
            let sqe = Sqe::read_from_bytes(&bytes).unwrap();
            let fields = ReadWrite::decode(&sqe);
            prop_assert!((1..=0x1_0000).contains(&fields.blocks));
            prop_assert!(sqe.dptr.bytes() <= KeyedSgl::MAX_BYTES);
        }
    }

    #[test]
    fn identify_round_trips() {
        let _deadline = Deadline::after(LIMIT);
        let identify = IdentifyController {
            serial: "GN0001".into(),
            model: "GNStor emulated SSD".into(),
            firmware: "0.1".into(),
            mdts: 4,
            cntlid: 3,
            kas: 10,
            vwc: 0,
            maxcmd: 128,
            subnqn: "nqn.2026-11.dev.gnstor:ssd.0".into(),
        };
        assert_eq!(IdentifyController::decode(&identify.encode()), identify);
    }
}
