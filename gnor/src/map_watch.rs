// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides when a client asks an SSD or the daemon for the fleet map. A state machine without I/O, clock or
//! thread, as [`Paths`](crate::paths::Paths): times are arguments, questions come out, answers go in.
//!
//! ```text
//!   calm --an SSD lost, a refusal, a newer epoch heard of--> urgent --a second without news--> calm
//!    |                                                         |
//!    '- while a kernel runs: which epoch? each 100 ms          '- the same each 10 ms
//!
//!   a newer epoch is known of --the whole map--> taken: this is the map in use
//!                              '--not within half a second--> the daemon is asked, too
//! ```
//! Questions go to the SSDs in turn. An SSD that is behind reports an old epoch. Then the client soon asks
//! the next SSD.

use crate::paths::Moment;
use std::time::Duration;

/// Intervals and durations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    /// Time between two questions while a kernel runs.
    pub(crate) calm: Duration,
    /// Time between two questions while the map is about to change.
    pub(crate) urgent: Duration,
    /// Time for which the map counts as about to change after a sign of it.
    pub(crate) lasts: Duration,
    /// An SSD that has not answered within this is passed over.
    pub(crate) patience: Duration,
    /// Time without help from SSDs after which the daemon is asked, and interval of these questions.
    pub(crate) daemon: Duration,
}

/// A question for the runtime to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// Ask this SSD for the epoch of its map.
    Epoch(usize),
    /// This SSD's whole map.
    Map(usize),
    /// The daemon's map.
    Daemon,
}

/// Result of fetching a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The map of this epoch is in use. It may be an older one that was in use already.
    Epoch(u64),
    /// The client cannot use the map of this epoch, and needs a newer one.
    Unfit(u64),
    /// No map came, the map was unusable, or its turn has not come yet.
    Nothing,
}

/// The epoch in use, and the client's knowledge of newer ones.
#[derive(Debug)]
pub(crate) struct MapWatch {
    rhythm: Rhythm,
    in_use: u64,
    /// The epoch in use, or the epoch of a newer map that the client cannot use.
    done: u64,
    /// The newest epoch heard of, and the SSD that reported it, until its map is asked for.
    newest: u64,
    holder: Option<usize>,
    /// The question to an SSD that is under way, and since when.
    asked: Option<(Ask, Moment)>,
    ask_at: Moment,
    next_ssd: usize,
    urgent_until: Moment,
    /// Time at which to ask the daemon.
    daemon_at: Option<Moment>,
    daemon_asked: bool,
    was_busy: bool,
}

impl MapWatch {
    /// A client that uses the map of this epoch.
    pub(crate) fn new(rhythm: Rhythm, epoch: u64) -> Self {
        Self {
            rhythm,
            in_use: epoch,
            done: epoch,
            newest: epoch,
            holder: None,
            asked: None,
            ask_at: Moment::ZERO,
            next_ssd: 0,
            urgent_until: Moment::ZERO,
            daemon_at: None,
            daemon_asked: false,
            was_busy: false,
        }
    }

    /// Epoch of the map in use.
    pub(crate) fn in_use(&self) -> u64 {
        self.in_use
    }

    fn wants_map(&self) -> bool {
        self.newest > self.done
    }

    /// The map may be about to change: an SSD was lost, or refused a command because of its map.
    pub(crate) fn suspect(&mut self, now: Moment) {
        self.daemon_at.get_or_insert(now + self.rhythm.daemon);
        self.urgent_until = now + self.rhythm.lasts;
        self.ask_at = self.ask_at.min(now);
    }

    /// The questions to send now. `busy`: a kernel runs, or a call waits for a newer map. `can_ask` says
    /// which SSDs have an admin queue without an open question.
    pub(crate) fn step(
        &mut self,
        now: Moment,
        busy: bool,
        ssds: usize,
        can_ask: impl Fn(usize) -> bool,
    ) -> Vec<Ask> {
        if busy && !self.was_busy {
            self.ask_at = self.ask_at.min(now);
        }
        self.was_busy = busy;
        let is_urgent = now < self.urgent_until;
        if !is_urgent && !self.wants_map() && !busy {
            self.daemon_at = None;
            return Vec::new();
        }
        let mut asks = Vec::new();
        if self.daemon_at.is_some_and(|at| at <= now) && !self.daemon_asked {
            self.daemon_asked = true;
            asks.push(Ask::Daemon);
        }
        // An SSD that is skipped may still answer, and its answer counts then.
        self.asked = self.asked.filter(|&(_, at)| now < at + self.rhythm.patience);
        if self.asked.is_none() && now >= self.ask_at {
            let ask = self.choose(ssds, can_ask);
            self.ask_at = now + if is_urgent { self.rhythm.urgent } else { self.rhythm.calm };
            self.asked = ask.map(|ask| (ask, now));
            asks.extend(ask);
            if ask.is_none() {
                self.daemon_at.get_or_insert(now + self.rhythm.daemon);
            }
        }
        asks
    }

    fn choose(&mut self, ssds: usize, can_ask: impl Fn(usize) -> bool) -> Option<Ask> {
        // Ask the SSD that reported the epoch once. If that fails, another SSD may report it, too.
        if let Some(holder) = self.holder.take().filter(|&ssd| self.wants_map() && can_ask(ssd)) {
            return Some(Ask::Map(holder));
        }
        let ssd = (0..ssds).map(|k| (self.next_ssd + k) % ssds).find(|&ssd| can_ask(ssd))?;
        self.next_ssd = ssd + 1;
        Some(Ask::Epoch(ssd))
    }

    /// When there is something to do next, if nothing happens before and the client stays as busy as it was.
    pub(crate) fn wakes_at(&self, now: Moment) -> Option<Moment> {
        if now >= self.urgent_until && !self.wants_map() && !self.was_busy {
            return None;
        }
        let ask_at = self.asked.map_or(self.ask_at, |(_, at)| self.ask_at.max(at + self.rhythm.patience));
        let daemon_at = self.daemon_at.filter(|_| !self.daemon_asked);
        Some(daemon_at.map_or(ask_at, |at| at.min(ask_at)))
    }

    fn ended(&mut self, ask: Ask) {
        self.asked = self.asked.filter(|&(asked, _)| asked != ask);
    }

    /// An SSD has said its map's epoch; `None`: it has none, or the question has failed.
    pub(crate) fn epoch_told(&mut self, now: Moment, ssd: usize, epoch: Option<u64>) {
        self.ended(Ask::Epoch(ssd));
        let Some(epoch) = epoch else { return };
        if epoch > self.done && epoch >= self.newest {
            (self.newest, self.holder) = (epoch, Some(ssd));
            self.suspect(now);
        } else if now >= self.urgent_until && !self.wants_map() {
            self.daemon_at = None;
        }
    }

    /// A map has come from `from`, or the request has failed.
    pub(crate) fn map_came(&mut self, now: Moment, from: Ask, taken: Taken) {
        self.ended(from);
        if from == Ask::Daemon {
            self.daemon_asked = false;
            self.daemon_at = Some(now + self.rhythm.daemon);
        }
        match taken {
            Taken::Epoch(epoch) => self.in_use = self.in_use.max(epoch),
            Taken::Unfit(epoch) => self.done = self.done.max(epoch),
            Taken::Nothing => return,
        }
        let is_new = self.in_use > self.done;
        self.done = self.done.max(self.in_use);
        self.newest = self.newest.max(self.done);
        if is_new && !self.wants_map() {
            // Signs of this change are no signs of the next one.
            (self.urgent_until, self.daemon_at) = (now, None);
        }
    }
}

#[cfg(test)]
mod tests;
