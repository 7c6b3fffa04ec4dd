// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failures of requests, and failures of commands to SSDs.

use gnstor_proto::status::{GrpcCode, Refusal};
use std::collections::BTreeMap;

/// A refused request: a code for programs and a sentence for people. The sentence names the request, the
/// cause and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The gRPC code.
    pub code: GrpcCode,
    /// The sentence.
    pub message: String,
}

impl Failure {
    /// A failure.
    pub fn new(code: GrpcCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Why an SSD did not execute a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// The SSD refused, and the command had no effect there.
    Refused(Refusal),
    /// No usable answer: the command may or may not have had its effect.
    Lost(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "refused: {}", refusal.sentence()),
            Self::Lost(why) => f.write_str(why),
        }
    }
}

/// Names the SSDs that failed, for a sentence: `SSD 2 (refused: ...), SSD 5 (...)`.
pub(super) fn blame(failed: &BTreeMap<u16, Trouble>) -> String {
    let mut text = String::new();
    for (ssd, trouble) in failed {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&format!("SSD {ssd} ({trouble})"));
    }
    text
}

/// The code of a call that failed because of SSDs. If all SSDs report the same code and the caller can act on
/// it, it is that code. Otherwise it is "try later".
pub(super) fn code_of(failed: &BTreeMap<u16, Trouble>) -> GrpcCode {
    let full = |trouble: &Trouble| {
        matches!(trouble, Trouble::Refused(Refusal::TableFull | Refusal::CapacityExceeded))
    };
    if failed.values().any(full) && failed.values().all(|t| matches!(t, Trouble::Refused(_))) {
        return GrpcCode::ResourceExhausted;
    }
    GrpcCode::Unavailable
}
