// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor demo`: the whole way once, with everything checked.

mod report;

use crate::args::DemoArgs;
use crate::demo_kernel::{self, Findings, hash_block};
use crate::files::readable;
use gnstor_array::media;
use gnstor_array::{Array, ArrayConfig, MapFormat, Ssds, check_ssds};
use gnstor_console::{CliError, Steps, describe_hca, human_bytes};
use gnstor_fabric::link::LinkConfig;
use gnstor_proto::status::Refusal;
use libgnstor::{
    Client, ConnectOptions, CreateOptions, Device, Error, Fabric, File, IoFailure, Node, Residency, Rights,
    describe_status,
};
use report::Timing;
use sha2::{Digest, Sha256};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub use report::{DemoReport, print};

const BLOCK: usize = gnstor_proto::BLOCK_BYTES as usize;
pub(crate) const VOLUME: &str = "demo";

/// What a demo plays with: a device, an array and a node in this process, and a file.
pub(crate) struct Cast<'a> {
    args: &'a DemoArgs,
    pub(crate) data: Input,
    pub(crate) device: Arc<Device>,
    node: Arc<Node>,
    pub(crate) array: Array,
}

impl<'a> Cast<'a> {
    pub(crate) fn new(args: &'a DemoArgs, steps: &Steps) -> Result<Self, CliError> {
        let preset = media::preset(&args.preset)?;
        if args.threads == 0 || args.threads > 1024 || !args.threads.is_multiple_of(32) {
            return Err(CliError::Usage(format!(
                "--threads {} must be a multiple of 32, up to 1024",
                args.threads
            )));
        }
        check_ssds(args.ssds.into())?;
        check_replicas(args)?;
        let data = read_input(args)?;
        let device = Device::open(args.device.into()).map_err(Error::from)?;
        steps.done(format!("device      {} ({})", device.name(), device.why()));
        let array = Array::start(&ArrayConfig {
            ssds: Ssds::Here(media::in_memory(args.ssds, &preset, args.ssd_size)),
            has_witness: false,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            fabric_listen: None,
            link: if args.preset == "null" { LinkConfig::UNLIMITED } else { LinkConfig::PAPER_200GBE },
            patience: gnstor_array::PATIENCE,
            out_after: Some(gnstor_array::OUT_AFTER),
            groups: gnstor_proto::placement::DEFAULT_GROUPS,
            map_format: MapFormat::default(),
            threads: args.engines.threads(),
            manager_key: None,
            replaces_key: false,
            openings: Arc::default(),
        })?;
        let address = array.daemon_address();
        steps.done(format!(
            "array       {} x {} of {}, daemon at {address}",
            args.ssds,
            args.preset,
            human_bytes(args.ssd_size)
        ));
        let residency = if args.one_grid { Residency::OneGrid } else { Residency::TwoKernels };
        let node = Arc::new(Node::new(array.transport(), &device, residency).map_err(Error::from)?);
        Ok(Self { args, data, device, node, array })
    }

    /// A client on the node.
    pub(crate) fn connect(&self, name: &str) -> Result<Arc<Client>, CliError> {
        self.connect_by(&self.node, name)
    }

    /// A client on any node.
    pub(crate) fn connect_by(&self, node: &Arc<Node>, name: &str) -> Result<Arc<Client>, CliError> {
        let mut options = ConnectOptions::new(self.array.daemon_address().to_string());
        options.name = name.into();
        options.fabric = Fabric::InProcess;
        options.io_timeout = self.args.io_timeout;
        Ok(Client::connect(node, &options)?)
    }

    /// The volume, large enough for the file.
    pub(crate) fn create(&self, client: &Client) -> Result<(), CliError> {
        let capacity_bytes = self.data.padded.len().next_multiple_of(64 << 10) as u64;
        let options =
            CreateOptions { capacity_bytes, replicas: replicas(self.args), ..CreateOptions::default() };
        client.create(VOLUME, &options)?;
        Ok(())
    }
}

/// Number of replicas: as requested, otherwise two, or one with one SSD.
fn replicas(args: &DemoArgs) -> u32 {
    args.replicas.unwrap_or(if args.ssds == 1 { 1 } else { 2 })
}

fn check_replicas(args: &DemoArgs) -> Result<(), CliError> {
    let (replicas, ssds) = (replicas(args), args.ssds);
    if replicas == 0 {
        return Err(CliError::Usage("--replicas 0: a block has at least one copy".into()));
    }
    if replicas > u32::from(ssds) {
        return Err(CliError::Usage(format!(
            "{replicas} replicas are not possible: each is on an SSD of its own, and the array has {ssds}; \
             give --replicas {ssds} or more --ssds"
        )));
    }
    Ok(())
}

/// Runs the demo.
///
/// # Errors
/// [`CliError`]: input that cannot be used, a device that is not there, and anything that did not verify.
pub fn run(args: &DemoArgs, steps: &Steps) -> Result<DemoReport, CliError> {
    let cast = Cast::new(args, steps)?;
    let (data, device, node) = (&cast.data, &cast.device, &cast.node);
    let connect = |name: &str| cast.connect(name);

    let writer = connect("writer")?;
    cast.create(&writer)?;
    let replicas_checked = write_and_check_replicas(&writer, data, steps)?;

    let reader = connect("reader")?;
    let file = reader.open(VOLUME, Rights::Read)?;
    let before = node.hca().stats().map_err(Error::from)?;
    let findings = read_by_kernel(&cast, &file, steps)?;
    let after = node.hca().stats().map_err(Error::from)?;

    let write = refused(&reader.attach_without_rights(VOLUME, Rights::Write)?, Rights::Write)?;
    let stranger = connect("stranger")?;
    let read = refused(&stranger.attach_without_rights(VOLUME, Rights::Read)?, Rights::Read)?;
    steps.done(format!("refused     the reader's write: {}", describe_status(write.status, write.dw0)));
    steps.done(format!("refused     the stranger's read: {}", describe_status(read.status, read.dw0)));

    let stats = reader.channel_stats()?;
    if stats.leaked != 0 || stats.protocol_errors != 0 {
        return Err(CliError::Verify(format!("the channel is not clean after the run: {stats:?}")));
    }
    let status = |f: &IoFailure| f.nvme_status().map_or(0, |s| s.0);
    let rule = |f: &IoFailure| f.rule().unwrap_or("unknown").to_owned();
    let timing = Timing::of(&findings);
    let responses = after.responses - before.responses;
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let share = |late: u64| {
        (args.preset != "null").then(|| if responses == 0 { 0.0 } else { late as f64 / responses as f64 })
    };
    Ok(DemoReport {
        device: device.kind().into(),
        device_name: device.name(),
        device_why: device.why().into(),
        ssds: args.ssds,
        preset: args.preset.clone(),
        ios: findings.hashes.len() as u64,
        bytes: data.padded.len() as u64,
        verified: true,
        replicas_checked,
        refused_write_status: status(&write),
        refused_read_status: status(&read),
        refused_rules: [rule(&write), rule(&read)],
        gbps: timing.gbps,
        p50_us: timing.p50_us,
        p99_us: timing.p99_us,
        p99_9_us: timing.p99_9_us,
        max_us: timing.max_us,
        late_share: share(after.late - before.late),
        client_late_share: share(after.client_late - before.client_late),
        retries: stats.retries,
        sha256: data.sha256.clone(),
        channel_bytes: reader.channel_bytes(),
        emulated: emulated(&cast),
    })
}

/// Has a kernel read every block once, and compares what its threads found with the file.
fn read_by_kernel(cast: &Cast<'_>, file: &File, steps: &Steps) -> Result<Findings, CliError> {
    let (args, padded) = (cast.args, &cast.data.padded);
    let blocks = u32::try_from(padded.len() / BLOCK).expect("checked by read_input");
    let grid = args.blocks;
    // Every thread reads its share one block at a time; each read has its own deadline.
    let rounds = u64::from(blocks.div_ceil(grid * args.threads)).max(1);
    let all = args.io_timeout.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
    let deadline = all.clamp(Duration::from_secs(30), Duration::from_secs(3600));
    let findings = demo_kernel::run(file, blocks, (grid, args.threads), deadline)?;
    steps.done(format!("kernel      {grid} x {} threads read {blocks} blocks", args.threads));
    let wrong = compare(&findings, padded);
    match wrong.first() {
        None => Ok(findings),
        Some(first) => {
            let count = wrong.len();
            Err(CliError::Verify(format!("{count} of {blocks} blocks are not what was written; {first}")))
        }
    }
}

/// Sentences about what was not real.
fn emulated(cast: &Cast<'_>) -> Vec<String> {
    let (link, ssds) = if cast.args.preset == "null" {
        ("link (not limited, in process)", "SSDs (no modelled time, data in RAM)")
    } else {
        ("link (200 GbE modelled, in process)", "SSDs (timing modelled, data in RAM)")
    };
    let mut emulated = vec![describe_hca(cast.node.hca().unordered()), link.into(), ssds.into()];
    if cast.device.kind() == "host" {
        emulated.push("GPU (the same device code on the CPU, as fibers)".into());
    }
    emulated
}

pub(crate) struct Input {
    /// The file, filled up with zeros to whole blocks.
    pub(crate) padded: Vec<u8>,
    sha256: String,
}

/// Reads one copy. Such a read goes to no other copy. On a busy machine its SSD may have no serving lease for
/// a moment, so the read is repeated.
fn read_copy(file: &File, replica: u32, at: u64, back: &mut [u8]) -> Result<(), libgnstor::Error> {
    let mut result = file.read_replica_at(replica, at, back);
    for _ in 0..50 {
        match &result {
            Err(libgnstor::Error::Io(failure)) if failure.rule() == Some(Refusal::NotServing.rule()) => {}
            _ => break,
        }
        std::thread::sleep(Duration::from_millis(100));
        result = file.read_replica_at(replica, at, back);
    }
    result
}

fn read_input(args: &DemoArgs) -> Result<Input, CliError> {
    let path = match &args.input {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(|e| {
            CliError::Usage(format!("the running executable cannot be found ({e}); give --input FILE"))
        })?,
    };
    let failed = |cause: String| CliError::File { path: path.display().to_string(), cause };
    readable([("--input", path.as_path())])?;
    let mut data = std::fs::read(&path).map_err(|e| failed(e.to_string()))?;
    if data.is_empty() {
        return Err(failed("the file is empty: there is nothing to store".into()));
    }
    let room = args.ssd_size.saturating_mul(u64::from(args.ssds)) / u64::from(replicas(args).max(1));
    if data.len() as u64 > room {
        let (size, room) = (human_bytes(data.len() as u64), human_bytes(room));
        return Err(failed(format!("{size} do not fit into the array's {room}; give --ssd-size or --ssds")));
    }
    let sha256 = Sha256::digest(&data).iter().map(|b| format!("{b:02x}")).collect();
    data.resize(data.len().next_multiple_of(BLOCK), 0);
    Ok(Input { padded: data, sha256 })
}

pub(crate) fn write_and_check_replicas(
    writer: &Arc<Client>,
    data: &Input,
    steps: &Steps,
) -> Result<u32, CliError> {
    let file = writer.open(VOLUME, Rights::Write)?;
    let bar = steps.bytes("write", data.padded.len() as u64);
    let mut at = 0;
    for part in data.padded.chunks(1 << 20) {
        if steps.interrupted() {
            return Err(CliError::Interrupted);
        }
        file.write_at(at, part)?;
        at += part.len() as u64;
        bar.set_position(at);
    }
    file.flush()?;
    bar.finish_and_clear();
    let replicas = file.info().replicas;
    steps.done(format!("written     {} in {replicas} replicas, flushed", human_bytes(at)));
    for replica in 0..replicas {
        let bar = steps.bytes("check", data.padded.len() as u64);
        let mut at = 0;
        let mut back = vec![0; 1 << 20];
        for part in data.padded.chunks(1 << 20) {
            if steps.interrupted() {
                return Err(CliError::Interrupted);
            }
            let back = &mut back[..part.len()];
            read_copy(&file, replica, at, back)?;
            if back != part {
                return Err(CliError::Verify(format!(
                    "replica {replica} differs from the file in bytes {at}..{}",
                    at + part.len() as u64
                )));
            }
            at += part.len() as u64;
            bar.set_position(at);
        }
        bar.finish_and_clear();
    }
    steps.done(format!("replicas    {replicas} read back whole and compared"));
    Ok(replicas)
}

/// Blocks that are not what was written, as sentences.
fn compare(findings: &Findings, data: &[u8]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (i, block) in data.chunks_exact(BLOCK).enumerate() {
        if findings.status[i] == u32::MAX {
            wrong.push(format!("block {i} was not read by any thread"));
        } else if findings.status[i] != 0 {
            wrong.push(format!("block {i}: {}", describe_status(findings.status[i], findings.detail[i])));
        } else if findings.hashes[i] != hash_block(block) {
            wrong.push(format!("block {i} has another hash"));
        }
    }
    wrong
}

/// An I/O that must be refused; its failure.
fn refused(file: &File, rights: Rights) -> Result<IoFailure, CliError> {
    let mut block = vec![0; BLOCK];
    let (result, what) = match rights {
        Rights::Write => (file.write_at(0, &block), "a write without the right to write"),
        Rights::Read => (file.read_at(0, &mut block), "a read by a stranger"),
    };
    match result {
        Ok(()) => Err(CliError::Verify(format!("{what} was not refused: the volume is not protected"))),
        Err(Error::Io(failure)) if failure.nvme_status().is_some() => Ok(failure),
        Err(other) => Err(other.into()),
    }
}
