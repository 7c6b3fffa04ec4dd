// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a Keep Alive takes on SSDs that are saturated, with more engines than the machine has cores. Each
//! engine has an admin and an I/O queue of every SSD. The I/O queues are closed loops; no data is moved.
//!
//! `cargo bench -p gnstor-deengine --bench keep_alive -- --engines 12`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod common;

use common::{client, connect, enable, io, map, queue_request, vendor, volume};
use gnstor_base::region::{HostRegion, RegionId};
use gnstor_deengine::{Preset, Ssd, SsdConfig, SsdMedia};
use gnstor_fabric::hca::abi::{UP_DONE, UP_FUSED_DONE, UP_SEND, UpEntry};
use gnstor_fabric::hca::{Down, Part, QpExecutor, Response, Up};
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::runtime::{TransportHandle, TransportThreads};
use gnstor_fabric::transport::{Connect, ExecutorId, Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::{CNTLID_ANY, CmRequest, Identity};
use gnstor_proto::nvme::{self, Cqe, KeyedSgl, Sqe};
use gnstor_proto::placement::mix64;
use gnstor_proto::vendor::opcode;
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Few, so that the load soon touches the memory of all.
const BLOCKS: u64 = 1 << 12;
/// Queue pairs: those of SSD n have these numbers, and n more.
const DAEMON: u32 = 1000;
const ADMIN: u32 = 2000;
const IO: u32 = 3000;
/// Longest wait for the answer to a command before the load.
const ANSWER: Duration = Duration::from_secs(20);

/// Options of the measurement.
#[derive(clap::Parser)]
struct Args {
    /// Engines, a thread each
    #[arg(long, default_value_t = 12)]
    engines: usize,
    /// SSDs
    #[arg(long, default_value_t = 4)]
    ssds: u16,
    /// Commands in flight on each engine and SSD, at most 127
    #[arg(long, default_value_t = 16)]
    depth: u16,
    /// Time for which the modelled firmware is busy with a command, ns
    #[arg(long, default_value_t = 20_000)]
    firmware: u64,
    /// From one Keep Alive of a queue to the next, ms
    #[arg(long, default_value_t = 20)]
    every: u64,
    /// Length of the load, seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Length of the load before that, seconds: engines stand still for the first touch of memory
    #[arg(long, default_value_t = 3)]
    warm_up: u64,
    /// Reads in place of writes
    #[arg(long)]
    reads: bool,
    /// Cargo passes this option
    #[arg(long, hide = true)]
    bench: bool,
}

/// Latencies.
#[derive(Clone, Copy, Default)]
struct Times {
    count: u64,
    sum: Duration,
    longest: Duration,
}

impl Times {
    fn add(&mut self, time: Duration) {
        *self = self.and(Self { count: 1, sum: time, longest: time });
    }

    fn and(self, other: Self) -> Self {
        let (count, sum) = (self.count + other.count, self.sum + other.sum);
        Self { count, sum, longest: self.longest.max(other.longest) }
    }

    fn text(&self) -> String {
        let mean = self.sum / u32::try_from(self.count.max(1)).unwrap_or(u32::MAX);
        format!("{} answers, mean {mean:.1?}, longest {:.1?}", self.count, self.longest)
    }
}

/// The hosts of one engine.
#[derive(Default)]
struct Hosts {
    up: VecDeque<UpEntry>,
    data: Vec<u8>,
    /// Answers before the load.
    answers: VecDeque<Cqe>,
    regions: HashMap<RegionId, Arc<HostRegion>>,
    /// The commands of the load.
    verb: Option<u8>,
    sent: u64,
    polls: u64,
    under_way: HashMap<(u32, u16), Instant>,
    /// When each SSD is asked again.
    ask_at: Vec<Option<Instant>>,
    every: Duration,
    alive: Times,
    io: Times,
}

impl Hosts {
    fn send(&mut self, qpn: u32, sqe: &Sqe) {
        let mut entry = UpEntry { kind: UP_SEND, qpn, bytes: 64, ..UpEntry::default() };
        entry.payload.copy_from_slice(sqe.as_bytes());
        self.up.push_back(entry);
    }

    /// Sends the next command of this closed loop.
    fn go_on(&mut self, qpn: u32, cid: u16) {
        let Some(verb) = self.verb else { return };
        self.sent += 1;
        let sqe = io(verb, mix64(self.sent) % BLOCKS, usize::from(cid), self.sent);
        self.under_way.insert((qpn, cid), Instant::now());
        self.send(qpn, &sqe);
    }

    fn answered(&mut self, qpn: u32, bytes: [u8; 16]) {
        let cqe: Cqe = zerocopy::transmute!(bytes);
        let cid = cqe.cid.get();
        let Some(sent) = self.under_way.remove(&(qpn, cid)) else { return self.answers.push_back(cqe) };
        assert_eq!(cqe.status_word(), 0, "queue pair {qpn}");
        let now = Instant::now();
        if qpn >= IO {
            self.io.add(now - sent);
            return self.go_on(qpn, cid);
        }
        self.alive.add(now - sent);
        self.ask_at[(qpn - ADMIN) as usize] = Some(now + self.every);
    }

    fn ask_those_due(&mut self) {
        let now = Instant::now();
        for ssd in 0..self.ask_at.len() {
            if self.ask_at[ssd].take_if(|at| *at <= now).is_some() {
                let qpn = ADMIN + u32::try_from(ssd).expect("small");
                let mut sqe =
                    Sqe { opcode: nvme::admin::KEEP_ALIVE, flags: nvme::FLAGS_SGL, ..Sqe::default() };
                sqe.cid = 7.into();
                self.under_way.insert((qpn, 7), now);
                self.send(qpn, &sqe);
            }
        }
    }
}

struct Executor(Arc<Mutex<Hosts>>);

impl Executor {
    fn with<R>(&self, f: impl FnOnce(&mut Hosts) -> R) -> R {
        f(&mut self.0.lock().expect("no panic while held"))
    }
}

impl QpExecutor for Executor {
    fn poll(&mut self) -> Option<Up> {
        self.with(|hosts| {
            hosts.polls += 1;
            if hosts.up.is_empty() || hosts.polls.is_multiple_of(64) {
                hosts.ask_those_due();
            }
            hosts.up.pop_front().and_then(|entry| entry.decode())
        })
    }

    fn can_fuse(&self) -> bool {
        true
    }

    fn add_region(&mut self, region: &Arc<HostRegion>) {
        self.with(|hosts| drop(hosts.regions.insert(region.id(), Arc::clone(region))));
    }

    fn push_fused(&mut self, qpn: u32, tag: u32, _: &[Part], response: &Response) {
        self.with(|hosts| {
            hosts.up.push_back(UpEntry { kind: UP_FUSED_DONE, qpn, index: tag, ..UpEntry::default() });
            hosts.answered(qpn, response.bytes);
        });
    }

    fn push(&mut self, message: Down) {
        let done = |qpn, tag, bytes| UpEntry { kind: UP_DONE, qpn, index: tag, bytes, ..UpEntry::default() };
        self.with(|hosts| match message {
            Down::ToOwner { qpn, local, tag, .. } => hosts.up.push_back(done(qpn, tag, local.bytes)),
            Down::FromOwner { qpn, local, tag, .. } => {
                let bytes = (local.bytes as usize).min(hosts.data.len());
                if bytes > 0 {
                    hosts.regions[&local.region].write(local.offset, &hosts.data[..bytes]);
                }
                hosts.up.push_back(done(qpn, tag, local.bytes));
            }
            Down::Send { qpn, bytes, .. } => hosts.answered(qpn, bytes),
            Down::Cqe { .. } | Down::QpError { .. } | Down::QpAnew { .. } | Down::Ping { .. } => {}
        });
    }
}

/// An engine, and its hosts.
struct Engine {
    transport: TransportHandle,
    executor: ExecutorId,
    hosts: Arc<Mutex<Hosts>>,
}

impl Engine {
    fn with<R>(&self, f: impl FnOnce(&mut Hosts) -> R) -> R {
        f(&mut self.hosts.lock().expect("no panic while held"))
    }

    fn open(&self, ssd: u16, qpn: u32, qid: u16, cntlid: u16) {
        let (reply, answer) = mpsc::channel();
        let request = CmRequest { cntlid: cntlid.into(), ..queue_request(qid) };
        let connect = Connect { executor: self.executor, qpn, port: Port::Local(ssd), request };
        self.transport
            .call(move |transport, now| _ = transport.connect(now, connect, reply))
            .expect("the engine runs");
        assert_eq!(answer.recv_timeout(ANSWER), Ok(Ok(())));
    }

    /// Carries out a command before the load.
    fn command(&self, qpn: u32, mut sqe: Sqe, data: &[u8]) -> Cqe {
        (sqe.flags, sqe.cid) = (nvme::FLAGS_SGL, 1.into());
        sqe.dptr = KeyedSgl::keyed(4096, u32::try_from(data.len()).expect("small"), 1);
        self.with(|hosts| {
            hosts.data = data.to_vec();
            hosts.send(qpn, &sqe);
        });
        let begun = Instant::now();
        while begun.elapsed() < ANSWER {
            if let Some(cqe) = self.with(|hosts| hosts.answers.pop_front()) {
                assert_eq!(cqe.status_word(), 0, "{sqe:?}");
                return cqe;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        panic!("no answer to {sqe:?}");
    }

    fn connect(&self, ssd: u16, qpn: u32, identity: Identity, (qid, cntlid): (u16, u16)) -> u16 {
        self.open(ssd, qpn, qid, if qid == 0 { 0 } else { cntlid });
        let (sqe, data) = connect(qid, identity, cntlid);
        let cqe = self.command(qpn, sqe, data.as_bytes());
        if qid == 0 {
            self.command(qpn, enable(), &[]);
        }
        u16::try_from(cqe.dw0.get() & 0xFFFF).expect("16 bits")
    }
}

fn preset(firmware_ns: u64) -> Preset {
    let text = format!(
        "name = \"slow-firmware\"\nbase = \"gnstor-980pro\"\nfw_read_ns = {firmware_ns}\nfw_write_ns = {firmware_ns}\n"
    );
    Preset::from_toml(&text).expect("a preset")
}

fn engines(args: &Args) -> (TransportThreads, Vec<Engine>) {
    let config = TransportConfig { link: LinkConfig::UNLIMITED, ..TransportConfig::default() };
    let mut transports = vec![RcTransport::new(config)];
    transports.extend((1..args.engines).map(|_| transports[0].sibling()).collect::<Vec<_>>());
    for number in 0..args.ssds {
        let config = SsdConfig {
            // Each is alone in an array.
            index: 0,
            preset: preset(args.firmware),
            capacity_bytes: BLOCKS * 2 * 4096,
            serial: format!("BENCH{number}"),
            media: SsdMedia::Ram,
        };
        let workers = Ssd::format(config).expect("an SSD").into_workers(args.engines);
        for (worker, transport) in workers.into_iter().zip(&mut transports) {
            let waker = transport.waker().expect("a descriptor");
            worker.wake_by(move || waker.wake());
            let regions = worker.regions();
            transport.add_target(Box::new(worker), regions);
        }
    }
    let hosts: Vec<_> = (0..args.engines).map(|_| Arc::new(Mutex::new(Hosts::default()))).collect();
    let add = |(transport, hosts): (&mut RcTransport, &Arc<Mutex<Hosts>>)| {
        transport.add_other(Box::new(Executor(Arc::clone(hosts))))
    };
    let executors: Vec<ExecutorId> = transports.iter_mut().zip(&hosts).map(add).collect();
    let threads = TransportThreads::start(transports).expect("threads");
    let first = threads.handle();
    let engines = (0..).zip(executors).zip(hosts).map(|((number, executor), hosts)| Engine {
        transport: first.nth(number),
        executor,
        hosts,
    });
    let engines = engines.collect();
    (threads, engines)
}

fn main() {
    let args = <Args as clap::Parser>::parse();
    let (threads, engines) = engines(&args);
    for (ssd, plus) in (0..args.ssds).zip(0u32..) {
        engines[0].connect(ssd, DAEMON + plus, Identity::Daemon, (0, CNTLID_ANY));
        let map = map();
        engines[0].command(DAEMON + plus, vendor(opcode::MAP_SET, map.len()), &map);
        let volume = volume(BLOCKS).encode();
        engines[0].command(DAEMON + plus, vendor(opcode::VOLUME_ADD, 4096), volume.as_bytes());
        for engine in &engines {
            let identity = Identity::Client(client());
            let cntlid = engine.connect(ssd, ADMIN + plus, identity, (0, CNTLID_ANY));
            engine.connect(ssd, IO + plus, identity, (1, cntlid));
        }
    }
    for engine in &engines {
        engine.with(|hosts| {
            hosts.data.clear();
            hosts.verb = Some(if args.reads { nvme::io::READ } else { nvme::io::WRITE });
            hosts.every = Duration::from_millis(args.every);
            hosts.ask_at = vec![Some(Instant::now()); args.ssds.into()];
            for plus in 0..u32::from(args.ssds) {
                (0..args.depth).for_each(|cid| hosts.go_on(IO + plus, cid));
            }
        });
    }
    std::thread::sleep(Duration::from_secs(args.warm_up));
    let forget = |hosts: &mut Hosts| (hosts.alive, hosts.io) = (Times::default(), Times::default());
    engines.iter().for_each(|engine| engine.with(forget));
    std::thread::sleep(Duration::from_secs(args.seconds));
    let now = Instant::now();
    let (mut alive, mut load) = (Times::default(), Times::default());
    for engine in &engines {
        engine.with(|hosts| {
            (alive, load) = (alive.and(hosts.alive), load.and(hosts.io));
            hosts.verb = None;
            // A command that still waits has waited until now.
            for ((qpn, _), sent) in hosts.under_way.drain() {
                let times = if qpn >= IO { &mut load } else { &mut alive };
                times.longest = times.longest.max(now - sent);
            }
        });
    }
    println!("Keep Alive: {}", alive.text());
    println!("I/O: {}, {} a second", load.text(), load.count / args.seconds);
    drop(threads);
}
