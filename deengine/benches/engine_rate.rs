// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of the array's side of a 4 KiB read: engine, target offload and firmware. It is measured from the
//! capsule in the up ring to the response in the down ring. The executor moves no data.
//!
//! `cargo bench -p gnstor-deengine --bench engine_rate`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod common;

use common::{client, connect, enable, io, map, queue_request, vendor, volume};
use gnstor_base::time::{Span, Time};
use gnstor_deengine::{Preset, Ssd, SsdConfig, SsdMedia};
use gnstor_fabric::hca::abi::{UP_DONE, UP_FUSED_DONE, UP_SEND, UpEntry};
use gnstor_fabric::hca::{Down, Part, QpExecutor, Response, Up};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::transport::{Connect, ExecutorId, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::{CNTLID_ANY, CmRequest, Identity};
use gnstor_proto::nvme::{self, KeyedSgl, Sqe};
use gnstor_proto::placement::mix64;
use gnstor_proto::vendor::opcode;
use std::collections::VecDeque;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use zerocopy::IntoBytes;

/// Memory of a queue's owner: outgoing admin data, responses, capsules to send.
#[derive(Default)]
struct Shared {
    up: VecDeque<UpEntry>,
    data: Vec<u8>,
    responses: u64,
    last: [u8; 16],
}

struct Generator(
    Arc<Mutex<Shared>>,
    Vec<(gnstor_base::region::RegionId, Arc<gnstor_base::region::HostRegion>)>,
);

impl QpExecutor for Generator {
    fn poll(&mut self) -> Option<Up> {
        self.0.lock().expect("one thread").up.pop_front().and_then(|entry| entry.decode())
    }
    fn can_fuse(&self) -> bool {
        true
    }
    fn push_fused(&mut self, qpn: u32, tag: u32, _: &[Part], response: &Response) {
        let mut s = self.0.lock().expect("one thread");
        s.up.push_back(UpEntry { kind: UP_FUSED_DONE, qpn, index: tag, ..UpEntry::default() });
        s.responses += 1;
        s.last = response.bytes;
    }
    fn push(&mut self, message: Down) {
        let mut s = self.0.lock().expect("one thread");
        let done = |qpn, tag, bytes| UpEntry { kind: UP_DONE, qpn, index: tag, bytes, ..UpEntry::default() };
        match message {
            Down::ToOwner { qpn, local, tag, .. } => s.up.push_back(done(qpn, tag, local.bytes)),
            Down::FromOwner { qpn, local, tag, .. } => {
                let bytes = (local.bytes as usize).min(s.data.len());
                if bytes > 0 {
                    let region = self.1.iter().find(|(id, _)| *id == local.region).expect("a known region");
                    region.1.write(local.offset, &s.data[..bytes]);
                }
                s.up.push_back(done(qpn, tag, local.bytes));
            }
            Down::Send { bytes, .. } => {
                s.responses += 1;
                s.last = bytes;
            }
            Down::Cqe { .. } | Down::QpError { .. } | Down::QpAnew { .. } | Down::Ping { .. } => {}
        }
    }
}

struct Bench {
    engine: RcTransport,
    executor: ExecutorId,
    shared: Arc<Mutex<Shared>>,
    now: Time,
    tick: Span,
}

impl Bench {
    /// Does all that is due. If nothing is due, time advances to the next event, and by `tick` at least: then
    /// as much comes together.
    fn step(&mut self) {
        if !self.engine.step(self.now) {
            self.now = (self.now + self.tick).max(self.engine.next_event().unwrap_or(self.now));
        }
    }

    fn responses(&self) -> u64 {
        self.shared.lock().expect("one thread").responses
    }

    fn connect(&mut self, qpn: u32, qid: u16, cntlid: u16) {
        let (reply, answer) = mpsc::channel();
        let request = CmRequest { cntlid: cntlid.into(), ..queue_request(qid) };
        let connect = Connect { executor: self.executor, qpn, port: Port::Local(0), request };
        self.engine.connect(Time::ZERO, connect, reply);
        assert_eq!(answer.recv(), Ok(Ok(())));
    }

    fn send(&mut self, qpn: u32, sqe: &Sqe) {
        let mut e = UpEntry { kind: UP_SEND, qpn, bytes: 64, ..UpEntry::default() };
        e.payload.copy_from_slice(sqe.as_bytes());
        self.shared.lock().expect("one thread").up.push_back(e);
    }

    fn admin(&mut self, qpn: u32, mut sqe: Sqe, data: &[u8]) -> nvme::Cqe {
        self.shared.lock().expect("one thread").data = data.to_vec();
        sqe.flags = nvme::FLAGS_SGL;
        sqe.dptr = KeyedSgl::keyed(4096, u32::try_from(data.len()).expect("small"), 1);
        let before = self.responses();
        self.send(qpn, &sqe);
        while self.responses() == before {
            self.step();
        }
        let cqe: nvme::Cqe = zerocopy::transmute!(self.shared.lock().expect("one thread").last);
        assert_eq!(cqe.status_word(), 0, "{sqe:?}");
        cqe
    }

    fn fabrics(&mut self, qpn: u32, qid: u16, identity: Identity, cntlid: u16) -> u16 {
        let (sqe, data) = connect(qid, identity, cntlid);
        let cqe = self.admin(qpn, sqe, data.as_bytes());
        u16::try_from(cqe.dw0.get() & 0xFFFF).expect("16 bits")
    }

    fn session(&mut self, qpn: u32, identity: Identity) -> u16 {
        self.connect(qpn, 0, 0);
        let cntlid = self.fabrics(qpn, 0, identity, CNTLID_ANY);
        self.admin(qpn, enable(), &[]);
        cntlid
    }
}

/// Time of this thread on a worker: what a machine with nothing else to do would take.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Options of the measurement.
#[derive(clap::Parser)]
struct Args {
    /// Preset of the SSD; its time is virtual
    #[arg(long, default_value = "null")]
    preset: String,
    /// Commands in flight, at most 127
    #[arg(long, default_value_t = 32)]
    depth: u64,
    /// How often the load touches every block
    #[arg(long, default_value_t = 8)]
    passes: u64,
    /// Writes in random order, too
    #[arg(long)]
    random: bool,
    /// Blocks of the volume, in thousands of 1024
    #[arg(long, default_value_t = 64)]
    kiblocks: u64,
    /// Part of the SSD that the volume fills, per cent
    #[arg(long, default_value_t = 100)]
    fill: u64,
    /// Least virtual time between two steps, ns
    #[arg(long, default_value_t = 0)]
    tick: u64,
    /// Writes and no reads
    #[arg(long)]
    writes_only: bool,
    /// Cargo passes this option
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = <Args as clap::Parser>::parse();
    let preset = Preset::by_name(&args.preset).expect("a preset");
    let blocks = args.kiblocks << 10;
    let capacity_bytes = blocks * 4096 * 100 / args.fill;
    let ssd = SsdConfig { index: 0, preset, capacity_bytes, serial: "BENCH".into(), media: SsdMedia::Ram };
    let ssd = Ssd::format(ssd).expect("an SSD");
    let mut engine =
        RcTransport::new(TransportConfig { link: LinkConfig::UNLIMITED, ..TransportConfig::default() });
    let worker = ssd.into_workers(1).remove(0);
    let regions = worker.regions();
    engine.add_target(Box::new(worker), regions.clone());
    let shared = Arc::new(Mutex::new(Shared::default()));
    let known = regions.into_iter().map(|r| (r.id(), r)).collect();
    let executor = engine.add_other(Box::new(Generator(Arc::clone(&shared), known)));
    let mut bench =
        Bench { engine, executor, shared, now: Time::from_ns(1_000_000), tick: Span::from_ns(args.tick) };
    let identity = Identity::Client(client());
    bench.session(1, Identity::Daemon);
    let map = map();
    bench.admin(1, vendor(opcode::MAP_SET, map.len()), &map);
    bench.admin(1, vendor(opcode::VOLUME_ADD, 4096), volume(blocks).encode().as_bytes());
    let cntlid = bench.session(2, identity);
    bench.connect(3, 1, cntlid);
    bench.fabrics(3, 1, identity, cntlid);
    // Written blocks have no source, since the copy is not what is measured.
    bench.shared.lock().expect("one thread").data.clear();
    let loads = [("write", nvme::io::WRITE), ("read", nvme::io::READ)];
    for (what, verb) in loads.into_iter().take(if args.writes_only { 1 } else { 2 }) {
        let count = blocks * args.passes;
        let (mut sent, first) = (0, bench.responses());
        let (start, cpu, modelled) = (Instant::now(), cpu_ns(), bench.now);
        loop {
            let done = bench.responses() - first;
            if done == count {
                break;
            }
            // Command ids wrap. The oldest of them has long been answered.
            while sent < count && sent - done < args.depth {
                let random = args.random || verb == nvme::io::READ;
                let vba = if random { mix64(sent) % blocks } else { sent % blocks };
                let cid = usize::try_from(sent % (1 << 15)).expect("small");
                let sqe = io(verb, vba, cid, sent + 1);
                bench.send(3, &sqe);
                sent += 1;
            }
            bench.step();
        }
        let (ns, cpu) = (start.elapsed().as_nanos() / u128::from(count), (cpu_ns() - cpu) / count);
        println!(
            "{what}: {ns} ns per 4 KiB command, {cpu} ns of them on a worker, {} ns modelled; preset {}, \
             no data moved",
            bench.now.since(modelled).as_ns() / count,
            args.preset
        );
    }
}
