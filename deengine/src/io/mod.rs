// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The I/O path: workers, and what a command of theirs goes through.

pub(crate) mod arbiter;
pub(crate) mod combining;
pub(crate) mod command;
mod commit;
mod compare;
pub(crate) mod delay;
pub(crate) mod dispatch;
mod firmware_dispatch;
mod firmware_write;
mod in_flight;
mod pending;
pub(crate) mod permit;
mod port;
pub(crate) mod rate;
mod read;
mod requests;
pub(crate) mod slab;
mod status;
pub(crate) mod waiting;
mod worker;
mod workers;
mod write;

mod sync {
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

pub use worker::{SsdGuard, Worker};
pub(crate) use workers::WorkerSet;
