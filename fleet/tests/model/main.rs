// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of the fleet, checked: every state of the model within stated bounds, and planted bugs.
#![expect(clippy::disallowed_methods, reason = "the time that a check takes is printed")]

#[path = "../../../proto/testing/deadline.rs"]
mod deadline;

mod bounds;
mod clocks;
mod control;
mod data;
mod map_ref;
mod model;
mod planted;
mod settling;
mod state;

use bounds::Bounds;
use deadline::{Deadline, LIMIT};
use gnstor_fleet::lease::Timing;
use model::FleetModel;
use planted::{Planted, Rules};
use stateright::{Checker, Expectation, HasDiscoveries, Model};
use std::time::{Duration, Instant};

const VOTES: Bounds = Bounds {
    name: "votes",
    timing: Timing { lease: 1, drift: 1 },
    clocks: 0,
    is_led: false,
    votes_at_once: false,
    terms: 2,
    epochs: 2,
    changing: 2,
    writes: 0,
    open: 1,
    trims: false,
    leases: 1,
    lossy: 0,
    restarts: 0,
    returns: false,
};
const LEASES: Bounds = Bounds { name: "leases", clocks: 1, is_led: true, terms: 1, writes: 1, ..VOTES };
const LED: Bounds = Bounds { is_led: true, votes_at_once: true, terms: 1, ..VOTES };
const SETTLE: Bounds = Bounds { name: "settle", writes: 2, leases: 2, restarts: 1, ..LED };
const FILL: Bounds = Bounds { epochs: 4, returns: true, ..LED };
const TRIM: Bounds = Bounds { name: "trim", changing: 1, writes: 2, open: 2, trims: true, ..FILL };
const LOSSY: Bounds = Bounds { name: "lossy", writes: 1, lossy: 1, ..FILL };
const RETURN: Bounds = Bounds { name: "return", changing: 1, writes: 1, leases: 2, restarts: 1, ..FILL };

const SHORT: &[Bounds] = &[VOTES, LEASES, SETTLE, TRIM, LOSSY, RETURN];
const LONG: &[Bounds] = &[
    Bounds { name: "return+", changing: 2, ..RETURN },
    Bounds { name: "fill+", changing: 2, writes: 2, lossy: 1, ..TRIM },
    Bounds { name: "all+", leases: 2, ..TRIM },
];

/// Bugs that appear only after 100,000 states and more. The long form looks for them.
const DEEP: &[Planted] = &[Planted::AnswerOutlivesTheBarrier];

/// Each bug, and the scope that it is looked for in.
const BUGS: &[(Planted, Bounds)] = &[
    (Planted::TermGrantedTwice, VOTES),
    (Planted::ForeignSsdTaken, VOTES),
    (Planted::HeldMapNotProposedAgain, VOTES),
    (Planted::HoldSkipped, LEASES),
    (Planted::WaitSkipped, LEASES),
    (Planted::LeaseFromReceipt, LEASES),
    (Planted::ClockBeforeIntake, LEASES),
    (Planted::GrantBeforeSettle, SETTLE),
    (Planted::FlagLost, SETTLE),
    (Planted::TombstoneLostWhileFilling, TRIM),
    (Planted::FirstListsNoTombstones, TRIM),
    (Planted::OlderCopyOverwrites, TRIM),
    (Planted::ComparedIsNotCurrent, TRIM),
    (Planted::PeerIsBehind, TRIM),
    (Planted::FilledBeforeCompared, TRIM),
    (Planted::AckOverTwoEpochs, TRIM),
    (Planted::FirstByPlaceAlone, TRIM),
    (Planted::AnyEpochClearsLossy, LOSSY),
    (Planted::FillingServes, LOSSY),
    (Planted::LastCopyDropped, LOSSY),
    (Planted::HighestBeatsServing, RETURN),
    (Planted::FillingIsNotSettled, RETURN),
    (Planted::TouchedLostUnnoticed, RETURN),
    (Planted::WalkNotBegunAnew, Bounds { epochs: 6, leases: 1, ..RETURN }),
    (Planted::AnswerOutlivesTheBarrier, Bounds { leases: 2, ..TRIM }),
];

struct Checked {
    states: usize,
    depth: usize,
    /// Rules that were broken.
    broken: Vec<&'static str>,
    /// Situations that should occur and did not.
    missing: Vec<&'static str>,
    is_exhausted: bool,
    trace: String,
}

/// Visits every state within the bounds, up to the first that breaks a rule.
fn check(bounds: Bounds, planted: Option<Planted>, limit: Duration) -> Checked {
    let start = Instant::now();
    let model = FleetModel { bounds, rules: Rules(planted) };
    let builder = model.checker().threads(2).timeout(limit).finish_when(HasDiscoveries::AnyFailures);
    let checker = builder.spawn_bfs().join();
    let found = checker.discoveries();
    let of = |expectation: Expectation, is_found: bool| -> Vec<&'static str> {
        let all = checker.model().properties();
        let all = all.into_iter().filter(|p| p.expectation == expectation);
        all.map(|p| p.name).filter(|name| found.contains_key(name) == is_found).collect()
    };
    let (broken, missing) = (of(Expectation::Always, true), of(Expectation::Sometimes, false));
    let path = broken.first().and_then(|name| checker.discovery(name));
    let actions = path.map(|path| path.into_actions()).unwrap_or_default();
    Checked {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        broken,
        missing,
        is_exhausted: start.elapsed() < limit,
        trace: actions.iter().map(|action| format!("  {action:?}\n")).collect(),
    }
}

fn is_long() -> bool {
    std::env::var_os("GNSTOR_LONG").is_some_and(|value| value == "1")
}

#[test]
fn every_state_within_the_bounds_keeps_the_rules() {
    let limit = Duration::from_secs(if is_long() { 3600 } else { 280 });
    let _deadline = Deadline::after(if is_long() { 8 * limit } else { LIMIT });
    println!("| scope | states | depth | s |\n|---|---|---|---|");
    for &bounds in SHORT.iter().chain(if is_long() { LONG } else { &[] }) {
        let start = Instant::now();
        let checked = check(bounds, None, limit);
        let (name, states, depth) = (bounds.name, checked.states, checked.depth);
        println!("| {name} | {states} | {depth} | {:.1} |", start.elapsed().as_secs_f64());
        assert!(checked.broken.is_empty(), "{name}: {:?}\n{}", checked.broken, checked.trace);
        assert!(checked.is_exhausted, "{name}: {states} states in {limit:?} were not all");
        assert!(checked.missing.is_empty(), "{name} never comes to: {:?}", checked.missing);
    }
}

#[test]
fn each_planted_bug_is_found() {
    let _deadline = Deadline::after(LIMIT);
    println!("| planted | scope | states until found | steps | broken |\n|---|---|---|---|---|");
    let mut unfound = Vec::new();
    for &(planted, bounds) in BUGS.iter().filter(|(planted, _)| is_long() || !DEEP.contains(planted)) {
        let checked = check(bounds, Some(planted), Duration::from_secs(100));
        let steps = checked.trace.lines().count();
        let broken = checked.broken.join(", ");
        println!("| {planted:?} | {} | {} | {steps} | {broken} |", bounds.name, checked.states);
        if std::env::var_os("GNSTOR_TRACE").is_some() {
            println!("{}", checked.trace);
        }
        if checked.broken.is_empty() {
            unfound.push(planted);
        }
    }
    assert!(unfound.is_empty(), "not found: {unfound:?}");
}
