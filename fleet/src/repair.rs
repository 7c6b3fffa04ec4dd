// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an SSD holds of a block, and which of two serving copies a scrub takes (rule 13). Filling places have
//! [`crate::fill`].

use gnstor_proto::slba::Stamp;

/// What an SSD holds of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Held {
    /// Never written, or forgotten after a TRIM that is settled.
    #[default]
    Nothing,
    /// A block.
    Block {
        /// Its stamp.
        stamp: Stamp,
        /// Its block sum.
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

    /// Both read the same: a tombstone that one of them has forgotten is no difference.
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

/// Scrub (rule 13): whether an SSD's copy becomes a peer's. Both serve, and no write is under way. Each has
/// read its copy and says whether that matches its own sum: a copy that does not never replaces another one.
/// Of equal stamps with different sums the first's is right.
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

/// As [`scrubs`], where writes may be under way: then copies with other stamps may differ for a while, and
/// only equal stamps are compared.
pub fn scrubs_beside_writers(
    own: (Held, bool),
    peer: (Held, bool),
    peer_is_first: bool,
    is_at_rest: bool,
) -> bool {
    (is_at_rest || own.0.stamp() == peer.0.stamp()) && scrubs(own, peer, peer_is_first)
}
