// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The choice between `io_uring` and blocking calls.

use std::ffi::OsStr;

/// The system calls that move data to and from the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoMode {
    /// `io_uring` if the system permits it, otherwise blocking calls.
    #[default]
    Auto,
    /// `io_uring` or an error.
    Uring,
    /// Blocking calls.
    Blocking,
}

impl IoMode {
    /// Anything but nothing and `0` in this environment variable is [`IoMode::Blocking`].
    pub const NO_URING: &'static str = "GNSTOR_NO_IO_URING";

    pub(crate) fn asked(no_uring: Option<&OsStr>) -> Self {
        if no_uring.is_none_or(|value| value.is_empty() || value == "0") {
            Self::Auto
        } else {
            Self::Blocking
        }
    }
}
