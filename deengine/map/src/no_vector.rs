// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replaces `vector.rs` on processors without its instructions.

use crate::batch::Batch;
use crate::memory::Line;
use crate::shape::Shape;
use crate::table::{Compared, Table};
use crate::ways::Ways;
use std::ops::Range;

/// No value of this type exists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Vector {}

impl Vector {
    pub(crate) fn for_shape(_: &Shape) -> Option<Self> {
        None
    }

    pub(crate) fn probe(self, _: &Table, _: &mut Batch, _: bool) {
        match self {}
    }

    pub(crate) fn find(self, _: &Table, _: &mut Batch, _: u64, _: usize) -> u64 {
        match self {}
    }

    pub(crate) fn ways(self, _: &Table, _: u64) -> Ways {
        match self {}
    }

    pub(crate) fn crowded(self, _: &Table, _: &Batch) -> u64 {
        match self {}
    }

    pub(crate) fn check(self, _: &Table, _: Range<u64>, _: &mut [u32]) -> Result<usize, u64> {
        match self {}
    }

    pub(crate) fn page(self, _: &Line, _: u64, _: u64) -> (bool, u32) {
        match self {}
    }

    pub(crate) fn compare(self, _: &Line, _: u64, _: u64) -> Compared {
        match self {}
    }
}
