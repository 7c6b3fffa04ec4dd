// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD of one worker. A script acts as its target and its hosts: transfers end when the script says so,
//! and the answers are the effects in bytes.

#[path = "hosts.rs"]
mod hosts;

use crate::op::{DAEMON, Op, Out};
use crate::play::event;
use gnstor_base::controller::{Controller, Effect, Outcome, PushRole, QueueKey, TransferId};
use gnstor_base::region::{HostRegion, LocalRef};
use gnstor_base::time::Time;
use gnstor_deengine::{Preset, Ssd, SsdConfig, SsdMedia, Worker};
use gnstor_proto::checksum::{block_sum, mix};
use gnstor_proto::fabrics::{
    self, CNTLID_ANY, CmRequest, ConnectData, ConnectFields, Identity, PropertyFields, fctype, property,
};
use gnstor_proto::nvme::{Cqe, KeyedSgl, Sqe, io};
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::ClientId;
use gnstor_proto::vendor::opcode;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use zerocopy::IntoBytes;

const BLOCK: usize = 4096;
const ENTRIES_Z: u16 = 1023;
const ADMIN_ENTRIES_Z: u16 = 63;
/// Largest number of calls of `step` at one time. An SSD that wants more never comes to rest.
const PATIENCE: u32 = 10_000;
/// Time at which a script's commands begin. Hosts connect before.
const BEGIN: Time = Time::from_ns(1);
/// Names a command of the driver's own, which is no answer to the script.
const OWN: u32 = u32::MAX;

/// The content that a script writes into a block; content 0 is zeros.
struct Content {
    bytes: Vec<u8>,
    sum: u32,
}

static CONTENTS: LazyLock<Vec<Content>> = LazyLock::new(|| {
    let step = 0x9E37_79B9u32;
    let word = |content: u32, index: u32| mix(content.wrapping_add((index + 1).wrapping_mul(step)));
    (0..256u32)
        .map(|content| {
            let words = (0..1024u32).map(|index| if content == 0 { 0 } else { word(content, index) });
            let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
            let sum = block_sum(&bytes);
            Content { bytes, sum }
        })
        .collect()
});

/// The buckets that a step of a sweep takes on an SSD of this size (`gnstor_ftl`).
pub(crate) fn sweep_buckets(logical_pages: u64) -> u32 {
    let preset = Preset::by_name("null").expect("a preset");
    let words = gnstor_map::Map::words_for(logical_pages, logical_pages).expect("a possible size");
    let journal = (words * 16).max((1 << 20) + u64::from(preset.buffer_pages) * 4096).min(512 << 20);
    u32::try_from((journal.next_multiple_of(4096) / 8 / 1024).clamp(1, 2048)).expect("few buckets")
}

/// The operation that makes an SSD; the emulator has so many pages more, for writes under way.
pub(crate) fn device_op(logical_pages: u64, id: u16, spare: u64, twin: bool) -> Op {
    Op::Device {
        logical_pages,
        pages: logical_pages + spare,
        seed: mix64(0x474E_5374_6F72 ^ u64::from(id)),
        id,
        commands: 256,
        sweep_buckets: sweep_buckets(logical_pages),
        twin,
    }
}

/// A command whose data is in flight.
#[derive(Default)]
struct Open {
    queue: u32,
    cid: u16,
    transfers: Vec<(TransferId, LocalRef)>,
    /// The response, if the transfer is part of a fused one.
    reply: Option<Cqe>,
    is_read: bool,
    is_ranges: bool,
}

/// A client, and whether its queues are bound to it. To the emulator all unbound queues are one, which it
/// calls client 0. Here the client that the command names stands for them.
type Player = (u16, bool);

/// The connections of one client.
struct Host {
    cntlid: u16,
    admin: QueueKey,
    queue: Option<QueueKey>,
    qid: u16,
}

pub(crate) struct Device {
    worker: Worker,
    regions: Vec<Arc<HostRegion>>,
    now: Time,
    daemon: QueueKey,
    hosts: HashMap<Player, Host>,
    next_key: u32,
    open: HashMap<u32, Open>,
    tokens: HashMap<(u32, u16), u32>,
    /// Effects of the current operation.
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    token: u32,
    data: Vec<u8>,
    sums: Vec<u32>,
    wants: u32,
    out: Option<(u32, u32)>,
    is_admin: bool,
    completions: Vec<(u32, Cqe)>,
    closed: Vec<u16>,
}

impl Device {
    pub(crate) fn new(logical_pages: u64, id: u16) -> Self {
        let preset = Preset::by_name("null").expect("a preset");
        let capacity_bytes = logical_pages * BLOCK as u64;
        let config =
            SsdConfig { index: id, preset, capacity_bytes, serial: "VECTORS".into(), media: SsdMedia::Ram };
        let worker = Ssd::format(config).expect("an SSD").into_workers(1).remove(0);
        let regions = worker.regions();
        let mut device = Self {
            worker,
            regions,
            now: BEGIN,
            daemon: QueueKey(0),
            hosts: HashMap::new(),
            next_key: 0,
            open: HashMap::new(),
            tokens: HashMap::new(),
            seen: Seen::default(),
        };
        let (admin, cntlid) = device.connect(Identity::Daemon, 0, CNTLID_ANY);
        device.daemon = admin;
        device.hosts.insert((DAEMON, true), Host { cntlid, admin, queue: None, qid: 0 });
        device
    }

    pub(crate) fn play(&mut self, op: &Op) -> Vec<u8> {
        self.seen = Seen::default();
        match op {
            Op::Command { now_ns, client, token, sqe } => {
                let who = if *client == 0 { (hosts::named_client(sqe), false) } else { (*client, true) };
                // Connect before time advances: work that is due then comes after this command.
                let queue = self.queue_of(who);
                self.go_to(*now_ns);
                self.submit(queue, *token, sqe);
            }
            Op::Admin { now_ns, client, token, sqe, data } => {
                let queue = if *client == DAEMON { self.daemon } else { self.host_of((*client, true)).admin };
                self.go_to(*now_ns);
                self.seen.is_admin = true;
                self.seen.data.clone_from(data);
                self.submit(queue, *token, sqe);
            }
            Op::Data { now_ns, token, failed, bytes } => {
                if self.open.get(token).is_none_or(|open| open.is_read) {
                    return Vec::new();
                }
                self.go_to(*now_ns);
                self.arrive(*token, *failed, bytes);
            }
            Op::Done { now_ns, token, failed } => {
                if self.open.get(token).is_none_or(|open| !open.is_read) {
                    return Vec::new();
                }
                self.go_to(*now_ns);
                self.delivered(*token, *failed);
            }
            Op::Tick { now_ns } => self.go_to(*now_ns),
            Op::Move { .. } => return Vec::new(),
            Op::State => {
                let mut out = Out::default();
                out.u8(event::STATE).u64(self.worker.ssd().mapped_blocks());
                return out.0;
            }
            _ => unreachable!("operations of a map go to the map"),
        }
        self.come_to_rest();
        self.answer()
    }

    fn go_to(&mut self, now_ns: u64) {
        self.now = self.now.max(Time::from_ns(now_ns));
        // All hosts keep their connections alive.
        self.worker.resumed(self.now);
    }

    fn submit(&mut self, queue: QueueKey, token: u32, sqe: &Sqe) {
        let mut sqe = *sqe;
        let [low, high, ..] = token.to_le_bytes();
        let cid = u16::from_le_bytes([low, high]);
        sqe.cid = cid.into();
        self.tokens.insert((queue.0, cid), token);
        self.seen.token = token;
        let is_ranges = sqe.opcode == io::DATASET_MANAGEMENT;
        self.open.insert(token, Open { queue: queue.0, cid, is_ranges, ..Open::default() });
        self.worker.submit(self.now, queue, &sqe);
    }

    fn region(&self, local: &LocalRef) -> &HostRegion {
        self.regions.iter().find(|region| region.id() == local.region).expect("a region of the SSD")
    }

    /// The data of a command has arrived, or has failed to.
    fn arrive(&mut self, token: u32, failed: bool, bytes: &[u8]) {
        let open = self.open.get_mut(&token).expect("looked at");
        // A write has a transfer for each block, a Compare one for all blocks. Ranges are raw bytes.
        let (transfers, is_ranges) = (std::mem::take(&mut open.transfers), open.is_ranges);
        self.seen.token = token;
        let mut contents = bytes.iter().copied().chain(std::iter::repeat(0));
        for (transfer, local) in transfers {
            let outcome = if failed {
                Outcome::RemoteAccess
            } else if is_ranges {
                let mut data = bytes.to_vec();
                data.resize(local.bytes as usize, 0);
                self.region(&local).write(local.offset, &data);
                Outcome::Done { sum: 0 }
            } else {
                let mut sum = 0;
                for block in 0..local.bytes as usize / BLOCK {
                    let content = &CONTENTS[usize::from(contents.next().expect("endless"))];
                    self.region(&local).write(local.offset + (block * BLOCK) as u64, &content.bytes);
                    sum = content.sum;
                }
                Outcome::Done { sum }
            };
            self.worker.transferred(self.now, transfer, outcome);
        }
    }

    /// The data of a read has reached its host, or has failed to.
    fn delivered(&mut self, token: u32, failed: bool) {
        let open = self.open.get_mut(&token).expect("looked at");
        self.seen.token = token;
        let (transfers, reply) = (std::mem::take(&mut open.transfers), open.reply.take());
        let (queue, cid) = (open.queue, open.cid);
        for (transfer, _) in transfers {
            let outcome = if failed { Outcome::RemoteAccess } else { Outcome::Done { sum: 0 } };
            self.worker.transferred(self.now, transfer, outcome);
        }
        if let Some(cqe) = reply.filter(|_| !failed) {
            self.complete(queue, cid, cqe);
        }
    }

    fn complete(&mut self, queue: u32, cid: u16, cqe: Cqe) {
        let token = self.tokens.remove(&(queue, cid)).expect("a command of the script");
        self.open.remove(&token);
        self.seen.completions.push((token, cqe));
    }

    /// Carries out effects until nothing more happens at this time.
    fn come_to_rest(&mut self) {
        for _ in 0..PATIENCE {
            while let Some(effect) = self.worker.pop_effect() {
                self.take(effect);
            }
            if self.worker.next_event().is_none_or(|at| at > self.now) {
                return;
            }
            self.worker.step(self.now);
        }
        panic!("the SSD does not come to rest");
    }

    fn take(&mut self, effect: Effect) {
        match effect {
            Effect::Pull { transfer, queue, cid, local, .. } => {
                if self.seen.is_admin {
                    let mut data = std::mem::take(&mut self.seen.data);
                    data.resize(local.bytes as usize, 0);
                    self.region(&local).write(local.offset, &data);
                    return self.worker.transferred(self.now, transfer, Outcome::Done { sum: 0 });
                }
                self.seen.wants += local.bytes;
                let token = self.tokens[&(queue.0, cid)];
                self.open.entry(token).or_default().transfers.push((transfer, local));
            }
            Effect::Push { transfer, local, .. } if self.seen.is_admin => {
                let mut data = vec![0; local.bytes as usize];
                self.region(&local).read(local.offset, &mut data);
                self.seen.out = Some((local.bytes, crc32c::crc32c(&data)));
                self.worker.transferred(self.now, transfer, Outcome::Done { sum: 0 });
            }
            Effect::Push { transfer, local, sum, role, .. } => {
                self.seen.sums.push(sum.expect("the sum of a block"));
                let open = self.open.entry(self.seen.token).or_default();
                open.is_read = true;
                match role {
                    PushRole::Part => {}
                    PushRole::Alone => open.transfers.push((transfer, local)),
                    PushRole::Last(reply) => {
                        open.transfers.push((transfer, local));
                        open.reply = Some(reply.cqe);
                    }
                }
            }
            Effect::Complete { queue, cqe, .. } => self.complete(queue.0, cqe.cid.get(), cqe),
            Effect::Close { queue } => self.close(queue),
            // There is no peer: a script has no other SSDs.
            Effect::Admitted { .. } | Effect::Ask { .. } => {}
        }
    }

    fn answer(&mut self) -> Vec<u8> {
        let Seen { token, sums, wants, out: data, completions, closed, .. } = &mut self.seen;
        let mut out = Out::default();
        if !sums.is_empty() {
            out.u8(event::PAGES).u32(*token).u16(u16::try_from(sums.len()).expect("at most 256 blocks"));
            sums.iter().for_each(|&sum| {
                out.u32(sum);
            });
        }
        if *wants > 0 {
            out.u8(event::WANTS).u32(*token).u32(*wants);
        }
        if let Some((bytes, crc)) = data {
            out.u8(event::OUT).u32(*token).u32(*bytes).u32(*crc);
        }
        // The operation's own completion first, then closed queues, then commands that waited.
        completions.sort_by_key(|&(of, _)| (of != *token, of));
        closed.sort_unstable();
        let own = completions.iter().take_while(|&&(of, _)| of == *token).count();
        for &(of, cqe) in &completions[..own] {
            put_completion(&mut out, of, &cqe);
        }
        for &client in closed.iter() {
            out.u8(event::CLOSED).u16(client);
        }
        for &(of, cqe) in &completions[own..] {
            put_completion(&mut out, of, &cqe);
        }
        out.0
    }
}

fn put_completion(out: &mut Out, token: u32, cqe: &Cqe) {
    out.u8(event::COMPLETE).u32(token).u16(cqe.status_word()).u32(cqe.dw0.get()).u32(cqe.dw1.get());
}

/// The opcodes that the daemon alone may use.
pub(crate) const VENDOR: [u8; 7] = [
    opcode::VOLUME_ADD,
    opcode::VOLUME_LIST,
    opcode::VOLUME_DELETE,
    opcode::VOLUME_CHMOD,
    opcode::LEASE_RENEW,
    opcode::MAP_SET,
    opcode::MAP_GET,
];
