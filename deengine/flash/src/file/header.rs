// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first pages of a file: the header, and the count of boots.

use crate::PAGE_BYTES;
use crate::geometry::{Geometry, Shape};
use crate::record::RECORD_BYTES;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"GNSTFLSH";
const BOOT_MAGIC: [u8; 8] = *b"GNSTBOOT";
const VERSION: u32 = 3;
/// Longest label.
const LABEL_BYTES: usize = 256;

/// Offset of the system area.
pub(super) const SYSTEM_AT: u64 = 64 << 10;
/// The data area begins at a multiple of this.
const DATA_ALIGN: u64 = 1 << 20;

/// The header's bytes in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    shape: [U32; 6],
    superblocks: U32,
    system_bytes: U64,
    records_at: U64,
    data_at: U64,
    end: U64,
    label_bytes: U32,
    label: [u8; LABEL_BYTES],
    zero: [u8; 3760],
    crc: U32,
}

const _: () = assert!(size_of::<Raw>() == PAGE_BYTES as usize);

/// Offsets of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(super) geometry: Geometry,
    pub(super) system_bytes: u64,
    pub(super) label: String,
    pub(super) records_at: u64,
    pub(super) data_at: u64,
    pub(super) end: u64,
}

impl Layout {
    pub(crate) fn new(geometry: Geometry, system_bytes: u64, label: String) -> Result<Self, String> {
        if label.len() > LABEL_BYTES {
            return Err(format!("a label has at most {LABEL_BYTES} bytes, not {}", label.len()));
        }
        let page = u64::from(PAGE_BYTES);
        let too_large = || format!("a system area of {system_bytes} bytes is more than a file can have");
        let system = system_bytes
            .checked_next_multiple_of(page)
            .filter(|&bytes| bytes < 1 << 60)
            .ok_or_else(too_large)?;
        let records_at = SYSTEM_AT + system;
        let data_at = (records_at + geometry.pages() * RECORD_BYTES).next_multiple_of(DATA_ALIGN);
        let end = data_at + geometry.pages() * page;
        Ok(Self { geometry, system_bytes, label, records_at, data_at, end })
    }

    pub(crate) fn encode(&self) -> [u8; PAGE_BYTES as usize] {
        let Shape { channels, dies_per_channel, planes, unit_pages, sense_pages, rows } =
            *self.geometry.shape();
        let mut label = [0; LABEL_BYTES];
        label[..self.label.len()].copy_from_slice(self.label.as_bytes());
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            shape: [channels, dies_per_channel, planes, unit_pages, sense_pages, rows].map(U32::new),
            superblocks: self.geometry.superblocks().into(),
            system_bytes: self.system_bytes.into(),
            records_at: self.records_at.into(),
            data_at: self.data_at.into(),
            end: self.end.into(),
            label_bytes: u32::try_from(self.label.len()).expect("checked when it was made").into(),
            label,
            zero: [0; 3760],
            crc: 0.into(),
        };
        raw.crc = crc32c::crc32c(&raw.as_bytes()[..PAGE_BYTES as usize - 4]).into();
        zerocopy::transmute!(raw)
    }

    pub(crate) fn decode(bytes: &[u8; PAGE_BYTES as usize]) -> Result<Self, String> {
        let raw: Raw = zerocopy::transmute!(*bytes);
        if raw.magic != MAGIC {
            return Err("it does not begin with the mark of one".into());
        }
        if raw.crc.get() != crc32c::crc32c(&bytes[..PAGE_BYTES as usize - 4]) {
            return Err("its header is damaged (crc)".into());
        }
        if raw.version.get() != VERSION {
            return Err(format!(
                "its format is version {}, and this program reads version {VERSION}",
                raw.version.get()
            ));
        }
        let [channels, dies_per_channel, planes, unit_pages, sense_pages, rows] = raw.shape.map(U32::get);
        let shape = Shape { channels, dies_per_channel, planes, unit_pages, sense_pages, rows };
        let geometry = Geometry::new(shape, raw.superblocks.get()).map_err(|error| error.to_string())?;
        let label = usize::try_from(raw.label_bytes.get()).ok().and_then(|bytes| raw.label.get(..bytes));
        let label = label.and_then(|bytes| str::from_utf8(bytes).ok()).ok_or("its label is not text")?;
        let layout = Self::new(geometry, raw.system_bytes.get(), label.into())?;
        let stated = (raw.records_at.get(), raw.data_at.get(), raw.end.get());
        if stated != (layout.records_at, layout.data_at, layout.end) {
            return Err(format!("its areas are not where they should be: {stated:?}"));
        }
        Ok(layout)
    }
}

/// Offset of one of the two boot counters.
pub(super) fn boot_at(slot: u64) -> u64 {
    u64::from(PAGE_BYTES) * (1 + slot)
}

/// Bytes of a slot: the boot, and behind it the number of its life.
pub(super) const SLOT_BYTES: usize = 32;

pub(crate) fn encode_boot(boot: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&BOOT_MAGIC);
    bytes[8..12].copy_from_slice(&boot.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..12]);
    bytes[12..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(super) fn encode_slot(boot: u32, life: u64) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..16].copy_from_slice(&encode_boot(boot));
    bytes[16..24].copy_from_slice(&life.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..24]);
    bytes[24..28].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The boot of a slot, and the number of its life. A file of an earlier version has no such number: it is 0.
pub(super) fn decode_slot(bytes: &[u8; SLOT_BYTES]) -> Option<(u32, u64)> {
    let boot = decode_boot(bytes.first_chunk()?)?;
    let life = u64::from_le_bytes(*bytes[16..].first_chunk()?);
    let is_sound = crc32c::crc32c(&bytes[..24]).to_le_bytes() == bytes[24..28];
    Some((boot, if is_sound { life } else { 0 }))
}

pub(crate) fn decode_boot(bytes: &[u8; 16]) -> Option<u32> {
    let [.., a, b, c, d, e, f, g, h] = *bytes;
    let sound = bytes[..8] == BOOT_MAGIC && crc32c::crc32c(&bytes[..12]) == u32::from_le_bytes([e, f, g, h]);
    sound.then(|| u32::from_le_bytes([a, b, c, d]))
}
