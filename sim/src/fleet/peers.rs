// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way from one SSD to another: leases are asked for here, and blocks. The times are the product's.
//!
//! ```text
//!   Resting --a question--> Dialling --ready--> Up --broken, or no answer in 250 ms--> Resting
//! ```

use super::queue::{News, Queue};
use crate::port::Arrived;
use crate::ssd::SsdActor;
use crate::survive::driver::Driver;
use crate::survive::peers::{ALIVE_MS, DIAL_MS, PATIENCE_MS, RESTS_MS, Talk};
use gnstor_base::time::Time;
use gnstor_fabric::admin::{ChannelError, Exchange, Reply};
use gnstor_fabric::transport::PeerAsk;
use gnstor_proto::fabrics::Identity;
use std::collections::BTreeMap;

#[derive(Debug)]
enum State {
    Resting { at: u64 },
    Dialling { queue: Queue, until: u64 },
    Up { queue: Queue, driver: Driver<Queue> },
}

/// The way from the SSD `own` to the SSD `peer`.
#[derive(Debug)]
pub(super) struct Peer {
    own: u16,
    state: State,
    rest_ms: u64,
    exchange: Exchange<u32, Talk>,
    /// The questions without an answer, by their numbers here.
    open: BTreeMap<u32, PeerAsk>,
    next: u32,
    /// Questions with their answers, for the SSD that asked.
    pub(super) answers: Vec<(PeerAsk, Option<Reply>)>,
}

fn exchange() -> Exchange<u32, Talk> {
    Exchange::new("another SSD", PATIENCE_MS)
}

impl Peer {
    pub(super) fn new(own: u16) -> Self {
        Self {
            own,
            state: State::Resting { at: 0 },
            rest_ms: RESTS_MS.0,
            exchange: exchange(),
            open: BTreeMap::new(),
            next: 0,
            answers: Vec::new(),
        }
    }

    /// Its queue pair at the other SSD, if it has one.
    pub(super) fn qpn(&self) -> Option<u32> {
        match &self.state {
            State::Resting { .. } => None,
            State::Dialling { queue, .. } | State::Up { queue, .. } => Some(queue.qpn()),
        }
    }

    /// The SSD asks. Without a connection the question has no answer, and begins one.
    pub(super) fn give(&mut self, peer: &mut SsdActor, now: Time, asked: PeerAsk) {
        if let State::Up { .. } = &self.state {
            self.next = self.next.wrapping_add(1);
            let talk = Talk((asked.ask, asked.peer, asked.question.clone()));
            self.exchange.give(self.next, talk);
            self.open.insert(self.next, asked);
            return;
        }
        self.answers.push((asked, None));
        let ms = now.as_ns() / 1_000_000;
        if !matches!(self.state, State::Resting { at } if at <= ms) {
            return;
        }
        match Queue::open(peer, now, Identity::Peer(self.own)) {
            Ok(queue) => self.state = State::Dialling { queue, until: ms + DIAL_MS },
            Err(_) => self.rest(ms),
        }
    }

    /// Takes what arrived for its queue pair.
    pub(super) fn arrived(&mut self, peer: &mut SsdActor, now: Time, arrived: &Arrived) {
        let (State::Dialling { queue, .. } | State::Up { queue, .. }) = &self.state else { return };
        match queue.arrived(arrived) {
            Some(News::Ready) => {
                let queue = queue.clone();
                let driver = Driver::new(queue.clone(), now.as_ns() / 1_000_000, ALIVE_MS);
                self.state = State::Up { queue, driver };
            }
            Some(News::Broken(cause)) => {
                self.fell(peer, now, ChannelError::Broken { peer: "another SSD".into(), cause });
            }
            None => {}
        }
    }

    /// Sends and takes what can be. Returns the time of the next call, ms.
    pub(super) fn attend(&mut self, peer: &mut SsdActor, now: Time) -> Option<u64> {
        let ms = now.as_ns() / 1_000_000;
        let fails = match &mut self.state {
            State::Dialling { until, .. } if *until <= ms => {
                Some(ChannelError::Broken { peer: "another SSD".into(), cause: "no answer".into() })
            }
            State::Up { driver, .. } => match driver.go_on(&mut self.exchange, ms) {
                Ok(is_answered) => {
                    self.rest_ms = if is_answered { RESTS_MS.0 } else { self.rest_ms };
                    None
                }
                Err(error) => Some(error),
            },
            State::Dialling { .. } | State::Resting { .. } => None,
        };
        if let Some(error) = fails {
            self.fell(peer, now, error);
        }
        self.take_answers();
        match &self.state {
            State::Resting { .. } => None,
            State::Dialling { until, .. } => Some(*until),
            State::Up { driver, .. } => Some(driver.wakes_at(&self.exchange)),
        }
    }

    fn take_answers(&mut self) {
        while let Some((number, answer)) = self.exchange.pop() {
            self.answers.extend(self.open.remove(&number).map(|asked| (asked, answer)));
        }
    }

    /// The connection is gone: open questions have no answer.
    fn fell(&mut self, peer: &mut SsdActor, now: Time, error: ChannelError) {
        if let State::Dialling { queue, .. } | State::Up { queue, .. } = &self.state {
            queue.close(peer, now);
        }
        self.exchange.end(error);
        self.take_answers();
        let open = std::mem::take(&mut self.open).into_values();
        self.answers.extend(open.map(|asked| (asked, None)));
        self.exchange = exchange();
        self.rest(now.as_ns() / 1_000_000);
    }

    fn rest(&mut self, ms: u64) {
        self.state = State::Resting { at: ms + self.rest_ms };
        self.rest_ms = (self.rest_ms * 2).min(RESTS_MS.1);
    }
}
