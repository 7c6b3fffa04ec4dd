// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mixed work on an SSD whose power may fail at any moment, and which of it was acknowledged.

mod commands;

use super::super::oracle::{Dice, Key, Oracle};
use super::super::*;
use super::on_file::{Host, OnFile};
use gnstor_flash::{RamStore, Shape};
use gnstor_ftl::{DUMP_BYTES, FtlConfig};
use std::collections::BTreeSet;

pub(super) const VOLUMES: [u16; 3] = [3, 4, 5];
/// Largest number of blocks of 4 KiB in all volumes together.
const CAPACITY: u64 = 176;
pub(super) const LARGEST: u64 = 80;
pub(super) const SLOTS: u32 = 24;
/// Blocks of a chunk, and the most of a command.
pub(super) const CHUNK: u32 = 16;
/// The largest lag of a command's sequence.
pub(super) const LATE: u64 = 40;

/// One volume of a volume id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Life {
    /// No volume; the number is its last generation.
    Gone(u32),
    There(Box<VolumeEntry>),
}

/// A command that has not been answered.
pub(super) enum Sent {
    Write { command: u64, stamp: Stamp, fua: bool, slot: Option<u32> },
    Flush(Vec<(Key, Stamp)>),
    Read { first: Key, floors: Vec<Stamp>, slot: u32 },
    Compare { first: Key, floor: Stamp, tag: Option<u64>, slot: u32 },
}

pub(in crate::tests) struct Campaign {
    pub(in crate::tests) harness: Harness,
    pub(super) config: SsdConfig,
    pub(super) bench: Bench,
    /// The SSD's file; `None` in memory.
    pub(super) file: Option<OnFile>,
    /// Failures of the host of that file.
    pub(super) host: Host,
    pub(in crate::tests) dice: Dice,
    pub(super) oracle: Oracle,
    pub(super) table: BTreeMap<u16, Life>,
    /// The change of the table that was not answered when the power went, and what it makes.
    pub(super) in_doubt: Option<(u16, Life)>,
    /// The highest term that was acknowledged, and the highest that was sent.
    pub(super) term: u64,
    pub(super) term_sent: u64,
    pub(super) epoch: u64,
    pub(super) map_in_doubt: bool,
    pub(super) sent: BTreeMap<(QueueKey, u16), Sent>,
    pub(super) slots: BTreeMap<QueueKey, BTreeSet<u32>>,
    pub(super) commands: u64,
    pub(super) sequence: u64,
    pub(super) tag: u64,
}

/// A small SSD: superblocks of 32 pages.
pub(in crate::tests) fn small_ssd(timed: bool) -> SsdConfig {
    let mut preset = Preset::by_name(if timed { "gnstor-980pro" } else { "null" }).unwrap();
    preset.shape =
        Shape { channels: 2, dies_per_channel: 2, planes: 1, unit_pages: 4, sense_pages: 2, rows: 2 };
    preset.buffer_pages = 64;
    SsdConfig {
        index: 0,
        preset,
        capacity_bytes: CAPACITY * 4096,
        serial: "GN0001".into(),
        media: SsdMedia::Ram,
    }
}

pub(super) fn fleet(epoch: u64, term: u64) -> FleetMap {
    let mut map = FleetMap::equal(1, 64, 7, term).unwrap();
    map.epoch = epoch;
    map
}

impl Campaign {
    pub(in crate::tests) fn new(seed: u64, faults: Faults) -> Self {
        Self::around(seed, faults, None)
    }

    pub(super) fn on_file(seed: u64, faults: Faults) -> Self {
        Self::around(seed, faults, Some(OnFile::new()))
    }

    fn around(seed: u64, faults: Faults, mut file: Option<OnFile>) -> Self {
        let mut dice = Dice(seed);
        let config = small_ssd(dice.one_in(3));
        let mut bench = Bench { faults: Arc::new(faults), ..Bench::default() };
        let ssd = match &mut file {
            Some(file) => file.format(&config, &bench),
            None => {
                let bytes = FtlConfig::store_bytes(&config.preset, CAPACITY, DUMP_BYTES).unwrap();
                bench.store = Some(Arc::new(RamStore::new(bytes, Arc::clone(&bench.power))));
                Ssd::format_with(config.clone(), &bench).unwrap()
            }
        };
        bench.flash = Some(Arc::clone(ssd.ftl().flash()));
        let mut harness = Harness::around(ssd, Arc::clone(&bench.faults)).with_clients();
        assert_eq!(refusal(&harness.set_map(&fleet(1, 1))), None);
        let mut campaign = Self {
            harness,
            config,
            bench,
            file,
            host: Host::Stays,
            dice,
            oracle: Oracle::keeping_all(),
            table: VOLUMES.iter().map(|&raw| (raw, Life::Gone(0))).collect(),
            in_doubt: None,
            term: 1,
            term_sent: 1,
            epoch: 1,
            map_in_doubt: false,
            sent: BTreeMap::new(),
            slots: BTreeMap::new(),
            commands: 0,
            sequence: 1000,
            tag: 0,
        };
        campaign.start();
        for raw in VOLUMES {
            campaign.add(raw);
        }
        campaign
    }

    /// The hosts are connected and nothing is in flight.
    pub(super) fn start(&mut self) {
        self.harness.completions.clear();
        self.harness.hold = true;
        self.sent.clear();
        self.slots = [WRITER, READER].map(|key| (key, (0..SLOTS).collect())).into();
    }

    pub(super) fn has_power(&self) -> bool {
        !self.bench.power.is_cut()
    }

    /// Works for this number of steps, or until the power fails.
    pub(in crate::tests) fn work(&mut self, steps: u64) {
        for _ in 0..steps {
            if !self.has_power() {
                return;
            }
            self.step();
        }
    }

    pub(in crate::tests) fn step(&mut self) {
        match self.dice.below(100) {
            0..50 => self.write(),
            50..54 => self.trim(),
            54..64 => self.read(),
            64..66 => self.compare(),
            66..69 => self.flush(),
            69..86 => (0..=self.dice.below(12)).for_each(|_| self.end_a_transfer()),
            86..96 => {
                let ns =
                    if self.dice.one_in(6) { self.dice.below(30_000_000) } else { self.dice.below(300_000) };
                self.pass(ns);
            }
            _ => self.administer(),
        }
    }

    pub(in crate::tests) fn pass(&mut self, ns: u64) {
        let end = self.harness.now + Span::from_ns(ns);
        // Few steps are enough: what is due is done at any of them.
        for _ in 0..20 {
            let Some(at) = self.harness.next_event().filter(|&at| at <= end) else { break };
            self.harness.now = self.harness.now.max(at);
            self.harness.step(self.harness.now);
            self.harness.pump();
            self.harvest();
            if !self.has_power() {
                return;
            }
        }
        self.harness.now = end;
        self.harness.step(end);
        self.harness.pump();
        self.harvest();
    }

    pub(super) fn end_a_transfer(&mut self) {
        if !self.has_power() || self.harness.held.is_empty() {
            return;
        }
        let at = self.dice.index(self.harness.held.len());
        let effect = self.harness.held.remove(at);
        match effect {
            Effect::Pull { transfer, queue, .. } if queue != DAEMON && self.dice.one_in(150) => {
                self.harness.answer(queue, transfer, Outcome::BadChecksum);
            }
            _ => self.harness.carry_out(effect),
        }
        self.harvest();
    }

    /// Takes completions. A completion in the call in which the power failed counts as not acknowledged.
    fn harvest(&mut self) {
        if !self.has_power() {
            return;
        }
        let mut rest = Vec::new();
        for completion in std::mem::take(&mut self.harness.completions) {
            let named = (completion.queue, completion.cqe.cid.get());
            match self.sent.remove(&named) {
                Some(sent) => self.answered(completion.queue, sent, refusal(&completion.cqe)),
                None => rest.push(completion),
            }
        }
        self.harness.completions = rest;
    }

    fn answered(&mut self, queue: QueueKey, sent: Sent, refused: Option<Refusal>) {
        match (sent, refused) {
            (Sent::Write { command, stamp, fua, slot }, refused) => {
                match refused {
                    None => self.oracle.succeeded(command, stamp, fua),
                    Some(_) => self.oracle.refused(command),
                }
                self.slots.get_mut(&queue).expect("its slots").extend(slot);
            }
            (Sent::Flush(snapshot), None) => self.oracle.flushed(&snapshot),
            (Sent::Flush(_), Some(refused)) => panic!("a flush was refused: {refused:?}"),
            (Sent::Read { first, floors, slot }, refused) => {
                for (index, floor) in (0u32..).zip(&floors).filter(|_| refused.is_none()) {
                    let key = (first.0, first.1, first.2 + index);
                    let found = self.content(queue, slot * CHUNK + index, key);
                    // The volume may have gone while the data was on its way.
                    let lives = self.generation(key.0) == Some(key.1);
                    assert!(
                        !lives || self.oracle.may_read(key, *floor, found),
                        "a read of {key:?} finds {found:?}"
                    );
                }
                self.slots.get_mut(&queue).expect("its slots").insert(slot);
            }
            (Sent::Compare { first, floor, tag, slot }, refused) => {
                self.slots.get_mut(&queue).expect("its slots").insert(slot);
                let lives = self.generation(first.0) == Some(first.1);
                assert!(
                    !lives || refused.is_some() || self.oracle.may_read(first, floor, tag),
                    "{first:?} is not {tag:?}"
                );
            }
        }
    }

    /// The number that a block in a host's memory follows from; anything else is garbage.
    pub(super) fn content(&self, queue: QueueKey, at: u32, key: Key) -> Option<u64> {
        let data = self.harness.peek(queue, at as usize);
        let first = u64::from_le_bytes(data[..8].try_into().expect("8 bytes"));
        if first == 0 {
            assert!(data.iter().all(|byte| *byte == 0), "{key:?}: neither zeros nor a content");
            return None;
        }
        let tag = first / 1_000_003;
        assert!(tag <= self.tag && data == block(tag), "{key:?}: garbage");
        Some(tag)
    }

    fn generation(&self, raw: u16) -> Option<u32> {
        match &self.table[&raw] {
            Life::There(entry) if !entry.deleting => Some(entry.generation),
            _ => None,
        }
    }

    /// A range within a chunk of a volume that lives, mostly: volume, generation, lease, first block,
    /// blocks.
    pub(super) fn range(&mut self) -> Option<(Key, u32, u32)> {
        let raw = self.dice.of(&VOLUMES);
        let Life::There(entry) = &self.table[&raw] else { return None };
        let (generation, lease, capacity) = (entry.generation, entry.lease_epoch, entry.capacity_blocks);
        let blocks = self.dice.of(&[1u32, 1, 1, 1, 2, 3, 4, 8, CHUNK]);
        let chunk = self.dice.small(u32::try_from(capacity).expect("small") / CHUNK);
        let vba = chunk * CHUNK + self.dice.small(CHUNK - blocks + 1);
        Some(((raw, generation, vba), blocks, lease))
    }

    pub(super) fn sqe_for(
        &mut self,
        opcode: u8,
        queue: QueueKey,
        ((raw, _, vba), blocks): (Key, u32),
        stamp: Stamp,
    ) -> Sqe {
        let mut sqe = sqe(opcode);
        let client = client(u16::try_from(queue.0 / 10).expect("small"));
        let slba = Slba::pack(Address { vid: vid(raw), client, vba });
        let fua = matches!(opcode, io::WRITE | io::WRITE_ZEROES) && self.dice.one_in(12);
        ReadWrite { slba, blocks, fua, map_epoch: self.harness.map_epoch, stamp }.encode(&mut sqe);
        sqe
    }

    pub(super) fn stamp(&mut self, lease_epoch: u32) -> Stamp {
        self.sequence += 1;
        // Now and then a sequence that was overtaken.
        let late = if self.dice.one_in(12) { self.dice.below(LATE) } else { 0 };
        Stamp { lease_epoch, sequence: (self.sequence - late) << 20 | self.sequence & 0xF_FFFF }
    }

    pub(super) fn submit(&mut self, queue: QueueKey, sqe: Sqe, sent: Sent) {
        let cid = self.harness.next_cid.wrapping_add(1);
        self.sent.insert((queue, cid), sent);
        self.harness.submit(queue, sqe);
        self.harvest();
    }

    pub(super) fn is_busy(&self, queue: QueueKey) -> bool {
        self.sent.keys().filter(|(key, _)| *key == queue).count() >= SLOTS as usize
    }

    /// Waits until every command is answered, unless the power fails.
    pub(in crate::tests) fn drain(&mut self) {
        for _ in 0..100_000 {
            if !self.has_power() {
                return;
            }
            if self.sent.is_empty() && self.harness.held.is_empty() {
                return self.oracle.quiesce();
            }
            self.end_a_transfer();
            if self.harness.held.is_empty() {
                self.pass(100_000);
            }
        }
        panic!("{} commands are never answered", self.sent.len());
    }
}
