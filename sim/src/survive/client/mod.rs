// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actor of a client: an application on the twin of the device headers.
//!
//! ```text
//!   Rest --Open--> Calling --granted--> Working --no requests left, or fenced--> Draining --Release--> Rest
//! ```
//! [`lanes`] has its requests, [`session`] its way to each SSD. The map comes from SSDs: it asks one each 100
//! ms, and each 10 ms while the map may have changed.

pub(super) mod lanes;
mod session;

use crate::dice::Dice;
use crate::initiator::{Completion, Initiator, Volume};
use crate::survive::end::{Memory, Who};
use crate::survive::history::History;
use crate::survive::shape::{LANES, Shape};
use crate::survive::stats::Path;
use crate::survive::wire::{Body, Called, Host, Item, Post};
use gnstor_base::time::{Span, Time};
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::request::{Create, Request, Rights, VolumeName};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::placement::{AnyMap, Member, Rows as _};
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::{Limits, VolumeEntry};
use lanes::{Hand, Lanes, Work, memory_bytes};
use session::{DEPTH, Session, Told};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A call that is not answered within this time is unheard.
const CALL: Span = Span::from_ms(12_000);
/// Intervals of questions for the map.
const CALM: Span = Span::from_ms(100);
const URGENT: Span = Span::from_ms(10);

/// What a call is for.
#[derive(Clone, Debug)]
enum Call {
    Create,
    Open { writes: bool },
    Renew,
    Release,
    Delete,
}

/// What the application is at.
#[derive(Clone, Debug)]
enum App {
    Rest {
        until: Time,
    },
    Calling,
    Working,
    Draining,
    /// Its process is gone until then.
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
    /// When the lease ends, and when it is to be renewed.
    until: Time,
    renew_at: Time,
    /// When it asked for the last renewal.
    asked_at: Time,
}

/// A client.
pub(super) struct Client {
    number: usize,
    id: ClientId,
    /// Number of its process. Each one has an id of its own, as after a registration.
    life: usize,
    shape: Arc<Shape>,
    dice: Dice,
    sessions: Vec<Session>,
    lanes: Lanes,
    twin: Option<Initiator>,
    map: Option<Arc<AnyMap>>,
    app: App,
    open: Option<Open>,
    calls: BTreeMap<u64, (Call, Time)>,
    next_call: u64,
    /// The next question for the map.
    ask_at: Time,
    urgent_until: Time,
    next_ssd: usize,
    /// The volumes that it has yet to make.
    to_make: Vec<usize>,
    /// No further volume is opened: the world comes to rest.
    pub(super) rests: bool,
    reads_only: bool,
    indexes: Vec<(u16, u16, u16)>,
    /// For each SSD: the SENDs without a response, and the highest index that is done.
    sends: Vec<(BTreeMap<u16, u16>, u16)>,
    /// The number of the daemon that it calls.
    pub(super) daemon: u64,
}

fn volume_name(volume: usize) -> VolumeName {
    VolumeName::new(&format!("v{volume}")).expect("letters and digits")
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
    pub(super) fn new(number: usize, shape: &Arc<Shape>, seed: u64) -> Self {
        let memory = crate::survive::end::memory(memory_bytes(LANES));
        let part = 100 + number as u64;
        let id = id_of(number, 0);
        Self {
            number,
            id,
            dice: Dice::new(seed, 2 * part),
            sessions: sessions(number, id, shape.ssds, &memory),
            life: 0,
            lanes: Lanes::new(number, Dice::new(seed, 2 * part + 1), memory, shape.lanes),
            twin: None,
            map: None,
            app: App::Rest { until: Time::ZERO },
            open: None,
            calls: BTreeMap::new(),
            next_call: 0,
            ask_at: Time::ZERO,
            urgent_until: Time::ZERO,
            next_ssd: number,
            to_make: (0..shape.volumes.len()).filter(|volume| volume % shape.clients == number).collect(),
            rests: false,
            reads_only: false,
            indexes: Vec::new(),
            sends: vec![(BTreeMap::new(), 0); shape.ssds.into()],
            daemon: 0,
            shape: Arc::clone(shape),
        }
    }

    /// The oldest request without an end.
    pub(super) fn oldest(&self) -> Option<Time> {
        self.lanes.oldest()
    }

    /// Whether nothing of it is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.calls.is_empty() && matches!(self.app, App::Rest { .. }) && self.open.is_none()
    }

    /// From now on it opens volumes again, and only reads them.
    pub(super) fn read_only(&mut self) {
        (self.rests, self.reads_only) = (false, true);
    }

    /// Its process is gone, with all that it knew. Another one begins at `until`.
    pub(super) fn die(&mut self, post: &mut Post, until: Time) {
        self.sessions.iter_mut().for_each(|session| session.fall(post));
        self.life += 1;
        self.id = id_of(self.number, self.life);
        self.sessions = sessions(self.number, self.id, self.shape.ssds, &self.lanes.memory);
        self.lanes.forget();
        (self.twin, self.map, self.open) = (None, None, None);
        self.calls.clear();
        self.app = App::Gone { until };
    }

    fn call(&mut self, post: &mut Post, call: Call, request: Request) {
        let number = self.next_call;
        self.next_call += 1;
        self.calls.insert(number, (call, post.now + CALL));
        let request = Box::new(request);
        post.say(Item::Call { client: self.number, daemon: self.daemon, call: number, request });
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
        for told in std::mem::take(&mut self.sessions[at].told) {
            match told {
                Told::Up => {
                    post.stats.path(Path::Reconnected);
                    self.sends[at] = (BTreeMap::new(), 0);
                    if let Some(twin) = &mut self.twin {
                        twin.reopen(ssd, DEPTH);
                    }
                    self.renew_soon(post.now);
                }
                Told::Down => {
                    post.stats.path(Path::QueueBroke);
                    self.suspect(post.now);
                    if let Some(twin) = &mut self.twin {
                        twin.arrive(ssd, Completion::Failed { opcode: 13, syndrome: 0x81 });
                    }
                }
                Told::Response(cqe) => {
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
                Told::Map(map) => self.take_map(post, history, map),
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
        history.map(&map);
        if self.map.as_ref().is_some_and(|own| own.epoch() >= map.epoch()) {
            return;
        }
        post.stats.path(Path::MapFollowed);
        post.note(|| format!("client {} follows epoch {}: {}", self.number, map.epoch(), shown(&map)));
        self.urgent_until = Time::ZERO;
        self.lanes.epoch = map.epoch();
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
        self.map = Some(map);
        self.renew_soon(post.now);
        (0..self.sessions.len()).for_each(|ssd| self.hear(post, history, ssd));
    }

    /// The daemon answered a call.
    pub(super) fn answered(&mut self, post: &mut Post, history: &mut History, number: u64, result: Called) {
        let Some((call, _)) = self.calls.remove(&number) else { return };
        let now = post.now;
        if result.is_err() {
            post.stats.path(Path::CallFailed);
        }
        match (call, result) {
            (Call::Create, Ok(Reply::Volume(entry))) => {
                history.exists(&entry);
                self.to_make.pop();
                self.app = App::Rest { until: now };
            }
            (Call::Create, Err(failure)) if failure.code == GrpcCode::AlreadyExists => {
                self.to_make.pop();
                self.app = App::Rest { until: now };
            }
            (Call::Open { writes }, Ok(Reply::Opened { volume, lease_ms })) => {
                self.opened(post, history, volume, lease_ms, writes);
            }
            (Call::Renew, Ok(Reply::Renewed { lease_ms })) => {
                if let Some(open) = &mut self.open {
                    open.until = open.asked_at + Span::from_ms(lease_ms.into());
                    open.renew_at = now + Span::from_ms(u64::from(lease_ms) / 3);
                    self.lanes.wants_renewal = false;
                }
            }
            (Call::Renew, Err(failure)) if failure.code == GrpcCode::Unavailable => {
                self.renew_soon(now + Span::from_ms(50));
            }
            (Call::Renew, Err(_)) => self.lose_lease(post),
            (Call::Release, result) => {
                if result.is_ok() {
                    post.stats.path(Path::Released);
                }
                self.rest(now);
            }
            (Call::Delete, result) => {
                if result.is_ok() {
                    post.stats.path(Path::VolumeDeleted);
                }
                self.rest(now);
            }
            (Call::Create | Call::Open { .. } | Call::Renew, _) => {
                if !matches!(self.app, App::Working | App::Draining) {
                    self.rest(now);
                }
            }
        }
    }

    fn rest(&mut self, now: Time) {
        let ms = 5 + u64::from(self.dice.below(200));
        self.app = App::Rest { until: now + Span::from_ms(ms) };
    }

    fn lose_lease(&mut self, post: &mut Post) {
        if let Some(work) = &mut self.lanes.work {
            post.stats.path(Path::LeaseLost);
            (work.left, work.may_write) = (0, false);
        }
        self.lanes.in_doubt = true;
        self.app = App::Draining;
    }

    fn opened(
        &mut self,
        post: &mut Post,
        history: &mut History,
        entry: VolumeEntry,
        lease_ms: u32,
        writes: bool,
    ) {
        let now = post.now;
        history.exists(&entry);
        let life = (entry.vid, entry.generation);
        let may_write = writes && lease_ms > 0;
        post.note(|| {
            let VolumeEntry { vid, generation, lease_epoch, .. } = &entry;
            let (number, as_what) = (self.number, if may_write { "writer" } else { "reader" });
            format!(
                "client {number} opened volume {} generation {generation} as {as_what}, lease {lease_epoch}",
                vid.get()
            )
        });
        if may_write {
            post.stats.path(Path::LeaseGranted);
            history.granted(life, entry.lease_epoch, now);
        }
        let Some(map) = self.map.clone() else {
            // Without a map there is nothing to do yet.
            self.open = Some(Open {
                entry,
                writes: may_write,
                lease_ms,
                until: Time::NEVER,
                renew_at: Time::NEVER,
                asked_at: now,
            });
            self.app = App::Draining;
            return;
        };
        let volume = Volume {
            vid: entry.vid,
            client: self.id,
            factor: entry.factor,
            replicas: entry.replicas,
            chunk_shift: entry.chunk_shift,
            lease_epoch: entry.lease_epoch,
            blocks: u32::try_from(entry.capacity_blocks).expect("small"),
            map,
        };
        let blocks = volume.blocks;
        let mut twin = Initiator::new(volume, self.sessions.len(), DEPTH, self.lanes.count());
        for (ssd, session) in (0u16..).zip(&self.sessions) {
            if !session.is_up() {
                twin.arrive(ssd, Completion::Failed { opcode: 13, syndrome: 0x81 });
            }
        }
        self.sends.iter_mut().for_each(|sends| *sends = (BTreeMap::new(), 0));
        self.twin = Some(twin);
        let Shape { mix, pause, requests, .. } = *self.shape;
        self.lanes.work = Some(Work {
            life,
            blocks,
            may_write,
            is_writer: entry.writer == Some(self.id),
            left: 1 + self.dice.below(requests),
            mix,
            pause,
        });
        (self.lanes.in_doubt, self.lanes.is_fenced, self.lanes.wants_renewal) = (false, false, false);
        let lease = Span::from_ms(lease_ms.into());
        let until = if may_write { now + lease } else { Time::NEVER };
        let renew_at = if may_write { now } else { Time::NEVER };
        self.open = Some(Open { entry, writes: may_write, lease_ms, until, renew_at, asked_at: now });
        self.app = App::Working;
    }

    /// Does all that is due. Returns the time of the next step.
    pub(super) fn step(&mut self, post: &mut Post, history: &mut History) -> Time {
        let now = post.now;
        if let App::Gone { until } = self.app {
            if now < until {
                return until;
            }
            self.app = App::Rest { until: now };
        }
        let mut next = Time::NEVER;
        for ssd in 0..self.sessions.len() {
            let at = self.sessions[ssd].attend(post);
            self.hear(post, history, ssd);
            next = next.min(Time::from_ns(at.max(now.as_ns() / 1_000_000 + 1) * 1_000_000));
        }
        next = next.min(self.ask_for_map(now));
        self.run(post, history);
        next = next.min(self.lanes.attend(post)).min(self.go_on(post, history));
        for session in &mut self.sessions {
            session.attend(post);
        }
        let late: Vec<u64> =
            self.calls.iter().filter(|(_, (_, until))| *until <= now).map(|(&call, _)| call).collect();
        for call in late {
            post.stats.path(Path::CallUnheard);
            let lost = gnstor_daemon::core::failure::Failure::new(GrpcCode::Unavailable, "unheard");
            self.answered(post, history, call, Err(lost));
        }
        let calls = self.calls.values().map(|(_, until)| *until).min();
        next.min(calls.unwrap_or(Time::NEVER)).max(now + Span::from_ns(1_000))
    }

    fn ask_for_map(&mut self, now: Time) -> Time {
        if std::mem::take(&mut self.lanes.suspects) {
            self.suspect(now);
        }
        let is_busy = self.lanes.work.is_some() || self.map.is_none() || now < self.urgent_until;
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

    fn run(&mut self, post: &mut Post, history: &mut History) {
        let Some(twin) = &mut self.twin else { return };
        let (lanes, sessions, indexes) = (&mut self.lanes, &self.sessions[..], &mut self.indexes);
        twin.run(&mut Hand { lanes, sessions, post, history, indexes });
        for (ssd, cid, index) in self.indexes.drain(..) {
            self.sends[usize::from(ssd)].0.insert(cid, index);
        }
    }

    /// The application goes on. Returns when it looks again.
    fn go_on(&mut self, post: &mut Post, history: &mut History) -> Time {
        let now = post.now;
        match self.app.clone() {
            App::Rest { until } if now < until => until,
            App::Rest { .. } if self.open.is_some() => {
                self.close(post);
                Time::NEVER
            }
            App::Rest { .. } => self.begin(post, history),
            App::Working => self.work(post),
            App::Draining if self.lanes.is_idle() => {
                self.close(post);
                Time::NEVER
            }
            App::Calling | App::Draining | App::Gone { .. } => Time::NEVER,
        }
    }

    /// Opens a volume, or makes or deletes one.
    fn begin(&mut self, post: &mut Post, history: &mut History) -> Time {
        if let Some(&volume) = self.to_make.last() {
            self.make(post, volume);
            return Time::NEVER;
        }
        if self.rests {
            return Time::NEVER;
        }
        let volume = self.dice.below(u32::try_from(self.shape.volumes.len()).expect("few")) as usize;
        let name = volume_name(volume);
        if !self.reads_only && self.dice.below(1000) < self.shape.deletes_permille {
            let living = history.lives().into_iter().filter(|entry| entry.name == name.as_str());
            living.for_each(|entry| history.dies((entry.vid, entry.generation)));
            self.to_make.push(volume);
            self.call(post, Call::Delete, Request::Delete { name, client: self.id, request_id: None });
        } else {
            let writes = self.dice.below(100) < 60 && !self.reads_only;
            let lease_ms = self.shape.lease_ms;
            let rights = if writes { Rights::Write { lease_ms } } else { Rights::Read };
            let request = Request::Open { name, client: self.id, rights, follows_drains: true };
            self.call(post, Call::Open { writes }, request);
        }
        self.app = App::Calling;
        Time::NEVER
    }

    fn make(&mut self, post: &mut Post, volume: usize) {
        let drawn = &self.shape.volumes[volume];
        let create = Create {
            name: volume_name(volume),
            capacity_blocks: drawn.blocks.into(),
            replicas: drawn.replicas,
            chunk_shift: drawn.chunk_shift,
            client: self.id,
            labels: String::new(),
            request_id: None,
            limits: Limits::default(),
        };
        self.app = App::Calling;
        self.call(post, Call::Create, Request::Create(create));
    }

    fn work(&mut self, post: &mut Post) -> Time {
        let now = post.now;
        let Some(open) = &mut self.open else { return Time::NEVER };
        let (is_over, is_fenced) = (now >= open.until, self.lanes.is_fenced);
        if self.rests
            && let Some(work) = &mut self.lanes.work
        {
            work.left = 0;
        }
        if is_over || is_fenced {
            self.lose_lease(post);
            return now;
        }
        if self.lanes.is_idle() && self.lanes.work.as_ref().is_some_and(|work| work.left == 0) {
            self.app = App::Draining;
            return now;
        }
        let is_renewing = self.calls.values().any(|(call, _)| matches!(call, Call::Renew));
        if self.lanes.wants_renewal && open.writes {
            open.renew_at = open.renew_at.min(now);
        }
        if open.writes && !is_renewing && now >= open.renew_at {
            (open.asked_at, open.renew_at) = (now, Time::NEVER);
            let reaches = (0u32..).zip(&self.sessions).filter(|(_, session)| session.is_up());
            let request = Request::Renew {
                name: VolumeName::new(&open.entry.name).expect("it exists"),
                client: self.id,
                lease_epoch: open.entry.lease_epoch,
                lease_ms: open.lease_ms,
                reaches: Some(reaches.map(|(ssd, _)| 1u64 << ssd).sum()),
                in_doubt: self.lanes.in_doubt,
                follows_drains: true,
            };
            self.call(post, Call::Renew, request);
        }
        let renews = if is_renewing { Time::NEVER } else { open_at(&self.open) };
        renews.min(self.open.as_ref().map_or(Time::NEVER, |open| open.until))
    }

    /// Releases the volume.
    fn close(&mut self, post: &mut Post) {
        let Some(open) = self.open.take() else { return self.rest(post.now) };
        post.note(|| {
            let doubt = if self.lanes.in_doubt { ", in doubt" } else { "" };
            format!("client {} releases {}{doubt}", self.number, open.entry.name)
        });
        (self.twin, self.lanes.work) = (None, None);
        // No answer of a call of this volume counts any more.
        self.calls.clear();
        let request = Request::Release {
            name: VolumeName::new(&open.entry.name).expect("it exists"),
            client: self.id,
            all_acknowledged: open.writes && !self.lanes.in_doubt,
        };
        self.app = App::Calling;
        self.call(post, Call::Release, request);
    }
}

/// A map in one line: the rows, with `f` where a place fills.
fn shown(map: &AnyMap) -> String {
    let place = |place: Option<Member>| match place {
        Some(Member { ssd, filling }) => format!("{ssd}{}", if filling { "f" } else { "" }),
        None => "-".into(),
    };
    let row = |group: u32| map.row(group).map(place).collect::<Vec<_>>().join(" ");
    (0..map.groups()).map(row).collect::<Vec<_>>().join(" | ")
}

fn open_at(open: &Option<Open>) -> Time {
    open.as_ref().map_or(Time::NEVER, |open| open.renew_at)
}
