// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connection with one SSD: its admin queue, the commands on it, and the way back when it breaks.
//!
//! ```text
//!   up --the queue breaks, or a keep-alive is not answered--> down --dialled--> up
//!                                                             |  ^
//!                                                             '--' tried again after 100 ms, 200 ms, ... 2 s
//! ```
//! Where the fleet map names voters, the link is watched closely: a silent SSD is given up after 250
//! ms. It has longer where its answers took long. So are all commands in flight to it, although its
//! connection stands.
//!
//! While it is down commands are answered at once. Time is an argument here, and no call blocks: what does,
//! dialling, is [handed out](Output::Dial).

mod opening;
mod say;
mod watch;

use crate::core::{Answer, Command, CommandId};
use crate::openings::{Opened, Openings, Uuid};
use crate::port::{Reconnect, SsdPort, Talk};
use gnstor_fabric::admin::{AdminQueue, ChannelError, Exchange};
use opening::Opening;
pub use say::Condition;
use say::{Said, Say};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use watch::{ALIVE_MS, LONG_STEP_MS, STEP_MS, Watch};

/// How often a silent connection is probed. Commands that wait do not hold up a probe.
const PROBE_MS: u64 = 500;
/// The same while commands are answered: an SSD counts Keep Alives alone. It takes a client for dead after 15
/// s, and the daemon asks for as many.
const AT_WORK_MS: u64 = 5_000;
/// The same for a connection that cannot be made again, such as one within the process. An SSD gives up a
/// host after two minutes of silence.
const KEEP_MS: u64 = 30_000;
/// First wait before a broken connection is made again. It doubles.
const RETRY_MS: u64 = 100;
/// Longest wait.
const RETRY_MAX_MS: u64 = 2_000;
/// Interval at which a filling SSD is asked whether it still fills.
const LOOK_MS: u64 = 2_000;

/// A change of an SSD's presence, which the link reports to the core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// The SSD cannot be reached, for this reason.
    Lost(String),
    /// The SSD is back.
    Found,
    /// The SSD's condition has changed.
    Condition(Condition),
}

/// Work for the owner of a link.
pub enum Output {
    /// Tell the core.
    Answer(CommandId, Answer),
    /// Tell the core.
    News(News),
    /// Connect again, which may block, and pass the result to [`Link::dialled`].
    Dial(Reconnect),
    /// Hold this number of openings, which may block, and call [`Link::kept`] then.
    Keep(Uuid, Opened),
}

#[derive(Debug)]
enum State {
    Up { probe_at: u64, probed_at: u64, watch: Watch },
    Down { why: String, try_at: u64, wait_ms: u64 },
}

/// The connection with one SSD.
pub struct Link {
    index: u16,
    peer: String,
    queue: Box<dyn AdminQueue>,
    /// Whether the connection can be made again.
    lasts: bool,
    /// Function that connects again; `None` during a try.
    reconnect: Option<Reconnect>,
    /// Commands of the core have an id. The link's own questions have none.
    exchange: Exchange<Option<CommandId>, Say>,
    /// Ids of commands without an answer.
    open: BTreeSet<CommandId>,
    deadline_ms: u64,
    state: State,
    condition: Condition,
    /// Whether the link gives up the connection when the SSD is silent.
    is_close: bool,
    /// When the link next asks the SSD for its condition, which only a start of the SSD makes worse.
    look_at: Option<u64>,
    opening: Opening,
    outputs: VecDeque<Output>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("index", &self.index).field("state", &self.state).finish_non_exhaustive()
    }
}

impl State {
    fn up(now: u64, probe_ms: u64) -> Self {
        Self::Up { probe_at: now + probe_ms, probed_at: now, watch: Watch::new(now) }
    }
}

impl Link {
    /// A link that is up. Each admin command is to be completed within `deadline`.
    pub fn new(port: SsdPort, deadline: Duration, now: u64) -> Self {
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        let SsdPort { index, subnqn: peer, queue, reconnect, .. } = port;
        let lasts = reconnect.is_some();
        Self {
            index,
            exchange: Exchange::new(peer.clone(), deadline_ms),
            peer,
            queue,
            lasts,
            reconnect,
            open: BTreeSet::new(),
            deadline_ms,
            state: State::up(now, if lasts { PROBE_MS } else { KEEP_MS }),
            condition: Condition::default(),
            is_close: false,
            look_at: Some(now),
            opening: Opening::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Compares how often the SSD was opened with what the daemon knows, at each connection. An SSD that ends
    /// with this process was judged when it started.
    #[must_use]
    pub fn comparing(self, openings: Option<&Arc<Openings>>, now: u64) -> Self {
        let openings = openings.filter(|_| self.lasts).cloned();
        Self { opening: Opening::new(openings, now), ..self }
    }

    /// A link that is not up yet, and dials at once. It reports no loss before a try has failed.
    pub fn to_be_dialled(port: SsdPort, deadline: Duration, now: u64) -> Self {
        let mut link = Self::new(port, deadline, now);
        let why = "it is being connected".into();
        link.state = State::Down { why, try_at: now, wait_ms: RETRY_MS };
        link
    }

    /// Index of the SSD.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Time of the next [`Self::attend`], beside completions.
    pub fn wakes_at(&self) -> Option<u64> {
        match &self.state {
            State::Up { probe_at, watch, .. } => {
                let own = self.look_at.into_iter().chain(self.opening.wakes_at());
                let own = own.chain((*probe_at != u64::MAX).then_some(*probe_at));
                let exchange = self.exchange.wakes_at().map(|at| watch.clock(at));
                exchange.into_iter().chain(own).min()
            }
            State::Down { try_at, .. } => self.reconnect.is_some().then_some(*try_at),
        }
    }

    /// Whether a completion may come at any time.
    pub fn awaits(&self) -> bool {
        self.exchange.awaits()
    }

    /// From now on gives up a silent SSD, if it can be connected again.
    pub fn watch_closely(&mut self, now: u64) {
        self.is_close = self.lasts;
        let first = now + self.probe_ms();
        if let State::Up { probe_at, watch, .. } = &mut self.state {
            *probe_at = first.min(*probe_at);
            *watch = Watch::new(now);
        }
    }

    fn probe_ms(&self) -> u64 {
        match (self.lasts, self.is_close) {
            (false, _) => KEEP_MS,
            (true, false) => PROBE_MS,
            (true, true) => ALIVE_MS,
        }
    }

    /// Takes the next output, oldest first.
    pub fn pop(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes a command. [`Self::attend`] sends it.
    pub fn give(&mut self, id: CommandId, command: Command) {
        let talk = match &self.state {
            State::Down { why, .. } => Err(Answer::Lost(format!("it is down: {why}"))),
            State::Up { .. } => Talk::start(command),
        };
        match talk {
            Ok(talk) => {
                self.open.insert(id);
                self.exchange.give(Some(id), Say::Command(talk));
            }
            Err(answer) => self.outputs.push_back(Output::Answer(id, answer)),
        }
    }

    /// Takes completions, checks deadlines, probes the SSD, and sends what may be sent. While the SSD is
    /// down, it starts dialling when that is due.
    pub fn attend(&mut self, now: u64) {
        match self.state {
            State::Up { .. } => {
                if let Err(error) = self.go_on(now) {
                    self.fell(now, error);
                }
                self.collect(now);
            }
            State::Down { try_at, .. } if try_at <= now => {
                self.outputs.extend(self.reconnect.take().map(Output::Dial));
            }
            State::Down { .. } => {}
        }
    }

    fn go_on(&mut self, now: u64) -> Result<(), ChannelError> {
        // Completions count before deadlines do.
        let mut heard = false;
        while let Some(cqe) = self.queue.poll()? {
            heard = true;
            let queue = &mut self.queue;
            self.exchange.completed(cqe, |at, data| queue.read(at, data))?;
        }
        let probe_ms = self.probe_ms();
        let most_ms = if self.lasts { AT_WORK_MS } else { KEEP_MS };
        let State::Up { probe_at, probed_at, watch } = &mut self.state else { return Ok(()) };
        let seen = watch.look(now, if self.is_close { STEP_MS } else { LONG_STEP_MS });
        self.exchange.step(seen)?;
        // A completion proves as much about the connection as a probe. To the SSD a command proves nothing.
        if heard {
            *probe_at = (now + probe_ms).min(*probed_at + most_ms);
            watch.heard(seen);
        }
        if *probe_at <= now {
            (*probe_at, *probed_at) = (now + probe_ms, now);
            self.exchange.keep_alive();
            watch.asked(seen);
        }
        if self.is_close && watch.is_silent(seen) {
            let after = Duration::from_millis(watch.silent_ms());
            return Err(ChannelError::Timeout { what: self.peer.clone(), after });
        }
        if self.look_at.take_if(|at| *at <= now).is_some() {
            self.exchange.give(None, Say::Look);
        }
        if let Some(say) = self.opening.say(now) {
            self.exchange.give(None, say);
        }
        while let Some(capsule) = self.exchange.next(seen) {
            self.queue.send(&capsule)?;
        }
        watch.awaits(self.exchange.awaits());
        Ok(())
    }

    /// Handles the loss of the queue.
    fn fell(&mut self, now: u64, error: ChannelError) {
        let error = self.exchange.end(error);
        self.collect(now);
        self.exchange = Exchange::new(self.peer.clone(), self.deadline_ms);
        if self.lasts {
            // A silent SSD may go on: what it was sent before counts no more.
            self.queue.give_up(&error);
            let why = error.to_string();
            self.state = State::Down { why: why.clone(), try_at: now + RETRY_MS, wait_ms: RETRY_MS };
            self.outputs.push_back(Output::News(News::Lost(why)));
        } else {
            // Without a way back each later command hears from the queue what is wrong with it.
            self.queue.give_up(&error);
            self.state = State::Up { probe_at: u64::MAX, probed_at: now, watch: Watch::new(now) };
            self.look_at = None;
        }
    }

    fn collect(&mut self, now: u64) {
        while let Some((id, said)) = self.exchange.pop() {
            match (id, said) {
                (Some(id), Said::Answer(answer)) => {
                    if self.open.remove(&id) {
                        self.outputs.push_back(Output::Answer(id, answer));
                    }
                }
                (_, Said::Condition(said)) => {
                    let condition = said.unwrap_or(self.condition);
                    self.look_at = condition.is_filling.then_some(now + LOOK_MS);
                    if std::mem::replace(&mut self.condition, condition) != condition {
                        self.outputs.push_back(Output::News(News::Condition(condition)));
                    }
                }
                (_, said @ (Said::Who(_) | Said::Opening(..) | Said::NotOpened)) => {
                    self.outputs.extend(self.opening.heard(now, self.index, said));
                }
                // The probes find out why there was no answer.
                (_, Said::Unheard | Said::Answer(_)) => self.look_at = Some(now + LOOK_MS),
            }
        }
    }

    /// The outcome of [`Output::Dial`].
    pub fn dialled(
        &mut self,
        now: u64,
        reconnect: Reconnect,
        outcome: Result<Box<dyn AdminQueue>, ChannelError>,
    ) {
        self.reconnect = Some(reconnect);
        let State::Down { why, try_at, wait_ms } = &mut self.state else { return };
        match outcome {
            Ok(queue) => {
                self.queue = queue;
                self.state = State::up(now, if self.is_close { ALIVE_MS } else { PROBE_MS });
                self.look_at = Some(now);
                self.opening.begin(now);
                self.outputs.push_back(Output::News(News::Found));
            }
            Err(error) => {
                *wait_ms = (*wait_ms * 2).min(RETRY_MAX_MS);
                *try_at = now + *wait_ms;
                let new = error.to_string();
                if *why != new {
                    why.clone_from(&new);
                    self.outputs.push_back(Output::News(News::Lost(new)));
                }
            }
        }
    }

    /// The numbers of [`Output::Keep`] are held.
    pub fn kept(&mut self, now: u64) {
        self.opening.kept(now);
    }

    /// The queue panicked in the middle: no command stays without an answer.
    pub fn panicked(&mut self, now: u64) {
        let cause = "internal error: its admin queue panicked";
        self.fell(now, ChannelError::Broken { peer: self.peer.clone(), cause: cause.into() });
        for id in std::mem::take(&mut self.open) {
            self.outputs.push_back(Output::Answer(id, Answer::Lost(cause.into())));
        }
    }

    /// Sends no further command, for the daemon ends.
    pub fn wind_up(&mut self) {
        self.exchange.forget_waiting();
    }

    /// Whether a command is in flight that may still be answered in time.
    pub fn is_winding_up(&self) -> bool {
        self.exchange.unanswered() > 0
    }
}

#[cfg(test)]
mod tests;
