// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target and its hosts in a test's hand: it carries out the SSD's effects with real bytes, at once or when told to.

mod arbitration;
mod campaign;
mod capsules;
mod compare;
mod connect;
mod cores;
mod crash;
mod events;
mod faults;
mod features;
mod fencing;
mod fuzz;
mod lease;
mod logs;
mod media;
mod model;
mod odometer;
mod oracle;
mod presets;
mod rate;
mod reach;
mod read_write;
mod refusals;
mod shrink;
mod tombstones;
mod volumes;
mod writers;

use crate::hosts::Role;
use crate::{Bench, Core, Preset, Ssd, SsdConfig, SsdGuard, SsdMedia, Stats};
use gnstor_fabric::controller::{Controller, Effect, Outcome, PushRole, QueueKey, Reply, TransferId};
use gnstor_fabric::region::HostRegion;
use gnstor_fabric::time::{Span, Time};
use gnstor_flash::{Faults, Fetch, PageState, Ppa};
use gnstor_ftl::{Extent, LayerStats};
use gnstor_proto::checksum::block_sum;
use gnstor_proto::fabrics::{
    CNTLID_ANY, CmRequest, ConnectData, ConnectFields, Identity, PropertyFields, command, fctype, property, ssd_subnqn,
};
use gnstor_proto::nvme::{Cqe, FLAGS_SGL, KeyedSgl, ReadWrite, Sqe, admin, io};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::slba::{Address, ClientId, Slba, Stamp, Vid};
use gnstor_proto::status::{Detail, Refusal, Status};
use gnstor_proto::vendor::{Limits, VolumeEntry, opcode};
use std::collections::BTreeMap;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The key under which every host's memory is registered.
const KEY: u32 = 0xC0DE;
const HOST_BYTES: usize = 2 << 20;
const BLOCK: usize = 4096;
const DAEMON: QueueKey = QueueKey(1);
/// I/O queues of the clients 7 (writer), 8 (reader), 9 (neither).
const WRITER: QueueKey = QueueKey(71);
const READER: QueueKey = QueueKey(81);
const STRANGER: QueueKey = QueueKey(91);
const VOLUME: u16 = 5;
const LEASE: u32 = 3;

struct Completion {
    queue: QueueKey,
    cqe: Cqe,
    at: Time,
    pushed_bytes: u32,
}

/// An answer whose parts are under way.
#[derive(Default)]
struct Answering {
    left: u32,
    bytes: u32,
    reply: Option<Reply>,
    failure: Option<Outcome>,
    is_orphan: bool,
}

/// Cores of every SSD tested: each queue is on one of them, by its key.
const CORES: usize = 3;

struct Rig {
    cores: Vec<Core>,
    now: Time,
    memory: BTreeMap<QueueKey, Vec<u8>>,
    completions: Vec<Completion>,
    closed: Vec<QueueKey>,
    /// Transfers are kept in `held` instead of being carried out.
    hold: bool,
    held: Vec<Effect>,
    /// Answers under way, by queue and transfer.
    answers: BTreeMap<(QueueKey, u32), Answering>,
    regions: Vec<Arc<HostRegion>>,
    /// Frames of an SSD without content.
    all_frames: u32,
    faults: Arc<Faults>,
    next_cid: u16,
    sequence: u64,
    map_epoch: u32,
}

fn core_of(key: QueueKey) -> usize {
    key.0 as usize % CORES
}

fn client(raw: u16) -> ClientId {
    ClientId::new(raw).unwrap()
}

fn vid(raw: u16) -> Vid {
    Vid::new(raw).unwrap()
}

fn entry(raw_vid: u16) -> VolumeEntry {
    VolumeEntry {
        vid: vid(raw_vid),
        generation: 1,
        version: 1,
        term: 1,
        deleting: false,
        name: format!("volume {raw_vid}"),
        labels: String::new(),
        capacity_blocks: 512,
        replicas: 1,
        chunk_shift: 4,
        factor: 42,
        owner: client(7),
        any_reader: false,
        readers: vec![client(8)],
        writer: Some(client(7)),
        lease_epoch: LEASE,
        lease_ms: 10_000,
        request_ids: Vec::new(),
        limits: Limits::default(),
    }
}

/// A block whose content follows from a number.
fn block(tag: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8).flat_map(|i| (tag * 1_000_003 + i).to_le_bytes()).collect()
}

fn sqe(opcode: u8) -> Sqe {
    Sqe { opcode, flags: FLAGS_SGL, nsid: 1.into(), ..Sqe::default() }
}

fn log_sqe(page: u8, offset: u32, dwords: u32, retain: bool) -> Sqe {
    let dwords_z = dwords - 1;
    Sqe {
        nsid: u32::MAX.into(),
        dptr: KeyedSgl::keyed(0, dwords * 4, KEY),
        cdw10: (dwords_z << 16 | u32::from(retain) << 15 | u32::from(page)).into(),
        cdw11: (dwords_z >> 16).into(),
        cdw12: offset.into(),
        ..sqe(admin::GET_LOG_PAGE)
    }
}

fn refusal(cqe: &Cqe) -> Option<Refusal> {
    let found = Detail::from_dw0(cqe.dw0.get()).refusal();
    let status = Status(cqe.status_word());
    if status.is_success() {
        return None;
    }
    assert_eq!(found.map(Refusal::status), Some(status), "DW0 and status must tell the same");
    found
}

impl Rig {
    /// An SSD without map and volumes, nobody connected.
    fn bare(index: u16, blocks: u64) -> Self {
        Self::bare_as("null", index, blocks)
    }

    fn bare_as(preset: &str, index: u16, blocks: u64) -> Self {
        let preset = Preset::by_name(preset).unwrap();
        let config =
            SsdConfig { index, preset, capacity_bytes: blocks * 4096, serial: "GN0001".into(), media: SsdMedia::Ram };
        let bench = Bench::default();
        Self::around(Ssd::format_with(config, &bench).unwrap(), bench.faults)
    }

    fn around(ssd: Ssd, faults: Arc<Faults>) -> Self {
        let (regions, all_frames) = (ssd.regions(), ssd.ftl.flash().free_frames());
        Self {
            cores: ssd.into_cores(CORES),
            now: Time::from_ns(1000),
            memory: BTreeMap::new(),
            completions: Vec::new(),
            closed: Vec::new(),
            hold: false,
            held: Vec::new(),
            answers: BTreeMap::new(),
            regions,
            all_frames,
            faults,
            next_cid: 0,
            sequence: 0,
            map_epoch: 1,
        }
    }

    fn ssd(&self) -> SsdGuard<'_> {
        self.cores[0].ssd()
    }

    fn in_flight(&self) -> usize {
        self.ssd().in_flight()
    }

    fn stats(&self) -> Stats {
        self.ssd().stats()
    }

    fn layer_stats(&self) -> LayerStats {
        self.ssd().ftl.stats()
    }

    fn waiting(&self) -> usize {
        self.ssd().hosts.waiting()
    }

    fn mapped_blocks(&self) -> u64 {
        self.ssd().mapped_blocks()
    }

    fn free_frames(&self) -> u32 {
        self.ssd().ftl.flash().free_frames()
    }

    fn core(&mut self, key: QueueKey) -> &mut Core {
        &mut self.cores[core_of(key)]
    }

    fn role(&mut self, key: QueueKey) -> Option<Role> {
        let name = self.core(key).name(key)?;
        self.ssd().hosts.queue(name).map(|queue| queue.role)
    }

    fn open_queue(&mut self, now: Time, key: QueueKey, request: &CmRequest) -> Result<(), u16> {
        self.core(key).open_queue(now, key, request)
    }

    fn close_queue(&mut self, now: Time, key: QueueKey) {
        self.drop_responses(key);
        self.core(key).close_queue(now, key);
    }

    /// The queue is gone: nobody gets the responses of its answers, though another of the same name may come.
    fn drop_responses(&mut self, key: QueueKey) {
        let its = self.answers.range_mut((key, 0)..=(key, u32::MAX));
        its.for_each(|(_, answer)| answer.is_orphan = true);
    }

    fn capsule(&mut self, now: Time, key: QueueKey, sqe: &Sqe) {
        self.core(key).submit(now, key, sqe);
    }

    fn pop_effect(&mut self) -> Option<Effect> {
        let mut pop = || self.cores.iter_mut().find_map(Core::pop_effect);
        // What a core is asked about it may answer through one that was asked before it.
        if let Some(effect) = pop().or_else(pop) {
            return Some(effect);
        }
        self.cores.iter_mut().for_each(Core::end_step);
        self.cores.iter_mut().find_map(Core::pop_effect)
    }

    fn step(&mut self, now: Time) {
        self.cores.iter_mut().for_each(|core| core.step(now));
    }

    fn next_event(&self) -> Option<Time> {
        self.cores.iter().filter_map(Core::next_event).min()
    }

    /// The page of a block of [`VOLUME`].
    fn page(&self, vba: u32) -> Ppa {
        let Extent::Page(page, _) = self.ssd().ftl.extent(vid(VOLUME), 1, vba) else {
            panic!("block {vba} was written")
        };
        self.ssd().ftl.unpin(page);
        page
    }

    /// A byte of a stored block changes by itself.
    fn damage(&self, vba: u32) {
        let page = self.page(vba);
        let Fetch::Here(local) = self.ssd().ftl.fetch(page) else { panic!("RAM media") };
        let region = self.regions.iter().find(|region| region.id() == local.region).expect("one of the SSD's");
        let mut byte = [0];
        region.read(local.offset + 17, &mut byte);
        region.write(local.offset + 17, &[!byte[0]]);
    }

    /// No frame is lost: each is free or a page's that is not erased.
    fn frames_are_whole(&self) -> bool {
        let flash = Arc::clone(self.ssd().ftl.flash());
        let pages = u32::try_from(flash.geometry().pages()).expect("a small SSD");
        let owns = |page: &u32| matches!(flash.page(Ppa(*page)), PageState::Buffered(_) | PageState::Programmed(_));
        flash.free_frames() + u32::try_from((0..pages).filter(owns).count()).expect("pages") == self.all_frames
    }

    /// SSD `index`, with the daemon and three clients connected, and no map.
    fn connected(index: u16) -> Self {
        Self::bare(index, 1024).with_clients()
    }

    fn with_clients(self) -> Self {
        let mut rig = self;
        rig.connect(DAEMON, 0, Identity::Daemon, CNTLID_ANY);
        for raw in [7u16, 8, 9] {
            let admin = QueueKey(u32::from(raw) * 10);
            let cqe = rig.connect(admin, 0, Identity::Client(client(raw)), CNTLID_ANY);
            let cntlid = u16::try_from(cqe.dw0.get()).unwrap();
            rig.enable(admin);
            let cqe = rig.connect(QueueKey(admin.0 + 1), 1, Identity::Client(client(raw)), cntlid);
            assert_eq!(refusal(&cqe), None);
        }
        rig
    }

    /// As [`Self::connected`], alone in its array, with [`VOLUME`].
    fn new() -> Self {
        Self::connected(0).with_volume()
    }

    /// As [`Self::new`], with modelled times.
    fn timed() -> Self {
        Self::bare_as("gnstor-980pro", 0, 1024).with_clients().with_volume()
    }

    fn with_volume(self) -> Self {
        let mut rig = self;
        rig.set_map(&FleetMap::equal(1, 64, 7, 1).unwrap());
        assert_eq!(refusal(&rig.volume_command(opcode::VOLUME_ADD, &entry(VOLUME))), None);
        rig
    }

    fn open(&mut self, key: QueueKey, qid: u16, entries: u16) {
        let request = CmRequest {
            qid: qid.into(),
            hrqsize: entries.into(),
            hsqsize_z: (entries - 1).into(),
            ..Default::default()
        };
        self.open_queue(self.now, key, &request).unwrap();
        self.memory.insert(key, vec![0; HOST_BYTES]);
    }

    fn connect(&mut self, key: QueueKey, qid: u16, identity: Identity, cntlid: u16) -> Cqe {
        self.open(key, qid, 64);
        let data = ConnectData::new(identity, cntlid, &ssd_subnqn(self.ssd().config().index));
        self.connect_with(key, ConnectFields { qid: qid.into(), sqsize_z: 63.into(), ..Default::default() }, &data)
    }

    fn connect_with(&mut self, key: QueueKey, fields: ConnectFields, data: &ConnectData) -> Cqe {
        self.poke(key, 0, data.as_bytes());
        let mut sqe = command(fctype::CONNECT, &fields);
        sqe.dptr = KeyedSgl::keyed(0, 1024, KEY);
        self.run(key, sqe)
    }

    fn enable(&mut self, admin: QueueKey) {
        let fields =
            PropertyFields { offset: property::CC.into(), value: property::CC_ENABLE.into(), ..Default::default() };
        assert_eq!(refusal(&self.run(admin, command(fctype::PROPERTY_SET, &fields))), None);
    }

    fn poke(&mut self, key: QueueKey, at: usize, bytes: &[u8]) {
        self.memory.get_mut(&key).unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn peek(&self, key: QueueKey, block: usize) -> &[u8] {
        &self.memory[&key][block * BLOCK..(block + 1) * BLOCK]
    }

    /// Submits a command; its id.
    fn submit(&mut self, key: QueueKey, mut sqe: Sqe) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = self.next_cid.into();
        self.capsule(self.now, key, &sqe);
        self.pump();
        self.next_cid
    }

    fn run(&mut self, key: QueueKey, sqe: Sqe) -> Cqe {
        let cid = self.submit(key, sqe);
        self.take(key, cid).expect("the command completes at once")
    }

    /// The completion of a command, where it is there.
    fn take(&mut self, key: QueueKey, cid: u16) -> Option<Cqe> {
        let at = self.completions.iter().position(|c| c.queue == key && c.cqe.cid.get() == cid)?;
        Some(self.completions.remove(at).cqe)
    }

    fn pump(&mut self) {
        while let Some(effect) = self.pop_effect() {
            if let Effect::Push { transfer, queue, local, role: role @ (PushRole::Part | PushRole::Last(_)), .. } =
                effect
            {
                let answer = self.answers.entry((queue, transfer.0)).or_default();
                answer.left += 1;
                answer.bytes += local.bytes;
                if let PushRole::Last(reply) = role {
                    answer.reply = Some(reply);
                }
            }
            match effect {
                Effect::Complete { queue, cqe, at, pushed_bytes } => {
                    assert!(self.memory.contains_key(&queue), "a completion for a queue that is closed");
                    self.completions.push(Completion { queue, cqe, at, pushed_bytes });
                }
                Effect::Close { queue } => {
                    self.memory.remove(&queue);
                    self.closed.push(queue);
                    self.close_queue(self.now, queue);
                }
                Effect::Pull { .. } | Effect::Push { .. } if self.hold => self.held.push(effect),
                Effect::Pull { .. } | Effect::Push { .. } => self.carry_out(effect),
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let (Effect::Pull { queue, .. } | Effect::Push { queue, .. }) = effect else { panic!("not a transfer") };
        let (transfer, outcome) = self.moved(effect);
        self.answer(queue, transfer, outcome);
    }

    /// A transfer has ended, or a part of an answer: when the last one has, and all went well, its host has the response.
    fn answer(&mut self, queue: QueueKey, transfer: TransferId, mut outcome: Outcome) {
        if let Some(answer) = self.answers.get_mut(&(queue, transfer.0)) {
            answer.left -= 1;
            if !matches!(outcome, Outcome::Done { .. }) {
                answer.failure.get_or_insert(outcome);
            }
            // The others are still to come.
            let (0, Some(reply)) = (answer.left, answer.reply) else { return };
            let (bytes, failure, is_orphan) = (answer.bytes, answer.failure, answer.is_orphan);
            self.answers.remove(&(queue, transfer.0));
            outcome = failure.unwrap_or(Outcome::Done { sum: 0 });
            if failure.is_none() && !is_orphan {
                let Reply { cqe, at } = reply;
                self.completions.push(Completion { queue, cqe, at, pushed_bytes: bytes });
            }
        }
        let now = self.now;
        self.core(queue).transferred(now, transfer, outcome);
        self.pump();
    }

    /// Carries out what was held, in the order given by `pick` among what is left.
    fn release(&mut self, mut pick: impl FnMut(usize) -> usize) {
        self.hold = false;
        while !self.held.is_empty() {
            let at = pick(self.held.len());
            let effect = self.held.remove(at);
            self.carry_out(effect);
        }
    }

    fn moved(&mut self, effect: Effect) -> (TransferId, Outcome) {
        let (transfer, queue, remote, local) = match effect {
            Effect::Pull { transfer, queue, remote, local } | Effect::Push { transfer, queue, remote, local, .. } => {
                (transfer, queue, remote, local)
            }
            Effect::Complete { .. } | Effect::Close { .. } => panic!("not a transfer"),
        };
        let Some(memory) = self.memory.get_mut(&queue) else { return (transfer, Outcome::ConnectionLost) };
        let from = usize::try_from(remote.address).unwrap_or(usize::MAX);
        let range = from..from.saturating_add(local.bytes as usize);
        let Some(bytes) = memory.get_mut(range).filter(|_| remote.key == KEY) else {
            return (transfer, Outcome::RemoteAccess);
        };
        let region = self.regions.iter().find(|region| region.id() == local.region).expect("one of the SSD's");
        let sum_of = |bytes: &[u8]| if bytes.len() == BLOCK { block_sum(bytes) } else { 0 };
        match effect {
            Effect::Pull { .. } => {
                region.write(local.offset, bytes);
                (transfer, Outcome::Done { sum: sum_of(bytes) })
            }
            Effect::Push { sum, .. } => {
                let mut data = vec![0; local.bytes as usize];
                region.read(local.offset, &mut data);
                let real = sum_of(&data);
                if sum.is_some_and(|sum| sum != real) {
                    return (transfer, Outcome::BadChecksum);
                }
                bytes.copy_from_slice(&data);
                (transfer, Outcome::Done { sum: real })
            }
            Effect::Complete { .. } | Effect::Close { .. } => panic!("not a transfer"),
        }
    }

    fn advance(&mut self, span: Span) {
        self.now = self.now + span;
        self.step(self.now);
        self.pump();
    }

    /// Steps until the SSD has nothing more to do before `end`.
    fn step_to(&mut self, end: Time) {
        while let Some(at) = self.next_event().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.step(self.now);
            self.pump();
        }
        self.now = end;
    }

    /// A log page as the host of `key` gets it: `dwords` from `offset` on.
    fn log(&mut self, key: QueueKey, page: u8, offset: u32, dwords: u32, retain: bool) -> Result<Vec<u8>, Refusal> {
        let cqe = self.run(key, log_sqe(page, offset, dwords, retain));
        match refusal(&cqe) {
            None => Ok(self.memory[&key][..dwords as usize * 4].to_vec()),
            Some(refusal) => Err(refusal),
        }
    }

    fn set_map(&mut self, map: &FleetMap) -> Cqe {
        self.map_epoch = map.wire_epoch();
        let mut bytes = map.encode();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.daemon_out(opcode::MAP_SET, &bytes)
    }

    fn daemon_out(&mut self, opcode: u8, bytes: &[u8]) -> Cqe {
        let sqe = self.daemon_sqe(opcode, bytes);
        self.run(DAEMON, sqe)
    }

    fn daemon_sqe(&mut self, opcode: u8, bytes: &[u8]) -> Sqe {
        self.poke(DAEMON, 0, bytes);
        let length = u32::try_from(bytes.len()).unwrap();
        Sqe { dptr: KeyedSgl::keyed(0, length, KEY), cdw10: (length / 4).into(), ..sqe(opcode) }
    }

    fn volume_command(&mut self, opcode: u8, entry: &VolumeEntry) -> Cqe {
        self.daemon_out(opcode, entry.encode().as_bytes())
    }

    fn chmod(&mut self, change: impl FnOnce(&mut VolumeEntry)) -> u16 {
        let mut next = self.ssd().table.volume(vid(VOLUME)).unwrap().entry().clone();
        next.version += 1;
        change(&mut next);
        let sqe = self.daemon_sqe(opcode::VOLUME_CHMOD, next.encode().as_bytes());
        let (held, hold) = (std::mem::take(&mut self.held), std::mem::replace(&mut self.hold, false));
        let cid = self.submit(DAEMON, sqe);
        (self.held, self.hold) = (held, hold);
        cid
    }

    fn delete_sqe(generation: u32, version: u64) -> Sqe {
        let low = u32::try_from(version).unwrap();
        Sqe {
            cdw2: low.into(),
            cdw12: u32::from(VOLUME).into(),
            cdw13: generation.into(),
            cdw14: 1.into(),
            ..sqe(opcode::VOLUME_DELETE)
        }
    }

    /// A read or write of [`VOLUME`] by the client of `key`, with a fresh stamp and the host's memory at block 0.
    fn io(&mut self, opcode: u8, key: QueueKey, vba: u32, blocks: u32) -> Sqe {
        self.sequence += 1;
        let mut sqe = sqe(opcode);
        let address = Address { vid: vid(VOLUME), client: client(u16::try_from(key.0 / 10).unwrap().max(1)), vba };
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

    fn write(&mut self, vba: u32, tags: &[u64]) -> Cqe {
        for (index, &tag) in tags.iter().enumerate() {
            self.poke(WRITER, index * BLOCK, &block(tag));
        }
        let sqe = self.io(io::WRITE, WRITER, vba, u32::try_from(tags.len()).unwrap());
        self.run(WRITER, sqe)
    }

    fn read(&mut self, vba: u32) -> Vec<u8> {
        let sqe = self.io(io::READ, WRITER, vba, 1);
        assert_eq!(refusal(&self.run(WRITER, sqe)), None);
        self.peek(WRITER, 0).to_vec()
    }

    /// The refusal that a command on `key` meets.
    fn refused(&mut self, key: QueueKey, sqe: Sqe) -> Option<Refusal> {
        let cqe = self.run(key, sqe);
        refusal(&cqe)
    }
}

#[test]
fn an_ssd_may_be_switched_off_with_commands_in_flight() {
    let mut rig = Rig::new();
    rig.hold = true;
    let sqe = rig.io(io::WRITE, WRITER, 0, 4);
    rig.submit(WRITER, sqe);
    assert_eq!(rig.in_flight(), 1);
}
