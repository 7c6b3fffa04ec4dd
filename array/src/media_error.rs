// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why an SSD could not be made or opened.

/// Why there is no SSD, or why it could not be turned off in order.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    /// The request itself is wrong: a preset that does not exist, a folder that holds another array.
    #[error("{0}")]
    Request(String),
    /// A file or folder that cannot be read.
    #[error("{path}: {cause}")]
    Read {
        /// Path of the file.
        path: String,
        /// Why.
        cause: String,
    },
    /// Memory, or the file.
    #[error("{what}: {cause}")]
    Make {
        /// The attempted action.
        what: String,
        /// Why it failed.
        cause: String,
    },
    /// The file, in the words of its reader.
    #[error("{0}")]
    File(String),
    /// The file has an SSD, or should have one, and cannot be read.
    #[error("{0}")]
    Damaged(String),
    /// A change to the preset that is not possible.
    #[error("--set {0}")]
    Setting(String),
    /// The file holds another SSD than requested.
    #[error("{path}: {what}")]
    Mismatch {
        /// The file.
        path: String,
        /// The difference, and what to do.
        what: String,
    },
    /// The SSD could not be shut down in order.
    #[error("{what}: {cause}")]
    Off {
        /// The attempted action.
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
        /// Index of the SSD in the transport.
        index: u32,
    },
}
