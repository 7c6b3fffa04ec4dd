// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a command fetches from its host, and what it answers.

use gnstor_base::time::Time;
use gnstor_proto::status::Status;

/// Successful completion with nothing to say.
pub(crate) const OK: Answer = Answer { status: Status::SUCCESS, dw0: 0, dw1: 0 };

/// The words of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) dw0: u32,
    pub(crate) dw1: u32,
}

impl Answer {
    pub(crate) fn dw0(dw0: u32) -> Self {
        Self { dw0, ..OK }
    }
}

/// Data that a host has for its command.
pub(crate) struct Fetched<W> {
    pub(crate) bytes: u32,
    /// The work that continues with the data.
    pub(crate) work: W,
}

/// An answer with data for the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered<'a> {
    /// The data, which is cut or padded.
    pub(crate) data: &'a [u8],
    /// Bytes that the host takes.
    pub(crate) bytes: u32,
    /// DW0 of the completion.
    pub(crate) dw0: u32,
    /// When the SSD has all of the data.
    pub(crate) at: Time,
}

impl<'a> Delivered<'a> {
    /// An answer that the SSD has together at once.
    pub(crate) fn at_once(now: Time, bytes: u32, dw0: u32, data: &'a [u8]) -> Self {
        Self { data, bytes, dw0, at: now }
    }
}
