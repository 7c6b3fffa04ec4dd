// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a block on an SSD, and which of two serving copies a scrub takes (rule 13). [`crate::fill`]
//! covers filling places.

use gnstor_proto::slba::Stamp;

/// State of a block on an SSD.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Held {
    /// Never written, or forgotten after a TRIM that is settled.
    #[default]
    Nothing,
    /// A block.
    Block {
        /// Stamp of the block.
        stamp: Stamp,
        /// Block sum of the block.
        sum: u32,
    },
    /// Trimmed, and the stamp is kept.
    Tombstone {
        /// The stamp of the TRIM.
        stamp: Stamp,
    },
}

impl Held {
    /// The stamp; the zero stamp for nothing.
    pub fn stamp(self) -> Stamp {
        match self {
            Self::Nothing => Stamp::default(),
            Self::Block { stamp, .. } | Self::Tombstone { stamp } => stamp,
        }
    }

    /// Whether a write with this stamp changes the block. A write at or below the stamp that is held
    /// completes without being applied. So a retry with the same stamp does nothing twice (rule 6).
    pub fn is_older_than(self, stamp: Stamp) -> bool {
        stamp > self.stamp()
    }

    /// Whether both read the same. A tombstone that one of them has forgotten makes no difference.
    pub fn reads_as(self, other: Self) -> bool {
        match (self, other) {
            (Self::Block { stamp, sum }, Self::Block { stamp: theirs, sum: their_sum }) => {
                (stamp, sum) == (theirs, their_sum)
            }
            (Self::Block { .. }, _) | (_, Self::Block { .. }) => false,
            _ => true,
        }
    }
}

/// Scrub (rule 13): whether an SSD's copy is replaced by a peer's. Both serve, and no write is in progress.
/// Each SSD has read its copy and says whether it matches its own sum. A copy that does not match never
/// replaces another. Of equal stamps with different sums the first's is right.
pub fn scrubs(
    (own, own_is_good): (Held, bool),
    (peer, peer_is_good): (Held, bool),
    peer_is_first: bool,
) -> bool {
    if !peer_is_good || peer.stamp() < own.stamp() {
        return false;
    }
    !own_is_good || !own.reads_as(peer) && (peer.stamp() > own.stamp() || peer_is_first)
}

/// As [`scrubs`], while writes may be in progress. Copies with other stamps may differ for a while then, so
/// only equal stamps are compared.
pub fn scrubs_beside_writers(
    own: (Held, bool),
    peer: (Held, bool),
    peer_is_first: bool,
    is_at_rest: bool,
) -> bool {
    (is_at_rest || own.0.stamp() == peer.0.stamp()) && scrubs(own, peer, peer_is_first)
}
