// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of `gnstor volume`.

use super::ArrayArgs;
use crate::filter::Filter;
use clap::{Args, Subcommand, ValueEnum};
use gnstor_console::words::{parse_size, whole};

/// A size above zero.
fn parse_capacity(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("a volume has at least one block of 4 KiB".into()),
        bytes => Ok(bytes),
    }
}

/// A chunk: a power of two from 4 KiB to 16 MiB.
fn parse_chunk(text: &str) -> Result<u32, String> {
    let chunk = parse_size(text)?;
    let chunk = u32::try_from(chunk).ok().filter(|chunk| chunk.is_power_of_two());
    let chunk = chunk.filter(|chunk| (4 << 10..=16 << 20).contains(chunk));
    chunk.ok_or_else(|| "use a power of two from 4KiB to 16MiB".into())
}

/// A limit above zero.
fn parse_bandwidth(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("no byte a second is no limit: leave the option out for none".into()),
        bytes => Ok(bytes),
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
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor volume create corpus --size 1GiB\n",
            "  gnstor volume create scratch --size 64GiB --replicas 1 --label kind=scratch --max-bandwidth 500MB",
        )
    )]
    Create {
        /// Name: letters, digits, '.', '_', '-'
        name: String,
        /// Capacity, such as 512MiB
        #[arg(long, value_parser = parse_capacity, value_name = "SIZE")]
        size: u64,
        /// Copies of every block [default: 2, or 1 on an array of one SSD]
        #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 4))]
        replicas: Option<u32>,
        /// Chunk size: consecutive bytes kept on one SSD [default: 64KiB]
        #[arg(long, value_parser = parse_chunk, value_name = "SIZE")]
        chunk: Option<u32>,
        /// Label, repeatable
        #[arg(long = "label", value_name = "KEY=VALUE")]
        labels: Vec<String>,
        /// Limit in commands per second on each SSD; further commands wait [default: no limit]
        #[arg(long, value_name = "N", value_parser = whole::<u32>(1, u32::MAX.into()))]
        max_iops: Option<u32>,
        /// Limit in bytes per second on each SSD, such as 500MB; further commands wait [default: no limit]
        #[arg(long, value_parser = parse_bandwidth, value_name = "SIZE")]
        max_bandwidth: Option<u64>,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// List volumes
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show one volume
    #[command(after_help = "Examples:\n  gnstor volume show corpus\n  gnstor volume show corpus --json")]
    Show {
        /// Name.
        name: String,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Give a principal a right to a volume; it replaces the one that the principal had
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor volume share corpus anna read\n",
            "  gnstor volume share corpus trainer write",
        )
    )]
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
    /// Take a principal's right to a volume away; its open handles to the volume are closed
    #[command(after_help = "Example:\n  gnstor volume revoke corpus anna")]
    Revoke {
        /// Name.
        name: String,
        /// The principal
        principal: String,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Give a volume another name; no client may have it open
    #[command(after_help = "Example:\n  gnstor volume rename corpus corpus-2026")]
    Rename {
        /// Name.
        name: String,
        /// The new name: letters, digits, '.', '_', '-'
        new_name: String,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Set labels of a volume, or remove them
    #[command(
        after_help = concat!(
            "Examples:\n",
            "  gnstor volume label corpus kind=text team=graph\n",
            "  gnstor volume label corpus --remove team",
        )
    )]
    Label {
        /// Name.
        name: String,
        /// Labels to set; each replaces the one with the same key
        #[arg(value_name = "KEY=VALUE", required_unless_present = "remove")]
        labels: Vec<String>,
        /// Remove the label with this key, repeatable
        #[arg(long, value_name = "KEY")]
        remove: Vec<String>,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Give a volume more capacity; it cannot be made smaller
    #[command(after_help = "Example:\n  gnstor volume resize corpus --size 2GiB")]
    Resize {
        /// Name.
        name: String,
        /// The new capacity, such as 2GiB; programs that have it open see it when they open it again
        #[arg(long, value_parser = parse_capacity, value_name = "SIZE")]
        size: u64,
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
    /// Delete, rename, label, resize, share and revoke, also leases
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
    /// Delete a volume though another client writes to it; the client's commands are refused from then on
    #[arg(long)]
    pub force: bool,
    /// The array.
    #[command(flatten)]
    pub array: ArrayArgs,
}
