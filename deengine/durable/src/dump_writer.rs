// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the power-failure dump; [`crate::dump`] describes its format.

use crate::bytes::{PAGE, PAGE_U64, round_up, seal, set};
use crate::dump::{COMMIT_MAGIC, DumpPage, GROUP_MAGIC, GROUP_RECORDS, HEAD_MAGIC, RECORD, bytes_for};
use crate::durable::Durable;
use crate::error::{self, DurableError, sync};
use crate::journal::Journal;
use crate::record::{Bounds, Seq, Transactions, transaction_head};
use gnstor_flash::{KeptOwner, Oob};

/// The state that a dump saves.
struct DumpOf<'a> {
    boot: u32,
    durable: Seq,
    last: Seq,
    tail: &'a [u8],
}

impl Durable {
    /// Owner of the memory that the present process leaves when it is killed.
    pub fn kept_owner(&self) -> KeptOwner {
        let header = self.header();
        KeptOwner { tag: self.tag(), boot: header.boot, dump: header.dump, lossy: false, filling: None }
    }

    /// Writes a dump from the memory of a killed process. Its journal was durable up to transaction
    /// `reached`, and `tail` follows. Call this before [`Self::into_journal`], if no dump is intact. Returns
    /// the bytes of the dump, which [`Self::read_dump`] finds from then on.
    ///
    /// # Errors
    /// If the tail is not one, the dump exceeds the energy budget, or the store fails.
    pub fn dump_left_behind<'a>(
        &self,
        reached: Seq,
        tail: &[u8],
        pages: impl IntoIterator<Item = DumpPage<'a>>,
    ) -> Result<u64, DurableError> {
        let mut count = 0;
        let mut left = tail;
        while !left.is_empty() {
            let (bytes, _) = transaction_head(left)?;
            left = &left[bytes..];
            count += 1;
        }
        Transactions::default().decode(tail, count, &Bounds::from(self.sizes()))?;
        let header = self.header();
        let of = DumpOf { boot: header.boot, durable: reached, last: reached + count, tail };
        let mut writer = DumpWriter::begin_of(self, header.dump, &of)?;
        for page in pages {
            writer.page(page)?;
        }
        writer.finish()
    }
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
    /// An older dump has not been invalidated since the store was opened, the tail is beyond the energy
    /// budget, or the store fails.
    pub fn begin(durable: &Durable, journal: &Journal) -> Result<Self, DurableError> {
        let number = durable.dump_number()?;
        let of = DumpOf {
            boot: journal.boot(),
            durable: journal.durable(),
            last: journal.last(),
            tail: journal.tail(),
        };
        Self::begin_of(durable, number, &of)
    }

    fn begin_of(durable: &Durable, number: u64, of: &DumpOf<'_>) -> Result<Self, DurableError> {
        let &DumpOf { boot, durable: reached, last, tail } = of;
        let budget = durable.layout().dump_bytes.min(durable.sizes().dump_bytes);
        let needs = bytes_for(tail.len() as u64, 0);
        if needs > budget {
            return Err(DurableError::TooLarge { what: "bytes of a dump", has: needs, room: budget });
        }
        let mut head = vec![0; PAGE];
        set(&mut head, 4, HEAD_MAGIC.to_le_bytes());
        set(&mut head, 8, durable.tag().to_le_bytes());
        set(&mut head, 16, number.to_le_bytes());
        set(&mut head, 24, boot.to_le_bytes());
        set(&mut head, 32, reached.to_le_bytes());
        set(&mut head, 40, last.to_le_bytes());
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
        error::write(
            self.durable.store(),
            self.durable.layout().dump + self.at,
            &self.group,
            "writing a dump",
        )?;
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
