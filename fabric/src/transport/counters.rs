// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of a transport.

use gnstor_base::time::Span;

/// Counters of a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Command capsules sent to targets.
    pub capsules: u64,
    /// Bytes that left the array.
    pub pushed_bytes: u64,
    /// Bytes that were moved to the array.
    pub pulled_bytes: u64,
    /// Connections that broke.
    pub broken: u64,
    /// SENDs that met no receive.
    pub rnr: u64,
    /// Real time from the executor's taking a SEND until the transport sees it; the sum over all SENDs.
    pub fetch_time: Span,
    /// Copies that executors have ended.
    pub copies: u64,
    /// Real time from asking for a copy to seeing its end, all copies together.
    pub copy_time: Span,
    /// Steps that found something to do, and steps that did not.
    pub steps: [u64; 2],
}

impl std::iter::Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(counters: I) -> Self {
        counters.fold(Self::default(), |a, b| Self {
            capsules: a.capsules + b.capsules,
            pushed_bytes: a.pushed_bytes + b.pushed_bytes,
            pulled_bytes: a.pulled_bytes + b.pulled_bytes,
            broken: a.broken + b.broken,
            rnr: a.rnr + b.rnr,
            fetch_time: a.fetch_time + b.fetch_time,
            copies: a.copies + b.copies,
            copy_time: a.copy_time + b.copy_time,
            steps: [a.steps[0] + b.steps[0], a.steps[1] + b.steps[1]],
        })
    }
}
