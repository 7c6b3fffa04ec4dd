// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the layer knows of the stamps of blocks, beside those in the records of pages.

use crate::current::Current;
use crate::stamp_history::StampHistories;
use crate::types::Target;
use gnstor_proto::slba::{Stamp, Vid};

/// Stamps of the last writes and TRIMs, and which of them count in places that fill.
#[derive(Debug)]
pub(crate) struct Stamps {
    pub(crate) histories: StampHistories,
    /// Blocks of places that fill whose stamps count.
    pub(crate) current: Current,
}

impl Stamps {
    pub(crate) fn new(histories: StampHistories) -> Self {
        Self { histories, current: Current::default() }
    }

    /// The target's stamp was applied to a block.
    #[inline]
    pub(crate) fn applied(&mut self, target: &Target, vba: u32) {
        self.histories.record(target.vid, vba, target.stamp);
        self.current.note(target, vba);
    }

    /// Whether the stamp that is held of a block counts. One of an earlier life of a filling place does not.
    #[inline]
    pub(crate) fn count(&self, target: &Target, vba: u32) -> bool {
        !target.fills || self.current.has(target.vid, target.generation, vba)
    }

    /// The stamp that the history holds of a block.
    #[inline]
    pub(crate) fn held(&self, vid: Vid, vba: u32) -> Option<Stamp> {
        self.histories.held(vid, vba)
    }
}
