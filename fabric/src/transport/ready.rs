// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which TCP streams are polled: those with something to do. A stream that rests costs a step nothing.
//!
//! ```text
//!   epoll event, or something to send --> awake: polled in each step -- RESTS polls without work --> asleep
//! ```
//! Readiness comes from `mio`, whose events are edge-triggered. So a stream is registered once, and no later
//! call to the operating system names it. An awake stream is read directly: an active client does not wait
//! for the next look at the events.

mod polls;

use super::executors::AnyExecutor;
use super::newcomers::AT_ONCE;
use super::remote::Owner;
use super::sleep::{WAKER, Waker};
use super::{ExecutorId, RcTransport};
use crate::hca::{QpExecutor as _, STEP_REPORTS};
use crate::tcp::{Alarm, Wire};
use gnstor_base::round_robin::RoundRobin;
use gnstor_base::time::{Clock, Span, Time};
use mio::{Events, Poll};
use std::net::IpAddr;
use std::sync::Arc;

/// Polls without work after which a stream sleeps.
const RESTS: u32 = 32;
/// Number of steps between two polls of the operating system's events, if steps take little time.
const LOOK_STEPS: u32 = 8;
/// The longest time between two looks.
const LOOK: Span = Span::from_ns(5000);
/// Most reports of a newcomer in one poll. Each may cost a proof, and its time counts after the poll only.
const NEWCOMER_REPORTS: usize = 4;
/// Largest number of events taken at once.
const EVENTS: usize = 1024;
/// Number of streams whose deadlines are checked in [`TICK`], together.
const TICKS: u64 = 128;
/// Shortest time between two checks of streams.
pub(super) const TICK: Span = Span::from_ms(10);
/// Longest time between two checks, while there are streams.
const LATEST_TICK: Span = Span::from_ms(100);

/// Whether only new bytes, or room in the stream, give a stream something to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// The stream has work to do at once.
    No,
    /// More work is likely to come soon.
    Soon,
    /// No work is likely to come.
    AtOnce,
}

#[derive(Debug, Default)]
struct Slot {
    owner: Option<Owner>,
    is_awake: bool,
    /// Host and number of its entry in the list of newcomers.
    waits: Option<(Option<IpAddr>, u64)>,
    /// Number of successive polls without work.
    rests: u32,
    /// The operating system does not say when it is ready.
    is_unwatched: bool,
    /// A client has been admitted on it, or it leads to an SSD of another process.
    is_admitted: bool,
    /// Number of its queues on which a proof is under way.
    proofs: u32,
    /// The host of its peer, if the listener knows it.
    host: Option<IpAddr>,
}

impl Slot {
    /// No client has been admitted on it, or a proof is under way.
    fn is_newcomer(&self) -> bool {
        !self.is_admitted || self.proofs > 0
    }
}

/// The streams of a transport.
#[derive(Default)]
pub(super) struct Ready {
    pub(super) events: Option<(Poll, Events)>,
    pub(super) waker: Option<Waker>,
    /// A waker has rung since the last sleep.
    pub(super) is_woken: bool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Tokens of the streams that are polled, but for newcomers.
    awake: Vec<u32>,
    /// Tokens of newcomers that are awake. Their hosts take turns, so one with many delays no other one.
    waiting: RoundRobin<Option<IpAddr>, u32>,
    alarm: Arc<Alarm>,
    streams: usize,
    steps: u32,
    looked_at: Time,
    /// The next stream whose deadlines are checked.
    at: usize,
}

impl Ready {
    /// Adds a stream, which is awake. Returns its token.
    pub(super) fn add(&mut self, owner: Owner, wire: &mut Wire) -> u32 {
        let token = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("far fewer streams than 2^32")
        });
        // Without the system's events the stream is polled in each step.
        drop(self.open_events());
        let alarm = &self.alarm;
        let is_watched =
            self.events.as_ref().is_some_and(|(poll, _)| wire.watch(poll.registry(), token, alarm));
        let Slot { is_awake, waits, .. } = self.slots[token as usize];
        let is_admitted = !matches!(owner, Owner::Peer(_));
        self.slots[token as usize] = Slot {
            owner: Some(owner),
            is_awake,
            waits,
            rests: 0,
            is_unwatched: !is_watched,
            is_admitted,
            proofs: 0,
            host: wire.host_address(),
        };
        self.streams += 1;
        if is_admitted {
            self.wait_no_more(token);
        }
        self.wake(token);
        token
    }

    /// Removes a stream that is gone.
    pub(super) fn remove(&mut self, token: u32) {
        let slot = &mut self.slots[token as usize];
        if slot.owner.take().is_some() {
            self.streams -= 1;
            self.free.push(token);
        }
    }

    /// A client has been admitted on the stream.
    pub(super) fn set_admitted(&mut self, token: u32) {
        self.slots[token as usize].is_admitted = true;
        self.wait_no_more(token);
    }

    /// A proof begins on a queue of the stream, or is over. While one is under way the stream is a newcomer.
    pub(super) fn count_proof(&mut self, token: u32, begins: bool) {
        let proofs = &mut self.slots[token as usize].proofs;
        *proofs = if begins { *proofs + 1 } else { proofs.saturating_sub(1) };
        self.wait_no_more(token);
    }

    /// Takes a stream that is no newcomer off the list of waiting newcomers.
    fn wait_no_more(&mut self, token: u32) {
        let slot = &mut self.slots[token as usize];
        if slot.is_newcomer() {
            return;
        }
        if let Some((host, number)) = slot.waits.take() {
            self.waiting.remove(&host, number);
            self.awake.push(token);
        }
    }

    /// Makes a message of another thread to a stream end the sleep of the transport's thread, too.
    pub(super) fn ring_by(&self, waker: &Waker) {
        let waker = waker.clone();
        self.alarm.ring_by(move || waker.wake());
    }

    /// Makes the poll of the system's events, unless it exists.
    pub(super) fn open_events(&mut self) -> std::io::Result<()> {
        if self.events.is_none() {
            self.events = Some((Poll::new()?, Events::with_capacity(EVENTS)));
        }
        Ok(())
    }

    fn wake(&mut self, token: u32) {
        let Some(slot) = self.slots.get_mut(token as usize) else { return };
        slot.rests = 0;
        if !slot.is_awake {
            slot.is_awake = true;
            self.list(token);
        }
    }

    /// Lists a stream as the last that is polled, of newcomers the last of its host.
    fn list(&mut self, token: u32) {
        let slot = &mut self.slots[token as usize];
        if slot.is_newcomer() {
            slot.waits = Some((slot.host, self.waiting.push(slot.host, token)));
        } else {
            self.awake.push(token);
        }
    }

    /// Wakes the streams that have something to do.
    fn look(&mut self, now: Time, at_once: bool) {
        let alarm = Arc::clone(&self.alarm);
        alarm.take(|token| self.wake(token));
        self.steps = self.steps.wrapping_add(1);
        let is_due = at_once || self.steps.is_multiple_of(LOOK_STEPS) || now.since(self.looked_at) >= LOOK;
        if is_due {
            self.looked_at = now;
            self.take_events();
        }
    }

    /// Wakes the streams that the operating system names.
    pub(super) fn take_events(&mut self) {
        let Some((mut poll, mut events)) = self.events.take() else { return };
        if poll.poll(&mut events, Some(std::time::Duration::ZERO)).is_ok() {
            for event in &events {
                if event.token() == WAKER {
                    self.is_woken = true;
                } else if let Ok(token) = u32::try_from(event.token().0) {
                    self.wake(token);
                }
            }
        }
        self.events = Some((poll, events));
    }

    /// When the deadlines of streams are to be checked again, after a check at `last`.
    pub(super) fn next_tick(&self, last: Time) -> Option<Time> {
        (self.streams > 0).then(|| last + LATEST_TICK)
    }

    /// Whether a stream has something to do that the operating system does not announce.
    pub(super) fn must_be_polled(&self) -> bool {
        !self.awake.is_empty() || !self.waiting.is_empty()
    }

    /// The stream has been polled; whether it stays awake. If not, the caller takes it off its list.
    fn stays(&mut self, token: u32, worked: bool, rest: Rest) -> bool {
        let slot = &mut self.slots[token as usize];
        slot.rests = if worked { 0 } else { slot.rests.saturating_add(1) };
        let has_more = match rest {
            Rest::No => true,
            Rest::Soon => slot.rests < RESTS,
            // Most streams without a queue pair are idle, or are about to close.
            Rest::AtOnce => worked,
        };
        slot.is_awake = slot.owner.is_some() && (slot.is_unwatched || has_more);
        slot.is_awake
    }

    /// Streams that are polled in each step.
    #[cfg(test)]
    pub(super) fn awake(&self) -> usize {
        self.awake.len() + self.waiting.len()
    }
}

#[cfg(test)]
mod tests;
