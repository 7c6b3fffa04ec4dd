// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory is bounded: when all is at rest, no SSD holds what no host waits for any more. Counted is what
//! grows with load and faults. Tables of volumes, SSDs and clients have sizes of their own.
//!
//! | what | bound at rest |
//! |---|---|
//! | commands of an SSD | the ones for which hosts wait, as seen at its border |
//! | frames of an SSD | each is free, or has a page |
//! | queues of an SSD | 4 for each host that there is |
//! | data on its way to or from an SSD | none |
//!
//! A host that stands still has not answered yet: an SSD rightly waits for it.

use crate::survive::node::Node;
use crate::survive::stats::Path;
use crate::survive::world::World;
use gnstor_base::time::{Span, Time};

/// Time after which work that was under way may have ended.
const SOON: Span = Span::from_ms(2_000);
const LOOK: Span = Span::from_ms(50);
const QUEUES: usize = 4;
const RULE: &str = "memory is held for nothing";

impl World {
    /// Judges the memory that SSDs hold. Returns false if something is wrong.
    pub(super) fn check_memory(&mut self) -> bool {
        let most = self.post.now.max(self.goes_on_at()) + SOON;
        while let Some(held) = self.held() {
            if self.post.now >= most {
                self.history.broken(self.post.now, RULE, held);
            }
            if self.history.violation.is_some() {
                return false;
            }
            self.run(self.post.now + LOOK);
        }
        self.post.stats.path(Path::MemoryJudged);
        self.history.violation.is_none()
    }

    /// From then on no daemon and no SSD stands still.
    fn goes_on_at(&self) -> Time {
        let daemons = self.daemons.iter().map(|daemon| daemon.still_until);
        daemons.chain(self.nodes.iter().map(|node| node.still_until)).max().unwrap_or(Time::ZERO)
    }

    /// The first excess of memory, in words.
    fn held(&self) -> Option<String> {
        let hosts = self.clients.len() + self.daemons.len() + self.nodes.len();
        let of_node = |node: &Node| {
            let held = node.held()?;
            let waits = self.post.tap.open_of(node.index);
            let is_well = held.commands <= waits
                && held.lost_frames == 0
                && held.queues <= QUEUES * hosts
                && held.moves == 0;
            (!is_well).then(|| {
                let open = self.post.tap.say_open_of(node.index);
                format!("SSD {}: {held:?}; {waits} commands without an answer: {open}", node.index)
            })
        };
        self.nodes.iter().find_map(of_node)
    }
}
