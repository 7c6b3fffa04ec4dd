// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actor of a client: an application on the twin of the device headers.
//!
//! ```text
//!   Rest --Open--> Calling --granted--> Working --no requests left, or fenced--> Draining --Release--> Rest
//! ```
//! [`app`] has the application, [`calls`] its calls, [`kernel`] the passes, [`requests`] its requests,
//! [`session`] its way to each SSD, [`probe`] reads that must be refused. The map comes from SSDs: it asks
//! one each 100 ms, and each 10 ms while the map may have changed.

mod app;
mod calls;
mod kernel;
mod probe;
pub(super) mod requests;
mod session;

use crate::dice::Dice;
use crate::initiator::{Completion, Initiator};
use crate::survive::changes::shown;
use crate::survive::end::{Memory, Who};
use crate::survive::history::History;
use crate::survive::shape::{LANES, Shape};
use crate::survive::shrink::{Idle, Turn};
use crate::survive::stats::Path;
use crate::survive::wire::{Body, Host, Post};
use calls::{Call, Repeats};
use gnstor_base::time::{Span, Time};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::placement::{AnyMap, Rows as _};
use gnstor_proto::slba::ClientId;
use gnstor_proto::vendor::VolumeEntry;
use kernel::{Stall, Still};
use probe::Probes;
use requests::{Requests, memory_bytes};
use session::{Session, SessionEvent};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Intervals of questions for the map.
const CALM: Span = Span::from_ms(100);
const URGENT: Span = Span::from_ms(10);

/// State of the application.
#[derive(Clone, Debug)]
enum App {
    Rest {
        until: Time,
    },
    Calling,
    Working,
    Draining,
    /// The client's process is gone until this time.
    Gone {
        until: Time,
    },
}

/// The volume that is open.
#[derive(Clone, Debug)]
struct Open {
    entry: VolumeEntry,
    writes: bool,
    lease_ms: u32,
    opened_at: Time,
    /// When the lease ends, and when it is to be renewed.
    until: Time,
    renew_at: Time,
    /// When the client asked for the last renewal.
    asked_at: Time,
}

/// A client.
pub(super) struct Client {
    number: usize,
    id: ClientId,
    /// Number of the client's present process. Each process has an id of its own, as after a registration.
    life: usize,
    shape: Arc<Shape>,
    dice: Dice,
    probe_dice: Dice,
    probes: Probes,
    sessions: Vec<Session>,
    requests: Requests,
    twin: Option<Initiator>,
    /// Time of the kernel's next pass: a pass takes time, and a kernel may stand still.
    passes_at: Time,
    /// How the kernel is to stand still, and until which map it does.
    stalls: Option<Stall>,
    still: Option<Still>,
    /// A part of a write went to this SSD only, and the kernel stands still.
    pub(super) alone: Option<u16>,
    /// SSDs whose queues are there again, and whose failure the kernel has not taken yet.
    anew: BTreeSet<u16>,
    map: Option<Arc<AnyMap>>,
    app: App,
    open: Option<Open>,
    calls: BTreeMap<u64, (Call, Time)>,
    next_call: u64,
    repeats: Repeats,
    /// The volume that it opened last, and one that it is to open.
    volume: usize,
    wanted: Option<(usize, Time)>,
    /// The SSDs that the client last reported as reachable.
    said: u64,
    late_when_back: Option<(u16, u16, Span)>,
    /// The next question for the map.
    ask_at: Time,
    urgent_until: Time,
    next_ssd: usize,
    /// Number of SSDs that it knows of: the array began with them, or its map names them.
    known: usize,
    /// The volumes that it has yet to make.
    to_make: Vec<usize>,
    /// No further volume is opened: the world comes to rest.
    pub(super) rests: bool,
    reads_only: bool,
    /// The number of its last turn, the turns that are left out, and the ones that it took.
    turn: u32,
    idle: Idle,
    pub(super) turns: Vec<Turn>,
    indexes: Vec<(u16, u16, u16)>,
    /// For each SSD: the SENDs without a response, and the highest index that is done.
    sends: Vec<(BTreeMap<u16, u16>, u16)>,
    /// The number of the daemon that it calls.
    pub(super) daemon: u64,
}

fn id_of(number: usize, life: usize) -> ClientId {
    let raw = 1 + number + 8 * life;
    ClientId::new(u16::try_from(raw).expect("few")).expect("from 1 on")
}

fn sessions(number: usize, id: ClientId, ssds: u16, memory: &Memory) -> Vec<Session> {
    let (host, identity) = (Host::Client(number), Identity::Client(id));
    let who = |ssd: u16| Who { host, identity, ssd, kato_ms: 15_000 };
    (0..ssds).map(|ssd| Session::new(who(ssd), Arc::clone(memory))).collect()
}

impl Client {
    pub(super) fn new(number: usize, shape: &Arc<Shape>, seed: u64, idle: &Idle) -> Self {
        let memory = crate::survive::end::memory(memory_bytes(LANES));
        let part = 100 + number as u64;
        let id = id_of(number, 0);
        Self {
            number,
            id,
            dice: Dice::new(seed, 2 * part),
            probe_dice: Dice::new(seed, 2 * part + 100),
            probes: Probes::default(),
            sessions: sessions(number, id, shape.all_ssds(), &memory),
            life: 0,
            requests: Requests::new(number, Dice::new(seed, 2 * part + 1), memory, shape.lanes),
            twin: None,
            passes_at: Time::ZERO,
            stalls: None,
            still: None,
            alone: None,
            anew: BTreeSet::new(),
            map: None,
            app: App::Rest { until: Time::ZERO },
            open: None,
            calls: BTreeMap::new(),
            next_call: 0,
            repeats: Repeats::default(),
            volume: 0,
            wanted: None,
            said: 0,
            late_when_back: None,
            ask_at: Time::ZERO,
            urgent_until: Time::ZERO,
            next_ssd: number,
            known: shape.ssds.into(),
            to_make: (0..shape.volumes.len()).filter(|volume| volume % shape.clients == number).collect(),
            rests: false,
            reads_only: false,
            turn: 0,
            idle: idle.clone(),
            turns: Vec::new(),
            indexes: Vec::new(),
            sends: vec![(BTreeMap::new(), 0); shape.all_ssds().into()],
            daemon: 0,
            shape: Arc::clone(shape),
        }
    }

    /// The oldest request without an end, and what it is.
    pub(super) fn oldest(&self) -> Option<(Time, String)> {
        self.requests.oldest()
    }

    /// Whether the client has no request or call under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.calls.is_empty() && matches!(self.app, App::Rest { .. }) && self.open.is_none()
    }

    /// Makes the client open volumes again, and only read them.
    pub(super) fn read_only(&mut self) {
        (self.rests, self.reads_only) = (false, true);
    }

    /// Whether it reads a volume without being its writer.
    pub(super) fn is_reader(&self) -> bool {
        self.requests.work.as_ref().is_some_and(|work| !work.is_writer)
    }

    /// Kills the client's process, with all its state. Another process begins at `until`.
    pub(super) fn die(&mut self, post: &mut Post, until: Time) {
        self.sessions.iter_mut().for_each(|session| session.fall(post));
        self.life += 1;
        self.id = id_of(self.number, self.life);
        self.sessions = sessions(self.number, self.id, self.shape.all_ssds(), &self.requests.memory);
        self.known = self.shape.ssds.into();
        self.requests.forget();
        self.probes = Probes::default();
        (self.twin, self.map, self.open) = (None, None, None);
        (self.passes_at, self.stalls, self.still) = (Time::ZERO, None, None);
        (self.wanted, self.repeats) = (None, Repeats::default());
        self.anew.clear();
        self.calls.clear();
        self.app = App::Gone { until };
    }

    /// Takes what arrived on a connection.
    pub(super) fn arrived(&mut self, post: &mut Post, history: &mut History, conn: u32, body: Body) {
        if let Some(ssd) = self.sessions.iter().position(|session| session.has(conn)) {
            self.sessions[ssd].arrived(post, conn, body);
            self.hear(post, history, ssd);
        }
    }

    /// Takes what a session tells.
    fn hear(&mut self, post: &mut Post, history: &mut History, at: usize) {
        let ssd = u16::try_from(at).expect("at most 64");
        for told in std::mem::take(&mut self.sessions[at].events) {
            match told {
                SessionEvent::Up => {
                    post.stats.path(Path::Reconnected);
                    self.sends[at] = (BTreeMap::new(), 0);
                    if self.twin.is_some() {
                        self.anew.insert(ssd);
                    }
                    self.reopen();
                    self.renew_soon(post.now);
                }
                SessionEvent::Down => {
                    self.probes.lost(at);
                    self.anew.remove(&ssd);
                    post.stats.path(Path::QueueBroke);
                    self.suspect(post.now);
                    if let Some(twin) = &mut self.twin {
                        twin.arrive(ssd, Completion::Failed { opcode: 13, syndrome: 0x81 });
                    }
                }
                SessionEvent::Response(cqe) if self.probed(post, history, at, &cqe) => {}
                SessionEvent::Response(cqe) => {
                    let Some(twin) = &mut self.twin else { continue };
                    let (sent, done) = &mut self.sends[at];
                    if let Some(index) = sent.remove(&cqe.cid.get())
                        && index.wrapping_sub(*done).cast_signed() > 0
                    {
                        *done = index;
                        twin.arrive(ssd, Completion::Retired(index));
                    }
                    twin.arrive(ssd, Completion::Response(cqe));
                }
                SessionEvent::Map(map) => self.take_map(post, history, map),
            }
        }
    }

    fn suspect(&mut self, now: Time) {
        self.urgent_until = now + Span::from_ms(1_000);
        self.ask_at = self.ask_at.min(now);
    }

    /// A writer says soon which SSDs it reaches.
    fn renew_soon(&mut self, now: Time) {
        if let Some(open) = self.open.as_mut().filter(|open| open.writes) {
            open.renew_at = open.renew_at.min(now);
        }
    }

    fn take_map(&mut self, post: &mut Post, history: &mut History, map: Arc<AnyMap>) {
        history.map(&map, &mut post.stats, post.now);
        if self.map.as_ref().is_some_and(|own| own.epoch() >= map.epoch()) {
            return;
        }
        post.stats.path(Path::MapFollowed);
        post.note(|| format!("client {} follows epoch {}: {}", self.number, map.epoch(), shown(&map)));
        self.urgent_until = Time::ZERO;
        self.kernel_sees(&map, post.now);
        self.requests.epoch = map.epoch();
        if let Some(twin) = &mut self.twin {
            twin.follow(Arc::clone(&map));
        }
        // Queues of SSDs that the map leaves out are given up: a stopped SSD breaks none.
        for (ssd, session) in (0u16..).zip(&mut self.sessions) {
            let places = (0..map.groups()).flat_map(|group| map.row(group).flatten().collect::<Vec<_>>());
            let mut is_in = places.filter(|place| place.ssd == ssd);
            let is_incoming =
                (0..map.groups()).any(|group| map.incoming(group).is_some_and(|i| i.ssd == ssd));
            if is_in.next().is_none() && !is_incoming && session.is_up() && self.map.is_some() {
                session.fall(post);
            }
        }
        if let AnyMap::Three(map) = &*map {
            self.known = self.known.max(map.ssds.len());
        }
        self.map = Some(map);
        self.renew_soon(post.now);
        (0..self.sessions.len()).for_each(|ssd| self.hear(post, history, ssd));
    }

    /// Does all work that is due. Returns the time of the next step.
    pub(super) fn step(&mut self, post: &mut Post, history: &mut History) -> Time {
        let now = post.now;
        if let App::Gone { until } = self.app {
            if now < until {
                return until;
            }
            self.app = App::Rest { until: now };
        }
        let mut next = Time::NEVER;
        for ssd in 0..self.known {
            let at = self.sessions[ssd].attend(post);
            self.hear(post, history, ssd);
            next = next.min(Time::from_ns(at.max(now.as_ns() / 1_000_000 + 1) * 1_000_000));
        }
        next = next.min(self.ask_for_map(now));
        next = next.min(self.run(post, history));
        // Waiting lanes go on in a pass.
        next = next.min(self.requests.attend(post).max(self.passes_at));
        next = next.min(self.go_on(post, history)).min(self.probe(post, history));
        for session in &mut self.sessions[..self.known] {
            session.attend(post);
        }
        next = next.min(self.late_calls(post, history));
        next.max(now + Span::from_ns(1_000))
    }

    fn ask_for_map(&mut self, now: Time) -> Time {
        if std::mem::take(&mut self.requests.suspects) {
            self.suspect(now);
        }
        let is_busy = self.requests.work.is_some() || self.map.is_none() || now < self.urgent_until;
        if !is_busy {
            return Time::NEVER;
        }
        if now >= self.ask_at {
            let count = self.sessions.len();
            let turn = (0..count).map(|step| (self.next_ssd + step) % count);
            let asked = turn.into_iter().find(|&ssd| self.sessions[ssd].ask_map());
            self.next_ssd = asked.unwrap_or(self.next_ssd) + 1;
            self.ask_at = now + if now < self.urgent_until || self.map.is_none() { URGENT } else { CALM };
        }
        self.ask_at
    }
}
