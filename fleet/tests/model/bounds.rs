// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds of the model. A set of them is a scope.

use gnstor_fleet::lease::Timing;
use gnstor_fleet::{Epoch, Term};

/// How far the model explores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Name of the scope.
    pub(crate) name: &'static str,
    /// Lease and drift in ticks.
    pub(crate) timing: Timing,
    /// The SSDs below this have clocks and ask for leases. The others serve until a map that deprives them is
    /// active, which is what the scopes with clocks prove.
    pub(crate) clocks: u16,
    /// Daemon 0 leads from the start, in term 1.
    pub(crate) is_led: bool,
    /// All voters hold and learn a map at once. Terms and maps have a scope of their own.
    pub(crate) votes_at_once: bool,
    /// Highest term.
    pub(crate) terms: Term,
    /// Highest epoch; the first map is 1.
    pub(crate) epochs: Epoch,
    /// The SSDs below this are lost and return.
    pub(crate) changing: u16,
    /// Writes of the client.
    pub(crate) writes: usize,
    /// Writes that are under way at a time.
    pub(crate) open: usize,
    /// Every second write is a TRIM.
    pub(crate) trims: bool,
    /// Write leases; the first is granted at the start.
    pub(crate) leases: u32,
    /// Power cuts of SSDs that lose every write.
    pub(crate) lossy: u8,
    /// Restarts of SSDs that lose nothing but their leases.
    pub(crate) restarts: u8,
    /// SSDs that were dropped may return.
    pub(crate) returns: bool,
}
