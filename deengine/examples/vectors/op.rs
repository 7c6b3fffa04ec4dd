// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations of a script and their bytes; `nvmevirt-patch/README.md` describes them.

use gnstor_proto::nvme::Sqe;
use zerocopy::{FromBytes, IntoBytes};

/// The client id of the daemon in a script.
pub(crate) const DAEMON: u16 = 0xFFFF;

/// An operation of a script.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Op {
    /// Makes a fresh SSD. With `twin` the emulator plays the same commands with PRP beside it, and compares.
    Device {
        logical_pages: u64,
        pages: u64,
        seed: u64,
        id: u16,
        commands: u32,
        sweep_buckets: u32,
        twin: bool,
    },
    /// An I/O command of a client; client 0: its queue is bound to none.
    Command {
        now_ns: u64,
        client: u16,
        token: u32,
        sqe: Sqe,
    },
    /// The data that a command wants: a content for each block, or the bytes of ranges.
    Data {
        now_ns: u64,
        token: u32,
        failed: bool,
        bytes: Vec<u8>,
    },
    /// A read's data is with the host.
    Done {
        now_ns: u64,
        token: u32,
        failed: bool,
    },
    /// A command on an admin queue, with its data.
    Admin {
        now_ns: u64,
        client: u16,
        token: u32,
        sqe: Sqe,
        data: Vec<u8>,
    },
    Tick {
        now_ns: u64,
    },
    /// The emulator's collector moves pages. No answer may show it.
    Move {
        count: u32,
        seed: u64,
    },
    State,
    Map {
        entries: u64,
        pages: u64,
        seed: u64,
    },
    Insert {
        vid: u16,
        vba: u32,
        page: u32,
    },
    Remove {
        vid: u16,
        vba: u32,
    },
    Replace {
        vid: u16,
        vba: u32,
        from: u32,
        to: u32,
    },
    Find {
        vid: u16,
        vba: u32,
    },
    /// Unmaps what a scan of these buckets finds of a volume.
    Sweep {
        vid: u16,
        first: u64,
        count: u64,
    },
    Image,
    SetWord {
        index: u64,
        value: u64,
    },
    Check,
    Clear,
    Scan {
        first: u64,
        count: u64,
    },
    /// Maps blocks `first..first + count` of a seed ([`block_of`]), each to the page of its number.
    Fill {
        first: u64,
        seed: u64,
        count: u32,
    },
    /// Counts the blocks whose page has their number.
    Look {
        first: u64,
        seed: u64,
        count: u32,
    },
    /// Words of the image.
    Words {
        first: u64,
        count: u32,
    },
}

/// Most blocks of a `Fill` or `Look`, and most words of a `Words`.
pub(crate) const MOST_FILLED: u32 = 65_536;
pub(crate) const MOST_WORDS: u32 = 1000;

/// Block number `number` of three volumes. No other number below 2^32 gives the same block.
pub(crate) fn block_of(seed: u64, number: u64) -> (u16, u32) {
    let vid = [1, 7, 0xFFFE][usize::try_from(number % 3).expect("small")];
    let low = |value: u64| u32::try_from(value & 0xFFFF_FFFF).expect("32 bits");
    (vid, low(number).wrapping_mul(0x9E37_79B1) ^ low(seed))
}

/// Writes one field after the other, little-endian.
pub(crate) struct Out(pub(crate) Vec<u8>);

impl Default for Out {
    /// Has room for most operations and answers.
    fn default() -> Self {
        Self(Vec::with_capacity(128))
    }
}

impl Out {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Zeros that end a piece of data.
const GAP: usize = 16;

/// The pieces of data between long runs of zeros.
fn put_pieces(out: &mut Out, data: &[u8]) {
    let mut at = 0;
    while let Some(begin) = data[at..].iter().position(|&byte| byte != 0).map(|skip| at + skip) {
        let rest = &data[begin..];
        let gap = rest.windows(GAP).position(|window| window.iter().all(|&byte| byte == 0));
        let length = gap.unwrap_or(rest.len());
        let short = |value: usize| u32::try_from(value).expect("data of a command");
        out.u32(short(begin)).u32(short(length)).bytes(&rest[..length]);
        at = begin + length;
    }
}

impl Op {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        match self {
            &Self::Device { logical_pages, pages, seed, id, commands, sweep_buckets, twin } => {
                out.u8(0x01).u64(logical_pages).u64(pages).u64(seed).u16(id).u32(commands).u32(sweep_buckets);
                if twin { out.u8(1) } else { &mut out }
            }
            Self::Command { now_ns, client, token, sqe } => {
                out.u8(0x02).u64(*now_ns).u16(*client).u32(*token).bytes(sqe.as_bytes())
            }
            Self::Data { now_ns, token, failed, bytes } => {
                out.u8(0x03).u64(*now_ns).u32(*token).u8((*failed).into()).bytes(bytes)
            }
            &Self::Done { now_ns, token, failed } => out.u8(0x04).u64(now_ns).u32(token).u8(failed.into()),
            Self::Admin { now_ns, client, token, sqe, data } => {
                out.u8(0x05).u64(*now_ns).u16(*client).u32(*token).bytes(sqe.as_bytes());
                put_pieces(&mut out, data);
                &mut out
            }
            &Self::Tick { now_ns } => out.u8(0x06).u64(now_ns),
            &Self::Move { count, seed } => out.u8(0x07).u32(count).u64(seed),
            Self::State => out.u8(0x08),
            &Self::Map { entries, pages, seed } => out.u8(0x10).u64(entries).u64(pages).u64(seed),
            &Self::Insert { vid, vba, page } => out.u8(0x11).u16(vid).u32(vba).u32(page),
            &Self::Remove { vid, vba } => out.u8(0x12).u16(vid).u32(vba),
            &Self::Replace { vid, vba, from, to } => out.u8(0x13).u16(vid).u32(vba).u32(from).u32(to),
            &Self::Find { vid, vba } => out.u8(0x14).u16(vid).u32(vba),
            &Self::Sweep { vid, first, count } => out.u8(0x15).u16(vid).u64(first).u64(count),
            Self::Image => out.u8(0x16),
            &Self::SetWord { index, value } => out.u8(0x17).u64(index).u64(value),
            Self::Check => out.u8(0x18),
            Self::Clear => out.u8(0x19),
            &Self::Scan { first, count } => out.u8(0x1A).u64(first).u64(count),
            &Self::Fill { first, seed, count } => out.u8(0x1B).u64(first).u64(seed).u32(count),
            &Self::Look { first, seed, count } => out.u8(0x1C).u64(first).u64(seed).u32(count),
            &Self::Words { first, count } => out.u8(0x1D).u64(first).u32(count),
        };
        out.0
    }

    /// The operation of these bytes; `None` for bytes that are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = In(bytes);
        Some(match from.u8()? {
            0x01 => Self::Device {
                logical_pages: from.u64()?,
                pages: from.u64()?,
                seed: from.u64()?,
                id: from.u16()?,
                commands: from.u32()?,
                sweep_buckets: from.u32()?,
                twin: from.u8().is_some_and(|twin| twin != 0),
            },
            0x02 => Self::Command {
                now_ns: from.u64()?,
                client: from.u16()?,
                token: from.u32()?,
                sqe: from.sqe()?,
            },
            0x03 => Self::Data {
                now_ns: from.u64()?,
                token: from.u32()?,
                failed: from.u8()? != 0,
                bytes: from.0.to_vec(),
            },
            0x04 => Self::Done { now_ns: from.u64()?, token: from.u32()?, failed: from.u8()? != 0 },
            0x05 => Self::Admin {
                now_ns: from.u64()?,
                client: from.u16()?,
                token: from.u32()?,
                sqe: from.sqe()?,
                data: from.pieces()?,
            },
            0x06 => Self::Tick { now_ns: from.u64()? },
            0x07 => Self::Move { count: from.u32()?, seed: from.u64()? },
            0x08 => Self::State,
            0x10 => Self::Map { entries: from.u64()?, pages: from.u64()?, seed: from.u64()? },
            0x11 => Self::Insert { vid: from.u16()?, vba: from.u32()?, page: from.u32()? },
            0x12 => Self::Remove { vid: from.u16()?, vba: from.u32()? },
            0x13 => Self::Replace { vid: from.u16()?, vba: from.u32()?, from: from.u32()?, to: from.u32()? },
            0x14 => Self::Find { vid: from.u16()?, vba: from.u32()? },
            0x15 => Self::Sweep { vid: from.u16()?, first: from.u64()?, count: from.u64()? },
            0x16 => Self::Image,
            0x17 => Self::SetWord { index: from.u64()?, value: from.u64()? },
            0x18 => Self::Check,
            0x19 => Self::Clear,
            0x1A => Self::Scan { first: from.u64()?, count: from.u64()? },
            0x1B => Self::Fill { first: from.u64()?, seed: from.u64()?, count: from.u32()? },
            0x1C => Self::Look { first: from.u64()?, seed: from.u64()?, count: from.u32()? },
            0x1D => Self::Words { first: from.u64()?, count: from.u32()? },
            _ => return None,
        })
    }
}

/// Reads one field after the other.
pub(crate) struct In<'a>(pub(crate) &'a [u8]);

impl<'a> In<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn sqe(&mut self) -> Option<Sqe> {
        Sqe::read_from_bytes(self.take(64)?).ok()
    }

    fn pieces(&mut self) -> Option<Vec<u8>> {
        let mut data = Vec::new();
        while !self.0.is_empty() {
            let (offset, length) = (self.u32()? as usize, self.u32()? as usize);
            let piece = self.take(length)?;
            data.resize(data.len().max(offset + length), 0);
            data[offset..offset + length].copy_from_slice(piece);
        }
        Some(data)
    }
}
