// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writers send their changes by a map. With the next map they start over with the same stamp. A change is
//! acknowledged when all members of one epoch have it (rule 5a).

use super::post::Message;
use super::*;

pub(super) const LEASE_MS: u32 = 600_000;
/// Changes of a writer under way at most.
const OPEN: usize = 6;

/// Phase of a volume between two writers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Writing,
    /// The flag is being set on all members.
    Barrier,
    Settling {
        epoch: u64,
        /// SSDs that were asked, and SSDs that are done.
        begun: Vec<usize>,
        done: Vec<usize>,
    },
    /// The flag is cleared.
    Clearing,
    Granting,
}

/// A write or a TRIM of some blocks.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) vba: u32,
    pub(super) blocks: u32,
    /// `None`: a TRIM.
    pub(super) tag: Option<u64>,
    /// Epoch of its map, and the members that have it.
    epoch: u64,
    done: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Volume {
    pub(super) entry: VolumeEntry,
    pub(super) phase: Phase,
    /// Epoch of the client's map.
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    open: BTreeMap<u64, Op>,
    /// All changes of each block: its sum, or `None` for a TRIM.
    changes: BTreeMap<u32, BTreeMap<Stamp, Option<u32>>>,
    acknowledged: BTreeMap<u32, Stamp>,
}

impl Volume {
    pub(super) fn new(raw: u16) -> Self {
        let entry = VolumeEntry {
            replicas: 3,
            capacity_blocks: CAPACITY.into(),
            lease_ms: LEASE_MS,
            lease_epoch: 1,
            ..entry(raw)
        };
        Self {
            entry,
            phase: Phase::Writing,
            epoch: 1,
            sequence: 0,
            open: BTreeMap::new(),
            changes: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
        }
    }

    pub(super) fn vid(&self) -> Vid {
        self.entry.vid
    }

    /// The changes that are not acknowledged.
    pub(super) fn open(&self) -> impl Iterator<Item = (Stamp, &Op)> {
        let lease_epoch = self.entry.lease_epoch;
        self.open.iter().map(move |(&sequence, op)| (Stamp { lease_epoch, sequence }, op))
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.phase == Phase::Writing && self.open.is_empty()
    }

    pub(super) fn acknowledged(&self, vba: u32) -> Stamp {
        self.acknowledged.get(&vba).copied().unwrap_or_default()
    }

    /// Checks that a block's content is one of its changes, and not older than an acknowledged one.
    pub(super) fn check(&self, vba: u32, held: Held) {
        match held {
            Held::Block { stamp, sum } => {
                let is_known = self.changes.get(&vba).and_then(|all| all.get(&stamp)) == Some(&Some(sum));
                assert!(is_known, "block {vba}: no change made {held:?}");
                assert!(stamp >= self.acknowledged(vba), "block {vba}: {held:?} is too old: {self:?}");
            }
            Held::Nothing | Held::Tombstone { .. } => self.check_read(vba, None, self.acknowledged(vba)),
        }
    }

    /// A read found this; `least` was acknowledged when it began.
    pub(super) fn check_read(&self, vba: u32, found: Option<u32>, least: Stamp) {
        let mut newer = self.changes.get(&vba).into_iter().flat_map(|all| all.range(least..));
        let is_fresh = found.is_none() && least == Stamp::default();
        assert!(
            is_fresh || newer.any(|(_, sum)| *sum == found),
            "{:?}, block {vba}: {found:?} is older than {least:?}: {:?}",
            self.vid(),
            self.changes.get(&vba)
        );
    }

    /// The block holds this after a settle: from now on nothing older is read.
    pub(super) fn settled(&mut self, vba: u32, held: Held) {
        self.check(vba, held);
        let least = self.acknowledged(vba);
        let all = self.changes.entry(vba).or_default();
        // A change that vanished must not come back, so it is forgotten.
        let found = match held {
            Held::Block { stamp, .. } => Some(stamp),
            Held::Nothing | Held::Tombstone { .. } => {
                all.range(least..).filter(|(_, sum)| sum.is_none()).map(|(stamp, _)| *stamp).next_back()
            }
        };
        all.retain(|stamp, _| Some(*stamp) <= found);
        if let Some(found) = found {
            self.acknowledged.insert(vba, found);
        }
    }
}

impl World {
    /// A writer begins a change.
    pub(super) fn begin_change(&mut self) {
        let at = self.dice.index(2);
        let volume = &mut self.volumes[at];
        if volume.phase != Phase::Writing || volume.open.len() >= OPEN {
            return;
        }
        volume.sequence += 1;
        let hot = self.dice.small(HOT);
        let vba = block_of(hot);
        let run = if hot < 6 { 1 + self.dice.small(3) } else { 1 };
        let sequence = volume.sequence;
        let tag = (!self.dice.one_in(4)).then_some(u64::from(volume.entry.lease_epoch) << 32 | sequence << 2);
        let stamp = Stamp { lease_epoch: volume.entry.lease_epoch, sequence };
        for index in 0..run {
            let sum = tag.map(|tag| block_sum(&block(tag + u64::from(index))));
            volume.changes.entry(vba + index).or_default().insert(stamp, sum);
        }
        let op = Op { vba, blocks: run, tag, epoch: volume.epoch, done: Vec::new() };
        volume.open.insert(sequence, op);
        for budget in &mut self.budgets {
            budget.may += u64::from(run);
        }
        self.send(at, sequence);
    }

    /// Sends a change to all members of its map.
    fn send(&mut self, at: usize, sequence: u64) {
        let volume = &self.volumes[at];
        let Some(op) = volume.open.get(&sequence) else { return };
        let index = usize::try_from(op.epoch - 1).expect("an epoch");
        let row = row_of(volume.vid(), op.vba);
        let members = self.maps[index].rows[row].places.iter().flatten().map(|place| usize::from(place.ssd));
        let stamp = Stamp { lease_epoch: volume.entry.lease_epoch, sequence };
        let messages = members.map(|ssd| {
            let life = self.nodes[ssd].life;
            Message { ssd, life, volume: at, stamp, epoch: op.epoch, op: op.clone() }
        });
        self.messages.extend(messages);
    }

    /// The writer uses another map, and its open changes start over.
    fn take_map(&mut self, at: usize, epoch: u64) {
        let volume = &mut self.volumes[at];
        volume.epoch = epoch;
        for op in volume.open.values_mut() {
            (op.epoch, op.done) = (epoch, Vec::new());
        }
        let open: Vec<u64> = volume.open.keys().copied().collect();
        open.into_iter().for_each(|sequence| self.send(at, sequence));
    }

    /// A writer asks an SSD for its map.
    pub(super) fn look_for_map(&mut self) {
        let at = self.dice.index(2);
        let epochs = self.nodes.iter().filter(|node| node.answers()).map(Node::epoch);
        let newest = epochs.max().unwrap_or(0);
        if self.volumes[at].phase == Phase::Writing && newest > self.volumes[at].epoch {
            self.take_map(at, newest);
        }
    }

    /// The writer is gone, or releases its lease.
    pub(super) fn end_lease(&mut self) {
        let at = self.dice.index(2);
        let volume = &mut self.volumes[at];
        let is_clean = volume.open.is_empty();
        if volume.phase != Phase::Writing || !self.dice.one_in(2) {
            return;
        }
        volume.open.clear();
        volume.entry.version += 1;
        (volume.entry.writer, volume.entry.lease_ms) = (None, 0);
        volume.entry.unsettled = !is_clean;
        volume.phase = if is_clean { Phase::Clearing } else { Phase::Barrier };
    }

    /// A member answered.
    pub(super) fn answered(&mut self, message: &Message, refused: Option<Refusal>) {
        let volume = &mut self.volumes[message.volume];
        let sequence = message.stamp.sequence;
        let is_own = message.stamp.lease_epoch == volume.entry.lease_epoch && volume.phase == Phase::Writing;
        let Some(op) = volume.open.get_mut(&sequence).filter(|op| is_own && op.epoch == message.epoch) else {
            return;
        };
        match refused {
            None => op.done.push(message.ssd),
            Some(Refusal::StaleMap) => {}
            // The SSD is behind, or does not serve yet.
            Some(_) => return self.messages.push(message.clone()),
        }
        let index = usize::try_from(op.epoch - 1).expect("an epoch");
        let row = row_of(volume.entry.vid, op.vba);
        let mut members = self.maps[index].rows[row].places.iter().flatten();
        if members.all(|place| op.done.contains(&usize::from(place.ssd))) {
            let (vba, blocks) = (op.vba, op.blocks);
            volume.open.remove(&sequence);
            for vba in vba..vba + blocks {
                let last = volume.acknowledged.entry(vba).or_default();
                *last = message.stamp.max(*last);
            }
            self.counts.acknowledged += 1;
        }
    }
}
