// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Patches: the changes from one map to the next, as bytes.

use super::FleetMap3;
use super::bytes::{SSD_BYTES, push_row, push_ssd, row, row_bytes, ssd};
use crate::checksum;
use crate::placement::MapError;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPatch {
    magic: [u8; 4],
    format: U16,
    reserved: U16,
    array: [u8; 16],
    term: U64,
    epoch: U64,
    rows: U32,
    ssds: U16,
    reserved2: U16,
    crc: U32,
}
const HEAD_BYTES: usize = 52;
const _: () = assert!(size_of::<RawPatch>() == HEAD_BYTES && offset_of!(RawPatch, crc) == 48);

impl FleetMap3 {
    /// The patch that turns this map into `next`; `None` if no patch can. A patch changes neither the array,
    /// the width, the seed nor the numbers of SSDs and groups, and its epoch is the next one.
    ///
    /// # Errors
    /// As [`Self::check`] of `next`.
    #[expect(clippy::cast_possible_truncation, reason = "`check` bounds the counts")]
    pub fn patch_to(&self, next: &Self) -> Result<Option<Vec<u8>>, MapError> {
        next.check()?;
        let same = (self.array, self.seed, self.width, self.ssds.len(), self.rows.len())
            == (next.array, next.seed, next.width, next.ssds.len(), next.rows.len());
        if !same || self.epoch.checked_add(1) != Some(next.epoch) {
            return Ok(None);
        }
        let ssds: Vec<usize> = (0..next.ssds.len()).filter(|&i| self.ssds[i] != next.ssds[i]).collect();
        let rows: Vec<usize> = (0..next.rows.len()).filter(|&i| self.rows[i] != next.rows[i]).collect();
        let head = RawPatch {
            magic: *b"GNFP",
            format: 3.into(),
            reserved: 0.into(),
            array: next.array,
            term: next.term.into(),
            epoch: next.epoch.into(),
            rows: (rows.len() as u32).into(),
            ssds: (ssds.len() as u16).into(),
            reserved2: 0.into(),
            crc: 0.into(),
        };
        let mut out = head.as_bytes().to_vec();
        for i in ssds {
            out.extend_from_slice(&(i as u32).to_le_bytes());
            push_ssd(&mut out, &next.ssds[i]);
        }
        for i in rows {
            out.extend_from_slice(&(i as u32).to_le_bytes());
            push_row(&mut out, &next.rows[i], next.width);
        }
        checksum::seal_around(&mut out, HEAD_BYTES - 4);
        Ok(Some(out))
    }

    /// Applies a patch to this map. Bytes after the patch are ignored.
    ///
    /// # Errors
    /// [`MapError::Format`] if the patch does not belong to this map; otherwise the fault of its bytes.
    pub fn patched(&self, patch: &[u8]) -> Result<Self, MapError> {
        let (head, _) = RawPatch::ref_from_prefix(patch).map_err(|_| MapError::Format)?;
        let is_patch = head.magic == *b"GNFP" && head.format.get() == 3;
        let is_zero = head.reserved.get() == 0 && head.reserved2.get() == 0;
        let is_of_this = head.array == self.array && self.epoch.checked_add(1) == Some(head.epoch.get());
        if !is_patch || !is_zero || !is_of_this {
            return Err(MapError::Format);
        }
        let (ssds, rows) = (usize::from(head.ssds.get()), head.rows.get() as usize);
        if ssds > self.ssds.len() || rows > self.rows.len() {
            return Err(MapError::Format);
        }
        let rows_at = HEAD_BYTES + ssds * (4 + SSD_BYTES);
        let end = rows_at + rows * (4 + row_bytes(self.width));
        let patch = patch.get(..end).ok_or(MapError::Format)?;
        if checksum::crc_around(patch, HEAD_BYTES - 4) != head.crc.get() {
            return Err(MapError::Checksum);
        }
        let mut next = Self { term: head.term.get(), epoch: head.epoch.get(), ..self.clone() };
        let mut before = None;
        for record in patch[HEAD_BYTES..rows_at].chunks_exact(4 + SSD_BYTES) {
            let at = ascending(record, &mut before)?;
            *next.ssds.get_mut(at).ok_or(MapError::Format)? = ssd(&record[4..])?;
        }
        let mut before = None;
        for record in patch[rows_at..].chunks_exact(4 + row_bytes(self.width)) {
            let at = ascending(record, &mut before)?;
            *next.rows.get_mut(at).ok_or(MapError::Format)? = row(&record[4..])?;
        }
        next.check()?;
        Ok(next)
    }
}

/// Reads the index at the front of a record. It must be above the index of the record before.
fn ascending(record: &[u8], before: &mut Option<usize>) -> Result<usize, MapError> {
    let at = u32::from_le_bytes([record[0], record[1], record[2], record[3]]) as usize;
    if before.is_some_and(|before| before >= at) {
        return Err(MapError::Format);
    }
    *before = Some(at);
    Ok(at)
}
