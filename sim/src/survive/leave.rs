// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD is stopped in order, as `gnstor ssd` is at TERM. It says goodbye, and ends when a majority of the
//! voters has heard that, or 300 ms later. Then its contents are written out.
//!
//! ```text
//!   goodbye     asked again each 2 ms     heard, or 300 ms     starts again
//!   serves nothing ======================| shut down  |-------|
//! ```
//! Meanwhile it may be killed, lose its power, stand still or be cut off, as at any other time. In one case
//! of three no other SSD hears its goodbye. Then it is there for 250 ms or more, and clients go on to ask it.
//! In some worlds this also happens when all is whole, while clients read.

use crate::survive::chaos::Ending;
use crate::survive::stats::{Fault, Path};
use crate::survive::wire::{Host, Way};
use crate::survive::world::World;
use gnstor_base::time::{Span, Time};

/// Interval of the questions whether the goodbye was heard, and their number (`array/src/power.rs`).
const LOOK: Span = Span::from_ms(2);
const LOOKS: u32 = 150;
/// Longest wait for the answers to a goodbye.
const GOODBYE: Span = Span::from_ms(300);
/// In one of `UNHEARD` cases no other SSD hears the goodbye.
const UNHEARD: u32 = 3;
/// When all is whole, clients read for so long before that, and from its beginning on.
const READS: Span = Span::from_ms(100);
const READS_ON: Span = Span::from_ms(1_000);
/// It starts again so long after its end.
const BACK: Span = Span::from_ms(200);

/// The end of an SSD that says goodbye.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) ssd: usize,
    /// The SSD's life. An SSD that was killed meanwhile has another one.
    life: u32,
    /// Number of checks that are left.
    looks: u32,
    /// It starts again so long after its end.
    back: Span,
}

impl World {
    /// Some SSD is stopped in order.
    pub(super) fn stop_any(&mut self) -> Option<String> {
        let ssd = self.any(self.nodes.len());
        self.nodes[ssd].is_up().then_some(())?;
        let back = self.chaos.span(23);
        self.post.stats.fault(Fault::Stopped);
        self.chaos.disturbs(self.post.now + GOODBYE + back);
        let is_unheard = self.chaos.dice.below(UNHEARD) == 0;
        if is_unheard {
            self.asks_unheard(self.nodes[ssd].index, self.post.now + GOODBYE);
        }
        self.leaves(Leaving { ssd, life: self.nodes[ssd].life, looks: LOOKS, back });
        let unheard = if is_unheard { ", and no other SSD hears its goodbye" } else { "" };
        Some(format!("SSD {ssd} is stopped in order, for {} ms{unheard}", back.as_ns() / 1_000_000))
    }

    /// All is whole: an SSD is stopped in order while clients read, and no other SSD hears its goodbye.
    /// Returns false if something is wrong.
    pub(super) fn stop_at_rest(&mut self) -> bool {
        let ssd = self.any(self.shape.with_blocks().into());
        self.clients_read();
        self.run(self.post.now + READS);
        self.say(|| format!("SSD {ssd} is stopped in order while clients read"));
        self.post.stats.path(Path::StoppedAtRest);
        self.asks_unheard(self.nodes[ssd].index, self.post.now + GOODBYE);
        self.leaves(Leaving { ssd, life: self.nodes[ssd].life, looks: LOOKS, back: BACK });
        self.wake_chaos();
        self.run(self.post.now + READS_ON);
        self.clients.iter_mut().for_each(|client| client.rests = true);
        self.history.violation.is_none() && self.heals()
    }

    /// Delays an SSD's questions to others until this time.
    fn asks_unheard(&mut self, ssd: u16, until: Time) {
        for other in (0..self.shape.all_ssds()).filter(|&other| other != ssd) {
            self.post.cut(Host::Peer(ssd), other, Way::Up, until);
        }
    }

    /// Makes the SSD say goodbye, or ask whether its goodbye was heard.
    pub(super) fn leaves(&mut self, leaving: Leaving) {
        let Leaving { ssd, life, looks, back } = leaving;
        let (now, node) = (self.post.now, &mut self.nodes[ssd]);
        if !node.is_up() || node.life != life {
            return;
        }
        if now < node.still_until {
            let at = node.still_until;
            return self.chaos.end_at(at, Ending::Leave(leaving));
        }
        let is_heard = node.leave(&mut self.post);
        self.carry_questions(ssd);
        self.wake_node(ssd, now);
        if !is_heard && looks > 0 {
            return self.chaos.end_at(now + LOOK, Ending::Leave(Leaving { looks: looks - 1, ..leaving }));
        }
        self.post.stats.path(if is_heard { Path::GoodbyeHeard } else { Path::GoodbyeUnheard });
        self.stops(leaving);
        self.chaos.end_at(now + back, Ending::Start(ssd));
    }

    /// Stops the SSD, whether its goodbye was heard or not.
    pub(super) fn stops(&mut self, Leaving { ssd, life, .. }: Leaving) {
        if self.nodes[ssd].is_up() && self.nodes[ssd].life == life {
            self.say(|| format!("SSD {ssd} has said goodbye, and ends"));
            let is_written = self.nodes[ssd].shut_down();
            // Where contents cannot be written out, there is a dump, as in the product.
            self.down(ssd, !is_written);
        }
    }
}
