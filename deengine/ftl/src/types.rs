// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments and results of the layer's calls.

use gnstor_base::time::Time;
use gnstor_durable::Seq;
use gnstor_flash::{Frame, Ppa};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::slba::{Stamp, Vid};

/// Place of a block. The reader unpins an [`Extent::Page`] with [`crate::Ftl::unpin`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// On this page; the data has this block sum.
    Page(Ppa, u32),
    /// Never written, or trimmed. The block reads as zeros.
    Unmapped,
    /// On a page of another generation of the volume: the block reads as zeros (protocol rule 10).
    StaleGeneration,
    /// On a page whose record names another block or none: an internal error.
    WrongKey,
}

/// The blocks of a write. Block `i` of the write is `vba + i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The volume.
    pub vid: Vid,
    /// Generation of the volume.
    pub generation: u32,
    /// First block.
    pub vba: u32,
    /// Stamp of the write.
    pub stamp: Stamp,
    /// Only blocks that are mapped are written; else nothing is (rule 15).
    pub only_mapped: bool,
    /// The place of these blocks fills: what they had before counts only where it is current
    /// ([`crate::Commits::is_current`]).
    pub fills: bool,
}

/// A block whose data has arrived, and that is not mapped yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewBlock {
    /// The frame with the data; the layer owns it once the write is committed.
    pub frame: Frame,
    /// Block sum of the data.
    pub sum: u32,
}

/// A write that readers see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Time at which the data is in the write buffer in the model.
    pub done: Time,
    /// The last transaction of the write. The write is durable once [`crate::Ftl::durable`] has reached it.
    pub seq: Seq,
    /// Blocks applied.
    pub applied: u32,
    /// Blocks that were not applied, because they had the same or a newer stamp (protocol rule 6).
    pub overtaken: u32,
}

/// Why a write cannot be committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing has changed. The caller must call [`crate::Ftl::maintain`] and then try again.
    #[error("collection has to finish first")]
    Stalled,
    /// Too many blocks have gone bad.
    #[error("the flash is worn out: no space is left beyond what is written")]
    WornOut,
    /// More blocks would be mapped than there are logical pages (protocol rule 5), or the disk under a sparse
    /// data file is full.
    #[error("the SSD is full")]
    Full,
    /// The disk has refused the journal or a checkpoint for seconds, and there is no room for more that is
    /// not durable.
    #[error("the disk takes no writes")]
    Failing,
    /// A block is not mapped, and only mapped ones were to be written.
    #[error("the block takes room that it does not have yet")]
    Unmapped,
}

/// Why a write will not be durable soon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotDurable {
    /// The disk under a sparse data file has been full for seconds.
    Full,
    /// The disk has refused the journal for seconds.
    Failing,
}

/// Result of [`crate::Ftl::trim`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Trimmed {
    /// Blocks that were mapped.
    pub mapped: u32,
    /// Number of blocks with a newer or the same stamp.
    pub overtaken: u32,
    /// The last transaction.
    pub seq: Seq,
}

/// Data that does not match this sum. A page with it reports a media error to each read. It stays the same
/// copy of its block: an SSD that compares copies leaves it alone. A scrub replaces it by a good one.
pub fn other_than(sum: u32) -> &'static [u8; BLOCK_BYTES as usize] {
    static PAGES: [[u8; BLOCK_BYTES as usize]; 2] = [[0; BLOCK_BYTES as usize], [0xFF; BLOCK_BYTES as usize]];
    &PAGES[usize::from(block_sum(&PAGES[0]) == sum)]
}
