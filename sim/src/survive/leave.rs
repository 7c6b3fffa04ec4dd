// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD is stopped in order, as `gnstor ssd` is at TERM. It says goodbye, and ends when a majority of the
//! voters has heard that, or 300 ms later. Then its contents are written out.
//!
//! ```text
//!   goodbye     asked again each 2 ms     heard, or 300 ms     starts again
//!   serves nothing ======================| shut down  |-------|
//! ```
//! Meanwhile it may be killed, lose its power, stand still or be cut off, as at any other time.

use crate::survive::chaos::Ending;
use crate::survive::stats::{Fault, Path};
use crate::survive::world::World;
use gnstor_base::time::Span;

/// Interval of the questions whether the goodbye was heard, and their number (`array/src/power.rs`).
const LOOK: Span = Span::from_ms(2);
const LOOKS: u32 = 150;
/// All of them.
const GOODBYE: Span = Span::from_ms(300);

/// The end of an SSD that says goodbye.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) ssd: usize,
    /// Of this life. One that was killed meanwhile has another.
    life: u32,
    /// Looks that are left.
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
        self.leaves(Leaving { ssd, life: self.nodes[ssd].life, looks: LOOKS, back });
        Some(format!("SSD {ssd} is stopped in order, for {} ms", back.as_ns() / 1_000_000))
    }

    /// It says goodbye, or asks whether that was heard.
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

    /// It ends now, whether its goodbye was heard or not.
    pub(super) fn stops(&mut self, Leaving { ssd, life, .. }: Leaving) {
        if self.nodes[ssd].is_up() && self.nodes[ssd].life == life {
            self.say(|| format!("SSD {ssd} has said goodbye, and ends"));
            let is_written = self.nodes[ssd].shut_down();
            // Where contents cannot be written out, there is a dump, as in the product.
            self.down(ssd, !is_written);
        }
    }
}
