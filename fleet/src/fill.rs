// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One block of a filling place (rule 13, decision 57): the effects of a client's write, and of a copy from
//! the group's first. One comparison of each block is enough.
//!
//! ```text
//!   earlier life --a client's write or TRIM, or the comparison--> current
//!        |                                                           |
//!   any write or copy replaces it                       only a higher stamp replaces it
//! ```
//! The firmware judges by it (`deengine/src/repair`).

use crate::repair::Held;
use crate::salvage;
use gnstor_proto::slba::Stamp;

/// A block of a place that fills.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Filling {
    /// State of the block on the SSD. A tombstone is kept while the place fills.
    pub held: Held,
    /// A client's write or TRIM came since the fill began, or the block was compared: its stamp counts.
    pub is_current: bool,
}

impl Filling {
    /// Judges a client's write or TRIM, and returns whether it changes the block. The stamp of an earlier
    /// life counts for nothing.
    pub fn write(&mut self, new: Held) -> bool {
        let applies = !self.is_current || self.held.is_older_than(new.stamp());
        if applies {
            self.held = new;
        }
        self.is_current = true;
        applies
    }

    /// Applies a copy of the first, or notes that none was needed. Returns whether reads find other content
    /// from now on. The copy is judged when it is applied, as a write may have come since the comparison. The
    /// stamp of a tombstone is kept as well.
    pub fn copy(&mut self, theirs: Held) -> bool {
        let before = self.held;
        if !self.is_current || self.held.is_older_than(theirs.stamp()) {
            self.held = theirs;
        }
        self.is_current = true;
        !before.reads_as(self.held)
    }

    /// Judges another copy of a salvage (rule 17), and returns whether reads find something else from now
    /// on. The block does not become current: no client writes it before a copy serves, and until then only
    /// the order of copies counts.
    pub fn merge(&mut self, theirs: Held) -> bool {
        let before = self.held;
        if salvage::wins(theirs, before) {
            self.held = theirs;
        }
        !before.reads_as(self.held)
    }

    /// A settle makes the block equal to the first's, whatever the stamps are. Returns whether reads find
    /// other content. A block of a serving place is current.
    pub fn settle(&mut self, first: Held) -> bool {
        let changes = settles(self.held, first);
        if changes || !self.is_current {
            self.held = first;
        }
        self.is_current = true;
        changes
    }
}

/// Settle (rule 14): whether a member's copy becomes that of the group's first. No write is under way, so the
/// first decides, whatever the stamps are.
pub fn settles(own: Held, first: Held) -> bool {
    !own.reads_as(first)
}

/// The first's answer for a block. A TRIM whose stamp it still knows is a tombstone. Without that, a late
/// write below the TRIM stays on the SSD that fills.
pub fn listed(held: Option<Held>, last: Option<Stamp>) -> Held {
    match (held, last) {
        (Some(held), _) => held,
        (None, Some(stamp)) => Held::Tombstone { stamp },
        (None, None) => Held::Nothing,
    }
}

#[cfg(test)]
mod tests;
