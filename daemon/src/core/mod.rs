// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon without I/O: requests, answers of SSDs and the passage of time in; commands, replies and
//! deadlines out.
//!
//! ```text
//!   request(ticket) --> dispatch --> calls: check, next entry --+
//!                                                               v            Effect::Command
//!   step(now) -----> retries, deadlines -------------------> rounds: one command to every SSD ----> SSDs
//!                                                               |
//!   completed(command) <----------------------------------------+----> Effect::Reply
//! ```
//! Changes of one volume run one after another; volumes are independent. The caller passes a monotonic
//! `now` in ms.

mod absence;
mod calls;
mod capacity;
mod clients;
mod config;
mod delete;
mod effect;
mod ends;
mod epoch;
pub mod failure;
mod fill;
mod fleet_view;
mod holder;
mod holders;
mod identity;
mod ids;
mod late;
mod listing;
mod members;
mod page;
mod presence;
mod publish;
mod rename;
mod repairs;
mod replaced;
pub mod report;
pub mod request;
mod resize;
pub mod rights;
mod round;
mod settle;
mod shrink;
mod start;
mod stop;
mod term;
mod volume;

use capacity::Capacity;
pub use clients::Quotas;
pub use config::{CoreConfig, MapFormat};
pub use effect::{
    Answer, Command, CommandId, Effect, GoneVolume, Promised, Reply, SettleOf, SettleReport, Stop, Ticket,
    WireMap,
};
pub use epoch::NotNext;
use failure::Failure;
pub use fill::FillReport;
use gnstor_proto::placement;
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::status::{GrpcCode, NOT_SERVING_YET, Refusal};
pub use holder::{Holder, WriteLease};
pub use page::{PAGE_MOST, Page};
pub use repairs::RepairView;
pub use report::{LostBlocks, MapChange, Salvageable};
use request::Request;
pub use request::{Add, Found, Label, Rename, Resize};
use rights::Caller;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use stop::stopped;
use volume::{Stage, Volume};

/// Tickets from here on are the core's own: their replies have no reader.
const OWN_TICKETS: u64 = 1 << 63;

/// Shares of the requests that may be under way, and of the requests that may wait for a volume. When one
/// share is left of either, a principal that has one gets no more.
const SHARES: usize = 4;

#[derive(Debug)]
enum Phase {
    Starting(start::Start),
    Serving,
    Stopped(Stop),
}

/// The part of the core that waits for a command's answer.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Start,
    Round {
        vid: Vid,
        adding: bool,
    },
    /// Brings an SSD that came back up to date.
    Resync,
    /// An SSD is told to delete a volume that the array no longer has. No request waits for the answer.
    Stray,
    /// A command whose answer does not matter: to an SSD outside the map, or sent for a volume before a map
    /// dropped the SSD.
    Unawaited,
    /// Asks a voter to hold the next map.
    Hold,
    /// Asks a voter of a map with new voters for the term.
    Anew,
    /// Tells an SSD the active map.
    Tell,
    /// Asks an SSD that fills for its progress.
    Fill,
    /// An SSD is to settle a volume.
    Settle(Vid),
    /// An SSD gets an operator's order to its repairs, or says how far its scrub is.
    Repair(Ticket),
    /// An SSD ends the earlier holders of a client id.
    ClientEnd {
        client: ClientId,
        serial: u64,
    },
}

/// The state machine.
#[derive(Debug)]
pub struct Core {
    config: CoreConfig,
    members: members::Members,
    /// The blocks that the volumes reserve; `None` until the SSDs' tables are read.
    capacity: Option<Capacity>,
    phase: Phase,
    term: term::Term,
    epoch: epoch::Epoch,
    changes: shrink::Changes,
    fills: fill::Fills,
    repairs: repairs::Repairs,
    /// Addresses of the SSDs, for a fresh map.
    addresses: Vec<String>,
    /// The time of the last call.
    now: u64,
    volumes: BTreeMap<Vid, Volume>,
    names: BTreeMap<String, Vid>,
    /// New names that a Publish or Rename is giving: the volume of each, and the volume's present name.
    publishing: BTreeMap<String, (Vid, String)>,
    past: ids::PastVids,
    tombstones: ids::Tombstones,
    idle_deletes: ids::IdleDeletes,
    clients: clients::Clients,
    replaced: replaced::Replaced,
    commands: BTreeMap<CommandId, (u16, Owner, &'static str)>,
    next_command: u64,
    tickets: BTreeMap<Ticket, u64>,
    callers: BTreeMap<Ticket, Arc<Caller>>,
    next_own_ticket: u64,
    effects: VecDeque<Effect>,
}

impl Core {
    /// A daemon for SSDs with these capacities in bytes; SSD `i` is the i-th of the fleet map. It begins to
    /// read the array.
    pub fn new(config: CoreConfig, capacities: &[u64]) -> Self {
        let mut core = Self {
            config,
            members: members::Members::new(capacities),
            capacity: None,
            phase: Phase::Starting(start::Start::new(capacities.len(), config.has_witness)),
            term: term::Term::default(),
            epoch: epoch::Epoch::default(),
            changes: shrink::Changes::default(),
            fills: fill::Fills::default(),
            repairs: repairs::Repairs::default(),
            addresses: Vec::new(),
            now: 0,
            volumes: BTreeMap::new(),
            names: BTreeMap::new(),
            publishing: BTreeMap::new(),
            past: ids::PastVids::default(),
            tombstones: ids::Tombstones::default(),
            idle_deletes: ids::IdleDeletes::default(),
            clients: clients::Clients::new(config.quotas),
            replaced: replaced::Replaced::default(),
            commands: BTreeMap::new(),
            next_command: 0,
            tickets: BTreeMap::new(),
            callers: BTreeMap::new(),
            next_own_ticket: OWN_TICKETS,
            effects: VecDeque::new(),
        };
        if capacities.is_empty() || capacities.len() > placement::MAX_SSDS {
            core.stop(Stop::Array(format!(
                "an array of {} SSDs cannot be served: connect 1 to {}",
                capacities.len(),
                placement::MAX_SSDS
            )));
        } else {
            core.ask();
        }
        core
    }

    /// A request of the one principal of a daemon without proofs.
    pub fn request(&mut self, now: u64, ticket: Ticket, request: Request) {
        self.request_of(now, ticket, Arc::new(Caller::local(0)), request);
    }

    /// A client asks.
    pub fn request_of(&mut self, now: u64, ticket: Ticket, caller: Arc<Caller>, request: Request) {
        let full = self.tickets.len() >= self.config.max_requests;
        assert!(
            self.tickets.insert(ticket, now + self.config.request_ms).is_none(),
            "a ticket names one request"
        );
        let is_greedy = !ticket.is_own() && self.has_its_share(&caller);
        self.callers.insert(ticket, caller);
        match &self.phase {
            Phase::Serving if full => self.fail(
                ticket,
                GrpcCode::Unavailable,
                format!("the daemon has {} requests under way: try again later", self.config.max_requests),
            ),
            Phase::Serving if is_greedy => {
                let most = self.config.max_requests / SHARES;
                self.fail(
                    ticket,
                    GrpcCode::ResourceExhausted,
                    format!(
                        "this caller has {most} requests or more under way: try again when some are answered"
                    ),
                );
            }
            Phase::Serving => self.dispatch(now, ticket, request),
            Phase::Starting(start) => {
                let message = format!(
                    "{NOT_SERVING_YET}: it waits for {}; try again later",
                    start.waits_for(&self.members)
                );
                self.fail(ticket, GrpcCode::Unavailable, message);
            }
            Phase::Stopped(stop) => {
                let failure = stopped(stop);
                self.reply(ticket, Err(failure));
            }
        }
    }

    /// Whether little room for requests is left, and the caller's principal already has its share of it.
    /// Where all callers are one principal there is nothing to share.
    fn has_its_share(&self, caller: &Caller) -> bool {
        let share = self.config.max_requests / SHARES;
        let is_scarce = self.callers.len() + share >= self.config.max_requests;
        let of_caller = || self.callers.values().filter(|other| other.name == caller.name).count();
        !caller.single && is_scarce && of_caller() >= share
    }

    /// A command ended. The core ignores a command that it has given up.
    pub fn completed(&mut self, now: u64, id: CommandId, answer: Answer) {
        self.now = self.now.max(now);
        let Some((ssd, owner, _)) = self.commands.remove(&id) else { return };
        match owner {
            Owner::Start => self.start_answered(now, ssd, id, answer),
            Owner::Round { vid, adding } => {
                self.round_answered(now, vid, round::Answered { ssd, adding, answer });
                // A deletion may leave an SSD without last copies, so the map may change.
                self.change_step(now);
            }
            Owner::Resync => self.resync_answered(now, ssd, id, answer),
            Owner::Stray => {
                if answer == Answer::Refused(Refusal::StaleTerm) {
                    return self.depose(ssd, "refused this daemon's term");
                }
                // A change of the map may have waited for this SSD to answer all earlier commands.
                self.change_step(now);
            }
            Owner::Unawaited => {}
            Owner::Hold => self.hold_answered(now, ssd, id, answer),
            Owner::Anew => self.anew_answered(now, ssd, id, answer),
            Owner::Tell => self.tell_answered(now, ssd, id, &answer),
            Owner::Settle(vid) => self.settle_answered(now, vid, settle::Answered { ssd, id, answer }),
            Owner::Fill => self.fill_answered(now, ssd, id, answer),
            Owner::Repair(ticket) => self.repair_answered(ssd, id, ticket, answer),
            Owner::ClientEnd { client, serial } => {
                self.client_end_answered(now, ssd, (client, serial), answer)
            }
        }
    }

    /// Time passed: late requests are answered, failed changes are tried again.
    pub fn step(&mut self, now: u64) {
        self.now = self.now.max(now);
        let late: Vec<_> =
            self.tickets.iter().filter(|&(_, &at)| at <= now).map(|(&ticket, _)| ticket).collect();
        if !late.is_empty() {
            for ticket in late {
                let message = self.late_message(ticket);
                self.forget_repair(ticket);
                self.fail(ticket, GrpcCode::Unavailable, message);
            }
            self.forget_settles();
            self.forget_parked();
        }
        self.start_step(now);
        self.revoke_out_of_reach(now);
        self.revoke_who_cannot_follow(now);
        self.revoke_who_holds_up(now);
        self.change_step(now);
        let due: Vec<_> = self
            .volumes
            .iter()
            .filter(|(_, v)| v.round.is_none() && v.retry.is_some_and(|retry| retry.at <= now))
            .map(|(&vid, _)| vid)
            .collect();
        for vid in due {
            self.retry(now, vid);
        }
        self.resync_step(now);
        self.fill_step(now);
        self.settle_step(now);
        self.clients_step(now);
    }

    /// A connection of clients closed: the ids that it kept end, unless another names them in time.
    pub fn closed(&mut self, now: u64, connection: u64) {
        // The connection's calls that wait keep no id when they are served.
        for caller in self.callers.values_mut().filter(|caller| caller.connection == connection) {
            *caller = Arc::new(Caller { connection: rights::HUNG_UP, ..Caller::clone(caller) });
        }
        self.clients.closed(now, connection);
    }

    /// Number of client ids that clients have.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Time of the next [`Self::step`], if nothing else happens.
    pub fn next_event(&self) -> Option<u64> {
        let retries =
            self.volumes.values().filter(|v| v.round.is_none()).filter_map(|v| v.retry.map(|r| r.at));
        let own =
            self.start_wakes_at().into_iter().chain(self.resync_wakes_at()).chain(self.change_wakes_at());
        let own = own.chain(self.fill_wakes_at()).chain(self.settle_wakes_at());
        let ends = self.clients.wakes_at().into_iter().chain(self.ends_wake_at());
        let ends = ends.filter(|_| self.is_serving());
        retries.chain(self.tickets.values().copied()).chain(own).chain(ends).min()
    }

    /// Takes the next effect, oldest first.
    pub fn pop_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Requests are served.
    pub fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// The answers that the core waits for before it serves; `None` once it serves.
    pub fn waits_for(&self) -> Option<String> {
        match &self.phase {
            Phase::Starting(start) => Some(start.waits_for(&self.members)),
            Phase::Serving | Phase::Stopped(_) => None,
        }
    }

    /// The term of this daemon; 0 until it has one.
    pub fn term(&self) -> u64 {
        self.term.number()
    }

    fn reply(&mut self, ticket: Ticket, result: Result<Reply, Failure>) {
        self.callers.remove(&ticket);
        if self.tickets.remove(&ticket).is_some() && !ticket.is_own() {
            self.effects.push_back(Effect::Reply { ticket, result });
        }
    }

    fn fail(&mut self, ticket: Ticket, code: GrpcCode, message: impl Into<String>) {
        self.reply(ticket, Err(Failure::new(code, message)));
    }

    fn command(&mut self, ssd: u16, owner: Owner, command: Command) -> CommandId {
        let id = CommandId(self.next_command);
        self.next_command += 1;
        self.commands.insert(id, (ssd, owner, command.name()));
        self.send(id, ssd, command);
        id
    }

    /// Active volumes in order of their ids.
    fn active(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values().filter(|v| v.stage == Stage::Active)
    }
}
