// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the end of a write lease to the next grant (rule 14).

use super::Core;
use super::fleet_view::SettleView;
use super::volume::{Purpose, Stage};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;

impl Core {
    /// The writer of a volume, which is in no change, loses its lease.
    pub(super) fn end_lease(&mut self, now: u64, vid: Vid) {
        let term = self.term.number();
        let Some(volume) = self.volumes.get(&vid).filter(|v| v.stage == Stage::Active && v.round.is_none())
        else {
            return;
        };
        let writer = volume.entry.writer;
        let entry = VolumeEntry { writer: None, lease_ms: 0, ..volume.basis(now, term) };
        if let Some(writer) = writer.filter(|writer| !entry.readers.contains(writer)) {
            self.clients.released(now, writer, vid);
        }
        self.put(vid, entry, Purpose::Reconcile { reply: None });
    }

    /// The volumes that are being settled.
    pub(super) fn settling(&self) -> Vec<SettleView> {
        Vec::new()
    }
}
