// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of `gnstor lease`.

use super::ArrayArgs;
use crate::filter::LeaseFilter;
use clap::{Args, Subcommand, ValueEnum};
use gnstor_console::words::whole;

/// `gnstor lease`.
#[derive(Clone, Debug, Args)]
pub struct LeaseArgs {
    /// What to do with leases.
    #[command(subcommand)]
    pub command: LeaseCommand,
}

/// `gnstor lease ...`.
#[derive(Clone, Debug, Subcommand)]
pub enum LeaseCommand {
    /// Show which clients have volumes open: who they are, their rights, and how long their leases last
    #[command(
        visible_alias = "ls",
        after_help = concat!(
            "Examples:\n",
            "  gnstor lease list\n",
            "  gnstor lease list --volume corpus\n",
            "  gnstor lease list --filter rights=write --sort left\n",
            "  gnstor lease list --json | jq '.[] | select(.rights == \"write\")'\n\n",
            "A caller sees the leases of the volumes to which it has the admin right; administrators see all.",
        )
    )]
    List {
        /// Show only those of this volume
        #[arg(long, value_name = "NAME")]
        volume: Option<String>,
        /// Order of the list [default: that of the daemon]
        #[arg(long, value_enum, value_name = "COLUMN")]
        sort: Option<LeaseSortKey>,
        /// Reverse the order
        #[arg(long)]
        reverse: bool,
        /// List only leases that match: volume=PATTERN (with * and ?), client=ID, principal=PATTERN,
        /// rights=read, rights=write. Repeatable: a lease must match all
        #[arg(long = "filter", value_name = "WORD=VALUE", value_parser = crate::filter::parse_lease)]
        filters: Vec<LeaseFilter>,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// End what a client has open of a volume; SSDs refuse its commands from then on
    #[command(
        after_help = concat!(
            "Example:\n",
            "  gnstor lease revoke corpus 7\n\n",
            "The client may open the volume again: gnstor volume revoke takes its right away. The admin right to ",
            "the volume is needed.",
        )
    )]
    Revoke {
        /// Name of the volume
        volume: String,
        /// Number of the client, as gnstor lease list shows it
        #[arg(value_name = "CLIENT", value_parser = whole::<u32>(1, 65_534))]
        client: u32,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
}

/// What a list of leases is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LeaseSortKey {
    /// Name of the volume
    Volume,
    /// Number of the client
    Client,
    /// Name of the principal
    Principal,
    /// Time left; leases without an end are last
    Left,
}
