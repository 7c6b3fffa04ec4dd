// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tail of the journal: encoded transactions that are committed and not durable, and after them the open
//! one.
//!
//! ```text
//!   | durable | committed, not durable ......... | open |
//!             head                               end    bytes.len()
//! ```

use crate::record::{
    Bounds, MAX_TRANSACTION_BYTES, MIN_TRANSACTION_BYTES, Record, encode_transaction_head, transaction_head,
};

#[derive(Debug, Default)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    head: usize,
    end: usize,
    open: Option<u16>,
}

impl Tail {
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    #[inline]
    pub(crate) fn begin(&mut self) {
        assert!(self.open.is_none(), "a transaction is open");
        self.bytes.extend_from_slice(&[0; MIN_TRANSACTION_BYTES]);
        self.open = Some(0);
    }

    #[inline]
    pub(crate) fn add(&mut self, record: &Record) {
        let count = self.open.as_mut().expect("no transaction is open");
        *count += 1;
        record.encode(&mut self.bytes);
        let bytes = self.bytes.len() - self.end;
        assert!(bytes <= MAX_TRANSACTION_BYTES, "a transaction of {bytes} bytes does not fit a journal page");
    }

    /// The transaction as bytes.
    #[inline]
    pub(crate) fn commit(&mut self) -> &[u8] {
        let count = self.open.take().expect("no transaction is open");
        let head = encode_transaction_head(self.bytes.len() - self.end, count);
        self.bytes[self.end..self.end + head.len()].copy_from_slice(&head);
        let start = std::mem::replace(&mut self.end, self.bytes.len());
        &self.bytes[start..]
    }

    pub(crate) fn abandon(&mut self) {
        self.open = None;
        self.bytes.truncate(self.end);
    }

    /// Changes values of words in committed transactions that are not durable, except the first `skip`.
    pub(crate) fn amend(&mut self, bounds: &Bounds, mut skip: u64, mut change: impl FnMut(u64, u64) -> u64) {
        let mut at = self.head;
        while at < self.end {
            let (bytes, _) = transaction_head(&self.bytes[at..self.end]).expect("written by commit");
            let end = at + bytes;
            if skip > 0 {
                (skip, at) = (skip - 1, end);
                continue;
            }
            at += MIN_TRANSACTION_BYTES;
            while at < end {
                let (record, taken) = Record::decode(&self.bytes[at..end], bounds).expect("written by add");
                if let Record::Word { index, value } = record {
                    self.bytes[at + 8..at + 16].copy_from_slice(&change(index, value).to_le_bytes());
                }
                at += taken;
            }
        }
    }

    /// Committed transactions, one after the other.
    pub(crate) fn committed(&self) -> &[u8] {
        &self.bytes[self.head..self.end]
    }

    /// Bytes of the committed transaction that starts `at` bytes behind the head; `None` at the end.
    #[inline]
    pub(crate) fn length_at(&self, at: usize) -> Option<usize> {
        let rest = &self.committed()[at..];
        if rest.is_empty() {
            return None;
        }
        Some(transaction_head(rest).expect("written by commit").0)
    }

    /// Appends transactions that are encoded already. The caller has checked them.
    pub(crate) fn adopt(&mut self, encoded: &[u8]) {
        assert!(self.open.is_none(), "a transaction is open");
        self.bytes.extend_from_slice(encoded);
        self.end = self.bytes.len();
    }

    /// The first `bytes` are durable. Moves the rest down where that is cheap, so that the buffer is reused.
    pub(crate) fn drop_front(&mut self, bytes: usize) {
        self.head += bytes;
        if self.head * 2 >= self.bytes.len() {
            self.bytes.copy_within(self.head.., 0);
            self.bytes.truncate(self.bytes.len() - self.head);
            self.end -= self.head;
            self.head = 0;
        }
    }
}
