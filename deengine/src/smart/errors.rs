// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Error Information log: the last commands that failed, newest first.
//!
//! Each controller keeps its own log, so that no host learns about other hosts' commands. The SSD also keeps
//! one log of all commands, which the daemon reads.

use gnstor_proto::log_page::{self, ERROR_ENTRIES};
use gnstor_proto::status::Status;
use std::collections::VecDeque;
use zerocopy::{FromZeros, IntoBytes};

/// Parameter error location: not given.
const NO_LOCATION: u16 = 0xFFFF;

/// A command that was answered with an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ErrorEntry {
    pub(crate) qid: u16,
    pub(crate) cid: u16,
    pub(crate) status: Status,
    pub(crate) vid: u16,
    /// DW0 of the completion.
    pub(crate) dw0: u32,
    pub(crate) dw1: u32,
}

impl ErrorEntry {
    /// The entry in the form of the page.
    fn numbered(&self, number: u64) -> log_page::ErrorEntry {
        log_page::ErrorEntry {
            number: number.into(),
            sqid: self.qid.into(),
            cid: self.cid.into(),
            status: (self.status.0 << 1).into(),
            location: NO_LOCATION.into(),
            // The volume's first block.
            lba: (u64::from(self.vid) << 48).into(),
            nsid: crate::request::NSID.into(),
            dw0: self.dw0.into(),
            dw1: self.dw1.into(),
            ..log_page::ErrorEntry::new_zeroed()
        }
    }
}

/// The last [`ERROR_ENTRIES`] errors, and the number of all.
#[derive(Debug, Default)]
pub(crate) struct ErrorLog {
    entries: VecDeque<ErrorEntry>,
    count: u64,
}

impl ErrorLog {
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn add(&mut self, entry: ErrorEntry) {
        if self.entries.len() == ERROR_ENTRIES {
            self.entries.pop_back();
        }
        self.entries.push_front(entry);
        self.count += 1;
    }

    /// The page. The error count of an entry is its number since the SSD was made; unused entries are zero.
    pub(crate) fn page(&self) -> Vec<u8> {
        let mut page = [log_page::ErrorEntry::new_zeroed(); ERROR_ENTRIES];
        let numbers = (1..=self.count).rev();
        for ((place, entry), number) in page.iter_mut().zip(&self.entries).zip(numbers) {
            *place = entry.numbered(number);
        }
        page.as_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_64_are_kept_newest_first() {
        let _deadline = crate::deadline::deadline();
        let mut log = ErrorLog::default();
        assert_eq!(log.page(), [0; 4096]);
        for cid in 1..=100u16 {
            log.add(ErrorEntry { qid: 3, cid, status: Status(0x4286), vid: 5, dw0: 0x0102, dw1: 0 });
        }
        let page = log.page();
        for (index, entry) in page.chunks(64).enumerate() {
            let number = 100 - index as u64;
            assert_eq!(entry[..8], number.to_le_bytes());
            assert_eq!(u64::from(u16::from_le_bytes([entry[10], entry[11]])), number);
        }
        assert_eq!(
            page[8..40],
            [
                3, 0, 100, 0, 0x0C, 0x85, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 1,
                0, 0, 0, 0, 0, 0
            ]
        );
        assert_eq!(log.count(), 100);
    }
}
