// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of the load generator.

use super::rate::RateIops;
use super::words::{Bounce, Buffers, LinkArg, Mode, Rw, SuiteArg, Switch};
use clap::{ArgGroup, Args};
use gnstor_console::CliError;
use gnstor_console::words::{
    DeviceArg, EngineArgs, number, parse_daemons, parse_size, parse_ssd_size, parse_time, whole,
};
use std::path::PathBuf;
use std::time::Duration;

/// `gnstor bench`.
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("set").args(["figure", "suite"]))]
pub struct BenchArgs {
    /// Run the jobs of a file in the form of fio's job files, one after another
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub job: Option<PathBuf>,
    /// Run on the running array at this address [default: an array of its own]
    #[arg(long, value_name = "ADDRESS", requires = "volume", value_parser = parse_daemons)]
    #[arg(conflicts_with_all = ["set", "ssds", "preset", "link", "central_engine", "ssd_size", "runs"])]
    pub array: Option<String>,
    /// With --array: volume of the load, or NAME-0, NAME-1 and so on for several clients
    #[arg(long, value_name = "NAME", requires = "array")]
    pub volume: Option<String>,
    /// With --array: write over the data of a volume that exists
    #[arg(long, requires = "array")]
    pub overwrite: bool,
    /// Run the loads of a figure of the paper
    #[arg(long, value_name = "9..13", value_parser = whole::<u8>(9, 13))]
    #[arg(conflicts_with_all = ["mode", "rw", "rwmixread", "bs", "clients", "ssds", "replicas"])]
    pub figure: Option<u8>,
    /// Run a set of loads; a later call continues where this one ends
    #[arg(long, value_enum, requires = "out")]
    #[arg(conflicts_with_all = ["figure", "mode", "rw", "rwmixread", "bs", "clients", "ssds", "replicas"])]
    #[arg(conflicts_with_all = ["preset", "link", "central_engine", "iodepth", "plot"])]
    pub suite: Option<SuiteArg>,
    /// With --suite: folder of the results
    #[arg(long, value_name = "DIR", requires = "suite")]
    pub out: Option<PathBuf>,
    /// With --suite: start no run that may end after this time [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "suite")]
    pub budget: Option<Duration>,
    /// Repeat each load N times and report median and spread [default: 1; with --suite 3]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 100))]
    pub runs: Option<u32>,
    /// With --figure: run only points with these words in their names, such as gnstor,gd,4k,c1
    #[arg(long, value_name = "WORDS", value_delimiter = ',', requires = "figure")]
    pub points: Vec<String>,
    /// With --figure or --suite: largest number of clients
    #[arg(long, value_name = "N", requires = "set", value_parser = whole::<u32>(1, u32::MAX.into()))]
    pub max_clients: Option<u32>,
    /// Which part issues the I/O
    #[arg(long, value_enum, default_value = "gnstor")]
    pub mode: Mode,
    /// Direction and order of the I/Os
    #[arg(long, visible_alias = "readwrite", value_enum, default_value = "randread")]
    pub rw: Rw,
    /// With --rw randrw or rw: share of reads, percent [default: 50]
    #[arg(long, value_name = "PERCENT", value_parser = whole::<u32>(0, 100))]
    pub rwmixread: Option<u32>,
    /// Size of a request, a multiple of 4 KiB
    #[arg(long, default_value = "4k", value_parser = parse_size, value_name = "SIZE")]
    pub bs: u64,
    /// Requests in flight for each client, 1 to 128
    #[arg(long, default_value = "32", value_name = "N", value_parser = number::<u32>("1 to 128"))]
    pub iodepth: u32,
    /// I/Os a second of each client, or READS,WRITES; 0: no limit. Latency then counts from when a request
    /// was due
    #[arg(long, alias = "rate_iops", value_name = "N[,N]", conflicts_with = "set")]
    pub rate_iops: Option<RateIops>,
    /// Number of clients, each with a volume of its own, 1 to 64
    #[arg(long, visible_alias = "numjobs", default_value = "1", value_name = "N", value_parser = number::<u32>("1 to 64"))]
    pub clients: u32,
    /// Size of each client's volume
    #[arg(long, default_value = "64MiB", value_parser = parse_size, value_name = "SIZE")]
    pub size: u64,
    /// Measured time of each run, such as 500ms or 2m [default: 10s; with --figure 3s, with --suite 1s]
    #[arg(long, value_parser = parse_time, value_name = "TIME")]
    pub runtime: Option<Duration>,
    /// Time that the load runs before it is measured
    #[arg(long, default_value = "1s", value_parser = parse_time, value_name = "TIME")]
    pub warmup: Duration,
    /// Check every read, and read every replica back after writes
    #[arg(long, value_enum, default_value = "on")]
    pub verify: Switch,
    /// Seed of order and data
    #[arg(long, default_value = "1", value_name = "N", value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: u64,
    /// Where device code runs
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceArg,
    /// Number of SSDs
    #[arg(long, default_value = "4", value_name = "N", value_parser = whole::<u16>(1, 64))]
    pub ssds: u16,
    /// Copies of every block [default: 2, or 1 with one SSD]
    #[arg(long, value_name = "N", value_parser = number::<u32>("1 to 4"))]
    pub replicas: Option<u32>,
    /// Preset of the SSDs, or a file with one
    #[arg(long, default_value = gnstor_array::media::DEFAULT_PRESET, value_name = "NAME|FILE.toml")]
    pub preset: String,
    /// Link between clients and SSDs [default: 200gbe; none with --preset null]
    #[arg(long, value_enum)]
    pub link: Option<LinkArg>,
    /// With --mode gd or basic: map blocks and log changes in one central engine [default: on]
    #[arg(long, value_enum)]
    pub central_engine: Option<Switch>,
    /// Layout of the buffers; pieces needs --mode gnstor and --bs up to 1m
    #[arg(long, value_enum, default_value = "contiguous", conflicts_with_all = ["figure", "suite"])]
    pub buffers: Buffers,
    /// With --mode basic: how data moves to the device [default: batch with one client, else kernel]
    #[arg(long, value_enum)]
    pub bounce: Option<Bounce>,
    /// Logical capacity of each SSD [default: twice its share of the volumes, at least 1GiB]
    #[arg(long, value_parser = parse_ssd_size, value_name = "SIZE")]
    pub ssd_size: Option<u64>,
    /// Run the emulated network card and the kernel as one kernel, for tools that allow only one (such as
    /// compute-sanitizer)
    #[arg(long)]
    pub one_grid: bool,
    /// Threads.
    #[command(flatten)]
    pub engines: EngineArgs,
    /// Deadline of one I/O
    #[arg(long, default_value = "10s", value_parser = parse_time, value_name = "TIME")]
    pub io_timeout: Duration,
    /// Print the rate to standard error at this interval, such as 1s
    #[arg(long, value_parser = parse_time, value_name = "TIME", conflicts_with = "set")]
    pub status_interval: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Draw latencies or figure into this file
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    pub plot: Option<PathBuf>,
}

impl BenchArgs {
    /// Refuses options that this load would ignore. A job file may have them for other jobs of it.
    ///
    /// # Errors
    /// [`CliError::Usage`]
    pub(crate) fn check_words(&self) -> Result<(), CliError> {
        let wrong = |why: &str| Err(CliError::Usage(why.into()));
        let is_set = self.figure.is_some() || self.suite.is_some();
        if self.rwmixread.is_some() && !matches!(self.rw, Rw::Rw | Rw::Randrw) {
            return wrong("--rwmixread is for mixes: use it with --rw randrw or --rw rw");
        }
        if self.bounce.is_some() && self.mode != Mode::Basic && !is_set {
            return wrong("--bounce is for the bounce buffers of --mode basic: use it with that mode");
        }
        if self.central_engine.is_some() && !matches!(self.mode, Mode::Gd | Mode::Basic) && !is_set {
            return wrong("--central-engine is for --mode gd and --mode basic: use it with one of them");
        }
        let is_pair = |rate: &RateIops| rate.read != rate.write;
        if let Some(RateIops { read, write }) = self.rate_iops.filter(is_pair)
            && match self.rw {
                Rw::Read | Rw::Randread => write.is_some(),
                Rw::Write | Rw::Randwrite => read.is_some(),
                Rw::Rw | Rw::Randrw => false,
            }
        {
            return wrong(
                "--rate-iops READS,WRITES is for mixes: give one number, or use --rw randrw or --rw rw",
            );
        }
        Ok(())
    }

    /// Length of the measurement.
    pub fn runtime(&self) -> Duration {
        let seconds = match (self.suite, self.figure) {
            (Some(_), _) => 1,
            (None, Some(_)) => 3,
            (None, None) => 10,
        };
        self.runtime.unwrap_or(Duration::from_secs(seconds))
    }

    /// Number of runs of each load.
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
