// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The place of a command in the list of its queue.

/// The end of a list. No command has this number: its slot's index is smaller.
pub(crate) const NONE: u32 = u32::MAX;

/// The neighbours of a command in the list of its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) before: u32,
    pub(crate) after: u32,
}

impl Links {
    /// A command that is in no list yet.
    pub(crate) const UNLISTED: Self = Self { before: NONE, after: NONE };
}
