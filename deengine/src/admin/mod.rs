// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Admin commands of the specification and of the daemon.

pub(crate) mod abort;
pub(crate) mod changes;
pub(crate) mod effects;
pub(crate) mod errors;
pub(crate) mod events;
pub(crate) mod features;
pub(crate) mod identify;
mod logs;
pub(crate) mod opening;
pub(crate) mod scratch;
pub(crate) mod tombstones;
pub(crate) mod volumes;
pub(crate) mod voting;
