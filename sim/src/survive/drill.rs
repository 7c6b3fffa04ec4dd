// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A drill, when all is whole: a daemon starts while one voter is slow to answer and another one is killed.
//! It must serve before the dead one is back. In a quiet time everything is back, so that most starts end
//! well in any case.
//!
//! ```text
//!   0         0..64 ms             64 ms..1.9 s        2.5..4 s
//!   starts    one stands still     another is killed   the first goes on      serves within 20 s
//! ```

use crate::survive::stats::Path;
use crate::survive::world::World;
use gnstor_base::time::Span;
use gnstor_proto::placement::map3::State3;

/// The daemon serves within this time.
const SERVES: Span = Span::from_ms(20_000);
/// Interval of checks whether the daemon serves.
const LOOK: Span = Span::from_ms(250);

impl World {
    /// Returns false if something is wrong.
    pub(super) fn drill(&mut self) -> bool {
        let voters = self.leader().and_then(|daemon| daemon.core.fleet()).map(|fleet| fleet.voters);
        let Some(voters) = voters.filter(|voters| voters.len() > 2) else { return true };
        let count = u32::try_from(voters.len()).expect("few");
        let (slow, step) = (self.chaos.dice.below(count), 1 + self.chaos.dice.below(count - 1));
        let of = |at: u32| usize::from(voters[(at % count) as usize]);
        let (slow, dead) = (of(slow), of(slow + step));
        if !self.has_others(dead) {
            return true;
        }
        self.post.stats.path(Path::Drilled);
        self.say(|| format!("drill: a daemon starts, SSD {slow} is slow, and SSD {dead} is killed"));
        let numbers: Vec<u64> = self.daemons.iter().map(|daemon| daemon.number).collect();
        numbers.into_iter().for_each(|number| self.kill_daemon(number));
        self.new_daemon();
        self.pass(0, 64);
        let until = self.post.now + self.between(2_500, 4_000);
        let now = self.post.now;
        self.nodes[slow].stand_still(now, until);
        self.pass(64, 1_900);
        self.down(dead, true);
        let most = self.post.now + SERVES;
        while self.history.violation.is_none() && !self.leader().is_some_and(|of| of.core.is_serving()) {
            if self.post.now >= most {
                let waits = self.leader().and_then(|daemon| daemon.core.waits_for());
                let facts = format!("SSD {dead} is dead, and the daemon waits for {waits:?}");
                self.history.broken(self.post.now, "a daemon does not start beside one dead SSD", facts);
                break;
            }
            self.run(self.post.now + LOOK);
        }
        self.start(dead);
        self.history.violation.is_none()
    }

    /// Whether the map has another SSD than this one. Volumes of one replica may all be on one, if the others
    /// are out. Without it no daemon knows the volumes.
    fn has_others(&self, dead: usize) -> bool {
        let fleet = self.leader().and_then(|daemon| daemon.core.fleet());
        fleet.is_some_and(|fleet| {
            fleet.ssds.iter().any(|ssd| usize::from(ssd.index) != dead && ssd.state == State3::In)
        })
    }

    fn between(&mut self, least_ms: u32, most_ms: u32) -> Span {
        Span::from_ms(u64::from(least_ms + self.chaos.dice.below(most_ms - least_ms)))
    }

    pub(super) fn pass(&mut self, least_ms: u32, most_ms: u32) {
        let span = self.between(least_ms, most_ms);
        self.run(self.post.now + span);
    }
}
