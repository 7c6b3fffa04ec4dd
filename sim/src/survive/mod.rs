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
//! | `world`, `chaos`, `rest` | the loop, the faults, the end |
//! | `wire`, `end` | connections, and the hosts' ends of them |
//! | `node`, `peers` | SSDs, and their questions to each other |
//! | `daemon`, `client` | the other actors |
//! | `history` | the checkers |
//! | [`campaign`], [`stats`] | many seeds, and what they met |

mod audit;
pub mod campaign;
mod chaos;
mod client;
mod daemon;
mod end;
mod history;
mod node;
mod peers;
mod rest;
mod shape;
pub mod stats;
mod wire;
mod world;

pub use history::Violation;
use stats::Stats;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// What to do with a seed.
#[derive(Clone, Default, Debug)]
pub struct Options {
    /// Keep the lines of the trace.
    pub trace: bool,
    /// The faults that are left out, by their numbers.
    pub without: Vec<u64>,
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
    /// Hash of all steps and deliveries.
    pub digest: u64,
    /// Steps of actors.
    pub steps: u64,
    /// What was met.
    pub stats: Stats,
    /// The lines of the trace.
    pub log: Vec<String>,
}

/// Runs a seed.
pub fn run(seed: u64, options: &Options) -> Outcome {
    let mut world = match World::new(seed, options.without.clone(), options.trace) {
        Ok(world) => world,
        Err(facts) => {
            let at = gnstor_base::time::Time::ZERO;
            let violation = Some(Violation { rule: "the world cannot be made".into(), facts, at });
            let stats = Stats::default();
            return Outcome {
                seed,
                violation,
                faults: Vec::new(),
                digest: 0,
                steps: 0,
                stats,
                log: Vec::new(),
            };
        }
    };
    let ended = catch_unwind(AssertUnwindSafe(|| world.play()));
    if let Err(panic) = ended {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let at = world.post.now;
        world.history.broken(at, "a part of the array panicked", text.unwrap_or_default());
    }
    world.say_steps();
    Outcome {
        seed,
        violation: world.history.violation.clone(),
        faults: std::mem::take(&mut world.chaos.list),
        digest: world.trace,
        steps: world.steps,
        stats: world.post.stats.clone(),
        log: world.post.log.take().unwrap_or_default(),
    }
}
