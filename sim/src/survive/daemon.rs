// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actor of a daemon: the real core, and the real link with each SSD.
//!
//! ```text
//!   calls --> Core --commands--> Link x SSDs --capsules--> SSDs
//!         <--------- answers, news of SSDs ---'
//! ```
//! The shell around them (gRPC, threads) is not here: a call arrives as a request of the core.

use crate::survive::clock::Clock;
use crate::survive::end::{News as QueueNews, Port, Queue, Who};
use crate::survive::join::address_of;
use crate::survive::shape::Shape;
use crate::survive::wire::{Body, Called, Host, Item, Post};
use gnstor_base::time::{Span, Time};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{Command, Core, CoreConfig, Effect, MapFormat, Stop, Ticket};
use gnstor_daemon::server::link::{Link, News, Output};
use gnstor_daemon::{Reconnect, SsdPort};
use gnstor_fabric::admin::{AdminQueue, ChannelError};
use gnstor_proto::fabrics::Identity;
use std::collections::BTreeMap;
use std::time::Duration;

/// Each command is completed within this time.
const COMMAND: Duration = Duration::from_secs(5);
/// A connection is made within this time.
const DIAL_MS: u64 = 2_000;
/// Interval at which a link that awaits an answer is attended.
const LOOK_MS: u64 = 5;

/// The link with one SSD, and its queue.
struct Line {
    link: Link,
    queue: Option<Queue>,
    dial: Option<(Queue, Reconnect, u64)>,
    /// The daemon was told that it is.
    is_there: bool,
}

impl Line {
    /// The link with this SSD, which is not connected yet.
    fn new(index: u16, capacity_bytes: u64, now: u64) -> Self {
        let queue: Box<dyn AdminQueue> = Box::new(Port::broken("not connected yet"));
        let port = SsdPort {
            index,
            subnqn: format!("SSD {index}"),
            transport: "inproc".into(),
            address: String::new(),
            capacity_bytes,
            model: String::new(),
            queue,
            reconnect: Some(no_way()),
        };
        Self { link: Link::new(port, COMMAND, now), queue: None, dial: None, is_there: true }
    }
}

/// A daemon.
pub(super) struct Daemon {
    pub(super) number: u64,
    pub(super) core: Core,
    /// The daemon's clock.
    clock: Clock,
    lines: Vec<Line>,
    /// The calls without an answer, and when they came.
    pub(super) calls: BTreeMap<Ticket, (usize, u64, Time)>,
    /// The operator's calls, and their answers; `None`: not answered yet.
    operators: BTreeMap<Ticket, Option<Called>>,
    next_ticket: u64,
    /// The answers to clients since the last look.
    pub(super) answered: Vec<(Ticket, Called)>,
    /// The SSDs that are lost, and when it heard of that.
    lost: BTreeMap<u16, Time>,
    watches: bool,
    pub(super) stopped: Option<Stop>,
    /// Whether the daemon has asked voters to hold a map since the last check.
    pub(super) has_news: bool,
    /// Time until which the daemon's process stands still.
    pub(super) still_until: Time,
    /// When its clock leapt last.
    pub(super) leapt_at: Option<Time>,
}

fn ms(at: Time) -> u64 {
    at.as_ns() / 1_000_000
}

/// The way back is made by [`Line::dial`].
fn no_way() -> Reconnect {
    Box::new(|| Err(ChannelError::Broken { peer: String::new(), cause: "not here".into() }))
}

impl Daemon {
    /// The daemon with this number, in the order of their starts. It has no connection yet.
    pub(super) fn new(number: u64, now: Time, shape: &Shape, clock: Clock) -> Self {
        let (ssds, bytes, now) = (shape.ssds, shape.ssd_bytes(), clock.shows(now));
        let config = CoreConfig {
            groups: shape.groups,
            instance: 1 + number,
            map_format: MapFormat::ByCount,
            has_witness: shape.witness,
            names_addresses: shape.joins.is_some(),
            // It is off in virtual time as well: nothing here may take its pause for an SSD's.
            ..CoreConfig::default()
        };
        let addresses = (0..ssds).map(address_of).filter(|_| shape.joins.is_some()).collect();
        Self {
            number,
            clock,
            core: Core::new(config, &vec![bytes; ssds.into()]).reached_at(addresses),
            lines: (0..ssds).map(|ssd| Line::new(ssd, bytes, ms(now))).collect(),
            calls: BTreeMap::new(),
            operators: BTreeMap::new(),
            lost: BTreeMap::new(),
            next_ticket: 0,
            answered: Vec::new(),
            watches: false,
            stopped: None,
            has_news: false,
            still_until: Time::ZERO,
            leapt_at: None,
        }
    }

    /// Makes the daemon's clock leap ahead.
    pub(super) fn leap(&mut self, now: Time, by: Span) {
        self.clock.leap(by);
        self.leapt_at = Some(now);
    }

    /// A client calls.
    pub(super) fn call(&mut self, now: Time, (client, call): (usize, u64), request: Request) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.calls.insert(ticket, (client, call, now));
        self.core.request(self.ms(now), ticket, request);
        ticket
    }

    /// The operator asks. [`Self::answer`] has the answer when there is one.
    pub(super) fn operator(&mut self, now: Time, request: Request) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.operators.insert(ticket, None);
        self.core.request(self.ms(now), ticket, request);
        ticket
    }

    /// The answer to an operator.
    pub(super) fn answer(&self, ticket: Ticket) -> Option<&Called> {
        self.operators.get(&ticket).and_then(Option::as_ref)
    }

    /// When the daemon last heard that the SSD is lost.
    pub(super) fn lost_at(&self, ssd: u16) -> Time {
        self.lost.get(&ssd).copied().unwrap_or(Time::ZERO)
    }

    /// The time that its clock shows, ms.
    pub(super) fn ms(&self, now: Time) -> u64 {
        ms(self.clock.shows(now))
    }

    /// Takes what arrived on a connection.
    pub(super) fn arrived(&mut self, post: &mut Post, conn: u32, body: Body) {
        let now = self.ms(post.now);
        for line in &mut self.lines {
            if let Some(queue) = line.queue.as_mut().filter(|queue| queue.conn == conn) {
                queue.arrived(body);
                queue.flush(post);
                return;
            }
            if line.dial.as_ref().is_some_and(|(queue, ..)| queue.conn == conn) {
                let Some((mut queue, reconnect, until)) = line.dial.take() else { return };
                let news = queue.arrived(body);
                queue.flush(post);
                match news {
                    Some(QueueNews::Ready(_)) => {
                        let port: Box<dyn AdminQueue> = Box::new(queue.port());
                        line.queue = Some(queue);
                        line.link.dialled(now, reconnect, Ok(port));
                    }
                    Some(QueueNews::Broken(cause)) => {
                        let error = ChannelError::Broken { peer: "the SSD".into(), cause };
                        line.link.dialled(now, reconnect, Err(error));
                    }
                    Some(QueueNews::Response) | None => line.dial = Some((queue, reconnect, until)),
                }
                return;
            }
        }
    }

    /// Does all work that is due. Returns the time of the next step.
    pub(super) fn step(&mut self, post: &mut Post) -> Time {
        if post.now < self.still_until {
            return self.still_until;
        }
        let now = self.ms(post.now);
        if self.core.next_event().is_some_and(|at| at <= now) {
            self.core.step(now);
        }
        while self.carry_out(post) | self.attend(post) {}
        let lines = self.lines.iter().flat_map(|line| {
            let looks = line.link.awaits().then_some(now + LOOK_MS);
            let dials = line.dial.as_ref().map(|(.., until)| *until);
            [line.link.wakes_at(), looks, dials]
        });
        let next = lines.flatten().chain(self.core.next_event()).min();
        next.map_or(Time::NEVER, |at| self.clock.reaches(Time::from_ns(at.max(now + 1) * 1_000_000)))
    }

    fn carry_out(&mut self, post: &mut Post) -> bool {
        let mut any = false;
        while let Some(effect) = self.core.pop_effect() {
            any = true;
            match effect {
                Effect::Command { id, ssd, command } => {
                    self.has_news |= matches!(command, Command::MapHold { .. });
                    match &command {
                        Command::MapHold { map, .. } => post.tap.leases.hold(ssd, &map.bytes, post.now),
                        Command::MapSet(bytes) => post.tap.leases.sent(bytes, false),
                        Command::Activate(map) => post.tap.leases.sent(&map.bytes, true),
                        _ => {}
                    }
                    self.lines[usize::from(ssd)].link.give(id, command);
                }
                Effect::Reply { ticket, result } => {
                    if let Some((client, call, _)) = self.calls.remove(&ticket) {
                        self.answered.push((ticket, result.clone()));
                        post.say(Item::Answer { client, call, result: Box::new(result) });
                    } else if let Some(answer) = self.operators.get_mut(&ticket) {
                        *answer = Some(result);
                    }
                }
                Effect::Connect { ssd, bytes, .. } => {
                    post.note(|| format!("daemon {} connects to SSD {ssd}", self.number));
                    let now = self.ms(post.now);
                    let mut line = Line::new(ssd, bytes, now);
                    if self.watches {
                        line.link.watch_closely(now);
                    }
                    self.lines.push(line);
                }
                Effect::Serving => post.note(|| format!("daemon {} serves", self.number)),
                Effect::Stopped(stop) => {
                    post.note(|| format!("daemon {} stops: {stop}", self.number));
                    self.stopped = Some(stop);
                }
            }
        }
        if !self.watches && self.core.has_voters() {
            self.watches = true;
            let now = self.ms(post.now);
            self.lines.iter_mut().for_each(|line| line.link.watch_closely(now));
        }
        any
    }

    fn attend(&mut self, post: &mut Post) -> bool {
        let (now, mut any) = (self.ms(post.now), false);
        for at in 0..self.lines.len() {
            let ssd = u16::try_from(at).expect("at most 64");
            let line = &mut self.lines[at];
            if line.dial.as_ref().is_some_and(|(.., until)| *until <= now)
                && let Some((queue, reconnect, _)) = line.dial.take()
            {
                queue.give_up(post);
                let after = Duration::from_millis(DIAL_MS);
                let error = ChannelError::Timeout { what: "connecting".into(), after };
                line.link.dialled(now, reconnect, Err(error));
            }
            line.link.attend(now);
            while let Some(output) = line.link.pop() {
                any = true;
                match output {
                    Output::Answer(id, answer) => self.core.completed(now, id, answer),
                    Output::News(News::Lost(why)) => {
                        post.note(|| format!("daemon {} lost SSD {ssd}: {why}", self.number));
                        if line.is_there {
                            self.lost.insert(ssd, post.now);
                        }
                        line.is_there = false;
                        self.core.ssd_lost(now, ssd, why);
                    }
                    Output::News(News::Found) => {
                        post.note(|| format!("daemon {} found SSD {ssd}", self.number));
                        line.is_there = true;
                        self.core.ssd_found(now, ssd);
                    }
                    // No line compares how often an SSD was opened: no file is rolled back here.
                    Output::News(News::Condition(_)) | Output::Keep(..) => {}
                    Output::Dial(reconnect) => {
                        let host = Host::Daemon(self.number);
                        let who = Who { host, identity: Identity::Daemon, ssd, kato_ms: 0 };
                        line.dial = Some((Queue::admin(post, who), reconnect, now + DIAL_MS));
                    }
                }
            }
            if let Some(queue) = &line.queue {
                queue.flush(post);
            }
        }
        any
    }
}
