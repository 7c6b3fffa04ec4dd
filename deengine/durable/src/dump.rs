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
//!   record  page (4) kind (4: 0 padding, 1 data) vid (2) 0 (2) generation (4) vba (4) lease epoch (4) sequence (8)
//!           sum (4) 0 (4) seq (8)
//!   commit  crc (4) "GNVF" (4) tag (8) number (8) total bytes (8) groups (4) chain (4) records (8)
//! ```
//! The first `crc` of a page covers the rest of the page. `chain` covers the heads of the dump and of all
//! groups, which cover the rest. `number` is the header's: to invalidate a dump, the header gets a new
//! number.

use crate::bytes::{PAGE, PAGE_U64, is_sealed, round_up, seal, set, u16_at, u32_at, u64_at};
use crate::durable::Durable;
use crate::error::{self, DurableError, Refused, sync};
use crate::journal::Journal;
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
    /// Where it belongs.
    pub page: Ppa,
    /// The record beside it.
    pub oob: Oob,
    /// Its data; `None`: the page is padding.
    pub data: Option<&'a [u8; 4096]>,
}

/// Bytes of a dump with a tail of this length and this many pages.
pub fn bytes_for(tail_bytes: u64, pages: u64) -> u64 {
    PAGE_U64 * (2 + tail_bytes.div_ceil(PAGE_U64) + pages.div_ceil(GROUP_RECORDS as u64) + pages)
}

/// Writes a dump and returns its bytes. [`DumpWriter`] does the same where the data of all pages is read into
/// one buffer.
///
/// # Errors
/// As [`DumpWriter`].
pub fn write<'a>(
    durable: &Durable,
    journal: &Journal,
    pages: impl IntoIterator<Item = DumpPage<'a>>,
) -> Result<u64, DurableError> {
    let mut writer = DumpWriter::begin(durable, journal)?;
    for page in pages {
        writer.page(page)?;
    }
    writer.finish()
}

/// A dump that is being written.
#[derive(Debug)]
pub struct DumpWriter {
    durable: Durable,
    number: u64,
    /// Bytes written.
    at: u64,
    /// A group's head, then its data.
    group: Vec<u8>,
    in_group: u16,
    groups: u32,
    chain: u32,
    pages: u64,
}

impl DumpWriter {
    /// Begins a dump with the tail of the journal: all committed transactions that are not durable.
    ///
    /// # Errors
    /// Where an older dump has not been invalidated since the store was opened, where the tail is beyond the
    /// energy budget, or where the store fails.
    pub fn begin(durable: &Durable, journal: &Journal) -> Result<Self, DurableError> {
        let number = durable.dump_number()?;
        let tail = journal.tail();
        let budget = durable.layout().dump_bytes.min(durable.sizes().dump_bytes);
        let needs = bytes_for(tail.len() as u64, 0);
        if needs > budget {
            return Err(DurableError::TooLarge { what: "bytes of a dump", has: needs, room: budget });
        }
        let mut head = vec![0; PAGE];
        set(&mut head, 4, HEAD_MAGIC.to_le_bytes());
        set(&mut head, 8, durable.tag().to_le_bytes());
        set(&mut head, 16, number.to_le_bytes());
        set(&mut head, 24, journal.boot().to_le_bytes());
        set(&mut head, 32, journal.durable().to_le_bytes());
        set(&mut head, 40, journal.last().to_le_bytes());
        set(&mut head, 48, (tail.len() as u64).to_le_bytes());
        set(&mut head, 56, crc32c::crc32c(tail).to_le_bytes());
        seal(&mut head);
        let chain = crc32c::crc32c(&head);
        let start = durable.layout().dump;
        // The tail names pages that no journal page does yet.
        error::barrier(durable.store(), "syncing the data before a dump")?;
        error::write(durable.store(), start, &head, "writing a dump")?;
        let whole = tail.len() / PAGE * PAGE;
        if whole > 0 {
            error::write(durable.store(), start + PAGE_U64, &tail[..whole], "writing a dump")?;
        }
        if whole < tail.len() {
            head.fill(0);
            head[..tail.len() - whole].copy_from_slice(&tail[whole..]);
            error::write(durable.store(), start + PAGE_U64 + whole as u64, &head, "writing a dump")?;
        }
        Ok(Self {
            durable: durable.clone(),
            number,
            at: PAGE_U64 + round_up(tail.len() as u64, PAGE_U64),
            group: vec![0; PAGE],
            in_group: 0,
            groups: 0,
            chain,
            pages: 0,
        })
    }

    /// Adds a page.
    ///
    /// # Errors
    /// Where the dump would go beyond the energy budget, or the store fails.
    pub fn page(&mut self, page: DumpPage<'_>) -> Result<(), DurableError> {
        let data = if page.data.is_some() { PAGE_U64 } else { 0 };
        let has = self.at + self.group.len() as u64 + data + PAGE_U64;
        let room = self.durable.sizes().dump_bytes;
        if has > room {
            return Err(DurableError::TooLarge { what: "bytes of a dump", has, room });
        }
        let at = RECORD + usize::from(self.in_group) * RECORD;
        let Oob { vid, generation, vba, stamp, sum, seq } = page.oob;
        let record = &mut self.group[at..at + RECORD];
        set(record, 0, page.page.0.to_le_bytes());
        set(record, 4, u32::from(page.data.is_some()).to_le_bytes());
        set(record, 8, vid.to_le_bytes());
        set(record, 12, generation.to_le_bytes());
        set(record, 16, vba.to_le_bytes());
        set(record, 20, stamp.lease_epoch.to_le_bytes());
        set(record, 24, stamp.sequence.to_le_bytes());
        set(record, 32, sum.to_le_bytes());
        set(record, 40, seq.to_le_bytes());
        if let Some(data) = page.data {
            self.group.extend_from_slice(data);
        }
        self.in_group += 1;
        self.pages += 1;
        if usize::from(self.in_group) == GROUP_RECORDS { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), DurableError> {
        if self.in_group == 0 {
            return Ok(());
        }
        let (head, data) = self.group.split_at_mut(PAGE);
        let data_pages = u16::try_from(data.len() / PAGE).expect("at most GROUP_RECORDS");
        set(head, 4, GROUP_MAGIC.to_le_bytes());
        set(head, 8, self.durable.tag().to_le_bytes());
        set(head, 16, self.number.to_le_bytes());
        set(head, 24, self.groups.to_le_bytes());
        set(head, 28, self.in_group.to_le_bytes());
        set(head, 30, data_pages.to_le_bytes());
        set(head, 32, crc32c::crc32c(data).to_le_bytes());
        seal(head);
        self.chain = crc32c::crc32c_append(self.chain, head);
        error::write(self.durable.store(), self.durable.layout().dump + self.at, &self.group, "writing a dump")?;
        self.at += self.group.len() as u64;
        self.groups += 1;
        self.in_group = 0;
        self.group.truncate(PAGE);
        self.group.fill(0);
        Ok(())
    }

    /// Writes the commit page and syncs; the bytes of the dump. Only now it counts.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn finish(mut self) -> Result<u64, DurableError> {
        self.write_group()?;
        let total = self.at + PAGE_U64;
        let commit = &mut self.group[..PAGE];
        set(commit, 4, COMMIT_MAGIC.to_le_bytes());
        set(commit, 8, self.durable.tag().to_le_bytes());
        set(commit, 16, self.number.to_le_bytes());
        set(commit, 24, total.to_le_bytes());
        set(commit, 32, self.groups.to_le_bytes());
        set(commit, 36, self.chain.to_le_bytes());
        set(commit, 40, self.pages.to_le_bytes());
        seal(commit);
        error::write(self.durable.store(), self.durable.layout().dump + self.at, commit, "writing a dump")?;
        sync(self.durable.store(), "writing a dump")?;
        Ok(total)
    }
}

/// Contents of the dump's area.
#[derive(Debug)]
pub enum DumpState {
    /// A whole dump.
    Intact(Dump),
    /// A dump that is not whole; nothing of it can be used.
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
    /// The boot whose power failed.
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

    /// Calls `f` with the transactions after `from`, in order; `from` is where replay ended.
    ///
    /// # Errors
    /// The error of `f`; [`DurableError::DumpGap`] where the dump does not reach back to `from`.
    pub fn replay<E: From<DurableError>>(
        &self,
        from: Seq,
        mut f: impl FnMut(Seq, &[Record]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.durable > from {
            return Err(DurableError::DumpGap { dump: self.durable, reached: from }.into());
        }
        let mut transactions = Transactions::default();
        transactions.decode(self.tail(), self.last - self.durable, &self.bounds).map_err(DurableError::from)?;
        for (seq, records) in (self.durable + 1..).zip(transactions.iter()) {
            if seq > from {
                f(seq, records)?;
            }
        }
        Ok(())
    }

    /// The pages, in the order in which they were written.
    pub fn pages(&self) -> impl Iterator<Item = DumpPage<'_>> {
        Groups { bytes: &self.bytes, at: crate::bytes::index(PAGE_U64 + round_up(self.tail_bytes as u64, PAGE_U64)) }
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
        let data = rest.get(..usize::from(u16_at(head, 30)) * PAGE).ok_or_else(|| refused("its data is cut off"))?;
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
                stamp: gnstor_proto::slba::Stamp { lease_epoch: u32_at(record, 20), sequence: u64_at(record, 24) },
                sum: u32_at(record, 32),
                seq: u64_at(record, 40),
            },
            data: if u32_at(record, 4) == 1 { data.next() } else { None },
        })
    }
}
