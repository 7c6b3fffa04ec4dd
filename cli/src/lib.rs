// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the `gnstor` command is made of.
//!
//! ```text
//!   main       parse, dispatch, exit code
//!   args       the command line; parse: reads it, and says what is wrong with it
//!   files      files that options name
//!   certs      a certificate authority for tests and small arrays
//!   up         an array in the foreground (crate gnstor-array)
//!   ssd        one SSD in a process of its own
//!   demo       the whole way once; demo_fault: with a kernel that fails
//!   lease      lease list, lease revoke
//!   volume     ls, rm and volume create, show, rename, label; filter: which volumes a list has
//!   cp         files, devices and pipes into volumes and back
//!   status     status and df; fleet: what the daemon says of the array
//!   fleet_ops  fleet show, watch, resume, fail, remove, replace; fleet_show: what they print
//!   repair_ops scrub and rebuild
//!   sim        sim scale, sim survive: simulated arrays (crate gnstor-sim)
//!   ssd_health the SMART page of an SSD of a running array; ssd_log: its other log pages
//!   ssd_pages  reads log pages of an SSD
//! ```
//! `gnstor bench` is the crate gnstor-bench. Errors, progress and standard output are in the crate
//! gnstor-console.

pub mod args;
pub mod certs;
pub mod cp;
pub mod demo;
pub mod demo_fault;
mod demo_kernel;
mod files;
mod filter;
mod fleet;
pub mod fleet_ops;
mod fleet_show;
mod key;
pub mod lease;
mod limits;
pub mod parse;
pub mod repair_ops;
mod signals;
pub mod sim;
mod sim_survive;
pub mod ssd;
pub mod ssd_health;
pub mod ssd_log;
mod ssd_pages;
mod standby;
pub mod status;
pub mod up;
mod up_watch;
pub mod volume;
mod witness;

pub use gnstor_console::CliError;
