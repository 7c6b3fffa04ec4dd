// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands of one admin queue, several in flight, without I/O and without a clock.
//!
//! ```text
//!   give --> waiting --next: capsule--> in flight --completed--> answer --> pop
//!               ^                          |   |
//!               '----- asks once more -----'   '--deadline--> answer: lost; the command id is late
//! ```
//! * A command is a [`Dialogue`]: capsules one after another until it has its answer.
//! * Commands are sent in the order given, with one exception. A command may have an *order* ([`Dialogue`])
//!   that an earlier one has, too. It waits for that one's answer, and others overtake it.
//! * A controller may carry out commands one after another. So a capsule has the sum of its own deadline and
//!   of those of the capsules in flight ahead of it.
//! * A command id is in use until its completion comes, also when the deadline has passed. Until then no
//!   command of the same order is sent: the controller may still carry out the late one, and in any order.
//! * A completion that no command in flight waits for ends the exchange: the controller cannot be trusted to
//!   mean the command that it names. So does a second deadline, and a Keep Alive without an answer.
//! * An exchange that ended has answered every command. Its queue is given up with it.
//!
//! `now` is in ms, of any clock that does not go back.

use super::ChannelError;
use super::window::{Area, Window};
use gnstor_proto::nvme::{self, Cqe, Sqe};
use gnstor_proto::status::Status;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Commands in flight. The queue has 16 entries, of which 15 may be in use; one is left for a Keep Alive.
pub const COMMANDS: usize = 14;

/// Data of a capsule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// No data.
    None,
    /// Data for the controller.
    Out(Vec<u8>),
    /// Number of bytes that the controller brings.
    In(usize),
}

impl Data {
    /// Number of bytes of data.
    pub fn bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Out(data) => data.len(),
            Self::In(bytes) => *bytes,
        }
    }
}

/// A command's request to the controller. The exchange fills in the command id. The queue fills in flags and
/// data pointer.
#[derive(Clone, PartialEq, Debug)]
pub struct Ask {
    /// The submission entry.
    pub sqe: Sqe,
    /// Data of the capsule, at most [`super::WINDOW_BYTES`].
    pub data: Data,
}

/// The controller's answer to an [`Ask`].
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// The completion entry.
    pub cqe: Cqe,
    /// Data that the controller brought; empty if the command failed.
    pub data: Vec<u8>,
}

/// One command: the capsules that it sends, and how it turns the replies into an answer.
pub trait Dialogue {
    /// Result of the command.
    type Answer;

    /// Commands with the same order are executed one after another, in the order given. `None`: in any order.
    fn order(&self) -> Option<u64>;

    /// The command's next capsule.
    fn ask(&self) -> Ask;

    /// Takes the reply. `None`: the command sends another capsule.
    fn replied(&mut self, reply: Reply) -> Option<Self::Answer>;

    /// Called when no reply will come.
    fn lost(&mut self, error: &ChannelError) -> Self::Answer;
}

/// A capsule to be sent.
#[derive(Clone, PartialEq, Debug)]
pub struct Capsule {
    /// The submission entry with its command id; flags and data pointer are the queue's.
    pub sqe: Sqe,
    /// Offset of its data in the queue's window.
    pub at: usize,
    /// The data.
    pub data: Data,
}

#[derive(Debug)]
enum What<K, D> {
    Command(K, D),
    /// A command that was answered as lost, and whose reply may still come. The value is the command's order.
    Late(Option<u64>),
    KeepAlive,
}

#[derive(Debug)]
struct InFlight<K, D> {
    what: What<K, D>,
    /// Deadline of the capsule, ms.
    due: u64,
    area: Area,
    /// Number of bytes that the capsule's reply brings.
    brings: usize,
}

/// The commands of one queue. `K` identifies a command.
#[derive(Debug)]
pub struct Exchange<K, D: Dialogue> {
    peer: String,
    deadline_ms: u64,
    waiting: VecDeque<(K, D)>,
    in_flight: BTreeMap<u16, InFlight<K, D>>,
    window: Window,
    next_cid: u16,
    asks_alive: bool,
    answers: VecDeque<(K, D::Answer)>,
    ended: Option<ChannelError>,
}

impl<K, D: Dialogue> Exchange<K, D> {
    /// An exchange with `peer`, a name for messages. A capsule that is alone is to be completed within
    /// `deadline_ms`.
    pub fn new(peer: impl Into<String>, deadline_ms: u64) -> Self {
        Self {
            peer: peer.into(),
            deadline_ms,
            waiting: VecDeque::new(),
            in_flight: BTreeMap::new(),
            window: Window::default(),
            next_cid: 0,
            asks_alive: false,
            answers: VecDeque::new(),
            ended: None,
        }
    }

    /// Adds a command. An exchange that has ended answers it as lost.
    pub fn give(&mut self, key: K, mut command: D) {
        match &self.ended {
            Some(error) => self.answers.push_back((key, command.lost(error))),
            None => {
                self.waiting.push_back((key, command));
                self.refuse_behind_late();
            }
        }
    }

    /// Sends a Keep Alive beside all commands, unless one is in flight.
    pub fn keep_alive(&mut self) {
        let asked = self.in_flight.values().any(|sent| matches!(sent.what, What::KeepAlive));
        self.asks_alive = !asked && self.ended.is_none();
    }

    /// The next capsule to send, if one may be sent now.
    pub fn next(&mut self, now: u64) -> Option<Capsule> {
        if std::mem::take(&mut self.asks_alive) {
            let sqe = Sqe { opcode: nvme::admin::KEEP_ALIVE, ..Sqe::default() };
            return Some(self.send(now, What::KeepAlive, Ask { sqe, data: Data::None }, Area::default()));
        }
        let (place, ask, area) = self.sendable()?;
        let (key, command) = self.waiting.remove(place)?;
        Some(self.send(now, What::Command(key, command), ask, area))
    }

    /// The first waiting command that may be sent, with its place and the room for its data.
    fn sendable(&mut self) -> Option<(usize, Ask, Area)> {
        if self.in_flight.values().filter(|sent| !matches!(sent.what, What::KeepAlive)).count() >= COMMANDS {
            return None;
        }
        let mut taken: BTreeSet<u64> = self.in_flight.values().filter_map(|sent| sent.order()).collect();
        for (place, (_, command)) in self.waiting.iter().enumerate() {
            if command.order().is_some_and(|order| !taken.insert(order)) {
                continue;
            }
            // A command whose data does not fit yet is not overtaken: otherwise it might never fit.
            let ask = command.ask();
            let area = self.window.take(ask.data.bytes())?;
            return Some((place, ask, area));
        }
        None
    }

    fn send(&mut self, now: u64, what: What<K, D>, ask: Ask, area: Area) -> Capsule {
        let Ask { mut sqe, data } = ask;
        while self.in_flight.contains_key(&self.next_cid) {
            self.next_cid = self.next_cid.wrapping_add(1);
        }
        let cid = self.next_cid;
        self.next_cid = cid.wrapping_add(1);
        sqe.cid = cid.into();
        let ahead = if matches!(what, What::KeepAlive) { 0 } else { self.unanswered() };
        let patience = self.deadline_ms.saturating_mul(ahead as u64 + 1);
        let due = now.saturating_add(patience);
        let brings = if let Data::In(bytes) = data { bytes } else { 0 };
        self.in_flight.insert(cid, InFlight { what, due, area, brings });
        Capsule { sqe, at: area.start(), data }
    }

    /// A completion came. `read` copies the bytes at an offset of the queue's window.
    ///
    /// # Errors
    /// No command in flight waits for this completion: the exchange ended.
    pub fn completed(&mut self, cqe: Cqe, read: impl FnOnce(usize, &mut [u8])) -> Result<(), ChannelError> {
        self.goes_on()?;
        let cid = cqe.cid.get();
        let Some(sent) = self.in_flight.remove(&cid) else {
            let cause = format!("it completed command {cid}, which is not under way");
            return Err(self.end(ChannelError::Broken { peer: self.peer.clone(), cause }));
        };
        self.window.give_back(sent.area);
        if let What::Command(key, mut command) = sent.what {
            let mut data = Vec::new();
            if Status(cqe.status_word()).is_success() && sent.brings > 0 {
                data.resize(sent.brings, 0);
                read(sent.area.start(), &mut data);
            }
            match command.replied(Reply { cqe, data }) {
                Some(answer) => self.answers.push_back((key, answer)),
                None => self.waiting.push_front((key, command)),
            }
        }
        Ok(())
    }

    /// Time passed. A command beyond its deadline is answered as lost; the others go on.
    ///
    /// # Errors
    /// A late command's second deadline passed, or a Keep Alive's: the exchange ended.
    pub fn step(&mut self, now: u64) -> Result<(), ChannelError> {
        self.goes_on()?;
        let timeout = self.timeout(self.peer.clone());
        let (deadline_ms, mut silent) = (self.deadline_ms, false);
        for sent in self.in_flight.values_mut().filter(|sent| sent.due <= now) {
            let late = What::Late(sent.order());
            match std::mem::replace(&mut sent.what, late) {
                What::Command(key, mut command) => {
                    sent.due = now.saturating_add(deadline_ms);
                    self.answers.push_back((key, command.lost(&timeout)));
                }
                What::Late(_) | What::KeepAlive => silent = true,
            }
        }
        if silent {
            return Err(self.end(timeout));
        }
        self.refuse_behind_late();
        Ok(())
    }

    /// Answers commands that would have to wait for a late one.
    fn refuse_behind_late(&mut self) {
        let late: BTreeSet<u64> = self.in_flight.values().filter_map(InFlight::late_order).collect();
        let is_behind = |command: &D| command.order().is_some_and(|order| late.contains(&order));
        if late.is_empty() || !self.waiting.iter().any(|(_, command)| is_behind(command)) {
            return;
        }
        let error = self.timeout(format!("an earlier command of this kind to {}", self.peer));
        let (behind, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(_, command)| is_behind(command));
        self.waiting = waiting;
        let behind: VecDeque<(K, D)> = behind;
        self.answers.extend(behind.into_iter().map(|(key, mut command)| (key, command.lost(&error))));
    }

    /// Ends the exchange: each command without an answer is lost. Returns the reason.
    pub fn end(&mut self, error: ChannelError) -> ChannelError {
        let sent = std::mem::take(&mut self.in_flight).into_values().filter_map(|sent| match sent.what {
            What::Command(key, command) => Some((key, command)),
            What::Late(_) | What::KeepAlive => None,
        });
        let all = sent.chain(std::mem::take(&mut self.waiting));
        self.answers.extend(all.map(|(key, mut command)| (key, command.lost(&error))));
        self.window = Window::default();
        self.asks_alive = false;
        self.ended.get_or_insert(error).clone()
    }

    fn goes_on(&self) -> Result<(), ChannelError> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn timeout(&self, what: String) -> ChannelError {
        ChannelError::Timeout { what, after: Duration::from_millis(self.deadline_ms) }
    }

    /// The next answer, in the order in which they came.
    pub fn pop(&mut self) -> Option<(K, D::Answer)> {
        self.answers.pop_front()
    }

    /// Time of the next call of [`Self::step`], ms.
    pub fn wakes_at(&self) -> Option<u64> {
        self.in_flight.values().map(|sent| sent.due).min()
    }

    /// Whether a completion can come.
    pub fn awaits(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Commands in flight that have no answer yet.
    pub fn unanswered(&self) -> usize {
        self.in_flight.values().filter(|sent| matches!(sent.what, What::Command(..))).count()
    }

    /// Forgets the commands that are not sent yet, without an answer: their owner ends.
    pub fn forget_waiting(&mut self) {
        self.waiting.clear();
    }
}

impl<K, D: Dialogue> InFlight<K, D> {
    fn order(&self) -> Option<u64> {
        match &self.what {
            What::Command(_, command) => command.order(),
            What::Late(order) => *order,
            What::KeepAlive => None,
        }
    }

    fn late_order(&self) -> Option<u64> {
        if let What::Late(order) = self.what { order } else { None }
    }
}

#[cfg(test)]
mod tests;
