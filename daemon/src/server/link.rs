// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connection with one SSD. Its thread probes it while no command runs, and makes it anew when it
//! breaks.
//!
//! ```text
//!   up --keep-alive fails--> down --connected anew--> up
//!                            |  ^
//!                            '--' tried again after 100 ms, 200 ms, ... 2 s
//! ```
//! While it is down commands are answered at once. Time is an argument here.

use crate::core::{Answer, Command};
use crate::port::{self, SsdPort};
use gnstor_fabric::admin::ChannelError;
use std::time::Duration;

/// How often a silent connection is probed.
const PROBE_MS: u64 = 500;
/// First wait before a broken connection is made anew; it doubles.
const RETRY_MS: u64 = 100;
/// Longest wait.
const RETRY_MAX_MS: u64 = 2_000;
/// How often an SSD that is filling is asked whether it still is.
const LOOK_MS: u64 = 2_000;

/// A change of presence that the core has to hear of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// The SSD is gone, or still is, for this reason.
    Lost(String),
    /// It is back.
    Found,
    /// Acknowledged writes may be missing there, so that it serves no reads; or no longer.
    Filling(bool),
}

#[derive(Debug)]
enum State {
    Up { probe_at: u64 },
    Down { why: String, try_at: u64, wait_ms: u64 },
}

/// The connection with one SSD.
#[derive(Debug)]
pub(super) struct Link {
    port: SsdPort,
    deadline: Duration,
    state: State,
    is_filling: bool,
    /// When it is asked whether it is filling: only a start makes it so.
    look_at: Option<u64>,
}

impl Link {
    pub(super) fn new(port: SsdPort, deadline: Duration, now: u64) -> Self {
        let state = State::Up { probe_at: now + PROBE_MS };
        Self { port, deadline, state, is_filling: false, look_at: Some(now) }
    }

    /// When [`Self::attend`] is next wanted; `None` where nothing could be done about a broken connection.
    pub(super) fn wakes_at(&self) -> Option<u64> {
        let can_return = self.port.reconnect.is_some();
        match self.state {
            State::Up { probe_at } => self.look_at.into_iter().chain(can_return.then_some(probe_at)).min(),
            State::Down { try_at, .. } => can_return.then_some(try_at),
        }
    }

    pub(super) fn execute(&mut self, now: u64, command: &Command) -> Answer {
        match &mut self.state {
            State::Down { why, .. } => Answer::Lost(format!("it is down: {why}")),
            State::Up { probe_at } => {
                let answer = port::execute(self.port.channel.as_mut(), command, self.deadline);
                // Without an answer the connection is looked at next; with one it was looked at just now.
                *probe_at = if matches!(answer, Answer::Lost(_)) { now } else { now + PROBE_MS };
                answer
            }
        }
    }

    /// Probes or reconnects, if either is due.
    pub(super) fn attend(&mut self, now: u64) -> Option<News> {
        if matches!(self.state, State::Up { .. }) && self.look_at.is_some_and(|at| at <= now) {
            return self.look(now);
        }
        let reconnect = self.port.reconnect.as_mut()?;
        match &mut self.state {
            State::Up { probe_at } if *probe_at > now => None,
            State::Up { probe_at } => match port::keep_alive(self.port.channel.as_mut(), self.deadline) {
                Ok(()) => {
                    *probe_at = now + PROBE_MS;
                    None
                }
                Err(error) => {
                    let why = sentence(&error);
                    self.state = State::Down { why: why.clone(), try_at: now + RETRY_MS, wait_ms: RETRY_MS };
                    Some(News::Lost(why))
                }
            },
            State::Down { try_at, .. } if *try_at > now => None,
            State::Down { why, try_at, wait_ms } => match reconnect() {
                Ok(channel) => {
                    self.port.channel = channel;
                    self.state = State::Up { probe_at: now + PROBE_MS };
                    self.look_at = Some(now);
                    Some(News::Found)
                }
                Err(error) => {
                    *wait_ms = (*wait_ms * 2).min(RETRY_MAX_MS);
                    *try_at = now + *wait_ms;
                    let new = sentence(&error);
                    let differs = *why != new;
                    why.clone_from(&new);
                    differs.then_some(News::Lost(new))
                }
            },
        }
    }
}

impl Link {
    /// Asks whether the SSD is filling. Where it does not answer, the probes find out why.
    fn look(&mut self, now: u64) -> Option<News> {
        let said = port::is_filling(self.port.channel.as_mut(), self.deadline);
        let asks_again = said.is_err();
        let is_filling = said.ok().flatten().unwrap_or(self.is_filling);
        self.look_at = (asks_again || is_filling).then_some(now + LOOK_MS);
        let differs = std::mem::replace(&mut self.is_filling, is_filling) != is_filling;
        differs.then_some(News::Filling(is_filling))
    }
}

fn sentence(error: &ChannelError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::{Deadline, LIMIT};
    use gnstor_fabric::admin::{AdminChannel, Payload};
    use gnstor_proto::nvme::admin::GET_LOG_PAGE;
    use gnstor_proto::nvme::{Cqe, Sqe};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// An SSD that is there or not, and counts how often it was connected with.
    #[derive(Clone, Default)]
    struct Sim {
        gone: Arc<AtomicBool>,
        filling: Arc<AtomicBool>,
        tries: Arc<AtomicU32>,
    }

    struct SimChannel(Sim, bool);

    impl AdminChannel for SimChannel {
        fn execute(&mut self, sqe: Sqe, payload: Payload<'_>, _: Duration) -> Result<Cqe, ChannelError> {
            // As the real one: what broke once stays broken.
            self.1 |= self.0.gone.load(Ordering::Relaxed);
            if self.1 {
                return Err(broken());
            }
            if let (GET_LOG_PAGE, Payload::In(page)) = (sqe.opcode, payload) {
                let filling = u8::from(self.0.filling.load(Ordering::Relaxed));
                page[..8].copy_from_slice(&[b'G', b'N', b'L', b'F', 1, 0, filling, 0]);
            }
            Ok(Cqe::default())
        }
    }

    fn broken() -> ChannelError {
        ChannelError::Broken { peer: "SSD 0".into(), cause: "pulled".into() }
    }

    fn link(sim: &Sim) -> Link {
        let again = sim.clone();
        let reconnect: port::Reconnect = Box::new(move || {
            again.tries.fetch_add(1, Ordering::Relaxed);
            if again.gone.load(Ordering::Relaxed) {
                let cause = "no SSD listens there".into();
                return Err(ChannelError::Refused { peer: "SSD 0".into(), cause });
            }
            Ok(Box::new(SimChannel(again.clone(), false)))
        });
        let port = SsdPort {
            index: 0,
            subnqn: String::new(),
            transport: String::new(),
            address: String::new(),
            capacity_bytes: 0,
            model: String::new(),
            channel: Box::new(SimChannel(sim.clone(), false)),
            reconnect: Some(reconnect),
        };
        Link::new(port, Duration::ZERO, 0)
    }

    /// A link that has asked whether the SSD is filling.
    fn known_link(sim: &Sim) -> Link {
        let mut link = link(sim);
        assert_eq!((link.wakes_at(), link.attend(0)), (Some(0), None));
        link
    }

    #[test]
    fn an_ssd_says_that_it_is_filling_at_the_start_and_after_its_return_and_until_it_ends() {
        let _deadline = Deadline::after(LIMIT);
        let sim = Sim::default();
        let mut link = known_link(&sim);
        sim.gone.store(true, Ordering::Relaxed);
        assert!(matches!(link.attend(500), Some(News::Lost(_))));
        sim.gone.store(false, Ordering::Relaxed);
        sim.filling.store(true, Ordering::Relaxed);
        assert_eq!(link.attend(600), Some(News::Found));
        assert_eq!(link.attend(link.wakes_at().unwrap()), Some(News::Filling(true)));
        let told: Vec<_> = (601..4_000).filter_map(|now| link.attend(now)).collect();
        assert_eq!(told, [], "once");
        sim.filling.store(false, Ordering::Relaxed);
        let told: Vec<_> = (4_000..6_000).filter_map(|now| link.attend(now)).collect();
        assert_eq!(told, [News::Filling(false)]);
        // An SSD without a way back is asked, too, and then let alone.
        let mut link = self::link(&sim);
        link.port.reconnect = None;
        sim.filling.store(true, Ordering::Relaxed);
        assert_eq!(link.attend(0), Some(News::Filling(true)));
        sim.filling.store(false, Ordering::Relaxed);
        assert_eq!(link.attend(link.wakes_at().unwrap()), Some(News::Filling(false)));
        assert_eq!(link.wakes_at(), None);
    }

    #[test]
    fn a_silent_connection_is_probed_and_a_broken_one_made_anew_with_growing_waits() {
        let _deadline = Deadline::after(LIMIT);
        let sim = Sim::default();
        let mut link = known_link(&sim);
        for _ in 0..3 {
            let at = link.wakes_at().unwrap();
            assert_eq!(link.attend(at - 1), None);
            assert_eq!(link.attend(at), None, "it is there");
        }
        sim.gone.store(true, Ordering::Relaxed);
        let mut now = link.wakes_at().unwrap();
        assert_eq!(now, 2_000);
        assert!(matches!(link.attend(now), Some(News::Lost(why)) if why.contains("pulled")));
        let mut waits = Vec::new();
        for round in 0..7 {
            let at = link.wakes_at().unwrap();
            waits.push(at - now);
            now = at;
            let news = link.attend(now);
            assert_eq!(news.is_some(), round == 0, "the same reason is told once: {news:?}");
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
        sim.gone.store(false, Ordering::Relaxed);
        assert_eq!(link.attend(now + 1_999), None);
        assert_eq!(link.attend(now + 2_000), Some(News::Found));
        assert_eq!((link.attend(now + 2_001), sim.tries.load(Ordering::Relaxed)), (None, 8));
    }

    #[test]
    fn commands_to_an_ssd_that_is_down_are_answered_at_once_and_never_sent() {
        let _deadline = Deadline::after(LIMIT);
        let sim = Sim::default();
        let mut link = known_link(&sim);
        assert!(matches!(link.execute(10, &Command::MapGet), Answer::Map(None)));
        sim.gone.store(true, Ordering::Relaxed);
        assert!(matches!(link.execute(20, &Command::MapGet), Answer::Lost(_)));
        assert_eq!(link.wakes_at(), Some(20), "it is looked at next");
        assert!(matches!(link.attend(20), Some(News::Lost(_))));
        let Answer::Lost(why) = link.execute(30, &Command::MapGet) else { panic!("it is down") };
        assert!(why.contains("it is down") && why.contains("pulled"), "{why}");
        assert_eq!(sim.tries.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn without_a_way_back_there_is_nothing_to_attend_to() {
        let _deadline = Deadline::after(LIMIT);
        let sim = Sim::default();
        let mut link = known_link(&sim);
        link.port.reconnect = None;
        sim.gone.store(true, Ordering::Relaxed);
        assert!(matches!(link.execute(0, &Command::MapGet), Answer::Lost(_)));
        assert_eq!((link.wakes_at(), link.attend(1_000_000)), (None, None));
    }
}
