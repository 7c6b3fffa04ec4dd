// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which pages of records the data file does not have as they are.

use crate::geometry::Ppa;
use std::sync::atomic::{AtomicU64, Ordering};

/// Records that fill a page of the file.
const RECORDS: u64 = 64;

/// A bit for each page of records.
#[derive(Debug)]
pub(crate) struct Changes(Box<[AtomicU64]>);

impl Changes {
    /// No page has changed.
    pub(crate) fn none(pages: usize) -> Self {
        Self((0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// A record has changed: the file has it no more.
    #[inline]
    pub(crate) fn note(&self, page: Ppa) {
        self.mark(u64::from(page.0) / RECORDS);
    }

    /// A page of records has changed.
    #[inline]
    pub(crate) fn mark(&self, page: u64) {
        // Always a read-modify-write: a writer takes the bit and then copies the page. If it takes the bit of
        // an earlier change, this one either comes before its copy or sets the bit anew.
        self.0[usize::try_from(page / 64).expect("64-bit host")].fetch_or(1 << (page % 64), Ordering::AcqRel);
    }

    /// Words of 64 bits each.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}
