// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The emulated SSD: firmware that itself checks who may touch which volume block, and where that block lives.
//!
//! [`Ssd`] is a [`gnstor_fabric::controller::Controller`]: capsules and the ends of transfers go in, effects come
//! out. Timing is modelled, data really moves.
//!
//! ```text
//!   capsule
//!     | Submission                                     controller, hosts: whose queue is it
//!     v
//!   Request              well formed                   request
//!     |
//!     v
//!   Authorized<Request>  identity, map epoch, volume,  permission, fleet
//!     |                  range, rights, placement
//!     v
//!   Extent               a page, or zeros              ftl: map, media
//!     |
//!     v
//!   Push / Pull  - - transferred - ->  (writes: authorised again, then mapped)
//!     |
//!     v
//!   Complete at the modelled time                      timing, preset
//! ```
//! Each stage takes only what the stage before it made: an [`permission::Authorized`] can be built nowhere but in the
//! permission module. Each command has one completion permit, spent exactly once.
//!
//! Beside I/O: `fabrics` (Connect, properties), `admin` (Identify, features, keep-alive), `volumes` (the daemon's
//! commands, fences, sweeps), `scratch` (buffers for their data), `command`, `slab` and `permit` (commands in
//! flight), `teardown` (the end of a queue), `stamps` (the order of writes).
//!
//! What it does not do: it never looks at block data (the mover sums it while it copies) and never reads a clock.
//! There are no erase blocks and no garbage collection, no serving lease, and nothing survives the process:
//! power-loss protection is modelled by acknowledging from the write buffer only.

mod admin;
mod command;
mod controller;
mod fabrics;
pub mod fleet;
mod ftl;
mod hosts;
mod io;
pub mod map;
pub mod media;
pub mod permission;
mod permit;
pub mod preset;
pub mod request;
mod scratch;
mod slab;
pub mod stamps;
mod stats;
mod teardown;
pub mod timing;
mod volumes;

pub use controller::{Ssd, SsdConfig};
pub use preset::Preset;
pub use stats::Stats;

#[cfg(test)]
mod tests;
