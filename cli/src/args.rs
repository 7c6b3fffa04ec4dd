// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

use crate::filter::Filter;
use clap::{Args, Parser, Subcommand, ValueEnum};
use gnstor_console::words::{DeviceArg, EngineArgs, parse_address, parse_size};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Storage that GPUs drive themselves.
#[derive(Debug, Parser)]
#[command(name = "gnstor", version, max_term_width = 110, after_help = "Start with:  gnstor demo")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Log to standard error: error, warn, info, debug, trace
    #[arg(long, global = true, default_value = "warn", value_name = "LEVEL", env = "GNSTOR_LOG")]
    pub log: String,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one complete example: array, volume, file, kernel, checks
    #[command(
        after_help = "Examples:\n  gnstor demo\n  gnstor demo --input model.safetensors --device cuda\n  gnstor demo --json | jq .gbps"
    )]
    Demo(DemoArgs),
    /// Measure throughput and latency, and check every read
    #[command(
        after_help = "Examples:\n  gnstor bench\n  gnstor bench --rw randwrite --bs 64k --clients 4 --runtime 30s\n  gnstor bench --device cuda --iodepth 128 --json | jq .read.latency_us\n  gnstor bench --figure 11 --points gnstor,gd,4k --plot figure-11.png\n\nExit codes: 0 all well; 1 an I/O failed, or something read was not what was written, or it could not run; 2 the\ncommand line was not understood; 130 Ctrl-C (the figures so far are printed)."
    )]
    Bench(Box<gnstor_bench::BenchArgs>),
    /// Run an array in the foreground
    #[command(
        after_help = "Examples:\n  gnstor up\n  gnstor up --ssds 8 --ssd-size 4GiB --listen 127.0.0.1:7117\n  gnstor up --data /var/lib/gnstor\n  gnstor up --ssd-at 127.0.0.1:4421,127.0.0.1:4422\n\nEnvironment: GNSTOR_NO_IO_URING=1 has files read and written by blocking calls; --log info says what is used."
    )]
    Up(UpArgs),
    /// Run one SSD in a process of its own
    #[command(
        after_help = "Examples:\n  gnstor ssd --data ssd0.gns --size 1GiB\n  gnstor ssd --data ssd1.gns --size 1GiB --index 1 --listen 127.0.0.1:4422\n  gnstor ssd --data /dev/nvme1n1 --size 800GiB\n  gnstor up --ssd-at 127.0.0.1:4421,127.0.0.1:4422\n\nSignals: TERM and INT shut the SSD down in order; USR1 is a power failure whose dump succeeds; KILL is one without.\n\nEnvironment: GNSTOR_NO_IO_URING=1 has the file read and written by blocking calls; --log info says what is used."
    )]
    Ssd(SsdArgs),
    /// Create, list, show and delete volumes of a running array
    #[command(
        after_help = "Examples:\n  gnstor volume create corpus --size 1GiB\n  gnstor volume list --json\n  gnstor volume show corpus\n  gnstor volume delete corpus"
    )]
    Volume(VolumeArgs),
    /// List volumes, as `gnstor volume list`
    #[command(
        after_help = "Examples:\n  gnstor ls\n  gnstor ls --sort size --reverse\n  gnstor ls --filter 'name=train-*' --filter label=kind=text"
    )]
    Ls(ListArgs),
    /// Delete volumes, as `gnstor volume delete`
    #[command(after_help = "Examples:\n  gnstor rm corpus\n  gnstor rm train-1 train-2 train-3")]
    Rm(DeleteArgs),
    /// Show how much of the array's capacity the volumes take
    #[command(after_help = "Examples:\n  gnstor df\n  gnstor df --json | jq .free_bytes")]
    Df(ArrayArgs),
    /// Show the state of a running array: SSDs, volumes, redundancy, what is wrong and what to do
    #[command(after_help = "Examples:\n  gnstor status\n  gnstor status --json | jq -r .state")]
    Status(ArrayArgs),
    /// Copy a file into a volume, or a volume into a file
    #[command(
        after_help = "Examples:\n  gnstor cp model.bin gn://corpus          (a new volume gets the name when it is whole)\n  gnstor cp gn://corpus copy.bin\n  gnstor cp gn://corpus copy.bin --size 5000\n  tar c folder | gnstor cp - gn://backup   (kept in a temporary file until its length is known; --size says it)\n  gnstor cp gn://backup - | tar x\n  gnstor cp /dev/nvme1n1 gn://image"
    )]
    Cp(CpArgs),
    /// Make certificates for TLS: an authority, and certificates for a daemon and for callers
    #[command(
        after_help = "Examples:\n  gnstor certs init certs\n  gnstor certs issue certs daemon --server localhost --server 10.0.0.7\n  gnstor certs issue certs anna\n  gnstor up --listen 0.0.0.0:7117 --tls certs/daemon.crt certs/daemon.key --client-ca certs/ca.crt\n  gnstor ls --array 10.0.0.7:7117 --tls-ca certs/ca.crt --tls-cert certs/anna.crt --tls-key certs/anna.key\n\nKeys are written with mode 0600. A certificate's common name is the principal that owns volumes and is granted\nrights (gnstor volume share)."
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
        after_help = "Examples:\n  gnstor man | man -l -\n  gnstor man bench | man -l -\n  gnstor man volume create | man -l -"
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
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub ssds: u16,
    /// Preset of the SSDs
    #[arg(long, default_value = "gnstor-980pro", value_name = "NAME")]
    pub preset: String,
    /// Logical capacity of each SSD
    #[arg(long, default_value = "1GiB", value_parser = parse_size, value_name = "SIZE")]
    pub ssd_size: u64,
    /// Copies of every block [default: 2, or 1 with one SSD]
    #[arg(long, value_name = "N")]
    pub replicas: Option<u32>,
    /// Blocks of the kernel; threads beyond the 128 command slots of a channel wait
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub blocks: u32,
    /// Threads of a block, a multiple of 32
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub threads: u32,
    /// Run HCA agent and kernel in one grid, for tools that run one kernel at a time
    #[arg(long)]
    pub one_grid: bool,
    /// Threads.
    #[command(flatten)]
    pub engines: EngineArgs,
    /// Deadline of one I/O, seconds
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub io_timeout: u64,
    /// Let a kernel fail instead, and check that the array keeps serving
    #[arg(long, value_enum, hide = true)]
    pub fault: Option<FaultArg>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How a kernel fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FaultArg {
    /// It traps
    Trap,
    /// It does not end
    Hang,
}

/// What an SSD is and how it keeps its contents: words of `gnstor up` and `gnstor ssd`.
#[derive(Clone, Debug, Args)]
pub struct MediaArgs {
    /// Preset of the SSD, or a file with one [default: that of --data, else gnstor-980pro]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub preset: Option<String>,
    /// Change a value of the preset, or of the SSD in --data, for good: collection.policy=cost-benefit,
    /// faults.read_errors=1e-6; the keys are those of a preset file. Repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Apply the changeable values of --preset to the SSD in --data
    #[arg(long, requires_all = ["data", "preset"])]
    pub retime: bool,
    /// Put contents in shared memory that other processes can map; --json prints its path
    #[arg(long, conflicts_with = "data")]
    pub shared_memory: bool,
    /// Let new files take disk space as they are written; writes wait while the disk is full
    #[arg(long, requires = "data")]
    pub sparse: bool,
}

/// `gnstor up`.
#[derive(Clone, Debug, Args)]
pub struct UpArgs {
    /// Address of the daemon; embedded SSDs are reached on the next port
    #[arg(long, default_value = DEFAULT_ARRAY, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Number of SSDs [default: 4, or as many as --data contains]
    #[arg(long, value_name = "N")]
    pub ssds: Option<u16>,
    /// Logical capacity of each SSD [default: 1GiB, or that of --data]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub ssd_size: Option<u64>,
    /// Placement groups of a fresh array, a power of two
    #[arg(long, default_value_t = 65_536, value_name = "N")]
    pub groups: u32,
    /// Keep the SSDs' contents in this folder, one file each (ssd-N.gns) [default: in memory]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// What the SSDs are and how they keep their contents.
    #[command(flatten)]
    pub media: MediaArgs,
    /// SSDs in processes of their own (gnstor ssd), in the order of their numbers; repeatable
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', value_parser = parse_address, conflicts_with_all = ["ssds", "preset", "settings", "ssd_size", "data"])]
    pub ssd_at: Vec<String>,
    /// CA of the certificates of the SSDs of --ssd-at (PEM): they are reached by TLS, with the certificate of
    /// --tls where there is one
    #[arg(long, value_name = "CA", requires = "ssd_at")]
    pub ssd_ca: Option<PathBuf>,
    /// File with the array's manager key, by which daemon, SSDs and clients prove who they are; made where
    /// the SSDs are embedded and there is none [default: manager.key in --data; in memory without --data]
    #[arg(long, value_name = "FILE")]
    pub manager_key: Option<PathBuf>,
    /// Who may call.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Threads.
    #[command(flatten)]
    pub engines: EngineArgs,
    /// Print one JSON object when the array serves
    #[arg(long)]
    pub json: bool,
}

/// Who may call the daemon of `gnstor up`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// Certificate and key of the daemon (PEM): callers use TLS, also to reach the SSDs of this process
    #[arg(long, num_args = 2, value_names = ["CERT", "KEY"])]
    pub tls: Vec<PathBuf>,
    /// CA of callers' certificates (PEM); a caller is the principal that its certificate names
    #[arg(long, value_name = "CA", requires = "tls")]
    pub client_ca: Option<PathBuf>,
    /// File with a line 'NAME TOKEN' for each principal; mode 0600
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Principals with every right to every volume
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub admins: Vec<String>,
    /// Principals that may create volumes [default: each that is proven]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub creators: Option<Vec<String>>,
    /// Serve an address that others reach without TLS or without proof of callers
    #[arg(long)]
    pub insecure: bool,
}

/// `gnstor certs`.
#[derive(Clone, Debug, Args)]
pub struct CertsArgs {
    /// What to make.
    #[command(subcommand)]
    pub command: CertsCommand,
}

/// `gnstor certs ...`.
#[derive(Clone, Debug, Subcommand)]
pub enum CertsCommand {
    /// Make a certificate authority: ca.crt and ca.key
    Init {
        /// Folder of the files; made when there is none.
        dir: PathBuf,
    },
    /// Issue a certificate: NAME.crt and NAME.key
    Issue {
        /// Folder with ca.crt and ca.key.
        dir: PathBuf,
        /// The principal, or a name for the daemon's certificate.
        name: String,
        /// Host name or IP address of a daemon that uses the certificate; repeatable
        #[arg(long = "server", value_name = "HOST")]
        servers: Vec<String>,
    },
}

/// `gnstor ssd`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SsdArgs {
    /// What to show of an SSD of a running array, instead of running one.
    #[command(subcommand)]
    pub command: Option<SsdCommand>,
    /// File or block device that holds the SSD; made when there is none, with --size [default: contents in
    /// memory]
    #[arg(long, value_name = "FILE|DEVICE")]
    pub data: Option<PathBuf>,
    /// What the SSD is and how it keeps its contents.
    #[command(flatten)]
    pub media: MediaArgs,
    /// Format what --data names (needs --size); its contents are lost
    #[arg(long, requires_all = ["data", "size"])]
    pub format: bool,
    /// Logical capacity [default: that of the file; 1GiB in memory]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub size: Option<u64>,
    /// Address on which daemons and clients reach this SSD
    #[arg(long, default_value = DEFAULT_SSD, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// File with the array's manager key: daemon and clients must prove who they are
    #[arg(long, value_name = "FILE")]
    pub manager_key: Option<PathBuf>,
    /// Certificate and key of the SSD (PEM): daemon and clients use TLS
    #[arg(long, num_args = 2, value_names = ["CERT", "KEY"])]
    pub tls: Vec<PathBuf>,
    /// CA of the daemon's and the clients' certificates (PEM): a host without one is turned away
    #[arg(long, value_name = "CA", requires = "tls")]
    pub client_ca: Option<PathBuf>,
    /// Listen for other machines without TLS or without a manager key
    #[arg(long)]
    pub insecure: bool,
    /// Number of the SSD in its array [default: that of the file, else 0]
    #[arg(long, value_name = "N")]
    pub index: Option<u16>,
    /// Threads.
    #[command(flatten)]
    pub engines: EngineArgs,
    /// Print JSON, one object a line: when it serves, and when it ends
    #[arg(long)]
    pub json: bool,
}

/// Where `gnstor ssd` listens unless told otherwise.
pub const DEFAULT_SSD: &str = "127.0.0.1:4421";

/// Where `gnstor up` listens unless told otherwise.
pub const DEFAULT_ARRAY: &str = "127.0.0.1:7117";

/// How to find a running array.
#[derive(Clone, Debug, Args)]
pub struct ArrayArgs {
    /// Address of the array's daemon
    #[arg(long, default_value = DEFAULT_ARRAY, value_name = "ADDRESS", env = "GNSTOR_ARRAY")]
    pub array: String,
    /// How to prove who calls.
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How a caller and the daemon prove their names.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Credentials")]
pub struct CredentialArgs {
    /// CA of the daemon's certificate (PEM): the array is reached by TLS
    #[arg(long, value_name = "CA", env = "GNSTOR_TLS_CA")]
    pub tls_ca: Option<PathBuf>,
    /// Certificate of the caller (PEM)
    #[arg(long, value_name = "CERT", env = "GNSTOR_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the caller's certificate (PEM)
    #[arg(long, value_name = "KEY", env = "GNSTOR_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// File with the caller's token
    #[arg(long, value_name = "FILE", env = "GNSTOR_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
}

impl ArrayArgs {
    /// The files that the caller is proven with.
    pub fn credentials(&self) -> libgnstor::Credentials {
        let CredentialArgs { tls_ca, tls_cert, tls_key, token_file } = self.credentials.clone();
        libgnstor::Credentials { tls_ca, tls_cert, tls_key, token_file }
    }

    /// A connection to the array's daemon.
    ///
    /// # Errors
    /// As [`libgnstor::Manager::connect`].
    pub fn manager(&self) -> Result<libgnstor::Manager, libgnstor::Error> {
        libgnstor::Manager::connect_with(&self.array, "gnstor volume", &self.credentials())
    }
}

/// `gnstor volume`.
#[derive(Clone, Debug, Args)]
pub struct VolumeArgs {
    /// What to do with volumes.
    #[command(subcommand)]
    pub command: VolumeCommand,
}

/// `gnstor volume ...`.
#[derive(Clone, Debug, Subcommand)]
pub enum VolumeCommand {
    /// Create a volume
    Create {
        /// Name: letters, digits, '.', '_', '-'
        name: String,
        /// Capacity, such as 512MiB
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        size: u64,
        /// Copies of every block [default: 2, or 1 on an array of one SSD]
        #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
        replicas: u32,
        /// Chunk size: consecutive bytes kept on one SSD [default: 64KiB]
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        chunk: Option<u64>,
        /// Label, repeatable
        #[arg(long = "label", value_name = "KEY=VALUE")]
        labels: Vec<String>,
        /// Limit in commands per second on each SSD; further commands wait [default: no limit]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        max_iops: Option<u32>,
        /// Limit in bytes per second on each SSD, such as 500MB; further commands wait [default: no limit]
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        max_bandwidth: Option<u64>,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// List volumes
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show one volume
    Show {
        /// Name.
        name: String,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Give a principal a right to a volume; it replaces the one that the principal had
    Share {
        /// Name.
        name: String,
        /// The principal: the name that a certificate or a token proves
        principal: String,
        /// The right; each includes those before it
        #[arg(value_enum)]
        right: RightArg,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Take a principal's right to a volume away; what it has open ends
    Revoke {
        /// Name.
        name: String,
        /// The principal
        principal: String,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Delete volumes; their data is unreadable at once
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

/// A right to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RightArg {
    /// See and read
    Read,
    /// Write
    Write,
    /// Delete, share and revoke
    Admin,
}

/// `gnstor volume list`.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Order of the list
    #[arg(long, value_enum, default_value = "vid", value_name = "COLUMN")]
    pub sort: SortKey,
    /// Reverse the order
    #[arg(long)]
    pub reverse: bool,
    /// List only volumes that match: name=PATTERN (with * and ?), label=KEY or label=KEY=VALUE, replicas=N,
    /// writer=ID, writer=none. Repeatable: a volume must match all
    #[arg(long = "filter", value_name = "WORD=VALUE", value_parser = crate::filter::parse)]
    pub filters: Vec<Filter>,
    /// The array.
    #[command(flatten)]
    pub array: ArrayArgs,
}

/// What a list is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// Name
    Name,
    /// Volume id: the order in which the volumes were made
    Vid,
    /// Capacity
    Size,
    /// Copies of every block
    Replicas,
}

/// `gnstor volume delete`.
#[derive(Clone, Debug, Args)]
pub struct DeleteArgs {
    /// Names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// The array.
    #[command(flatten)]
    pub array: ArrayArgs,
}

/// `gnstor ssd smart` and `gnstor ssd log`.
#[derive(Clone, Debug, Subcommand)]
pub enum SsdCommand {
    /// Show the SMART / Health page of an SSD of a running array
    #[command(after_help = "Examples:\n  gnstor ssd smart 0\n  gnstor ssd smart 2 --json | jq .media_errors")]
    Smart(SsdPageArgs),
    /// Show errors, counters of volumes and clients, and wear of an SSD of a running array
    #[command(after_help = "Examples:\n  gnstor ssd log 0\n  gnstor ssd log 2 --json | jq .errors")]
    Log(SsdPageArgs),
}

/// Which SSD.
#[derive(Clone, Debug, Args)]
pub struct SsdPageArgs {
    /// Number of the SSD in the array, as `gnstor status` shows it
    #[arg(value_name = "N")]
    pub index: u32,
    /// File with the array's manager key; `log` needs it where the array has one
    #[arg(long, value_name = "FILE")]
    pub manager_key: Option<PathBuf>,
    /// The array.
    #[command(flatten)]
    pub array: ArrayArgs,
}

/// `gnstor cp`.
#[derive(Clone, Debug, Args)]
pub struct CpArgs {
    /// A file, a block device, - for standard input, or gn://VOLUME
    pub from: String,
    /// gn://VOLUME, a file, a device, or - for standard output
    pub to: String,
    /// Bytes to copy [default: all; out of a volume, the size that was copied in, else the whole volume]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub size: Option<u64>,
    /// Copies of every block of the volume [default: as before, else 2, or 1 with one SSD]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub replicas: u32,
    /// Copy out what is there, unchecked: of a copy that was interrupted, or whose sum is wrong
    #[arg(long)]
    pub partial: bool,
    /// Where device code runs
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceArg,
    /// The array.
    #[command(flatten)]
    pub array: ArrayArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
