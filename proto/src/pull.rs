// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PEER READ: what an SSD that repairs itself asks the first of a group (rules 13 and 14 of the fleet). The
//! byte boxes are in `docs/formats-fleet.md`.
//!
//! ```text
//!   digests: u64 | u64 | ...                      of a range: one for each 64 blocks
//!   rows:    row | row | ...                      of a range: mapped blocks and known TRIMs, ascending
//!   blocks:  4 KiB of rows, one for each block asked for | 4 KiB of data for each row of kind 1 | ...
//! ```
//! Row and data of a block are of one moment.

use crate::BLOCK_BYTES;
use crate::nvme::Sqe;
use crate::placement::mix64;
use crate::slba::{Stamp, Vid};
use crate::vendor::opcode;
use alloc::vec::Vec;
use core::mem::size_of;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a row.
pub const ROW_BYTES: usize = 32;
/// Largest number of blocks in a question for rows.
pub const MOST_ROWS: u32 = 1024;
/// Largest number of blocks in a question for data. The first and the last of them are at most this far
/// apart.
pub const MOST_BLOCKS: u32 = 64;
/// Number of blocks that one digest covers.
pub const LEAF: u32 = 64;
/// Offset at which the data of blocks begins.
pub const DATA_AT: usize = 4096;
/// CDW12: the answer has data after the rows.
const WITH_DATA: u32 = 1 << 16;
/// CDW12: the SSD may answer from a copy that serves, even if another SSD is the first of the group.
const OF_ANY: u32 = 1 << 17;
/// CDW12: the answer has digests instead of rows.
const DIGESTS: u32 = 1 << 18;

/// What a question asks of an SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The rows of this number of blocks.
    Rows(u32),
    /// Digests of the rows of this number of blocks.
    Digests(u32),
    /// Rows and data of blocks. Bit i stands for the block i after the first.
    Blocks(u64),
}

/// A question of an SSD that repairs itself to the first SSD of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerRead {
    /// Low 32 bits of the map's epoch.
    pub epoch: u32,
    /// The volume.
    pub vid: Vid,
    /// Generation of the volume.
    pub generation: u32,
    /// The first block of the question.
    pub first: u32,
    /// What it asks about these blocks.
    pub wanted: Wanted,
    /// The SSD may answer from any copy that serves; a scrub asks so when it looks for a good copy. Otherwise
    /// the SSD answers only for blocks of groups in which it is the first.
    pub of_any: bool,
}

impl PeerRead {
    /// Length of the answer in bytes.
    pub fn bytes(&self) -> usize {
        match self.wanted {
            Wanted::Rows(blocks) => blocks as usize * ROW_BYTES,
            Wanted::Digests(blocks) => blocks.div_ceil(LEAF) as usize * size_of::<u64>(),
            Wanted::Blocks(mask) => DATA_AT + mask.count_ones() as usize * BLOCK_BYTES as usize,
        }
    }

    /// The blocks of the volume that the question asks about. Block numbers beyond 2^32 - 1 are left out.
    pub fn blocks(&self) -> impl Iterator<Item = u32> + use<> {
        let (count, mask) = match self.wanted {
            Wanted::Rows(blocks) | Wanted::Digests(blocks) => (blocks, None),
            Wanted::Blocks(mask) => (MOST_BLOCKS, Some(mask)),
        };
        let first = self.first;
        (0..count)
            .filter(move |at| mask.is_none_or(|mask| mask >> at & 1 == 1))
            .filter_map(move |at| first.checked_add(at))
    }

    /// The command that carries the question.
    pub fn command(&self) -> Sqe {
        let (flag, count) = match self.wanted {
            Wanted::Rows(blocks) => (0, blocks.into()),
            Wanted::Digests(blocks) => (DIGESTS, blocks.into()),
            Wanted::Blocks(mask) => (WITH_DATA, mask),
        };
        let half = |half: u64| u32::try_from(half).unwrap_or_default().into();
        let flag = if self.of_any { flag | OF_ANY } else { flag };
        let dwords = u32::try_from(self.bytes() / 4).unwrap_or(u32::MAX);
        Sqe {
            opcode: opcode::PEER_READ,
            nsid: 1.into(),
            cdw2: self.epoch.into(),
            cdw10: dwords.into(),
            cdw11: self.generation.into(),
            cdw12: (u32::from(self.vid.get()) | flag).into(),
            cdw13: self.first.into(),
            cdw14: half(count & 0xFFFF_FFFF),
            cdw15: half(count >> 32),
            ..Sqe::default()
        }
    }

    /// Decodes the question of a command; `None`: a field is out of its range.
    pub fn of(sqe: &Sqe) -> Option<Self> {
        let word = sqe.cdw12.get();
        let vid = Vid::new(word.to_le_bytes().first_chunk().map(|low| u16::from_le_bytes(*low))?)?;
        let count = u64::from(sqe.cdw14.get()) | u64::from(sqe.cdw15.get()) << 32;
        let rows = u32::try_from(count).ok().filter(|rows| (1..=MOST_ROWS).contains(rows));
        let of_any = word & OF_ANY != 0;
        let wanted = match (word & !OF_ANY) >> 16 {
            0 => Wanted::Rows(rows?),
            4 => Wanted::Digests(rows?),
            1 if count != 0 => Wanted::Blocks(count),
            _ => return None,
        };
        let (epoch, generation, first) = (sqe.cdw2.get(), sqe.cdw11.get(), sqe.cdw13.get());
        let read = Self { epoch, vid, generation, first, wanted, of_any };
        (sqe.cdw10.get() as usize * 4 == read.bytes()).then_some(read)
    }
}

/// The state of a block on an SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No block, and no record of a TRIM.
    Nothing,
    /// A block with this block sum.
    Block {
        /// The block sum.
        sum: u32,
    },
    /// The block was trimmed; the stamp is that of the TRIM.
    Tombstone,
    /// A block with this block sum whose data cannot be read. The answer has no data for it.
    Unreadable {
        /// The block sum.
        sum: u32,
    },
}

/// One row of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Number of the block.
    pub block: u32,
    /// State of the block.
    pub kind: Kind,
    /// Stamp of the block; zero where there is no block.
    pub stamp: Stamp,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRow {
    block: U32,
    kind: u8,
    reserved: [u8; 3],
    lease_epoch: U32,
    sum: U32,
    sequence: U64,
    reserved2: [u8; 8],
}
const _: () = assert!(size_of::<RawRow>() == ROW_BYTES);

impl Row {
    /// This row's part of a digest, which is the sum of the parts of all rows. An empty row adds zero. Equal
    /// digests of two SSDs mean equal rows, but for a chance of 2^-64.
    #[inline]
    pub fn digest(&self) -> u64 {
        let (kind, sum) = match self.kind {
            Kind::Nothing => return 0,
            Kind::Block { sum } | Kind::Unreadable { sum } => (1, sum),
            Kind::Tombstone => (2, 0),
        };
        let what = mix64(u64::from(self.block) << 32 | u64::from(sum));
        let (epoch, sequence) = (u64::from(self.stamp.lease_epoch), self.stamp.sequence);
        mix64(mix64(what ^ sequence).wrapping_add(epoch << 2 | kind))
    }

    /// Appends the bytes of the row to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, sum) = match self.kind {
            Kind::Nothing => (0, 0),
            Kind::Block { sum } => (1, sum),
            Kind::Tombstone => (2, 0),
            Kind::Unreadable { sum } => (3, sum),
        };
        let raw = RawRow {
            block: self.block.into(),
            kind,
            reserved: [0; 3],
            lease_epoch: self.stamp.lease_epoch.into(),
            sum: sum.into(),
            sequence: self.stamp.sequence.into(),
            reserved2: [0; 8],
        };
        out.extend_from_slice(raw.as_bytes());
    }

    /// Decodes `count` rows; `None`: some are missing, not ascending, or not valid.
    pub fn decode_all(bytes: &[u8], count: usize) -> Option<Vec<Self>> {
        let raw = bytes.get(..count.checked_mul(ROW_BYTES)?)?;
        let rows: Vec<Self> = raw.chunks(ROW_BYTES).map(Self::decode).collect::<Option<_>>()?;
        rows.is_sorted_by(|a, b| a.block < b.block).then_some(rows)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let raw = RawRow::read_from_bytes(bytes).ok()?;
        let kind = match raw.kind {
            0 => Kind::Nothing,
            1 => Kind::Block { sum: raw.sum.get() },
            2 => Kind::Tombstone,
            3 => Kind::Unreadable { sum: raw.sum.get() },
            _ => return None,
        };
        let stamp = Stamp { lease_epoch: raw.lease_epoch.get(), sequence: raw.sequence.get() };
        Some(Self { block: raw.block.get(), kind, stamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};

    #[test]
    fn questions_and_rows_come_back_as_they_went() {
        let _deadline = Deadline::after(LIMIT);
        let vid = Vid::new(5).unwrap();
        for (wanted, bytes, blocks) in [
            (Wanted::Rows(3), 96, &[7, 8, 9][..]),
            (Wanted::Digests(3), 8, &[7, 8, 9][..]),
            (Wanted::Blocks(0b1001), 4096 + 8192, &[7, 10][..]),
            (Wanted::Blocks(1 << 63), 4096 + 4096, &[70][..]),
        ] {
            let read = PeerRead { epoch: 9, vid, generation: 2, first: 7, wanted, of_any: bytes > 96 };
            assert_eq!((PeerRead::of(&read.command()), read.bytes()), (Some(read), bytes));
            assert!(read.blocks().eq(blocks.iter().copied()));
            let short = Sqe { cdw10: 1.into(), ..read.command() };
            assert_eq!(PeerRead::of(&short), None, "the room is another one");
        }
        let out = |count: u64, flag: u32| {
            let wanted = Wanted::Rows(1);
            let read = PeerRead { epoch: 9, vid, generation: 2, first: 7, wanted, of_any: false };
            let [low, high] = [count & 0xFFFF_FFFF, count >> 32].map(|half| u32::try_from(half).unwrap());
            let (cdw12, cdw14, cdw15) = ((5 | flag).into(), low.into(), high.into());
            PeerRead::of(&Sqe { cdw12, cdw14, cdw15, ..read.command() })
        };
        assert_eq!(
            [out(0, 0), out(1025, 0), out(1 << 32, 0), out(0, 1 << 16), out(1, 1 << 19), out(1025, 1 << 18)],
            [None; 6]
        );
        let stamp = Stamp { lease_epoch: 3, sequence: 4 };
        let rows = [
            Row { block: 1, kind: Kind::Block { sum: 6 }, stamp },
            Row { block: 2, kind: Kind::Tombstone, stamp },
            Row { block: 9, kind: Kind::Nothing, stamp: Stamp::default() },
            Row { block: 10, kind: Kind::Unreadable { sum: 7 }, stamp },
        ];
        let mut bytes = Vec::new();
        rows.iter().for_each(|row| row.encode(&mut bytes));
        assert_eq!(Row::decode_all(&bytes, 4).as_deref(), Some(&rows[..]));
        assert_eq!(Row::decode_all(&bytes, 5), None);
        let digests = rows.map(|row| row.digest());
        assert!(
            digests[2] == 0 && digests[0] == Row { kind: Kind::Unreadable { sum: 6 }, ..rows[0] }.digest()
        );
        let others = [
            Row { block: 2, ..rows[0] },
            Row { kind: Kind::Block { sum: 7 }, ..rows[0] },
            Row { kind: Kind::Tombstone, ..rows[0] },
            Row { stamp: Stamp { lease_epoch: 3, sequence: 5 }, ..rows[0] },
            Row { stamp: Stamp { lease_epoch: 4, sequence: 4 }, ..rows[0] },
        ];
        assert!(others.iter().all(|row| row.digest() != digests[0]));
        // The parts of a row never cancel each other in its digest.
        for at in 0..4096u32 {
            let stamp = Stamp { lease_epoch: at % 4 + 1, sequence: u64::from(at) };
            let row = Row { block: at, kind: Kind::Block { sum: at }, stamp };
            assert!(row.digest() != 0 && row.digest() != Row { kind: Kind::Tombstone, ..row }.digest());
        }
        bytes[36] = 4;
        assert_eq!(Row::decode_all(&bytes, 4), None, "another kind");
        bytes.copy_within(..32, 32);
        assert_eq!(Row::decode_all(&bytes, 2), None, "not ascending");
    }
}
