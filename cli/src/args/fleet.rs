// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of `gnstor fleet`.

use super::ArrayArgs;
use clap::{Args, Subcommand};

/// `gnstor fleet`.
#[derive(Clone, Debug, Args)]
pub struct FleetArgs {
    /// What to do with the fleet.
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// `gnstor fleet ...`.
#[derive(Clone, Debug, Subcommand)]
pub enum FleetCommand {
    /// Show the SSDs, the copies that are left, and the change of the map that is under way
    Show(ArrayArgs),
    /// Show the fleet again and again: each second on a terminal, else a line for each change
    Watch(ArrayArgs),
    /// Take an SSD back that was taken out, or that came back too often
    Resume {
        /// Index of the SSD
        ssd: u16,
        /// Also where it lost writes and has the only copy of some blocks: these are used as they are
        #[arg(long)]
        lose_data: bool,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Drop an SSD now, and keep it out until it is resumed
    Fail {
        /// Index of the SSD
        ssd: u16,
        /// Also where it has the only copy of some blocks: they cannot be read or written until it is back
        #[arg(long)]
        lose_data: bool,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Give the place of an SSD that is lost to the empty SSD that was started there
    Replace {
        /// Index of the SSD
        ssd: u16,
        /// Also where the lost SSD had the only copy of some blocks: these are empty then
        #[arg(long)]
        lose_data: bool,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Take an SSD out while each block keeps all its copies: others take its copies first
    Drain {
        /// Index of the SSD
        ssd: u16,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Take an SSD out that is not needed: all that it serves has another copy
    Remove {
        /// Index of the SSD
        ssd: u16,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
}
