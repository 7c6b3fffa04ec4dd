// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Admin commands of the specification and of the daemon.

pub(crate) mod abort;
mod asker;
pub(crate) mod changes;
pub(crate) mod effects;
mod errors;
pub(crate) mod events;
mod features;
mod health;
pub(crate) mod identify;
mod lease;
mod logs;
pub(crate) mod opening;
pub(crate) mod state;
pub(crate) mod volumes;
pub(crate) mod voting;
