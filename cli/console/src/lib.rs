// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the commands share: why one fails, progress on standard error, standard output, words of the command
//! line.

mod memory;
pub mod out;
mod report;
pub mod words;

use gnstor_array::ArrayError;
pub use gnstor_array::human_bytes;
use gnstor_array::media::MediaError;
pub use memory::free_memory;
pub use report::{Steps, describe_hca, print_json};

/// Why a command failed: one sentence for a person, and an exit code.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The library.
    #[error("{}", sentence(.0))]
    Gnstor(#[from] libgnstor::Error),
    /// The array in this process.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// An SSD's contents.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// A file.
    #[error("{path}: {cause}")]
    File {
        /// Path of the file.
        path: String,
        /// Why.
        cause: String,
    },
    /// The arguments are wrong, or contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The operating system.
    #[error("{what}: {cause}")]
    Os {
        /// The attempted action.
        what: String,
        /// The error.
        cause: std::io::Error,
    },
    /// A running part of the array stopped or refused.
    #[error("{0}")]
    Stopped(String),
    /// The data that was read is not the data that was written.
    #[error("{0}")]
    Verify(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl CliError {
    /// The exit code: 2 for wrong arguments, 130 for Ctrl-C, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            _ if self.is_usage() => 2,
            Self::Interrupted => 130,
            _ => 1,
        }
    }

    /// Whether the arguments are wrong.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Usage(_)
                | Self::Gnstor(libgnstor::Error::Credentials(_))
                | Self::Media(MediaError::Request(_) | MediaError::Setting(_))
                | Self::Array(ArrayError::SsdCount(_) | ArrayError::Groups(_))
                | Self::Array(ArrayError::Media(MediaError::Request(_) | MediaError::Setting(_)))
        )
    }
}

/// The first line of the library's error. After a time-out of a kernel, the error also says where its threads
/// were; that goes to the log.
fn sentence(error: &libgnstor::Error) -> String {
    let whole = error.to_string();
    let Some((first, _)) = whole.split_once('\n') else { return whole };
    tracing::debug!("{whole}");
    let end = first.find(" (simt:").unwrap_or(first.len());
    format!(
        "{}: this process or the array was stopped meanwhile, or the machine is overloaded; try again \
         (--log debug shows where each thread was)",
        &first[..end]
    )
}

/// Text from the array, safe on a terminal: control characters and direction marks appear as `\u{1b}`.
pub fn printable(text: &str) -> String {
    let is_unsafe = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let escaped = |c: char| match c {
        '\\' => "\\\\".to_owned(),
        c if is_unsafe(c) => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn text_of_others_cannot_move_the_cursor_or_pass_for_an_escape() {
        let _deadline = deadline();
        assert_eq!(printable("kind \u{e9}"), "kind \u{e9}");
        assert_eq!(printable("a\u{1b}[31mb\u{202e}"), "a\\u{1b}[31mb\\u{202e}");
        assert_eq!(printable("\\u{1b}"), "\\\\u{1b}");
    }

    #[test]
    fn wrong_arguments_exit_with_2_and_failures_with_1() {
        let _deadline = deadline();
        let preset = gnstor_array::media::preset("floppy").expect_err("there is none");
        assert_eq!(CliError::from(preset).exit_code(), 2);
        assert_eq!(CliError::from(ArrayError::SsdCount(0)).exit_code(), 2);
        assert_eq!(CliError::Usage(String::new()).exit_code(), 2);
        assert_eq!(CliError::Stopped(String::new()).exit_code(), 1);
    }

    #[test]
    fn a_kernel_that_timed_out_is_one_sentence_without_the_places_of_its_threads() {
        let _deadline = deadline();
        let dump = "kernel gn_transfer did not end (simt: deadline of 15000 ms exceeded; \
                    grid 0\n  grid 0 lanes fffd";
        let timeout = gnstor_fabric::device::DeviceError::Timeout {
            what: dump.into(),
            after: std::time::Duration::from_secs(15),
        };
        let text = CliError::from(libgnstor::Error::from(timeout)).to_string();
        assert!(text.starts_with("kernel gn_transfer did not end: ") && text.contains("stopped"), "{text}");
        assert!(!text.contains("simt") && !text.contains('\n') && !text.contains("lanes"), "{text}");
    }
}
