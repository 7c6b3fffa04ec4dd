// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's part: volumes that come, change and go, and maps; and what must be left of that after a
//! restart.

use super::super::*;
use super::work::{Campaign, Life, VOLUMES, fleet};
use gnstor_proto::vendor::{ENTRY_BYTES, Limits, SERVING_LEASE_MS, WRITE_LEASE_MS};

impl Campaign {
    pub(super) fn administer(&mut self) {
        let raw = self.dice.of(&VOLUMES);
        match self.table[&raw].clone() {
            Life::Gone(_) => self.add(raw),
            Life::There(entry) if entry.deleting => self.look_for_the_end(raw),
            Life::There(entry) => match self.dice.below(12) {
                0 => self.delete(raw, *entry),
                1 => self.set_map(),
                _ => self.chmod(raw, *entry),
            },
        }
    }

    /// Sends a command and waits for its answer; `None` if the power fails before.
    fn ask(&mut self, sqe: Sqe) -> Option<Cqe> {
        let cid = self.harness.submit(DAEMON, sqe);
        for _ in 0..10_000 {
            if !self.has_power() {
                return None;
            }
            if let Some(cqe) = self.harness.take(DAEMON, cid) {
                return Some(cqe);
            }
            // The daemon's own transfer first; then whatever a fence may wait for.
            let is_own = |effect: &Effect| match effect {
                Effect::Pull { queue, .. } | Effect::Push { queue, .. } => *queue == DAEMON,
                _ => false,
            };
            match self.harness.held.iter().position(is_own) {
                Some(at) => {
                    let effect = self.harness.held.remove(at);
                    self.harness.carry_out(effect);
                    self.note_answers();
                }
                None if self.harness.held.is_empty() || self.dice.one_in(4) => self.pass(20_000),
                None => self.end_a_transfer(),
            }
        }
        panic!("the daemon's command is never answered");
    }

    fn next_term(&mut self) -> u64 {
        self.term_sent += u64::from(self.dice.one_in(6));
        self.term_sent
    }

    /// A change of the table: until it is answered, the table may be either.
    fn change(&mut self, raw: u16, next: Life, sqe: Sqe) -> bool {
        self.in_doubt = Some((raw, next.clone()));
        let Some(cqe) = self.ask(sqe) else { return false };
        self.in_doubt = None;
        assert_eq!(refusal(&cqe), None, "{raw}: {next:?}");
        if let Life::There(entry) = &next {
            self.term = self.term.max(entry.term);
        }
        self.table.insert(raw, next);
        true
    }

    pub(super) fn add(&mut self, raw: u16) {
        let Life::Gone(dead) = self.table[&raw] else { return };
        let capacity_blocks = 16 * (3 + self.dice.below(2));
        let term = self.next_term();
        let generation = dead + 1 + self.dice.small(2);
        let ids = [self.dice.roll(), self.dice.roll()];
        let request_ids = vec![std::array::from_fn(|i| ids[i / 8].to_le_bytes()[i % 8])];
        // A lease epoch is granted only once, also over deletions of a volume. So a command with an earlier
        // epoch finds no lease.
        let lease_epoch = 1000 * generation;
        let (lease_ms, old) = (*WRITE_LEASE_MS.end(), entry(raw));
        let entry =
            VolumeEntry { generation, term, capacity_blocks, lease_epoch, lease_ms, request_ids, ..old };
        let sqe = self.entry_sqe(opcode::VOLUME_ADD, &entry);
        self.change(raw, Life::There(Box::new(entry)), sqe);
    }

    fn entry_sqe(&mut self, opcode: u8, entry: &VolumeEntry) -> Sqe {
        self.harness.daemon_sqe(opcode, entry.encode().as_bytes())
    }

    /// Rights, capacity, name, lease epoch, limits.
    pub(super) fn chmod(&mut self, raw: u16, old: VolumeEntry) {
        let mut entry = VolumeEntry { version: old.version + 1, term: self.next_term(), ..old };
        match self.dice.below(5) {
            0 => entry.capacity_blocks = (entry.capacity_blocks + 16).min(super::work::LARGEST),
            1 => {
                entry.readers =
                    (8..9 + self.dice.small(6)).map(|id| client(u16::try_from(id).expect("small"))).collect()
            }
            2 => entry.lease_epoch += 1,
            3 => entry.labels = format!("version={}", entry.version),
            _ => entry.any_reader = !entry.any_reader,
        }
        entry.lease_ms = *WRITE_LEASE_MS.end();
        entry.limits = Limits { max_iops: 0, max_bytes_per_s: self.dice.of(&[0, 1 << 40]) };
        let sqe = self.entry_sqe(opcode::VOLUME_CHMOD, &entry);
        self.change(raw, Life::There(Box::new(entry)), sqe);
    }

    fn delete(&mut self, raw: u16, old: VolumeEntry) {
        let entry = VolumeEntry { version: old.version + 1, term: self.next_term(), deleting: true, ..old };
        let low = u32::try_from(entry.version).expect("small");
        let sqe = Sqe {
            cdw2: low.into(),
            cdw12: u32::from(raw).into(),
            cdw13: entry.generation.into(),
            cdw14: u32::try_from(entry.term).expect("small").into(),
            ..sqe(opcode::VOLUME_DELETE)
        };
        let generation = entry.generation;
        let again = self.dice.one_in(3);
        if self.change(raw, Life::There(Box::new(entry)), sqe) {
            self.oracle.forget(raw, generation);
            // A daemon that heard no answer asks again.
            if again && let Some(cqe) = self.ask(sqe) {
                assert_eq!(refusal(&cqe), None);
            }
        }
    }

    /// A deleted volume's id is free again when LIST no longer shows it.
    fn look_for_the_end(&mut self, raw: u16) {
        let Some(found) = self.list() else { return };
        let Life::There(known) = &self.table[&raw] else { return };
        if !found.contains_key(&raw) {
            let generation = known.generation;
            self.table.insert(raw, Life::Gone(generation));
        }
    }

    pub(super) fn set_map(&mut self) {
        let (term, epoch) = (self.next_term(), self.epoch + 1);
        let map = fleet(epoch, term);
        let mut bytes = map.encode();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let sqe = self.harness.daemon_sqe(opcode::MAP_SET, &bytes);
        self.map_in_doubt = true;
        let Some(cqe) = self.ask(sqe) else { return };
        assert_eq!(refusal(&cqe), None, "a newer map");
        self.map_in_doubt = false;
        (self.term, self.epoch) = (self.term.max(term), epoch);
        self.harness.map_epoch = map.wire_epoch();
    }

    /// The permission table as the SSD tells it.
    pub(super) fn list(&mut self) -> Option<BTreeMap<u16, VolumeEntry>> {
        let bytes = 8 * ENTRY_BYTES;
        let length = u32::try_from(bytes).expect("small");
        let cqe = self.ask(Sqe {
            dptr: KeyedSgl::keyed(0, length, KEY),
            cdw10: (length / 4).into(),
            ..sqe(opcode::VOLUME_LIST)
        })?;
        assert_eq!(refusal(&cqe), None);
        let entries = (0..cqe.dw0.get() as usize).map(|at| {
            let data = self.harness.peek(DAEMON, at);
            let entry = VolumeEntry::decode(data).expect("an entry");
            (entry.vid.get(), entry)
        });
        Some(entries.collect())
    }

    /// Checks the table after a restart. It has every acknowledged change with all fields. A change in doubt
    /// is complete or absent.
    pub(super) fn check_table(&mut self) {
        let found = self.list().expect("the power is steady");
        let in_doubt = self.in_doubt.take();
        for raw in VOLUMES {
            let there = found.get(&raw).map(|entry| Life::There(Box::new(entry.clone())));
            let before = self.table[&raw].clone();
            let wanted = in_doubt.iter().filter(|(id, _)| *id == raw).map(|(_, life)| life.clone());
            let fits = std::iter::once(before.clone()).chain(wanted).find(|life| match (life, &there) {
                (Life::Gone(_), None) => true,
                // A sweep may have ended.
                (Life::There(entry), None) => entry.deleting,
                (life, Some(there)) => life == there,
            });
            let Some(life) = fits else {
                panic!("volume {raw} is {there:?}, and was {before:?} ({in_doubt:?})")
            };
            let next = match (life, there) {
                (Life::There(entry), None) => Life::Gone(entry.generation),
                (life, _) => life,
            };
            // A deletion that has happened is one, whether it was answered or not.
            match (&before, &next) {
                (Life::There(old), Life::There(new)) if new.deleting && !old.deleting => {
                    self.oracle.forget(raw, old.generation);
                }
                (Life::There(old), Life::Gone(_)) => self.oracle.forget(raw, old.generation),
                _ => {}
            }
            if let Life::There(entry) = &next {
                self.term = self.term.max(entry.term);
            }
            self.table.insert(raw, next);
        }
        assert!(found.keys().all(|raw| VOLUMES.contains(raw)), "a volume that was never made");
        self.check_dead_generations();
    }

    /// An id does not live again in a generation that it had.
    fn check_dead_generations(&mut self) {
        for raw in VOLUMES {
            let Life::Gone(generation) = self.table[&raw] else { continue };
            if generation > 0 {
                let entry = VolumeEntry { generation, term: self.term_sent, ..entry(raw) };
                let sqe = self.entry_sqe(opcode::VOLUME_ADD, &entry);
                let cqe = self.ask(sqe).expect("the power is steady");
                assert_eq!(
                    refusal(&cqe),
                    Some(Refusal::StaleVersion),
                    "volume {raw} in generation {generation}"
                );
            }
        }
    }

    /// A term below the highest acknowledged one is refused.
    pub(super) fn check_term(&mut self) {
        let mut stale = sqe(opcode::LEASE_RENEW);
        stale.cdw12 = (*SERVING_LEASE_MS.end()).into();
        stale.cdw14 = u32::try_from(self.term - 1).expect("small").into();
        let cqe = self.ask(stale).expect("the power is steady");
        assert_eq!(refusal(&cqe), Some(Refusal::StaleTerm), "term {} was acknowledged", self.term);
    }

    /// The map is the last acknowledged one, or one in doubt.
    pub(super) fn check_map(&mut self) {
        let cqe = self
            .ask(Sqe { dptr: KeyedSgl::keyed(0, 4096, KEY), cdw10: 1024.into(), ..sqe(opcode::MAP_GET) })
            .expect("the power is steady");
        assert_eq!(refusal(&cqe), None);
        let map = FleetMap::decode(&self.harness.memory[&DAEMON][..cqe.dw0.get() as usize]).expect("a map");
        let newer = self.map_in_doubt && map.epoch == self.epoch + 1;
        assert!(map.epoch == self.epoch || newer, "map {}, not {}", map.epoch, self.epoch);
        (self.epoch, self.map_in_doubt) = (map.epoch, false);
        self.harness.map_epoch = map.wire_epoch();
        self.term = self.term.max(map.term);
    }
}
