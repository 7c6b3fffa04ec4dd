// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The translation layer of an emulated SSD: superblocks, collection, wear, recovery.
//!
//! ```text
//!   commit(frames) --> stream --> unit --> flash            extent(block) --> map --> page, pinned --> frame
//!        |               `- superblocks, collection
//!        `--> journal (slots of the map, stamps) --> checkpoint, dump
//! ```
//! | module | what |
//! |---|---|
//! | [`layer`] | the layer, its lock, what it answers |
//! | `read` | readers, without a lock |
//! | `write` | writes, under it |
//! | `stream` | the unit being filled, and those on their way to flash |
//! | [`space`] | superblocks: free, open, full, dead; victims; wear |
//! | `collect` | room for writes: moving, erasing, bad blocks |
//! | `reserve` | superblocks beyond the over-provisioned space, and why so many |
//! | `rescue` | programs that fail |
//! | `settle` | what becomes durable and when; checkpoints |
//! | [`restore`], `replay`, `rebuild`, `power` | from what survived to a layer that serves; the dump |
//! | `sweep` | forgetting a volume |
//! | [`windows`] | stamps of the last writes of each volume |
//!
//! The design is `docs/deengine.md`; the rules are those of `docs/protocol.md`.

mod collect;
pub mod config;
pub mod layer;
mod power;
mod read;
mod rebuild;
mod replay;
mod rescue;
mod reserve;
pub mod restore;
mod settle;
pub mod space;
mod stats;
mod stream;
mod sweep;
pub mod windows;
mod write;

pub use config::{DUMP_BYTES, FtlConfig, OpenError, volumes_for};
pub use gnstor_map::{Batch, Probe};
pub use gnstor_model::{Collection, Policy};
pub use layer::{CommitError, Committed, Extent, Forgotten, Ftl, NewBlock, Target, geometry_for};
pub use read::{Booked, Bookings};
pub use reserve::reserved_superblocks;
pub use restore::{Boot, OpenedFtl, Origin};
pub use space::Wear;
pub use stats::{Health, LayerStats};
pub use write::Commits;

#[cfg(test)]
mod tests;
