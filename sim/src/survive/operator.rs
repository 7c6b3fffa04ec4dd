// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operator of a world: drains SSDs and calls drains off, takes SSDs back, has copies merged, and gives
//! copies up.

use crate::survive::chaos::Ending;
use crate::survive::stats::Path;
use crate::survive::world::World;
use gnstor_base::time::Span;
use gnstor_daemon::core::report::SsdView;
use gnstor_daemon::core::request::Request;
use gnstor_proto::placement::map3::State3;

/// Looks at what waits for the operator until there is help: 10 s.
const PATIENCE: u32 = 40;
/// Time within which an order is under way.
const SOON: Span = Span::from_ms(1_000);

impl World {
    /// An SSD is to leave. In half of the cases the operator calls that off later.
    pub(super) fn drain_any(&mut self) -> Option<String> {
        let ssd = self.any(self.shape.with_blocks().into());
        let ssd = self.nodes[ssd].index;
        let is_off = self.chaos.dice.below(2) == 0;
        let span = self.chaos.span(22);
        let leader = self.leader().filter(|daemon| daemon.core.is_serving())?.number;
        let now = self.post.now;
        let daemon = self.daemons.iter_mut().find(|of| of.number == leader)?;
        daemon.operator(now, Request::Drain { ssd });
        self.wake_daemons(now);
        if is_off {
            self.chaos.end_at(now + span, Ending::Stay(ssd));
        }
        let how = if is_off { ", and stays after all" } else { "" };
        Some(format!("SSD {ssd} is to leave{how}"))
    }

    /// An SSD that was to leave, or has left, is resumed.
    pub(super) fn stays(&mut self, ssd: u16) {
        let leader = self.leader().map(|daemon| daemon.number);
        let Some(daemon) = self.daemons.iter_mut().find(|of| Some(of.number) == leader) else { return };
        let leaves = daemon.core.fleet().is_some_and(|fleet| {
            fleet.ssds.iter().any(|view| view.index == ssd && view.leaves && view.state == State3::In)
        });
        if leaves {
            self.post.stats.path(Path::DrainCalledOff);
        }
        self.post.note(|| format!("the operator resumes SSD {ssd}"));
        daemon.operator(self.post.now, Request::Resume { ssd, lose_data: false });
        self.wake_daemons(self.post.now);
    }

    /// SSDs that have left come back in half of the worlds. Returns false if something is wrong.
    pub(super) fn take_back(&mut self) -> bool {
        let fleet = self.leader().and_then(|daemon| daemon.core.fleet());
        let left = fleet.into_iter().flat_map(|fleet| fleet.ssds);
        let left = left.filter(|ssd| ssd.taken_out && ssd.state == State3::Out);
        let left: Vec<u16> = left.map(|ssd| ssd.index).collect();
        left.iter().for_each(|_| self.post.stats.path(Path::Drained));
        if left.is_empty() || self.chaos.dice.below(2) == 0 {
            return true;
        }
        left.into_iter().for_each(|ssd| self.stays(ssd));
        self.run(self.post.now + SOON);
        self.history.violation.is_none() && self.heals()
    }

    /// What an operator does: takes SSDs back that returned too often. Where copies may be lost, the operator
    /// says so of an SSD that came back without them. Then nothing is known of the blocks any more.
    pub(super) fn operate(&mut self) {
        self.adds();
        let leader = self.leader().map(|daemon| daemon.number);
        let Some(daemon) = self.daemons.iter_mut().find(|of| Some(of.number) == leader) else { return };
        let Some(fleet) = daemon.core.fleet() else { return };
        let now = daemon.ms(self.post.now);
        for ssd in fleet.ssds.iter().filter(|ssd| ssd.flaps) {
            if daemon.core.resume(now, ssd.index).is_ok() {
                self.post.stats.path(Path::OperatorHelped);
            }
        }
        let waits = fleet.ssds.iter().filter(|ssd| ssd.state == State3::Absent && ssd.away.is_none());
        let waits: Vec<u16> = waits.map(|ssd| ssd.index).collect();
        let stands_still = self.nodes.iter().any(|node| node.still_until > self.post.now);
        if self.chaos.has_overlap && !waits.is_empty() && !stands_still && fleet.next.is_none() {
            self.patience += 1;
            if self.patience.is_multiple_of(PATIENCE) {
                self.history.lose_data();
                // First the copies are merged. If that is no help, they are given up.
                if !self.patience.is_multiple_of(2 * PATIENCE) {
                    self.post.note(|| "the operator has the copies merged".into());
                    let at_s = u32::try_from(now / 1000).unwrap_or(u32::MAX);
                    daemon.operator(self.post.now, Request::Salvage { dry_run: false, at_s });
                    self.post.stats.path(Path::CalledForSalvage);
                } else {
                    self.post.stats.path(Path::CalledLost);
                    for ssd in waits {
                        self.post.note(|| format!("the operator calls the copies of SSD {ssd} lost"));
                        daemon.operator(self.post.now, Request::Resume { ssd, lose_data: true });
                    }
                }
            }
        }
        // A drain may wait for ever, if too few SSDs are in. And a volume may need more copies than when an
        // SSD left.
        let copies = fleet.groups_by_copies.iter().take(fleet.replicas.into()).any(|groups| *groups > 0);
        let needs = |ssd: &&SsdView| {
            ssd.leaves && ssd.leave_waits.is_some() || copies && ssd.taken_out && ssd.state == State3::Out
        };
        let stuck = fleet.ssds.iter().filter(needs);
        let stuck: Vec<u16> = stuck.map(|ssd| ssd.index).collect();
        if !stuck.is_empty() {
            self.leave_patience += 1;
            if self.leave_patience.is_multiple_of(PATIENCE) {
                stuck.into_iter().for_each(|ssd| self.stays(ssd));
            }
        }
        self.wake_daemons(self.post.now);
    }
}
