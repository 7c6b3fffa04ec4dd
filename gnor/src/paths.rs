// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a client dials each SSD, sends Keep Alive, gives an SSD up, and dials it again. A state machine
//! without I/O, clock or thread: times are arguments, actions come out, their outcomes go in. The session is
//! its runtime.
//!
//! ```text
//!   away --rest is over--> dialling --reached--> found --take--> up
//!    ^  ^                     |                    |              |
//!    |  '----unreached--------'                    |              |
//!    '------broken, or no answer to Keep Alive-----'--------------'
//! ```
//! A *found* SSD has a new path that no queue pair uses yet: queue pairs change only between launches.

use std::time::Duration;

/// Time since the session began.
pub(crate) type Moment = Duration;

/// Intervals and durations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Time from one Keep Alive to the next.
    pub(crate) heartbeat: Duration,
    /// An SSD that answers no Keep Alive for this time is given up.
    pub(crate) silence: Duration,
    /// Time from a failed dial to the next one. It doubles each time.
    pub(crate) rest: Duration,
    /// The longest rest.
    pub(crate) most_rest: Duration,
    /// If two steps are this far apart, this process stood still. Its peers then do not count as silent.
    pub(crate) stood_still: Duration,
}

/// An action for the runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Dial this SSD, and report the result.
    Dial(usize),
    /// Send a Keep Alive on this SSD's path.
    Ask(usize),
    /// Give up this SSD's path, and end everything that uses it.
    Cut(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No SSD has this number yet.
    Vacant,
    /// There is no path. Without a time it is not dialled again.
    Away {
        dial_at: Option<Moment>,
    },
    Dialling,
    /// There is a path.
    Linked {
        in_use: bool,
        ask_at: Moment,
        asked: Option<Moment>,
    },
}

#[derive(Clone, Debug)]
struct Path {
    state: State,
    rest: Duration,
    /// Why there is no path.
    why: String,
    /// The SSD answers, and refuses this client.
    refused: bool,
}

/// The paths to all SSDs.
#[derive(Debug)]
pub(crate) struct Paths {
    pace: Pace,
    /// Whether a lost SSD is dialled again.
    redials: bool,
    list: Vec<Path>,
    seen: Moment,
}

impl Paths {
    /// Paths to `ssds` SSDs, which are all dialled in the first step. Without `redials` each SSD is dialled
    /// only once. There is room for so many SSDs in all.
    pub(crate) fn new(ssds: usize, room: usize, pace: Pace, redials: bool) -> Self {
        let state = State::Away { dial_at: Some(Moment::ZERO) };
        let path = Path { state, rest: pace.rest, why: "it was not dialled yet".into(), refused: false };
        let vacant = Path { state: State::Vacant, ..path.clone() };
        let list =
            std::iter::repeat_n(path, ssds).chain(std::iter::repeat_n(vacant, room.saturating_sub(ssds)));
        Self { pace, redials, list: list.collect(), seen: Moment::ZERO }
    }

    /// Notes that the array has an SSD of this number from now on. It is dialled at once.
    pub(crate) fn occupy(&mut self, now: Moment, ssd: usize) {
        if let Some(path) = self.list.get_mut(ssd).filter(|path| path.state == State::Vacant) {
            path.state = State::Away { dial_at: Some(now) };
        }
    }

    /// Whether a lost SSD is dialled again.
    pub(crate) fn redials(&self) -> bool {
        self.redials
    }

    /// Whether no SSD has this number yet.
    pub(crate) fn is_vacant(&self, ssd: usize) -> bool {
        self.list[ssd].state == State::Vacant
    }

    /// Number of SSDs that there is room for.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The actions to take now. The runtime calls this again at [`Self::wakes_at`], or earlier.
    pub(crate) fn step(&mut self, now: Moment) -> Vec<Action> {
        let pause = now.saturating_sub(self.seen);
        let still = if pause >= self.pace.stood_still { pause } else { Duration::ZERO };
        self.seen = now;
        let mut actions = Vec::new();
        for ssd in 0..self.list.len() {
            actions.extend(self.step_one(now, still, ssd));
        }
        actions
    }

    fn step_one(&mut self, now: Moment, still: Duration, ssd: usize) -> Option<Action> {
        let Pace { silence, .. } = self.pace;
        let path = &mut self.list[ssd];
        match &mut path.state {
            State::Away { dial_at: Some(at) } if *at <= now => {
                path.state = State::Dialling;
                Some(Action::Dial(ssd))
            }
            State::Linked { asked: Some(at), .. } => {
                *at += still;
                if now.saturating_sub(*at) <= silence {
                    return None;
                }
                self.broke(now, ssd, &format!("it answered no Keep Alive for {silence:?}"));
                Some(Action::Cut(ssd))
            }
            State::Linked { asked, ask_at, .. } if *ask_at <= now => {
                *asked = Some(now);
                Some(Action::Ask(ssd))
            }
            State::Vacant | State::Away { .. } | State::Dialling | State::Linked { .. } => None,
        }
    }

    /// Time of the next action, if nothing happens before.
    pub(crate) fn wakes_at(&self) -> Option<Moment> {
        let one = |path: &Path| match path.state {
            State::Away { dial_at } => dial_at,
            State::Vacant | State::Dialling => None,
            // The first moment at which it is silent for longer, and often enough to know that this process
            // did not stand still.
            State::Linked { asked: Some(at), .. } => {
                let silent_at = at + self.pace.silence + Duration::from_nanos(1);
                Some(silent_at.min(self.seen + self.pace.stood_still / 2))
            }
            State::Linked { asked: None, ask_at, .. } => Some(ask_at),
        };
        self.list.iter().filter_map(one).min()
    }

    /// Notes that a dial has reached an SSD. The new path is not in use yet.
    pub(crate) fn reached(&mut self, now: Moment, ssd: usize) {
        let (rest, ask_at) = (self.pace.rest, now + self.pace.heartbeat);
        let path = &mut self.list[ssd];
        assert_eq!(path.state, State::Dialling, "an SSD is dialled once at a time");
        *path = Path {
            state: State::Linked { in_use: false, ask_at, asked: None },
            rest,
            why: "it is back, and no queue pair leads to it yet".into(),
            refused: false,
        };
    }

    /// A dial has not led to an SSD. `refused`: it answers, and does not take this client.
    pub(crate) fn unreached(&mut self, now: Moment, ssd: usize, why: String, refused: bool) {
        let (redials, most) = (self.redials, self.pace.most_rest);
        let path = &mut self.list[ssd];
        assert_eq!(path.state, State::Dialling, "an SSD is dialled once at a time");
        let dial_at = redials.then_some(now + path.rest);
        *path = Path { state: State::Away { dial_at }, rest: most.min(2 * path.rest), why, refused };
    }

    /// An SSD has answered a command.
    pub(crate) fn alive(&mut self, now: Moment, ssd: usize) {
        let heartbeat = self.pace.heartbeat;
        if let State::Linked { asked, ask_at, .. } = &mut self.list[ssd].state
            && asked.take().is_some()
        {
            *ask_at = now + heartbeat;
        }
    }

    /// The path to an SSD is unusable, and the SSD is dialled at once. False: there was no path.
    pub(crate) fn broke(&mut self, now: Moment, ssd: usize, why: &str) -> bool {
        let (redials, rest) = (self.redials, self.pace.rest);
        let path = &mut self.list[ssd];
        if !matches!(path.state, State::Linked { .. }) {
            return false;
        }
        let dial_at = redials.then_some(now);
        *path = Path { state: State::Away { dial_at }, rest, why: why.into(), refused: false };
        true
    }

    /// An SSD without a path has another address. It is dialled there at once, or when a dial under way has
    /// failed.
    pub(crate) fn moved(&mut self, now: Moment, ssd: usize) {
        let (rest, path) = (self.pace.rest, &mut self.list[ssd]);
        path.rest = rest;
        if let State::Away { dial_at: Some(at) } = &mut path.state {
            *at = now.min(*at);
        }
    }

    /// The path that was found is in use from now on.
    pub(crate) fn take(&mut self, ssd: usize) {
        if let State::Linked { in_use, .. } = &mut self.list[ssd].state {
            *in_use = true;
            self.list[ssd].why.clear();
        }
    }

    /// Another path to an SSD is in use from now on. A Keep Alive on the path before it is of no meaning.
    pub(crate) fn replaced(&mut self, now: Moment, ssd: usize) {
        let heartbeat = self.pace.heartbeat;
        if let State::Linked { asked, ask_at, .. } = &mut self.list[ssd].state {
            (*asked, *ask_at) = (None, now + heartbeat);
        }
    }

    /// Whether an SSD has a path that is in use.
    pub(crate) fn is_up(&self, ssd: usize) -> bool {
        matches!(self.list[ssd].state, State::Linked { in_use: true, .. })
    }

    /// Whether an SSD has a path that is not in use yet.
    pub(crate) fn is_found(&self, ssd: usize) -> bool {
        matches!(self.list[ssd].state, State::Linked { in_use: false, .. })
    }

    /// The SSDs that are not up, and why.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (usize, &str)> {
        let all = self.list.iter().map(|path| path.why.as_str()).enumerate();
        all.filter(|&(ssd, _)| !self.is_up(ssd) && !self.is_vacant(ssd))
    }

    /// Why no later dial can help: SSDs are missing, and all of these refuse this client or are not dialled
    /// again.
    pub(crate) fn hopeless(&self) -> Option<&str> {
        let is_missing = |&ssd: &usize| !self.is_up(ssd) && !self.is_vacant(ssd);
        let mut missing = (0..self.list.len()).filter(is_missing).peekable();
        let first = *missing.peek()?;
        let is_final = |ssd: usize| {
            let path = &self.list[ssd];
            path.state == State::Away { dial_at: None } || path.refused && path.state != State::Dialling
        };
        missing.all(is_final).then(|| self.list[first].why.as_str())
    }
}

#[cfg(test)]
mod tests;
