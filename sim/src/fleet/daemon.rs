// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon of an array: the real core, and the real link with each SSD. A call is a request of the core:
//! gRPC is not here.

use super::queue::{News as QueueNews, Queue};
use crate::port::Arrived;
use crate::ssd::SsdActor;
use gnstor_base::time::{Span, Time};
use gnstor_daemon::core::failure::Failure;
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{Core, CoreConfig, Effect, MapFormat, Reply, Stop, Ticket};
use gnstor_daemon::server::link::{Link, News, Output};
use gnstor_daemon::{Reconnect, SsdPort};
use gnstor_fabric::admin::{AdminQueue, ChannelError};
use gnstor_proto::fabrics::Identity;
use std::collections::{BTreeMap, BTreeSet};
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
}

/// A daemon.
pub(super) struct Daemon {
    core: Core,
    lines: Vec<Line>,
    answers: BTreeMap<Ticket, Result<Reply, Failure>>,
    /// The questions whose answers are not needed.
    told: BTreeSet<Ticket>,
    next_ticket: u64,
    watches: bool,
    /// It has stopped itself, for this reason.
    pub(super) stopped: Option<Stop>,
}

fn ms(at: Time) -> u64 {
    at.as_ns() / 1_000_000
}

/// The way back is made by [`Daemon::dial`].
fn no_way() -> Reconnect {
    Box::new(|| Err(ChannelError::Broken { peer: String::new(), cause: "not here".into() }))
}

impl Line {
    fn new(index: u16, capacity_bytes: u64, now: u64) -> Self {
        let queue: Box<dyn AdminQueue> = Box::new(Queue::never());
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
        Self { link: Link::to_be_dialled(port, COMMAND, now), queue: None, dial: None }
    }
}

impl Daemon {
    /// A daemon of an array of `ssds` SSDs, with voters. It has no connection yet. An SSD that is lost for
    /// `out_after` has its places filled by others.
    pub(super) fn new(now: Time, (ssds, bytes): (u16, u64), seed: u64, out_after: Span) -> Self {
        let config = CoreConfig {
            groups: super::GROUPS,
            seed,
            map_format: MapFormat::Three,
            out_after_ms: out_after.as_ns() / 1_000_000,
            ..CoreConfig::default()
        };
        Self {
            core: Core::new(config, &vec![bytes; ssds.into()]),
            lines: (0..ssds).map(|ssd| Line::new(ssd, bytes, ms(now))).collect(),
            answers: BTreeMap::new(),
            told: BTreeSet::new(),
            next_ticket: 0,
            watches: false,
            stopped: None,
        }
    }

    pub(super) fn serves(&self) -> bool {
        self.core.is_serving()
    }

    /// Asks the core. [`Self::answer`] has the answer when there is one.
    pub(super) fn ask(&mut self, now: Time, request: Request) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.core.request(ms(now), ticket, request);
        ticket
    }

    /// Asks the core, and needs no answer.
    pub(super) fn tell(&mut self, now: Time, request: Request) {
        let ticket = self.ask(now, request);
        self.told.insert(ticket);
    }

    pub(super) fn answer(&mut self, ticket: Ticket) -> Option<Result<Reply, Failure>> {
        self.answers.remove(&ticket)
    }

    /// Takes what arrived for a queue pair of an SSD.
    pub(super) fn arrived(&mut self, ssd: &mut SsdActor, now: Time, (qpn, arrived): (u32, &Arrived)) {
        let line = &mut self.lines[usize::from(ssd.index)];
        if let Some(queue) = line.queue.as_ref().filter(|queue| queue.qpn() == qpn) {
            queue.arrived(arrived);
            return;
        }
        let Some((queue, reconnect, until)) = line.dial.take() else { return };
        if queue.qpn() != qpn {
            line.dial = Some((queue, reconnect, until));
            return;
        }
        match queue.arrived(arrived) {
            Some(QueueNews::Ready) => {
                line.link.dialled(ms(now), reconnect, Ok(Box::new(queue.clone())));
                line.queue = Some(queue);
            }
            Some(QueueNews::Broken(cause)) => {
                queue.close(ssd, now);
                let error = ChannelError::Broken { peer: "the SSD".into(), cause };
                line.link.dialled(ms(now), reconnect, Err(error));
            }
            None => line.dial = Some((queue, reconnect, until)),
        }
    }

    /// Does all that is due. Returns the time of the next step.
    pub(super) fn step(&mut self, ssds: &mut [SsdActor], at: Time) -> Time {
        let now = ms(at);
        if self.core.next_event().is_some_and(|due| due <= now) {
            self.core.step(now);
        }
        while self.carry_out(now) | self.attend(ssds, at) {}
        let lines = self.lines.iter().flat_map(|line| {
            let looks = line.link.awaits().then_some(now + LOOK_MS);
            let dials = line.dial.as_ref().map(|(.., until)| *until);
            [line.link.wakes_at(), looks, dials]
        });
        let next = lines.flatten().chain(self.core.next_event()).min();
        next.map_or(Time::NEVER, |next| Time::from_ns(next.max(now + 1) * 1_000_000))
    }

    fn carry_out(&mut self, now: u64) -> bool {
        let mut any = false;
        while let Some(effect) = self.core.pop_effect() {
            any = true;
            match effect {
                Effect::Command { id, ssd, command } => {
                    self.lines[usize::from(ssd)].link.give(id, command);
                }
                Effect::Reply { ticket, result } => {
                    if !self.told.remove(&ticket) {
                        self.answers.insert(ticket, result);
                    }
                }
                Effect::Stopped(stop) => self.stopped = Some(stop),
                // No SSD joins here.
                Effect::Connect { .. } | Effect::Serving => {}
            }
        }
        if !self.watches && self.core.has_voters() {
            self.watches = true;
            self.lines.iter_mut().for_each(|line| line.link.watch_closely(now));
        }
        any
    }

    fn attend(&mut self, ssds: &mut [SsdActor], at: Time) -> bool {
        let (now, mut any) = (ms(at), false);
        for (line, ssd) in self.lines.iter_mut().zip(ssds) {
            if line.dial.as_ref().is_some_and(|(.., until)| *until <= now)
                && let Some((queue, reconnect, _)) = line.dial.take()
            {
                queue.close(ssd, at);
                let after = Duration::from_millis(DIAL_MS);
                let error = ChannelError::Timeout { what: "connecting".into(), after };
                line.link.dialled(now, reconnect, Err(error));
            }
            line.link.attend(now);
            while let Some(output) = line.link.pop() {
                any = true;
                match output {
                    Output::Answer(id, answer) => self.core.completed(now, id, answer),
                    Output::News(News::Lost(why)) => self.core.ssd_lost(now, ssd.index, why),
                    Output::News(News::Found) => self.core.ssd_found(now, ssd.index),
                    // No line compares how often an SSD was opened: no file is rolled back here.
                    Output::News(News::Condition(_)) | Output::Keep(..) => {}
                    Output::Dial(reconnect) => line.dial(ssd, at, reconnect),
                }
            }
        }
        any
    }
}

impl Line {
    fn dial(&mut self, ssd: &mut SsdActor, at: Time, reconnect: Reconnect) {
        if let Some(queue) = self.queue.take() {
            queue.close(ssd, at);
        }
        match Queue::open(ssd, at, Identity::Daemon) {
            Ok(queue) => self.dial = Some((queue, reconnect, ms(at) + DIAL_MS)),
            Err(error) => self.link.dialled(ms(at), reconnect, Err(error)),
        }
    }
}
