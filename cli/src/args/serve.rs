// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of the commands that serve: `gnstor up`, `gnstor ssd`, and `gnstor certs` for both.

use super::ArrayArgs;
use clap::{Args, Subcommand, ValueEnum};
use gnstor_array::Group;
use gnstor_console::words::{
    EngineArgs, parse_address, parse_listen, parse_ssd, parse_ssd_size, parse_time, whole,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Change the SSD in --data to the values of --preset, such as its times. The values that fix where data
    /// lies must be the same
    #[arg(long, requires_all = ["data", "preset"])]
    pub retime: bool,
    /// Put contents in shared memory that other processes can map; --json prints its path
    #[arg(long, conflicts_with = "data")]
    pub shared_memory: bool,
    /// Let new files take disk space as they are written; writes wait while the disk is full
    #[arg(long, requires = "data")]
    pub sparse: bool,
    /// Keep the write buffer in the process's own memory instead of /dev/shm: a killed process then loses
    /// buffered writes (also: GNSTOR_VOLATILE=1)
    #[arg(long, requires = "data")]
    pub volatile: bool,
    /// Diffie-Hellman group of the authentication (RFC 7919, bits). null: no exchange, so connections take
    /// less time; the secrets are random, so a group adds little
    #[arg(long, value_enum, default_value_t, value_name = "GROUP", conflicts_with = "no_auth")]
    pub dh_group: DhGroup,
}

/// Words of `--dh-group`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum DhGroup {
    /// No exchange.
    #[default]
    Null,
    /// ffdhe2048.
    #[value(name = "2048")]
    Ffdhe2048,
    /// ffdhe3072.
    #[value(name = "3072")]
    Ffdhe3072,
}

impl From<DhGroup> for Group {
    fn from(group: DhGroup) -> Self {
        match group {
            DhGroup::Null => Self::Null,
            DhGroup::Ffdhe2048 => Self::Ffdhe2048,
            DhGroup::Ffdhe3072 => Self::Ffdhe3072,
        }
    }
}

/// The word of `--out-after`; `None`: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutAfter(pub Option<Duration>);

fn parse_out_after(text: &str) -> Result<OutAfter, String> {
    match text {
        "never" => Ok(OutAfter(None)),
        text => parse_time(text).map(|after| OutAfter(Some(after))).map_err(|why| format!("{why}, or never")),
    }
}

/// `gnstor up`.
#[derive(Clone, Debug, Args)]
pub struct UpArgs {
    /// Address of the daemon; embedded SSDs are reached on the next port
    #[arg(long, default_value = DEFAULT_ARRAY, value_name = "ADDRESS", value_parser = parse_listen)]
    pub listen: SocketAddr,
    /// Number of SSDs [default: 4, or as many as --data contains]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1, 64))]
    pub ssds: Option<u16>,
    /// Logical capacity of each SSD [default: 1GiB, or that of --data]
    #[arg(long, value_parser = parse_ssd_size, value_name = "SIZE")]
    pub ssd_size: Option<u64>,
    /// Number of placement groups of a new array, a power of two: more spread blocks more evenly
    #[arg(long, default_value = "65536", value_name = "N", value_parser = parse_groups)]
    pub groups: u32,
    /// Format of the fleet map. 3: the array goes on without a lost SSD, and rebuilds it when it is back. 2:
    /// writes to a lost SSD wait for it. A map of format 3 stays one [default: 3; 2 for two SSDs without a
    /// witness, and for more than 8 embedded ones]
    #[arg(long, value_parser = whole::<u8>(2, 3), value_name = "2|3")]
    pub map_format: Option<u8>,
    /// Begin SSD N of --data with an empty file, of --ssd-size, in place of one that is lost for good. Then
    /// gnstor fleet replace N gives it the place
    #[arg(long, value_name = "N", requires = "data", value_parser = whole::<u16>(0, 63))]
    pub begin_anew: Option<u16>,
    /// How long the places of a lost SSD are kept for it. Then other SSDs take them and copy its blocks. 0:
    /// not at all; never: until it is back
    #[arg(long, default_value = "30s", value_name = "TIME|never", value_parser = parse_out_after)]
    pub out_after: OutAfter,
    /// Keep the SSDs' contents in this folder, one file each (ssd-N.gns) [default: in memory]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// What the SSDs are and how they keep their contents.
    #[command(flatten)]
    pub media: MediaArgs,
    /// SSDs in processes of their own (gnstor ssd), in the order of their numbers; repeatable
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        value_parser = parse_address,
        conflicts_with_all = ["ssds", "preset", "settings", "ssd_size", "data", "dh_group"]
    )]
    pub ssd_at: Vec<String>,
    /// Stand by while one of the daemons at these addresses serves the array, and take over when none does
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        value_parser = parse_address,
        requires = "ssd_at",
        conflicts_with = "witness"
    )]
    pub standby_of: Vec<String>,
    /// CA of the certificates of the daemons of --standby-of (PEM): they are reached by TLS
    #[arg(long, value_name = "CA", requires = "standby_of")]
    pub daemon_ca: Option<PathBuf>,
    /// Folder in which the daemon keeps how often each SSD was opened. By that it finds data files that were
    /// rolled back to older images [default: that of --witness; else it forgets the numbers when it ends]
    #[arg(long, value_name = "DIR", requires = "ssd_at")]
    pub state: Option<PathBuf>,
    /// Run a witness in this process: a small SSD, in this folder, that votes and holds no blocks. Two SSDs
    /// need one to go on when one of them is lost; any even number of SSDs may have one
    #[arg(long, value_name = "DIR", requires = "ssd_at", conflicts_with = "witness_at")]
    pub witness: Option<PathBuf>,
    /// The same by an SSD in a process of its own (gnstor ssd --witness), which may run on a third machine
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address, requires = "ssd_at")]
    pub witness_at: Option<String>,
    /// CA of the certificates of the SSDs of --ssd-at (PEM): they are reached by TLS, with the certificate of
    /// --tls where there is one
    #[arg(long, value_name = "CA", requires = "ssd_at")]
    pub ssd_ca: Option<PathBuf>,
    /// File with the array's manager key, by which daemon, SSDs and clients prove who they are. With
    /// embedded SSDs it is created if the file does not exist [default: manager.key in --data; in memory
    /// without --data]
    #[arg(long, value_name = "FILE")]
    pub manager_key: Option<PathBuf>,
    /// Give the embedded SSDs the key of --manager-key in place of one that is lost. Daemons and clients with
    /// the old one are refused from now on
    #[arg(long, requires = "manager_key", conflicts_with = "ssd_at")]
    pub replace_manager_key: bool,
    /// Use SSDs that run without authentication (gnstor ssd --no-auth)
    #[arg(long, requires = "ssd_at", conflicts_with = "manager_key")]
    pub no_auth: bool,
    /// Threads.
    #[command(flatten)]
    pub engines: EngineArgs,
    /// Print one JSON object when the array serves
    #[arg(long)]
    pub json: bool,
    /// Who may call. Last, since its heading would be that of what follows.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// A number of placement groups.
fn parse_groups(text: &str) -> Result<u32, String> {
    let groups = text.parse::<u32>().ok().filter(|groups| groups.is_power_of_two() && *groups <= 1 << 24);
    groups.ok_or_else(|| "use a power of two from 1 to 16777216".into())
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
    /// Principals that may create volumes [default: every authenticated caller]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub creators: Option<Vec<String>>,
    /// Allow connections with other machines without TLS or without authentication
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
    #[command(after_help = "Example:\n  gnstor certs init certs")]
    Init {
        /// Folder of the files; created if it does not exist.
        dir: PathBuf,
    },
    /// Issue a certificate: NAME.crt and NAME.key
    #[command(after_help = concat!(
        "Examples:\n  gnstor certs issue certs anna\n",
        "  gnstor certs issue certs daemon --server localhost --server 10.0.0.7",
    ))]
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
    /// File or block device that holds the SSD; created with --size if it does not exist [default:
    /// contents in memory]
    #[arg(long, value_name = "FILE|DEVICE")]
    pub data: Option<PathBuf>,
    /// What the SSD is and how it keeps its contents.
    #[command(flatten)]
    pub media: MediaArgs,
    /// Format what --data names (needs --size); its contents are lost
    #[arg(long, requires_all = ["data", "size"])]
    pub format: bool,
    /// Be a witness of an array: vote, and hold no blocks (16 MiB of the null preset). Give its number
    /// with --index: that after the last SSD
    #[arg(long, requires = "index", conflicts_with_all = ["size", "preset", "settings", "format"])]
    pub witness: bool,
    /// Logical capacity [default: that of the file; 1GiB in memory]
    #[arg(long, value_parser = parse_ssd_size, value_name = "SIZE")]
    pub size: Option<u64>,
    /// Address on which daemons and clients reach this SSD
    #[arg(long, default_value = DEFAULT_SSD, value_name = "ADDRESS", value_parser = parse_listen)]
    pub listen: SocketAddr,
    /// File with the array's manager key: daemon and clients must prove who they are; created if the file
    /// does not exist
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth")]
    pub manager_key: Option<PathBuf>,
    /// Give the SSD the key of --manager-key in place of one that is lost. Daemons and clients with the old
    /// one are refused from now on
    #[arg(long, requires = "manager_key")]
    pub replace_manager_key: bool,
    /// Run without authentication: each host that reaches the SSD may read, change and delete its contents
    #[arg(long)]
    pub no_auth: bool,
    /// Certificate and key of the SSD (PEM): daemon and clients use TLS
    #[arg(long, num_args = 2, value_names = ["CERT", "KEY"])]
    pub tls: Vec<PathBuf>,
    /// CA of the daemon's and the clients' certificates (PEM): a host without one is turned away
    #[arg(long, value_name = "CA", requires = "tls")]
    pub client_ca: Option<PathBuf>,
    /// Allow other machines to connect without TLS, or with --no-auth without a certificate
    #[arg(long)]
    pub insecure: bool,
    /// Number of the SSD in its array [default: that of the file, else 0]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(0, 65_535))]
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

/// `gnstor ssd smart` and `gnstor ssd log`.
#[derive(Clone, Debug, Subcommand)]
pub enum SsdCommand {
    /// Show the SMART / Health page of an SSD of a running array
    #[command(after_help = "Examples:\n  gnstor ssd smart 0\n  gnstor ssd smart 2 --json | jq .media_errors")]
    Smart(SsdPageArgs),
    /// Show errors, counters of volumes and clients, and wear of an SSD of a running array
    #[command(after_help = concat!(
        "The SSD shows this page to holders of the array's manager key. For an array in memory, start ",
        "`gnstor up --manager-key FILE`: it writes its key there, else it keeps the key to itself. ",
        "`gnstor up --data DIR` writes the key into DIR.\n\n",
        "Examples:\n  gnstor ssd log 0 --manager-key array.key\n",
        "  gnstor ssd log 2 --manager-key array.key --json | jq .errors",
    ))]
    Log(SsdPageArgs),
}

/// Which SSD.
#[derive(Clone, Debug, Args)]
pub struct SsdPageArgs {
    /// Number of the SSD in the array, as `gnstor status` shows it
    #[arg(value_name = "SSD", value_parser = parse_ssd)]
    pub index: u16,
    /// File with the array's manager key; `log` needs it where the array has one
    #[arg(long, value_name = "FILE")]
    pub manager_key: Option<PathBuf>,
    /// The array.
    #[command(flatten)]
    pub array: ArrayArgs,
}
