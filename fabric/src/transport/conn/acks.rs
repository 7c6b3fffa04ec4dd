// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SENDs that wait for their acknowledgement: how long, and what ends a wait.

use super::*;

/// How many times longer a SEND over TCP may wait for its acknowledgement. The stream itself loses nothing.
/// The process at its other end, unlike an HCA, may be busy with its disk.
const REMOTE_PATIENCE: u64 = 10;

/// If more time passes between two checks of the timeouts, this process or its machine was stopped. If both
/// ends were stopped, the peer had no time to answer.
const STOPPED: Span = Span::from_ms(1000);

impl Conn {
    /// Restarts all waits for acknowledgements.
    fn wait_anew(&mut self, now: Time) {
        for pending in &mut self.sent {
            if let State::Waiting(at) = &mut pending.state {
                *at = now.max(*at);
            }
        }
    }

    /// SENDs that wait for their acknowledgement.
    pub(in crate::transport) fn waiting(&self) -> u32 {
        let waiting = self.sent.iter().filter(|p| matches!(p.state, State::Waiting(_))).count();
        u32::try_from(waiting).expect("a send queue has at most 2^16 entries")
    }

    fn oldest_waiting(&self) -> Option<Time> {
        self.sent.iter().find_map(|p| if let State::Waiting(at) = p.state { Some(at) } else { None })
    }
}

impl RcTransport {
    /// Everything up to `psn` has arrived at the peer.
    pub(in crate::transport) fn acknowledged(&mut self, id: ConnId, psn: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        for (p, pending) in (conn.first_psn..).zip(conn.sent.iter_mut()) {
            if p > psn {
                break;
            }
            if matches!(pending.state, State::Waiting(_)) {
                pending.state = State::Acked;
                self.waiting -= 1;
            }
        }
        self.retire(id);
    }

    /// The peer has acknowledged the oldest work request that waits.
    pub(in crate::transport) fn acknowledge_next(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get(&id) {
            let waiting = conn.sent.iter().position(|p| matches!(p.state, State::Waiting(_)));
            if let Some(position) = waiting {
                self.acknowledged(id, conn.first_psn + position as u64);
            }
        }
    }

    /// If this process was stopped, restarts all waits for peers. Call this after each read of the clock,
    /// before anything is given up.
    pub(in crate::transport) fn resume(&mut self, now: Time) {
        let last = self.last_look;
        if now.since(last) < STOPPED || self.conns.is_empty() && self.executors.is_empty() {
            return;
        }
        tracing::warn!("the engine did not run for {} ms", now.since(last).as_ns() / 1_000_000);
        self.conns.values_mut().for_each(|conn| conn.wait_anew(now));
        self.resume_streams(now);
        for target in self.targets.iter_mut().filter(|target| !target.silent) {
            target.clock = target.clock.max(now);
            target.controller.resumed(target.clock);
        }
        self.last_look = now;
    }

    /// Longest wait for the acknowledgement of a SEND to `to`.
    fn ack_limit(&self, to: To) -> Span {
        match to {
            To::Local(_) => self.config.ack_timeout,
            To::Remote(_) => Span::from_ps(self.config.ack_timeout.as_ps().saturating_mul(REMOTE_PATIENCE)),
        }
    }

    /// A SEND waits for its acknowledgement from now on.
    pub(in crate::transport) fn await_acknowledgement(&mut self, now: Time, to: To) {
        self.waiting += 1;
        let deadline = now + self.ack_limit(to);
        if self.ack_alarm.is_none_or(|alarm| deadline < alarm) {
            self.ack_alarm = Some(deadline);
        }
    }

    /// No later than the first deadline of a SEND that waits for its acknowledgement.
    pub(in crate::transport) fn ack_alarm(&self) -> Option<Time> {
        self.ack_alarm.filter(|_| self.waiting > 0)
    }

    /// Breaks connections whose peers acknowledge nothing, and sets the alarm again.
    pub(in crate::transport) fn check_acknowledgements(&mut self, now: Time) {
        let deadline = |c: &Conn| c.oldest_waiting().map(|at| at + self.ack_limit(c.to));
        let is_late = |c: &Conn| !c.broken && deadline(c).is_some_and(|at| at <= now);
        let mut ids: Vec<ConnId> = self.conns.iter().filter(|(_, c)| is_late(c)).map(|(id, _)| id).collect();
        ids.sort_unstable();
        for id in ids {
            let waited = self.conns.get(&id).and_then(Conn::oldest_waiting).map(|at| now.since(at).as_ns());
            let waited_ms = waited.unwrap_or(0) / 1_000_000;
            tracing::debug!("connection {id:?} is broken: no acknowledgement for {waited_ms} ms");
            self.break_conn(now, id, Some(syndrome::RETRY_EXCEEDED));
        }
        let deadline = |c: &Conn| c.oldest_waiting().map(|at| at + self.ack_limit(c.to));
        self.ack_alarm = self.conns.iter().filter_map(|(_, c)| deadline(c)).min();
    }
}
