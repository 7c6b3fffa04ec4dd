// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of the load generator's options, which are fio's where fio has them.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The part that drives the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Threads of the device issue the I/O; the queues are in its memory
    Gnstor,
    /// A CPU thread for each client issues the I/O; a central engine maps blocks and logs changes
    Gd,
    /// As gd, but the SSDs map and check instead of a central engine
    #[value(name = "gd+deengine")]
    #[serde(rename = "gd+deengine")]
    GdDeengine,
    /// As gd, but data passes through a buffer in host memory
    Basic,
}

/// Direction and order of the I/Os.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rw {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Random reads and writes, mixed by --rwmixread
    Randrw,
    /// Sequential reads and writes, mixed by --rwmixread
    #[value(alias = "readwrite")]
    Rw,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On
    On,
    /// Off
    Off,
}

/// The part that moves the data of `basic` between host and device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bounce {
    /// The driver copies each batch by cuMemcpyBatchAsync (CUDA 13.0; else as kernel)
    Batch,
    /// A kernel copies each batch, by one launch
    Kernel,
}

impl Bounce {
    /// The faster one for this number of clients (docs/decisions/0032).
    pub fn better(clients: u32) -> Self {
        if clients == 1 { Self::Batch } else { Self::Kernel }
    }
}

/// The form of requests' buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Buffers {
    /// Each buffer is one piece
    #[default]
    Contiguous,
    /// Each buffer is in pieces that are not adjacent: pages, or blocks of 64 KiB above --bs 64k
    Pieces,
}

/// The link between clients and SSDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinkArg {
    /// The paper's link: 22.1 GB/s each way, 1 us
    #[value(name = "200gbe")]
    Paper,
    /// Half of it: 11.1 GB/s each way, 1 us
    #[value(name = "100gbe")]
    Half,
    /// No limit and no latency
    None,
}

/// A set of loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SuiteArg {
    /// Loads of the project's goals, beside a bare copy and the modelled ideal
    Targets,
    /// Figures 9 to 13 of the paper; points that several figures share run once
    Figures,
}
