// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands to a voter, from the daemon and from SSDs (rules 2a, 2b, 3a of the fleet): terms, held and active
//! maps, serving leases. `docs/formats-fleet.md` has the byte boxes.
//!
//! ```text
//!   TERM TAKE   daemon -> SSD   term_take in the command          Promise comes back
//!   MAP HOLD    daemon -> SSD   Hold, then a map or a patch       DW0, DW1: a bit for each SSD that is gone
//!   ACTIVATE    daemon, peer    Activation, then a map, a patch, or nothing: the held one
//!   LEASE ASK   peer -> SSD     Ask, which may be a goodbye       DW0: epoch of the newest map, low 32 bits
//! ```
//! A checksum covers a structure and the data after it. Its own field counts as zero.

mod heads;

use crate::checksum;
use crate::nvme::Sqe;
use crate::placement::{MAP_BYTES, mix64};
use crate::vendor::opcode;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use heads::{Activation, Ask, Hold};

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
    /// A reserved field is set, or a field has a value that is not allowed.
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

/// Digest of a map's bytes. It tells two maps of one epoch apart.
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
    /// Number of the daemon's start that asks; not 0.
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
    /// The command. The queue adds flags, id and data pointer.
    #[expect(clippy::cast_possible_truncation, reason = "a page")]
    pub fn command(&self) -> Sqe {
        let mut sqe = Sqe { opcode: opcode::TERM_TAKE, nsid: 1.into(), ..Sqe::default() };
        sqe.cdw10 = (PROMISE_BYTES as u32 / 4).into();
        [sqe.cdw2, sqe.cdw3] = halves(self.instance);
        [sqe.cdw12, sqe.cdw13] = halves(u64::from_le_bytes(self.array));
        [sqe.cdw14, sqe.cdw15] = halves(self.term);
        sqe
    }

    /// Decodes the fields of a command.
    pub fn of(sqe: &Sqe) -> Self {
        Self {
            array: word(sqe.cdw12, sqe.cdw13).to_le_bytes(),
            term: word(sqe.cdw14, sqe.cdw15),
            instance: word(sqe.cdw2, sqe.cdw3),
        }
    }
}

/// The numbers that identify a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapName {
    /// Epoch.
    pub epoch: u64,
    /// [`map_digest`].
    pub digest: u64,
}

/// The answer to TERM TAKE. MAP GET returns the maps themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    /// The granted term.
    pub term: u64,
    /// Id of the voter's array.
    pub array: [u8; 16],
    /// The newest map that the voter knows to be active.
    pub active: MapName,
    /// The newer map that the voter holds, and the term of its MAP HOLD.
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

fn length(map: &[u8]) -> U32 {
    assert!(map.len() <= HELD_MAP_BYTES, "a map of {} bytes fits no command", map.len());
    u32::try_from(map.len()).expect("at most a MiB").into()
}

/// Joins a head of [`HEAD_BYTES`], whose last field is its checksum, and the map, and pads to dwords.
fn with_map(head: &[u8], map: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(head.len() + map.len() + 3);
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(map);
    let mut bytes = seal(bytes, HEAD_BYTES - 4);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Computes the checksum and writes it at offset `at`.
fn seal(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    checksum::seal_around(&mut bytes, at);
    bytes
}

fn check(bytes: &[u8], magic: [u8; 4], format: U16, crc_at: usize) -> Result<(), VotingError> {
    if bytes[..4] != magic || format.get() != FORMAT {
        return Err(VotingError::Format);
    }
    if bytes[crc_at..crc_at + 4] != checksum::crc_around(bytes, crc_at).to_le_bytes() {
        return Err(VotingError::Checksum);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
