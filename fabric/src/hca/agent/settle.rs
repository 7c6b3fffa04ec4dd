// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits until nothing that was under way at some moment touches the queue owners' memory any more, on all rings of an HCA.
//!
//! A LOCAL_INVAL closes its key at once, but a mover or a responder of any of the agent's blocks may have opened it just before, and
//! write behind it. So the request completes when all of them are past that:
//!
//! ```text
//!   LOCAL_INVAL, ring a --> round + 1 --> every half, at its next poll: new work waits; a ping goes to its responder
//!                                         its copies answered, the ping too --> settled[ring] = round
//!                       all settled >= round --> the request completes
//! ```
//! What a half hands over after it has seen the round finds the key closed: the agent's flag, its report, the round and the
//! descriptor are a chain of release and acquire.

use crate::hca::abi::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The tag of the ping; an engine's own names are never 0.
pub(super) const PING: u32 = 0;

/// What the halves of an HCA know of each other's waits.
#[derive(Debug)]
pub(super) struct Rounds {
    round: AtomicU64,
    /// The last round that each ring has settled.
    settled: Box<[AtomicU64]>,
}

impl Rounds {
    pub(super) fn new(rings: usize) -> Arc<Self> {
        Arc::new(Self { round: AtomicU64::new(0), settled: (0..rings).map(|_| AtomicU64::new(0)).collect() })
    }
}

/// One half's part in them.
#[derive(Debug)]
pub(super) struct Settle {
    rounds: Arc<Rounds>,
    ring: usize,
    /// The last round that this half has seen.
    seen: u64,
    /// Whether that one has been settled here.
    done: bool,
    must_ping: bool,
    /// Pings in the ring.
    pings: u32,
    /// Copies in the ring that have not been answered.
    copies: u32,
}

impl Settle {
    pub(super) fn new(rounds: &Arc<Rounds>, ring: usize) -> Self {
        Self { rounds: Arc::clone(rounds), ring, seen: 0, done: true, must_ping: false, pings: 0, copies: 0 }
    }

    /// Begins a round; returns its number.
    pub(super) fn begin(&self) -> u64 {
        self.rounds.round.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether every ring has settled this round.
    pub(super) fn is_settled(&self, round: u64) -> bool {
        // Pairs with the release in `look` and in the drop.
        self.rounds.settled.iter().all(|settled| settled.load(Ordering::Acquire) >= round)
    }

    /// Joins a round that has begun, ends one that is over here. Returns whether a ping should go into the ring now.
    pub(super) fn look(&mut self) -> bool {
        let round = self.rounds.round.load(Ordering::Acquire); // pairs with `begin`
        if round != self.seen {
            (self.seen, self.done, self.must_ping) = (round, false, true);
        }
        if !self.done && !self.must_ping && self.pings == 0 && self.copies == 0 {
            self.done = true;
            self.rounds.settled[self.ring].store(round, Ordering::Release);
        }
        self.must_ping
    }

    /// Whether new work has to wait.
    pub(super) fn holds(&self) -> bool {
        !self.done
    }

    /// A descriptor has gone into the ring.
    pub(super) fn handed_over(&mut self, head: u64) {
        self.copies += u32::from(matches!(head >> 56, DOWN_TO_DEVICE | DOWN_TO_HOST));
    }

    /// The ping has gone into the ring.
    pub(super) fn pinged(&mut self) {
        self.must_ping = false;
        self.pings += 1;
    }

    /// Hears an entry; returns whether it was the ping's answer, which is nobody else's.
    pub(super) fn hear(&mut self, e: &UpEntry) -> bool {
        let pong = e.kind == UP_PONG && e.index == PING && self.pings > 0;
        self.pings -= u32::from(pong);
        self.copies = self.copies.saturating_sub(u32::from(e.kind == UP_DONE));
        pong
    }
}

/// A half that is gone hands over nothing more. What it has handed over nobody hears the end of: its engine has taken it back, or
/// waits for it and keeps the half (`engine/leaving.rs`).
impl Drop for Settle {
    fn drop(&mut self) {
        self.rounds.settled[self.ring].store(u64::MAX, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(kind: u32) -> UpEntry {
        UpEntry { kind, index: PING, ..UpEntry::default() }
    }

    /// Two rings, and a round in which the first has done its part.
    fn rings() -> (u64, Settle, Settle) {
        let rounds = Rounds::new(2);
        let (mut first, second) = (Settle::new(&rounds, 0), Settle::new(&rounds, 1));
        let round = first.begin();
        assert!(first.look() && first.holds());
        first.pinged();
        assert!(first.hear(&said(UP_PONG)) && !first.look());
        assert!(!first.holds() && !first.is_settled(round));
        (round, first, second)
    }

    #[test]
    fn a_ring_has_settled_when_both_its_ping_and_its_copies_are_answered() {
        for order in [[UP_PONG, UP_DONE], [UP_DONE, UP_PONG]] {
            let (round, first, mut second) = rings();
            second.handed_over(DOWN_TO_DEVICE << 56);
            second.handed_over(DOWN_SEND << 56);
            assert!(second.look());
            second.pinged();
            second.hear(&said(order[0]));
            assert!(!second.look() && second.holds() && !first.is_settled(round));
            second.hear(&said(order[1]));
            assert!(!second.look() && !second.holds() && first.is_settled(round));
        }
    }

    #[test]
    fn an_answer_to_an_older_ping_is_not_enough() {
        let (_, first, mut second) = rings();
        assert!(second.look());
        second.pinged();
        let newer = second.begin();
        assert!(second.look(), "another ping");
        second.pinged();
        second.hear(&said(UP_PONG));
        assert!(!second.look() && second.holds());
        second.hear(&said(UP_PONG));
        assert!(!second.look() && !second.holds() && !first.is_settled(newer), "the first has not seen the newer one");
    }

    #[test]
    fn pongs_of_the_engines_own_pings_are_its_own() {
        let (_, mut first, _second) = rings();
        assert!(!first.hear(&said(UP_PONG)) && !first.hear(&UpEntry { kind: UP_PONG, index: 7, ..UpEntry::default() }));
    }
}
