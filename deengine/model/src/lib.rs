// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time of an emulated SSD: when the modelled device would be done, and the figures of real ones.
//!
//! ```text
//!   Preset  - figures of an SSD, each with its source (presets/*.toml, or a user's file)
//!     |
//!   Timing  - firmware server -> (+ hash) -> dies -> channels -> PCIe          read
//!     |                       -> (+ hash) -> PCIe -> write buffer -> dies     write, program, collect, erase
//!     |
//!   measure - drives a Timing in virtual time, fresh or steady, and compares it with the preset's figures
//! ```
//! This crate moves no data and reads no clock: every function takes a time and returns a time. It does not
//! know the contents of pages (the FTL does), their bytes (the flash does), or anything beyond the SSD's own
//! PCIe link.

mod calendar;
mod figure;
mod link;
pub mod measure;
mod preset;
mod timing;
mod write_buffer;

pub use figure::{Bound, Figure, MODELLED, Measure, Op, Pattern, State, Workload};
pub use preset::{Collection, Difference, FaultPlan, Policy, Preset, PresetError, SlowDie};
pub use timing::{Stream, Timing};

#[cfg(test)]
mod tests;
