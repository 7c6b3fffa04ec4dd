// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions of SSDs to other SSDs: for leases, and for blocks. As with the carrier of the product
//! (`array/src/peers`), each pair has an admin queue, which a question makes. The times are the product's.
//!
//! ```text
//!   Resting --a question--> Dialling --ready--> Up --broken, or no answer in 250 ms--> Resting
//! ```
//! A question beside a connection that is not up is answered at once with nothing.

use crate::survive::driver::Driver;
use crate::survive::end::{News, Queue, Who};
use crate::survive::node::Asked;
use crate::survive::wire::{Body, Host, Post};
use gnstor_base::controller::AskId;
use gnstor_base::time::Time;
use gnstor_fabric::admin::{Ask, ChannelError, Data, Dialogue, Exchange, Reply};
use gnstor_proto::fabrics::Identity;

/// A question is answered within this time, or its connection counts as broken.
pub(crate) const PATIENCE_MS: u64 = 250;
/// First and longest pause before it connects again.
pub(crate) const RESTS_MS: (u64, u64) = (50, 400);
/// Bit of an opcode that says that data goes to the host.
const TO_THE_HOST: u8 = 0b10;
/// A connection is made within this time, or given up.
pub(crate) const DIAL_MS: u64 = 1_000;
/// The SSD closes the queue of a peer that is silent for so long, and the interval of Keep Alives.
const KATO_MS: u32 = 15_000;
pub(crate) const ALIVE_MS: u64 = 2_000;

/// A question to another SSD.
#[derive(Debug)]
pub(crate) struct Talk(pub(crate) Asked);

impl Dialogue for Talk {
    type Answer = Option<Reply>;

    fn order(&self) -> Option<u64> {
        None
    }

    fn ask(&self) -> Ask {
        let question = &self.0.2;
        let brings = question.sqe.opcode & TO_THE_HOST != 0;
        let bytes = question.sqe.cdw10.get() as usize * 4;
        let data = if brings { Data::In(bytes) } else { Data::Out(question.data.to_vec()) };
        Ask { sqe: question.sqe, data }
    }

    fn replied(&mut self, reply: Reply) -> Option<Option<Reply>> {
        Some(Some(reply))
    }

    fn lost(&mut self, _: &ChannelError) -> Option<Reply> {
        None
    }
}

#[derive(Debug)]
enum State {
    Resting { at: u64 },
    Dialling { queue: Queue, until: u64 },
    Up { queue: Queue, driver: Driver },
}

/// The way from one SSD to another.
#[derive(Debug)]
pub(super) struct Peer {
    own: u16,
    peer: u16,
    state: State,
    rest_ms: u64,
    exchange: Exchange<AskId, Talk>,
    pub(super) answers: Vec<(AskId, Option<Reply>)>,
}

fn ms(at: Time) -> u64 {
    at.as_ns() / 1_000_000
}

impl Peer {
    pub(super) fn new(own: u16, peer: u16) -> Self {
        let exchange = Exchange::new(format!("SSD {peer}"), PATIENCE_MS);
        let state = State::Resting { at: 0 };
        Self { own, peer, state, rest_ms: RESTS_MS.0, exchange, answers: Vec::new() }
    }

    /// The connection, if there is one.
    pub(super) fn conn(&self) -> Option<u32> {
        match &self.state {
            State::Resting { .. } => None,
            State::Dialling { queue, .. } | State::Up { queue, .. } => Some(queue.conn),
        }
    }

    /// An SSD asks.
    pub(super) fn give(&mut self, post: &mut Post, asked: Asked) {
        match &self.state {
            State::Up { .. } => self.exchange.give(asked.0, Talk(asked)),
            State::Dialling { .. } => self.answers.push((asked.0, None)),
            State::Resting { at } => {
                self.answers.push((asked.0, None));
                if *at <= ms(post.now) {
                    let identity = Identity::Peer(self.own);
                    let host = Host::Peer(self.own);
                    let who = Who { host, identity, ssd: self.peer, kato_ms: KATO_MS };
                    let queue = Queue::admin(post, who);
                    self.state = State::Dialling { queue, until: ms(post.now) + DIAL_MS };
                }
            }
        }
    }

    /// Takes what arrived on its connection.
    pub(super) fn arrived(&mut self, post: &mut Post, body: Body) {
        let (State::Dialling { queue, .. } | State::Up { queue, .. }) = &mut self.state else { return };
        let news = queue.arrived(body);
        queue.flush(post);
        match news {
            Some(News::Ready(_)) => {
                let state = std::mem::replace(&mut self.state, State::Resting { at: 0 });
                if let State::Dialling { queue, .. } = state {
                    let driver = Driver::new(queue.port(), ms(post.now), ALIVE_MS);
                    self.state = State::Up { queue, driver };
                }
            }
            Some(News::Broken(cause)) => {
                self.fell(post, ChannelError::Broken { peer: String::new(), cause });
            }
            Some(News::Response) | None => {}
        }
    }

    /// Sends and takes what can be. Returns the time of the next call.
    pub(super) fn attend(&mut self, post: &mut Post) -> Option<u64> {
        let now = ms(post.now);
        match &mut self.state {
            State::Dialling { until, queue } if *until <= now => {
                queue.give_up(post);
                self.rest(now);
            }
            State::Up { driver, .. } => match driver.go_on(&mut self.exchange, now) {
                Ok(true) => self.rest_ms = RESTS_MS.0,
                Ok(false) => {}
                Err(error) => self.fell(post, error),
            },
            State::Dialling { .. } | State::Resting { .. } => {}
        }
        if let State::Up { queue, .. } = &self.state {
            queue.flush(post);
        }
        while let Some((ask, answer)) = self.exchange.pop() {
            self.answers.push((ask, answer));
        }
        match &self.state {
            State::Resting { .. } => None,
            State::Dialling { until, .. } => Some(*until),
            State::Up { driver, .. } => Some(driver.wakes_at(&self.exchange)),
        }
    }

    /// The connection is gone: open questions are answered with nothing.
    fn fell(&mut self, post: &mut Post, error: ChannelError) {
        if let State::Dialling { queue, .. } | State::Up { queue, .. } = &self.state {
            queue.give_up(post);
        }
        self.exchange.end(error);
        while let Some((ask, answer)) = self.exchange.pop() {
            self.answers.push((ask, answer));
        }
        self.exchange = Exchange::new(format!("SSD {}", self.peer), PATIENCE_MS);
        self.rest(ms(post.now));
    }

    fn rest(&mut self, now: u64) {
        self.state = State::Resting { at: now + self.rest_ms };
        self.rest_ms = (self.rest_ms * 2).min(RESTS_MS.1);
    }
}
