// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checked load that the words describe.

use super::args::BenchArgs;
use super::rate::Pace;
use super::words::{Bounce, Buffers, Mode, Rw, Switch};
use gnstor_array::check_ssds;
use gnstor_console::CliError;
use gnstor_console::human_bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A load that can be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The part that drives the array.
    pub mode: Mode,
    /// The pattern of requests.
    pub rw: Rw,
    /// Share of reads.
    pub read_percent: u32,
    /// Bytes of a request.
    pub bs: u64,
    /// Requests in flight, each client; with a limited rate, at most.
    pub iodepth: u32,
    /// I/Os a second of each client, if the rate is limited.
    #[serde(default)]
    pub rate_iops: Option<Pace>,
    /// Clients.
    pub clients: u32,
    /// Bytes of each client's volume that are used.
    pub size: u64,
    /// Seconds before the measured part.
    pub warmup_s: f64,
    /// Seconds of the measured part.
    pub runtime_s: f64,
    /// Copies of every block.
    pub replicas: u32,
    /// Seed.
    pub seed: u64,
    /// Whether a central engine decides where each unit is.
    pub central_engine: bool,
    /// The part that moves data between the host buffer and the device; `None` if there is no host buffer.
    pub bounce: Option<Bounce>,
    /// The form of requests' buffers.
    #[serde(default)]
    pub buffers: Buffers,
    /// Blocks of a request.
    #[serde(skip)]
    pub unit_blocks: u32,
    /// Requests that cover a volume once.
    #[serde(skip)]
    pub units: u32,
    /// Logical capacity of each SSD.
    #[serde(skip)]
    pub ssd_bytes: u64,
}

const BLOCK: u64 = gnstor_proto::BLOCK_BYTES as u64;
const CHUNK: u64 = 64 << 10;
/// Longest request of the device library.
const MAX_BS: u64 = 16 << 20;
/// Requests that a channel has slots for.
const MAX_DEPTH: u32 = 128;
const MAX_CLIENTS: u32 = 64;
const LONGEST: Duration = Duration::from_secs(24 * 3600);

fn usage<T>(what: String) -> Result<T, CliError> {
    Err(CliError::Usage(what))
}

/// Copies of every block.
fn replicas(args: &BenchArgs) -> Result<u32, CliError> {
    let most = u32::from(args.ssds).min(4);
    let replicas = args.replicas.unwrap_or(most.min(2));
    if replicas == 0 || replicas > most {
        let ssds = args.ssds;
        return usage(format!("--replicas {replicas} is not possible with --ssds {ssds}: use 1 to {most}"));
    }
    Ok(replicas)
}

/// Clients and what each has in flight fit the channels and the HCA.
fn check_clients(args: &BenchArgs) -> Result<(), CliError> {
    let (depth, clients) = (args.iodepth, args.clients);
    if depth == 0 || depth > MAX_DEPTH {
        return usage(format!(
            "--iodepth {depth} must be 1 to {MAX_DEPTH}, the slots of a channel; for more in flight use \
             more --clients"
        ));
    }
    if clients == 0 || clients > MAX_CLIENTS {
        return usage(format!("--clients {clients} must be 1 to {MAX_CLIENTS}"));
    }
    let channels = if args.mode == Mode::Gnstor { 1 } else { 2 };
    let (queue_pairs, most) = (channels * clients * u32::from(args.ssds), gnstor_fabric::hca::agent::MAX_QPS);
    if queue_pairs > most {
        let ssds = args.ssds;
        return usage(format!(
            "{clients} clients of {ssds} SSDs take {queue_pairs} queue pairs, and the HCA has {most}"
        ));
    }
    Ok(())
}

/// Number of requests that cover a volume once. Their size must be one that the device library accepts.
fn units(args: &BenchArgs) -> Result<u32, CliError> {
    let BenchArgs { bs, size, .. } = *args;
    if bs == 0 || !bs.is_multiple_of(BLOCK) || bs > MAX_BS {
        return usage(format!("--bs {bs} must be a multiple of 4096, up to {}", human_bytes(MAX_BS)));
    }
    let Ok(units) = u32::try_from(size / bs) else {
        return usage(format!("--size {size} is more than a volume holds"));
    };
    let in_pieces = args.mode == Mode::Gnstor && bs <= 1 << 20 && (bs <= CHUNK || bs.is_multiple_of(CHUNK));
    if args.buffers == Buffers::Pieces && !in_pieces {
        return usage(
            "--buffers pieces needs --mode gnstor, and --bs up to 64k or a multiple of that up to 1m".into(),
        );
    }
    if units < args.iodepth {
        let least = human_bytes(bs * u64::from(args.iodepth));
        return usage(format!("--size must be at least --iodepth times --bs, which is {least}"));
    }
    if size > 1 << 44 {
        return usage(format!("--size {} is more than a volume holds, 16 TiB", human_bytes(size)));
    }
    Ok(units)
}

/// A running array serves only clients whose device builds the commands.
fn check_array(args: &BenchArgs) -> Result<(), CliError> {
    if args.array.is_some() && args.mode != Mode::Gnstor {
        return usage("--array needs --mode gnstor: the other modes bring an array of their own".into());
    }
    if args.status_interval.is_some_and(|interval| interval < Duration::from_millis(200)) {
        return usage("--status-interval must be at least 200ms".into());
    }
    Ok(())
}

fn check_times(args: &BenchArgs) -> Result<(), CliError> {
    if args.runtime().is_zero() || args.runtime() > LONGEST || args.warmup > LONGEST {
        return usage("--runtime must be more than 0, and it and --warmup at most 24 hours".into());
    }
    if args.io_timeout < Duration::from_millis(1) || args.io_timeout > Duration::from_secs(3600) {
        return usage("--io-timeout must be 1ms to 1h".into());
    }
    Ok(())
}

/// Capacity of each SSD: what was asked for, or twice its share of the volumes.
fn ssd_bytes(args: &BenchArgs, size: u64, replicas: u32) -> Result<u64, CliError> {
    let all = size.next_multiple_of(CHUNK) * u64::from(args.clients * replicas);
    let share = all.div_ceil(args.ssds.into());
    let ssd_bytes = args.ssd_size.unwrap_or((2 * share).max(1 << 30).next_multiple_of(1 << 20));
    // Placement is random: an SSD may get more than its share.
    if share + share / 8 > ssd_bytes {
        return usage(format!(
            "{} on each SSD do not fit into --ssd-size {}; make --size, --clients or --replicas smaller",
            human_bytes(share),
            human_bytes(ssd_bytes)
        ));
    }
    Ok(ssd_bytes)
}

impl Load {
    /// The SSDs' data is in memory. Refuses a load that does not fit into `free` bytes of memory. `None`: the
    /// system does not say how much is free.
    ///
    /// # Errors
    /// [`CliError::Usage`].
    pub fn check_memory(&self, free: Option<u64>) -> Result<(), CliError> {
        let needed = self.size * u64::from(self.clients * self.replicas);
        match free.filter(|free| *free < needed) {
            None => Ok(()),
            Some(free) => Err(CliError::Usage(format!(
                "the volumes of all clients and their replicas hold {}, and this machine has {} of memory \
                 free; make --size, --clients or --replicas smaller",
                human_bytes(needed),
                human_bytes(free)
            ))),
        }
    }

    /// Checks what was asked for.
    ///
    /// # Errors
    /// [`CliError::Usage`] with what is wrong and what is possible.
    pub fn new(args: &BenchArgs) -> Result<Self, CliError> {
        check_ssds(args.ssds.into())?;
        check_array(args)?;
        let replicas = replicas(args)?;
        check_clients(args)?;
        let units = units(args)?;
        check_times(args)?;
        let size = u64::from(units) * args.bs;
        let pace = args.rate_iops.map(|rate| Pace::of(rate, args.rw)).transpose();
        let rate_iops = pace.map_err(CliError::Usage)?.flatten();
        let read_percent = match (args.rw, rate_iops) {
            (_, Some(pace)) => pace.read_percent(),
            (Rw::Read | Rw::Randread, None) => 100,
            (Rw::Write | Rw::Randwrite, None) => 0,
            (Rw::Randrw | Rw::Rw, None) => args.rwmixread.unwrap_or(50),
        };
        Ok(Self {
            mode: args.mode,
            rw: args.rw,
            read_percent,
            bs: args.bs,
            iodepth: args.iodepth,
            rate_iops,
            clients: args.clients,
            size,
            warmup_s: args.warmup.as_secs_f64(),
            runtime_s: args.runtime().as_secs_f64(),
            replicas,
            seed: args.seed,
            central_engine: matches!(args.mode, Mode::Gd | Mode::Basic)
                && args.central_engine != Some(Switch::Off),
            buffers: args.buffers,
            bounce: (args.mode == Mode::Basic).then(|| args.bounce.unwrap_or(Bounce::better(args.clients))),
            unit_blocks: u32::try_from(args.bs / BLOCK).expect("at most 16 MiB"),
            units,
            ssd_bytes: ssd_bytes(args, size, replicas)?,
        })
    }

    /// The order is random.
    pub fn is_random(&self) -> bool {
        matches!(self.rw, Rw::Randread | Rw::Randwrite | Rw::Randrw)
    }

    /// Additional units of a volume's space for a central engine: every request in flight may need one.
    pub fn spare_units(&self) -> u32 {
        self.iodepth
    }

    /// Capacity of each volume.
    pub fn volume_bytes(&self) -> u64 {
        let spare = if self.central_engine { u64::from(self.spare_units()) } else { 0 };
        (self.size + spare * self.bs).next_multiple_of(CHUNK)
    }

    /// A CPU thread does the I/O.
    pub fn by_cpu(&self) -> bool {
        self.mode != Mode::Gnstor
    }
}
