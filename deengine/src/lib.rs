// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The emulated SSD: firmware that itself checks who may touch which volume block, and where that block
//! lives.
//!
//! [`Ssd::into_workers`] divides an SSD among threads. A [`Worker`] is a
//! [`gnstor_base::controller::Controller`]: capsules and the ends of transfers go in, effects come out.
//! Timing is modelled, data really moves.
//!
//! ```text
//!   capsule
//!     | Submission                                     io::worker, session: the queue and its host
//!     v
//!   Request              well formed                   request
//!     |
//!     v
//!   Authorized<Request>  identity, map epoch, volume,  permission
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
//! Each stage takes only what the stage before it made: an [`permission::Authorized`] can be built nowhere
//! but in the permission module. Each command has one completion permit, spent exactly once.
//!
//! * `io`: workers, dispatch by the arbiter, reads, writes, Compare, trims, rate limits.
//! * `workers`: what workers and firmware share without a lock.
//! * `manager_key`: the key that the SSD was given first.
//! * `commands`: a command in flight, its permit, and buffers.
//! * `hosts`: queues, NVMe controllers of hosts, and what each was told.
//! * `session`: Fabrics commands, authentication, the end of a queue.
//! * `admin`: admin commands of the specification and of the daemon.
//! * `permission`: the table, its rules, the fleet map, when its lease was renewed.
//! * `repair`: places that fill, and volumes that are settled.
//! * `smart`: statistics, health, counters.
//! * `durable`: power on and off. `recovering`: an SSD that is being restored.
//!
//! The firmware looks at block data only for Compare (the mover sums blocks while it copies them), and it
//! never reads a clock. Blocks below the map belong to the translation layer (`gnstor-ftl`).

mod admin;
mod commands;
mod config;
mod controller;
mod durable;
mod error;
mod hosts;
mod io;
mod manager_key;
pub mod permission;
mod recovering;
mod repair;
pub mod request;
mod session;
mod smart;
mod workers;

pub use config::{SsdConfig, SsdMedia};
pub use controller::Ssd;
pub use durable::{Bench, DataFileInfo};
pub use error::SsdError;
pub use gnstor_ftl::{Boot, Origin};
pub use gnstor_model::{Difference, Preset};
pub use hosts::events::Event;
pub use hosts::{Authentication, Random};
pub use io::{Pace, SsdGuard, Worker};
pub use manager_key::KeyMatch;
pub use permission::fleet;
pub use recovering::Recovering;
pub use smart::counters::Counters;
pub use smart::health::FlashHealth;
pub use smart::stats::Stats;

#[cfg(test)]
#[path = "../testing/deadline.rs"]
mod deadline;
#[cfg(test)]
#[path = "../testing/handed_over.rs"]
mod handed_over;
#[cfg(test)]
mod tests;
