// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client's way to one SSD: its two queues, Keep Alives, questions for the map, and the way back.
//!
//! ```text
//!   Down --pause over--> Admin --ready--> Io --ready--> Up --broken, silent, given up--> Down
//! ```

use crate::survive::driver::Driver;
use crate::survive::end::{Memory, News, Queue, Who};
use crate::survive::wire::{Body, Post};
use gnstor_fabric::admin::{Ask, ChannelError, Data, Dialogue, Exchange, Reply};
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::placement::AnyMap;
use gnstor_proto::status::Status;
use gnstor_proto::vendor::opcode;
use std::sync::Arc;

/// Interval of Keep Alives, and the time after which an SSD without an answer is given up.
const ALIVE_MS: u64 = 500;
const PATIENCE_MS: u64 = 2_000;
/// A connection is made within this time.
const DIAL_MS: u64 = 1_500;
/// First and longest pause before the next try.
const RESTS_MS: (u64, u64) = (50, 1_000);
/// Room for a map.
const MAP_BYTES: usize = 64 << 10;

/// The question for the map.
#[derive(Debug)]
struct MapGet;

impl Dialogue for MapGet {
    type Answer = Option<Arc<AnyMap>>;

    fn order(&self) -> Option<u64> {
        Some(0)
    }

    fn ask(&self) -> Ask {
        let dwords = u32::try_from(MAP_BYTES / 4).expect("64 KiB");
        let sqe = Sqe { opcode: opcode::MAP_GET, nsid: 1.into(), cdw10: dwords.into(), ..Sqe::default() };
        Ask { sqe, data: Data::In(MAP_BYTES) }
    }

    fn replied(&mut self, reply: Reply) -> Option<Self::Answer> {
        let is_success = Status(reply.cqe.status_word()).is_success();
        let map = reply.data.get(..reply.cqe.dw0.get() as usize).filter(|map| is_success && !map.is_empty());
        Some(map.and_then(|map| AnyMap::decode(map).ok()).map(Arc::new))
    }

    fn lost(&mut self, _: &ChannelError) -> Self::Answer {
        None
    }
}

#[derive(Debug)]
enum State {
    Down { at: u64 },
    Dialling { admin: Queue, io: Option<Queue>, until: u64 },
    Up { admin: Queue, io: Queue, driver: Driver },
}

/// News of a session for its client.
#[derive(Debug)]
pub(super) enum SessionEvent {
    /// The session's queues are ready.
    Up,
    /// The session's queues broke.
    Down,
    Response(Cqe),
    Map(Arc<AnyMap>),
}

/// The way to one SSD.
#[derive(Debug)]
pub(super) struct Session {
    who: Who,
    memory: Memory,
    state: State,
    rest_ms: u64,
    exchange: Exchange<(), MapGet>,
    asked: bool,
    /// Sum of the leaps of the client's clock.
    ahead_ms: u64,
    pub(super) events: Vec<SessionEvent>,
}

fn exchange() -> Exchange<(), MapGet> {
    Exchange::new("the SSD", PATIENCE_MS)
}

impl Session {
    pub(super) fn new(who: Who, memory: Memory) -> Self {
        let state = State::Down { at: 0 };
        let (rest_ms, exchange) = (RESTS_MS.0, exchange());
        Self { who, memory, state, rest_ms, exchange, asked: false, ahead_ms: 0, events: Vec::new() }
    }

    /// The time as the client sees it.
    fn ms(&self, post: &Post) -> u64 {
        post.now.as_ns() / 1_000_000 + self.ahead_ms
    }

    /// The client's clock leaps ahead.
    pub(super) fn leap(&mut self, ms: u64) {
        self.ahead_ms += ms;
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Whether one of its connections is this one.
    pub(super) fn has(&self, conn: u32) -> bool {
        match &self.state {
            State::Down { .. } => false,
            State::Dialling { admin, io, .. } => {
                admin.conn == conn || io.as_ref().is_some_and(|io| io.conn == conn)
            }
            State::Up { admin, io, .. } => admin.conn == conn || io.conn == conn,
        }
    }

    /// Sends a command of the I/O queue.
    pub(super) fn send(&self, post: &mut Post, sqe: Sqe) {
        if let State::Up { io, .. } = &self.state {
            io.command(sqe);
            io.flush(post);
        }
    }

    /// Asks for the map, unless a question is under way. Returns whether it asks.
    pub(super) fn ask_map(&mut self) -> bool {
        let asks = self.is_up() && !self.asked;
        if asks {
            self.exchange.give((), MapGet);
            self.asked = true;
        }
        asks
    }

    /// Takes what arrived on a connection.
    pub(super) fn arrived(&mut self, post: &mut Post, conn: u32, body: Body) {
        let host = self.who;
        match &mut self.state {
            State::Down { .. } => {}
            State::Dialling { admin, io, .. } if admin.conn == conn => {
                let news = admin.arrived(body);
                admin.flush(post);
                match news {
                    Some(News::Ready(cntlid)) => {
                        let at = usize::from(host.ssd) * 1024;
                        *io = Some(Queue::io(post, host, cntlid, (Arc::clone(&self.memory), at)));
                    }
                    Some(News::Broken(_)) => self.fall(post),
                    _ => {}
                }
            }
            State::Dialling { io: Some(io), .. } => {
                let news = io.arrived(body);
                io.flush(post);
                match news {
                    Some(News::Ready(_)) => self.rise(post),
                    Some(News::Broken(_)) => self.fall(post),
                    _ => {}
                }
            }
            State::Dialling { .. } => {}
            State::Up { admin, io, .. } => {
                let queue = if admin.conn == conn { admin } else { io };
                let news = queue.arrived(body);
                queue.flush(post);
                if matches!(news, Some(News::Broken(_))) {
                    return self.fall(post);
                }
                if let State::Up { io, .. } = &self.state
                    && io.conn == conn
                {
                    while let Some(cqe) = io.response() {
                        self.events.push(SessionEvent::Response(cqe));
                    }
                }
            }
        }
    }

    fn rise(&mut self, post: &Post) {
        let state = std::mem::replace(&mut self.state, State::Down { at: 0 });
        if let State::Dialling { admin, io: Some(io), .. } = state {
            let driver = Driver::new(admin.port(), self.ms(post), ALIVE_MS);
            self.state = State::Up { admin, io, driver };
            self.rest_ms = RESTS_MS.0;
            self.events.push(SessionEvent::Up);
        }
    }

    /// Gives both queues up.
    pub(super) fn fall(&mut self, post: &mut Post) {
        match &self.state {
            State::Down { .. } => return,
            State::Dialling { admin, io, .. } => {
                admin.give_up(post);
                io.iter().for_each(|io| io.give_up(post));
            }
            State::Up { admin, io, .. } => {
                admin.give_up(post);
                io.give_up(post);
                self.events.push(SessionEvent::Down);
            }
        }
        self.exchange = exchange();
        self.asked = false;
        self.state = State::Down { at: self.ms(post) + self.rest_ms };
        self.rest_ms = (self.rest_ms * 2).min(RESTS_MS.1);
    }

    /// Does the work that is due. Returns the time of the next call, ms of the world.
    pub(super) fn attend(&mut self, post: &mut Post) -> u64 {
        let at = self.attend_by(post);
        at.saturating_sub(self.ahead_ms)
    }

    fn attend_by(&mut self, post: &mut Post) -> u64 {
        let now = self.ms(post);
        match &mut self.state {
            State::Down { at } if *at <= now => {
                let admin = Queue::admin(post, self.who);
                self.state = State::Dialling { admin, io: None, until: now + DIAL_MS };
            }
            State::Dialling { until, .. } if *until <= now => self.fall(post),
            State::Up { driver, .. } => {
                if driver.go_on(&mut self.exchange, now).is_err() {
                    self.fall(post);
                }
            }
            State::Down { .. } | State::Dialling { .. } => {}
        }
        while let Some(((), map)) = self.exchange.pop() {
            self.asked = false;
            self.events.extend(map.map(SessionEvent::Map));
        }
        match &self.state {
            State::Down { at } => *at,
            State::Dialling { until, .. } => *until,
            State::Up { admin, driver, .. } => {
                admin.flush(post);
                driver.wakes_at(&self.exchange)
            }
        }
    }
}
