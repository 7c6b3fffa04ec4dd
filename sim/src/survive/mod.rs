// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor sim survive`: arrays with faults, from one seed each, and checkers that stand outside.
//!
//! ```text
//!   Shape (swarm) --> World: load and faults --> rest: no fault, all heals --> media and reads are audited
//! ```
//!
//! | module | what |
//! |---|---|
//! | `shape` | what a seed draws |
//! | `world`, `life`, `clock`, `watch` | the loop, starts and ends, clocks that run off, deadlines |
//! | `chaos`, `power`, `media`, `storm`, `aimed`, `leap`, `leave`, `join`, `operator` | the faults, and what the operator does |
//! | `rest`, `drill`, `swap`, `rot`, `scrub`, `audit` | the end of a world |
//! | `wire`, `end`, `driver` | connections, the hosts' ends of them, and what drives an admin queue |
//! | `node`, `peers` | SSDs, and their questions to each other |
//! | `daemon`, `client` | the other actors |
//! | `history`, `deletes`, `reach`, `room`, `memory`, `tap` | the checkers |
//! | `blocks`, `changes` | the data, and what maps change |
//! | [`campaign`], [`shrink`], [`stats`], [`planted`] | many seeds, what a failing one needs, what they met, and mistakes on purpose |

mod aimed;
mod audit;
mod blocks;
pub mod campaign;
mod changes;
mod chaos;
mod client;
mod clock;
mod daemon;
mod deletes;
mod drill;
pub(crate) mod driver;
pub(crate) mod end;
mod history;
mod join;
mod leap;
mod leave;
mod life;
mod media;
mod memory;
mod node;
mod operator;
pub(crate) mod peers;
pub mod planted;
mod power;
mod reach;
mod rest;
mod room;
mod rot;
mod scrub;
mod shape;
pub mod shrink;
pub mod stats;
mod storm;
mod swap;
mod tap;
mod watch;
mod wire;
mod world;

use gnstor_base::time::Time;
pub use history::Violation;
use shrink::{Idle, Turn};
use stats::Stats;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// Options for running a seed.
#[derive(Clone, Default, Debug)]
pub struct Options {
    /// Keep the lines of the trace.
    pub trace: bool,
    /// The faults that are left out, by their numbers.
    pub without: Vec<u64>,
    /// The clients, and turns of clients, that are left out.
    pub idle: Idle,
}

/// The result of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What is wrong, if anything is.
    pub violation: Option<Violation>,
    /// The faults that happened, with their numbers.
    pub faults: Vec<(u64, String)>,
    /// The turns that clients took.
    pub turns: Vec<Turn>,
    /// Hash of all steps and deliveries.
    pub digest: u64,
    /// Steps of actors.
    pub steps: u64,
    /// Counters of the faults and paths that the seed met.
    pub stats: Stats,
    /// The lines of the trace.
    pub log: Vec<String>,
}

/// Runs a seed.
pub fn run(seed: u64, options: &Options) -> Outcome {
    let made = catch_unwind(|| World::new(seed, options));
    let mut world = match made {
        Ok(Ok(world)) => world,
        Ok(Err(facts)) => return failed(seed, "the world cannot be made", facts),
        Err(panic) => return failed(seed, PANICKED, said(&*panic)),
    };
    let ended = catch_unwind(AssertUnwindSafe(|| world.play()));
    if let Err(panic) = ended {
        let at = world.post.now;
        world.history.broken(at, PANICKED, said(&*panic));
    }
    world.say_steps();
    Outcome {
        seed,
        violation: world.history.violation.clone(),
        faults: std::mem::take(&mut world.chaos.list),
        turns: world.clients.iter().flat_map(|client| client.turns.clone()).collect(),
        digest: world.trace,
        steps: world.steps,
        stats: world.post.stats.clone(),
        log: world.post.log.take().unwrap_or_default(),
    }
}

const PANICKED: &str = "a part of the array panicked";

/// The message of a panic.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// A seed that failed before anything happened.
fn failed(seed: u64, rule: &str, facts: String) -> Outcome {
    let violation = Some(Violation { rule: rule.into(), facts, at: Time::ZERO });
    let (faults, turns, log, stats) = (Vec::new(), Vec::new(), Vec::new(), Stats::default());
    Outcome { seed, violation, faults, turns, digest: 0, steps: 0, stats, log }
}
