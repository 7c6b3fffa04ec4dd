// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the commands share: why one fails, progress on standard error, standard output, words of the command line.

pub mod out;
mod report;
pub mod words;

pub use gnstor_array::human_bytes;
pub use report::{Steps, print_json, told_of_hca};

/// Why a command failed: one sentence for a person, and the exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The library.
    #[error(transparent)]
    Gnstor(#[from] libgnstor::Error),
    /// The array in this process.
    #[error(transparent)]
    Array(#[from] gnstor_array::ArrayError),
    /// An SSD's contents.
    #[error(transparent)]
    Media(#[from] gnstor_array::media::MediaError),
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
