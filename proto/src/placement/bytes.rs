// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of a fleet map, as it travels and as SSDs keep it.
//!
//! ```text
//!  0        4      6      8          16         24       28     30     32          40       44
//!  +--------+------+------+-----------+----------+--------+------+------+-----------+--------+
//!  | "GNFM" | fmt  | width|   term    |  epoch   | groups | ssds | rsvd |   seed    |  crc   |
//!  +--------+------+------+-----------+----------+--------+------+------+-----------+--------+
//!  | ssds x 8 bytes: id u16, state u8, domain u8, weight u32 (16.16)                        |
//!  +----------------------------------------------------------------------------------------+
//!  | groups x width x u16: SSD index (13:0), bit 15 = filling, FFFFh = no SSD                |
//!  +----------------------------------------------------------------------------------------+
//! ```
//! The CRC-32C covers the whole map with the crc field zero.

use super::{FILLING, FleetMap, MAX_SSDS, MAX_WIDTH, MapError, MapSsd, NO_SSD, SsdState};
use crate::checksum;
use alloc::vec::Vec;

/// Format 1 had no stripes, so its blocks lie in other groups.
const FORMAT: u16 = 2;
const HEADER_BYTES: usize = 44;
const SSD_BYTES: usize = 8;

impl FleetMap {
    /// Encodes the map.
    #[expect(clippy::cast_possible_truncation, reason = "counts are bounded by the constructor")]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.ssds.len() * SSD_BYTES + self.places.len() * 2);
        out.extend_from_slice(b"GNFM");
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&u16::from(self.width).to_le_bytes());
        out.extend_from_slice(&self.term.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.groups.to_le_bytes());
        out.extend_from_slice(&(self.ssds.len() as u16).to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&self.seed.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        debug_assert_eq!(out.len(), HEADER_BYTES);
        for ssd in &self.ssds {
            out.extend_from_slice(&ssd.id.to_le_bytes());
            out.push(ssd.state as u8);
            out.push(ssd.domain);
            out.extend_from_slice(&ssd.weight.to_le_bytes());
        }
        for place in &self.places {
            out.extend_from_slice(&place.to_le_bytes());
        }
        checksum::seal_around(&mut out, HEADER_BYTES - 4);
        out
    }

    /// Decodes and checks a map. Bytes after the map are ignored, so that a page-sized transfer may carry it.
    ///
    /// # Errors
    /// [`MapError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, MapError> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(MapError::Format)?;
        let u16_at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if &header[..4] != b"GNFM" || u16_at(4) != FORMAT {
            return Err(MapError::Format);
        }
        let (width, groups, count) = (usize::from(u16_at(6)), u32_at(24), usize::from(u16_at(28)));
        if count == 0 || count > MAX_SSDS {
            return Err(MapError::SsdCount);
        }
        if !groups.is_power_of_two() || groups > 1 << 24 {
            return Err(MapError::Groups);
        }
        if width > MAX_WIDTH || width > count || u16_at(30) != 0 {
            return Err(MapError::Format);
        }
        let ssds_end = HEADER_BYTES + count * SSD_BYTES;
        let end = ssds_end + groups as usize * width * 2;
        let bytes = bytes.get(..end).ok_or(MapError::Format)?;
        if checksum::crc_around(bytes, HEADER_BYTES - 4) != u32_at(40) {
            return Err(MapError::Checksum);
        }
        let mut ssds = Vec::with_capacity(count);
        for raw in bytes[HEADER_BYTES..ssds_end].chunks_exact(SSD_BYTES) {
            let state = match raw[2] {
                1 => SsdState::In,
                2 => SsdState::Out,
                _ => return Err(MapError::Format),
            };
            let weight = u32::from_le_bytes([raw[4], raw[5], raw[6], raw[7]]);
            ssds.push(MapSsd { id: u16::from_le_bytes([raw[0], raw[1]]), state, domain: raw[3], weight });
        }
        let places: Vec<u16> =
            bytes[ssds_end..].chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        for group in places.chunks_exact(width.max(1)) {
            for (i, &place) in group.iter().enumerate() {
                let index = place & !FILLING;
                let valid = ssds.get(usize::from(index)).is_some_and(|s| s.state == SsdState::In);
                let twice = group[..i].iter().any(|&p| p != NO_SSD && p & !FILLING == index);
                if place != NO_SSD && (!valid || twice) {
                    return Err(MapError::Group);
                }
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_WIDTH")]
        let width = width as u8;
        Ok(Self { term: u64_at(8), epoch: u64_at(16), seed: u64_at(32), ssds, groups, width, places })
    }
}
