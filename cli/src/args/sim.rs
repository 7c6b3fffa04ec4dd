// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of `gnstor sim`.

use clap::{Args, Subcommand, ValueEnum};
use gnstor_console::words::{number, parse_size, parse_ssd_size, parse_time, whole};
use gnstor_sim::load::Rw;
use gnstor_sim::scale::Range;
use gnstor_sim::survive::campaign::Seeds;
use gnstor_sim::survive::shrink::{Idle, Without};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// `gnstor sim`.
#[derive(Clone, Debug, Args)]
pub struct SimArgs {
    /// What to simulate.
    #[command(subcommand)]
    pub command: SimCommand,
}

/// `gnstor sim ...`.
#[derive(Clone, Debug, Subcommand)]
pub enum SimCommand {
    /// Throughput and latency of closed loops, for ranges of clients and SSDs
    #[command(
        after_help = concat!(
            "A range is N, or FIRST..LAST, which doubles from FIRST on and ends with LAST.\n\n",
            "Real: firmware, translation layer, permission checks, RC transport, placement, bytes of ",
            "commands. Modelled: time of flash and wires, the client (the initiator as a host program that ",
            "takes no time). Data: one token a block, and each read is checked against it. Not there: GPU ",
            "time, Keep Alive of clients. The same arguments print the same bytes.\n\n",
            "With --fail the array of that SSD also has, real: daemon core, its links, voters, leases, maps, fills, ",
            "blocks of 4 KiB. Modelled: gRPC, threads, how clients' hosts ask for maps and give up queues. Wires ",
            "between SSDs, and between daemon and SSDs, are those of the clients.\n\n",
            "Exit codes: 0 all well; 1 an SSD refused a command, or a read brought wrong data; 2 the command ",
            "line was not understood, or asks for more memory than --memory.",
        )
    )]
    Scale(ScaleArgs),
    /// Arrays with faults, one from each seed, and checkers of what was promised
    #[command(
        after_help = concat!(
            "SEEDS is N, or FIRST..LAST. A seed draws an array, a load and the odds of faults, and plays them in ",
            "virtual time. Then no fault happens, and everything must heal within 60 s.\n\n",
            "Real: firmware, translation layer, daemon core, the daemon's links, placement, bytes of commands, ",
            "data. Modelled: wires, gRPC, the client (the initiator as a host program). Faults: late messages, ",
            "resets, links cut in one direction, SSDs that stand still, are killed or lose their power, media ",
            "errors, killed daemons and clients. docs/survive.md says what is not there.\n\n",
            "Exit codes: 0 no promise was broken; 1 one was, with the line that replays its seed, or with --stats ",
            "1,000 seeds did not meet everything; 2 the command line was not understood, or the build does not ",
            "have the mistake.",
        )
    )]
    Survive(SurviveArgs),
}

/// `gnstor sim survive`.
#[derive(Clone, Debug, Args)]
pub struct SurviveArgs {
    /// The seeds to play
    #[arg(long, default_value = "1..100", value_name = "SEEDS")]
    pub seeds: Seeds,
    /// Play one seed
    #[arg(long, value_name = "N", conflicts_with = "seeds", value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: Option<u64>,
    /// Seeds played at a time; each is played by one thread
    #[arg(long, default_value = "1", value_name = "N", value_parser = number::<NonZeroUsize>("1 or more"))]
    pub jobs: NonZeroUsize,
    /// Print what happens in the seed
    #[arg(long, requires = "seed")]
    pub trace: bool,
    /// Leave out clients, faults and turns of clients of a seed that fails, as long as it still fails
    #[arg(long)]
    pub shrink: bool,
    /// Leave out these faults, by their numbers, as --shrink names them
    #[arg(long, value_name = "N,N,...", requires = "seed")]
    pub without: Option<Without>,
    /// Leave out these clients, and turns of clients, as --shrink names them: 2,0.5 is client 2, and turn 5
    /// of client 0. In a turn a client opens a volume, or deletes one
    #[arg(long, value_name = "N,N.N,...", requires = "seed")]
    pub idle: Option<Idle>,
    /// Print how often each fault, path, change of the map and refusal was met. In 1,000 seeds each must be
    #[arg(long)]
    pub stats: bool,
    /// Make this mistake, in a build that has it (scripts/planted-survive)
    #[arg(long, value_name = "NAME")]
    pub planted: Option<String>,
    /// Print one JSON object
    #[arg(long, conflicts_with = "trace")]
    pub json: bool,
}

/// `gnstor sim scale`.
#[derive(Clone, Debug, Args)]
pub struct ScaleArgs {
    /// Clients, each with a volume and a channel of its own, 1 to 1024
    #[arg(long, default_value = "1..32", value_name = "RANGE")]
    pub clients: Range,
    /// SSDs, 1 to 1024; more than 64 are several arrays, and each client has its volume in one of them
    #[arg(long, default_value = "4", value_name = "RANGE")]
    pub ssds: Range,
    /// Machines with SSDs, each with a link of its own
    #[arg(long, default_value = "1", value_name = "N", value_parser = number::<usize>("1 or more"))]
    pub nodes: usize,
    /// Copies of every block [default: 2, or 1 with one SSD]
    #[arg(long, value_name = "N", value_parser = whole::<u8>(1, 4))]
    pub replicas: Option<u8>,
    /// What the clients do
    #[arg(long, value_enum, default_value = "randread", value_name = "RW")]
    pub rw: RwArg,
    /// Size of a request
    #[arg(long, default_value = "4KiB", value_parser = parse_size, value_name = "SIZE")]
    pub bs: u64,
    /// Requests in flight of each client, 1 to 128
    #[arg(long, default_value = "32", value_name = "N", value_parser = number::<u16>("1 to 128"))]
    pub iodepth: u16,
    /// Skew of random I/O: Zipf exponent such as 0.99; 0 is uniform
    #[arg(long, default_value = "0", value_parser = parse_permille, hide_default_value = true)]
    #[arg(value_name = "EXPONENT", allow_negative_numbers = true)]
    pub zipf: u32,
    /// Size of each client's volume, at most 4 GiB
    #[arg(long, default_value = "16MiB", value_parser = parse_size, value_name = "SIZE")]
    pub size: u64,
    /// Logical capacity of each SSD [default: twice what the volumes take of it, at least 256 MiB]
    #[arg(long, value_parser = parse_ssd_size, value_name = "SIZE")]
    pub ssd_size: Option<u64>,
    /// Preset of the SSDs
    #[arg(long, default_value = "gnstor-980pro", value_name = "NAME")]
    pub preset: String,
    /// Link of each machine with SSDs
    #[arg(long, value_enum, default_value = "200gbe", value_name = "LINK")]
    pub link: SimLink,
    /// Virtual time before the measured part
    #[arg(long, default_value = "5ms", value_parser = parse_time, value_name = "TIME")]
    pub warmup: Duration,
    /// Virtual time of the measured part
    #[arg(long, default_value = "20ms", value_parser = parse_time, value_name = "TIME")]
    pub runtime: Duration,
    /// An SSD dies at this virtual time of the measured part, as 2@500ms: nothing reaches it any more, and
    /// nothing leaves it
    #[arg(long, value_parser = parse_fail, value_name = "SSD@TIME")]
    pub fail: Option<(usize, Duration)>,
    /// How long the places of that SSD are kept for it before others fill them; gnstor up waits 30 s
    #[arg(long, default_value = "500ms", value_parser = parse_time, value_name = "TIME")]
    pub rebuild_after: Duration,
    /// Seed of all random choices
    #[arg(long, default_value = "1", value_name = "N", value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: u64,
    /// Memory limit of one simulated array; a larger array is refused
    #[arg(long, default_value = "6GiB", value_parser = parse_size, value_name = "SIZE")]
    pub memory: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write the table as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw curves into this folder, as SVG and PNG: throughput, and latency as p99, p99.9 and maximum
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RwArg {
    /// Reads in order
    Read,
    /// Writes in order
    Write,
    /// Reads at random places
    Randread,
    /// Writes at random places
    Randwrite,
}

/// The link of a machine with SSDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimLink {
    /// The paper's: 22.1 GB/s each way, 1 us
    #[value(name = "200gbe")]
    Paper,
    /// No limit and no latency
    None,
}

/// A number with up to three digits behind the point, in thousandths.
fn parse_permille(text: &str) -> Result<u32, String> {
    let wrong = || format!("'{text}' is no exponent: write it like 0.99");
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(part) || whole.len() > 3 || part.len() > 3 {
        return Err(wrong());
    }
    let digits: u32 = format!("{whole}{part:0<3}").parse().map_err(|_| wrong())?;
    Ok(digits)
}

/// An SSD and the time at which it dies.
fn parse_fail(text: &str) -> Result<(usize, Duration), String> {
    let wrong = || format!("'{text}' is not SSD@TIME: write it like 2@500ms");
    let (ssd, at) = text.split_once('@').ok_or_else(wrong)?;
    let ssd = ssd.parse().map_err(|_| wrong())?;
    Ok((ssd, parse_time(at).map_err(|_| wrong())?))
}

impl SimArgs {
    /// Whether only JSON is to be printed.
    pub fn is_json(&self) -> bool {
        match &self.command {
            SimCommand::Scale(args) => args.json,
            SimCommand::Survive(args) => args.json,
        }
    }
}

impl From<RwArg> for Rw {
    fn from(arg: RwArg) -> Self {
        match arg {
            RwArg::Read => Self::Read,
            RwArg::Write => Self::Write,
            RwArg::Randread => Self::Randread,
            RwArg::Randwrite => Self::Randwrite,
        }
    }
}
