// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions: queues, the NVMe controllers that they belong to, how they begin and how they end.

mod authentication;
mod fabrics;
mod host;
mod hosts;
mod teardown;

pub use authentication::{Authentication, Random};
pub(crate) use authentication::{Gate, Proof};
pub(crate) use host::*;
pub(crate) use hosts::*;
