// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Repair by pulling (rule 13): which of two copies of a block is right, and a pass over the blocks.
//! Return, rebuild, drain, scrub and settle are this comparison.

use crate::Epoch;
use crate::history::{ALL, History};
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

    /// Whether a write with this stamp changes the block. At or below the stamp that is held a write
    /// completes without being applied, so a retry with the same stamp does nothing twice (rule 6).
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

/// What the two SSDs of a comparison are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Roles {
    /// The own place is filling, the peer serves.
    FillingFromServing,
    /// Both serve; `peer_is_first`: the peer is the group's first.
    BothServing {
        /// The peer's copy is the one that readers beside a writer see.
        peer_is_first: bool,
    },
}

/// What the SSD that compares does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The copies read the same, or the peer's is the one to be repaired.
    Keep,
    /// The own copy becomes the peer's.
    Take,
    /// The difference is above the settled mark: its write may still be under way.
    NextPass,
}

/// Compares an SSD's copy with a peer's. Serving beats filling, also with a lower stamp: what is higher is a
/// write that was never acknowledged. Among serving copies the highest stamp wins, and of equal stamps with
/// different sums the first's. `mark`: `None` where no write is under way (a settle).
pub fn compare(roles: Roles, own: Held, peer: Held, mark: Option<Stamp>) -> Verdict {
    if own.reads_as(peer) {
        return Verdict::Keep;
    }
    if mark.is_some_and(|mark| own.stamp().max(peer.stamp()) > mark) {
        return Verdict::NextPass;
    }
    let take = match roles {
        Roles::FillingFromServing => true,
        Roles::BothServing { peer_is_first } => (peer.stamp(), peer_is_first) > (own.stamp(), !peer_is_first),
    };
    if take { Verdict::Take } else { Verdict::Keep }
}

/// As [`compare`] for a scrub. Each SSD has read its copy and says whether it matches its own sum: a copy
/// that does not never replaces another one.
pub fn scrub(roles: Roles, own: (Held, bool), peer: (Held, bool), mark: Option<Stamp>) -> Verdict {
    let ((own, own_is_good), (peer, peer_is_good)) = (own, peer);
    match (own_is_good, peer_is_good) {
        (true, true) => compare(roles, own, peer, mark),
        (_, false) => Verdict::Keep,
        (false, true) if peer.stamp() < own.stamp() => Verdict::Keep,
        (false, true) => Verdict::Take,
    }
}

/// A copy that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pull {
    /// The pass that asked.
    pub pass: u64,
    /// What the SSD held when it compared.
    pub compared: Held,
    /// What the peer sent; it refuses if its stamp moved since the comparison.
    pub theirs: Held,
}

/// One pass of a filling SSD over its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pass {
    /// Its number; grows with each pass, and is never used again.
    pub number: u64,
    /// The epoch that it began in. A pass of an earlier epoch counts nothing.
    pub epoch: Epoch,
    /// The higher of the two SSDs' marks at its beginning: what this SSD forgot of a TRIM is at or below its
    /// own.
    pub mark: Stamp,
    /// The epoch of the holder that reported the mark.
    pub marked_in: Epoch,
    /// It met a difference at or below the mark.
    pub differs: bool,
}

impl Pass {
    /// A pass begins.
    pub fn new(number: u64, epoch: Epoch, own: &History, peer: &History) -> Self {
        let marked_in = own.marked_in().max(peer.marked_in());
        Self { number, epoch, mark: own.mark().max(peer.mark()), marked_in, differs: false }
    }

    /// Compares one block; a pull where the copy is to be taken.
    pub fn compare(&mut self, own: Held, peer: Held) -> Option<Pull> {
        let verdict = compare(Roles::FillingFromServing, own, peer, Some(self.mark));
        self.differs |= verdict == Verdict::Take;
        (verdict == Verdict::Take).then_some(Pull { pass: self.number, compared: own, theirs: peer })
    }

    /// Whether a copy that arrives is applied: it belongs to the pass that is under way, and the SSD still
    /// holds what it compared. So a pass without a difference has no copy on its way.
    pub fn takes(&self, pull: &Pull, own: Held) -> bool {
        pull.pass == self.number && own == pull.compared
    }

    /// The pass is over: whether it confirms the content in this epoch. The mark must come from a holder that
    /// knows the epoch of the pass. With an older map it may have ended writes without this SSD that the mark
    /// does not cover; with this one it can end no write without it. A settled volume has no holder.
    pub fn confirms(&self, epoch: Epoch) -> bool {
        let covers = self.mark == ALL || self.marked_in >= self.epoch;
        self.epoch == epoch && !self.differs && covers
    }
}

/// Whether an SSD may forget that a block was trimmed: every replica has the TRIM, and no write below it is
/// taken any more.
pub fn may_forget_tombstone(stamp: Stamp, mark: Stamp) -> bool {
    stamp <= mark
}
