// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Format 3 as bytes.

use super::{ADDRESS_BYTES, FleetMap3, Incoming3, Place3, Row3, Ssd3, State3, Vote};
use crate::checksum;
use crate::placement::{FILLING, MAX_SSDS, MAX_WIDTH, MapError, NO_SSD};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const FORMAT: u16 = 3;
const NO_PLACE: u8 = 0xFF;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    magic: [u8; 4],
    format: U16,
    width: U16,
    array: [u8; 16],
    term: U64,
    epoch: U64,
    seed: U64,
    groups: U32,
    ssds: U16,
    voters: U16,
    crc: U32,
}
const HEAD_BYTES: usize = 60;
const _: () = assert!(size_of::<RawHead>() == HEAD_BYTES && offset_of!(RawHead, crc) == 56);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSsd {
    uuid: [u8; 16],
    shrunk_at: U64,
    incarnation: U32,
    weight: U32,
    id: U16,
    node: U16,
    rack: U16,
    state: u8,
    flags: u8,
    address_len: u8,
    address: [u8; ADDRESS_BYTES],
}
pub(super) const SSD_BYTES: usize = 112;
const _: () = assert!(size_of::<RawSsd>() == SSD_BYTES && offset_of!(RawSsd, address_len) == 40);

/// Bytes of a row.
pub(super) fn row_bytes(width: u8) -> usize {
    usize::from(width) * 2 + 4
}

impl FleetMap3 {
    /// Encodes the map.
    ///
    /// # Errors
    /// As [`Self::check`].
    #[expect(clippy::cast_possible_truncation, reason = "`check` bounds the counts")]
    pub fn encode(&self) -> Result<Vec<u8>, MapError> {
        self.check()?;
        let voters = self.ssds.iter().filter(|ssd| ssd.vote != Vote::None).count();
        let head = RawHead {
            magic: *b"GNFM",
            format: FORMAT.into(),
            width: u16::from(self.width).into(),
            array: self.array,
            term: self.term.into(),
            epoch: self.epoch.into(),
            seed: self.seed.into(),
            groups: (self.rows.len() as u32).into(),
            ssds: (self.ssds.len() as u16).into(),
            voters: (voters as u16).into(),
            crc: 0.into(),
        };
        let mut out = head.as_bytes().to_vec();
        self.ssds.iter().for_each(|ssd| push_ssd(&mut out, ssd));
        self.rows.iter().for_each(|row| push_row(&mut out, row, self.width));
        checksum::seal_around(&mut out, HEAD_BYTES - 4);
        Ok(out)
    }

    /// Decodes and checks a map. Bytes after the map are ignored, so that a page-sized transfer may carry it.
    ///
    /// # Errors
    /// [`MapError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, MapError> {
        let (head, _) = RawHead::ref_from_prefix(bytes).map_err(|_| MapError::Format)?;
        if head.magic != *b"GNFM" || head.format.get() != FORMAT {
            return Err(MapError::Format);
        }
        let (groups, count) = (head.groups.get(), usize::from(head.ssds.get()));
        if count == 0 || count > MAX_SSDS {
            return Err(MapError::SsdCount);
        }
        if !groups.is_power_of_two() || groups > 1 << 24 {
            return Err(MapError::Groups);
        }
        let width = u8::try_from(head.width.get()).map_err(|_| MapError::Format)?;
        if usize::from(width) > MAX_WIDTH {
            return Err(MapError::Format);
        }
        let rows_at = HEAD_BYTES + count * SSD_BYTES;
        let end = rows_at + groups as usize * row_bytes(width);
        let bytes = bytes.get(..end).ok_or(MapError::Format)?;
        if checksum::crc_around(bytes, HEAD_BYTES - 4) != head.crc.get() {
            return Err(MapError::Checksum);
        }
        let ssds = bytes[HEAD_BYTES..rows_at].chunks_exact(SSD_BYTES).map(ssd).collect::<Result<_, _>>()?;
        let rows = bytes[rows_at..].chunks_exact(row_bytes(width)).map(row).collect::<Result<_, _>>()?;
        let (array, term, epoch, seed) = (head.array, head.term.get(), head.epoch.get(), head.seed.get());
        let map = Self { array, term, epoch, seed, width, ssds, rows };
        map.check()?;
        let voters = map.ssds.iter().filter(|ssd| ssd.vote != Vote::None).count();
        if voters == usize::from(head.voters.get()) { Ok(map) } else { Err(MapError::Format) }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "`check` bounds the address")]
pub(super) fn push_ssd(out: &mut Vec<u8>, ssd: &Ssd3) {
    let mut address = [0; ADDRESS_BYTES];
    address[..ssd.address.len()].copy_from_slice(ssd.address.as_bytes());
    let raw = RawSsd {
        uuid: ssd.uuid,
        shrunk_at: ssd.shrunk_at.into(),
        incarnation: ssd.incarnation.into(),
        weight: ssd.weight.into(),
        id: ssd.id.into(),
        node: ssd.node.into(),
        rack: ssd.rack.into(),
        state: ssd.state as u8,
        flags: match ssd.vote {
            Vote::None => 0,
            Vote::Voter => 1,
            Vote::Witness => 3,
        },
        address_len: ssd.address.len() as u8,
        address,
    };
    out.extend_from_slice(raw.as_bytes());
}

pub(super) fn ssd(bytes: &[u8]) -> Result<Ssd3, MapError> {
    let raw = RawSsd::ref_from_bytes(bytes).map_err(|_| MapError::Format)?;
    let (used, rest) = raw.address.split_at_checked(raw.address_len.into()).ok_or(MapError::Format)?;
    let address = core::str::from_utf8(used).map_err(|_| MapError::Format)?;
    if rest.iter().any(|&byte| byte != 0) {
        return Err(MapError::Format);
    }
    Ok(Ssd3 {
        uuid: raw.uuid,
        shrunk_at: raw.shrunk_at.get(),
        incarnation: raw.incarnation.get(),
        weight: raw.weight.get(),
        id: raw.id.get(),
        node: raw.node.get(),
        rack: raw.rack.get(),
        state: match raw.state {
            1 => State3::In,
            2 => State3::Out,
            3 => State3::Spare,
            4 => State3::Absent,
            5 => State3::Full,
            _ => return Err(MapError::Format),
        },
        vote: match raw.flags {
            0 => Vote::None,
            1 => Vote::Voter,
            3 => Vote::Witness,
            _ => return Err(MapError::Format),
        },
        address: String::from(address),
    })
}

pub(super) fn push_row(out: &mut Vec<u8>, row: &Row3, width: u8) {
    for place in &row.places[..usize::from(width)] {
        let raw = place.map_or(NO_SSD, |place| place.ssd | if place.filling { FILLING } else { 0 });
        out.extend_from_slice(&raw.to_le_bytes());
    }
    let incoming = row.incoming;
    out.extend_from_slice(&incoming.map_or(NO_SSD, |incoming| incoming.ssd).to_le_bytes());
    out.push(incoming.map_or(NO_PLACE, |incoming| incoming.place));
    out.push(row.first.unwrap_or(NO_PLACE));
}

/// Decodes a row of any width up to [`MAX_WIDTH`]. The caller checks the map afterwards.
pub(super) fn row(bytes: &[u8]) -> Result<Row3, MapError> {
    let words: Vec<u16> = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
    let [places @ .., incoming, which] = &words[..] else { return Err(MapError::Format) };
    let mut all = vec![None; MAX_WIDTH];
    for (at, &raw) in places.iter().enumerate() {
        if raw != NO_SSD {
            all[at] = Some(Place3 { ssd: raw & !FILLING, filling: raw & FILLING != 0 });
        }
    }
    let [takes_over, first] = which.to_le_bytes();
    let incoming = match (*incoming, takes_over) {
        (NO_SSD, NO_PLACE) => None,
        (NO_SSD, _) | (_, NO_PLACE) => return Err(MapError::Group),
        (ssd, place) => Some(Incoming3 { ssd, place }),
    };
    let places = all.try_into().map_err(|_| MapError::Format)?;
    Ok(Row3 { places, incoming, first: (first != NO_PLACE).then_some(first) })
}
