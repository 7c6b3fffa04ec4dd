// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon of the world: maps, entries, fills that are over, settles; and the faults.

use super::writers::Phase;
use super::*;
use gnstor_proto::placement::map3::{Place3, Row3, State3};
use gnstor_proto::repair::{FillState, SettleData};
use gnstor_proto::scrub::{Order, RepairOrder};

/// An SSD in the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Serves,
    Fills,
    Out,
}

impl World {
    pub(super) fn epoch(&self) -> u64 {
        self.maps.len() as u64
    }

    pub(super) fn members(&self, row: usize) -> Vec<usize> {
        (0..3).filter(|ssd| self.parts[row][*ssd] != Part::Out).collect()
    }

    fn serving(&self, row: usize) -> Vec<usize> {
        (0..3).filter(|ssd| self.parts[row][*ssd] == Part::Serves).collect()
    }

    fn has(&self, ssd: usize, part: Part) -> bool {
        self.parts.iter().any(|row| row[ssd] == part)
    }

    fn is_in(&self, ssd: usize) -> bool {
        self.has(ssd, Part::Serves) || self.has(ssd, Part::Fills)
    }

    /// The next epoch, from what the parts are.
    pub(super) fn next_map(&mut self) {
        for row in 0..2 {
            if self.parts[row][usize::from(self.firsts[row])] != Part::Serves {
                let serving = self.serving(row);
                let next = serving[self.dice.index(serving.len())];
                self.firsts[row] = u16::try_from(next).expect("few");
            }
        }
        let mut map = FleetMap3::of(&FleetMap::equal(3, 2, 7, 1).expect("a map"), ARRAY);
        for (ssd, row) in map.ssds.iter_mut().enumerate() {
            row.incarnation = self.incarnations[ssd];
            if !self.is_in(ssd) {
                row.state = State3::Out;
            }
        }
        (map.epoch, map.width) = (self.epoch() + 1, 3);
        let row = |row: usize| {
            let mut places = [None; 4];
            for ssd in self.members(row) {
                let filling = self.parts[row][ssd] == Part::Fills;
                places[ssd] = Some(Place3 { ssd: u16::try_from(ssd).expect("few"), filling });
            }
            let first = Some(u8::try_from(self.firsts[row]).expect("few"));
            Row3 { places, incoming: None, first }
        };
        map.rows = vec![row(0), row(1)];
        self.maps.push(map);
    }

    pub(super) fn tell_map(&mut self, ssd: usize) {
        let map = self.maps.last().expect("there is one").clone();
        let cqe = self.nodes[ssd].harness.set_map(&map);
        assert_eq!(refusal(&cqe), None);
    }

    /// Makes one step of the daemon for one SSD.
    pub(super) fn daemon(&mut self) {
        let ssd = self.dice.index(3);
        if !self.nodes[ssd].is_reached {
            // A loss makes an epoch.
            if self.is_in(ssd) {
                self.drop_out(ssd);
            }
            return;
        }
        let incarnation = self.nodes[ssd].harness.ssd().identity().incarnation;
        if self.is_in(ssd) && incarnation != self.incarnations[ssd] {
            return self.drop_out(ssd);
        }
        if self.nodes[ssd].epoch() < self.epoch() {
            return self.tell_map(ssd);
        }
        for volume in &mut self.volumes {
            if self.nodes[ssd].version(volume.vid()) < volume.entry.version {
                let cqe = self.nodes[ssd].harness.volume_command(opcode::VOLUME_CHMOD, &volume.entry);
                assert_eq!(refusal(&cqe), None);
                return;
            }
        }
        // Its holes are filled at once, or one after the other.
        if self.has(ssd, Part::Out) && (!self.is_in(ssd) || self.dice.one_in(3)) {
            self.begin_fill(ssd, incarnation);
        } else if self.has(ssd, Part::Fills) {
            self.look_at_fill(ssd);
        } else if self.dice.one_in(4) {
            self.scrub(ssd);
        }
    }

    /// A scrub may run at any time, and changes nothing here: no copy rots.
    fn scrub(&mut self, ssd: usize) {
        let order = RepairOrder { term: 1, order: Order::ScrubStart };
        let harness = &mut self.nodes[ssd].harness;
        let refused = harness.refused(DAEMON, Sqe { flags: FLAGS_SGL, ..order.command() });
        assert!(matches!(refused, None | Some(Refusal::NotServing)), "{refused:?}");
        self.counts.scrubs += 1;
        let log = harness.ssd().scrub_log();
        assert_eq!(log.rotten, 0, "SSD {ssd} has found copies wrong: {log:?}");
    }

    fn drop_out(&mut self, ssd: usize) {
        self.parts.iter_mut().for_each(|row| row[ssd] = Part::Out);
        self.next_map();
        self.nodes[ssd].dropped_at = self.epoch();
    }

    fn begin_fill(&mut self, ssd: usize, incarnation: u32) {
        let is_new = !self.is_in(ssd);
        assert!(!is_new || incarnation > self.incarnations[ssd], "it was dropped");
        self.incarnations[ssd] = incarnation;
        let begun = if self.dice.one_in(2) { 0..2 } else { self.dice.index(2)..2 };
        for row in begun.filter(|row| self.parts[*row][ssd] == Part::Out).collect::<Vec<_>>() {
            self.parts[row][ssd] = Part::Fills;
        }
        self.next_map();
        // What differs now may move, each change that is under way, and each from now on.
        let mut under_way: BTreeMap<(usize, Stamp), u32> = BTreeMap::new();
        for message in &self.messages {
            under_way.insert((message.volume, message.stamp), message.op.blocks);
        }
        for (at, volume) in self.volumes.iter().enumerate() {
            under_way.extend(volume.open().map(|(stamp, op)| ((at, stamp), op.blocks)));
        }
        let may: u64 = under_way.values().map(|blocks| u64::from(*blocks)).sum();
        let before = if is_new { Budget::default() } else { self.budgets[ssd] };
        self.budgets[ssd] = Budget { may: before.may + may, ..before };
        (0..2).for_each(|at| self.may_move(ssd, at));
    }

    /// Blocks of a volume that differ may move once.
    fn may_move(&mut self, ssd: usize, at: usize) {
        let vid = self.volumes[at].vid();
        for vba in (0..HOT).map(block_of) {
            let own = self.held(ssd, vid, vba);
            let serving = self.serving(row_of(vid, vba)).into_iter().map(|other| self.held(other, vid, vba));
            self.budgets[ssd].may += serving.filter(|other| !own.reads_as(*other)).count() as u64;
        }
    }

    fn look_at_fill(&mut self, ssd: usize) {
        let Budget { moved, may } = self.budgets[ssd];
        assert!(moved <= may, "SSD {ssd} moved {moved} blocks, and {may} have changed");
        // Each log counts the blocks of all volumes.
        if !self.dice.one_in(4) {
            return;
        }
        let log = self.nodes[ssd].harness.ssd().fill_log();
        let is_filled = log.state == FillState::Filled;
        // It restarted, and waits for a newer map.
        if log.state == FillState::Nothing && log.epoch == self.epoch() {
            return self.next_map();
        }
        if is_filled && (log.epoch, log.incarnation) == (self.epoch(), self.incarnations[ssd]) {
            let fills = self.parts.iter_mut().filter(|row| row[ssd] == Part::Fills);
            fills.for_each(|row| row[ssd] = Part::Serves);
            self.counts.fills += 1;
            self.next_map();
        }
    }

    /// Makes one step of the end of a lease, in one volume.
    pub(super) fn attend_volume(&mut self) {
        let at = self.dice.index(2);
        let (vid, version) = (self.volumes[at].vid(), self.volumes[at].entry.version);
        let members: Vec<usize> = (0..3).filter(|ssd| self.is_in(*ssd)).collect();
        let is_known = members.iter().all(|ssd| {
            let node = &self.nodes[*ssd];
            node.is_reached && node.version(vid) == version
        });
        let epoch = self.epoch();
        match &mut self.volumes[at].phase {
            Phase::Writing => {}
            Phase::Barrier if is_known => {
                self.volumes[at].phase = Phase::Settling { epoch, begun: Vec::new(), done: Vec::new() };
            }
            Phase::Settling { epoch: of, begun, done } => {
                if *of != epoch {
                    (*of, *begun, *done) = (epoch, Vec::new(), Vec::new());
                }
                match members.iter().find(|ssd| !done.contains(ssd)) {
                    Some(&ssd) => self.settle(at, ssd),
                    None => self.end_settle(at),
                }
            }
            Phase::Clearing if is_known => self.grant(at),
            Phase::Granting if is_known => self.volumes[at].phase = Phase::Writing,
            Phase::Barrier | Phase::Clearing | Phase::Granting => {}
        }
    }

    fn settle(&mut self, at: usize, ssd: usize) {
        let (vid, epoch) = (self.volumes[at].vid(), self.epoch());
        let node = &mut self.nodes[ssd];
        if !node.is_reached || node.epoch() != epoch {
            return;
        }
        let data = SettleData { term: 1, epoch, array: ARRAY, vid, generation: 1 };
        let cqe = node.harness.daemon_out(opcode::SETTLE, &data.encode());
        // The SSD has restarted, and the daemon has not noticed.
        if refusal(&cqe) == Some(Refusal::NotServing) {
            return;
        }
        assert_eq!(refusal(&cqe), None, "SSD {ssd}");
        if self.has(ssd, Part::Fills) {
            self.may_move(ssd, at);
        }
        let Phase::Settling { begun, done, .. } = &mut self.volumes[at].phase else { return };
        if cqe.dw0.get() == 0 {
            done.push(ssd);
        }
        // A settle begins what a fill has requested again.
        if !begun.contains(&ssd) {
            begun.push(ssd);
            self.let_go_of(ssd);
        }
    }

    fn end_settle(&mut self, at: usize) {
        self.counts.settles += 1;
        self.are_equal(at);
        for vba in (0..HOT).map(block_of) {
            // The map's first may have lost writes since it was settled.
            let serving = self.serving(row_of(self.volumes[at].vid(), vba));
            let Some(&first) = serving.iter().find(|ssd| self.is_whole(**ssd)) else { continue };
            let held = self.held(first, self.volumes[at].vid(), vba);
            self.volumes[at].settled(vba, held);
        }
        let volume = &mut self.volumes[at];
        volume.entry.unsettled = false;
        volume.entry.version += 1;
        volume.phase = Phase::Clearing;
    }

    pub(super) fn grant(&mut self, at: usize) {
        let epoch = self.epoch();
        let volume = &mut self.volumes[at];
        volume.entry.version += 1;
        volume.entry.lease_epoch += 1;
        (volume.entry.writer, volume.entry.lease_ms) = (Some(client(7)), writers::LEASE_MS);
        (volume.sequence, volume.epoch) = (0, epoch);
        volume.phase = Phase::Granting;
    }

    /// An SSD is lost, or comes back.
    pub(super) fn fault(&mut self) {
        let ssd = self.dice.index(3);
        if !self.nodes[ssd].is_reached {
            return self.come_back(ssd);
        }
        let serves = |other: usize| {
            let node = &self.nodes[other];
            node.is_reached && node.harness.ssd().identity().incarnation == self.incarnations[other]
        };
        let is_left = |row: usize| self.serving(row).into_iter().any(|other| other != ssd && serves(other));
        if self.faults == 0 || !is_left(0) || !is_left(1) {
            return;
        }
        self.faults -= 1;
        self.nodes[ssd].is_reached = false;
        // It may be back before the daemon has noticed.
        if self.dice.one_in(3) {
            self.come_back(ssd);
        }
    }

    /// The SSD is reached again: as it was, after a shutdown, or after a power cut without a dump.
    pub(super) fn come_back(&mut self, ssd: usize) {
        self.nodes[ssd].is_reached = true;
        let how = self.dice.below(3);
        if how == 0 {
            return;
        }
        self.counts.restarts += 1;
        let node = &mut self.nodes[ssd];
        if how == 1 {
            node.harness.ssd().shut_down().expect("the system area takes it");
        }
        node.cut.power_cycle(self.dice.roll());
        let opened = node.cut.reopen();
        let index = u16::try_from(ssd).expect("few");
        node.harness = connected(&node.cut, opened, index);
        node.harness.now = self.now;
        node.life += 1;
        // A connection that broke is a loss. Where that is not noticed, the incarnation may tell.
        if self.is_in(ssd) && self.dice.one_in(2) {
            self.drop_out(ssd);
        }
        // Leases ended with it: the entry of a volume with a writer is put anew.
        for volume in self.volumes.iter_mut().filter(|volume| volume.entry.writer.is_some()) {
            volume.entry.version += 1;
        }
    }
}
