// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clocks leap ahead, by a millisecond to 8 s: of an SSD, the daemon or a client. None goes back.
//!
//! ```text
//!   SSD       its lease, and all that it waits for, ends earlier
//!   client    its lease, its calls and its requests end earlier
//!   daemon    a map must not be active before the leases that it ends are over (rule 2b)
//! ```

use crate::survive::chaos::Ending;
use crate::survive::stats::Fault;
use crate::survive::world::World;
use gnstor_base::time::{Span, Time};

/// The wait of a map for leases takes less. Of two leaps in one wait each would count a little.
const WAIT: Span = Span::from_ms(400);
/// A leap in a wait comes within so many us.
const SOON: u32 = 300_000;

impl World {
    pub(super) fn leap_any(&mut self) -> Option<String> {
        let by = self.chaos.span(23);
        let now = self.post.now;
        let who = match self.chaos.dice.below(4) {
            0 => {
                let number = self.daemons.last()?.number;
                self.daemon_leaps(number, by)?;
                format!("daemon {number}")
            }
            1 => {
                let client = self.any(self.clients.len());
                self.clients[client].leap(by);
                self.wake_client(client, now);
                format!("client {client}")
            }
            _ => {
                let ssd = self.any(self.nodes.len());
                self.nodes[ssd].leap(by);
                self.wake_node(ssd, now);
                format!("SSD {ssd}")
            }
        };
        self.chaos.disturbs(now);
        self.post.stats.fault(Fault::Leapt);
        Some(format!("the clock of {who} leaps ahead by {} ms", by.as_ns() / 1_000_000))
    }

    fn daemon_leaps(&mut self, number: u64, by: Span) -> Option<()> {
        let now = self.post.now;
        let daemon = self.daemons.iter_mut().find(|of| of.number == number)?;
        if daemon.leapt_at.is_some_and(|at| now < at + WAIT) {
            return None;
        }
        daemon.leap(now, by);
        self.daemon_leapt_at = now;
        self.wake_daemons(now);
        Some(())
    }

    /// Voters are asked to hold a map: the clock leaps while the map waits for leases.
    pub(super) fn leap_in_wait(&mut self) -> Option<String> {
        let number = self.leader()?.number;
        let (soon, by) = (self.some_us(SOON), Span::from_ms(50) + self.some_ms(2_000));
        self.chaos.end_at(self.post.now + soon, Ending::Leap(number, by));
        let ms = by.as_ns() / 1_000_000;
        Some(format!("the clock of daemon {number} leaps ahead by {ms} ms while a map waits"))
    }

    pub(super) fn leaps_in_wait(&mut self, number: u64, by: Span) {
        if self.daemon_leaps(number, by).is_some() {
            self.post.stats.fault(Fault::LeapInWait);
            self.say(|| format!("the clock of daemon {number} leaps ahead"));
        }
    }

    /// Whether the leader's clock leapt since then: what it waits for has come earlier.
    pub(super) fn has_leapt(&self, since: Time) -> bool {
        self.leader().is_some_and(|daemon| daemon.leapt_at.is_some_and(|at| at >= since))
    }
}
