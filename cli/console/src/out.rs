// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard output. Its reader may close it (`gnstor volume list | head -1`), or a disk may be full. The
//! command goes on, since it may have an array to shut down, and reports the failure at its end.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// The first failure.
static FAILED: OnceLock<(ErrorKind, String)> = OnceLock::new();

/// Prints a line on standard output; see [`failure`].
#[macro_export]
macro_rules! outln {
    () => { $crate::out::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints on standard output; see [`failure`].
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::out::write(format_args!($($text)*)) };
}

/// Does the work of [`outln!`] and [`out!`].
pub fn write(text: Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    note(stdout.write_fmt(text).and_then(|()| stdout.flush()));
}

/// Keeps the error of something else that writes to standard output.
pub fn note(result: io::Result<()>) {
    if let Err(error) = result {
        FAILED.get_or_init(|| (error.kind(), error.to_string()));
    }
}

/// The end of a command whose output failed. If the reader closed the pipe, it prints nothing, and the exit
/// code is that of a program that SIGPIPE ends.
pub fn failure() -> Option<(Option<&'static str>, u8)> {
    FAILED.get().map(|(kind, why)| match kind {
        ErrorKind::BrokenPipe => (None, 141),
        _ => (Some(why.as_str()), 1),
    })
}
