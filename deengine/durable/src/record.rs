// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of the journal, and transactions made of them.
//!
//! A transaction is a header word and its records; everything is whole 64-bit words:
//!
//! ```text
//!   63       56 55              32 31        16 15         0
//!  +-----------+------------------+------------+------------+
//!  |         zero (32 bits)       |   records  | words, all |  header of a transaction
//!  +-----------+------------------+------------+------------+
//!  | 1 Word    |            index                           |  then: value
//!  | 2 Applied |  zero (8) | vba (31..0 of 47..16) | vid    |  then: sequence; zero (32), lease epoch (32)
//!  | 3 Opened  |  zero (16) | stream (8) |    superblock    |  then: order
//!  | 4 Closed  |  zero (24)             |    superblock    |
//!  | 5 Erased  |  zero (24)             |    superblock    |  then: erases
//!  | 6 Bad     |  zero (24)             |    block         |
//!  | 7 Forgotten| zero (8) | generation (47..16)   | vid    |
//!  +-----------+--------------------------------------------+
//! ```

use crate::bytes::{COUNTER_MAX, COUNTER_MAX_32, u64_at};
use crate::error::Refused;
use crate::layout::Sizes;
use gnstor_flash::{Block, Superblock};
use gnstor_proto::slba::{Stamp, Vid};

/// Number of a transaction, from 1.
pub type Seq = u64;

/// Largest size of a transaction, with its header.
pub const MAX_TRANSACTION_BYTES: usize = 4000;
/// Smallest size of a transaction: its header.
pub(crate) const MIN_TRANSACTION_BYTES: usize = 8;
const INDEX_BITS: u32 = 56;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// One durable change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// A word of the map's image has a new value.
    Word {
        /// Index of the word.
        index: u64,
        /// New value of the word.
        value: u64,
    },
    /// A write or a TRIM applied a stamp.
    Applied {
        /// The volume.
        vid: Vid,
        /// The block.
        vba: u32,
        /// Stamp of the change.
        stamp: Stamp,
    },
    /// A superblock is being written.
    Opened {
        /// Number of the superblock.
        superblock: Superblock,
        /// The stream that it is open for.
        stream: u8,
        /// Position of this superblock in the order in which superblocks were opened.
        order: u64,
    },
    /// A superblock is full.
    Closed {
        /// Number of the superblock.
        superblock: Superblock,
    },
    /// A superblock was erased and is free.
    Erased {
        /// Number of the superblock.
        superblock: Superblock,
        /// Number of its erases.
        erases: u32,
    },
    /// A block was retired.
    Bad {
        /// Number of the block.
        block: Block,
    },
    /// A generation of a volume has ended, and so has its stamp history.
    Forgotten {
        /// The volume.
        vid: Vid,
        /// The generation that ended.
        generation: u32,
    },
}

/// Limits of the numbers in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Words of the map.
    pub map_words: u64,
    /// Superblocks.
    pub superblocks: u32,
    /// Blocks.
    pub blocks: u32,
}

impl From<&Sizes> for Bounds {
    fn from(sizes: &Sizes) -> Self {
        Self { map_words: sizes.map_words, superblocks: sizes.superblocks, blocks: sizes.blocks }
    }
}

impl Bounds {
    /// Whether the record names only things that this SSD has.
    #[inline]
    pub fn allow(&self, record: &Record) -> bool {
        match *record {
            Record::Word { index, .. } => index < self.map_words,
            Record::Opened { superblock, .. }
            | Record::Closed { superblock }
            | Record::Erased { superblock, .. } => superblock.0 < self.superblocks,
            Record::Bad { block } => block.0 < self.blocks,
            Record::Applied { .. } | Record::Forgotten { .. } => true,
        }
    }
}

const fn head(tag: u64, rest: u64) -> u64 {
    tag << INDEX_BITS | rest
}

impl Record {
    /// Appends the record's words.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut word = |value: u64| out.extend_from_slice(&value.to_le_bytes());
        match *self {
            Self::Word { index, value } => {
                word(head(1, index & INDEX_MASK));
                word(value);
            }
            Self::Applied { vid, vba, stamp } => {
                word(head(2, u64::from(vba) << 16 | u64::from(vid.get())));
                word(stamp.sequence);
                word(stamp.lease_epoch.into());
            }
            Self::Opened { superblock, stream, order } => {
                word(head(3, u64::from(stream) << 32 | u64::from(superblock.0)));
                word(order);
            }
            Self::Closed { superblock } => word(head(4, superblock.0.into())),
            Self::Erased { superblock, erases } => {
                word(head(5, superblock.0.into()));
                word(erases.into());
            }
            Self::Bad { block } => word(head(6, block.0.into())),
            Self::Forgotten { vid, generation } => {
                word(head(7, u64::from(generation) << 16 | u64::from(vid.get())))
            }
        }
    }

    /// Decodes the record at the front of `bytes`. Returns it with its length in bytes.
    ///
    /// # Errors
    /// [`Refused`] if the bytes are no record within `bounds`.
    #[inline]
    pub fn decode(bytes: &[u8], bounds: &Bounds) -> Result<(Self, usize), Refused> {
        let word = |nth: usize| {
            bytes.get(nth * 8..nth * 8 + 8).map(|b| u64_at(b, 0)).ok_or_else(|| refused("ends in the middle"))
        };
        let first = word(0)?;
        let rest = first & INDEX_MASK;
        let (record, words) = match first >> INDEX_BITS {
            1 => (Self::Word { index: rest, value: word(1)? }, 2),
            2 => {
                let (vid, vba) = vid_and_32(rest)?;
                let stamp = Stamp { sequence: word(1)?, lease_epoch: low_32(word(2)?)? };
                (Self::Applied { vid, vba, stamp }, 3)
            }
            3 => {
                let stream = u8::try_from(rest >> 32).map_err(|_| refused("reserved bits are set"))?;
                (
                    Self::Opened {
                        superblock: Superblock(low_32(rest & 0xFFFF_FFFF)?),
                        stream,
                        order: word(1)?,
                    },
                    2,
                )
            }
            4 => (Self::Closed { superblock: Superblock(low_32(rest)?) }, 1),
            5 => (Self::Erased { superblock: Superblock(low_32(rest)?), erases: low_32(word(1)?)? }, 2),
            6 => (Self::Bad { block: Block(low_32(rest)?) }, 1),
            7 => {
                let (vid, generation) = vid_and_32(rest)?;
                (Self::Forgotten { vid, generation }, 1)
            }
            tag => return Err(refused(format!("no record has the tag {tag}"))),
        };
        if !bounds.allow(&record) {
            return Err(refused(format!("{record:?} is beyond this SSD")));
        }
        Ok((record, words * 8))
    }
}

impl Record {
    /// Checks counters, since counting continues from their values.
    #[inline]
    fn check_counters(&self) -> Result<(), Refused> {
        match *self {
            Self::Opened { order, .. } if order > COUNTER_MAX => {
                Err(refused(format!("order {order} is out of range")))
            }
            Self::Erased { erases, .. } if erases > COUNTER_MAX_32 => {
                Err(refused(format!("a superblock that was erased {erases} times")))
            }
            _ => Ok(()),
        }
    }
}

#[cold]
fn refused(why: impl Into<String>) -> Refused {
    Refused::new("a journal record", why)
}

#[inline]
fn low_32(word: u64) -> Result<u32, Refused> {
    u32::try_from(word).map_err(|_| refused("reserved bits are set"))
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "taking a 16-bit field out of 64 bits")]
fn vid_and_32(rest: u64) -> Result<(Vid, u32), Refused> {
    let vid = Vid::new(rest as u16).ok_or_else(|| refused("a reserved volume id"))?;
    Ok((vid, low_32(rest >> 16)?))
}

/// Decoded transactions, kept between pages so that nothing is allocated for each.
#[derive(Debug, Default)]
pub struct Transactions {
    records: Vec<Record>,
    ends: Vec<usize>,
}

impl Transactions {
    /// Decodes `count` transactions that fill `bytes` exactly, in place of earlier contents.
    ///
    /// # Errors
    /// [`Refused`] where they do not; then no transaction is kept.
    pub fn decode(&mut self, bytes: &[u8], count: u64, bounds: &Bounds) -> Result<(), Refused> {
        self.clear();
        let result = self.fill(bytes, count, bounds);
        if result.is_err() {
            self.clear();
        }
        result
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.ends.clear();
    }

    fn fill(&mut self, bytes: &[u8], count: u64, bounds: &Bounds) -> Result<(), Refused> {
        let mut left = bytes;
        for _ in 0..count {
            let (bytes, records) = transaction_head(left)?;
            let (mut body, rest) = (&left[8..bytes], &left[bytes..]);
            for _ in 0..records {
                let (record, taken) = Record::decode(body, bounds)?;
                record.check_counters()?;
                self.records.push(record);
                body = &body[taken..];
            }
            if !body.is_empty() {
                return Err(refused("a transaction has more words than its records"));
            }
            self.ends.push(self.records.len());
            left = rest;
        }
        if left.is_empty() { Ok(()) } else { Err(refused("more bytes than transactions")) }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The records of each, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[Record]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.records[std::mem::replace(&mut start, end)..end])
    }
}

/// Bytes, header included, and records of the first transaction in `bytes`; the bytes are there.
pub(crate) fn transaction_head(bytes: &[u8]) -> Result<(usize, u16), Refused> {
    if bytes.len() < MIN_TRANSACTION_BYTES {
        return Err(refused("a transaction's header is cut off"));
    }
    let word = u64_at(bytes, 0);
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    let (words, records) = (usize::from(u16::from_le_bytes([a, b])), u16::from_le_bytes([c, d]));
    if [e, f, g, h] != [0; 4] {
        return Err(refused("reserved bits of a transaction's header are set"));
    }
    if words == 0 || words * 8 > MAX_TRANSACTION_BYTES || words * 8 > bytes.len() {
        return Err(refused(format!("a transaction of {words} words")));
    }
    Ok((words * 8, records))
}

/// The header word of a transaction.
pub(crate) fn encode_transaction_head(bytes: usize, records: u16) -> [u8; 8] {
    let words = u16::try_from(bytes / 8).expect("at most MAX_TRANSACTION_BYTES");
    (u64::from(records) << 16 | u64::from(words)).to_le_bytes()
}
