// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration of an SSD.

use gnstor_model::Preset;
use std::path::{Path, PathBuf};

/// Frames beyond the write buffer: data that has not arrived yet, loads, collection.
pub(crate) const FRAMES: u32 = 8192;

/// The configuration of an SSD.
#[derive(Clone, PartialEq, Debug)]
pub struct SsdConfig {
    /// Number of the SSD in the array; its subsystem NQN and its rows of the fleet map follow from it.
    pub index: u16,
    /// Modelled figures.
    pub preset: Preset,
    /// Logical capacity; how many physical pages there are beyond it is the preset's.
    pub capacity_bytes: u64,
    /// Serial number, ASCII, at most 20 bytes.
    pub serial: String,
    /// Medium of its contents.
    pub media: SsdMedia,
}

impl SsdMedia {
    /// The file, and whether buffered data ends with the process.
    pub(crate) fn file(&self) -> Option<(&Path, bool)> {
        match self {
            Self::Ram | Self::SharedRam => None,
            Self::File(path) => Some((path, false)),
            Self::VolatileFile(path) => Some((path, true)),
        }
    }
}

/// Medium of an SSD's contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SsdMedia {
    /// Memory: the contents end with the process.
    Ram,
    /// As [`Self::Ram`], in memory that another process can map, such as one with a GPU or a debugger. The
    /// region of the frames has a descriptor ([`gnstor_base::region::HostRegion::backing`]).
    SharedRam,
    /// A file or block device.
    File(PathBuf),
    /// As [`Self::File`], with buffered data in memory that ends with the process: a kill is a power failure
    /// without a dump.
    VolatileFile(PathBuf),
}
