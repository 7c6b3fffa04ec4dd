// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of the daemon and of clients for a harness's SSD.

use super::*;

/// What a Get Log Page reads: `dwords` from byte `offset` on.
#[derive(Clone, Copy)]
pub(super) struct LogRead {
    page: u8,
    offset: u32,
    dwords: u32,
    retain: bool,
}

/// The first `dwords` of a log page. The events that the page tells of are cleared.
pub(super) fn start_of(page: u8, dwords: u32) -> LogRead {
    LogRead { page, offset: 0, dwords, retain: false }
}

impl LogRead {
    pub(super) fn at(self, offset: u32) -> Self {
        Self { offset, ..self }
    }

    /// The events are kept.
    pub(super) fn retained(self) -> Self {
        Self { retain: true, ..self }
    }
}

impl Harness {
    pub(super) fn open_queue(&mut self, now: Time, key: QueueKey, request: &CmRequest) -> Result<(), u16> {
        self.worker(key).open_queue(now, key, request)
    }

    pub(super) fn capsule(&mut self, now: Time, key: QueueKey, sqe: &Sqe) {
        self.worker(key).submit(now, key, sqe);
    }

    pub(super) fn open(&mut self, key: QueueKey, qid: u16, entries: u16) {
        let request = CmRequest {
            qid: qid.into(),
            hrqsize: entries.into(),
            hsqsize_z: (entries - 1).into(),
            ..Default::default()
        };
        self.open_queue(self.now, key, &request).unwrap();
        self.memory.insert(key, vec![0; HOST_BYTES]);
    }

    pub(super) fn connect(&mut self, key: QueueKey, qid: u16, identity: Identity, cntlid: u16) -> Cqe {
        self.open(key, qid, 64);
        let data = ConnectData::new(identity, cntlid, &ssd_subnqn(self.ssd().config().index));
        self.connect_with(
            key,
            ConnectFields { qid: qid.into(), sqsize_z: 63.into(), ..Default::default() },
            &data,
        )
    }

    pub(super) fn connect_with(&mut self, key: QueueKey, fields: ConnectFields, data: &ConnectData) -> Cqe {
        self.poke(key, 0, data.as_bytes());
        let mut sqe = command(fctype::CONNECT, &fields);
        sqe.dptr = KeyedSgl::keyed(0, 1024, KEY);
        self.run(key, sqe)
    }

    pub(super) fn enable(&mut self, admin: QueueKey) {
        let fields = PropertyFields {
            offset: property::CC.into(),
            value: property::CC_ENABLE.into(),
            ..Default::default()
        };
        assert_eq!(refusal(&self.run(admin, command(fctype::PROPERTY_SET, &fields))), None);
    }

    pub(super) fn poke(&mut self, key: QueueKey, at: usize, bytes: &[u8]) {
        self.memory.get_mut(&key).unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn peek(&self, key: QueueKey, block: usize) -> &[u8] {
        &self.memory[&key][block * BLOCK..(block + 1) * BLOCK]
    }

    /// Submits a command; its id.
    pub(super) fn submit(&mut self, key: QueueKey, mut sqe: Sqe) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = self.next_cid.into();
        self.capsule(self.now, key, &sqe);
        self.pump();
        self.next_cid
    }

    pub(super) fn run(&mut self, key: QueueKey, sqe: Sqe) -> Cqe {
        let cid = self.submit(key, sqe);
        self.take(key, cid).expect("the command completes at once")
    }

    /// Takes the completion of a command, if it is there.
    pub(super) fn take(&mut self, key: QueueKey, cid: u16) -> Option<Cqe> {
        let at = self.completions.iter().position(|c| c.queue == key && c.cqe.cid.get() == cid)?;
        Some(self.completions.remove(at).cqe)
    }

    /// A log page as the host of `key` gets it.
    pub(super) fn log(&mut self, key: QueueKey, read: LogRead) -> Result<Vec<u8>, Refusal> {
        let LogRead { page, offset, dwords, retain } = read;
        let cqe = self.run(key, log_sqe(page, offset, dwords, retain));
        match refusal(&cqe) {
            None => Ok(self.memory[&key][..dwords as usize * 4].to_vec()),
            Some(refusal) => Err(refusal),
        }
    }

    pub(super) fn set_map(&mut self, map: &(impl Rows + Clone + Into<AnyMap>)) -> Cqe {
        self.map_epoch = map.wire_epoch();
        let any: AnyMap = map.clone().into();
        let mut bytes = any.encode().expect("a map");
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.daemon_out(opcode::MAP_SET, &bytes)
    }

    pub(super) fn daemon_out(&mut self, opcode: u8, bytes: &[u8]) -> Cqe {
        let sqe = self.daemon_sqe(opcode, bytes);
        self.run(DAEMON, sqe)
    }

    pub(super) fn daemon_sqe(&mut self, opcode: u8, bytes: &[u8]) -> Sqe {
        self.poke(DAEMON, 0, bytes);
        let length = u32::try_from(bytes.len()).unwrap();
        Sqe { dptr: KeyedSgl::keyed(0, length, KEY), cdw10: (length / 4).into(), ..sqe(opcode) }
    }

    pub(super) fn volume_command(&mut self, opcode: u8, entry: &VolumeEntry) -> Cqe {
        self.daemon_out(opcode, entry.encode().as_bytes())
    }

    pub(super) fn chmod(&mut self, change: impl FnOnce(&mut VolumeEntry)) -> u16 {
        let mut next = self.ssd().table.volume(vid(VOLUME)).unwrap().entry().clone();
        next.version += 1;
        change(&mut next);
        let sqe = self.daemon_sqe(opcode::VOLUME_CHMOD, next.encode().as_bytes());
        let (held, hold) = (std::mem::take(&mut self.held), std::mem::replace(&mut self.hold, false));
        let cid = self.submit(DAEMON, sqe);
        (self.held, self.hold) = (held, hold);
        cid
    }

    pub(super) fn delete_sqe(generation: u32, version: u64) -> Sqe {
        let low = u32::try_from(version).unwrap();
        Sqe {
            cdw2: low.into(),
            cdw12: u32::from(VOLUME).into(),
            cdw13: generation.into(),
            cdw14: 1.into(),
            ..sqe(opcode::VOLUME_DELETE)
        }
    }

    /// A read or write of [`VOLUME`] by the client of `key`, with a fresh stamp and the host's memory at
    /// block 0.
    pub(super) fn io(&mut self, opcode: u8, key: QueueKey, vba: u32, blocks: u32) -> Sqe {
        self.sequence += 1;
        let mut sqe = sqe(opcode);
        let address =
            Address { vid: vid(VOLUME), client: client(u16::try_from(key.0 / 10).unwrap().max(1)), vba };
        ReadWrite {
            slba: Slba::pack(address),
            blocks,
            fua: false,
            map_epoch: self.map_epoch,
            stamp: Stamp { lease_epoch: LEASE, sequence: self.sequence },
        }
        .encode(&mut sqe);
        if opcode != io::WRITE_ZEROES {
            sqe.dptr = KeyedSgl::keyed(0, blocks * 4096, KEY);
        }
        sqe
    }

    pub(super) fn write(&mut self, vba: u32, tags: &[u64]) -> Cqe {
        for (index, &tag) in tags.iter().enumerate() {
            self.poke(WRITER, index * BLOCK, &block(tag));
        }
        let sqe = self.io(io::WRITE, WRITER, vba, u32::try_from(tags.len()).unwrap());
        self.run(WRITER, sqe)
    }

    pub(super) fn read(&mut self, vba: u32) -> Vec<u8> {
        let sqe = self.io(io::READ, WRITER, vba, 1);
        assert_eq!(refusal(&self.run(WRITER, sqe)), None);
        self.peek(WRITER, 0).to_vec()
    }

    /// The refusal that a command on `key` meets.
    pub(super) fn refused(&mut self, key: QueueKey, sqe: Sqe) -> Option<Refusal> {
        let cqe = self.run(key, sqe);
        refusal(&cqe)
    }
}
