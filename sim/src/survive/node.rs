// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actor of one SSD: real firmware and translation layer over media that outlive it.
//!
//! ```text
//!   Up letters --> Worker --effects--> Down letters; questions to other SSDs
//!      kill: what the SSD acknowledged is kept (rule 11a)   power cut: the rest is torn or lost
//!                              '------- media ------> reopen ------'
//! ```

use crate::survive::clock::Clock;
use crate::survive::stats::Fault;
use crate::survive::wire::{Body, Post, Way};
use gnstor_base::controller::{
    AskId, Controller as _, Effect, Outcome, PushRole, Question, QueueKey, TransferId,
};
use gnstor_base::region::{HostRegion, LocalRef};
use gnstor_base::time::{Span, Time};
use gnstor_deengine::{Bench, Pace, Ssd, SsdConfig, SsdError, Worker};
use gnstor_flash::{PageState, Power, Ppa, RamStore};
use gnstor_ftl::{DUMP_BYTES, FtlConfig};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::nvme::Cqe;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Steps at one moment, at most.
const MOST_STEPS: u32 = 10_000;
/// A process that has not run for so long notices it.
const PAUSE: Span = Span::from_ms(1_000);

/// Questions of an SSD to another one, with its own number.
pub(crate) type Asked = (AskId, u16, Question);

/// An SSD.
pub(super) struct Node {
    pub(super) index: u16,
    config: SsdConfig,
    pub(super) bench: Bench,
    /// `None`: it has no power, or its process is dead.
    worker: Option<Worker>,
    regions: Vec<Arc<HostRegion>>,
    /// The SSD's clock.
    clock: Clock,
    /// Grows with each start.
    pub(super) life: u32,
    /// When it was last stopped, and started.
    pub(super) stopped_at: Time,
    pub(super) started_at: Time,
    /// Time until which the SSD's process stands still.
    pub(super) still_until: Time,
    /// Since when the process stands still.
    still_since: Time,
    /// Leap of the clock since the process last ran.
    leapt: Span,
    pub(super) inbox: VecDeque<(u32, Body)>,
    /// Open queues.
    queues: BTreeSet<u32>,
    /// Transfers whose end the host says.
    moves: BTreeMap<u32, Vec<TransferId>>,
    /// Fused responses with a part that failed.
    failed: BTreeMap<(u32, u32), Outcome>,
    pub(super) asked: Vec<Asked>,
    /// Connection requests that were answered.
    opened: Vec<(u32, Result<(), u16>)>,
    /// Frames of its memory for data.
    frames: u32,
}

/// Memory and queues that an SSD holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) commands: usize,
    /// Frames that are not free, and have no page.
    pub(super) lost_frames: u32,
    pub(super) queues: usize,
    pub(super) moves: usize,
}

impl Node {
    /// An empty SSD.
    pub(super) fn new(config: SsdConfig, uuid: [u8; 16], clock: Clock) -> Result<Self, SsdError> {
        let pages = config.capacity_bytes / u64::from(BLOCK_BYTES);
        let bytes = FtlConfig::store_bytes(&config.preset, pages, DUMP_BYTES)?;
        let power = Arc::new(Power::steady());
        let store = Some(Arc::new(RamStore::new(bytes, Arc::clone(&power))));
        let mut bench = Bench { power, store, uuid: Some(uuid), ..Bench::of(&config) };
        let ssd = Ssd::format_with(config.clone(), &bench)?;
        bench.flash = Some(Arc::clone(ssd.ftl().flash()));
        let mut node = Self {
            index: config.index,
            config,
            bench,
            worker: None,
            regions: Vec::new(),
            clock,
            life: 0,
            stopped_at: Time::ZERO,
            started_at: Time::ZERO,
            still_until: Time::ZERO,
            still_since: Time::ZERO,
            leapt: Span::ZERO,
            inbox: VecDeque::new(),
            queues: BTreeSet::new(),
            moves: BTreeMap::new(),
            failed: BTreeMap::new(),
            asked: Vec::new(),
            opened: Vec::new(),
            frames: 0,
        };
        node.frames = frames(&ssd);
        node.begin(ssd);
        Ok(node)
    }

    fn begin(&mut self, ssd: Ssd) {
        self.regions = ssd.regions();
        let mut worker = ssd.into_workers(1).remove(0);
        worker.set_pace(Pace::EXACT);
        self.worker = Some(worker);
        self.life += 1;
        (self.still_until, self.still_since, self.leapt) = (Time::ZERO, Time::ZERO, Span::ZERO);
    }

    /// Makes the SSD's clock leap ahead, also while its process is dead.
    pub(super) fn leap(&mut self, by: Span) {
        self.clock.leap(by);
        self.leapt = self.leapt.max(by);
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        self.config.capacity_bytes
    }

    pub(super) fn is_up(&self) -> bool {
        self.worker.is_some()
    }

    /// The SSD's held memory and queues, if it runs.
    pub(super) fn held(&self) -> Option<Held> {
        let ssd = self.worker.as_ref()?.ssd();
        Some(Held {
            commands: ssd.in_flight(),
            lost_frames: self.frames - frames(&ssd).min(self.frames),
            queues: self.queues.len(),
            moves: self.moves.values().map(Vec::len).sum::<usize>() + self.failed.len(),
        })
    }

    /// The worker, for a look at media.
    pub(super) fn worker(&self) -> Option<&Worker> {
        self.worker.as_ref()
    }

    /// Stops the SSD between two steps. Either only its process ends, and acknowledged writes are kept. Or
    /// its power fails, and writes that were not durable are lost.
    pub(super) fn stop(&mut self, seed: u64, keeps: bool) -> Result<(), SsdError> {
        let Some(worker) = self.worker.take() else { return Ok(()) };
        if keeps {
            let dumped = worker.ssd().power_fail();
            // The power may go inside the dump, too.
            if !self.bench.power.is_cut() {
                dumped?;
            }
        }
        self.bench.power.cut();
        drop(worker);
        self.regions.clear();
        self.queues.clear();
        self.moves.clear();
        self.failed.clear();
        self.inbox.clear();
        self.asked.clear();
        self.bench.power.restore();
        self.bench.flash.as_ref().expect("in memory").after_power_cut(seed);
        self.bench.store.as_ref().expect("a store").after_power_cut(seed);
        Ok(())
    }

    /// Makes the SSD say goodbye, or ask whether its goodbye was heard.
    pub(super) fn leave(&mut self, post: &mut Post) -> bool {
        let shown = self.clock.shows(post.now);
        let Some(worker) = &mut self.worker else { return true };
        let is_heard = worker.leave(shown);
        self.pump(post);
        is_heard
    }

    /// Writes its contents out, as an SSD that is stopped in order. [`Self::stop`] then ends it. Returns
    /// false if that failed.
    pub(super) fn shut_down(&mut self) -> bool {
        self.worker.as_ref().is_some_and(|worker| worker.ssd().shut_down().is_ok())
    }

    /// Starts the SSD again.
    pub(super) fn start(&mut self) -> Result<(), SsdError> {
        if self.worker.is_none() {
            let ssd = Ssd::reopen(self.config.clone(), &self.bench)?;
            self.begin(ssd);
        }
        Ok(())
    }

    /// Makes the SSD stand still until this time. Its clock goes on.
    pub(super) fn stand_still(&mut self, now: Time, until: Time) {
        if self.still_until <= now {
            self.still_since = now;
        }
        self.still_until = self.still_until.max(until);
    }

    /// Does all that is due. Returns the time of the next step. An armed power cut ends it in the middle.
    pub(super) fn step(&mut self, post: &mut Post) -> Time {
        let now = post.now;
        if now < self.still_until {
            return self.still_until;
        }
        let Some(worker) = &mut self.worker else { return Time::NEVER };
        // A leap looks like a time in which the process did not run.
        let stood = if self.still_since > Time::ZERO { now.since(self.still_since) } else { Span::ZERO };
        if stood.max(self.leapt) >= PAUSE {
            worker.resumed(self.clock.shows(now));
        }
        (self.still_since, self.leapt) = (Time::ZERO, Span::ZERO);
        while let Some((conn, body)) = self.inbox.pop_front() {
            self.take(post, conn, body);
            self.pump(post);
        }
        for _ in 0..MOST_STEPS {
            let Some(worker) = &mut self.worker else { return Time::NEVER };
            worker.step(self.clock.shows(now));
            self.pump(post);
            if self.bench.power.is_cut() {
                return Time::NEVER;
            }
            let next = self.worker.as_ref().and_then(Worker::next_event).unwrap_or(Time::NEVER);
            let next = self.clock.reaches(next);
            if next > now {
                return next;
            }
        }
        now + Span::from_ns(1_000)
    }

    fn take(&mut self, post: &mut Post, conn: u32, body: Body) {
        let now = post.now;
        let shown = self.clock.shows(now);
        let Some(worker) = &mut self.worker else { return };
        let key = QueueKey(conn);
        match body {
            Body::Open(request) => {
                let opened = worker.open_queue(shown, key, &request);
                if opened.is_ok() {
                    self.queues.insert(conn);
                    post.tap.opened(conn, request.qid.get() > 0);
                }
                self.opened.push((conn, opened));
            }
            Body::Capsule(sqe) if self.queues.contains(&conn) => {
                post.tap.taken(self.index, conn, &sqe, now);
                worker.submit(shown, key, &sqe);
            }
            Body::Moved { transfer, local, data, outcome } => {
                let moves = self.moves.entry(conn).or_default();
                let Some(at) = moves.iter().position(|of| *of == transfer) else { return };
                moves.swap_remove(at);
                if let (Some(local), Outcome::Done { .. }) = (local, outcome) {
                    write(&self.regions, local, &data);
                }
                worker.transferred(shown, transfer, outcome);
            }
            Body::Closed => self.close(post, conn),
            _ => {}
        }
    }

    fn close(&mut self, post: &mut Post, conn: u32) {
        post.tap.closed(conn);
        let now = self.clock.shows(post.now);
        let Some(worker) = &mut self.worker else { return };
        if self.queues.remove(&conn) {
            worker.close_queue(now, QueueKey(conn));
            for transfer in self.moves.remove(&conn).unwrap_or_default() {
                worker.transferred(now, transfer, Outcome::ConnectionLost);
            }
        }
    }

    /// Carries out the firmware's effects.
    fn pump(&mut self, post: &mut Post) {
        for (conn, opened) in self.opened.drain(..) {
            post.send(conn, Way::Down, Body::Opened(opened));
        }
        while let Some(effect) = self.worker.as_mut().and_then(Worker::pop_effect) {
            match effect {
                Effect::Pull { transfer, queue, remote, local, .. } => {
                    self.moves.entry(queue.0).or_default().push(transfer);
                    post.send(queue.0, Way::Down, Body::Pull { transfer, remote, local });
                }
                Effect::Push { .. } => self.push(post, effect),
                Effect::Complete { queue, cqe, at, .. } => {
                    self.answer(post, queue.0, at, cqe);
                }
                Effect::Admitted { .. } => {}
                Effect::Close { queue } => {
                    post.stats.fault(Fault::Closed);
                    self.close(post, queue.0);
                    post.close(queue.0, Way::Down);
                }
                Effect::Ask { ask, peer, local } => {
                    let mut bytes = [0; Question::BYTES];
                    read(&self.regions, local, &mut bytes);
                    self.asked.extend(Question::decode(&bytes).map(|question| (ask, peer, question)));
                }
            }
        }
    }

    /// A response leaves when the SSD's clock shows this time.
    fn answer(&self, post: &mut Post, conn: u32, shown: Time, cqe: Cqe) {
        post.tap.answers(self.index, conn, &cqe, shown.max(self.clock.shows(post.now)));
        post.send_from(self.clock.reaches(shown), conn, Way::Down, Body::Response(cqe));
    }

    /// Data leaves as it is now. A part of a fused response is not confirmed: its host's response is.
    fn push(&mut self, post: &mut Post, effect: Effect) {
        let Effect::Push { transfer, queue, remote, local, sum, role } = effect else { return };
        let mut data = vec![0; local.bytes as usize];
        read(&self.regions, local, &mut data);
        let real = if data.len() == BLOCK_BYTES as usize { block_sum(&data) } else { 0 };
        let is_bad = sum.is_some_and(|sum| sum != real);
        let name = (queue.0, transfer.0);
        let shown = self.clock.shows(post.now);
        let Some(worker) = &mut self.worker else { return };
        match role {
            PushRole::Alone if is_bad => worker.transferred(shown, transfer, Outcome::BadChecksum),
            PushRole::Alone => {
                self.moves.entry(queue.0).or_default().push(transfer);
                post.send(queue.0, Way::Down, Body::Push { transfer: Some(transfer), remote, data });
            }
            PushRole::Part | PushRole::Last(_) => {
                if is_bad {
                    self.failed.insert(name, Outcome::BadChecksum);
                } else {
                    post.send(queue.0, Way::Down, Body::Push { transfer: None, remote, data });
                }
                if let PushRole::Last(reply) = role {
                    let failure = self.failed.remove(&name);
                    if failure.is_none() {
                        self.answer(post, queue.0, reply.at, reply.cqe);
                    }
                    let Some(worker) = &mut self.worker else { return };
                    worker.transferred(shown, transfer, failure.unwrap_or(Outcome::Done { sum: 0 }));
                }
            }
        }
    }

    /// Another SSD answered a question, or did not.
    pub(super) fn answered(&mut self, now: Time, ask: AskId, answer: Option<(&Cqe, &[u8])>) {
        if let Some(worker) = &mut self.worker {
            worker.answered(
                self.clock.shows(now),
                ask,
                answer.map(|(cqe, _)| cqe),
                answer.map_or(&[], |(_, data)| data),
            );
        }
    }
}

/// Frames that are free or have a page. A page whose record has rotted keeps its frame until it is erased.
fn frames(ssd: &Ssd) -> u32 {
    let flash = ssd.ftl().flash();
    let pages = u32::try_from(flash.geometry().pages()).expect("a small SSD");
    let has_frame = |page: &u32| match flash.page(Ppa(*page)) {
        PageState::Buffered(_) | PageState::Programmed(_) | PageState::Damaged => true,
        PageState::Erased | PageState::Padding => false,
    };
    flash.free_frames() + u32::try_from((0..pages).filter(has_frame).count()).expect("pages")
}

fn region(regions: &[Arc<HostRegion>], local: LocalRef) -> &HostRegion {
    regions.iter().find(|region| region.id() == local.region).expect("one of the SSD's")
}

fn read(regions: &[Arc<HostRegion>], local: LocalRef, data: &mut [u8]) {
    region(regions, local).read(local.offset, data);
}

fn write(regions: &[Arc<HostRegion>], local: LocalRef, data: &[u8]) {
    region(regions, local).write(local.offset, data);
}
