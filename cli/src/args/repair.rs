// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of `gnstor scrub` and `gnstor rebuild`.

use super::ArrayArgs;
use clap::{Args, Subcommand};

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
    Start(ArrayArgs),
    /// Stop the scrubs; what they have repaired stays repaired
    Stop(ArrayArgs),
    /// Show the progress of the scrubs, and what they found
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
    Status(ArrayArgs),
    /// Limit rebuilds and scrubs to this share of an SSD while clients use it
    Limit {
        /// Percent of an SSD, 1 to 100; without this command 25
        #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
        percent: u32,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Pause all rebuilds: clients still write to all copies that exist, and missing copies stay missing
    Pause(ArrayArgs),
    /// Resume the rebuilds
    Resume(ArrayArgs),
}
