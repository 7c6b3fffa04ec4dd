// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run needs: an array, a node, and clients with a volume each; and the kernel on all of them at once.

use super::args::{BenchArgs, Buffers, LinkArg};
use super::central::Central;
use super::cpu;
use super::kernel::{self, ArgsAbi, BUCKETS, ClientAbi, FRESH, LaneResult, SHARED_BYTES, Who};
use super::load::Load;
use super::proxy::Proxy;
use super::served::{Logs, Served};
use gnstor_array::media;
use gnstor_array::{Array, ArrayConfig, Ssds};
use gnstor_console::CliError;
use gnstor_console::Steps;
use gnstor_deengine::Preset;
use gnstor_fabric::hca::agent::Unordered;
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::transport::Counters;
use libgnstor::{
    AgentStats, ChannelStats, Client, ConnectOptions, CreateOptions, Device, DeviceMem, Error, Fabric, File,
    Node, Residency, Rights, Shape,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// A client with its volume and what the kernel keeps of it. The proxy's queues end before the client does.
#[derive(Debug)]
struct Member {
    /// Who does its I/O where the device does not.
    proxy: Option<Mutex<Proxy>>,
    file: File,
    generations: DeviceMem,
    lanes: DeviceMem,
    histograms: DeviceMem,
}

/// Everything that a run needs, ready. Dropped in this order.
#[derive(Debug)]
pub struct Harness {
    members: Vec<Member>,
    clients: DeviceMem,
    args: DeviceMem,
    stop: DeviceMem,
    /// What the kernel says of the device: its multiprocessors.
    multiprocessors: DeviceMem,
    logs: Logs,
    node: Arc<Node>,
    array: Array,
    central: Option<Arc<Central>>,
    load: Load,
    preset: Preset,
    link: LinkConfig,
    io_timeout: Duration,
}

/// One launch of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    /// What a person reads while it runs.
    pub(super) what: &'static str,
    pub(super) flags: u32,
    pub(super) read_percent: u32,
    pub(super) warmup: Duration,
    /// Of the measured part; where every unit is done once, the longest it may take.
    pub(super) runtime: Duration,
    /// To read from: 0 = any, k = the k-th serving one.
    pub(super) replica: u32,
}

/// CPU seconds of threads, by name.
type ThreadTimes = Vec<(&'static str, f64)>;

/// What a launch left behind.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Accounts of all threads, client by client.
    pub(super) lanes: Vec<Vec<LaneResult>>,
    /// Reads and writes that fell into each bucket, all clients.
    pub(super) buckets: [Vec<u64>; 2],
    /// Ctrl-C ended it.
    pub(super) interrupted: bool,
    /// CPU seconds of the threads that are gone: the one that launched and waited (on the CPU execution it is the device), and the proxies.
    pub(super) threads: ThreadTimes,
    /// Of the device; 0 where it has none.
    pub(super) multiprocessors: u32,
}

/// Counters of the parts that have some.
#[derive(Clone, Debug)]
pub(super) struct Stages {
    pub(super) agent: AgentStats,
    pub(super) engine: Counters,
    pub(super) channels: Vec<ChannelStats>,
    /// Records of the central engine's log.
    pub(super) log_records: u64,
    /// Of each SSD that answers.
    pub(super) served: Vec<Option<Served>>,
}

const TICK: Duration = Duration::from_millis(200);

impl Harness {
    /// Starts the array, connects the clients and makes their volumes.
    ///
    /// # Errors
    /// [`CliError`]: what was asked for cannot be, a device that is not there, no memory.
    pub fn new(args: &BenchArgs, mut load: Load, steps: &Steps) -> Result<Self, CliError> {
        let preset = media::preset(&args.preset)?;
        let device = Device::open(args.device.into()).map_err(Error::from)?;
        steps.done(format!("device      {} ({})", device.name(), device.why()));
        let link = match args.link {
            Some(LinkArg::Paper) => LinkConfig::PAPER_200GBE,
            Some(LinkArg::None) => LinkConfig::UNLIMITED,
            None if preset.is_null() => LinkConfig::UNLIMITED,
            None => LinkConfig::PAPER_200GBE,
        };
        let array = Array::start(&ArrayConfig {
            ssds: Ssds::Here(media::in_memory(args.ssds, &preset, load.ssd_bytes)),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            fabric_listen: None,
            link,
            groups: gnstor_proto::placement::DEFAULT_GROUPS,
            threads: args.engines.threads(),
        })?;
        let residency = if args.one_grid { Residency::OneGrid } else { Residency::TwoKernels };
        let node = Arc::new(Node::new(array.transport(), &device, residency).map_err(Error::from)?);
        let central = load.central_engine.then(|| Central::new(&load).map(Arc::new)).transpose()?;
        let mut members = Vec::new();
        for number in 0..load.clients {
            if steps.interrupted() {
                return Err(CliError::Interrupted);
            }
            members.push(member(number, args, &load, &array, &node, central.as_ref())?);
        }
        // Who copies is told as it is: the driver may have no batch of copies.
        if let Some(proxy) = members.first().and_then(|member| member.proxy.as_ref()) {
            load.bounce = proxy.lock().expect("no panic while held").bounce();
        }
        let bytes = load.clients as usize * size_of::<ClientAbi>();
        let clients = device.alloc(bytes).map_err(Error::from)?;
        for (place, member) in members.iter().enumerate() {
            let buffer = member.file.client().buffer().expect("it was asked for");
            let proxy =
                member.proxy.as_ref().map(|proxy| proxy.lock().expect("no panic while held").addresses());
            let (requests, answers) = proxy.unwrap_or((0, 0));
            let abi = ClientAbi {
                file: member.file.device_file(),
                buffers: buffer.memory.address(),
                generations: member.generations.address(),
                lanes: member.lanes.address(),
                histograms: member.histograms.address(),
                requests,
                answers,
                key: buffer.key,
                reserved: 0,
            };
            clients.write(place * size_of::<ClientAbi>(), abi.as_bytes()).map_err(Error::from)?;
        }
        let args_memory = device.alloc(size_of::<ArgsAbi>()).map_err(Error::from)?;
        let stop = device.alloc(4).map_err(Error::from)?;
        let multiprocessors = device.alloc(4).map_err(Error::from)?;
        let logs = Logs::open(&node, args.ssds, load.clients as usize)?;
        let io_timeout = args.io_timeout;
        Ok(Self {
            members,
            clients,
            args: args_memory,
            stop,
            multiprocessors,
            logs,
            node,
            array,
            central,
            load,
            preset,
            link,
            io_timeout,
        })
    }

    /// The load.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// The open volumes, one a client.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.members.iter().map(|member| &member.file)
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        self.node.device()
    }

    pub(super) fn preset(&self) -> &Preset {
        &self.preset
    }

    pub(super) fn link(&self) -> LinkConfig {
        self.link
    }

    pub(super) fn agent_blocks(&self) -> u32 {
        self.node.hca().blocks()
    }

    pub(super) fn unordered(&self) -> Option<Unordered> {
        self.node.hca().unordered()
    }

    pub(super) fn ssds(&self) -> usize {
        self.array.ssds().len()
    }

    /// Counters as they are now.
    pub(super) fn stages(&self) -> Result<Stages, CliError> {
        let engines = self
            .array
            .transport()
            .each(|engine, _| engine.counters)
            .map_err(gnstor_array::ArrayError::from)?;
        let engine = engines.into_iter().sum();
        let channels =
            self.members.iter().map(|m| m.file.client().channel_stats()).collect::<Result<_, _>>()?;
        let log_records = self.central.as_ref().map_or(0, |central| central.records());
        let (agent, served) = (self.node.hca().stats().map_err(Error::from)?, self.logs.read());
        Ok(Stages { agent, engine, channels, log_records, served })
    }

    /// Flushes every SSD.
    pub(super) fn flush(&self) -> Result<(), CliError> {
        Ok(self.members[0].file.flush()?)
    }

    /// Runs the kernel on all clients; Ctrl-C makes it begin nothing more.
    pub(super) fn run(&self, phase: &Phase, steps: &Steps) -> Result<Outcome, CliError> {
        let load = &self.load;
        let depth = load.iodepth as usize;
        for member in &self.members {
            member.lanes.write(0, [FRESH].repeat(depth).as_bytes()).map_err(Error::from)?;
            member.histograms.write(0, &vec![0; 2 * BUCKETS * 8]).map_err(Error::from)?;
            if let Some(proxy) = &member.proxy {
                proxy.lock().expect("no panic while held").reset(phase.replica);
            }
        }
        self.stop.write(0, &[0; 4]).map_err(Error::from)?;
        let ns = |time: Duration| u64::try_from(time.as_nanos()).expect("at most days");
        let args = ArgsAbi {
            clients: self.clients.address(),
            stop: self.stop.address(),
            warmup_ns: ns(phase.warmup),
            runtime_ns: ns(phase.runtime),
            seed: load.seed,
            depth: load.iodepth,
            unit_blocks: load.unit_blocks,
            units: load.units,
            read_percent: phase.read_percent,
            // Without a model nothing is late, and no client pays for a look at its clock.
            flags: phase.flags | if self.preset.is_null() { 0 } else { kernel::STAMPS },
            replica: phase.replica,
            multiprocessors: self.multiprocessors.address(),
        };
        self.args.write(0, args.as_bytes()).map_err(Error::from)?;
        let shape = Shape {
            blocks: load.clients,
            threads: load.iodepth.next_multiple_of(32),
            smem_bytes: SHARED_BYTES,
        };
        let deadline = phase.warmup + phase.runtime + self.io_timeout * 2 + Duration::from_secs(30);
        let (file, at) = (&self.members[0].file, self.args.address());
        let ours = if shape.threads == 32 { Who::Warp } else { Who::Block };
        let who = match load.buffers {
            _ if load.by_cpu() => Who::Cpu,
            Buffers::Pieces => Who::BlockInPieces,
            Buffers::Contiguous => ours,
        };
        let launch = || file.launch(kernel::kernel(who), shape, at, deadline);
        let (interrupted, threads) = self.beside(launch, phase, steps)?;
        let lanes = self.members.iter().map(|member| lanes_of(member, depth)).collect::<Result<_, _>>()?;
        let mut buckets = [vec![0; BUCKETS], vec![0; BUCKETS]];
        let mut raw = vec![0; 2 * BUCKETS * 8];
        for member in &self.members {
            member.histograms.read(0, &mut raw).map_err(Error::from)?;
            let counts = raw.chunks_exact(8).map(|raw| u64::read_from_bytes(raw).expect("eight bytes"));
            buckets.iter_mut().flatten().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let mut raw = [0; 4];
        self.multiprocessors.read(0, &mut raw).map_err(Error::from)?;
        Ok(Outcome { lanes, buckets, interrupted, threads, multiprocessors: u32::from_le_bytes(raw) })
    }

    /// Runs `launch` on a thread of its own; meanwhile shows how far it is, and hands Ctrl-C on. The
    /// proxies run as long. Returns whether there was a Ctrl-C, and the CPU seconds of these threads.
    #[expect(clippy::disallowed_methods, reason = "shows a person how real time passes")]
    fn beside(
        &self,
        launch: impl FnOnce() -> Result<(), Error> + Send,
        phase: &Phase,
        steps: &Steps,
    ) -> Result<(bool, ThreadTimes), CliError> {
        let once = phase.flags & kernel::ONCE != 0;
        let units = u64::from(self.load.units) * u64::from(self.load.clients);
        let millis = |time: Duration| u64::try_from(time.as_millis()).expect("at most days");
        let bar = steps.bar(phase.what, if once { units } else { millis(phase.warmup + phase.runtime) });
        let began = Instant::now();
        let mut interrupted = false;
        let (done, ended) = mpsc::channel();
        let over = AtomicBool::new(false);
        let threads = std::thread::scope(|scope| {
            let _over = SetOnDrop(&over);
            let thread_failed = |cause| Error::Os { what: "starting a thread".into(), cause };
            let mut proxies = Vec::new();
            for member in &self.members {
                let Some(proxy) = &member.proxy else { continue };
                let (file, over) = (&member.file, &over);
                let serve = move || proxy.lock().expect("no panic while held").serve(file, over);
                let thread = std::thread::Builder::new().name("gn-proxy".into()).spawn_scoped(scope, serve);
                proxies.push(thread.map_err(thread_failed)?);
            }
            let thread =
                std::thread::Builder::new().name("gn-launch".into()).spawn_scoped(scope, move || {
                    let result = launch();
                    let _ = done.send(());
                    result.map(|()| cpu::this_thread_s())
                });
            let thread = thread.map_err(thread_failed)?;
            let mut last = (0, 0.0);
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if steps.interrupted() && !interrupted {
                    interrupted = true;
                    self.stop.write(0, &[1; 4])?;
                }
                if bar.is_hidden() {
                    continue;
                }
                let ios = self.ios_so_far()?;
                let seconds = began.elapsed().as_secs_f64();
                #[expect(clippy::cast_precision_loss, reason = "for display")]
                bar.set_message(format!("{:.0} I/Os per s", (ios - last.0) as f64 / (seconds - last.1)));
                last = (ios, seconds);
                bar.set_position(if once { ios } else { millis(began.elapsed()) });
            }
            let launched = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            over.store(true, Ordering::Release);
            let mut threads = Vec::new();
            for proxy in proxies {
                threads.push((
                    "gn-proxy",
                    proxy.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
                ));
            }
            threads.push(("gn-launch", launched?));
            Ok::<_, Error>(threads)
        });
        bar.finish_and_clear();
        Ok((interrupted, threads?))
    }

    fn ios_so_far(&self) -> Result<u64, Error> {
        let mut sum = 0;
        for member in &self.members {
            sum +=
                lanes_of(member, self.load.iodepth as usize)?.iter().flat_map(|lane| lane.ios).sum::<u64>();
        }
        Ok(sum)
    }
}

fn lanes_of(member: &Member, depth: usize) -> Result<Vec<LaneResult>, Error> {
    let mut raw = vec![0; depth * size_of::<LaneResult>()];
    member.lanes.read(0, &mut raw)?;
    let lane = |raw: &[u8]| LaneResult::read_from_bytes(raw).expect("the length matches");
    Ok(raw.chunks_exact(size_of::<LaneResult>()).map(lane).collect())
}

/// Ends the proxies also where an error leaves the scope early.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn member(
    number: u32,
    args: &BenchArgs,
    load: &Load,
    array: &Array,
    node: &Arc<Node>,
    central: Option<&Arc<Central>>,
) -> Result<Member, CliError> {
    let mut options = ConnectOptions::new(array.daemon_address().to_string());
    options.name = format!("bench {number}");
    options.fabric = Fabric::InProcess;
    options.io_timeout = args.io_timeout;
    options.buffer_bytes = usize::try_from(load.bs).expect("at most 16 MiB") * load.iodepth as usize;
    let client = Client::connect(node, &options)?;
    let name = format!("bench-{number}");
    let create = CreateOptions {
        capacity_bytes: load.volume_bytes(),
        replicas: load.replicas,
        ..CreateOptions::default()
    };
    client.create(&name, &create)?;
    let file = client.open(&name, Rights::Write)?;
    let proxy =
        load.by_cpu().then(|| Proxy::new(number, &file, load, central).map(Mutex::new)).transpose()?;
    let alloc = |bytes| node.device().alloc(bytes).map_err(Error::from);
    Ok(Member {
        file,
        generations: alloc(load.units as usize * 4)?,
        lanes: alloc(load.iodepth as usize * size_of::<LaneResult>())?,
        histograms: alloc(2 * BUCKETS * 8)?,
        proxy,
    })
}
