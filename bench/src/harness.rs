// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of a run: an array, a node, clients with a volume each, and the kernel on all of them at once.

mod launch;

pub(super) use launch::{Outcome, Phase};

use super::args::BenchArgs;
use super::central::Central;
use super::kernel::{ArgsAbi, BUCKETS, ClientAbi, LaneResult};
use super::load::Load;
use super::proxy::Proxy;
use super::served::{Logs, Served};
use super::target::{self, Target, volume_name};
use super::words::LinkArg;
use gnstor_array::media;
use gnstor_console::CliError;
use gnstor_console::Steps;
use gnstor_deengine::Preset;
use gnstor_fabric::hca::agent::Unordered;
use gnstor_fabric::link::LinkConfig;
use gnstor_fabric::transport::Counters;
use libgnstor::{
    AgentStats, ChannelStats, Client, ConnectOptions, Device, DeviceMem, Error, File, Manager, Node,
    Residency, Rights,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zerocopy::IntoBytes;

/// A client with its volume and what the kernel keeps of it. The proxy's queues end before the client does.
#[derive(Debug)]
struct Member {
    /// The CPU thread that does its I/O, in modes in which the device does not.
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
    /// Number of the device's multiprocessors, which the kernel writes.
    multiprocessors: DeviceMem,
    /// Logs of the SSDs in this process.
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

/// Counters of the agent, the engine, the channels and the SSDs.
#[derive(Clone, Debug)]
pub(super) struct Stages {
    pub(super) agent: AgentStats,
    pub(super) engine: Counters,
    pub(super) channels: Vec<ChannelStats>,
    /// Records of the central engine's log.
    pub(super) log_records: u64,
    /// Counters of each SSD; `None` if it does not answer.
    pub(super) served: Vec<Option<Served>>,
}

impl Harness {
    /// Starts the array, connects the clients and makes their volumes.
    ///
    /// # Errors
    /// [`CliError`]: impossible options, a device that does not exist, no memory.
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
        let start = Start { args, load: &load, target: &target, node: &node, central: central.as_ref() };
        let mut members = Vec::new();
        for number in 0..load.clients {
            if steps.interrupted() {
                return Err(CliError::Interrupted);
            }
            members.push(member(number, &start)?);
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

    /// The open volumes, one for each client.
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

    /// Address of the daemon, if the array is not this process's own.
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

    /// The current counters.
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

    /// Flushes every SSD, for each client: a Flush covers the volumes of its own client.
    pub(super) fn flush(&self) -> Result<(), CliError> {
        self.members.iter().try_for_each(|member| Ok(member.file.flush()?))
    }
}

/// Number of replicas of all volumes, which are read back together.
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

/// The link of the options, otherwise the preset's.
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

/// The kernel's data about each client, in device memory.
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

/// What each client is started with.
#[derive(Clone, Copy)]
struct Start<'a> {
    args: &'a BenchArgs,
    load: &'a Load,
    target: &'a Target,
    node: &'a Arc<Node>,
    central: Option<&'a Arc<Central>>,
}

fn member(number: u32, start: &Start<'_>) -> Result<Member, CliError> {
    let Start { args, load, target, node, central } = *start;
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
