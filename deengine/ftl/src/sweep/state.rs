// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of sweeps under the layer's lock.

use gnstor_durable::Seq;
use gnstor_proto::slba::Vid;

/// Running sweeps.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    pub(in crate::sweep) running: Vec<Sweep>,
    /// Words of the map written by the insertion or removal in hand.
    pub(in crate::sweep) written: Vec<(u64, u64)>,
}

/// A volume whose blocks are being unmapped.
#[derive(Clone, Copy, Debug)]
pub(in crate::sweep) struct Sweep {
    pub(in crate::sweep) vid: Vid,
    pub(in crate::sweep) generation: u32,
    pub(in crate::sweep) next_bucket: u64,
    /// Set when the pass is over: the transaction that must be durable.
    pub(in crate::sweep) end: Option<Seq>,
}

impl Sweeps {
    /// Notes a word that an insertion or a removal wrote, while a sweep runs.
    #[inline]
    pub(crate) fn note(&mut self, index: u64, value: u64) {
        if !self.running.is_empty() {
            self.written.push((index, value));
        }
    }

    /// Whether words are noted that `sweep_written` has not checked.
    #[inline]
    pub(crate) fn has_written(&self) -> bool {
        !self.written.is_empty()
    }
}
