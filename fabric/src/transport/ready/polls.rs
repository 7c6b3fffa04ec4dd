// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transport's polls of its streams.

use super::*;

impl RcTransport {
    /// Polls the streams that are awake. Returns whether one had something to do.
    pub(in crate::transport) fn poll_streams(
        &mut self,
        clock: &mut dyn Clock,
        now: Time,
        at_once: bool,
    ) -> bool {
        if self.ready.streams == 0 && !self.ready.must_be_polled() {
            return false;
        }
        self.ready.look(now, at_once);
        let worked = self.poll_clients(clock, now);
        self.poll_newcomers(clock) || worked
    }

    /// Polls the streams that are no newcomers. Their order does not matter, since each has its turn.
    fn poll_clients(&mut self, clock: &mut dyn Clock, now: Time) -> bool {
        let (mut worked, mut place) = (false, 0);
        while let Some(&token) = self.ready.awake.get(place) {
            if self.ready.slots[token as usize].is_newcomer() {
                // The stream has become one, or another stream had the token when it was listed here.
                self.ready.awake.swap_remove(place);
                self.ready.list(token);
                continue;
            }
            let (did, rest) = self.poll_stream(clock, now, token, None);
            if did {
                self.newcomers.serve(now);
            }
            worked |= did;
            if self.ready.stays(token, did, rest) {
                place += 1;
            } else {
                self.ready.awake.swap_remove(place);
            }
        }
        worked
    }

    /// Polls newcomers until they have had their part, or [`AT_ONCE`]. Their hosts take turns. The first of a
    /// host that waits then is its first of the next step. One that has been polled, or wakes, is its last.
    fn poll_newcomers(&mut self, clock: &mut dyn Clock) -> bool {
        if self.ready.waiting.is_empty() {
            return false;
        }
        let (mut worked, mut now) = (false, clock.now());
        let until = now + AT_ONCE;
        for _ in 0..self.ready.waiting.len() {
            if now >= until || self.newcomers.is_shut(now) {
                break;
            }
            let Some((_, token)) = self.ready.waiting.pop() else { break };
            self.ready.slots[token as usize].waits = None;
            let began = self.newcomers.work(clock);
            let (did, rest) = self.poll_stream(clock, now, token, Some(until));
            let ended = self.newcomers.work(clock);
            now = clock.now();
            self.newcomers.spend(now, ended.since(began));
            worked |= did;
            if self.ready.stays(token, did, rest) {
                self.ready.list(token);
            }
        }
        worked
    }

    /// Polls a stream, a newcomer until this time. Returns what [`Self::poll_peer`] does.
    fn poll_stream(
        &mut self,
        clock: &mut dyn Clock,
        now: Time,
        token: u32,
        until: Option<Time>,
    ) -> (bool, Rest) {
        match self.ready.slots[token as usize].owner {
            Some(Owner::Peer(id)) => self.poll_peer(clock, token, id, until),
            Some(Owner::Remote(name)) => {
                let (did, rests) = self.poll_remote(now, name);
                (did, if rests { Rest::Soon } else { Rest::No })
            }
            None => (false, Rest::AtOnce),
        }
    }

    /// Returns whether there was work, and whether the stream rests. A client that becomes a newcomer has no
    /// further report in this poll, as its time does not count here.
    fn poll_peer(
        &mut self,
        clock: &mut dyn Clock,
        token: u32,
        id: ExecutorId,
        until: Option<Time>,
    ) -> (bool, Rest) {
        let mut worked = false;
        if let Some(peer) = self.executors.get_mut(&id).and_then(AnyExecutor::peer) {
            peer.wire().flush();
        }
        for nth in 0..STEP_REPORTS {
            let is_over = match until {
                Some(until) => nth >= NEWCOMER_REPORTS || nth > 0 && clock.now() >= until,
                None => self.ready.slots[token as usize].is_newcomer(),
            };
            if is_over {
                if let Some(peer) = self.executors.get_mut(&id).and_then(AnyExecutor::peer) {
                    peer.end_turn();
                }
                break;
            }
            if !self.poll_executor(clock, id, 1) {
                break;
            }
            worked = true;
        }
        let Some(peer) = self.executors.get_mut(&id).and_then(AnyExecutor::peer) else {
            return (worked, Rest::AtOnce);
        };
        if peer.is_dead() {
            self.remove_executor(clock.now(), id);
            return (true, Rest::AtOnce);
        }
        peer.wire().flush();
        let rests = if !peer.wire().rests() {
            Rest::No
        } else if peer.is_unconnected() {
            Rest::AtOnce
        } else {
            Rest::Soon
        };
        (worked, rests)
    }

    /// Restarts the deadlines of all streams.
    pub(in crate::transport) fn resume_streams(&mut self, now: Time) {
        self.executors.values_mut().filter_map(AnyExecutor::peer).for_each(|peer| peer.wait_anew(now));
        self.remotes.values_mut().for_each(|remote| remote.wait_anew(now));
    }

    /// Checks the deadlines of some streams: of more of them, the longer the last check is ago. Successive
    /// calls check all of them.
    pub(in crate::transport) fn tick_streams(&mut self, now: Time, since_last: Span) {
        let count = self.ready.slots.len();
        let most = TICKS.saturating_mul(since_last.as_ps() / TICK.as_ps());
        for _ in 0..count.min(usize::try_from(most).unwrap_or(usize::MAX)) {
            let place = self.ready.at % count;
            self.ready.at = place + 1;
            let is_dead = match self.ready.slots[place].owner {
                Some(Owner::Peer(id)) => {
                    self.executors.get_mut(&id).and_then(AnyExecutor::peer).is_some_and(|peer| {
                        peer.tick(now);
                        peer.has_reports()
                    })
                }
                Some(Owner::Remote(name)) => {
                    self.remotes.get_mut(&name).is_some_and(|remote| remote.tick(now))
                }
                None => false,
            };
            if is_dead {
                self.ready.wake(u32::try_from(place).expect("a place"));
            }
        }
    }
}
