// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Replaces `vector.rs` on processors without its instructions.

use crate::batch::Batch;
use crate::map::{Compared, Map};
use crate::memory::Line;
use crate::search::Ways;
use crate::shape::Shape;
use std::ops::Range;

/// No value of this type exists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Vector {}

impl Vector {
    pub(crate) fn for_shape(_: &Shape) -> Option<Self> {
        None
    }

    pub(crate) fn probe(self, _: &Map, _: &mut Batch, _: bool) {
        match self {}
    }

    pub(crate) fn find(self, _: &Map, _: &mut Batch, _: u64, _: usize) -> u64 {
        match self {}
    }

    pub(crate) fn ways(self, _: &Map, _: u64) -> Ways {
        match self {}
    }

    pub(crate) fn crowded(self, _: &Map, _: &Batch) -> u64 {
        match self {}
    }

    pub(crate) fn check(self, _: &Map, _: Range<u64>, _: &mut [u32]) -> Result<usize, u64> {
        match self {}
    }

    pub(crate) fn page(self, _: &Line, _: u64, _: u64) -> (bool, u32) {
        match self {}
    }

    pub(crate) fn compare(self, _: &Line, _: u64, _: u64) -> Compared {
        match self {}
    }
}
