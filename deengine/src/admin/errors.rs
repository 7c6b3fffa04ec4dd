// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Error Information log: the last commands that did not succeed, newest first.
//!
//! Each controller keeps its own, so that no host learns what others ask for; the SSD keeps one of all,
//! which the daemon reads.

use crate::controller::Ssd;
use crate::io::command::Answer;
use crate::io::permit::CompletionPermit;
use crate::session::{Queue, Role};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::status::Status;
use std::collections::VecDeque;

/// Entries kept; Identify ELPE is one less.
pub(crate) const ERROR_ENTRIES: usize = 64;
/// Bytes of an entry.
pub(crate) const ERROR_ENTRY_BYTES: usize = 64;
/// Parameter error location: not told.
const NO_LOCATION: u16 = 0xFFFF;

/// A command that was answered with an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ErrorEntry {
    pub(crate) qid: u16,
    pub(crate) cid: u16,
    pub(crate) status: Status,
    pub(crate) vid: u16,
    /// DW0 and DW1 of the completion.
    pub(crate) detail: u64,
}

/// The last [`ERROR_ENTRIES`] of them, and how many there were.
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
        let mut page = vec![0; ERROR_ENTRIES * ERROR_ENTRY_BYTES];
        let numbers = (1..=self.count).rev();
        for ((bytes, entry), number) in
            page.as_chunks_mut::<ERROR_ENTRY_BYTES>().0.iter_mut().zip(&self.entries).zip(numbers)
        {
            bytes[0..8].copy_from_slice(&number.to_le_bytes());
            bytes[8..10].copy_from_slice(&entry.qid.to_le_bytes());
            bytes[10..12].copy_from_slice(&entry.cid.to_le_bytes());
            bytes[12..14].copy_from_slice(&(entry.status.0 << 1).to_le_bytes());
            bytes[14..16].copy_from_slice(&NO_LOCATION.to_le_bytes());
            // LBA: the volume's first.
            bytes[16..24].copy_from_slice(&(u64::from(entry.vid) << 48).to_le_bytes());
            bytes[24..28].copy_from_slice(&crate::request::NSID.to_le_bytes());
            // Command specific information.
            bytes[32..40].copy_from_slice(&entry.detail.to_le_bytes());
        }
        page
    }
}

impl Ssd {
    pub(crate) fn log_error(&mut self, permit: &CompletionPermit, vid: u16, answer: &Answer) {
        let Some(&mut Queue { qid, role, .. }) = self.hosts.queue(permit.queue()) else { return };
        let detail = u64::from(answer.dw0) | u64::from(answer.dw1) << 32;
        let entry = ErrorEntry { qid, cid: permit.cid(), status: answer.status, vid, detail };
        self.smart.log_error(entry);
        let (Role::Admin(cntlid) | Role::Io(cntlid, _)) = role else { return };
        if let Some(host) = self.hosts.host(cntlid) {
            host.errors.add(entry);
        }
        if let Role::Io(_, Identity::Client(client)) = role {
            self.table.count_refusal(vid, client);
        }
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
            log.add(ErrorEntry { qid: 3, cid, status: Status(0x4286), vid: 5, detail: 0x0102 });
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
