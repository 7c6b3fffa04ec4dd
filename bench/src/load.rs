// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The checked load that the words describe.

use super::args::{BenchArgs, Bounce, Buffers, Mode, Rw, Switch};
use gnstor_array::check_ssds;
use gnstor_console::CliError;
use gnstor_console::human_bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A load that can be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Who drives the array.
    pub mode: Mode,
    /// What is done.
    pub rw: Rw,
    /// Share of reads.
    pub read_percent: u32,
    /// Bytes of a request.
    pub bs: u64,
    /// Requests in flight, each client.
    pub iodepth: u32,
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
    /// A central engine says where everything is.
    pub central_engine: bool,
    /// Who moves data between the buffer in host memory and the device; `None` where there is no such buffer.
    pub bounce: Option<Bounce>,
    /// What the buffers of requests are like.
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
/// Longest request: what the device library takes.
const MAX_BS: u64 = 16 << 20;
/// Requests that a channel has slots for.
const MAX_DEPTH: u32 = 128;
const MAX_CLIENTS: u32 = 64;
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Load {
    /// The SSDs' data is in memory: refuses what a machine with so many bytes of it free cannot hold. None: nobody knows.
    ///
    /// # Errors
    /// [`CliError::Usage`].
    pub fn check_memory(&self, free: Option<u64>) -> Result<(), CliError> {
        let needed = self.size * u64::from(self.clients * self.replicas);
        match free.filter(|free| *free < needed) {
            None => Ok(()),
            Some(free) => Err(CliError::Usage(format!(
                "the volumes of all clients and their replicas hold {}, and this machine has {} of memory free; make --size, --clients or --replicas smaller",
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
        let usage = |what: String| Err(CliError::Usage(what));
        check_ssds(args.ssds.into())?;
        let replicas = args.replicas.unwrap_or(u32::from(args.ssds).min(2));
        if replicas == 0 || replicas > u32::from(args.ssds).min(4) {
            let most = args.ssds.min(4);
            return usage(format!(
                "--replicas {replicas} is not possible with --ssds {}: use 1 to {most}",
                args.ssds
            ));
        }
        if args.bs == 0 || !args.bs.is_multiple_of(BLOCK) || args.bs > MAX_BS {
            return usage(format!(
                "--bs {} must be a multiple of 4096, up to {}",
                args.bs,
                human_bytes(MAX_BS)
            ));
        }
        if args.iodepth == 0 || args.iodepth > MAX_DEPTH {
            return usage(format!(
                "--iodepth {} must be 1 to {MAX_DEPTH}, the slots of a channel; for more in flight use more --clients",
                args.iodepth
            ));
        }
        if args.clients == 0 || args.clients > MAX_CLIENTS {
            return usage(format!("--clients {} must be 1 to {MAX_CLIENTS}", args.clients));
        }
        let channels = if args.mode == Mode::Gnstor { 1 } else { 2 };
        let queue_pairs = channels * args.clients * u32::from(args.ssds);
        if queue_pairs > gnstor_fabric::hca::agent::MAX_QPS {
            let most = gnstor_fabric::hca::agent::MAX_QPS;
            return usage(format!(
                "{} clients of {} SSDs take {queue_pairs} queue pairs, and the HCA has {most}",
                args.clients, args.ssds
            ));
        }
        let Ok(units) = u32::try_from(args.size / args.bs) else {
            return usage(format!("--size {} is more than a volume holds", args.size));
        };
        if args.buffers == Buffers::Pieces
            && (args.mode != Mode::Gnstor
                || args.bs > 1 << 20
                || (args.bs > CHUNK && !args.bs.is_multiple_of(CHUNK)))
        {
            return usage(
                "--buffers pieces goes with --mode gnstor and with --bs up to 64k or a multiple of that up to 1m"
                    .into(),
            );
        }
        if units < args.iodepth {
            let least = human_bytes(args.bs * u64::from(args.iodepth));
            return usage(format!("--size must be at least --iodepth times --bs, which is {least}"));
        }
        if args.size > 1 << 44 {
            return usage(format!("--size {} is more than a volume holds, 16 TiB", human_bytes(args.size)));
        }
        if args.runtime().is_zero() || args.runtime() > LONGEST || args.warmup > LONGEST {
            return usage("--runtime must be more than 0, and it and --warmup at most 24 hours".into());
        }
        if args.io_timeout < Duration::from_millis(1) || args.io_timeout > Duration::from_secs(3600) {
            return usage("--io-timeout must be 1ms to 1h".into());
        }
        let size = u64::from(units) * args.bs;
        let share =
            (size.next_multiple_of(CHUNK) * u64::from(args.clients * replicas)).div_ceil(args.ssds.into());
        let ssd_bytes = args.ssd_size.unwrap_or((2 * share).max(1 << 30).next_multiple_of(1 << 20));
        // Placement is random: an SSD may get more than its share.
        if share + share / 8 > ssd_bytes {
            return usage(format!(
                "{} on each SSD do not fit into --ssd-size {}; make --size, --clients or --replicas smaller",
                human_bytes(share),
                human_bytes(ssd_bytes)
            ));
        }
        let read_percent = match args.rw {
            Rw::Read | Rw::Randread => 100,
            Rw::Write | Rw::Randwrite => 0,
            Rw::Randrw => args.rwmixread,
        };
        Ok(Self {
            mode: args.mode,
            rw: args.rw,
            read_percent,
            bs: args.bs,
            iodepth: args.iodepth,
            clients: args.clients,
            size,
            warmup_s: args.warmup.as_secs_f64(),
            runtime_s: args.runtime().as_secs_f64(),
            replicas,
            seed: args.seed,
            central_engine: matches!(args.mode, Mode::Gd | Mode::Basic) && args.central_engine == Switch::On,
            buffers: args.buffers,
            bounce: (args.mode == Mode::Basic).then(|| args.bounce.unwrap_or(Bounce::better(args.clients))),
            unit_blocks: u32::try_from(args.bs / BLOCK).expect("at most 16 MiB"),
            units,
            ssd_bytes,
        })
    }

    /// The order is random.
    pub fn is_random(&self) -> bool {
        matches!(self.rw, Rw::Randread | Rw::Randwrite | Rw::Randrw)
    }

    /// Capacity of each volume.
    pub fn volume_bytes(&self) -> u64 {
        let spare = if self.central_engine { u64::from(super::central::spare_units(self)) } else { 0 };
        (self.size + spare * self.bs).next_multiple_of(CHUNK)
    }

    /// A CPU thread does the I/O.
    pub fn by_cpu(&self) -> bool {
        self.mode != Mode::Gnstor
    }
}
