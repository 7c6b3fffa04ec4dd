// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Media of an SSD: errors, and dies that are slow.

use crate::survive::chaos::Ending;
use crate::survive::shape::DIES;
use crate::survive::stats::Fault;
use crate::survive::world::World;

/// Factors by which a die may be slow.
const SLOWER: [u32; 3] = [3, 20, 200];

impl World {
    /// For some time reads, programs or erases of an SSD fail at times, and some dies are slow.
    pub(super) fn spoil_media(&mut self) -> Option<String> {
        let ssd = self.any(self.nodes.len());
        let ppm = [2_000, 20_000][self.chaos.dice.below(2) as usize];
        let span = self.chaos.span(22);
        let kinds = 1 + self.chaos.dice.below(7);
        self.nodes[ssd].is_up().then_some(())?;
        let rate = |bit: u32| if kinds >> bit & 1 == 1 { ppm } else { 0 };
        self.nodes[ssd].bench.faults.set_rates(rate(0), rate(1), rate(2));
        self.chaos.end_at(self.post.now + span, Ending::Heal(ssd));
        self.post.stats.fault(Fault::Media);
        let names = ["reads", "programs", "erases"];
        let names: Vec<&str> =
            (0u32..).zip(names).filter(|(bit, _)| rate(*bit) > 0).map(|(_, name)| name).collect();
        let ms = span.as_ns() / 1_000_000;
        let slow = self.slow_die(ssd);
        Some(format!("of a million {} of SSD {ssd} {ppm} fail, for {ms} ms{slow}", names.join(" and ")))
    }

    /// In half of the cases a die is slow as well, where operations of flash take time. Returns what is said
    /// of it.
    fn slow_die(&mut self, ssd: usize) -> String {
        if !self.shape.timed || self.chaos.dice.below(2) == 0 {
            return String::new();
        }
        let (die, times) = (self.chaos.dice.below(DIES), SLOWER[self.any(SLOWER.len())]);
        self.nodes[ssd].bench.faults.set_slow(die, times * 100);
        self.post.stats.fault(Fault::SlowDie);
        format!("; its die {die} takes {times} times as long")
    }
}
