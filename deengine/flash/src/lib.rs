// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flash of an emulated SSD: geometry, pages and their records, media, faults, power cuts.
//!
//! ```text
//!   take_frame -> (a client's data arrives) -> place -> start_program -> finish_program
//!                                                |                          |
//!                        erased ------------> buffered ---------------> programmed ----> erase
//!                                             readable                  durable
//!
//!   superblock 0                                      superblock 1
//!   row 0: | die 0 | die 1 | die 2 | ...   <- units   row 0: | die 0 | ...
//!   row 1: | die 0 | ...
//!            `-- the units of one die in one superblock are a block: ascending rows, erased together
//! ```
//! This crate takes no modelled time (`gnstor-model` does), and knows of volumes only the record beside a
//! page. A call that breaks a rule of NAND stops the program. A fault of the flash ([`Faults`]) is an error
//! with a name. After a power cut ([`Power`]) nothing durable happens any more, until
//! [`Flash::after_power_cut`] or a new [`Flash`] over the same file.
//!
//! | module | what |
//! |---|---|
//! | [`geometry`] | pages, units, blocks, superblocks and their numbers |
//! | [`flash`] | the pages: place, program, read, erase |
//! | [`record`] | the 64 bytes beside a page |
//! | [`frames`] | 4 KiB frames that hold data while it is in memory |
//! | [`fault`], [`power`] | faults and power cuts, from a seed |
//! | [`store`] | the system area: bytes of journal, checkpoint, dump and metadata store |
//! | [`kept`] | memory that outlives a killed process |
//! | [`mod@file`] | one file or block device that holds all of it |

mod boot;
mod changes;
pub mod fault;
pub mod file;
pub mod flash;
pub mod frames;
pub mod geometry;
mod io;
pub mod kept;
pub mod power;
pub mod record;
pub mod store;
mod sys;
mod types;
mod uring;

#[cfg(test)]
mod tests;

pub use fault::{Chances, Faults};
pub use file::{DataFile, DataFileError, FileStore, IoMode, NOTE_BYTES};
pub use flash::Flash;
pub use frames::Frame;
pub use geometry::{Block, Geometry, GeometryError, Ppa, Shape, Superblock, Unit};
pub use kept::{Kept, KeptOwner, KeptTail, LeftBehind};
pub use power::Power;
pub use record::Oob;
pub use store::{RamStore, Started, Store, SyncTicket};
pub use types::{
    Copying, Fetch, FlashConfig, Loaded, MediaConfig, NotErased, PageState, ProgramFailed, Ticket, Unreadable,
};

/// Bytes of a page.
pub const PAGE_BYTES: u32 = 4096;
