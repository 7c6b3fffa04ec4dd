// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random requests, faults, delays and restarts; a model that knows only the replies checks the invariants.

mod acts;
mod found;
mod found_exchanges;
mod kills;
mod look;
mod model;
mod steps;

use self::model::Model;
use self::steps::{Step, cases, step};
use crate::array::SimArray;
use crate::bench::{Bench, config, create_with, write};
use crate::deadline::{Deadline, LIMIT};
use crate::voter::keeps_copies;
use gnstor_daemon::core::report::SsdView;
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{CoreConfig, MapFormat, Quotas};
use gnstor_proto::placement::map3::State3;
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::VolumeEntry;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SSDS: usize = 3;
const FIVE: usize = 5;
/// Client ids that there are: those of the steps.
const IDS: u16 = 4;

/// SSDs in processes of their own: others may join.
fn apart(map_format: MapFormat) -> CoreConfig {
    let quotas = Quotas { ids: ClientId::new(IDS).unwrap(), ..Quotas::default() };
    CoreConfig { map_format, names_addresses: true, spreads: true, quotas, ..config() }
}

/// Entries without the writer: List does not show a writer whose lease has run out, the tables do.
fn plain(entries: &[VolumeEntry]) -> Vec<VolumeEntry> {
    entries.iter().map(|e| VolumeEntry { writer: None, ..e.clone() }).collect()
}

struct Run {
    bench: Bench,
    model: Model,
    /// The map names voters, and the daemon changes it by itself.
    votes: bool,
    /// The SSDs that each daemon is given. Others join.
    given: usize,
    /// SSDs whose last copies the operator may have called lost. If no volume has a block there, the daemon
    /// accepts that without `lose_data`.
    given_up: BTreeSet<u16>,
    /// No further daemon can start.
    is_over: bool,
    /// The clients have ids that each daemon gives them again.
    registers: bool,
}

impl Run {
    /// The clients of the steps get their ids. Each SSD ends the earlier holders of an id before an entry
    /// names it, as the log of the array checks.
    fn register(&mut self) {
        let count = if self.registers && self.bench.core.is_serving() { IDS } else { 0 };
        for _ in 0..count {
            let ticket = self.bench.send(Request::Register);
            self.bench.news.retain(|(of, _)| *of != ticket);
        }
    }

    fn send(&mut self, request: Request) {
        let ticket = self.bench.send(request.clone());
        self.model.asked.insert(ticket, request);
        self.hear();
    }

    fn hear(&mut self) {
        while let Some((ticket, outcome)) = self.bench.news.pop_front() {
            self.model.hear(&self.bench, ticket, &outcome);
        }
    }

    fn execute(&mut self, ssd: usize) -> bool {
        let any = self.bench.execute(ssd);
        self.hear();
        any
    }

    fn run_until_quiet(&mut self) {
        while (0..self.bench.array.len()).filter(|&ssd| self.execute(ssd)).count() > 0 {}
    }

    /// As `Bench::run_for`, but hears each reply at the moment of its arrival.
    fn run_for(&mut self, ms: u64) {
        let end = self.bench.now + ms;
        self.run_until_quiet();
        while let Some(at) = self.bench.core.next_event().filter(|&at| at <= end) {
            self.bench.pass(at.saturating_sub(self.bench.now));
            self.run_until_quiet();
        }
        self.bench.pass(end - self.bench.now);
        self.run_until_quiet();
    }

    /// A new daemon, without the knowledge of the one before. Its SSDs must answer for it to start.
    fn restart(&mut self) {
        self.heal();
        let (array, now) = (self.bench.array.clone(), self.bench.now);
        // Requests under way may have been carried out, without a reply.
        for request in std::mem::take(&mut self.model.asked).into_values() {
            self.model.give_up(&request);
        }
        self.bench = Bench::cold_given(&array, self.given, now, apart(MapFormat::Two));
        // If voters decide, three maps may follow each other, and each waits for lease and drift. They are a
        // held map, one without an SSD that lost writes, and one with the SSDs that are back.
        self.bench.run_for(if self.votes { 3_000 } else { 1_000 });
        let (serves, waits_for) = (self.bench.core.is_serving(), self.bench.core.waits_for());
        self.is_over = !self.may_start();
        self.register();
        assert_eq!(serves, !self.is_over, "{:?} {waits_for:?}", self.bench.stopped);
        assert!(serves || self.bench.stopped.is_none() && waits_for.is_some(), "it waits");
    }

    /// Empty SSDs get the places in which they are. Absent SSDs that lack writes are used with the content
    /// that they have.
    fn repair_all(&mut self) {
        // A request that waits may keep an SSD absent until it ends.
        for (ms, lose_data) in [(1_000, false), (1_000, false), (100_000, true), (5_000, true), (5_000, true)]
        {
            self.run_for(ms);
            let fleet = self.bench.core.fleet();
            let is_kept = |ssd: &&SsdView| ssd.leaves || matches!(ssd.state, State3::Out | State3::Absent);
            let kept = fleet.iter().flat_map(|f| &f.ssds).filter(is_kept);
            for ssd in kept.map(|ssd| ssd.index).collect::<Vec<_>>() {
                self.given_up.insert(ssd);
                self.send(Request::Replace { ssd, lose_data });
                self.send(Request::Resume { ssd, lose_data });
            }
        }
    }

    fn heal(&mut self) {
        for ssd in 0..self.bench.array.len() {
            let mut ssd = self.bench.array.ssd(ssd);
            ssd.dead = false;
            ssd.faults.clear();
        }
        let fleet = self.bench.core.fleet();
        let down = fleet.iter().flat_map(|fleet| &fleet.ssds).filter(|ssd| ssd.away.is_some());
        let down: BTreeSet<u16> = down.map(|ssd| ssd.index).collect();
        // No map may name the one that joins yet.
        let joins = self.given..self.bench.array.len();
        let joins = joins.filter_map(|ssd| u16::try_from(ssd).ok());
        for ssd in self.bench.core.absent().into_keys().chain(down).chain(joins) {
            self.bench.find(ssd);
        }
        for ssd in fleet.iter().flat_map(|fleet| &fleet.ssds).filter(|ssd| ssd.flaps) {
            self.bench.core.resume(self.bench.now, ssd.index).unwrap();
        }
        self.bench.pass(0);
    }

    /// Makes a step. No map that it activated took the last copy of a volume that existed before and after.
    fn judged_step(&mut self, step: Step) {
        let log = Arc::clone(&self.bench.array.ssd(0).vote.log);
        let (epoch, before) = (log.lock().unwrap().epoch(), self.volumes());
        self.step(step);
        let after = self.volumes();
        for replicas in before.intersection(&after).map(|(.., replicas)| *replicas) {
            keeps_copies(log.lock().unwrap().active_from(epoch), replicas, &self.given_up);
        }
    }

    /// Without further faults every SSD gets the same entries, and the daemon lists these.
    fn finish(mut self) {
        self.heal();
        self.repair_all();
        self.run_for(200_000);
        assert_eq!(self.bench.stopped, None, "no other daemon runs");
        assert_eq!(self.bench.core.absent(), BTreeMap::new(), "{:?}", self.bench.core.fleet());
        self.is_whole();
        assert!(self.model.asked.is_empty(), "every request is answered: {:?}", self.model.asked);
        assert_eq!(self.bench.core.next_event(), None, "nothing is left to do");
        let entries = self.bench.array.agreed();
        let names: BTreeSet<_> = entries.iter().map(|e| &e.name).collect();
        assert_eq!(names.len(), entries.len(), "names are unique");
        let before = self.bench.list();
        assert_eq!(plain(&before), plain(&entries));
        self.restart();
        assert!(!self.is_over, "each member has a table");
        assert_eq!(plain(&self.bench.list()), plain(&before), "a restarted daemon has the same state");
        assert_eq!(self.bench.array.agreed(), entries, "and changes nothing");
    }
}

/// Makes the steps, ends all faults, and checks that the array agrees with itself.
fn comes_to_one_state(steps: Vec<Step>, sweep_commands: u32, takes: u32, votes: bool) {
    of_so_many_comes_to_one_state(SSDS, steps, sweep_commands, takes, votes);
}

fn of_so_many_comes_to_one_state(
    ssds: usize,
    steps: Vec<Step>,
    sweep_commands: u32,
    takes: u32,
    votes: bool,
) {
    let _deadline = Deadline::after(LIMIT);
    ends_in_one_state(started(ssds, sweep_commands, takes, votes), steps);
}

/// An array whose SSDs take some commands for each sweep and fill, and its daemon.
fn started(ssds: usize, sweep_commands: u32, takes: u32, votes: bool) -> Run {
    let array = SimArray::new(ssds);
    for ssd in 0..ssds {
        array.ssd(ssd).sweep_commands = sweep_commands;
        array.ssd(ssd).fill.takes = takes;
    }
    let map_format = if votes { MapFormat::Three } else { MapFormat::Two };
    let mut bench = Bench::cold_with(&array, 0, apart(map_format));
    bench.run_until_quiet();
    Run {
        bench,
        given: ssds,
        model: Model { votes, ..Model::default() },
        votes,
        given_up: BTreeSet::new(),
        is_over: false,
        registers: false,
    }
}

fn ends_in_one_state(mut run: Run, steps: Vec<Step>) {
    run.register();
    for step in steps {
        run.judged_step(step);
        if run.is_over {
            return;
        }
    }
    run.finish();
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn whatever_happens_an_array_of_voters_comes_to_one_state(
        steps in proptest::collection::vec(step(SSDS), 1..80),
        sweep_commands in 0u32..6,
        takes in 0u32..4,
    ) {
        comes_to_one_state(steps, sweep_commands, takes, true);
    }

    /// Three SSDs, and a fourth one joins at some time, with all its faults.
    #[test]
    fn whatever_happens_an_array_that_one_joins_comes_to_one_state(
        before in proptest::collection::vec(step(SSDS), 0..30),
        steps in proptest::collection::vec(step(SSDS + 1), 1..60),
        sweep_commands in 0u32..6,
        takes in 0u32..4,
    ) {
        let all = before.into_iter().chain([Step::Add]).chain(steps).collect();
        comes_to_one_state(all, sweep_commands, takes, true);
    }

    /// Of five SSDs one is outside of each row, and comes in where another one is drained.
    #[test]
    fn whatever_happens_an_array_of_five_comes_to_one_state(
        steps in proptest::collection::vec(step(FIVE), 1..80),
        sweep_commands in 0u32..6,
        takes in 0u32..4,
    ) {
        of_so_many_comes_to_one_state(FIVE, steps, sweep_commands, takes, true);
    }

    /// Their ids are given again after each restart of the daemon.
    #[test]
    fn whatever_happens_an_array_of_registered_clients_comes_to_one_state(
        steps in proptest::collection::vec(step(SSDS), 1..80),
        sweep_commands in 0u32..6,
        takes in 0u32..4,
        votes: bool,
    ) {
        let _deadline = Deadline::after(LIMIT);
        ends_in_one_state(Run { registers: true, ..started(SSDS, sweep_commands, takes, votes) }, steps);
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn whatever_happens_the_array_comes_to_one_state(
        steps in proptest::collection::vec(step(SSDS), 1..80),
        sweep_commands in 0u32..6,
        takes in 0u32..4,
    ) {
        comes_to_one_state(steps, sweep_commands, takes, false);
    }

    /// Two daemons on one array, in any interleaving. One is left, the other one has stopped or never did
    /// anything, and the SSDs agree.
    #[test]
    fn of_two_daemons_one_is_left(
        order in proptest::collection::vec((any::<bool>(), 0..SSDS, 0usize..4), 0..60),
        ops in 1u8..6,
        votes: bool,
    ) {
        let _deadline = Deadline::after(LIMIT);
        let array = SimArray::new(SSDS);
        let map_format = if votes { MapFormat::Three } else { MapFormat::Two };
        let mut old = Bench::cold_with(&array, 0, CoreConfig { map_format, ..config() });
        old.run_until_quiet();
        old.ask(create_with("v0", 1, None)).unwrap();
        let mut new = Bench::cold(&array, 0);
        for op in 0..ops {
            let name = format!("v{op}");
            old.send(create_with(&name, 1, None));
            old.send(write(&name, 7, 5_000));
        }
        for (is_new, ssd, which) in order {
            if is_new { new.execute_one(ssd, which) } else { old.execute_one(ssd, which) };
        }
        new.run_for(60_000);
        old.run_for(60_000);
        prop_assert!(new.core.is_serving(), "{:?} {:?}", new.stopped, new.core.waits_for());
        new.ask(create_with("last", 1, None)).unwrap();
        let outcome = old.ask(create_with("late", 1, None));
        prop_assert_eq!(outcome.unwrap_err().code, GrpcCode::Aborted);
        prop_assert!(old.stopped.is_some());
        prop_assert_eq!(plain(&array.agreed()), plain(&new.list()));
    }
}
