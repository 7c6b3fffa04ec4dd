// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop that drives the core.
//!
//! The core is one loop, and the links with all SSDs are another one ([`super::ssds`]). A slow SSD delays
//! the change that waits for it, and no other.

use super::asked::Asked;
use super::clock::{Clock, IDLE};
use super::config::DaemonConfig;
use super::input::{Absent, Conditions, Ends, InUse, Input, Listed, State, describe};
use super::link::{Condition, News};
use super::ssds::Ssds;
use crate::core::failure::Failure;
use crate::core::{Core, CoreConfig, Effect, Reply, Ticket};
use crate::port::SsdPort;
use crate::port::connector::Connector;
use gnstor_auth::random;
use gnstor_proto::grpc::Ssd;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Longest sleep of the core's loop.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Turns of the core's loop after which the calls' own tasks have one.
const TURNS: u32 = 128;

/// Ends of connections that are taken in one turn. Beside a flood of connections there are thousands.
const ENDS: u32 = 64;

/// The core and the parts that carry out its effects.
#[derive(Debug)]
pub(super) struct Driver {
    core: Core,
    clock: Clock,
    /// Answers and losses of SSDs: as many as there are commands under way.
    inputs: mpsc::UnboundedReceiver<Input>,
    /// Calls of clients.
    calls: mpsc::UnboundedReceiver<Input>,
    /// Calls that have come, and wait for their turns.
    asked: Asked,
    ssds: Ssds,
    replies: BTreeMap<Ticket, oneshot::Sender<Result<Reply, Failure>>>,
    next_ticket: u64,
    state: watch::Sender<State>,
    absent: watch::Sender<Absent>,
    conditions: watch::Sender<Conditions>,
    maps: watch::Sender<Option<InUse>>,
    listed: watch::Sender<Listed>,
    connector: Option<Arc<dyn Connector>>,
    /// Whether silent SSDs are given up.
    watches_closely: bool,
}

impl Driver {
    /// Starts the thread of the SSDs, and the core.
    pub(super) fn start(array: Vec<SsdPort>, config: &DaemonConfig) -> std::io::Result<(Self, Ends)> {
        let (sender, inputs) = mpsc::unbounded_channel();
        let (call, calls) = mpsc::unbounded_channel();
        let clock = Clock::start();
        let capacities: Vec<_> = array.iter().map(|port| port.capacity_bytes).collect();
        let addresses: Vec<_> = array.iter().map(|port| port.address.clone()).collect();
        let core = CoreConfig { instance: drawn(), ..config.core };
        let (state, states) = watch::channel(State::Starting(String::new()));
        let (absent, absents) = watch::channel(Absent::default());
        let (conditions, seen) = watch::channel(Conditions::default());
        let (maps, seen_maps) = watch::channel(None);
        let (listed, seen_ssds) = watch::channel(array.iter().map(describe).collect::<Listed>());
        let ssds = Ssds::start(array, config.command_timeout, clock, sender, config.openings.clone())?;
        let driver = Self {
            core: Core::new(core, &capacities)
                .reached_at(addresses)
                .standing_in(config.stands_in.clone())
                .assuming(&config.assumed),
            clock,
            inputs,
            calls,
            asked: Asked::default(),
            ssds,
            replies: BTreeMap::new(),
            next_ticket: 0,
            state,
            absent,
            conditions,
            maps,
            listed,
            connector: config.connector.clone(),
            watches_closely: false,
        };
        let (absent, conditions) = (absents, seen);
        let ends =
            Ends { inputs: call, state: states, absent, conditions, maps: seen_maps, listed: seen_ssds };
        Ok((driver, ends))
    }

    /// Drives the core for ever; it ends by being dropped.
    pub(super) async fn drive(mut self) -> Infallible {
        let mut turn = 0u32;
        loop {
            turn = turn.wrapping_add(1);
            self.carry_out();
            while let Ok(call) = self.calls.try_recv() {
                self.asked.push(call);
            }
            if turn.is_multiple_of(TURNS) {
                tokio::task::yield_now().await;
            }
            let now = self.clock.now_ms();
            // However many calls come, what is due is done.
            if self.core.next_event().is_some_and(|at| at <= now) {
                self.core.step(now);
                self.carry_out();
            }
            // The sleep's clock stands still while the machine is suspended, and the core's goes on.
            let wait =
                self.core.next_event().map_or(IDLE, |at| Duration::from_millis(at.saturating_sub(now)));
            let wait = wait.min(LONGEST_WAIT);
            let has_calls = !self.asked.is_empty();
            tokio::select! {
                biased;
                Some(input) = self.inputs.recv() => self.take(input),
                () = std::future::ready(()), if has_calls => {
                    for _ in 0..ENDS {
                        let Some(input) = self.asked.next() else { break };
                        let has_ended = matches!(input, Input::Closed { .. });
                        self.take(input);
                        if !has_ended {
                            break;
                        }
                    }
                }
                Some(call) = self.calls.recv() => self.asked.push(call),
                () = tokio::time::sleep(wait) => self.core.step(self.clock.now_ms()),
            }
        }
    }

    fn take(&mut self, input: Input) {
        let now = self.clock.now_ms();
        match input {
            Input::Request { caller, request, reply } => {
                let ticket = Ticket(self.next_ticket);
                self.next_ticket += 1;
                tracing::debug!(ticket = ticket.0, ?request, caller = %caller.name, "request");
                self.replies.insert(ticket, reply);
                self.core.request_of(now, ticket, caller, request);
            }
            Input::Closed { connection } => self.core.closed(now, connection),
            Input::Completed { id, answer } => self.core.completed(now, id, answer),
            Input::Presence { ssd, news: News::Lost(why) } => {
                tracing::warn!(ssd, %why, "an SSD is down");
                self.core.ssd_lost(now, ssd, why);
            }
            Input::Presence { ssd, news: News::Found } => {
                tracing::info!(ssd, "an SSD is back");
                self.core.ssd_found(now, ssd);
            }
            Input::Presence { ssd, news: News::Condition(condition) } => self.set_condition(ssd, condition),
        }
    }

    fn set_condition(&self, ssd: u16, condition: Condition) {
        let before = self.conditions.borrow().get(&ssd).copied().unwrap_or_default();
        match (before.is_filling, condition.is_filling) {
            (false, true) => {
                tracing::warn!(ssd, "an SSD may lack acknowledged writes, and serves no reads");
            }
            (true, false) => tracing::info!(ssd, "an SSD serves reads again"),
            _ => {}
        }
        if condition.is_damaged && !before.is_damaged {
            tracing::warn!(ssd, "an SSD could not read all of its permission metadata");
        }
        self.conditions.send_modify(|conditions| _ = conditions.insert(ssd, condition));
    }

    /// Connects to an SSD that this daemon was not given.
    fn connect(&mut self, ssd: u16, address: &str, bytes: u64) {
        let Some(connector) = &self.connector else {
            return tracing::error!(ssd, address, "this daemon cannot connect to further SSDs");
        };
        let port = connector.port(ssd, address, bytes);
        let about = describe(&port);
        self.listed.send_modify(|listed| *listed = listed.iter().cloned().chain([about]).collect());
        self.ssds.connect(port);
    }

    /// SSDs that this daemon did not reach at its start are listed as large as they say they are.
    fn list_sizes(&self) {
        for (ssd, bytes) in self.core.sizes_of_others() {
            self.listed.send_if_modified(|listed| {
                let mut ssds = listed.to_vec();
                let is_new = |of: &&mut Ssd| of.index == u32::from(ssd) && of.capacity_bytes != bytes;
                let Some(of) = ssds.iter_mut().find(is_new) else { return false };
                of.capacity_bytes = bytes;
                *listed = ssds.into();
                true
            });
        }
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.core.pop_effect() {
            match effect {
                Effect::Command { id, ssd, command } => self.ssds.give(ssd, id, command),
                Effect::Reply { ticket, result } => {
                    if let Err(failure) = &result {
                        let code = failure.code;
                        tracing::debug!(ticket = ticket.0, ?code, message = %failure.message, "refused");
                    }
                    if let Some(reply) = self.replies.remove(&ticket) {
                        // A client that hung up does not want the answer. Its request is executed
                        // nevertheless.
                        reply.send(result).ok();
                    }
                }
                Effect::Connect { ssd, address, bytes } => self.connect(ssd, &address, bytes),
                Effect::Serving => {
                    tracing::info!(term = self.core.term(), "the array is read, requests are served");
                    self.state.send_replace(State::Serving);
                }
                Effect::Stopped(stop) => {
                    tracing::error!(%stop, "nothing is served any more");
                    self.state.send_replace(State::Stopped(stop));
                }
            }
        }
        if !self.watches_closely && self.core.has_voters() {
            self.watches_closely = true;
            self.ssds.watch_closely();
        }
        self.list_sizes();
        self.maps.send_if_modified(|maps| {
            let new =
                self.core.map_in_use().filter(|(epoch, _)| maps.as_ref().is_none_or(|(e, _)| e < epoch));
            let differs = new.is_some();
            if differs {
                *maps = new;
            }
            differs
        });
        self.absent.send_if_modified(|absent| {
            let new = self.core.absent();
            let differs = **absent != new;
            if differs {
                *absent = Arc::new(new);
            }
            differs
        });
        if let Some(waits_for) = self.core.waits_for() {
            let new = State::Starting(waits_for);
            self.state.send_if_modified(|state| {
                let differs = *state != new;
                *state = new;
                differs
            });
        }
    }
}

/// Number of this start of a daemon; not 0.
fn drawn() -> u64 {
    let mut bytes = [0; 8];
    random::fill(&mut bytes);
    u64::from_le_bytes(bytes).max(1)
}
