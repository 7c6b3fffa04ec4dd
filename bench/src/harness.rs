// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run needs: an array, a node, and clients with a volume each; and the kernel on all of them at once.

use super::args::{BenchArgs, Buffers, LinkArg};
use super::central::Central;
use super::cpu;
use super::kernel::{self, ArgsAbi, BUCKETS, ClientAbi, FRESH, LaneResult, SHARED_BYTES, Who};
use super::load::Load;
use super::proxy::Proxy;
use super::served::{Logs, Served};
use super::target::{self, Target, volume_name};
use gnstor_array::media;
use gnstor_console::CliError;
use gnstor_console::Steps;
use gnstor_deengine::Preset;
use gnstor_fabric::hca::agent::Unordered;
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::transport::Counters;
use indicatif::ProgressBar;
use libgnstor::{
    AgentStats, ChannelStats, Client, ConnectOptions, Device, DeviceMem, Error, File, Manager, Node,
    Residency, Rights, Shape,
};
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
    /// The volume did not exist before.
    created: bool,
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
    /// Of SSDs of this process.
    logs: Option<Logs>,
    node: Arc<Node>,
    target: Target,
    central: Option<Arc<Central>>,
    load: Load,
    preset: Preset,
    link: LinkConfig,
    io_timeout: Duration,
    status_interval: Option<Duration>,
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
    /// CPU seconds of the threads that are gone: the one that launched and waited (on the CPU execution it
    /// is the device), and the proxies.
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
        // The SSDs of a running array have presets of their own, which this process does not know.
        let name = if args.array.is_some() { "null" } else { &args.preset };
        let preset = media::preset(name)?;
        let device = Device::open(args.device.into()).map_err(Error::from)?;
        steps.done(format!("device      {} ({})", device.name(), device.why()));
        let link = link(args, &preset);
        let target = Target::start(args, &load, &preset, link)?;
        let residency = if args.one_grid { Residency::OneGrid } else { Residency::TwoKernels };
        let node = Arc::new(Node::new(target.transport(), &device, residency).map_err(Error::from)?);
        let central = load.central_engine.then(|| Central::new(&load).map(Arc::new)).transpose()?;
        let mut members = Vec::new();
        for number in 0..load.clients {
            if steps.interrupted() {
                return Err(CliError::Interrupted);
            }
            members.push(member(number, args, &load, &target, &node, central.as_ref())?);
        }
        if !target.is_own() {
            load.replicas = same_replicas(&members)?;
        }
        // The report names the copier that is at work: the driver may have no batch of copies.
        if let Some(proxy) = members.first().and_then(|member| member.proxy.as_ref()) {
            load.bounce = proxy.lock().expect("no panic while held").bounce();
        }
        let clients = clients(&device, &members)?;
        let args_memory = device.alloc(size_of::<ArgsAbi>()).map_err(Error::from)?;
        let stop = device.alloc(4).map_err(Error::from)?;
        let multiprocessors = device.alloc(4).map_err(Error::from)?;
        let open = || Logs::open(&node, args.ssds, load.clients as usize);
        let logs = target.is_own().then(open).transpose()?;
        let (io_timeout, status_interval) = (args.io_timeout, args.status_interval);
        Ok(Self {
            members,
            clients,
            args: args_memory,
            stop,
            multiprocessors,
            logs,
            node,
            target,
            central,
            load,
            preset,
            link,
            io_timeout,
            status_interval,
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
        self.members[0].file.client().ssds().len()
    }

    /// Capacity of each SSD.
    pub(super) fn ssd_bytes(&self) -> u64 {
        self.members[0].file.client().ssds().first().map_or(0, |ssd| ssd.capacity_bytes)
    }

    /// Address of the daemon, where the array is not this process's own.
    pub(super) fn running(&self) -> Option<String> {
        (!self.target.is_own()).then(|| self.target.daemon())
    }

    /// Name of a client's volume.
    pub(super) fn volume(&self, client: usize) -> &str {
        &self.members[client].file.info().name
    }

    /// Deletes the volumes that were created on an array that goes on running.
    ///
    /// # Errors
    /// The daemon's.
    pub(super) fn remove_volumes(self) -> Result<(), CliError> {
        if self.target.is_own() {
            return Ok(());
        }
        let created = |member: &Member| member.created.then(|| member.file.info().name.clone());
        let names: Vec<String> = self.members.iter().filter_map(created).collect();
        let daemon = self.target.daemon();
        drop(self);
        let manager = Manager::connect(&daemon, "gnstor bench")?;
        names.iter().try_for_each(|name| Ok(manager.delete(name)?))
    }

    /// Counters as they are now.
    pub(super) fn stages(&self) -> Result<Stages, CliError> {
        let engines = self
            .target
            .transport()
            .each(|engine, _| engine.counters)
            .map_err(gnstor_array::ArrayError::from)?;
        let engine = engines.into_iter().sum();
        let channels =
            self.members.iter().map(|m| m.file.client().channel_stats()).collect::<Result<_, _>>()?;
        let log_records = self.central.as_ref().map_or(0, |central| central.records());
        let (agent, served) = (
            self.node.hca().stats().map_err(Error::from)?,
            self.logs.as_ref().map_or_else(Vec::new, Logs::read),
        );
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
            let mut progress =
                Progress { once, status: self.status_interval.filter(|_| !once), ..Progress::default() };
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if steps.interrupted() && !interrupted {
                    interrupted = true;
                    self.stop.write(0, &[1; 4])?;
                }
                progress.show(self, &bar, began.elapsed())?;
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

/// Copies of every block of all volumes, which are read back together.
fn same_replicas(members: &[Member]) -> Result<u32, CliError> {
    let replicas = members[0].file.info().replicas;
    match members.iter().find(|member| member.file.info().replicas != replicas) {
        None => Ok(replicas),
        Some(other) => Err(CliError::Usage(format!(
            "volume {} has {} replicas, and {} has {replicas}: take volumes with the same number",
            other.file.info().name,
            other.file.info().replicas,
            members[0].file.info().name
        ))),
    }
}

/// The link that was asked for, or the preset's.
fn link(args: &BenchArgs, preset: &Preset) -> LinkConfig {
    match args.link {
        _ if args.array.is_some() => LinkConfig::UNLIMITED,
        Some(LinkArg::Paper) => LinkConfig::PAPER_200GBE,
        Some(LinkArg::Half) => LinkConfig {
            bytes_per_second: LinkConfig::PAPER_200GBE.bytes_per_second / 2,
            ..LinkConfig::PAPER_200GBE
        },
        Some(LinkArg::None) => LinkConfig::UNLIMITED,
        None if preset.is_null() => LinkConfig::UNLIMITED,
        None => LinkConfig::PAPER_200GBE,
    }
}

/// What the kernel knows of each client, in device memory.
fn clients(device: &Arc<Device>, members: &[Member]) -> Result<DeviceMem, CliError> {
    let clients = device.alloc(members.len() * size_of::<ClientAbi>()).map_err(Error::from)?;
    for (place, member) in members.iter().enumerate() {
        let buffer = member.file.client().buffer().expect("it was asked for");
        let proxy = member.proxy.as_ref().map(|proxy| proxy.lock().expect("no panic while held").addresses());
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
    Ok(clients)
}

/// What a person sees while a launch runs.
#[derive(Default)]
struct Progress {
    /// Every unit is done once: the bar counts I/Os, and not time.
    once: bool,
    /// Time between two lines of the rate.
    status: Option<Duration>,
    /// I/Os and seconds when the bar was drawn last, and when the last line was printed.
    drawn: (u64, f64),
    printed: (u64, f64),
}

impl Progress {
    fn show(&mut self, harness: &Harness, bar: &ProgressBar, elapsed: Duration) -> Result<(), Error> {
        let seconds = elapsed.as_secs_f64();
        let due = self.status.is_some_and(|interval| seconds - self.printed.1 >= interval.as_secs_f64());
        if bar.is_hidden() && !due {
            return Ok(());
        }
        let ios = harness.ios_so_far()?;
        // A launch resets the counters when it begins.
        #[expect(clippy::cast_precision_loss, reason = "for display")]
        let rate = |(before, at): (u64, f64)| ios.saturating_sub(before) as f64 / (seconds - at);
        if due {
            let iops = rate(self.printed);
            bar.suspend(|| eprintln!("  status      {seconds:.1} s: {iops:.0} I/Os per s"));
            self.printed = (ios, seconds);
        }
        bar.set_message(format!("{:.0} I/Os per s", rate(self.drawn)));
        self.drawn = (ios, seconds);
        let millis = u64::try_from(elapsed.as_millis()).expect("at most days");
        bar.set_position(if self.once { ios } else { millis });
        Ok(())
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
    target: &Target,
    node: &Arc<Node>,
    central: Option<&Arc<Central>>,
) -> Result<Member, CliError> {
    let mut options = ConnectOptions::new(target.daemon());
    options.name = format!("bench {number}");
    options.fabric = target.fabric();
    options.io_timeout = args.io_timeout;
    options.buffer_bytes = usize::try_from(load.bs).expect("at most 16 MiB") * load.iodepth as usize;
    let client = Client::connect(node, &options)?;
    let name = volume_name(args, number);
    let created = target::volume(args, load, &client, &name)?;
    let file = client.open(&name, Rights::Write)?;
    let proxy =
        load.by_cpu().then(|| Proxy::new(number, &file, load, central).map(Mutex::new)).transpose()?;
    let alloc = |bytes| node.device().alloc(bytes).map_err(Error::from);
    Ok(Member {
        file,
        created,
        generations: alloc(load.units as usize * 4)?,
        lanes: alloc(load.iodepth as usize * size_of::<LaneResult>())?,
        histograms: alloc(2 * BUCKETS * 8)?,
        proxy,
    })
}
