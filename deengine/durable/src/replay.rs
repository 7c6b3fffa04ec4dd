// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replay: reads the journal from a checkpoint on, page after page, until a page is not the next.
//!
//! ```text
//!   page checkpoint's | 41 boot 1 | 42 boot 1 | 43 boot 3 | 44 boot 2  stops: boot 3 overwrote a torn end
//!                                                         | 44 bad crc stops; damage, if a whole later page
//!                                                                      says "44 was durable"
//! ```

use crate::bytes::{CHUNK, PAGE, PAGE_U64};
use crate::durable::Durable;
use crate::error::{DurableError, read};
use crate::header::{Header, Slot};
use crate::page::{PageHead, decode_page};
use crate::record::{Bounds, Record, Seq, Transactions};

/// Why replay ended where it did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The journal ends here. Nothing that was ever reported durable follows.
    Tail {
        /// Why the next page does not belong to the journal.
        reason: String,
    },
    /// A durable page cannot be read any more: the replayed state is too old, and the caller rebuilds the
    /// map.
    Damaged {
        /// The missing page.
        reason: String,
    },
}

/// Result of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// The last transaction.
    pub last: Seq,
    /// Why no further.
    pub end: End,
    /// Checkpoint from which it started.
    pub(crate) slot: Slot,
    /// The page at which the replay stopped.
    pub(crate) page: u64,
    /// The boot of the last page.
    pub(crate) boot: u32,
}

impl Replayed {
    /// Everything that was durable has been read.
    pub fn is_whole(&self) -> bool {
        matches!(self.end, End::Tail { .. })
    }
}

/// Pages of the ring in order, read in large pieces.
struct Ring<'a> {
    durable: &'a Durable,
    buffer: Vec<u8>,
    from: u64,
    until: u64,
}

impl Ring<'_> {
    /// The page, unless `end` is reached.
    fn page(&mut self, page: u64, end: u64) -> Result<&[u8], DurableError> {
        if !(self.from..self.until).contains(&page) {
            let ring = self.durable.ring_pages();
            let to_wrap = ring - page % ring;
            let count = ((CHUNK / PAGE) as u64).min(to_wrap).min(end - page);
            let bytes = crate::bytes::index(count * PAGE_U64);
            (self.from, self.until) = (page, page);
            read(
                self.durable.store(),
                self.durable.ring_at(page),
                &mut self.buffer[..bytes],
                "reading the journal",
            )?;
            self.until = page + count;
        }
        let at = crate::bytes::index(page - self.from) * PAGE;
        Ok(&self.buffer[at..at + PAGE])
    }
}

/// What the next page of the journal must be.
struct Next<'a> {
    durable: &'a Durable,
    header: &'a Header,
    done: &'a Replayed,
    /// The last transaction of the pages read, which may still be before the checkpoint's.
    read_to: Option<Seq>,
}

impl Next<'_> {
    /// Decodes the page if it is the next one. Otherwise returns the reason why not.
    fn decode(self, bytes: &[u8], bounds: &Bounds, out: &mut Transactions) -> Result<PageHead, String> {
        let Self { durable, header, done, read_to } = self;
        let peek = PageHead::peek(bytes).map_err(|refused| refused.to_string())?;
        if peek.tag != durable.tag() {
            return Err("it is of an earlier format".into());
        }
        if peek.page != done.page {
            return Err(format!("page {} stands there", peek.page));
        }
        let head = decode_page(bytes, bounds, out).map_err(|refused| refused.to_string())?;
        let least = if done.page >= header.journal_page { done.boot.max(header.boot) } else { done.boot };
        if head.boot < least {
            return Err(format!("boot {} wrote it, and boot {least} came after", head.boot));
        }
        if head.boot > header.boot {
            return Err(format!("boot {} wrote it, which has not been yet", head.boot));
        }
        let follows = match read_to {
            Some(last) => head.first == last + 1,
            None => head.first <= done.last + 1,
        };
        if follows { Ok(head) } else { Err(format!("it starts with transaction {}", head.first)) }
    }
}

impl Durable {
    /// Calls `f` with every transaction after `from`, which is the [`crate::Restored::seq`] of a checkpoint.
    /// Each page is checked completely before `f` gets a part of it.
    ///
    /// # Errors
    /// The error of `f`, an error of the store, or that no checkpoint is at `from`.
    pub fn replay<E: From<DurableError>>(
        &self,
        from: Seq,
        mut f: impl FnMut(Seq, &[Record]) -> Result<(), E>,
    ) -> Result<Replayed, E> {
        let header = self.header();
        // Two checkpoints may be at the same transaction. The newer one needs less of the ring.
        let slots = header.slots.iter().filter(|slot| slot.number != 0 && slot.seq == from);
        let slot =
            *slots.max_by_key(|slot| slot.number).ok_or(DurableError::UnknownPosition { seq: from })?;
        let end = slot.page + self.ring_pages();
        let bounds = Bounds::from(self.sizes());
        let mut ring = Ring { durable: self, buffer: vec![0; CHUNK], from: 0, until: 0 };
        let mut transactions = Transactions::default();
        let mut done = Replayed {
            last: from,
            end: End::Tail { reason: String::new() },
            slot,
            page: slot.page,
            boot: slot.boot,
        };
        let mut read_to = None;
        let reason = loop {
            if done.page == end {
                break "the ring has been read all round".into();
            }
            let bytes = ring.page(done.page, end)?;
            let next = Next { durable: self, header: &header, done: &done, read_to };
            let head = match next.decode(bytes, &bounds, &mut transactions) {
                Ok(head) => head,
                Err(reason) => break reason,
            };
            for (seq, records) in (head.first..).zip(transactions.iter()) {
                if seq > from {
                    f(seq, records)?;
                }
            }
            read_to = Some(head.last());
            done.last = head.last().max(from);
            done.boot = head.boot;
            done.page += 1;
        };
        done.end = match self.missing(&header, &done, &mut ring, end)? {
            Some(missing) => End::Damaged { reason: format!("page {}: {reason}, yet {missing}", done.page) },
            None => End::Tail { reason: format!("page {}: {reason}", done.page) },
        };
        Ok(done)
    }

    /// The evidence that the page at which the replay stopped had been durable.
    fn missing(
        &self,
        header: &Header,
        done: &Replayed,
        ring: &mut Ring<'_>,
        end: u64,
    ) -> Result<Option<String>, DurableError> {
        if done.last < header.must_reach() {
            return Ok(Some(format!("the header knows of transaction {}", header.must_reach())));
        }
        if done.page < header.journal_page {
            return Ok(Some(format!("the header knows of page {}", header.journal_page)));
        }
        for page in done.page..end {
            let bytes = ring.page(page, end)?;
            let Ok(peek) = PageHead::peek(bytes) else { continue };
            let later = peek.tag == self.tag() && peek.page == page && peek.boot >= done.boot;
            if later && page > done.page && peek.durable_pages > done.page && PageHead::decode(bytes).is_ok()
            {
                return Ok(Some(format!("page {page} says that it was durable")));
            }
        }
        // Further on than this lap: the page was overwritten, which happens only to pages that no restore was
        // to need.
        if let Ok(head) = ring.page(done.page.min(end - 1), end).map(PageHead::decode)?
            && head.tag == self.tag()
            && head.page > done.page
        {
            return Ok(Some(format!("page {} has taken its place", head.page)));
        }
        Ok(None)
    }
}
