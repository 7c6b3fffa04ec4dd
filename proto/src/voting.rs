// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What daemon and SSDs say to a voter (rules 2a, 2b, 3a of the fleet): terms, held and active maps, serving
//! leases. The byte boxes are in `docs/formats-fleet.md`.
//!
//! ```text
//!   TERM TAKE   daemon -> SSD   term_take in the command          Promise comes back
//!   MAP HOLD    daemon -> SSD   Hold, then a map or a patch
//!   ACTIVATE    daemon, peer    Activation, then a map, a patch, or nothing: the held one
//!   LEASE ASK   peer -> SSD     Ask                               DW0: epoch of the newest map, low 32 bits
//! ```
//! A checksum covers a structure and what follows it, with its own field as zero.

use crate::nvme::Sqe;
use crate::placement::{MAP_BYTES, mix64};
use crate::vendor::opcode;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a promise.
pub const PROMISE_BYTES: usize = 4096;
/// Bytes of each of the other structures.
pub const HEAD_BYTES: usize = 64;
/// Longest map or patch behind a head: one command moves both.
pub const HELD_MAP_BYTES: usize = MAP_BYTES - HEAD_BYTES;

const FORMAT: u16 = 1;
const HAS_HELD: u16 = 1;

/// Why bytes are not one of these structures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VotingError {
    /// Too short.
    Length,
    /// Another magic or format version.
    Format,
    /// The checksum does not match.
    Checksum,
    /// A reserved field is set, or a field has a value that it must not have.
    Field,
}

impl core::fmt::Display for VotingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Length => "it is too short",
            Self::Format => "it has another magic or format",
            Self::Checksum => "its checksum does not match",
            Self::Field => "a field of it is not valid",
        })
    }
}

/// A number by which two maps of one epoch are told apart: of the map's bytes.
pub fn map_digest(map: &[u8]) -> u64 {
    let start = mix64(map.len() as u64);
    map.chunks(8).fold(start, |digest, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix64(digest ^ u64::from_le_bytes(word))
    })
}

/// What a TERM TAKE asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TermTake {
    /// The first eight bytes of the array's id.
    pub array: [u8; 8],
    /// The term.
    pub term: u64,
    /// Which start of a daemon asks; not 0.
    pub instance: u64,
}

#[expect(clippy::cast_possible_truncation, reason = "the low and the high half are meant")]
fn halves(value: u64) -> [U32; 2] {
    [(value as u32).into(), ((value >> 32) as u32).into()]
}

fn word(low: U32, high: U32) -> u64 {
    u64::from(low.get()) | u64::from(high.get()) << 32
}

impl TermTake {
    /// The command; flags, id and data pointer are the queue's.
    #[expect(clippy::cast_possible_truncation, reason = "a page")]
    pub fn command(&self) -> Sqe {
        let mut sqe = Sqe { opcode: opcode::TERM_TAKE, nsid: 1.into(), ..Sqe::default() };
        sqe.cdw10 = (PROMISE_BYTES as u32 / 4).into();
        [sqe.cdw2, sqe.cdw3] = halves(self.instance);
        [sqe.cdw12, sqe.cdw13] = halves(u64::from_le_bytes(self.array));
        [sqe.cdw14, sqe.cdw15] = halves(self.term);
        sqe
    }

    /// What a command asks for.
    pub fn of(sqe: &Sqe) -> Self {
        Self {
            array: word(sqe.cdw12, sqe.cdw13).to_le_bytes(),
            term: word(sqe.cdw14, sqe.cdw15),
            instance: word(sqe.cdw2, sqe.cdw3),
        }
    }
}

/// Whether a map is known by these numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapName {
    /// Epoch.
    pub epoch: u64,
    /// [`map_digest`].
    pub digest: u64,
}

/// The answer to TERM TAKE. The maps themselves come by MAP GET.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    /// The term that was granted.
    pub term: u64,
    /// The array of the voter.
    pub array: [u8; 16],
    /// The newest map that it knows to be active.
    pub active: MapName,
    /// The newer map that it holds, and the term of its MAP HOLD.
    pub held: Option<(u64, MapName)>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPromise {
    magic: [u8; 4],
    format: U16,
    has: U16,
    term: U64,
    active_epoch: U64,
    held_epoch: U64,
    held_term: U64,
    reserved: U64,
    array: [u8; 16],
    active_digest: U64,
    held_digest: U64,
    rest: [u8; PROMISE_BYTES - 84],
    crc: U32,
}
const _: () = assert!(size_of::<RawPromise>() == PROMISE_BYTES && offset_of!(RawPromise, array) == 48);

impl Promise {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (held_term, held) = self.held.unwrap_or((0, MapName { epoch: 0, digest: 0 }));
        let raw = RawPromise {
            magic: *b"GNVP",
            format: FORMAT.into(),
            has: if self.held.is_some() { HAS_HELD } else { 0 }.into(),
            term: self.term.into(),
            active_epoch: self.active.epoch.into(),
            held_epoch: held.epoch.into(),
            held_term: held_term.into(),
            array: self.array,
            active_digest: self.active.digest.into(),
            held_digest: held.digest.into(),
            ..RawPromise::new_zeroed()
        };
        seal(raw.as_bytes().to_vec(), offset_of!(RawPromise, crc))
    }

    /// Decodes and checks.
    ///
    /// # Errors
    /// [`VotingError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, VotingError> {
        let bytes = bytes.get(..PROMISE_BYTES).ok_or(VotingError::Length)?;
        let raw = RawPromise::ref_from_bytes(bytes).map_err(|_| VotingError::Length)?;
        check(bytes, *b"GNVP", raw.format, offset_of!(RawPromise, crc))?;
        let held =
            (raw.held_term.get(), MapName { epoch: raw.held_epoch.get(), digest: raw.held_digest.get() });
        let has_held = raw.has.get() == HAS_HELD;
        let is_none = held == (0, MapName { epoch: 0, digest: 0 });
        if raw.has.get() & !HAS_HELD != 0 || !has_held && !is_none {
            return Err(VotingError::Field);
        }
        if raw.reserved.get() != 0 || raw.rest.iter().any(|&byte| byte != 0) {
            return Err(VotingError::Field);
        }
        Ok(Self {
            term: raw.term.get(),
            array: raw.array,
            active: MapName { epoch: raw.active_epoch.get(), digest: raw.active_digest.get() },
            held: has_held.then_some(held),
        })
    }
}

/// MAP HOLD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The term of the daemon that proposes the map.
    pub term: u64,
    /// Its instance.
    pub instance: u64,
    /// The array.
    pub array: [u8; 16],
    /// Epoch of the map.
    pub epoch: u64,
    /// The epoch that a patch is made from; 0: the map is whole.
    pub base: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHold {
    magic: [u8; 4],
    format: U16,
    reserved: U16,
    term: U64,
    instance: U64,
    array: [u8; 16],
    epoch: U64,
    base: U64,
    length: U32,
    crc: U32,
}
const _: () = assert!(size_of::<RawHold>() == HEAD_BYTES && offset_of!(RawHold, crc) == 60);

impl Hold {
    /// The bytes of the command's data, padded to dwords.
    ///
    /// # Panics
    /// If `map` is longer than [`HELD_MAP_BYTES`].
    pub fn encode(&self, map: &[u8]) -> Vec<u8> {
        let raw = RawHold {
            magic: *b"GNVH",
            format: FORMAT.into(),
            reserved: 0.into(),
            term: self.term.into(),
            instance: self.instance.into(),
            array: self.array,
            epoch: self.epoch.into(),
            base: self.base.into(),
            length: length(map),
            crc: 0.into(),
        };
        with_map(raw.as_bytes(), map)
    }

    /// Decodes and checks; the bytes of the map or patch come with it. Bytes behind those are ignored.
    ///
    /// # Errors
    /// [`VotingError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), VotingError> {
        let (raw, rest) = RawHold::ref_from_prefix(bytes).map_err(|_| VotingError::Length)?;
        let map = rest.get(..raw.length.get() as usize).ok_or(VotingError::Length)?;
        check(&bytes[..HEAD_BYTES + map.len()], *b"GNVH", raw.format, offset_of!(RawHold, crc))?;
        if raw.reserved.get() != 0 || map.is_empty() {
            return Err(VotingError::Field);
        }
        let hold = Self {
            term: raw.term.get(),
            instance: raw.instance.get(),
            array: raw.array,
            epoch: raw.epoch.get(),
            base: raw.base.get(),
        };
        Ok((hold, map))
    }
}

/// ACTIVATE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Activation {
    /// The array.
    pub array: [u8; 16],
    /// The map.
    pub map: MapName,
    /// The epoch that a patch is made from; 0: the map is whole, or the held one is meant.
    pub base: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawActivation {
    magic: [u8; 4],
    format: U16,
    reserved: U16,
    array: [u8; 16],
    epoch: U64,
    base: U64,
    digest: U64,
    length: U32,
    reserved2: [u8; 8],
    crc: U32,
}
const _: () = assert!(size_of::<RawActivation>() == HEAD_BYTES && offset_of!(RawActivation, crc) == 60);

impl Activation {
    /// The bytes of the command's data, padded to dwords. Without a map the SSD activates the one that it
    /// holds.
    ///
    /// # Panics
    /// If `map` is longer than [`HELD_MAP_BYTES`].
    pub fn encode(&self, map: Option<&[u8]>) -> Vec<u8> {
        let map = map.unwrap_or_default();
        let raw = RawActivation {
            magic: *b"GNVA",
            format: FORMAT.into(),
            reserved: 0.into(),
            array: self.array,
            epoch: self.map.epoch.into(),
            base: self.base.into(),
            digest: self.map.digest.into(),
            length: length(map),
            reserved2: [0; 8],
            crc: 0.into(),
        };
        with_map(raw.as_bytes(), map)
    }

    /// Decodes and checks; `None`: the held map is meant. Bytes behind the map are ignored.
    ///
    /// # Errors
    /// [`VotingError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Option<&[u8]>), VotingError> {
        let (raw, rest) = RawActivation::ref_from_prefix(bytes).map_err(|_| VotingError::Length)?;
        let map = rest.get(..raw.length.get() as usize).ok_or(VotingError::Length)?;
        check(&bytes[..HEAD_BYTES + map.len()], *b"GNVA", raw.format, offset_of!(RawActivation, crc))?;
        let has_base = map.is_empty() && raw.base.get() != 0;
        if raw.reserved.get() != 0 || raw.reserved2 != [0; 8] || has_base {
            return Err(VotingError::Field);
        }
        let map_name = MapName { epoch: raw.epoch.get(), digest: raw.digest.get() };
        let activation = Self { array: raw.array, map: map_name, base: raw.base.get() };
        Ok((activation, (!map.is_empty()).then_some(map)))
    }
}

/// LEASE ASK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Number of the SSD that asks: its index in the map.
    pub ssd: u16,
    /// The array.
    pub array: [u8; 16],
    /// The map that it serves by.
    pub epoch: u64,
    /// The incarnation of its content.
    pub incarnation: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAsk {
    magic: [u8; 4],
    format: U16,
    ssd: U16,
    array: [u8; 16],
    epoch: U64,
    incarnation: U32,
    reserved: [u8; 24],
    crc: U32,
}
const _: () = assert!(size_of::<RawAsk>() == HEAD_BYTES && offset_of!(RawAsk, crc) == 60);

impl Ask {
    /// The bytes.
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let raw = RawAsk {
            magic: *b"GNVL",
            format: FORMAT.into(),
            ssd: self.ssd.into(),
            array: self.array,
            epoch: self.epoch.into(),
            incarnation: self.incarnation.into(),
            reserved: [0; 24],
            crc: 0.into(),
        };
        let bytes = seal(raw.as_bytes().to_vec(), offset_of!(RawAsk, crc));
        bytes.try_into().expect("the structure's size is asserted")
    }

    /// Decodes and checks.
    ///
    /// # Errors
    /// [`VotingError`] names the fault.
    pub fn decode(bytes: &[u8]) -> Result<Self, VotingError> {
        let bytes = bytes.get(..HEAD_BYTES).ok_or(VotingError::Length)?;
        let raw = RawAsk::ref_from_bytes(bytes).map_err(|_| VotingError::Length)?;
        check(bytes, *b"GNVL", raw.format, offset_of!(RawAsk, crc))?;
        if raw.reserved != [0; 24] {
            return Err(VotingError::Field);
        }
        Ok(Self {
            ssd: raw.ssd.get(),
            array: raw.array,
            epoch: raw.epoch.get(),
            incarnation: raw.incarnation.get(),
        })
    }

    /// The command that carries it; flags, id and data pointer are the queue's.
    #[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
    pub fn command() -> Sqe {
        let cdw10 = (HEAD_BYTES as u32 / 4).into();
        Sqe { opcode: opcode::LEASE_ASK, nsid: 1.into(), cdw10, ..Sqe::default() }
    }
}

fn length(map: &[u8]) -> U32 {
    assert!(map.len() <= HELD_MAP_BYTES, "a map of {} bytes fits no command", map.len());
    u32::try_from(map.len()).expect("at most a MiB").into()
}

/// A head of [`HEAD_BYTES`], whose checksum is its last field, and the map, padded to dwords.
fn with_map(head: &[u8], map: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(head.len() + map.len() + 3);
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(map);
    let mut bytes = seal(bytes, HEAD_BYTES - 4);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Puts the checksum where it belongs.
fn seal(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    let crc = checksum(&bytes, at);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn checksum(bytes: &[u8], at: usize) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..at]), &[0; 4]);
    crc32c::crc32c_append(crc, &bytes[at + 4..])
}

fn check(bytes: &[u8], magic: [u8; 4], format: U16, crc_at: usize) -> Result<(), VotingError> {
    if bytes[..4] != magic || format.get() != FORMAT {
        return Err(VotingError::Format);
    }
    if bytes[crc_at..crc_at + 4] != checksum(bytes, crc_at).to_le_bytes() {
        return Err(VotingError::Checksum);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
