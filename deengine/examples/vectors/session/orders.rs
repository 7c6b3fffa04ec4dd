// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that the session draws for the daemon.

use super::*;

const ARRAY: [u8; 16] = [3; 16];
/// An array that differs in the last byte of its id.
const OTHER: [u8; 16] = [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4];

impl Session {
    /// A command of the daemon's.
    pub(super) fn order(&mut self) -> Op {
        match self.dice.below(24) {
            0..9 => self.change(),
            9..11 => self.delete(),
            11..13 => self.add(),
            13..15 => {
                self.lease_version += u64::from(!self.dice.one_in(4));
                let odd = self.dice.one_in(6);
                let ms = if odd { self.dice.of(&[0u32, 0, 1, 9, 10, 60_001]) } else { 60_000 };
                let sqe = Sqe { cdw12: ms.into(), ..vendor(opcode::LEASE_RENEW, 0) };
                let term = u64::from(!self.dice.one_in(20));
                self.admin(DAEMON, versioned(sqe, self.lease_version, term), Vec::new());
            }
            15..18 => self.change_map(),
            18..20 => {
                let (first, tombstones) =
                    (self.dice.of(&[0u32, 2, 5, 0x0100, 0x0001_0003]), self.dice.below(2));
                let bytes = self.dice.of(&[4096u32, 8192, 192, 4]);
                let sqe = Sqe {
                    cdw12: first.into(),
                    cdw13: tombstones.into(),
                    ..vendor(opcode::VOLUME_LIST, bytes)
                };
                self.admin(DAEMON, sqe, Vec::new());
            }
            20 => {
                let bytes = self.dice.of(&[4u32, 4096, 8192]);
                self.admin(DAEMON, vendor(opcode::MAP_GET, bytes), Vec::new());
            }
            _ => self.bent_order(),
        }
        self.due.pop_front().expect("just put in")
    }

    /// CHMOD of a volume.
    fn change(&mut self) {
        let at = self.dice.index(self.volumes.len());
        let mut entry = drawn_entry(&mut self.dice, self.volumes[at].vid.get());
        let old = &self.volumes[at];
        (entry.generation, entry.replicas) = (old.generation, old.replicas);
        (entry.chunk_shift, entry.factor) = (old.chunk_shift, old.factor);
        entry.version = old.version + u64::from(!self.dice.one_in(12));
        entry.lease_epoch = old.lease_epoch + u32::from(entry.writer != old.writer);
        entry.capacity_blocks = old.capacity_blocks + u64::from(self.dice.below(2));
        let is_refused = self.dice.one_in(20);
        if is_refused {
            entry.lease_ms = self.dice.of(&[1u32, 99, 3_600_001, u32::MAX]);
        }
        self.order_bytes(opcode::VOLUME_CHMOD, entry.encode().as_bytes());
        if entry.version > self.volumes[at].version && !is_refused {
            self.volumes[at] = entry;
        }
    }

    fn delete(&mut self) {
        let at = self.dice.index(self.volumes.len());
        let entry = &mut self.volumes[at];
        entry.version += 1;
        let (vid, generation, version) = (entry.vid.get(), entry.generation, entry.version);
        let generation = if self.dice.one_in(6) { generation.wrapping_add(1) } else { generation };
        let sqe = Sqe {
            cdw12: u32::from(vid).into(),
            cdw13: generation.into(),
            ..vendor(opcode::VOLUME_DELETE, 0)
        };
        self.admin(DAEMON, versioned(sqe, version, 1), Vec::new());
        // Mostly the volume comes back at once or a little later.
        if !self.dice.one_in(3) {
            self.now_ns += u64::from(self.dice.below(1_000_000));
            self.due.push_back(Op::Tick { now_ns: self.now_ns });
            self.revive(at);
        }
    }

    fn add(&mut self) {
        let at = self.dice.index(self.volumes.len());
        self.revive(at);
    }

    /// ADD, mostly of the next generation.
    fn revive(&mut self, at: usize) {
        let old = &self.volumes[at];
        let step = u32::from(!self.dice.one_in(4));
        let (generation, version, lease_epoch) = (old.generation + step, old.version + 1, old.lease_epoch);
        let mut entry = drawn_entry(&mut self.dice, old.vid.get());
        (entry.generation, entry.version, entry.lease_epoch) = (generation, version, lease_epoch);
        self.order_bytes(opcode::VOLUME_ADD, entry.encode().as_bytes());
        self.volumes[at] = entry;
    }

    fn change_map(&mut self) {
        let count = self.map.ssds.len();
        let mut map = if self.dice.one_in(3) && count > 1 {
            self.map.without(u16::try_from(self.dice.index(count)).expect("few"))
        } else {
            self.drawn_map(count)
        };
        // No map without any SSD that is in: nothing would be served any more.
        if map.ssds.iter().filter(|ssd| ssd.state == SsdState::In).count() < 2 {
            map = self.drawn_map(count);
        }
        map.epoch = self.map.epoch + 1;
        if self.dice.one_in(6) {
            map.epoch = self.map.epoch - 1;
        }
        let is_newer = map.epoch > self.map.epoch;
        // After a map of format 3 the SSD refuses maps of format 2 and of other arrays.
        let is_two = if self.is_three { self.dice.one_in(12) } else { self.dice.one_in(2) };
        let is_foreign = self.is_three && (is_two || self.dice.one_in(12));
        let is_taken = is_newer && !is_foreign;
        let array = if is_foreign { OTHER } else { ARRAY };
        let bytes = if is_two { map.encode() } else { self.as_three(&map, array, is_taken) };
        if is_taken {
            self.map = map;
            self.is_three |= !is_two;
        }
        self.order_bytes(opcode::MAP_SET, &bytes);
    }

    /// The map in format 3.
    fn as_three(&mut self, map: &FleetMap, array: [u8; 16], is_taken: bool) -> Vec<u8> {
        let three = drawn_map3::drawn(&mut self.dice, map, array, self.id, self.incarnation);
        let own = &three.ssds[usize::from(self.id)];
        let ends = own.state == State3::Out && own.incarnation == self.incarnation && own.uuid == [0; 16];
        self.incarnation += u32::from(is_taken && ends);
        three.encode().expect("a map")
    }

    /// Mostly of few groups: many SSDs and many groups take long to draw.
    fn drawn_map(&mut self, ssds: usize) -> FleetMap {
        let groups = self.dice.of(&[1u32, 8, 8, 64]);
        FleetMap::equal(ssds, groups, self.dice.roll(), 1).expect("a map")
    }

    /// An order that is wrong in some way.
    fn bent_order(&mut self) {
        let entry = self.volume();
        let code = self.dice.of(&[opcode::VOLUME_ADD, opcode::VOLUME_CHMOD]);
        match self.dice.below(5) {
            0 => {
                let mut raw = entry.encode();
                let bit = self.dice.index(4096 * 8);
                raw.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
                self.order_bytes(code, raw.as_bytes());
            }
            1 => {
                // Fields of the head, under a right checksum; not the last ones, which limit rates.
                let at = 6 + self.dice.index(66);
                let value = self.dice.byte();
                let raw = bent(&entry, |raw| raw.as_mut_bytes()[at] = value);
                if VolumeEntry::decode(raw.as_bytes()).is_err() {
                    self.order_bytes(code, raw.as_bytes());
                } else {
                    self.due.push_back(Op::State);
                }
            }
            2 => {
                let mut map = self.map.encode();
                let at = self.dice.index(map.len());
                map[at] ^= 1 << self.dice.below(8);
                if self.dice.one_in(2) {
                    let two = self.map.clone();
                    map = self.as_three(&two, ARRAY, false);
                    drawn_map3::bend(&mut self.dice, &mut map);
                }
                self.order_bytes(opcode::MAP_SET, &map);
            }
            3 => {
                let who = self.dice.of(&CLIENTS);
                self.admin(who, vendor(code, 4096), entry.encode().as_bytes().to_vec());
            }
            _ => {
                let mut sqe = vendor(self.dice.of(&crate::device::VENDOR), 4096);
                match self.dice.below(4) {
                    0 => sqe.flags = self.dice.of(&[0, FLAGS_SGL]),
                    1 => sqe.nsid = self.dice.below(3).into(),
                    2 => sqe.dptr = KeyedSgl::keyed(0, self.dice.of(&[4095, 4096, 0]), 1),
                    _ => sqe.cdw10 = self.dice.of(&[0u32, 1, 1024, 1 << 18, u32::MAX]).into(),
                }
                sqe.cdw12 = 0x4321.into();
                self.admin(DAEMON, sqe, Vec::new());
            }
        }
    }
}
