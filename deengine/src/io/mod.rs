// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The I/O path: workers, and what a command of theirs goes through.

pub(crate) mod arbiter;
pub(crate) mod command;
mod commit;
mod compare;
pub(crate) mod delay;
pub(crate) mod dispatch;
mod firmware_write;
mod pending;
pub(crate) mod permit;
mod port;
pub(crate) mod rate;
mod read;
mod requests;
pub(crate) mod slab;
pub(crate) mod waiting;
mod worker;
mod write;

pub use worker::{SsdGuard, Worker};
