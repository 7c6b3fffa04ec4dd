// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quiesces an HCA: waits, on all its rings, until no operation that was under way at the start can still
//! touch the queue owners' memory.
//!
//! A LOCAL_INVAL closes its key at once. A mover or a responder of any block may have opened the key just
//! before, and may still write. So the request completes when all of them are past that:
//!
//! ```text
//!   LOCAL_INVAL, ring a --> round + 1
//!   every executor, at its next poll: new work waits; a ping goes to its responder
//!       its copies and fused responses have ended, the ping is answered --> quiescent[ring] = round
//!   all of quiescent >= round --> the request completes
//! ```
//! A descriptor that an executor hands over after it has seen the round finds the key closed. The agent's
//! flag, its report, the round and the descriptor are a chain of release and acquire.

use crate::hca::abi::*;
use crate::hca::ring::DOWN_WORDS;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The tag of the ping; a transport's own names are never 0.
pub(super) const PING: u32 = 0;

/// The rounds of an HCA, which its executors share.
#[derive(Debug)]
pub(super) struct Rounds {
    round: AtomicU64,
    /// The last round for which each ring is quiescent.
    quiescent: Box<[AtomicU64]>,
}

impl Rounds {
    pub(super) fn new(rings: usize) -> Arc<Self> {
        Arc::new(Self {
            round: AtomicU64::new(0),
            quiescent: (0..rings).map(|_| AtomicU64::new(0)).collect(),
        })
    }
}

/// Progress of one executor in the current round.
#[derive(Debug)]
pub(super) struct Quiesce {
    rounds: Arc<Rounds>,
    ring: usize,
    /// The last round that this executor has seen.
    seen: u64,
    /// Whether that round is over here.
    done: bool,
    must_ping: bool,
    /// Pings in the ring.
    pings: u32,
    /// Copies and fused responses in the ring whose end the agent has not reported.
    copies: u32,
    /// Some parts of a fused response are in the ring, but not its last one.
    in_answer: bool,
}

impl Quiesce {
    pub(super) fn new(rounds: &Arc<Rounds>, ring: usize) -> Self {
        Self {
            rounds: Arc::clone(rounds),
            ring,
            seen: 0,
            done: true,
            must_ping: false,
            pings: 0,
            copies: 0,
            in_answer: false,
        }
    }

    /// Begins a round; returns its number.
    pub(super) fn begin(&self) -> u64 {
        self.rounds.round.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether every ring is quiescent for this round.
    pub(super) fn is_quiescent(&self, round: u64) -> bool {
        // Pairs with the release in `look` and in the drop.
        self.rounds.quiescent.iter().all(|done| done.load(Ordering::Acquire) >= round)
    }

    /// Joins a new round, and ends a round that is over on this ring. Returns whether a ping should go into
    /// the ring now.
    pub(super) fn look(&mut self) -> bool {
        let round = self.rounds.round.load(Ordering::Acquire); // pairs with `begin`
        if round != self.seen {
            (self.seen, self.done, self.must_ping) = (round, false, true);
        }
        if !self.done && !self.must_ping && self.pings == 0 && self.copies == 0 {
            self.done = true;
            self.rounds.quiescent[self.ring].store(round, Ordering::Release);
        }
        self.must_ping
    }

    /// Whether new work has to wait. The rest of a fused response is not new: the agent ends it when it has
    /// all its parts.
    pub(super) fn holds(&self) -> bool {
        !self.done && !self.in_answer
    }

    /// Notes a descriptor that went into the ring. A fused response counts once, from its first part on.
    pub(super) fn handed_over(&mut self, descriptor: &[u64; DOWN_WORDS]) {
        let op = descriptor[0] >> 56;
        if !matches!(op, DOWN_TO_DEVICE | DOWN_TO_HOST | DOWN_FUSED) {
            return;
        }
        self.copies += u32::from(!self.in_answer);
        self.in_answer = op == DOWN_TO_DEVICE && descriptor[5] >> 32 & DOWN_PART != 0;
    }

    /// Notes that the ping went into the ring.
    pub(super) fn pinged(&mut self) {
        self.must_ping = false;
        self.pings += 1;
    }

    /// Takes note of an entry; returns whether it was the reply to this module's ping.
    pub(super) fn hear(&mut self, e: &UpEntry) -> bool {
        let pong = e.kind == UP_PONG && e.index == PING && self.pings > 0;
        self.pings -= u32::from(pong);
        let ended = match e.kind {
            UP_DONE => 1,
            UP_FUSED_DONE => e.flags,
            _ => 0,
        };
        self.copies = self.copies.saturating_sub(ended);
        pong
    }
}

/// A dropped executor hands over nothing more. The transport has taken back its copies, or has kept the
/// executor until they ended (`transport/leaving.rs`).
impl Drop for Quiesce {
    fn drop(&mut self) {
        self.rounds.quiescent[self.ring].store(u64::MAX, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    fn said(kind: u32) -> UpEntry {
        UpEntry { kind, index: PING, ..UpEntry::default() }
    }

    fn descriptor(op: u64, flags: u64) -> [u64; DOWN_WORDS] {
        [op << 56, 0, 0, 0, 0, flags << 32, 0, 0]
    }

    /// Two rings, and a round in which the first has done its part.
    fn rings() -> (u64, Quiesce, Quiesce) {
        let rounds = Rounds::new(2);
        let (mut first, second) = (Quiesce::new(&rounds, 0), Quiesce::new(&rounds, 1));
        let round = first.begin();
        assert!(first.look() && first.holds());
        first.pinged();
        assert!(first.hear(&said(UP_PONG)) && !first.look());
        assert!(!first.holds() && !first.is_quiescent(round));
        (round, first, second)
    }

    #[test]
    fn a_ring_is_quiescent_when_both_its_ping_and_its_copies_are_answered() {
        let _deadline = deadline();
        for order in [[UP_PONG, UP_DONE], [UP_DONE, UP_PONG]] {
            let (round, first, mut second) = rings();
            second.handed_over(&descriptor(DOWN_TO_DEVICE, 0));
            second.handed_over(&descriptor(DOWN_SEND, 0));
            assert!(second.look());
            second.pinged();
            second.hear(&said(order[0]));
            assert!(!second.look() && second.holds() && !first.is_quiescent(round));
            second.hear(&said(order[1]));
            assert!(!second.look() && !second.holds() && first.is_quiescent(round));
        }
    }

    #[test]
    fn an_answer_is_handed_over_whole_and_is_over_when_it_has_ended() {
        let _deadline = deadline();
        let rounds = Rounds::new(1);
        let mut only = Quiesce::new(&rounds, 0);
        only.handed_over(&descriptor(DOWN_TO_DEVICE, DOWN_PART));
        let round = only.begin();
        assert!(only.look() && !only.holds(), "its other parts go on");
        only.handed_over(&descriptor(DOWN_PING, 0));
        only.pinged();
        only.handed_over(&descriptor(DOWN_TO_DEVICE, DOWN_PART));
        assert!(!only.holds());
        only.handed_over(&descriptor(DOWN_FUSED, DOWN_PART));
        assert!(only.holds());
        assert!(only.hear(&said(UP_PONG)) && !only.look() && !only.is_quiescent(round), "it has not ended");
        assert!(!only.hear(&UpEntry { flags: 1, ..said(UP_FUSED_DONE) }), "the executor's, not the wait's");
        assert!(!only.look() && !only.holds() && only.is_quiescent(round));
    }

    #[test]
    fn a_report_ends_as_many_answers_as_it_names() {
        let _deadline = deadline();
        let rounds = Rounds::new(1);
        let mut only = Quiesce::new(&rounds, 0);
        for _ in 0..3 {
            only.handed_over(&descriptor(DOWN_FUSED, DOWN_PART | DOWN_CHECK_SUM));
        }
        let round = only.begin();
        assert!(only.look());
        only.pinged();
        only.hear(&said(UP_PONG));
        for (flags, over) in [(2, false), (1, true)] {
            only.hear(&UpEntry { flags, ..said(UP_FUSED_DONE) });
            assert_eq!((only.look(), only.is_quiescent(round)), (false, over));
        }
    }

    #[test]
    fn an_answer_to_an_older_ping_is_not_enough() {
        let _deadline = deadline();
        let (_, first, mut second) = rings();
        assert!(second.look());
        second.pinged();
        let newer = second.begin();
        assert!(second.look(), "another ping");
        second.pinged();
        second.hear(&said(UP_PONG));
        assert!(!second.look() && second.holds());
        second.hear(&said(UP_PONG));
        assert!(
            !second.look() && !second.holds() && !first.is_quiescent(newer),
            "the first has not seen the newer one"
        );
    }

    #[test]
    fn pongs_of_the_engines_own_pings_are_its_own() {
        let _deadline = deadline();
        let (_, mut first, _second) = rings();
        assert!(
            !first.hear(&said(UP_PONG))
                && !first.hear(&UpEntry { kind: UP_PONG, index: 7, ..UpEntry::default() })
        );
    }
}
