// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connected hosts: their queues, their NVMe controllers, and each controller's settings. This module
//! executes no command.

pub(crate) mod arbiter;
mod connect;
pub(crate) mod events;
pub(crate) mod features;
mod host;
mod identities;
mod parts;
mod proof;
pub(crate) mod said;
mod table;

pub(crate) use host::*;
pub(crate) use proof::Proof;
pub use proof::{Authentication, Random};
pub(crate) use table::*;
