// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading a dump back: whole, or not at all.

use crate::bytes::{CHUNK, COUNTER_MAX, PAGE, PAGE_U64, index, is_sealed, round_up, u16_at, u32_at, u64_at};
use crate::dump::{COMMIT_MAGIC, Dump, DumpState, Group, HEAD_MAGIC, RECORD};
use crate::durable::Durable;
use crate::error::{DurableError, Refused, read};
use crate::layout::Sizes;
use crate::record::{Bounds, Transactions};

const WHAT: &str = "the dump";

/// Fields that identify the dump that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DumpIdentity {
    /// Tag of the format.
    pub tag: u64,
    /// Number in the header.
    pub number: u64,
}

fn refused(why: impl Into<String>) -> Refused {
    Refused::new(WHAT, why)
}

/// Whether a page is a head of the dump that counts, whole or not.
fn claims(page: &[u8], identity: DumpIdentity) -> bool {
    u32_at(page, 4) == HEAD_MAGIC && u64_at(page, 8) == identity.tag && u64_at(page, 16) == identity.number
}

fn check_page(page: &[u8], magic: u32, identity: DumpIdentity, what: &str) -> Result<(), Refused> {
    if u32_at(page, 4) != magic || u64_at(page, 8) != identity.tag || u64_at(page, 16) != identity.number {
        return Err(refused(format!("{what} is not one of this dump")));
    }
    if is_sealed(page) { Ok(()) } else { Err(refused(format!("the checksum of {what} does not match"))) }
}

impl Dump {
    /// Checks a dump from end to end, and cuts off the bytes after it.
    ///
    /// # Errors
    /// [`Refused`] if anything in it is wrong.
    pub fn decode(mut bytes: Vec<u8>, identity: DumpIdentity, sizes: &Sizes) -> Result<Self, Refused> {
        let page_at = |at: usize, what: &str| {
            at.checked_add(PAGE)
                .and_then(|end| bytes.get(at..end))
                .ok_or_else(|| refused(format!("{what} is cut off")))
        };
        let head = page_at(0, "its head")?;
        check_page(head, HEAD_MAGIC, identity, "its head")?;
        let (boot, durable, last) = (u32_at(head, 24), u64_at(head, 32), u64_at(head, 40));
        let (tail_bytes, tail_crc) = (u64_at(head, 48), u32_at(head, 56));
        if durable > last || last > COUNTER_MAX {
            return Err(refused(format!("transactions from {durable} to {last}")));
        }
        let tail_bytes = usize::try_from(tail_bytes).ok().filter(|&n| n <= bytes.len());
        let tail_bytes = tail_bytes.ok_or_else(|| refused("the journal's tail is longer than the dump"))?;
        let tail =
            bytes.get(PAGE..PAGE + tail_bytes).ok_or_else(|| refused("the journal's tail is cut off"))?;
        if crc32c::crc32c(tail) != tail_crc {
            return Err(refused("the checksum of the journal's tail does not match"));
        }
        let bounds = Bounds::from(sizes);
        Transactions::default().decode(tail, last - durable, &bounds)?;

        let mut at = PAGE + index(round_up(tail_bytes as u64, PAGE_U64));
        let mut chain = crc32c::crc32c(head);
        let (mut groups, mut pages) = (0u32, 0u64);
        let commit = loop {
            let page = page_at(at, "its commit page")?;
            if u32_at(page, 4) == COMMIT_MAGIC {
                break page;
            }
            let group = Group::at(&bytes[at..])?;
            check_group(&group, groups, identity)?;
            chain = crc32c::crc32c_append(chain, group.head);
            groups += 1;
            pages += u64::from(group.count());
            at += PAGE + group.data.len();
        };
        check_page(commit, COMMIT_MAGIC, identity, "its commit page")?;
        let total = at + PAGE;
        let agrees = u64_at(commit, 24) == total as u64
            && u32_at(commit, 32) == groups
            && u32_at(commit, 36) == chain
            && u64_at(commit, 40) == pages;
        if !agrees {
            return Err(refused("its commit page belongs to another dump"));
        }
        bytes.truncate(total);
        Ok(Self { bytes, boot, durable, last, tail_bytes, bounds })
    }
}

fn check_group(group: &Group<'_>, nth: u32, identity: DumpIdentity) -> Result<(), Refused> {
    let same = u64_at(group.head, 8) == identity.tag && u64_at(group.head, 16) == identity.number;
    if !same || u32_at(group.head, 24) != nth || group.count() == 0 {
        return Err(refused(format!("group {nth} is not one of this dump")));
    }
    if !group.is_whole() {
        return Err(refused(format!("the checksum of group {nth} does not match")));
    }
    let records = group.head[RECORD..].chunks_exact(RECORD).take(group.count().into());
    let mut data = 0;
    for record in records {
        if u64_at(record, 40) > COUNTER_MAX {
            return Err(refused(format!("group {nth} has a page written in order {}", u64_at(record, 40))));
        }
        match u32_at(record, 4) {
            kind @ (0 | 1) => data += kind,
            other => return Err(refused(format!("group {nth} has a page of kind {other}"))),
        }
    }
    if data == u32::from(u16_at(group.head, 30)) {
        Ok(())
    } else {
        Err(refused(format!("group {nth} has another number of pages than its records say")))
    }
}

impl Durable {
    /// Reads the dump. If it is torn or unreadable, nothing of it is used.
    pub fn read_dump(&self) -> DumpState {
        match self.try_read_dump() {
            Ok(Some(dump)) => DumpState::Intact(dump),
            Ok(None) => DumpState::Missing,
            Err(error) => DumpState::Torn { reason: error.to_string() },
        }
    }

    fn try_read_dump(&self) -> Result<Option<Dump>, DurableError> {
        let layout = self.layout();
        let identity = DumpIdentity { tag: self.tag(), number: self.header().dump };
        let mut bytes = vec![0; PAGE];
        read(self.store(), layout.dump, &mut bytes, "reading the dump")?;
        if !claims(&bytes, identity) {
            return Ok(None);
        }
        // Only the end of a dump has its length, and a torn dump's own fields do not count. The area is
        // small, so read all.
        bytes.resize(index(layout.dump_bytes), 0);
        for (nth, chunk) in bytes.chunks_mut(CHUNK).enumerate() {
            read(self.store(), layout.dump + nth as u64 * CHUNK as u64, chunk, "reading the dump")?;
        }
        Ok(Some(Dump::decode(bytes, identity, self.sizes())?))
    }
}
