// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rule 2b: who says goodbye needs no wait. SSD 0 is stopped in order, and says goodbye with its number of
//! openings, 1. Then it is started again, with 2. All orders in which the voters hear that are tried.

use crate::deadline::{Deadline, LIMIT};
use crate::{MS, ask, map, set};
use gnstor_fleet::goodbye::Goodbyes;
use gnstor_fleet::leader::Round;
use gnstor_fleet::lease::LeaseAsk;
use gnstor_fleet::map::{FleetView, Map};
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::voter::Voter;
use gnstor_fleet::{Opening, SsdId};

/// What a voter hears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Goodbye,
    /// SSD 0 asks for a lease after its new start.
    Asks,
    /// MAP HOLD of the map without SSD 0.
    Hold,
}

use Word::{Asks, Goodbye, Hold};

/// All orders of what a voter may hear, of which any part may be lost.
const ORDERS: [&[Word]; 12] = [
    &[Goodbye, Asks, Hold],
    &[Goodbye, Hold, Asks],
    &[Asks, Goodbye, Hold],
    &[Asks, Hold, Goodbye],
    &[Hold, Goodbye, Asks],
    &[Hold, Asks, Goodbye],
    &[Asks, Hold],
    &[Hold, Asks],
    &[Goodbye, Hold],
    &[Hold, Goodbye],
    &[Goodbye, Asks],
    &[Asks, Goodbye],
];

/// Which numbers a voter compares.
type Known = fn(Opening) -> Opening;

/// What a voter says in one of the orders: the lease of the new start, and the goodbyes in its MAP HOLD.
fn hears(words: &[Word], next: &Map, known_to: Known) -> (bool, Option<SsdSet>) {
    let (mut voter, mut goodbyes, mut known) = (Voter::new(map()), Goodbyes::default(), 1);
    let (mut says_yes, mut held) = (false, None);
    for word in words {
        match word {
            Goodbye => goodbyes.heard(&ask(0, 1)),
            Asks => {
                let again = LeaseAsk { opening: 2, ..ask(0, 1) };
                if let Ok(new) = voter.answer(&again, known) {
                    (known, says_yes) = (new.unwrap_or(known), true);
                }
            }
            Hold => {
                voter.hold(2, 9, next.clone()).unwrap();
                held = Some(goodbyes.of(next, &map(), |_| known_to(known)));
            }
        }
    }
    (says_yes, held)
}

/// Number of runs in which the map is active at once, and of those in which SSD 0 serves beside it.
fn tried(known_to: Known) -> (usize, usize) {
    let next = map().lose(0, 2, 2).unwrap();
    let (mut at_once, mut beside) = (0, 0);
    for nth in 0..ORDERS.len().pow(3) {
        let orders = [nth % 12, nth / 12 % 12, nth / 144];
        let (mut yes, mut round) = (SsdSet::EMPTY, Round::new(next.clone()));
        for (voter, order) in (0..).zip(orders) {
            let (says_yes, held) = hears(ORDERS[order], &next, known_to);
            yes = if says_yes { yes.with(voter) } else { yes };
            if let Some(gone) = held {
                round.heard_goodbyes(voter, gone);
                round.held(voter, next.voters, 10);
            }
        }
        let is_active = round.may_activate(10, MS, round.gone(next.voters()));
        at_once += usize::from(is_active);
        beside += usize::from(is_active && yes.is_majority_of(next.voters()));
    }
    (at_once, beside)
}

#[test]
fn a_goodbye_counts_for_no_later_start_of_its_ssd() {
    let _deadline = Deadline::after(LIMIT);
    let (at_once, beside) = tried(|known| known);
    assert!(at_once > 10 && beside == 0, "{at_once} runs without a wait, in {beside} SSD 0 serves beside it");
    let (_, beside) = tried(|_| 1);
    assert!(
        beside > 0,
        "if voters compared no numbers, SSD 0 would serve beside a map that waited for nothing"
    );
}

#[test]
fn a_map_waits_for_an_ssd_whose_goodbye_a_minority_has_heard_or_that_loses_a_place_without_one() {
    let _deadline = Deadline::after(LIMIT);
    let next = map().lose(0, 2, 2).unwrap();
    let round = |heard: &[SsdId]| {
        let mut round = Round::new(next.clone());
        for voter in 0..3 {
            let gone = if heard.contains(&voter) { set(&[0]) } else { SsdSet::EMPTY };
            round.heard_goodbyes(voter, gone);
            round.held(voter, next.voters, 10);
        }
        round
    };
    let may = |round: &Round<Map>, now| round.may_activate(now, MS, round.gone(next.voters));
    assert!(may(&round(&[0, 2]), 10) && may(&round(&[0, 1, 2]), 10));
    for few in [&[][..], &[1][..]] {
        assert!(!may(&round(few), 319) && may(&round(few), 320));
    }
    let mut undecided = Round::new(next.clone());
    undecided.heard_goodbyes(1, set(&[0]));
    undecided.held(1, next.voters, 10);
    assert!(!may(&undecided, 1_000), "a majority must hold the map all the same");
}
