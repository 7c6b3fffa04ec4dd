// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drives a core against a simulated array, one command at a time, on a clock that the test advances. An SSD
//! executes its commands in the order given, or lets them overtake each other where that is allowed.

use crate::array::{SSD_BYTES, SimArray, SimSsd};
use gnstor_daemon::core::Page;
use gnstor_daemon::core::failure::Failure;
use gnstor_daemon::core::request::{Create, Request, RequestId, Rights, VolumeName};
use gnstor_daemon::core::rights::Caller;
use gnstor_daemon::core::{
    Answer, Command, CommandId, Core, CoreConfig, Effect, MapFormat, NotNext, Reply, Stop, Ticket,
};
use gnstor_daemon::port;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::{Limits, VolumeEntry};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// If a core gives more commands than these while no time passes, it never stops.
const MOST_AT_ONCE: u32 = 20_000;

pub(crate) type Outcome = Result<Reply, Failure>;

/// Maps of format 2. Tests of arrays whose SSDs vote say so. An SSD that is back and has no places gets those
/// of others that are lost or leave. It takes no share: tests of shares say so.
pub(crate) fn config() -> CoreConfig {
    let map_format = MapFormat::Two;
    CoreConfig { groups: 64, sweep_ms: 0, spreads: false, map_format, ..CoreConfig::default() }
}

#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) core: Core,
    pub(crate) array: SimArray,
    pub(crate) queues: Vec<VecDeque<(CommandId, Command)>>,
    pub(crate) replies: BTreeMap<Ticket, Outcome>,
    /// Replies in the order of their arrival.
    pub(crate) news: VecDeque<(Ticket, Outcome)>,
    pub(crate) stopped: Option<Stop>,
    pub(crate) now: u64,
    next_ticket: u64,
    /// Commands that were executed while no time passed.
    at_this_moment: u32,
    /// SSDs that are connected later, and are dead, do not refuse: nothing comes from their addresses.
    pub(crate) dials_hang: bool,
}

impl Bench {
    /// A daemon that has not yet read the array.
    pub(crate) fn cold(array: &SimArray, now: u64) -> Self {
        Self::cold_with(array, now, config())
    }

    pub(crate) fn cold_with(array: &SimArray, now: u64, config: CoreConfig) -> Self {
        Self::cold_given(array, array.len(), now, config)
    }

    /// The same, of a daemon that was given the first SSDs of the array only.
    pub(crate) fn cold_given(array: &SimArray, given: usize, now: u64, config: CoreConfig) -> Self {
        let log = Arc::clone(&array.ssd(0).vote.log);
        log.lock().unwrap().starts += 1;
        let config = CoreConfig { instance: log.lock().unwrap().starts, ..config };
        let bytes: Vec<u64> = (0..given).map(|ssd| SSD_BYTES - array.ssd(ssd).lacks_bytes).collect();
        let mut bench = Self {
            core: Core::new(config, &bytes),
            array: array.clone(),
            queues: vec![VecDeque::new(); given],
            replies: BTreeMap::new(),
            news: VecDeque::new(),
            stopped: None,
            now,
            next_ticket: 0,
            at_this_moment: 0,
            dials_hang: false,
        };
        bench.drain();
        bench
    }

    /// A serving daemon.
    pub(crate) fn start(array: &SimArray, now: u64) -> Self {
        let mut bench = Self::cold(array, now);
        bench.run_until_quiet();
        assert!(bench.core.is_serving(), "{:?} {:?}", bench.stopped, bench.core.waits_for());
        bench
    }

    fn drain(&mut self) {
        while let Some(effect) = self.core.pop_effect() {
            match effect {
                Effect::Command { id, ssd, command } => {
                    self.queues[usize::from(ssd)].push_back((id, command))
                }
                Effect::Reply { ticket, result } => {
                    if let Ok(Reply::Volume(volume)) = &result {
                        let log = Arc::clone(&self.array.ssd(0).vote.log);
                        log.lock().unwrap().told.insert((volume.vid, volume.generation));
                    }
                    if let Ok(Reply::Client { client, serial }) = result {
                        self.array.ssd(0).vote.log.lock().unwrap().given.insert(client, serial);
                    }
                    self.news.push_back((ticket, result.clone()));
                    assert!(self.replies.insert(ticket, result).is_none(), "a ticket is answered once");
                }
                Effect::Connect { ssd, .. } => self.connect(ssd),
                Effect::Serving => {}
                Effect::Stopped(stop) => assert!(self.stopped.replace(stop).is_none(), "the core stops once"),
            }
        }
    }

    /// Connects to an SSD that the daemon was not given, if it is there.
    fn connect(&mut self, ssd: u16) {
        assert_eq!(usize::from(ssd), self.queues.len(), "SSDs are connected in order");
        self.queues.push(VecDeque::new());
        while self.array.len() <= ssd.into() {
            self.array = self.array.and_an_empty_one();
        }
        if !self.array.ssd(ssd.into()).dead {
            self.core.ssd_found(self.now, ssd);
        } else if !self.dials_hang {
            self.core.ssd_lost(self.now, ssd, "no SSD listens there");
        }
    }

    /// Makes an SSD execute its next command. Returns false if it has none.
    pub(crate) fn execute(&mut self, ssd: usize) -> bool {
        self.execute_one(ssd, 0)
    }

    /// Makes an SSD execute one of the commands that need not wait for an earlier one: number `which`, modulo
    /// their count.
    pub(crate) fn execute_one(&mut self, ssd: usize, which: usize) -> bool {
        if ssd >= self.queues.len() {
            // This daemon is not connected to it.
            return false;
        }
        let free = self.free(ssd);
        free.get(which % free.len().max(1)).is_some_and(|&place| self.execute_at(ssd, place))
    }

    /// Makes an SSD execute its next command that is not one of these. Returns false if it has none.
    pub(crate) fn execute_but(&mut self, ssd: usize, are_late: impl Fn(&Command) -> bool) -> bool {
        let next = self.free(ssd).into_iter().find(|&place| !are_late(&self.queues[ssd][place].1));
        next.is_some_and(|place| self.execute_at(ssd, place))
    }

    /// Places of the commands that need not wait for an earlier one.
    fn free(&self, ssd: usize) -> Vec<usize> {
        let mut orders = BTreeSet::new();
        let is_first = |command: &Command| port::order(command).is_none_or(|order| orders.insert(order));
        let places = self.queues[ssd].iter().map(|(_, command)| command).map(is_first);
        places.enumerate().filter(|&(_, is_free)| is_free).map(|(place, _)| place).collect()
    }

    fn execute_at(&mut self, ssd: usize, place: usize) -> bool {
        let (id, command) = self.queues[ssd].remove(place).expect("it is one of them");
        self.at_this_moment += 1;
        assert!(self.at_this_moment < MOST_AT_ONCE, "commands without end while no time passes: {command:?}");
        let what = command.clone();
        let answer = self.array.execute(ssd, command);
        if std::env::var("TRACE").is_ok() {
            let s = |t: String| t.chars().filter(|c| !c.is_whitespace()).take(150).collect::<String>();
            eprintln!("{} SSD {ssd} {} -> {}", self.now, s(format!("{what:?}")), s(format!("{answer:?}")));
        }
        if matches!(&answer, Answer::Fill(report) if report.is_filled) {
            self.array.fills_all_volumes(ssd);
        }
        self.core.completed(self.now, id, answer);
        self.drain();
        true
    }

    /// An SSD goes away, and the daemon notices.
    pub(crate) fn lose(&mut self, ssd: u16) {
        self.array.ssd(usize::from(ssd)).dead = true;
        if usize::from(ssd) < self.queues.len() {
            self.core.ssd_lost(self.now, ssd, "pulled");
        }
        self.drain();
    }

    /// The SSD is back, and the daemon notices.
    pub(crate) fn find(&mut self, ssd: u16) {
        self.array.ssd(usize::from(ssd)).dead = false;
        if usize::from(ssd) < self.queues.len() {
            self.core.ssd_found(self.now, ssd);
        }
        self.drain();
    }

    /// An SSD is formatted: what it was given before, it never carries out.
    pub(crate) fn format(&mut self, ssd: usize) {
        self.queues.get_mut(ssd).into_iter().for_each(VecDeque::clear);
        let mut ssd = self.array.ssd(ssd);
        let (sweep_commands, vote) = (ssd.sweep_commands, ssd.vote.formatted());
        *ssd = SimSsd::default();
        (ssd.sweep_commands, ssd.vote) = (sweep_commands, vote);
    }

    /// Executes commands until no SSD has one left.
    pub(crate) fn run_until_quiet(&mut self) {
        self.at_this_moment = 0;
        while (0..self.queues.len()).filter(|&ssd| self.execute(ssd)).count() > 0 {}
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.at_this_moment = 0;
        self.core.step(self.now);
        self.drain();
    }

    /// Lets time pass, and steps the core at every due time in it.
    pub(crate) fn run_for(&mut self, ms: u64) {
        let end = self.now + ms;
        self.run_until_quiet();
        while let Some(at) = self.core.next_event().filter(|&at| at <= end) {
            self.pass(at.saturating_sub(self.now));
            self.run_until_quiet();
        }
        self.pass(end - self.now);
        self.run_until_quiet();
    }

    pub(crate) fn send(&mut self, request: Request) -> Ticket {
        self.send_as(Caller::local(0).into(), request)
    }

    pub(crate) fn send_as(&mut self, caller: Arc<Caller>, request: Request) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.core.request_of(self.now, ticket, caller, request);
        self.drain();
        ticket
    }

    /// Sends and executes everything until it is answered.
    pub(crate) fn ask(&mut self, request: Request) -> Outcome {
        let ticket = self.send(request);
        self.run_until_quiet();
        self.replies.get(&ticket).cloned().expect("an answer once nothing is under way")
    }

    /// The array has another map, which is active.
    pub(crate) fn take_map(&mut self, map: impl Into<AnyMap>) -> Result<(), NotNext> {
        let taken = self.core.take_map(self.now, map.into());
        self.drain();
        taken
    }

    pub(crate) fn list(&mut self) -> Vec<VolumeEntry> {
        match self.ask(Request::List(Page::ALL)) {
            Ok(Reply::Volumes { volumes, .. }) => volumes,
            other => panic!("List: {other:?}"),
        }
    }
}

pub(crate) fn client(raw: u16) -> ClientId {
    ClientId::new(raw).unwrap()
}

pub(crate) fn name(text: &str) -> VolumeName {
    VolumeName::new(text).unwrap()
}

pub(crate) fn create_with(text: &str, blocks: u64, id: Option<RequestId>) -> Request {
    Request::Create(Create {
        name: name(text),
        capacity_blocks: blocks,
        replicas: 0,
        chunk_shift: 4,
        client: client(1),
        labels: "a=b\n".into(),
        request_id: id,
        limits: Limits { max_iops: 0, max_bytes_per_s: 1 << 40 },
    })
}

pub(crate) fn create(text: &str) -> Request {
    create_with(text, 16, None)
}

pub(crate) fn delete(text: &str, who: u16) -> Request {
    Request::Delete { name: name(text), client: client(who), request_id: None, force: false, only: None }
}

pub(crate) fn read(text: &str, who: u16) -> Request {
    Request::Open { name: name(text), client: client(who), rights: Rights::Read, follows_drains: true }
}

pub(crate) fn write(text: &str, who: u16, lease_ms: u32) -> Request {
    Request::Open {
        name: name(text),
        client: client(who),
        rights: Rights::Write { lease_ms },
        follows_drains: true,
    }
}

pub(crate) fn renew(text: &str, who: u16, lease_epoch: u32, lease_ms: u32) -> Request {
    Request::Renew {
        name: name(text),
        client: client(who),
        lease_epoch,
        lease_ms,
        reaches: None,
        in_doubt: false,
        follows_drains: true,
    }
}

pub(crate) fn release(text: &str, who: u16) -> Request {
    Request::Release { name: name(text), client: client(who), all_acknowledged: false, lease_epoch: None }
}

pub(crate) fn opened(outcome: &Outcome) -> &VolumeEntry {
    match outcome {
        Ok(Reply::Opened { volume, .. }) => volume,
        other => panic!("not opened: {other:?}"),
    }
}

pub(crate) fn created(outcome: Outcome) -> VolumeEntry {
    match outcome {
        Ok(Reply::Volume(volume)) => volume,
        other => panic!("not a volume: {other:?}"),
    }
}

/// Asserts the code, and that the sentence contains each of `words`.
#[track_caller]
pub(crate) fn refused(outcome: &Outcome, code: GrpcCode, words: &[&str]) {
    let failure = outcome.as_ref().expect_err("a refusal");
    assert_eq!(failure.code, code, "{failure}");
    for word in words {
        assert!(failure.message.contains(word), "{word:?} is not in {:?}", failure.message);
    }
}

impl Bench {
    /// Asks for something that is answered before any SSD does anything.
    pub(crate) fn ask_now(&mut self, request: Request) -> Outcome {
        let ticket = self.send(request);
        self.replies.get(&ticket).cloned().expect("an answer at once")
    }
}
