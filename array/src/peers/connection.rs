// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connection of one SSD of this process with another SSD. It has an admin queue and the questions on it,
//! and tries to connect anew when it breaks. Time is an argument, and no call blocks.
//!
//! ```text
//!   rests --a question--> dialling --ok--> up --breaks, or a question is late--> rests
//!                           '--failed--> rests: 50 ms, 100 ms, ... 400 ms
//! ```

use crate::remote_ssd::RemoteSsd;
use gnstor_base::controller::Question;
use gnstor_fabric::admin::{AdminQueue, Ask, ChannelError, Data, Dialogue, Exchange, Reply};
use gnstor_fabric::host_queue::HostQueue;
use gnstor_fabric::transport::PeerAsk;
use gnstor_proto::fabrics::ssd_subnqn;
use std::collections::VecDeque;

/// A question is answered within this time, or its connection counts as broken: a lease is 300 ms.
const PATIENCE_MS: u64 = 250;
/// First and longest pause before it connects again. It is short, so that an SSD that is back serves soon.
const RESTS_MS: (u64, u64) = (50, 400);
/// Bit of an opcode that says that data goes to the host.
const TO_THE_HOST: u8 = 0b10;
/// Interval of Keep Alives to the other SSD.
const ALIVE_MS: u64 = 2_000;
/// A connection that has had no questions for this time ends.
const IDLE_MS: u64 = 10_000;

/// Destination of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Dial {
    pub(super) address: String,
}

/// Work for the owner of a connection.
#[derive(Debug)]
pub(super) enum Output {
    /// Hand this to the SSD that asked.
    Answer(PeerAsk, Option<Reply>),
    /// Connect, which may block, and pass the result to [`PeerConnection::dialled`].
    Dial(Dial),
}

/// A question under way.
#[derive(Debug)]
struct Talk(PeerAsk);

impl Dialogue for Talk {
    type Answer = Option<Reply>;

    fn order(&self) -> Option<u64> {
        None
    }

    fn ask(&self) -> Ask {
        let Question { sqe, data, .. } = &self.0.question;
        let data =
            if brings(&self.0) { Data::In(sqe.cdw10.get() as usize * 4) } else { Data::Out(data.to_vec()) };
        Ask { sqe: *sqe, data }
    }

    fn replied(&mut self, reply: Reply) -> Option<Option<Reply>> {
        Some(Some(reply))
    }

    fn lost(&mut self, _: &ChannelError) -> Option<Reply> {
        None
    }
}

enum State<Q> {
    /// The connection is made when there is a question, not before `at`.
    Resting {
        at: u64,
    },
    /// `moved`: the map has had another address since.
    Dialling {
        moved: bool,
    },
    Up {
        queue: Q,
        _link: Option<RemoteSsd>,
        alive_at: u64,
    },
}

/// The connection to one other SSD.
pub(super) struct PeerConnection<Q = HostQueue> {
    own: u16,
    peer: u16,
    address: String,
    state: State<Q>,
    rest_ms: u64,
    exchange: Exchange<PeerAsk, Talk>,
    /// Questions that came since the last [`Self::attend`].
    inbox: Vec<PeerAsk>,
    last_asked: u64,
    /// Number of open questions that bring blocks or rows.
    reads: usize,
    /// Capsules were sent since [`Self::take_sent`].
    has_sent: bool,
    outputs: VecDeque<Output>,
}

impl<Q> std::fmt::Debug for PeerConnection<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerConnection")
            .field("own", &self.own)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl<Q: AdminQueue> PeerConnection<Q> {
    /// A connection that is not connected.
    pub(super) fn new(own: u16, peer: u16) -> Self {
        Self {
            own,
            peer,
            address: String::new(),
            state: State::Resting { at: 0 },
            rest_ms: RESTS_MS.0,
            exchange: exchange(peer),
            inbox: Vec::new(),
            last_asked: 0,
            reads: 0,
            has_sent: false,
            outputs: VecDeque::new(),
        }
    }

    /// Takes a question. [`Self::attend`] sends it.
    pub(super) fn give(&mut self, asked: PeerAsk) {
        self.inbox.push(asked);
    }

    /// Whether an answer may come at any time.
    pub(super) fn awaits(&self) -> bool {
        self.exchange.awaits()
    }

    /// Whether a repair waits for an answer.
    pub(super) fn awaits_data(&self) -> bool {
        self.reads > 0
    }

    /// Whether capsules were sent since the last call: the transport is to be woken for them.
    pub(super) fn take_sent(&mut self) -> bool {
        std::mem::take(&mut self.has_sent)
    }

    /// Whether it has had nothing to do for long. After a pause of the whole process a question may have come
    /// that it has not looked at yet.
    pub(super) fn is_over(&self, now: u64) -> bool {
        let is_idle = now.saturating_sub(self.last_asked) > IDLE_MS;
        let owes = !self.inbox.is_empty() || self.exchange.awaits() || !self.outputs.is_empty();
        is_idle && !owes && !matches!(self.state, State::Dialling { .. })
    }

    /// Takes the next output, oldest first.
    pub(super) fn pop(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes answers, checks deadlines, and sends questions; connects if that is due.
    pub(super) fn attend(&mut self, now: u64) {
        let inbox = std::mem::take(&mut self.inbox);
        if let Some(last) = inbox.last() {
            self.last_asked = now;
            // The map names another address of the SSD.
            if last.question.address != self.address {
                self.address.clone_from(&last.question.address);
                match &mut self.state {
                    State::Up { .. } => {
                        let cause = "the fleet map has another address".into();
                        self.fell(now, ChannelError::Broken { peer: ssd_subnqn(self.peer), cause });
                    }
                    State::Dialling { moved } => *moved = true,
                    State::Resting { .. } => {}
                }
            }
        }
        let is_asked = !inbox.is_empty();
        match self.state {
            State::Up { .. } => {
                for asked in inbox {
                    self.reads += usize::from(brings(&asked));
                    self.exchange.give(asked.clone(), Talk(asked));
                }
                if let Err(error) = self.go_on(now) {
                    self.fell(now, error);
                }
                self.collect();
            }
            State::Dialling { .. } | State::Resting { .. } => {
                self.outputs.extend(inbox.into_iter().map(|asked| Output::Answer(asked, None)));
                if matches!(self.state, State::Resting { at } if is_asked && at <= now) {
                    self.state = State::Dialling { moved: false };
                    self.outputs.push_back(Output::Dial(Dial { address: self.address.clone() }));
                }
            }
        }
    }

    fn go_on(&mut self, now: u64) -> Result<(), ChannelError> {
        let State::Up { queue, alive_at, .. } = &mut self.state else { return Ok(()) };
        while let Some(cqe) = queue.poll()? {
            self.rest_ms = RESTS_MS.0;
            self.exchange.completed(cqe, |at, data| queue.read(at, data))?;
        }
        self.exchange.step(now)?;
        if *alive_at <= now {
            *alive_at = now + ALIVE_MS;
            self.exchange.keep_alive();
        }
        while let Some(capsule) = self.exchange.next(now) {
            self.has_sent = true;
            queue.send(&capsule)?;
        }
        Ok(())
    }

    /// Gives up the queue, and answers its open questions with nothing.
    fn fell(&mut self, now: u64, error: ChannelError) {
        tracing::debug!(own = self.own, peer = self.peer, %error, "the connection with another SSD broke");
        self.exchange.end(error);
        self.collect();
        self.exchange = exchange(self.peer);
        self.rest(now);
    }

    fn rest(&mut self, now: u64) {
        self.state = State::Resting { at: now + self.rest_ms };
        self.rest_ms = (self.rest_ms * 2).min(RESTS_MS.1);
    }

    fn collect(&mut self) {
        while let Some((asked, answer)) = self.exchange.pop() {
            self.reads = self.reads.saturating_sub(usize::from(brings(&asked)));
            self.outputs.push_back(Output::Answer(asked, answer));
        }
    }

    /// The outcome of [`Output::Dial`].
    pub(super) fn dialled(&mut self, now: u64, outcome: Result<(Q, Option<RemoteSsd>), ChannelError>) {
        match outcome {
            Ok(_) if matches!(self.state, State::Dialling { moved: true }) => self.rest(now),
            Ok((queue, _link)) => self.state = State::Up { queue, _link, alive_at: now + ALIVE_MS },
            Err(error) => {
                tracing::debug!(own = self.own, peer = self.peer, %error, "another SSD is not reached");
                self.rest(now);
            }
        }
    }
}

/// Whether the answer brings data.
fn brings(asked: &PeerAsk) -> bool {
    asked.question.sqe.opcode & TO_THE_HOST != 0
}

fn exchange(peer: u16) -> Exchange<PeerAsk, Talk> {
    Exchange::new(ssd_subnqn(peer), PATIENCE_MS)
}

#[cfg(test)]
mod tests;
