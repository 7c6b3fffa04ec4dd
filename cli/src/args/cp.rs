// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor cp`.

use super::{ArrayArgs, parse_io_timeout};
use clap::Args;
use gnstor_console::words::{DeviceArg, parse_bytes, whole};
use std::time::Duration;

/// `gnstor cp`.
#[derive(Clone, Debug, Args)]
pub struct CpArgs {
    /// A file, a block device, - for standard input, or gn://VOLUME
    pub from: String,
    /// gn://VOLUME, a file, a device, or - for standard output
    pub to: String,
    /// Bytes to copy [default: all; out of a volume, the size that was copied in, else the whole volume]
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    pub size: Option<u64>,
    /// Copies of every block of the volume [default: as before, else 2, or 1 with one SSD]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 4))]
    pub replicas: Option<u32>,
    /// Copy an incomplete or damaged volume out as it is, without checking it
    #[arg(long)]
    pub partial: bool,
    /// Where device code runs
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceArg,
    /// How long one I/O may wait for the array, for example while it restarts (1s to 1h). If a copy is
    /// killed, its volume stays locked for up to 1.5 times this time
    #[arg(long, default_value = "30s", value_parser = parse_io_timeout, value_name = "TIME")]
    pub io_timeout: Duration,
    /// The array.
    #[command(flatten)]
    pub array: ArrayArgs,
}
