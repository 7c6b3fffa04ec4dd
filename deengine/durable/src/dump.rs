// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The power-failure dump: the journal's tail and the buffered pages. It is used whole or not at all.
//!
//! ```text
//!   head (4 KiB) | tail, to 4 KiB | group | group | ... | commit (4 KiB)
//!
//!   head    crc (4) "GNVD" (4) tag (8) number (8) boot (4) 0 (4) durable seq (8) last seq (8) tail bytes (8)
//!           tail crc (4)
//!   group   crc (4) "GNVG" (4) tag (8) number (8) index (4) records (2) data pages (2) data crc (4),
//!           at 64: up to 63 records of 64 bytes; then the data pages of its records, in order
//!   record  page (4) kind (4: 0 padding, 1 data) vid (2) 0 (2) generation (4) vba (4) lease epoch (4)
//!           sequence (8)
//!           sum (4) 0 (4) seq (8)
//!   commit  crc (4) "GNVF" (4) tag (8) number (8) total bytes (8) groups (4) chain (4) records (8)
//! ```
//! The first `crc` of a page covers the rest of the page. `chain` covers the heads of the dump and of all
//! groups, which cover the rest. `number` is the header's: to invalidate a dump, the header gets a new
//! number.

use crate::bytes::{PAGE, PAGE_U64, is_sealed, round_up, u16_at, u32_at, u64_at};
use crate::error::{DurableError, Refused};
use crate::record::{Record, Seq, Transactions};
use gnstor_flash::{Oob, Ppa};

pub(crate) const HEAD_MAGIC: u32 = u32::from_le_bytes(*b"GNVD");
pub(crate) const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"GNVG");
pub(crate) const COMMIT_MAGIC: u32 = u32::from_le_bytes(*b"GNVF");
/// Records of a group.
pub(crate) const GROUP_RECORDS: usize = 63;
pub(crate) const RECORD: usize = 64;

/// A buffered page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DumpPage<'a> {
    /// The page on flash.
    pub page: Ppa,
    /// The record beside the page.
    pub oob: Oob,
    /// Data of the page; `None`: the page is padding.
    pub data: Option<&'a [u8; 4096]>,
}

/// Bytes of a dump with a tail of this length and this many pages.
pub fn bytes_for(tail_bytes: u64, pages: u64) -> u64 {
    PAGE_U64 * (2 + tail_bytes.div_ceil(PAGE_U64) + pages.div_ceil(GROUP_RECORDS as u64) + pages)
}

/// Contents of the dump's area.
#[derive(Debug)]
pub enum DumpState {
    /// A whole dump.
    Intact(Dump),
    /// A dump that is not whole. Nothing of it may be used.
    Torn {
        /// Why.
        reason: String,
    },
    /// No dump since the last invalidation.
    Missing,
}

/// A whole dump, checked from end to end when it was read.
#[derive(Debug)]
pub struct Dump {
    pub(crate) bytes: Vec<u8>,
    pub(crate) boot: u32,
    pub(crate) durable: Seq,
    pub(crate) last: Seq,
    pub(crate) tail_bytes: usize,
    pub(crate) bounds: crate::record::Bounds,
}

impl Dump {
    /// Number of the boot that ended with the power failure.
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// The journal was durable up to here when the dump was written. A replay that ends before it has met
    /// damage.
    pub fn durable(&self) -> Seq {
        self.durable
    }

    /// The last transaction.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Calls `f` with the transactions after `from`, in order. `from` is the end of the replay.
    ///
    /// # Errors
    /// The error of `f`; [`DurableError::DumpGap`] if the dump begins after `from`.
    pub fn replay<E: From<DurableError>>(
        &self,
        from: Seq,
        mut f: impl FnMut(Seq, &[Record]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.durable > from {
            return Err(DurableError::DumpGap { dump: self.durable, reached: from }.into());
        }
        let mut transactions = Transactions::default();
        transactions
            .decode(self.tail(), self.last - self.durable, &self.bounds)
            .map_err(DurableError::from)?;
        for (seq, records) in (self.durable + 1..).zip(transactions.iter()) {
            if seq > from {
                f(seq, records)?;
            }
        }
        Ok(())
    }

    /// The pages, in the order in which they were written.
    pub fn pages(&self) -> impl Iterator<Item = DumpPage<'_>> {
        Groups {
            bytes: &self.bytes,
            at: crate::bytes::index(PAGE_U64 + round_up(self.tail_bytes as u64, PAGE_U64)),
        }
        .flat_map(|group| group.records())
    }

    pub(crate) fn tail(&self) -> &[u8] {
        &self.bytes[PAGE..PAGE + self.tail_bytes]
    }
}

/// Groups of a dump that has been checked.
struct Groups<'a> {
    bytes: &'a [u8],
    at: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Group<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) data: &'a [u8],
}

impl<'a> Iterator for Groups<'a> {
    type Item = Group<'a>;

    fn next(&mut self) -> Option<Group<'a>> {
        let group = Group::at(&self.bytes[self.at..]).ok()?;
        self.at += PAGE + group.data.len();
        Some(group)
    }
}

impl<'a> Group<'a> {
    /// The group at the front of `bytes`, with nothing but its lengths checked.
    pub(crate) fn at(bytes: &'a [u8]) -> Result<Self, Refused> {
        let refused = |why| Refused::new("a group of the dump", why);
        let Some((head, rest)) = bytes.split_at_checked(PAGE) else {
            return Err(refused("is cut off"));
        };
        if u32_at(head, 4) != GROUP_MAGIC {
            return Err(refused("another magic"));
        }
        if usize::from(u16_at(head, 28)) > GROUP_RECORDS {
            return Err(refused("too many records"));
        }
        let data =
            rest.get(..usize::from(u16_at(head, 30)) * PAGE).ok_or_else(|| refused("its data is cut off"))?;
        Ok(Self { head, data })
    }

    pub(crate) fn count(&self) -> u16 {
        u16_at(self.head, 28)
    }

    pub(crate) fn is_whole(&self) -> bool {
        is_sealed(self.head) && crc32c::crc32c(self.data) == u32_at(self.head, 32)
    }

    /// The records of the group with their data.
    pub(crate) fn records(self) -> impl Iterator<Item = DumpPage<'a>> {
        let mut data = self.data.as_chunks::<PAGE>().0.iter();
        let records = self.head[RECORD..].chunks_exact(RECORD).take(self.count().into());
        records.map(move |record| DumpPage {
            page: Ppa(u32_at(record, 0)),
            oob: Oob {
                vid: u16_at(record, 8),
                generation: u32_at(record, 12),
                vba: u32_at(record, 16),
                stamp: gnstor_proto::slba::Stamp {
                    lease_epoch: u32_at(record, 20),
                    sequence: u64_at(record, 24),
                },
                sum: u32_at(record, 32),
                seq: u64_at(record, 40),
            },
            data: if u32_at(record, 4) == 1 { data.next() } else { None },
        })
    }
}
