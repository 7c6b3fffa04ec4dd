// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why there is no SSD.

/// Why there is no SSD, or why it could not be turned off in order.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// The request itself is wrong: a preset that does not exist, a folder that holds another array.
    #[error("{0}")]
    Request(String),
    /// A file or folder that cannot be read.
    #[error("{path}: {cause}")]
    Read {
        /// Which.
        path: String,
        /// Why.
        cause: String,
    },
    /// Memory, or the file.
    #[error("{what}: {cause}")]
    Make {
        /// What was tried.
        what: String,
        /// Why it failed.
        cause: String,
    },
    /// The file, in the words of its reader.
    #[error("{0}")]
    File(String),
    /// The file holds an SSD, or should, and cannot be read.
    #[error("{0}")]
    Damaged(String),
    /// A change to the preset that is not possible.
    #[error("--set {0}")]
    Setting(String),
    /// The file does not hold what was asked for.
    #[error("{path}: {what}")]
    Mismatch {
        /// The file.
        path: String,
        /// What differs, and what to do.
        what: String,
    },
    /// It could not be turned off in order.
    #[error("{what}: {cause}")]
    Off {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        cause: String,
    },
    /// A panic ended its transport.
    #[error(
        "internal error: the transport of SSD {index} ended by a panic, and the SSD was not shut down: \
         start it again"
    )]
    Broken {
        /// Its place in the transport.
        index: u32,
    },
}
