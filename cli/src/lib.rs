// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the `gnstor` command is made of; the tests use it too.
//!
//! ```text
//!   main       parse, dispatch, exit code
//!   args       the command line
//!   array      an array in this process: engine, emulated SSDs, daemon, TCP door
//!   demo       the whole way once
//!   volume, cp commands against a running array
//!   report     what a person sees, and JSON
//! ```

pub mod args;
pub mod array;
pub mod cp;
pub mod demo;
mod demo_kernel;
pub mod report;
pub mod up;
pub mod volume;

/// Why a command failed: one sentence for a person, and the exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The library.
    #[error(transparent)]
    Gnstor(#[from] libgnstor::Error),
    /// The array in this process.
    #[error(transparent)]
    Array(#[from] array::ArrayError),
    /// A file.
    #[error("{path}: {cause}")]
    File {
        /// Which.
        path: String,
        /// Why.
        cause: String,
    },
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
    /// What was read is not what was written.
    #[error("{0}")]
    Verify(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}
