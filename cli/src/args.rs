// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

mod array;
mod cp;
mod fleet;
mod lease;
mod repair;
mod serve;
mod sim;
mod volume;

pub use array::*;
pub use cp::*;
pub use fleet::*;
pub use lease::*;
pub use repair::*;
pub use serve::*;
pub use sim::*;
pub use volume::*;

use clap::{Args, Parser, Subcommand, ValueEnum};
use gnstor_console::words::{DeviceArg, EngineArgs, number, parse_ssd_size, parse_time, whole};
use std::path::PathBuf;
use std::time::Duration;

/// Storage that GPUs drive themselves.
#[derive(Debug, Parser)]
#[command(
        name = "gnstor",
        version,
        max_term_width = 110,
        after_help = concat!(
            "Start with:  gnstor demo\n\n",
            "Exit codes: 0 done; 1 failed; 2 the command line was not understood (64 where 2 tells of a ",
            "degraded array, and where there is no such command). The help of a command lists further ones.",
        )
    )]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Log to standard error: error, warn, info, debug, trace
    #[arg(long, global = true, display_order = 998)]
    #[arg(default_value = "warn", value_name = "LEVEL", env = "GNSTOR_LOG", value_parser = parse_log)]
    pub log: String,
}

/// A level, or levels of modules such as `warn,gnstor_daemon=debug`.
fn parse_log(text: &str) -> Result<String, String> {
    let is_level = |level: &str| ["off", "error", "warn", "info", "debug", "trace"].contains(&level);
    let level_of = |part: &str| part.rsplit_once('=').map_or(part, |(_, level)| level).to_owned();
    match text.split(',').map(level_of).find(|level| !is_level(level)) {
        None => Ok(text.into()),
        Some(level) => Err(format!("'{level}' is no level: use off, error, warn, info, debug or trace")),
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one complete example: array, volume, file, kernel, checks
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor demo\n",
            "  gnstor demo --input model.safetensors --device cuda\n",
            "  gnstor demo --json | jq .gbps",
        )
    )]
    Demo(DemoArgs),
    /// Measure throughput and latency, and check every read
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor bench\n",
            "  gnstor bench --rw randwrite --bs 64k --clients 4 --runtime 30s\n",
            "  gnstor bench --device cuda --iodepth 128 --json | jq .read.latency_us\n",
            "  gnstor bench --figure 11 --points gnstor,gd,4k --plot figure-11.png\n",
            "  gnstor bench --job reads.fio\n",
            "  gnstor bench --array 127.0.0.1:7117 --volume load\n\n",
            "Exit codes: 0 all well; 1 an I/O failed, read data was wrong, or the run could not start; ",
            "2 the command line was not understood; 130 Ctrl-C (the figures so far are printed).",
        )
    )]
    Bench(Box<gnstor_bench::BenchArgs>),
    /// Run an array in the foreground
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor up\n",
            "  gnstor up --ssds 8 --ssd-size 4GiB --listen 127.0.0.1:7117\n",
            "  gnstor up --data /var/lib/gnstor\n",
            "  gnstor up --ssd-at 127.0.0.1:4421,127.0.0.1:4422 --manager-key array.key\n\n",
            "Environment: GNSTOR_NO_IO_URING=1 has files read and written by blocking calls; --log ",
            "info says what is used.",
        )
    )]
    Up(UpArgs),
    /// Run one SSD in a process of its own
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor ssd --data ssd0.gns --size 1GiB --manager-key array.key\n",
            "  gnstor ssd --data ssd1.gns --size 1GiB --index 1 --listen 127.0.0.1:4422 \
             --manager-key array.key\n",
            "  gnstor ssd --data /dev/nvme1n1 --size 800GiB --manager-key array.key\n",
            "  gnstor up --ssd-at 127.0.0.1:4421,127.0.0.1:4422 --manager-key array.key\n\n",
            "Signals: TERM and INT shut the SSD down in order. USR1 simulates a power failure with a ",
            "successful dump of the write buffer. KILL of an SSD with --data loses no acknowledged ",
            "write, since the write buffer outlives the process. With --volatile, or without room in ",
            "/dev/shm, it loses buffered writes.\n\n",
            "Environment: GNSTOR_NO_IO_URING=1 has the file read and written by blocking calls; ",
            "--log info says what is used.",
        )
    )]
    Ssd(SsdArgs),
    /// Create, list, show, share, rename, label, resize and delete volumes of a running array
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor volume create corpus --size 1GiB\n",
            "  gnstor volume list --json\n",
            "  gnstor volume show corpus\n",
            "  gnstor volume share corpus anna read\n",
            "  gnstor volume rename corpus corpus-2026\n",
            "  gnstor volume delete corpus",
        )
    )]
    Volume(VolumeArgs),
    /// Show what clients have open, and end it
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor lease list --volume corpus\n",
            "  gnstor lease revoke corpus 7",
        )
    )]
    Lease(LeaseArgs),
    /// List volumes, as `gnstor volume list`
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor ls\n",
            "  gnstor ls --sort size --reverse\n",
            "  gnstor ls --filter 'name=train-*' --filter label=kind=text",
        )
    )]
    Ls(ListArgs),
    /// Delete volumes, as `gnstor volume delete`
    #[command(
        after_help = concat!(
            "Examples:\n  gnstor rm corpus\n  gnstor rm train-1 train-2 train-3\n  gnstor rm --force corpus\n\n",
            "A failure does not prevent the deletions after it. With --json several names give one array: ",
            "what was deleted, and what failed and why.",
        )
    )]
    Rm(DeleteArgs),
    /// Show used and free capacity, and the largest volume that still fits
    #[command(after_help = "Examples:\n  gnstor df\n  gnstor df --json | jq .free_bytes")]
    Df(ArrayArgs),
    /// Show the state of a running array: SSDs, volumes, redundancy, what is wrong and what to do
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor status\n",
            "  gnstor status --json | jq -r .state\n\n",
            "Exit codes, as those of gnstor fleet show: 0 online; 1 the daemon did not answer; 2 degraded: some ",
            "blocks have fewer copies than they should, or something else is wrong; 3 some blocks cannot be read ",
            "or written; 64 the command line was not understood.",
        )
    )]
    Status(ArrayArgs),
    /// Show the array's SSDs and redundancy; add, remove, replace and resume SSDs
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor fleet show\n",
            "  gnstor fleet show --json | jq -r .state\n",
            "  gnstor fleet watch\n",
            "  gnstor fleet add 10.0.0.5:4421\n",
            "  gnstor fleet fail 2\n",
            "  gnstor fleet resume 2\n",
            "  gnstor fleet replace 2\n",
            "  gnstor fleet replace 2 --lose-data\n\n",
            "Exit codes of show and watch: 0 healthy; 1 the daemon did not answer; 2 degraded: some blocks ",
            "have fewer copies than they should, or an SSD is down; 3 some blocks cannot be read or written; ",
            "64 the command line was not understood. The other commands end with 2 then.",
        )
    )]
    Fleet(FleetArgs),
    /// Read all copies that the SSDs serve, compare them, and repair damaged ones
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor scrub start\n",
            "  gnstor scrub status\n",
            "  gnstor scrub status --json | jq '.ssds[].rotten_blocks'\n\n",
            "Exit codes of status: 0 all is well; 1 the daemon did not answer; 2 some copies differ or ",
            "could not be repaired; 64 the command line was not understood.",
        )
    )]
    Scrub(ScrubArgs),
    /// Show the progress of rebuilding SSDs, pause them, and limit their share of a busy SSD
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor rebuild status\n",
            "  gnstor rebuild limit 10\n",
            "  gnstor rebuild pause\n\n",
            "Exit codes of status: 0 no SSD is being rebuilt; 1 the daemon did not answer; 2 an SSD is ",
            "being rebuilt; 64 the command line was not understood.",
        )
    )]
    Rebuild(RebuildArgs),
    /// Simulate arrays: the real firmware and transport in virtual time, from one seed
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor sim scale --ssds 4 --clients 1..32\n",
            "  gnstor sim scale --ssds 1..64 --clients 64 --nodes 1 --link none --csv scale.csv\n",
            "  gnstor sim survive --seeds 1..100 --jobs 4 --stats\n",
            "  gnstor sim scale --rw randwrite --bs 64k --replicas 3 --ssds 4..16 --json",
        )
    )]
    Sim(SimArgs),
    /// Copy a file into a volume, or a volume into a file; a volume or file of that name is replaced
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor cp model.bin gn://corpus          (a new volume gets the name when it is whole)\n",
            "  gnstor cp gn://corpus copy.bin\n",
            "  gnstor cp gn://corpus copy.bin --size 5000\n",
            "  tar c folder | gnstor cp - gn://backup   (kept in a temporary file until its length ",
            "is known; --size says it)\n",
            "  gnstor cp gn://backup - | tar x\n",
            "  gnstor cp /dev/nvme1n1 gn://image\n\n",
            "A copy into a volume replaces a volume of that name when the copy is whole. Of two copies into one ",
            "name the one that ends last stays.",
        )
    )]
    Cp(CpArgs),
    /// Make certificates for TLS: an authority, and certificates for a daemon and for callers
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor certs init certs\n",
            "  gnstor certs issue certs daemon --server localhost --server 10.0.0.7\n",
            "  gnstor certs issue certs anna\n",
            "  gnstor up --listen 0.0.0.0:7117 --tls certs/daemon.crt certs/daemon.key --client-ca ",
            "certs/ca.crt\n",
            "  gnstor ls --array 10.0.0.7:7117 --tls-ca certs/ca.crt --tls-cert certs/anna.crt ",
            "--tls-key certs/anna.key\n\n",
            "Keys are written with mode 0600. A certificate's common name is the principal that ",
            "owns volumes and is granted rights (gnstor volume share).",
        )
    )]
    Certs(CertsArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  gnstor completions bash > ~/.local/share/bash-completion/completions/gnstor"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print a manual page (troff)
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor man | man -l -\n",
            "  gnstor man bench | man -l -\n",
            "  gnstor man volume create | man -l -",
        )
    )]
    Man {
        /// The command to have the page of [default: gnstor itself].
        command: Vec<String>,
    },
}

/// `gnstor demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// File to store [default: this executable]
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Where device code runs
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceArg,
    /// Number of SSDs
    #[arg(long, default_value = "4", value_name = "N", value_parser = whole::<u16>(1, 64))]
    pub ssds: u16,
    /// Preset of the SSDs
    #[arg(long, default_value = "gnstor-980pro", value_name = "NAME")]
    pub preset: String,
    /// Logical capacity of each SSD
    #[arg(long, default_value = "1GiB", value_parser = parse_ssd_size, value_name = "SIZE")]
    pub ssd_size: u64,
    /// Copies of every block [default: 2, or 1 with one SSD]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 4))]
    pub replicas: Option<u32>,
    /// Thread blocks of the kernel. At most 128 commands are in flight; other threads wait
    #[arg(long, default_value = "1", value_name = "N", value_parser = whole::<u32>(1, 1024))]
    pub blocks: u32,
    /// Threads of a thread block, a multiple of 32 up to 1024
    #[arg(long, default_value = "128", value_name = "N", value_parser = number::<u32>("a multiple of 32 up to 1024"))]
    pub threads: u32,
    /// Run the emulated network card and the kernel as one kernel, for tools that allow only one (such as
    /// compute-sanitizer)
    #[arg(long)]
    pub one_grid: bool,
    /// Threads.
    #[command(flatten)]
    pub engines: EngineArgs,
    /// Deadline of one I/O (1s to 1h)
    #[arg(long, default_value = "10s", value_parser = parse_io_timeout, value_name = "TIME")]
    pub io_timeout: Duration,
    /// Let a kernel fail instead, and check that the array keeps serving
    #[arg(long, value_enum, hide = true)]
    pub fault: Option<FaultArg>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A deadline of I/Os: 1 s to 1 h.
fn parse_io_timeout(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    let limits = Duration::from_secs(1)..=Duration::from_secs(3600);
    if limits.contains(&time) {
        Ok(time)
    } else {
        Err("use 1s to 1h; a number without a unit is seconds".into())
    }
}

/// How a kernel fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FaultArg {
    /// The kernel traps
    Trap,
    /// The kernel does not end
    Hang,
}

#[cfg(test)]
mod tests;
