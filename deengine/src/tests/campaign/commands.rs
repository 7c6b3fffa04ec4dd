// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random commands of the campaign, and their data.

use super::*;

impl Campaign {
    /// Puts something at the start of a host's memory that its next command may mean.
    pub(super) fn fill(&mut self, key: QueueKey) {
        if !self.harness.memory.contains_key(&key) {
            return;
        }
        let mut data = match self.dice.below(5) {
            0 => {
                let mut entry = entry(self.dice.of(&[VOLUME, 6, 7]));
                entry.version = self.dice.below(20);
                entry.generation = self.dice.small(4);
                entry.any_reader = self.dice.one_in(2);
                let limits = Limits { max_iops: self.dice.small(2) * 500, max_bytes_per_s: 0 };
                VolumeEntry { limits, ..entry }.encode().as_bytes().to_vec()
            }
            1 => FleetMap::equal(1, 64, 7, 1).expect("a map").encode(),
            2 => {
                let identity = self.dice.of(&[
                    Identity::Daemon,
                    Identity::Client(client(7)),
                    Identity::Client(client(8)),
                ]);
                let cntlid = self.dice.of(&[CNTLID_ANY, 1, 2, 3, 4, 5]);
                ConnectData::new(identity, cntlid, &ssd_subnqn(0)).as_bytes().to_vec()
            }
            3 => {
                let address = Address { vid: vid(VOLUME), client: client(7), vba: self.dice.small(64) };
                let mut range = vec![0; 4];
                range.extend_from_slice(&self.dice.small(20).to_le_bytes());
                range.extend_from_slice(&Slba::pack(address).0.to_le_bytes());
                range
            }
            _ => (0..512).flat_map(|_| self.dice.roll().to_le_bytes()).collect(),
        };
        if self.dice.one_in(6) {
            let bit = usize::try_from(self.dice.below(data.len() as u64 * 8)).expect("short");
            data[bit / 8] ^= 1 << (bit % 8);
        }
        self.harness.poke(key, 0, &data);
    }

    /// A command, and whether it is for an admin queue.
    pub(super) fn command(&mut self, key: QueueKey) -> (Sqe, bool) {
        let blocks = self.dice.of(&[1u32, 1, 2, 4, 16]);
        // Mostly within a chunk.
        let vba = self.dice.small(40) / blocks * blocks + u32::from(self.dice.one_in(30));
        let kind = self.dice.below(10);
        let mut sqe = match kind {
            0..4 => self.read_or_write(key, vba, blocks),
            4 => {
                let mut sqe = self.harness.io(io::DATASET_MANAGEMENT, key, vba, 1);
                sqe.dptr = KeyedSgl::keyed(0, 16, KEY);
                (sqe.cdw10, sqe.cdw11) = (0.into(), 4.into());
                sqe
            }
            5 => {
                let page = self.dice.of(&[0, 1, 2, 3, 4, 5, 0xC0, 0xC1, 0x70]);
                log_sqe(page, self.dice.small(300) * 2, self.dice.small(1024) + 1, self.dice.one_in(2))
            }
            6 => self.feature(),
            7 => self.fabrics(),
            8 => self.vendor(),
            _ => self.other(),
        };
        self.bend(&mut sqe);
        let is_flush = sqe.opcode == io::FLUSH;
        (sqe, kind > 4 && !is_flush)
    }

    fn read_or_write(&mut self, key: QueueKey, vba: u32, blocks: u32) -> Sqe {
        let opcode = self.dice.of(&[io::READ, io::WRITE, io::WRITE_ZEROES, io::COMPARE]);
        let mut sqe = self.harness.io(opcode, key, vba, blocks);
        if self.dice.one_in(3) {
            sqe.cdw11 = (6 << 16 | sqe.cdw11.get() & 0xFFFF).into();
        }
        sqe
    }

    fn feature(&mut self) -> Sqe {
        Sqe {
            cdw10: (self.dice.of(&[1, 2, 4, 5, 6, 7, 0xB, 0xF, 0x81]) | self.dice.small(4) << 8).into(),
            cdw11: self.dice.of(&[0u32, 1, 5, 313, 1 << 16, 0x31F, 500]).into(),
            dptr: KeyedSgl::keyed(0, 16, KEY),
            ..sqe(self.dice.of(&[admin::SET_FEATURES, admin::GET_FEATURES]))
        }
    }

    /// A Fabrics command.
    fn fabrics(&mut self) -> Sqe {
        let fields = ConnectFields { sqsize_z: 15.into(), cattr: 2, ..Default::default() };
        let property = PropertyFields {
            attrib: self.dice.small(2).to_le_bytes()[0],
            offset: self.dice.of(&[property::CAP, property::CC, property::CSTS]).into(),
            value: self.dice.of(&[0u64, 1, 1 | 1 << 11, 1 | 2 << 11]).into(),
            ..Default::default()
        };
        match self.dice.below(8) {
            0 => command(fctype::DISCONNECT, &property),
            1..3 => {
                let mut sqe = command(fctype::CONNECT, &fields);
                sqe.dptr = KeyedSgl::keyed(0, 1024, KEY);
                sqe
            }
            3 => command(fctype::PROPERTY_SET, &property),
            _ => command(fctype::PROPERTY_GET, &property),
        }
    }

    /// A command of the daemon.
    fn vendor(&mut self) -> Sqe {
        let code = self.dice.of(&[
            opcode::VOLUME_ADD,
            opcode::VOLUME_LIST,
            opcode::VOLUME_DELETE,
            opcode::VOLUME_CHMOD,
            opcode::LEASE_RENEW,
            opcode::MAP_SET,
            opcode::MAP_GET,
        ]);
        // Most leases are long and most volumes live on, or little else would happen.
        let long = code == opcode::LEASE_RENEW && !self.dice.one_in(8);
        let harmless = code == opcode::VOLUME_DELETE && !self.dice.one_in(8);
        let cdw12 = if long { *SERVING_LEASE_MS.end() } else { self.dice.of(&[0u32, 5, 6, 7, 400]) };
        Sqe {
            dptr: KeyedSgl::keyed(0, 4096, KEY),
            cdw2: self.dice.small(12).into(),
            cdw10: 1024.into(),
            cdw12: if harmless { 77 } else { cdw12 }.into(),
            cdw13: self.dice.small(4).into(),
            cdw14: 1.into(),
            ..sqe(code)
        }
    }

    fn other(&mut self) -> Sqe {
        let named = self.open.iter().nth(self.dice.small(20) as usize).map_or(0, |&(_, cid)| cid);
        Sqe {
            dptr: KeyedSgl::keyed(0, 4096, KEY),
            cdw10: (u32::from(named) << 16 | self.dice.small(2)).into(),
            ..sqe(self.dice.of(&[
                admin::IDENTIFY,
                admin::ABORT,
                admin::ASYNC_EVENT_REQUEST,
                admin::KEEP_ALIVE,
                io::FLUSH,
            ]))
        }
    }

    /// Flips bits now and then.
    pub(super) fn bend(&mut self, sqe: &mut Sqe) {
        if self.dice.one_in(20) {
            let bytes: Vec<u8> = (0..8).flat_map(|_| self.dice.roll().to_le_bytes()).collect();
            *sqe = Sqe::read_from_bytes(&bytes).expect("64 bytes");
        } else if self.dice.one_in(5) {
            for _ in 0..=self.dice.below(3) {
                let bit = usize::try_from(self.dice.below(512)).expect("small");
                sqe.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
