// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The looks at deadlines: each request and each call ends.

use crate::survive::history::seconds;
use crate::survive::world::World;
use gnstor_base::time::{Span, Time};

/// Interval of the looks at deadlines.
const WATCH: Span = Span::from_ms(250);
/// A request is over within this time (`requests::DEADLINE`, and what a silent SSD takes to be given up).
const REQUEST: Span = Span::from_ms(12_000);
/// A daemon answers each call within this time (`CoreConfig::request_ms` and a second).
const CALL: Span = Span::from_ms(31_000);

impl World {
    /// No request and no call waits beyond its deadline.
    pub(super) fn watch(&mut self) -> Time {
        let now = self.post.now;
        self.post.sweep();
        if self.is_whole()
            && self.chaos.is_lossy
            && now >= self.chaos.lossy_until
            && !self.nodes.iter().any(|node| node.bench.power.is_armed())
        {
            (self.chaos.is_lossy, self.chaos.has_overlap) = (false, false);
        }
        for (client, actor) in self.clients.iter().enumerate() {
            let Some((begun, what)) = actor.oldest().filter(|(begun, _)| *begun + REQUEST < now) else {
                continue;
            };
            let facts = format!("client {client}: {what}, since {}", seconds(begun));
            self.history.broken(now, "a request has no end within its deadline", facts);
            break;
        }
        if let Some(facts) = self.post.tap.unanswered(now) {
            self.history.broken(now, "an SSD does not answer a command within its deadline", facts);
        }
        for daemon in self.daemons.iter().filter(|daemon| daemon.still_until <= now) {
            if let Some((client, _, at)) =
                daemon.calls.values().find(|(_, _, at)| (*at).max(daemon.still_until) + CALL < now)
            {
                let facts = format!("daemon {}, client {client}, since {}", daemon.number, seconds(*at));
                self.history.broken(now, "a call has no answer within its deadline", facts);
                break;
            }
        }
        now + WATCH
    }
}
