// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of the fleet, checked: every state of the model within stated bounds, and planted bugs.

#[path = "../../../proto/testing/deadline.rs"]
mod deadline;

mod control;
mod data;
mod model;
mod planted;
mod state;

use gnstor_fleet::lease::Timing;
use model::FleetModel;
use planted::{Planted, Rules};
use state::Bounds;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::{Duration, Instant};

const CONTROL: Bounds = Bounds {
    name: "control",
    timing: Some(Timing { lease: 1, drift: 1 }),
    terms: 2,
    epochs: 2,
    writes: 1,
    trims: false,
    leases: 1,
    lossy: 0,
    restarts: 0,
    give_ups: 0,
    forget: false,
    returns: false,
    marks: false,
};
const REPAIR: Bounds = Bounds {
    name: "repair",
    timing: None,
    terms: 1,
    epochs: 4,
    writes: 2,
    trims: true,
    leases: 1,
    lossy: 1,
    returns: true,
    marks: true,
    ..CONTROL
};
const SETTLE: Bounds = Bounds {
    name: "settle",
    timing: None,
    terms: 1,
    epochs: 2,
    writes: 2,
    trims: false,
    leases: 2,
    give_ups: 1,
    forget: true,
    marks: true,
    ..CONTROL
};

fn check(bounds: Bounds, planted: Option<Planted>, seconds: u64) -> (usize, usize, Vec<&'static str>, bool) {
    let start = Instant::now();
    let model = FleetModel { bounds, rules: Rules(planted) };
    let checker = model.checker().threads(2).timeout(Duration::from_secs(seconds));
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found: Vec<_> = checker
        .discoveries()
        .into_keys()
        .filter(|name| {
            checker.model().properties().iter().any(|p| {
                p.name == *name && matches!(p.expectation, stateright::Expectation::Always)
            })
        })
        .collect();
    println!(
        "{:8} {:32} {:>9} states, depth {:>3}, {:.1} s{} {:?}",
        bounds.name,
        planted.map_or("-".into(), |planted| format!("{planted:?}")),
        checker.unique_state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f64(),
        if checker.is_done() { "" } else { " NOT DONE" },
        found,
    );
    if let Some(name) = found.first() {
        if std::env::var_os("GNSTOR_TRACE").is_some() {
            let path = checker.discovery(name).expect("just found");
            println!("{}", path.into_actions().iter().map(|a| format!("  {a:?}\n")).collect::<String>());
        }
    }
    (checker.unique_state_count(), checker.max_depth(), found, start.elapsed().as_secs() < seconds)
}

#[test]
fn try_scopes() {
    let secs = std::env::var("SECS").map_or(60, |s| s.parse().unwrap());
    for bounds in [SETTLE, REPAIR, CONTROL] {
        check(bounds, None, secs);
    }
}
