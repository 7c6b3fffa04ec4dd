// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A target and its hosts in a test's hand: it carries out the SSD's effects with real bytes, at once or
//! when told to.

mod arbitration;
mod asks;
mod authentication;
mod barriers;
mod campaign;
mod capsules;
mod compare;
mod connect;
mod crash;
mod deadline;
mod events;
mod faults;
mod features;
mod fencing;
mod flush;
mod fuzz;
mod granted_writes;
mod greedy;
mod harness;
mod images;
mod lease;
mod lease_time;
mod logs;
mod map3;
mod media;
mod model;
#[path = "../../testing/mounts.rs"]
mod mounts;
mod moves;
mod numbers;
mod opcodes;
mod oracle;
mod placement;
mod presets;
mod rate;
mod reach;
mod read_write;
mod recovering;
mod refusals;
mod repair;
mod seeds;
mod shrink;
#[path = "../../testing/slow_folder.rs"]
mod slow_folder;
#[path = "../../testing/slow_store.rs"]
mod slow_store;
mod smart_counters;
mod starvation;
mod threads;
mod tombstones;
mod volumes;
mod voting;
mod workers;
mod writers;

pub(crate) use crate::deadline::deadline;
use crate::hosts::Role;
use crate::{Bench, Preset, Ssd, SsdConfig, SsdGuard, SsdMedia, Stats, Worker};
use asks::start_of;
use gnstor_base::controller::{AskId, Controller, Effect, Outcome, PushRole, QueueKey, Reply, TransferId};
use gnstor_base::region::{HostRegion, LocalRef};
use gnstor_base::time::{Span, Time};
use gnstor_flash::{Faults, Fetch, PageState, Ppa};
use gnstor_ftl::{Extent, LayerStats};
use gnstor_proto::checksum::block_sum;
use gnstor_proto::fabrics::{
    CNTLID_ANY, CmRequest, ConnectData, ConnectFields, Identity, PropertyFields, command, fctype, property,
    ssd_subnqn,
};
use gnstor_proto::nvme::{Cqe, FLAGS_SGL, KeyedSgl, ReadWrite, Sqe, admin, io};
use gnstor_proto::placement::{AnyMap, FleetMap, Rows};
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

/// An answer whose parts are in flight.
#[derive(Default)]
struct Answering {
    left: u32,
    bytes: u32,
    reply: Option<Reply>,
    failure: Option<Outcome>,
    is_orphan: bool,
}

/// Workers of every tested SSD. The key of a queue determines its worker.
const WORKERS: usize = 3;

struct Harness {
    workers: Vec<Worker>,
    now: Time,
    memory: BTreeMap<QueueKey, Vec<u8>>,
    completions: Vec<Completion>,
    closed: Vec<QueueKey>,
    /// Queues whose hosts were admitted, and who they are.
    admitted: Vec<(QueueKey, Identity)>,
    /// Transfers are kept in `held` instead of being carried out.
    hold: bool,
    held: Vec<Effect>,
    /// What was pushed, and to which queue, if the test asks for it.
    pushed: Option<Vec<(QueueKey, Vec<u8>)>>,
    /// Questions to other SSDs.
    asked: Vec<(AskId, u16, LocalRef)>,
    /// Answers under way, by queue and transfer.
    answers: BTreeMap<(QueueKey, u32), Answering>,
    regions: Vec<Arc<HostRegion>>,
    /// Frames of an SSD without content.
    all_frames: u32,
    faults: Arc<Faults>,
    next_cid: u16,
    sequence: u64,
    map_epoch: u32,
    /// Ends the process if the test hangs.
    _deadline: crate::deadline::Deadline,
}

fn worker_of(key: QueueKey) -> usize {
    key.0 as usize % WORKERS
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
        unsettled: false,
        lease_epoch: LEASE,
        lease_ms: 10_000,
        request_ids: Vec::new(),
        limits: Limits::default(),
        salvaged_s: 0,
    }
}

/// A block whose content follows from `tag`.
fn block(tag: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    for (i, word) in (0u64..).zip(bytes.chunks_exact_mut(8)) {
        word.copy_from_slice(&(tag * 1_000_003 + i).to_le_bytes());
    }
    bytes
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

#[test]
fn an_ssd_may_be_switched_off_with_commands_in_flight() {
    let mut harness = Harness::new();
    harness.hold = true;
    let sqe = harness.io(io::WRITE, WRITER, 0, 4);
    harness.submit(WRITER, sqe);
    assert_eq!(harness.in_flight(), 1);
}
