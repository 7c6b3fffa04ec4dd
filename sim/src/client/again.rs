// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that start over where an SSD fails, as in the product: a queue pair broke, or an SSD refused for
//! its map. Such a request waits for another map, or 4 ms, and keeps the stamps that it had.

use crate::initiator::{NO_REPLICA, Outcome, QP_BROKEN, Request, STARTS_OVER};
use gnstor_base::time::{Span, Time};
use gnstor_proto::status::{Detail, Refusal};

/// A request tries again after this time, even without another map.
const AGAIN: Span = Span::from_ms(4);

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Wait {
    request: Request,
    at: Time,
    epoch: u64,
}

/// The requests of a client that wait, and what it knows of the array.
#[derive(Debug)]
pub(super) struct Again {
    waits: Vec<Option<Wait>>,
    /// Epoch of the map that the client follows.
    pub(super) epoch: u64,
    /// The map may have changed.
    pub(super) suspects: bool,
    /// It follows another map, and has not been stepped since.
    pub(super) has_news: bool,
    /// The SSDs whose queue pairs have failed.
    pub(super) without: Vec<bool>,
    /// The end of the last request, and the longest time without one.
    last_end: Time,
    pub(super) longest: Span,
}

/// What a lane does.
pub(super) enum Turn {
    /// It has no request that waits.
    Free,
    /// Its request waits until this time.
    Waits(Time),
    Again(Request),
}

impl Again {
    pub(super) fn new(lanes: usize, ssds: usize, epoch: u64) -> Self {
        let (waits, without) = (vec![None; lanes], vec![false; ssds]);
        Self {
            waits,
            epoch,
            suspects: false,
            has_news: false,
            without,
            last_end: Time::ZERO,
            longest: Span::ZERO,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waits.iter().flatten().count()
    }

    pub(super) fn turn(&mut self, lane: usize, now: Time) -> Turn {
        match self.waits[lane] {
            None => Turn::Free,
            Some(Wait { at, epoch, .. }) if now < at && epoch == self.epoch => Turn::Waits(at),
            Some(Wait { request, .. }) => {
                self.waits[lane] = None;
                Turn::Again(request)
            }
        }
    }

    /// A request ended. Returns whether it starts over.
    pub(super) fn ended(&mut self, lane: usize, now: Time, request: Request, outcome: &Outcome) -> bool {
        if outcome.status == 0 {
            self.longest = self.longest.max(now.since(self.last_end));
            self.last_end = now;
            return false;
        }
        if !self.starts_over(outcome) {
            return false;
        }
        let sequence = (request.is_write && outcome.sequence > 0).then_some(outcome.sequence);
        let request = Request { sequence: sequence.or(request.sequence), ..request };
        self.waits[lane] = Some(Wait { request, at: now + AGAIN, epoch: self.epoch });
        true
    }

    /// The load begins.
    pub(super) fn begin(&mut self, now: Time) {
        (self.last_end, self.longest) = (now, Span::ZERO);
    }

    /// The longest time without the end of a request, up to now.
    pub(super) fn longest(&self, now: Time) -> Span {
        self.longest.max(now.since(self.last_end))
    }

    fn starts_over(&mut self, outcome: &Outcome) -> bool {
        if outcome.status & QP_BROKEN != 0 || matches!(outcome.status, NO_REPLICA | STARTS_OVER) {
            self.suspects = true;
            return true;
        }
        match Detail::from_dw0(outcome.dw0).refusal() {
            Some(Refusal::StaleMap | Refusal::MapBehind | Refusal::WrongTarget | Refusal::GroupWaits) => {
                self.suspects = true;
                true
            }
            Some(
                Refusal::NotHereYet
                | Refusal::AskTheFirst
                | Refusal::NotServing
                | Refusal::NotReady
                | Refusal::TransferError,
            ) => true,
            _ => false,
        }
    }
}
