// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the `gnstor` command is made of; the tests use it too.
//!
//! ```text
//!   main       parse, dispatch, exit code
//!   args       the command line
//!   array      an array: engine, SSDs here or elsewhere, daemon, TCP door
//!   media      what an emulated SSD is made of, and how it came up; place: its file or device before that
//!   power      SSDs in an engine, until they are shut down or their power fails
//!   reach      an SSD in another process, as the daemon reaches it
//!   door       where clients of other processes come in
//!   ssd        one SSD in a process of its own
//!   demo       the whole way once; demo_fault: with a kernel that fails
//!   bench      the load generator
//!   volume, cp commands against a running array; down: which SSDs it lacks
//!   report     what a person sees, and JSON; out: standard output, which may be closed
//! ```

#[macro_use]
pub mod out;

pub mod args;
pub mod array;
pub mod bench;
pub mod cp;
pub mod demo;
pub mod demo_fault;
mod demo_kernel;
pub mod door;
mod down;
pub mod media;
mod place;
pub mod power;
mod preset;
mod reach;
pub mod report;
mod signals;
pub mod ssd;
pub mod up;
pub mod volume;
mod waking;

/// Why a command failed: one sentence for a person, and the exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The library.
    #[error(transparent)]
    Gnstor(#[from] libgnstor::Error),
    /// The array in this process.
    #[error(transparent)]
    Array(#[from] array::ArrayError),
    /// An SSD's contents.
    #[error(transparent)]
    Media(#[from] media::MediaError),
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
