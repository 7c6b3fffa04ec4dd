// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of `gnstor scrub` and `gnstor rebuild`.

use super::ArrayArgs;
use clap::{Args, Subcommand};
use gnstor_console::words::whole;

/// `gnstor scrub`.
#[derive(Clone, Debug, Args)]
pub struct ScrubArgs {
    /// What to do with the scrub.
    #[command(subcommand)]
    pub command: ScrubCommand,
}

/// `gnstor scrub ...`.
#[derive(Clone, Debug, Subcommand)]
pub enum ScrubCommand {
    /// Start a scrub on every SSD that is online; a running scrub continues
    #[command(after_help = "Example:\n  gnstor scrub start")]
    Start(ArrayArgs),
    /// Stop the scrubs; what they have repaired stays repaired
    #[command(after_help = "Example:\n  gnstor scrub stop")]
    Stop(ArrayArgs),
    /// Show the progress of the scrubs, and what they found
    #[command(after_help = concat!(
        "Examples:\n  gnstor scrub status\n  gnstor scrub status --json | jq '.ssds[].rotten_blocks'\n\n",
        "Exit codes: 0 all is well; 1 the daemon did not answer; 2 some copies differ or could not be ",
        "repaired; 64 the command line was not understood.",
    ))]
    Status(ArrayArgs),
}

/// `gnstor rebuild`.
#[derive(Clone, Debug, Args)]
pub struct RebuildArgs {
    /// What to do with the rebuild.
    #[command(subcommand)]
    pub command: RebuildCommand,
}

/// `gnstor rebuild ...`.
#[derive(Clone, Debug, Subcommand)]
pub enum RebuildCommand {
    /// Show each rebuilding SSD: progress, rate and remaining time
    #[command(after_help = concat!(
        "Examples:\n  gnstor rebuild status\n  gnstor rebuild status --json | jq .ssds\n\n",
        "Exit codes: 0 no SSD is being rebuilt; 1 the daemon did not answer; 2 an SSD is being rebuilt; 64 the ",
        "command line was not understood.",
    ))]
    Status(ArrayArgs),
    /// Limit rebuilds and scrubs to this share of an SSD while clients use it
    #[command(after_help = "Example:\n  gnstor rebuild limit 10")]
    Limit {
        /// Percent of an SSD, 1 to 100; without this command 25
        #[arg(value_parser = whole::<u32>(1, 100))]
        percent: u32,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Pause all rebuilds: clients still write to all copies that exist, and missing copies stay missing
    #[command(after_help = "Example:\n  gnstor rebuild pause")]
    Pause(ArrayArgs),
    /// Resume the rebuilds
    #[command(after_help = "Example:\n  gnstor rebuild resume")]
    Resume(ArrayArgs),
}
