// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The power of SSDs goes, and there is no dump: writes that were acknowledged and not durable are lost
//! there.
//!
//! ```text
//!   cut         an SSD, between two steps or inside a write; each of its blocks has another copy
//!   last lost   an SSD is out, and another one that has the last copies of groups loses its power
//! ```

use crate::survive::aimed::OUT;
use crate::survive::chaos::Ending;
use crate::survive::stats::Fault;
use crate::survive::world::World;
use gnstor_base::time::{Span, Time};

impl World {
    /// The power of an SSD goes, between two steps or inside a write to its media.
    pub(super) fn cut_power(&mut self) -> Option<String> {
        let ssd = self.any(self.nodes.len());
        let has_copies = self.shape.volumes.iter().all(|volume| volume.replicas > 1);
        let may = has_copies && !self.chaos.is_lossy && self.nodes[ssd].is_up() && self.is_whole();
        may.then_some(())?;
        let is_disturbed = self.post.now < self.chaos.disturbed_until || self.shape.delays.late_1_of > 0;
        (self.chaos.is_lossy, self.chaos.has_overlap) = (true, is_disturbed);
        if self.chaos.dice.below(2) == 0 {
            let span = self.chaos.span(23);
            self.post.stats.fault(Fault::PowerCut);
            self.down(ssd, false);
            self.chaos.end_at(self.post.now + span, Ending::Start(ssd));
            let ms = span.as_ns() / 1_000_000;
            // Without a daemon no map drops the SSD before it is back.
            let beside =
                if self.shape.both && self.chaos.dice.below(2) == 0 { self.end_daemon() } else { None };
            let beside = beside.map_or(String::new(), |what| format!("; {what}"));
            return Some(format!("SSD {ssd} loses its power, for {ms} ms{beside}"));
        }
        let (ops, seed) = (1 + self.chaos.dice.below(60), self.chaos.dice.bits());
        self.nodes[ssd].bench.power.arm(ops.into(), seed);
        Some(format!("SSD {ssd} loses its power inside its write number {ops} from now on"))
    }

    /// An armed power cut has happened. By now the daemon may have lost another SSD.
    pub(super) fn lost_power(&mut self, ssd: usize) {
        self.post.stats.fault(Fault::CutInWrite);
        self.chaos.has_overlap |= self.post.now < self.chaos.disturbed_until || !self.is_whole();
        self.down(ssd, false);
        let span = self.chaos.span(23);
        self.chaos.end_at(self.post.now + span, Ending::Start(ssd));
        self.say(|| format!("SSD {ssd} lost its power inside a write"));
    }

    /// The last copies of some groups lose writes. No SSD may serve them until the operator says that they
    /// are lost.
    pub(super) fn lose_last(&mut self) -> Option<String> {
        let blocks = usize::from(self.shape.with_blocks());
        let lost = self.any(blocks);
        let other = (lost + 1 + self.any(blocks - 1)) % blocks;
        let has_copies = self.shape.volumes.iter().all(|volume| volume.replicas > 1);
        (has_copies && !self.chaos.is_lossy && self.is_whole()).then_some(())?;
        let now = self.post.now;
        let cut = now + OUT + Span::from_ms(200) + self.some_ms(400);
        let (span, back) = (self.some_ms(300), cut + Span::from_ms(500) + self.some_ms(2_500));
        (self.chaos.is_lossy, self.chaos.has_overlap) = (true, true);
        self.chaos.lossy_until = cut;
        self.chaos.end_at(now, Ending::Down(other, back));
        self.chaos.end_at(cut, Ending::Cut(lost, cut + span));
        self.chaos.disturbs(back);
        self.post.stats.fault(Fault::LastLost);
        Some(format!("SSD {other} is killed, and when it is out SSD {lost} loses its power"))
    }

    /// An SSD loses its power between two steps.
    pub(super) fn power_is_cut(&mut self, ssd: usize, until: Time) {
        if self.nodes[ssd].is_up() {
            self.say(|| format!("SSD {ssd} loses its power"));
            self.down(ssd, false);
            self.chaos.end_at(until, Ending::Start(ssd));
        }
    }
}
