// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A page of the journal ring. A reader knows by its head that it is the next page, and not of an older lap
//! or life.
//!
//! ```text
//!    0        4        8                16               24               32               40
//!   +--------+--------+----------------+----------------+----------------+----------------+
//!   | crc    | "GNVJ" | tag            | page number    | first seq      | durable pages  |
//!   +--------+--------+----------------+----------------+----------------+----------------+
//!   40       44   46       48                    64                                     4096
//!   +--------+----+--------+---------------------+---------------------------------------+
//!   | boot   | n  | bytes  | zero                | n whole transactions, zeros           |
//!   +--------+----+--------+---------------------+---------------------------------------+
//! ```
//! `crc` covers the rest of the page. `tag` is the format's (see [`crate::Header`]), so a page of an earlier
//! format does not count. The page number never wraps; the place in the ring is the number modulo the ring's
//! pages. `boot` grows with each restore. Pages below `durable pages` were durable when this page was
//! written. If one of them is missing, the journal is damaged, not torn.

use crate::bytes::{COUNTER_MAX, PAGE, is_sealed, seal, set, u16_at, u32_at, u64_at};
use crate::error::Refused;
use crate::record::{Bounds, Seq, Transactions};

const WHAT: &str = "a journal page";
const MAGIC: u32 = u32::from_le_bytes(*b"GNVJ");
/// Bytes before the transactions.
pub(crate) const HEAD: usize = 64;
/// Bytes of transactions in a page.
pub(crate) const PAYLOAD: usize = PAGE - HEAD;
const _: () = assert!(crate::record::MAX_TRANSACTION_BYTES <= PAYLOAD);

/// The head of a journal page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageHead {
    /// Tag of the format.
    pub tag: u64,
    /// Number of the page.
    pub page: u64,
    /// The first transaction.
    pub first: Seq,
    /// Pages below this one were durable when the page was written.
    pub durable_pages: u64,
    /// The boot that wrote it.
    pub boot: u32,
    /// Transactions.
    pub count: u16,
    /// Bytes of its transactions.
    pub bytes: u16,
}

impl PageHead {
    /// The last transaction of the page; for a page without any, the one before `first`.
    pub fn last(&self) -> Seq {
        self.first - 1 + u64::from(self.count)
    }

    /// Writes the head and the checksum of a page that has its transactions.
    pub(crate) fn seal(&self, page: &mut [u8]) {
        set(page, 4, MAGIC.to_le_bytes());
        set(page, 8, self.tag.to_le_bytes());
        set(page, 16, self.page.to_le_bytes());
        set(page, 24, self.first.to_le_bytes());
        set(page, 32, self.durable_pages.to_le_bytes());
        set(page, 40, self.boot.to_le_bytes());
        set(page, 44, self.count.to_le_bytes());
        set(page, 46, self.bytes.to_le_bytes());
        set(page, 48, [0; 16]);
        seal(page);
    }

    /// Reads the head without the checksum: enough to see that a page is *not* the wanted one.
    pub(crate) fn peek(page: &[u8]) -> Result<Self, Refused> {
        if page.len() != PAGE {
            return Err(Refused::new(WHAT, format!("{} bytes", page.len())));
        }
        if u32_at(page, 4) != MAGIC {
            return Err(Refused::new(WHAT, "another magic"));
        }
        Ok(Self {
            tag: u64_at(page, 8),
            page: u64_at(page, 16),
            first: u64_at(page, 24),
            durable_pages: u64_at(page, 32),
            boot: u32_at(page, 40),
            count: u16_at(page, 44),
            bytes: u16_at(page, 46),
        })
    }

    /// Reads and checks the head.
    ///
    /// # Errors
    /// [`Refused`] where this is no whole journal page.
    pub fn decode(page: &[u8]) -> Result<Self, Refused> {
        let head = Self::peek(page)?;
        if !is_sealed(page) {
            return Err(Refused::new(WHAT, "the checksum does not match"));
        }
        if head.first == 0 || [head.first, head.page, head.durable_pages].into_iter().any(|n| n > COUNTER_MAX)
        {
            let PageHead { count, first, page, .. } = head;
            return Err(Refused::new(WHAT, format!("{count} transactions from {first} in page {page}")));
        }
        if usize::from(head.bytes) > PAYLOAD || page[48..HEAD] != [0; 16] {
            return Err(Refused::new(WHAT, "a field that it must not have"));
        }
        Ok(head)
    }
}

/// Reads and checks a whole page.
///
/// # Errors
/// [`Refused`] where anything in it is wrong; then `out` is empty.
pub fn decode_page(page: &[u8], bounds: &Bounds, out: &mut Transactions) -> Result<PageHead, Refused> {
    out.clear();
    let head = PageHead::decode(page)?;
    out.decode(&page[HEAD..HEAD + usize::from(head.bytes)], head.count.into(), bounds)?;
    Ok(head)
}
