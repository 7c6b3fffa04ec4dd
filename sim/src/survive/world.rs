// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A world: SSDs, daemons, clients and wires under one clock, in one thread.
//!
//! ```text
//!   Agenda --(time, actor)--> post: delivers letters              node, client, daemons, carrier: their work
//!                             chaos: ends faults, begins others   watch: judges deadlines
//! ```

use crate::agenda::Agenda;
use crate::dice::Dice;
use crate::survive::chaos::{Chaos, Ending};
use crate::survive::client::Client;
use crate::survive::clock::Clock;
use crate::survive::daemon::Daemon;
use crate::survive::deletes::Deletes;
use crate::survive::history::History;
use crate::survive::node::Node;
use crate::survive::peers::Peer;
use crate::survive::shape::Shape;
use crate::survive::wire::{Body, Host, Item, Post, Way};
use gnstor_base::time::Time;
use gnstor_daemon::core::failure::Failure;
use gnstor_proto::placement::mix64;
use gnstor_proto::status::{GrpcCode, Status};
use std::collections::BTreeMap;
use std::sync::Arc;

/// SSDs, daemons and clients.
pub(super) struct World {
    pub(super) shape: Arc<Shape>,
    pub(super) post: Post,
    agenda: Agenda,
    pub(super) nodes: Vec<Node>,
    pub(super) peers: BTreeMap<(u16, u16), Peer>,
    /// The newest is the last.
    pub(super) daemons: Vec<Daemon>,
    pub(super) daemon_number: u64,
    pub(super) clients: Vec<Client>,
    pub(super) history: History,
    pub(super) deletes: Deletes,
    /// When the clock of a daemon leapt last.
    pub(super) daemon_leapt_at: Time,
    pub(super) chaos: Chaos,
    pub(super) trace: u64,
    pub(super) steps: u64,
    /// Looks at which the array waited for its operator.
    pub(super) patience: u32,
    /// Looks at which a drain waited for its operator.
    pub(super) leave_patience: u32,
    /// When a call said last that a client reaches an SSD.
    pub(super) reached: BTreeMap<(usize, u16), Time>,
    /// How clocks run off.
    pub(super) clocks: Dice,
    /// Steps of each actor.
    counts: Vec<u64>,
    /// A millisecond, and the steps that were made before it.
    millisecond: (u64, u64),
}

/// Steps of a millisecond. An array that makes more of them goes round in a circle: its clock stands still.
const MOST_STEPS: u64 = 500_000;

/// An actor's number in the agenda.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Actor {
    Node(usize),
    Client(usize),
    Daemons,
    Carrier,
    Post,
    Chaos,
    Watch,
}

impl World {
    pub(super) fn new(seed: u64, options: &crate::survive::Options) -> Result<Self, String> {
        let shape = Arc::new(Shape::draw(seed));
        let (mut ids, mut clocks) = (Dice::new(seed, 2), Dice::new(seed, 9));
        let mut node = |index: u16| {
            let mut uuid = [0; 16];
            uuid[..8].copy_from_slice(&ids.bits().to_le_bytes());
            uuid[8..].copy_from_slice(&(ids.bits() | 1).to_le_bytes());
            let most = shape.drift_ppm;
            let drift = clocks.below(2 * most + 1).cast_signed() - most.cast_signed();
            Node::new(shape.ssd(index), uuid, Clock::new(drift))
                .map_err(|cause| format!("SSD {index}: {cause}"))
        };
        let nodes: Vec<Node> = (0..shape.all_ssds()).map(&mut node).collect::<Result<_, _>>()?;
        let clients: Vec<Client> =
            (0..shape.clients).map(|client| Client::new(client, &shape, seed, &options.idle)).collect();
        let start = Time::from_ns(1_000_000);
        let mut post = Post::new(Dice::new(seed, 3), shape.delays);
        post.now = start;
        post.log = options.trace.then(Vec::new);
        let actors = nodes.len() + clients.len() + 5;
        let mut world = Self {
            agenda: Agenda::new(actors, Dice::new(seed, 4)),
            chaos: Chaos::new(Dice::new(seed, 5), start + shape.runs, options.without.clone()),
            history: History::new(Dice::new(seed, 6), shape.has_voters()),
            deletes: Deletes::default(),
            daemon_leapt_at: Time::ZERO,
            peers: BTreeMap::new(),
            daemons: Vec::new(),
            daemon_number: 0,
            trace: seed,
            steps: 0,
            patience: 0,
            leave_patience: 0,
            reached: BTreeMap::new(),
            clocks,
            counts: vec![0; actors],
            millisecond: (0, 0),
            shape,
            post,
            nodes,
            clients,
        };
        world.new_daemon();
        (0..world.nodes.len()).for_each(|ssd| world.wake(Actor::Node(ssd), start));
        (0..world.clients.len()).for_each(|client| world.wake(Actor::Client(client), start));
        [Actor::Chaos, Actor::Watch].into_iter().for_each(|actor| world.wake(actor, start));
        Ok(world)
    }

    /// Writes a line of the trace.
    pub(super) fn say(&mut self, line: impl FnOnce() -> String) {
        self.post.note(line);
    }

    fn number(&self, actor: Actor) -> usize {
        let (ssds, all) = (self.nodes.len(), self.nodes.len() + self.clients.len());
        match actor {
            Actor::Node(ssd) => ssd,
            Actor::Client(client) => ssds + client,
            Actor::Daemons => all,
            Actor::Carrier => all + 1,
            Actor::Post => all + 2,
            Actor::Chaos => all + 3,
            Actor::Watch => all + 4,
        }
    }

    fn actor(&self, number: usize) -> Actor {
        let (ssds, all) = (self.nodes.len(), self.nodes.len() + self.clients.len());
        match number {
            _ if number < ssds => Actor::Node(number),
            _ if number < all => Actor::Client(number - ssds),
            _ => [Actor::Daemons, Actor::Carrier, Actor::Post, Actor::Chaos, Actor::Watch][number - all],
        }
    }

    pub(super) fn wake_node(&mut self, ssd: usize, at: Time) {
        self.wake(Actor::Node(ssd), at);
    }

    fn wake(&mut self, actor: Actor, at: Time) {
        let number = u32::try_from(self.number(actor)).expect("few");
        if at < Time::NEVER {
            self.agenda.wake(number, at.max(self.post.now));
        }
    }

    pub(super) fn wake_client(&mut self, client: usize, at: Time) {
        self.wake(Actor::Client(client), at);
    }

    pub(super) fn wake_daemons(&mut self, at: Time) {
        self.wake(Actor::Daemons, at);
    }

    /// Steps actors until this time, or until something is wrong.
    pub(super) fn run(&mut self, until: Time) {
        while let Some((at, number)) = self.agenda.pop() {
            if at >= until {
                self.agenda.wake(number, at);
                break;
            }
            self.post.now = at;
            self.steps += 1;
            self.counts[number as usize] += 1;
            self.note(at.as_ps() ^ u64::from(number) << 56);
            let actor = self.actor(number as usize);
            let next = self.step(actor);
            self.wake(actor, next);
            if let Some((client, then)) = self.post.is_late.take() {
                self.data_is_late(client, then);
            }
            self.wake(Actor::Post, self.post.next_at());
            self.look_at_tap();
            self.check_clock();
            if self.history.violation.is_some() {
                return;
            }
        }
        self.post.now = until;
    }

    /// The clock goes on.
    fn check_clock(&mut self) {
        let now = self.post.now.as_ns() / 1_000_000;
        if now != self.millisecond.0 {
            self.millisecond = (now, self.steps);
        }
        if self.steps - self.millisecond.1 > MOST_STEPS {
            let busiest = (0..self.counts.len()).max_by_key(|&at| self.counts[at]).map(|at| self.actor(at));
            let facts = format!("{MOST_STEPS} steps in a millisecond; {busiest:?} made the most of all");
            self.history.broken(self.post.now, "the array comes to no rest", facts);
        }
    }

    /// Says how often each actor was stepped.
    pub(super) fn say_steps(&mut self) {
        let counts: Vec<String> =
            (0..self.counts.len()).map(|at| format!("{:?} {}", self.actor(at), self.counts[at])).collect();
        self.say(|| format!("steps: {}", counts.join(", ")));
    }

    fn note(&mut self, word: u64) {
        self.trace = mix64(self.trace ^ word);
    }

    fn step(&mut self, actor: Actor) -> Time {
        match actor {
            Actor::Node(ssd) => self.step_node(ssd),
            Actor::Client(client) => {
                let next = self.clients[client].step(&mut self.post, &mut self.history);
                self.client_has_news(client);
                next
            }
            Actor::Daemons => {
                let post = &mut self.post;
                let next = self.daemons.iter_mut().map(|daemon| daemon.step(post)).min();
                self.note_answers();
                self.leases_end();
                self.daemons_stopped();
                if self.daemons.iter_mut().any(|daemon| std::mem::take(&mut daemon.has_news)) {
                    self.map_is_held();
                }
                next.unwrap_or(Time::NEVER)
            }
            Actor::Carrier => self.carry(),
            Actor::Post => {
                while let Some(item) = self.post.pop() {
                    self.deliver(item);
                }
                self.post.next_at()
            }
            Actor::Chaos => self.chaos(),
            Actor::Watch => self.watch(),
        }
    }

    fn client_has_news(&mut self, client: usize) {
        if std::mem::take(&mut self.history.has_news) {
            self.check_reach();
            self.aim();
        }
        if let Some(ssd) = self.clients[client].alone.take() {
            self.part_is_alone(ssd);
        }
    }

    /// Something changes in the array: in some worlds a fault then comes soon.
    pub(super) fn aim(&mut self) {
        if self.shape.aims && self.chaos.has_begun && self.post.now < self.chaos.until {
            let at = self.chaos.aim(self.post.now);
            self.wake(Actor::Chaos, at);
        }
    }

    /// From now on faults happen.
    pub(super) fn begin_faults(&mut self) {
        let at = self.chaos.begin(self.post.now, self.shape.runs);
        if let Some(after) = self.shape.joins {
            self.chaos.end_at(at + after, Ending::Join);
        }
        self.wake(Actor::Chaos, at);
    }

    /// Something of a fault is to come.
    pub(super) fn wake_chaos(&mut self) {
        let next = self.chaos.ends_at();
        self.wake(Actor::Chaos, next);
    }

    fn step_node(&mut self, ssd: usize) -> Time {
        let next = self.nodes[ssd].step(&mut self.post);
        if self.nodes[ssd].is_up() && self.nodes[ssd].bench.power.is_cut() {
            self.lost_power(ssd);
            return Time::NEVER;
        }
        self.carry_questions(ssd);
        next
    }

    /// The questions of an SSD go to others.
    pub(super) fn carry_questions(&mut self, ssd: usize) {
        for asked in std::mem::take(&mut self.nodes[ssd].asked) {
            let (own, peer) = (self.nodes[ssd].index, asked.1);
            self.note_ask(own, &asked);
            let way = self.peers.entry((own, peer)).or_insert_with(|| Peer::new(own, peer));
            way.give(&mut self.post, asked);
            self.wake(Actor::Carrier, self.post.now);
        }
    }

    /// The connections between SSDs. An SSD that stands still carries nothing.
    fn carry(&mut self) -> Time {
        let now = self.post.now;
        let mut next = Time::NEVER;
        for ((own, of), peer) in &mut self.peers {
            let node = &mut self.nodes[usize::from(*own)];
            if now < node.still_until {
                next = next.min(node.still_until);
                continue;
            }
            let at = peer.attend(&mut self.post);
            let soonest = now.as_ns() / 1_000_000 + 1;
            next = next.min(at.map_or(Time::NEVER, |at| Time::from_ns(at.max(soonest) * 1_000_000)));
            for (ask, answer) in peer.answers.drain(..) {
                let cqe = answer.as_ref().map(|reply| reply.cqe);
                let says_yes = cqe.is_some_and(|cqe| Status(cqe.status_word()).is_success());
                self.post.tap.leases.answered(*own, ask, *of, says_yes);
                node.answered(now, ask, answer.as_ref().map(|reply| (&reply.cqe, &reply.data[..])));
                let number = u32::from(*own);
                self.agenda.wake(number, now);
            }
        }
        next
    }

    fn deliver(&mut self, item: Item) {
        let now = self.post.now;
        match item {
            Item::Letter { conn, way: Way::Up, body } => {
                let Some(ssd) = self.post.conn(conn).map(|conn| usize::from(conn.ssd)) else { return };
                self.note(u64::from(conn) << 8 | 1);
                if self.nodes[ssd].is_up() {
                    self.nodes[ssd].inbox.push_back((conn, body));
                    let at = self.nodes[ssd].still_until;
                    self.wake(Actor::Node(ssd), at.max(now));
                }
            }
            Item::Letter { conn, way: Way::Down, body } => self.deliver_to_host(conn, body),
            Item::Call { client, daemon, call, request } => {
                let Some(of) = self.daemons.iter_mut().find(|of| of.number == daemon) else {
                    let result = Err(Failure::new(GrpcCode::Unavailable, "no daemon is there"));
                    return self.post.say(Item::Answer { client, call, result: Box::new(result) });
                };
                if now < of.still_until {
                    let at = of.still_until;
                    return self.post.hold(at, Item::Call { client, daemon, call, request });
                }
                let ticket = of.call(now, (client, call), (*request).clone());
                self.note_call((daemon, ticket), client, &request);
                self.wake(Actor::Daemons, now);
            }
            Item::Answer { client, call, result } => {
                self.clients[client].answered(&mut self.post, &mut self.history, call, *result);
                self.wake(Actor::Client(client), now);
            }
        }
    }

    fn deliver_to_host(&mut self, conn: u32, body: Body) {
        let now = self.post.now;
        let Some(host) = self.post.conn(conn).map(|conn| conn.host) else { return };
        self.note(u64::from(conn) << 8 | 2);
        match host {
            Host::Client(client) => {
                if let Body::Response(cqe) = &body {
                    self.post.tap.heard(conn, cqe);
                }
                self.clients[client].arrived(&mut self.post, &mut self.history, conn, body);
                self.wake(Actor::Client(client), now);
            }
            Host::Daemon(number) => {
                let Some(of) = self.daemons.iter_mut().find(|of| of.number == number) else { return };
                if now < of.still_until {
                    let at = of.still_until;
                    return self.post.hold(at, Item::Letter { conn, way: Way::Down, body });
                }
                of.arrived(&mut self.post, conn, body);
                self.wake(Actor::Daemons, now);
            }
            Host::Peer(own) => {
                let node = &self.nodes[usize::from(own)];
                if now < node.still_until {
                    let at = node.still_until;
                    return self.post.hold(at, Item::Letter { conn, way: Way::Down, body });
                }
                let peer = self.peers.values_mut().find(|peer| peer.conn() == Some(conn));
                if let Some(peer) = peer {
                    peer.arrived(&mut self.post, body);
                    self.wake(Actor::Carrier, now);
                }
            }
        }
    }
}
