// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of the load generator, which are fio's.

use clap::{ArgGroup, Args, ValueEnum};
use gnstor_console::words::{DeviceArg, EngineArgs, parse_size, parse_time};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Who drives the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
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
    /// On
    On,
    /// Off
    Off,
}

/// Who moves the data of `basic` between host and device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bounce {
    /// The driver, by one cuMemcpyBatchAsync for all that is to be moved at a time; a kernel where the driver is of a CUDA before 13.0
    Batch,
    /// A kernel, by one launch for all that is to be moved at a time
    Kernel,
}

impl Bounce {
    /// The better one for so many clients (docs/decisions/0032).
    pub fn better(clients: u32) -> Self {
        if clients == 1 { Self::Batch } else { Self::Kernel }
    }
}

/// What the buffers of requests are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Buffers {
    /// Each in one piece
    #[default]
    Contiguous,
    /// As from a pool in fragments: no two pages of one are neighbours, above 64k no two blocks of 64 KiB. A command for each piece
    Pieces,
}

/// The link between clients and SSDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinkArg {
    /// The paper's: 22.1 GB/s each way, 1 us
    #[value(name = "200gbe")]
    Paper,
    /// Not limited, no time of its own
    None,
}

/// A set of loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SuiteArg {
    /// What the project wants to reach, beside what the machine can: a bare copy, the modelled ideal
    Targets,
    /// Figures 9 to 13 of the paper; a point that several of them have is run once
    Figures,
}

/// `gnstor bench`.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("set").args(["figure", "suite"]))]
pub struct BenchArgs {
    /// Run a figure of the paper on its testbed: every point a run of its own
    #[arg(long, value_name = "9..13", value_parser = clap::value_parser!(u8).range(9..=13))]
    #[arg(conflicts_with_all = ["mode", "rw", "rwmixread", "bs", "clients", "ssds", "replicas"])]
    pub figure: Option<u8>,
    /// Run a set of loads, each several times, in as many calls as it takes; results are kept in --out
    #[arg(long, value_enum, requires = "out")]
    #[arg(conflicts_with_all = ["figure", "mode", "rw", "rwmixread", "bs", "clients", "ssds", "replicas", "preset", "link", "central_engine", "iodepth", "plot"])]
    pub suite: Option<SuiteArg>,
    /// With --suite: the folder of its results. Runs that are there are not done again
    #[arg(long, value_name = "DIR", requires = "suite")]
    pub out: Option<PathBuf>,
    /// With --suite: begin no run that may not end within this time; the next call goes on [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "suite")]
    pub budget: Option<Duration>,
    /// Runs of the load, of each point or of each row, each on an array of its own: the report has median and spread
    /// [default: 1; with --suite 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: Option<u32>,
    /// With --figure: only these points, by words of their names, such as gnstor,gd,randread,4k,c1,s4
    #[arg(long, value_name = "WORDS", value_delimiter = ',', requires = "figure")]
    pub points: Vec<String>,
    /// With --figure or --suite: at most so many clients. Figure 11 leaves out the points with more, all else takes fewer
    #[arg(long, value_name = "N", requires = "set", value_parser = clap::value_parser!(u32).range(1..))]
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
    /// How long to measure: 10, 500ms, 2m [default: 10s; with --figure 3s for each point, with --suite 1s for each run]
    #[arg(long, value_parser = parse_time, value_name = "TIME")]
    pub runtime: Option<Duration>,
    /// How long to run before that, unmeasured
    #[arg(long, default_value = "1s", value_parser = parse_time, value_name = "TIME")]
    pub warmup: Duration,
    /// Check what is read: every sector's header, and one block of 64 in full
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
    #[arg(long, default_value = gnstor_array::media::DEFAULT_PRESET, value_name = "NAME|FILE.toml")]
    pub preset: String,
    /// The link between clients and SSDs [default: 200gbe; none with --preset null]
    #[arg(long, value_enum)]
    pub link: Option<LinkArg>,
    /// The central engine of --mode gd and basic; without it the SSDs map and check, as in gd+deengine
    #[arg(long, value_enum, default_value = "on")]
    pub central_engine: Switch,
    /// What the buffers of requests are like; other than contiguous only with --mode gnstor and --bs up to 1m
    #[arg(long, value_enum, default_value = "contiguous", conflicts_with_all = ["figure", "suite"])]
    pub buffers: Buffers,
    /// Who moves data between the buffer of --mode basic and device memory [default: what was better on an H200: batch with one client, kernel with more]
    #[arg(long, value_enum)]
    pub bounce: Option<Bounce>,
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
        let seconds = match (self.suite, self.figure) {
            (Some(_), _) => 1,
            (None, Some(_)) => 3,
            (None, None) => 10,
        };
        self.runtime.unwrap_or(Duration::from_secs(seconds))
    }

    /// How often to run each load.
    pub fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.suite.is_some() { 3 } else { 1 })
    }
}

/// The arguments that these words of a command line give.
#[cfg(test)]
pub(crate) fn parsed(words: &[&str]) -> BenchArgs {
    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: BenchArgs,
    }
    let words = std::iter::once(&"bench").chain(words);
    <Words as clap::Parser>::try_parse_from(words).expect("words of the command").args
}
