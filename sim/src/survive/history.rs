// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checkers' knowledge: answers that clients got, and values that a read may return. The checkers see
//! calls, answers and data, and never the state of a part that they check.
//!
//! ```text
//!   begin_write --> sent: its stamp --> acknowledged, or failed (it may be there, or not)
//!   begin_read: the newest that is acknowledged --> ended: is what it found that, or newer?
//! ```

mod deletes;
mod maps;
mod members;

use crate::dice::Dice;
pub(super) use crate::survive::blocks::{BLOCK, Found, data_of, found_in};
use gnstor_base::time::Time;
use gnstor_proto::placement::map3::{FleetMap3, State3};
use gnstor_proto::placement::{AnyMap, Rows as _, group_of};
use gnstor_proto::slba::{Stamp, Vid};
use gnstor_proto::vendor::VolumeEntry;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A violation: a sentence, and the facts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The rule that is broken.
    pub rule: String,
    /// What was seen.
    pub facts: String,
    /// When.
    pub at: Time,
}

/// A volume of one life.
pub(super) type Life = (Vid, u32);

/// A write of one block.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// `None`: zeros.
    pub(super) tag: Option<u64>,
    op: u64,
    client: usize,
    /// `None`: no command of it was sent.
    stamp: Option<Stamp>,
    acked: Option<Time>,
    /// A later read found an older value in its place.
    gone_at: Option<Time>,
}

/// The last value that a reader saw and that was not acknowledged then.
#[derive(Clone, Copy, Debug)]
struct Seen {
    stamp: Stamp,
    ended: Time,
    ssd: u16,
    epoch: u64,
}

#[derive(Default, Debug)]
struct Block {
    versions: Vec<Version>,
    seen: Option<Seen>,
    /// Whether the operator gave up the block's last copy. Then any content is right.
    lost: bool,
}

#[derive(Debug)]
struct Volume {
    entry: VolumeEntry,
    blocks: Vec<Block>,
    /// The newest write lease that was granted, and when the client was told.
    granted: (u32, Time),
    /// Whether a client has asked to delete the volume.
    asked: bool,
    /// Deletes that may delete it, and are not answered.
    deletes: u32,
    /// Whether the volume is deleted, or the operator gave its copies up. Then its blocks are not judged any
    /// more.
    over: bool,
}

/// A read of a block that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOf {
    pub(super) life: Life,
    pub(super) vba: u32,
    pub(super) client: usize,
    pub(super) is_writer: bool,
    pub(super) ssd: u16,
    pub(super) epoch: u64,
    pub(super) begun: Time,
    /// The newest acknowledged stamp when it began.
    pub(super) floor: Stamp,
}

#[derive(Default)]
pub(super) struct History {
    volumes: BTreeMap<Life, Volume>,
    /// The life and the block that a tag was written to.
    tags: BTreeMap<u64, (Life, u32)>,
    maps: BTreeMap<u64, Arc<AnyMap>>,
    next_tag: u64,
    /// Volumes are settled between two leases. Without voters they are not, and copies may differ in what was
    /// not acknowledged.
    pub(super) settles: bool,
    /// A newer map than all before was seen.
    pub(super) has_news: bool,
    pub(super) violation: Option<Violation>,
}

impl History {
    pub(super) fn new(mut dice: Dice, settles: bool) -> Self {
        Self { next_tag: dice.bits() >> 8 | 1, settles, ..Self::default() }
    }

    pub(super) fn broken(&mut self, at: Time, rule: &str, facts: String) {
        self.violation.get_or_insert_with(|| Violation { rule: rule.into(), facts, at });
    }

    /// A volume exists.
    pub(super) fn exists(&mut self, entry: &VolumeEntry) {
        let blocks = usize::try_from(entry.capacity_blocks).expect("small");
        self.volumes.entry((entry.vid, entry.generation)).or_insert_with(|| Volume {
            entry: entry.clone(),
            blocks: (0..blocks).map(|_| Block::default()).collect(),
            granted: (0, Time::ZERO),
            asked: false,
            deletes: 0,
            over: false,
        });
    }

    /// The operator called copies lost: nothing is known of any block any more.
    pub(super) fn lose_data(&mut self) {
        self.volumes.values_mut().for_each(|volume| volume.over = true);
    }

    /// Notes that the operator gives up blocks that only this SSD has, or only this one and absent ones.
    pub(super) fn give_up(&mut self, map: &FleetMap3, ssd: u16) {
        let is_gone = |of: u16| of == ssd || map.state(of) == Some(State3::Absent);
        for volume in self.volumes.values_mut() {
            let entry = &volume.entry;
            for (vba, block) in (0u32..).zip(&mut volume.blocks) {
                let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
                let mut serves = map.replicas(group, entry.replicas).filter(|place| !place.filling);
                block.lost |= serves.all(|place| is_gone(place.ssd));
            }
        }
    }

    pub(super) fn is_lost(&self, life: Life, vba: u32) -> bool {
        self.volumes.get(&life).is_some_and(|volume| volume.blocks[vba as usize].lost)
    }

    /// A client was told that it has a write lease.
    pub(super) fn granted(&mut self, life: Life, lease_epoch: u32, now: Time) {
        let Some(volume) = self.volumes.get_mut(&life) else { return };
        if lease_epoch > volume.granted.0 {
            (volume.granted, self.has_news) = ((lease_epoch, now), true);
        } else if lease_epoch == volume.granted.0 {
            let facts = format!("volume {}: lease {lease_epoch}", life.0.get());
            self.broken(now, "a write lease was granted twice (rule 8)", facts);
        }
    }

    /// A write begins. Returns the tag of its first block; those behind follow it.
    pub(super) fn begin_write(
        &mut self,
        (life, client, op): (Life, usize, u64),
        (vba, blocks): (u32, u32),
        zeroes: bool,
    ) -> Option<u64> {
        let first = self.next_tag;
        self.next_tag += u64::from(blocks);
        let volume = self.volumes.get_mut(&life)?;
        for at in 0..blocks {
            let tag = (!zeroes).then_some(first + u64::from(at));
            let version = Version { tag, op, client, stamp: None, acked: None, gone_at: None };
            volume.blocks[(vba + at) as usize].versions.push(version);
            if let Some(tag) = tag {
                self.tags.insert(tag, (life, vba + at));
            }
        }
        (!zeroes).then_some(first)
    }

    /// A command of a write is sent.
    pub(super) fn sent(&mut self, life: Life, op: u64, (vba, blocks): (u32, u32), stamp: Stamp) {
        let Some(volume) = self.volumes.get_mut(&life) else { return };
        for block in &mut volume.blocks[vba as usize..(vba + blocks) as usize] {
            let version = block.versions.iter_mut().rev().find(|version| version.op == op);
            if let Some(version) = version {
                version.stamp.get_or_insert(stamp);
            }
        }
    }

    /// A write was acknowledged.
    pub(super) fn acked(
        &mut self,
        life: Life,
        (op, begun): (u64, Time),
        (vba, blocks): (u32, u32),
        now: Time,
    ) {
        let Some(volume) = self.volumes.get_mut(&life) else { return };
        let (lease, since) = volume.granted;
        let mut late = None;
        for block in &mut volume.blocks[vba as usize..(vba + blocks) as usize] {
            let Some(version) = block.versions.iter_mut().rev().find(|version| version.op == op) else {
                continue;
            };
            version.acked = Some(now);
            late = late.or(version.stamp.filter(|stamp| stamp.lease_epoch < lease && begun > since));
        }
        if let Some(stamp) = late {
            let facts = format!(
                "volume {}, block {vba}: {} after lease {lease} was granted",
                life.0.get(),
                name(stamp)
            );
            self.broken(now, "a write of an ended lease was acknowledged (rule 8)", facts);
        }
    }

    /// The newest acknowledged stamp of a block.
    pub(super) fn floor(&self, life: Life, vba: u32) -> Stamp {
        let block = self.volumes.get(&life).and_then(|volume| volume.blocks.get(vba as usize));
        let versions = block.into_iter().flat_map(|block| &block.versions);
        versions
            .filter(|version| version.acked.is_some())
            .filter_map(|version| version.stamp)
            .max()
            .unwrap_or_default()
    }

    /// Values that a block may hold: the newest acknowledged version, and all newer ones.
    pub(super) fn may_be(&self, life: Life, vba: u32) -> Vec<(Stamp, Option<u64>)> {
        let floor = self.floor(life, vba);
        let block = self.volumes.get(&life).and_then(|volume| volume.blocks.get(vba as usize));
        let versions = block.into_iter().flat_map(|block| &block.versions);
        let stamped = versions.filter_map(|version| Some((version.stamp?, version.tag)));
        stamped.filter(|(stamp, _)| *stamp >= floor).collect()
    }

    /// Judges the content that a read has returned.
    pub(super) fn read(&mut self, of: ReadOf, found: Found, now: Time) {
        let ReadOf { life, vba, client, ssd, floor, .. } = of;
        let Some(volume) = self.volumes.get(&life).filter(|volume| volume.is_judged()) else { return };
        let Some(block) = volume.blocks.get(vba as usize).filter(|block| !block.lost) else { return };
        let place = format!("volume {}, block {vba}: SSD {ssd} gave client {client}", life.0.get());
        let zeros =
            || block.versions.iter().filter(|version| version.tag.is_none() && version.stamp >= Some(floor));
        let best = match found {
            Found::Garbage => {
                return self.broken(
                    now,
                    "a block is torn or foreign",
                    format!("{place} bytes that no client wrote"),
                );
            }
            Found::Tag(tag) if self.tags.get(&tag) != Some(&(life, vba)) => {
                let of = self.tags.get(&tag).map(|((vid, generation), vba)| {
                    format!("volume {} generation {generation} block {vba}", vid.get())
                });
                let of = of.unwrap_or_else(|| "no write at all".into());
                return self.broken(
                    now,
                    "a block of another place or of a deleted volume was read (rule 10)",
                    format!("{place} the data of {of}"),
                );
            }
            Found::Tag(tag) => block.versions.iter().find(|version| version.tag == Some(tag)).cloned(),
            // Of all zeros that it may be, the newest is the best excuse.
            Found::Zeros => zeros()
                .filter(|version| version.stamp.is_some())
                .max_by_key(|version| version.gone_at.is_none())
                .cloned(),
        };
        let stamp = best.as_ref().and_then(|version| version.stamp).unwrap_or_default();
        if stamp < floor {
            let facts = format!("{}{place} {}", told(block, floor), name(stamp));
            return self.broken(now, "an acknowledged write is not durable (rule 5a)", facts);
        }
        let is_fresh = floor == Stamp::default() && found == Found::Zeros;
        let gone =
            best.as_ref().and_then(|version| version.gone_at).filter(|gone| of.begun > *gone && !is_fresh);
        if let Some(gone) = gone {
            return self.broken(
                now,
                "a write that had vanished came back (rule 7a)",
                format!("{place} {}, which was gone at {}", name(stamp), seconds(gone)),
            );
        }
        // For zeros, the oldest possible version: the reader need not have seen more.
        let least = match found {
            Found::Zeros if is_fresh => Stamp::default(),
            Found::Zeros => zeros().filter_map(|version| version.stamp).min().unwrap_or_default(),
            Found::Tag(_) | Found::Garbage => stamp,
        };
        let most = zeros().filter_map(|version| version.stamp).max().unwrap_or_default().max(stamp);
        if !of.is_writer && self.settles {
            self.seen(of, (least, if found == Found::Zeros { most } else { stamp }), now);
        }
    }

    /// Rule 7a: a value that a reader saw vanishes only with an epoch that drops the SSD that showed it.
    fn seen(&mut self, of: ReadOf, (least, stamp): (Stamp, Stamp), now: Time) {
        let ReadOf { life, vba, ssd, begun, .. } = of;
        let Some(volume) = self.volumes.get(&life) else { return };
        let before = volume.blocks[vba as usize].seen.filter(|seen| seen.ended < begun && seen.stamp > stamp);
        if let Some(seen) = before.filter(|seen| !self.dropped_since(&volume.entry, vba, seen)) {
            let facts = format!(
                "volume {}, block {vba}: SSD {} showed {} at {}, and SSD {ssd} gave {} to client {}; no epoch \
                 behind {} dropped SSD {}",
                life.0.get(),
                seen.ssd,
                name(seen.stamp),
                seconds(seen.ended),
                name(stamp),
                of.client,
                seen.epoch,
                seen.ssd
            );
            return self.broken(now, "a value that was seen vanished (rule 7a)", facts);
        }
        let Some(volume) = self.volumes.get_mut(&life) else { return };
        let (lease, since) = volume.granted;
        let block = &mut volume.blocks[vba as usize];
        if block.seen.is_none_or(|seen| least >= seen.stamp || before.is_some()) {
            block.seen = Some(Seen { stamp: least, ended: now, ssd, epoch: of.epoch });
        }
        // Between two leases a volume is settled: what is not there then never comes back.
        if begun > since {
            for version in &mut block.versions {
                let is_older = version.stamp.is_some_and(|own| own > stamp && own.lease_epoch < lease);
                if is_older {
                    version.gone_at.get_or_insert(now);
                }
            }
        }
    }
}

/// Which client was told of the write with this stamp, and when.
fn told(block: &Block, stamp: Stamp) -> String {
    let acked = block.versions.iter().find(|version| version.stamp == Some(stamp));
    acked.map_or(String::new(), |version| {
        let at = seconds(version.acked.unwrap_or_default());
        format!("client {} was told {} at {at}; ", version.client, name(stamp))
    })
}

pub(super) fn name(stamp: Stamp) -> String {
    if stamp == Stamp::default() {
        return "nothing".into();
    }
    format!("stamp ({}, {})", stamp.lease_epoch, stamp.sequence)
}

pub(super) fn seconds(at: Time) -> String {
    let ms = at.as_ns() / 1_000_000;
    format!("{}.{:03} s", ms / 1000, ms % 1000)
}
