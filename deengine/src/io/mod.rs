// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The I/O path: workers, and the stages of their commands.

mod cold;
mod compare;
mod delay;
pub(crate) mod dispatch;
mod effects;
mod firmware;
mod flush;
mod grants;
mod guard;
mod judged;
mod pace;
mod pending;
mod port;
mod read;
mod rules_copy;
mod slow_read;
mod starve;
pub(crate) mod state;
pub(crate) mod trim;
mod turn_rings;
mod under_way;
pub(crate) mod waiting;
mod worker;
mod write;

pub use guard::SsdGuard;
pub use pace::Pace;
pub use worker::Worker;
