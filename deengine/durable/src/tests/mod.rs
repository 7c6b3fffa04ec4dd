// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The common parts of the tests: a small store, a source of choices, and entries.

mod bend;
mod checkpoint;
mod crash;
#[path = "../../../testing/deadline.rs"]
mod deadline;
mod dump;
mod flips;
mod formats;
mod fuzz;
mod journal;
#[path = "../../../testing/long.rs"]
mod long;
mod lost;
mod metadata;
mod slow;
mod voter;
mod world;

use crate::{Durable, Opened, Record, Sizes};
pub(crate) use deadline::deadline;
use gnstor_flash::{Block, Power, RamStore, Store, Superblock};
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::{ClientId, Stamp, Vid};
use gnstor_proto::vendor::{Limits, VolumeEntry};
pub(crate) use long::is_long;
use std::sync::Arc;
use zerocopy::IntoBytes;

pub(crate) const SIZES: Sizes = Sizes {
    map_words: 5000,
    superblocks: 8,
    blocks: 64,
    journal_bytes: 24 * 4096,
    dump_bytes: 64 * 4096,
    volumes: 4,
    map_bytes: 6000,
    held_map: true,
};
pub(crate) const ID: u64 = 0x5EED;

/// A store in RAM that loses unsynced writes.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) power: Arc<Power>,
    pub(crate) ram: Arc<RamStore>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let power = Arc::new(Power::steady());
        Self { ram: Arc::new(RamStore::new(SIZES.store_bytes(), Arc::clone(&power))), power }
    }

    /// On a disk whose syncs end at poll number `polls`.
    pub(crate) fn slow(polls: u32) -> Self {
        let power = Arc::new(Power::steady());
        let ram = RamStore::new(SIZES.store_bytes(), Arc::clone(&power)).with_slow_syncs(polls);
        Self { ram: Arc::new(ram), power }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.ram) as _
    }

    pub(crate) fn format(&self) -> Opened {
        Durable::format(self.store(), SIZES, ID).unwrap()
    }

    pub(crate) fn open(&self) -> Opened {
        Durable::open(self.store(), SIZES).unwrap()
    }

    pub(crate) fn flip(&self, at: u64, bit: u8) {
        let mut byte = [0];
        self.ram.read(at, &mut byte).unwrap();
        self.ram.write(at, &[byte[0] ^ 1 << bit]).unwrap();
        self.ram.sync().unwrap();
    }
}

/// Choices from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix64(self.0)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
    pub(crate) fn record(&mut self) -> Record {
        let vid = vid(1 + self.below(4) as u16);
        let superblock = Superblock(self.below(8) as u32);
        match self.below(12) {
            0 => {
                let stamp = Stamp { lease_epoch: self.next() as u32, sequence: self.next() };
                Record::Applied { vid, vba: self.next() as u32, stamp }
            }
            1 => Record::Opened { superblock, stream: self.next() as u8, order: self.below(1 << 62) },
            2 => Record::Closed { superblock },
            3 => Record::Erased { superblock, erases: self.below(1 << 31) as u32 },
            4 => Record::Bad { block: Block(self.below(64) as u32) },
            5 => Record::Forgotten { vid, generation: self.next() as u32 },
            _ => Record::Word { index: self.below(SIZES.map_words), value: self.next() },
        }
    }

    pub(crate) fn records(&mut self) -> Vec<Record> {
        let most = if self.below(8) == 0 { 160 } else { 6 };
        (0..self.below(most)).map(|_| self.record()).collect()
    }
}

pub(crate) fn vid(raw: u16) -> Vid {
    Vid::new(raw).unwrap()
}

pub(crate) fn entry(vid: Vid, generation: u32, version: u64) -> Vec<u8> {
    let client = ClientId::new(1).unwrap();
    let entry = VolumeEntry {
        vid,
        generation,
        version,
        term: 1,
        deleting: false,
        name: "v".into(),
        labels: String::new(),
        capacity_blocks: 1 << 20,
        replicas: 2,
        chunk_shift: 4,
        factor: 7,
        owner: client,
        any_reader: true,
        readers: Vec::new(),
        writer: None,
        unsettled: false,
        lease_epoch: 1,
        lease_ms: 0,
        request_ids: vec![[3; 16]],
        limits: Limits { max_iops: 5, max_bytes_per_s: 6 },
        salvaged_s: 0,
    };
    entry.encode().as_bytes().to_vec()
}
