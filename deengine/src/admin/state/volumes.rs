// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of the commands that change volumes.

use gnstor_base::time::Time;
use gnstor_durable::MetadataStore;
use gnstor_proto::slba::Vid;

/// An SSD's state of its volumes outside the permission table: the metadata store, fences and sweeps.
#[derive(Debug)]
pub(crate) struct Volumes {
    metadata: MetadataStore,
    /// Acknowledged writes may be missing: the SSD is filling until a map newer than this epoch is set.
    filling_since: Option<u64>,
    /// This SSD stands in for one that cannot be used, and holds nothing.
    stands_in: bool,
    /// Commands that wait for a fence, oldest first.
    pub(in crate::admin) fences: Vec<u32>,
    /// When the sweeps of deleted volumes go on.
    pub(in crate::admin) sweep_at: Time,
    /// Volumes whose sweep is durable and whose last transfers are awaited.
    pub(in crate::admin) swept: Vec<(Vid, u32)>,
}

impl Volumes {
    pub(crate) fn new(metadata: MetadataStore) -> Self {
        let (filling_since, stands_in, fences, swept) = (None, false, Vec::new(), Vec::new());
        Self { metadata, filling_since, stands_in, fences, sweep_at: Time::NEVER, swept }
    }

    pub(crate) fn metadata(&self) -> &MetadataStore {
        &self.metadata
    }

    pub(crate) fn metadata_mut(&mut self) -> &mut MetadataStore {
        &mut self.metadata
    }

    /// Whether acknowledged writes may be missing.
    pub(crate) fn is_filling(&self) -> bool {
        self.filling_since.is_some()
    }

    /// Whether this SSD is a substitute for one that cannot be used.
    pub(crate) fn stands_in(&self) -> bool {
        self.stands_in
    }

    pub(crate) fn stand_in(&mut self) {
        self.stands_in = true;
    }

    pub(crate) fn set_filling_since(&mut self, epoch: Option<u64>) {
        self.filling_since = epoch;
    }

    /// The epoch under which acknowledged writes were lost.
    pub(crate) fn filling_since(&self) -> Option<u64> {
        self.filling_since
    }

    /// The volume's sweep is durable, and its last transfers are awaited.
    pub(crate) fn awaits_burial(&self, vid: Vid) -> bool {
        self.swept.iter().any(|&(waiting, _)| waiting == vid)
    }

    pub(crate) fn has_fences(&self) -> bool {
        !self.fences.is_empty()
    }

    /// The command of a fence is gone.
    pub(super) fn drop_fence(&mut self, id: u32) {
        self.fences.retain(|&fence| fence != id);
    }

    /// Sweeps go on at this time.
    pub(crate) fn sweep_at(&mut self, at: Time) {
        self.sweep_at = at;
    }
}
