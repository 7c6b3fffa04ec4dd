// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections that were closed while their halves still move data for them, and halves that were removed
//! meanwhile.
//!
//! A transfer ends when its half has answered it or has taken it back, and not before. Freed memory may have
//! a new owner at once, and a copy that lands late must not land there (protocol rule 9).
//!
//! ```text
//!   close, remove_half --> leaving --every copy answered, or the half takes back the others--> transfers end, half dropped
//! ```

use super::conn::Conn;
use super::{AnyHalf, ConnId, Engine, HalfId};
use gnstor_base::time::Time;

/// Entries taken from one half in a step.
const BATCH: u32 = 64;

/// Who is on the way out.
#[derive(Default)]
pub(super) struct Leaving {
    conns: Vec<Closed>,
    halves: Vec<(HalfId, AnyHalf)>,
}

struct Closed {
    conn: ConnId,
    half: HalfId,
    qpn: u32,
    /// Copies that its half has not answered.
    moving: u32,
}

impl Leaving {
    /// A connection that is about to be forgotten.
    pub(super) fn add(&mut self, id: ConnId, conn: &Conn) {
        self.conns.push(Closed { conn: id, half: conn.half, qpn: conn.qpn, moving: conn.transfers });
    }

    /// A half that was removed: it is heard as long as it moves something.
    pub(super) fn keep(&mut self, id: HalfId, half: AnyHalf) {
        if self.conns.iter().any(|closed| closed.half == id) {
            self.halves.push((id, half));
        }
    }

    /// Whether a half still moves data for a connection that this queue pair had.
    pub(super) fn holds(&self, half: HalfId, qpn: u32) -> bool {
        self.conns.iter().any(|closed| (closed.half, closed.qpn) == (half, qpn))
    }

    /// A copy of a forgotten connection was answered.
    pub(super) fn answered(&mut self, id: ConnId) {
        if let Some(closed) = self.conns.iter_mut().find(|closed| closed.conn == id) {
            closed.moving -= 1;
        }
    }
}

impl Engine {
    /// Hears the halves that leave, and ends transfers that no half moves any more. Returns whether anything
    /// happened.
    pub(super) fn settle_leaving(&mut self, now: Time) -> bool {
        if self.leaving.conns.is_empty() {
            return false;
        }
        let mut worked = false;
        for i in 0..self.leaving.halves.len() {
            // What else it has to say is about connections that are forgotten.
            for _ in 0..BATCH {
                let Some(entry) = self.leaving.halves[i].1.get().poll() else { break };
                worked = true;
                self.ended(now, self.leaving.halves[i].0, &entry);
            }
        }
        let (halves, leaving) = (&mut self.halves, &mut self.leaving.halves);
        let mut over = Vec::new();
        self.leaving.conns.retain(|closed| {
            let half = match halves.get_mut(&closed.half) {
                Some(half) => Some(half),
                None => leaving.iter_mut().find(|(id, _)| *id == closed.half).map(|(_, half)| half),
            };
            let still = closed.moving > 0 && half.is_some_and(|half| !half.get().take_back(closed.qpn));
            if !still {
                over.push(closed.conn);
            }
            still
        });
        let conns = &self.leaving.conns;
        self.leaving.halves.retain(|(id, _)| conns.iter().any(|closed| closed.half == *id));
        for &conn in &over {
            self.fail_transfers(now, conn);
        }
        worked || !over.is_empty()
    }
}
