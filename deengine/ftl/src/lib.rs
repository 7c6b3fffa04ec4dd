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
//! | [`layer`], `types` | the layer, its lock, arguments and results of its calls |
//! | `read` | reads, without the lock |
//! | `write`, `place`, `announce` | commits and TRIM, under the lock; prefetching for them |
//! | `stream`, `units` | the unit that is being filled, and units on their way to flash |
//! | [`space`] | superblocks: free, open, full, dead; victims; wear |
//! | `collect`, `erase` | room for writes: moving valid pages, erasing superblocks |
//! | `reserve` | superblocks beyond the over-provisioned space, and why so many |
//! | `relocate` | failed programs |
//! | `durability`, `flushing`, `checkpoints` | when the journal is written; checkpoints |
//! | `written` | up to which transaction each volume was changed, for Flush |
//! | [`restore`], `replay`, `rebuild`, `power` | restore, shutdown, dump |
//! | `edits`, `sweep` | changes of the map; unmapping a deleted volume |
//! | [`stamp_history`], `stamps`, `current` | stamps of the last writes of each volume, and which of them count |
//!
//! Each part has its own state under the layer's lock. It is in the part's module `state`, below [`layer`].
//!
//! The design is `docs/deengine.md`; the rules are those of `docs/protocol.md`.

mod announce;
mod checkpoints;
mod collect;
pub mod config;
mod current;
mod durability;
mod edits;
mod erase;
mod flushing;
pub mod layer;
mod parts;
mod place;
mod power;
mod read;
mod rebuild;
mod relocate;
mod repair;
mod replay;
mod reserve;
pub mod restore;
pub mod space;
pub mod stamp_history;
mod stamps;
mod stats;
mod stream;
mod sweep;
mod types;
mod units;
mod write;
mod written;

pub use config::{DUMP_BYTES, FtlConfig, OpenError, geometry_for, volumes_for};
pub use flushing::medium_pause;
pub use gnstor_map::{Batch, Probe};
pub use gnstor_model::{Collection, Policy};
pub use layer::Ftl;
pub use parts::Progress;
pub use read::{Booked, Bookings};
pub use repair::Kept;
pub use reserve::reserved_superblocks;
pub use restore::{Boot, OpenedFtl, Origin};
pub use space::Wear;
pub use stats::{Health, LayerStats};
pub use types::{CommitError, Committed, Extent, NewBlock, NotDurable, Target, Trimmed, other_than};
pub use write::Commits;

#[cfg(test)]
mod tests;
