// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments and results of the calls of [`crate::Flash`].

use crate::fault::Faults;
use crate::file::DataFile;
use crate::geometry::{Block, Geometry, Ppa, Unit};
use crate::power::Power;
use crate::record::Oob;
use gnstor_base::region::LocalRef;
use std::sync::Arc;
use thiserror::Error;

/// State of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageState {
    /// Empty; data may be placed here.
    Erased,
    /// Empty, and nothing may be placed until the block is erased.
    Padding,
    /// Data that is readable and not durable.
    Buffered(Oob),
    /// Data that is durable.
    Programmed(Oob),
    /// The page was written, but the crc of its record is wrong.
    Damaged,
}

/// Where the data of a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fetch {
    /// In memory, while the page is pinned.
    Here(LocalRef),
    /// The page is being loaded; [`crate::Flash::poll_loaded`] returns the ticket when it is in memory.
    Loading(Ticket),
    /// The data is nowhere: the page has an uncorrectable error, or no data.
    Unreadable,
}

/// State of a copy that has just been started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copying {
    /// It has ended.
    Ended(Result<(), Unreadable>),
    /// [`crate::Flash::poll_copy`] tells its end.
    Running(Ticket),
}

/// Number of a load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u32);

/// A load that has ended. The caller gives the ticket to [`crate::Flash::release`] when the mover is done
/// with the data, except after an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// Ticket of the load.
    pub ticket: Ticket,
    /// The memory with the data.
    pub result: Result<LocalRef, Unreadable>,
}

/// A page cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("flash page {} cannot be read: uncorrectable, or without data", .0.0)]
pub struct Unreadable(pub Ppa);

/// A program failed. The unit's pages stay buffered and readable. The caller moves the live pages of the
/// block and then retires it ([`crate::Flash::mark_bad`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("flash unit {} of block {} could not be programmed: the block is to be retired", unit.0, block.0)]
pub struct ProgramFailed {
    /// The unit.
    pub unit: Unit,
    /// The block it is in.
    pub block: Block,
}

/// Why a block is not erased.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NotErased {
    /// The erase failed. The data of the block is lost, and the caller retires it
    /// ([`crate::Flash::mark_bad`]).
    #[error("flash block {} could not be erased: it is to be retired", .0.0)]
    Failed(Block),
    /// A reader has a page of it pinned. Nothing has changed, and the caller tries again later.
    #[error("flash block {} cannot be erased while a reader has it pinned", .0.0)]
    Pinned(Block),
}

/// Where the bytes of an SSD are.
#[derive(Clone, Debug)]
pub enum MediaConfig {
    /// In memory. The contents end with the process.
    Ram {
        /// Whether another process can map the memory ([`gnstor_base::region::HostRegion::backing`]).
        shared: bool,
    },
    /// In a file or on a block device.
    File(Arc<DataFile>),
}

/// Arguments of [`crate::Flash::new`].
#[derive(Clone, Debug)]
pub struct FlashConfig {
    /// Where pages are.
    pub geometry: Geometry,
    /// Frames beyond the pages' own, for the write buffer and for loads.
    pub spare_frames: u32,
    /// Medium of the SSD.
    pub media: MediaConfig,
    /// Injected faults.
    pub faults: Arc<Faults>,
    /// Power of the SSD, which tests can cut.
    pub power: Arc<Power>,
}
