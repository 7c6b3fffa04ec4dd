// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of the load generator, which are fio's, and the checked load that they describe.

use crate::CliError;
use crate::args::{DeviceArg, EngineArgs, parse_size};
use crate::array::check_ssds;
use crate::report::human_bytes;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Who drives the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The device: queues in its memory, commands built by its threads
    Gnstor,
    /// A CPU thread for each client and a central engine that maps and logs; data goes straight into device memory
    Gd,
    /// As gd without the central engine: the SSDs map and check
    #[value(name = "gd+deengine")]
    #[serde(rename = "gd+deengine")]
    GdDeengine,
    /// As gd, data through a buffer in host memory
    Basic,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rw {
    /// Reads, one after the other
    Read,
    /// Writes, one after the other
    Write,
    /// Reads in random order
    Randread,
    /// Writes in random order
    Randwrite,
    /// Reads and writes in random order, by --rwmixread
    Randrw,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Every sector's header is checked, and one block of 64 in full
    On,
    /// Nothing is checked
    Off,
}

/// `gnstor bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// Run a figure of the paper on its testbed: every point a run of its own
    #[arg(long, value_name = "9..13", value_parser = clap::value_parser!(u8).range(9..=13))]
    #[arg(conflicts_with_all = ["mode", "rw", "rwmixread", "bs", "clients", "ssds", "replicas"])]
    pub figure: Option<u8>,
    /// With --figure: only these points, by words of their names, such as gnstor,gd,randread,4k,c1,s4
    #[arg(long, value_name = "WORDS", value_delimiter = ',', requires = "figure")]
    pub points: Vec<String>,
    /// With --figure: at most so many clients. Figure 11 leaves out the points with more, figure 12 takes fewer
    #[arg(long, value_name = "N", requires = "figure", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_clients: Option<u32>,
    /// Who drives the array
    #[arg(long, value_enum, default_value = "gnstor")]
    pub mode: Mode,
    /// What is done
    #[arg(long, value_enum, default_value = "randread")]
    pub rw: Rw,
    /// Share of reads with --rw randrw, per cent
    #[arg(long, default_value_t = 50, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub rwmixread: u32,
    /// Bytes of a request, a multiple of 4 KiB
    #[arg(long, default_value = "4k", value_parser = parse_size, value_name = "SIZE")]
    pub bs: u64,
    /// Requests that each client keeps in flight, 1 to 128
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub iodepth: u32,
    /// Clients: a channel, a volume and a block of threads each, 1 to 64
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub clients: u32,
    /// Bytes of each client's volume
    #[arg(long, default_value = "64MiB", value_parser = parse_size, value_name = "SIZE")]
    pub size: u64,
    /// How long to measure: 10, 500ms, 2m [default: 10s; with --figure 3s for each point]
    #[arg(long, value_parser = parse_time, value_name = "TIME")]
    pub runtime: Option<Duration>,
    /// How long to run before that, unmeasured
    #[arg(long, default_value = "1s", value_parser = parse_time, value_name = "TIME")]
    pub warmup: Duration,
    /// Check what is read
    #[arg(long, value_enum, default_value = "on")]
    pub verify: Switch,
    /// Seed of the order and of the data
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Where device code runs
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceArg,
    /// Number of SSDs
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub ssds: u16,
    /// Copies of every block [default: 2, or 1 with one SSD]
    #[arg(long, value_name = "N")]
    pub replicas: Option<u32>,
    /// Preset of the SSDs, or a file with one
    #[arg(long, default_value = crate::media::DEFAULT_PRESET, value_name = "NAME|FILE.toml")]
    pub preset: String,
    /// Logical capacity of each SSD [default: twice its share of the volumes, at least 1GiB]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub ssd_size: Option<u64>,
    /// Run the HCA agent and the kernel as blocks of one grid, for tools that never run two kernels at once
    #[arg(long)]
    pub one_grid: bool,
    /// Threads.
    #[command(flatten)]
    pub engines: EngineArgs,
    /// Deadline of one I/O
    #[arg(long, default_value = "10s", value_parser = parse_time, value_name = "TIME")]
    pub io_timeout: Duration,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Draw the latencies, or the figure, into this file
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    pub plot: Option<PathBuf>,
}

impl BenchArgs {
    /// How long to measure.
    pub fn runtime(&self) -> Duration {
        self.runtime.unwrap_or(Duration::from_secs(if self.figure.is_some() { 3 } else { 10 }))
    }
}

/// A load that can be run.
#[derive(Clone, Debug, Serialize)]
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
            return usage(format!("--replicas {replicas} is not possible with --ssds {}: use 1 to {most}", args.ssds));
        }
        if args.bs == 0 || !args.bs.is_multiple_of(BLOCK) || args.bs > MAX_BS {
            return usage(format!("--bs {} must be a multiple of 4096, up to {}", args.bs, human_bytes(MAX_BS)));
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
        let share = (size.next_multiple_of(CHUNK) * u64::from(args.clients * replicas)).div_ceil(args.ssds.into());
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
        let spare = if self.has_central_engine() { u64::from(super::central::spare_units(self)) } else { 0 };
        (self.size + spare * self.bs).next_multiple_of(CHUNK)
    }

    /// A CPU thread does the I/O.
    pub fn by_cpu(&self) -> bool {
        self.mode != Mode::Gnstor
    }

    /// A central engine says where everything is.
    pub fn has_central_engine(&self) -> bool {
        matches!(self.mode, Mode::Gd | Mode::Basic)
    }
}

/// A time: a number with ms, s, m or h; seconds without a unit.
fn parse_time(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("'{other}' is not a unit of time; use ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| format!("'{text}' is not a time; write it like 10s"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| format!("{text} is longer than a computer can count"))
}

#[cfg(test)]
mod tests {
    use super::parse_time;
    use std::time::Duration;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert!(["", "s", "5 parsec", "1e9", "-1", "1.2.3", "inf"].iter().all(|wrong| parse_time(wrong).is_err()));
    }
}
