// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Little-endian fields in byte slices: at fixed offsets of a page, or in sequence with a check of the end.

use crate::error::Refused;

/// A page of the system area.
pub(crate) const PAGE: usize = 4096;
/// [`PAGE`] as a length on the store.
pub(crate) const PAGE_U64: u64 = PAGE as u64;
/// Bytes that are read and written at once, and that one checksum covers in large sections: 1 MiB. Tests use
/// less, so that small sections have several.
pub(crate) const CHUNK: usize = if cfg!(test) { 1 << 14 } else { 1 << 20 };

/// Largest value of a counter in any format. Counters grow from 0 by small steps, so a larger value is a
/// forgery, and it would overflow later.
pub const COUNTER_MAX: u64 = 1 << 62;
/// Largest value of a counter of 32 bits.
pub(crate) const COUNTER_MAX_32: u32 = 1 << 31;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed place of a page"))
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed place of a page"))
}

pub(crate) fn set<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// A length or an offset that the layout bounds, as an index.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).expect("bounded by the layout")
}

/// `value` up to the next multiple of `unit`.
pub(crate) const fn round_up(value: u64, unit: u64) -> u64 {
    value.div_ceil(unit) * unit
}

/// Puts the checksum of everything behind it into the first four bytes of a page.
pub(crate) fn seal(page: &mut [u8]) {
    let crc = crc32c::crc32c(&page[4..]);
    set(page, 0, crc.to_le_bytes());
}

/// Whether the first four bytes are the checksum of the rest.
pub(crate) fn is_sealed(page: &[u8]) -> bool {
    crc32c::crc32c(&page[4..]) == u32_at(page, 0)
}

/// Reads fields from the front of a slice.
pub(crate) struct Fields<'a> {
    what: &'static str,
    left: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, left: bytes }
    }

    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let Some((head, rest)) = self.left.split_first_chunk() else {
            return Err(Refused::new(self.what, "ends in the middle of a field"));
        };
        self.left = rest;
        Ok(*head)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Refused> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Refused> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Refused> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Refused> {
        let Some((head, rest)) = self.left.split_at_checked(count) else {
            return Err(Refused::new(self.what, format!("ends before {count} bytes that it announces")));
        };
        self.left = rest;
        Ok(head)
    }

    /// Checks that nothing is left.
    pub(crate) fn end(&self) -> Result<(), Refused> {
        if self.left.is_empty() {
            Ok(())
        } else {
            Err(Refused::new(self.what, format!("{} bytes too many", self.left.len())))
        }
    }
}
