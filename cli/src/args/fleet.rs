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
    /// Show the SSDs, how many copies are left, and changes in progress
    Show(ArrayArgs),
    /// Keep showing the fleet: redraw it on a terminal, else print it again at each change
    Watch(ArrayArgs),
    /// Let an SSD back into the array after fail, remove, too many restarts or lost writes
    Resume {
        /// Index of the SSD
        ssd: u16,
        /// Resume it even if it lost writes and has the only copy of some blocks: these may be older than
        /// what was written
        #[arg(long)]
        lose_data: bool,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Remove an SSD from the array at once; it stays out until `fleet resume`
    Fail {
        /// Index of the SSD
        ssd: u16,
        /// Remove it even if it has the only copy of some blocks: they cannot be read or written until it is
        /// back
        #[arg(long)]
        lose_data: bool,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Put the empty SSD that was started with a lost SSD's number in the lost one's place
    Replace {
        /// Index of the SSD
        ssd: u16,
        /// Replace it even if it had the only copy of some blocks: these then read as zeros
        #[arg(long)]
        lose_data: bool,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Copy an SSD's blocks to other SSDs, then take it out; no block has a copy less meanwhile
    Drain {
        /// Index of the SSD
        ssd: u16,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
    /// Remove an SSD if every block that it serves has another copy; it stays out until `fleet resume`
    Remove {
        /// Index of the SSD
        ssd: u16,
        /// The array.
        #[command(flatten)]
        array: ArrayArgs,
    },
}
