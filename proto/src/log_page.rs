// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Log pages and their decoding: errors (01h), SMART (02h) and the vendor pages C0h to C2h
//! (`docs/formats.md`).
//!
//! Source of pages 01h and 02h: NVM Express Base Specification 2.0, figures 202, 206 and 207.

use crate::nvme::{Sqe, admin};
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The last errors: 64 of [`ErrorEntry`], the newest first.
pub const ERRORS: u8 = 0x01;
/// SMART / Health information.
pub const SMART: u8 = 0x02;
/// Counters of each volume: a [`CountersHeader`], then a [`CountersRow`] for each.
pub const VOLUME_COUNTERS: u8 = 0xC0;
/// Counters of each client, in the form of [`VOLUME_COUNTERS`].
pub const CLIENT_COUNTERS: u8 = 0xC1;
/// Wear of the flash, and what collection costs: a [`FlashPage`].
pub const FLASH: u8 = 0xC2;

/// First bytes of [`VOLUME_COUNTERS`].
pub const VOLUME_MAGIC: [u8; 4] = *b"GNLV";
/// First bytes of [`CLIENT_COUNTERS`].
pub const CLIENT_MAGIC: [u8; 4] = *b"GNLC";
/// First bytes of [`FLASH`].
pub const FLASH_MAGIC: [u8; 4] = *b"GNLF";
/// [`FlashPage::flags`]: acknowledged writes may be missing, so the SSD takes writes and serves no reads.
pub const FLASH_FILLING: u16 = 1;
/// [`FlashPage::flags`]: places of the permission metadata could not be read when the SSD started.
pub const FLASH_DAMAGED: u16 = 2;
/// Format of the vendor pages.
pub const FORMAT: u16 = 1;

/// The command that reads the first `bytes` of a page. The length is a multiple of 4 and not 0.
pub fn get_log(page: u8, bytes: u32) -> Sqe {
    debug_assert!(bytes != 0 && bytes.is_multiple_of(4), "a log page is read in dwords");
    let dwords_z = (bytes / 4).saturating_sub(1);
    let cdw10 = (dwords_z & 0xFFFF) << 16 | u32::from(page);
    Sqe { opcode: admin::GET_LOG_PAGE, cdw10: cdw10.into(), cdw11: (dwords_z >> 16).into(), ..Sqe::default() }
}

/// Number of entries of the page [`ERRORS`].
pub const ERROR_ENTRIES: usize = 64;

/// One error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ErrorEntry {
    /// Number of the error since the SSD was made; 0 in an unused entry.
    pub number: U64,
    /// Submission queue.
    pub sqid: U16,
    /// Command.
    pub cid: U16,
    /// Status as in the completion. Bit 0 is the phase tag.
    pub status: U16,
    /// Byte and bit of the command that caused the error; FFFFh: none is named.
    pub location: U16,
    /// VID in bits 63:48.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// Fields of the specification that the SSD does not report: zero.
    pub reserved_28: [u8; 4],
    /// DW0 of the completion.
    pub dw0: U32,
    /// DW1 of the completion.
    pub dw1: U32,
    /// Must be zero.
    pub reserved_40: [u8; 24],
}

const _: () = assert!(size_of::<ErrorEntry>() == 64 && offset_of!(ErrorEntry, dw0) == 32);

/// A counter of 128 bits. No counter of an SSD here exceeds 64 bits.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Counter128 {
    /// Bits 63:0.
    pub low: U64,
    /// Bits 127:64.
    pub high: U64,
}

impl Counter128 {
    /// The value; `u64::MAX` if it exceeds 64 bits.
    pub fn get(self) -> u64 {
        if self.high.get() == 0 { self.low.get() } else { u64::MAX }
    }
}

impl From<u64> for Counter128 {
    fn from(value: u64) -> Self {
        Self { low: value.into(), high: 0.into() }
    }
}

/// The SMART / Health page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SmartPage {
    /// Bits of the critical warning: spare, temperature, reliability, read-only, backup.
    pub critical_warning: u8,
    /// Composite temperature, kelvin.
    pub kelvin: U16,
    /// Spare blocks left, percent.
    pub available_spare: u8,
    /// Percentage of spare below which the SSD warns.
    pub spare_threshold: u8,
    /// Wear, percent of the rated erase cycles; may exceed 100.
    pub percentage_used: u8,
    /// Must be zero.
    pub reserved_6: [u8; 26],
    /// Units of 512,000 bytes.
    pub data_units_read: Counter128,
    /// Units of 512,000 bytes.
    pub data_units_written: Counter128,
    /// Read commands.
    pub read_commands: Counter128,
    /// Write commands.
    pub write_commands: Counter128,
    /// Time with commands in flight, minutes.
    pub busy_minutes: Counter128,
    /// Power cycles, the present one included.
    pub power_cycles: Counter128,
    /// Hours of operation.
    pub power_on_hours: Counter128,
    /// Losses of power without a shutdown.
    pub unsafe_shutdowns: Counter128,
    /// Pages that could not be read back, or whose content was not the one that was written.
    pub media_errors: Counter128,
    /// Entries that the error log has had since the SSD was made.
    pub error_entries: Counter128,
    /// Fields of the specification that the SSD does not report: zero.
    pub reserved_192: [u8; 320],
}

const _: () = assert!(size_of::<SmartPage>() == 512);
const _: () = assert!(offset_of!(SmartPage, data_units_read) == 32);
const _: () = assert!(offset_of!(SmartPage, error_entries) == 176);

impl Default for SmartPage {
    fn default() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }
}

/// Head of a page of counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CountersHeader {
    /// [`VOLUME_MAGIC`] or [`CLIENT_MAGIC`].
    pub magic: [u8; 4],
    /// [`FORMAT`].
    pub format: U16,
    /// Bytes of a row: 64.
    pub row_bytes: U16,
    /// Rows that follow.
    pub rows: U32,
    /// Must be zero.
    pub reserved_12: [u8; 52],
}

const _: () = assert!(size_of::<CountersHeader>() == 64);

/// Counters of one volume or one client.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CountersRow {
    /// VID, or client id.
    pub id: U16,
    /// Must be zero.
    pub reserved_2: U16,
    /// Generation of the volume; 0 for a client.
    pub generation: U32,
    /// Read and Compare commands that succeeded.
    pub reads: U64,
    /// Write commands, Write Zeroes commands and ranges of Dataset Management that succeeded.
    pub writes: U64,
    /// Blocks in these reads.
    pub blocks_read: U64,
    /// Blocks in these writes.
    pub blocks_written: U64,
    /// Commands refused.
    pub refusals: U64,
    /// Commands that waited for the volume's rate limit.
    pub throttled: U64,
    /// Must be zero.
    pub reserved_56: U64,
}

const _: () = assert!(size_of::<CountersRow>() == 64 && offset_of!(CountersRow, refusals) == 40);

/// The page of the flash.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FlashPage {
    /// [`FLASH_MAGIC`].
    pub magic: [u8; 4],
    /// [`FORMAT`].
    pub format: U16,
    /// [`FLASH_FILLING`] and [`FLASH_DAMAGED`]; the other bits are zero.
    pub flags: U16,
    /// Smallest number of erases of any superblock.
    pub least_erases: U64,
    /// Largest number of erases of any superblock.
    pub most_erases: U64,
    /// Mean erases of a superblock, thousandths.
    pub mean_milli_erases: U64,
    /// Pages that hosts wrote.
    pub host_pages: U64,
    /// Pages programmed.
    pub flash_pages: U64,
    /// Pages that collection moved.
    pub moved_pages: U64,
    /// Pages that were programmed without data, to fill up a program unit.
    pub padded_pages: U64,
    /// Erases.
    pub erases: U64,
    /// Times a write waited for collection or for a checkpoint.
    pub stalls: U64,
    /// Checkpoints.
    pub checkpoints: U64,
    /// Programs that failed.
    pub failed_programs: U64,
    /// Bad blocks.
    pub bad_blocks: U64,
    /// Pages lost.
    pub lost_pages: U64,
    /// Free superblocks.
    pub free_superblocks: U64,
    /// Spare left, percent.
    pub spare_percent: U64,
}

const _: () = assert!(size_of::<FlashPage>() == 128 && offset_of!(FlashPage, moved_pages) == 48);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use alloc::vec::Vec;

    /// Bytes 1, 2, 3, ... so that each offset has a value of its own.
    fn counted(bytes: usize) -> Vec<u8> {
        (1..=bytes).map(|at| u8::try_from(at % 251).expect("below 251")).collect()
    }

    fn at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
        *bytes[offset..].first_chunk().expect("within the page")
    }

    #[test]
    fn smart_fields_lie_where_the_specification_has_them() {
        let _deadline = Deadline::after(LIMIT);
        let bytes = counted(512);
        let page = SmartPage::read_from_bytes(&bytes).expect("512 bytes");
        assert_eq!((page.critical_warning, page.kelvin.get()), (1, 0x0302));
        assert_eq!((page.available_spare, page.spare_threshold, page.percentage_used), (4, 5, 6));
        let counters = [
            page.data_units_read,
            page.data_units_written,
            page.read_commands,
            page.write_commands,
            page.busy_minutes,
            page.power_cycles,
            page.power_on_hours,
            page.unsafe_shutdowns,
            page.media_errors,
            page.error_entries,
        ];
        for (offset, counter) in (32..).step_by(16).zip(counters) {
            assert_eq!(counter.low.get(), u64::from_le_bytes(at(&bytes, offset)), "offset {offset}");
            assert_eq!(counter.get(), u64::MAX, "the upper half of offset {offset} is not zero");
        }
        assert_eq!((Counter128::from(7).get(), page.as_bytes() == bytes), (7, true));
    }

    #[test]
    fn a_page_of_counters_has_golden_bytes() {
        let _deadline = Deadline::after(LIMIT);
        let header = CountersHeader {
            magic: VOLUME_MAGIC,
            format: FORMAT.into(),
            row_bytes: 64.into(),
            rows: 0x0102.into(),
            reserved_12: [0; 52],
        };
        assert_eq!(header.as_bytes()[..12], *b"GNLV\x01\0\x40\0\x02\x01\0\0");
        assert!(header.as_bytes()[12..].iter().all(|byte| *byte == 0));
        let bytes = counted(64);
        let row = CountersRow::read_from_bytes(&bytes).expect("64 bytes");
        assert_eq!((row.id.get(), row.generation.get()), (0x0201, 0x0807_0605));
        let values =
            [row.reads, row.writes, row.blocks_read, row.blocks_written, row.refusals, row.throttled];
        for (offset, value) in (8..).step_by(8).zip(values) {
            assert_eq!(value.get(), u64::from_le_bytes(at(&bytes, offset)), "offset {offset}");
        }
    }

    #[test]
    fn the_flash_page_has_golden_bytes() {
        let _deadline = Deadline::after(LIMIT);
        let mut bytes = counted(128);
        bytes[..8].copy_from_slice(b"GNLF\x01\0\0\0");
        let page = FlashPage::read_from_bytes(&bytes).expect("128 bytes");
        assert_eq!((page.magic, page.format.get(), page.flags.get()), (FLASH_MAGIC, FORMAT, 0));
        let values = [
            page.least_erases,
            page.most_erases,
            page.mean_milli_erases,
            page.host_pages,
            page.flash_pages,
            page.moved_pages,
            page.padded_pages,
            page.erases,
            page.stalls,
            page.checkpoints,
            page.failed_programs,
            page.bad_blocks,
            page.lost_pages,
            page.free_superblocks,
            page.spare_percent,
        ];
        for (offset, value) in (8..).step_by(8).zip(values) {
            assert_eq!(value.get(), u64::from_le_bytes(at(&bytes, offset)), "offset {offset}");
        }
    }

    #[test]
    fn an_error_has_golden_bytes() {
        let _deadline = Deadline::after(LIMIT);
        let bytes = counted(64);
        let entry = ErrorEntry::read_from_bytes(&bytes).expect("64 bytes");
        assert_eq!((entry.number.get(), entry.sqid.get()), (0x0807_0605_0403_0201, 0x0A09));
        assert_eq!((entry.cid.get(), entry.status.get(), entry.location.get()), (0x0C0B, 0x0E0D, 0x100F));
        assert_eq!((entry.lba.get() >> 48, entry.nsid.get()), (0x1817, 0x1C1B_1A19));
        assert_eq!((entry.dw0.get(), entry.dw1.get()), (0x2423_2221, 0x2827_2625));
    }

    #[test]
    fn a_command_carries_page_and_length() {
        let _deadline = Deadline::after(LIMIT);
        let sqe = get_log(SMART, 512);
        assert_eq!((sqe.opcode, sqe.cdw10.get(), sqe.cdw11.get()), (0x02, 127 << 16 | 0x02, 0));
        let long = get_log(VOLUME_COUNTERS, 64 * (1 + 65_535));
        assert_eq!((long.cdw10.get(), long.cdw11.get()), (0xFFFF << 16 | 0xC0, 0xF));
    }
}
