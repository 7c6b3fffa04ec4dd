// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the `gnstor` command is made of.
//!
//! ```text
//!   main       parse, dispatch, exit code
//!   args       the command line
//!   up         an array in the foreground (crate gnstor-array)
//!   ssd        one SSD in a process of its own
//!   demo       the whole way once; demo_fault: with a kernel that fails
//!   volume, cp commands against a running array; down: which SSDs it lacks
//! ```
//! `gnstor bench` is the crate gnstor-bench. Errors, progress and standard output are in the crate gnstor-console.

pub mod args;
pub mod cp;
pub mod demo;
pub mod demo_fault;
mod demo_kernel;
mod down;
mod signals;
pub mod ssd;
pub mod up;
pub mod volume;

pub use gnstor_console::CliError;
