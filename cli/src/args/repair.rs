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
    /// Begin a scrub on each SSD that is there; one that runs goes on
    Start(ArrayArgs),
    /// End the scrubs; what they have healed stays
    Stop(ArrayArgs),
    /// Show how far the scrubs are, and what they found
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
    /// Show the SSDs that fill: how far they are, how fast, and how long it takes
    Status(ArrayArgs),
    /// While clients use an SSD, let repairs take at most so many percent of it
    Limit {
        /// Percent of an SSD, 1 to 100; 25 where nothing was set
        #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
        percent: u32,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Let no SSD fill until it is resumed; writes go on to all copies, and lost copies stay lost meanwhile
    Pause(ArrayArgs),
    /// Go on to fill
    Resume(ArrayArgs),
}
