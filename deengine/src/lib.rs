// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The emulated SSD: firmware that itself checks who may touch which volume block, and where that block lives.
//!
//! [`Ssd`] is a [`gnstor_base::controller::Controller`]: capsules and the ends of transfers go in, effects come
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
//! [`Worker`]s divide an SSD among threads; what most commands are, reads of blocks in memory and plain writes, they do alone.
//!
//! Before there is an SSD: `recovering`. Before the pipeline: `arbitration` (whose command is next when the firmware is busy), `rate` and `delay` (volumes
//! with a limit).
//!
//! Beside I/O: `fabrics` (Connect, properties), `admin` (Identify, keep-alive), `features`, `logs`, `effects`, `errors`,
//! `health`, `smart_counters`, `counters` (what can be asked), `events` (what is told), `abort`, `volumes` (the daemon's commands, fences,
//! sweeps), `tombstones`, `lease` (may it serve), `compare`, `scratch` (buffers for their data), `command`, `slab` and
//! `permit` (commands in flight), `teardown` (the end of a queue).
//!
//! What it does not do: it never looks at block data but for Compare (the mover sums it while it copies) and never
//! reads a clock. What becomes of blocks below the map is the translation layer's (`gnstor-ftl`).

mod admin;
mod config;
mod controller;
mod durable;
mod io;
pub mod permission;
mod recovering;
pub mod request;
mod session;
mod smart;
mod workers;

pub use admin::events::Event;
pub use config::{SsdConfig, SsdMedia};
pub use controller::Ssd;
pub use durable::{Bench, DataFileInfo, SsdError};
pub use gnstor_ftl::{Boot, Origin};
pub use gnstor_model::{Difference, Preset};
pub use io::{SsdGuard, Worker};
pub use permission::fleet;
pub use recovering::Recovering;
pub use smart::counters::Counters;
pub use smart::health::FlashHealth;
pub use smart::stats::Stats;

#[cfg(test)]
#[path = "../testing/deadline.rs"]
mod deadline;
#[cfg(test)]
mod tests;
