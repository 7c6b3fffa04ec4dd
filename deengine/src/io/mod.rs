// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The I/O path: workers, and the stages of their commands.

mod commit;
mod compare;
mod delay;
pub(crate) mod dispatch;
mod effects;
mod firmware_read;
mod flush;
mod guard;
mod pace;
mod pending;
mod port;
mod read;
mod rings;
mod starve;
pub(crate) mod state;
pub(crate) mod trim;
pub(crate) mod waiting;
mod worker;
mod write;

pub use guard::SsdGuard;
pub use pace::Pace;
pub use worker::Worker;
