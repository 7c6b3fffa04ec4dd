// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places a page: flash gets the data, and the map names the page from then on.

use crate::layer::{Ftl, Inner};
use crate::space::Stream;
use gnstor_base::time::Time;
use gnstor_durable::{Record, Seq};
use gnstor_flash::{Frame, Oob, Ppa};
use gnstor_map::Probe;
use gnstor_proto::slba::{Stamp, Vid};

/// A page to write and map.
pub(crate) struct Placement<'a> {
    pub(crate) stream: Stream,
    pub(crate) oob: &'a Oob,
    /// Place of its block in the map.
    pub(crate) probe: &'a Probe,
    /// The data. The layer owns the frame from here on.
    pub(crate) frame: Frame,
    /// Time at which the data is in the write buffer.
    pub(crate) ready: Time,
    /// The stamp that a host applied with this page; `None` for moved pages.
    pub(crate) applied: Option<Stamp>,
}

impl Ftl {
    /// Writes a frame to the next page of a stream and maps its block there. The caller has made room.
    pub(crate) fn place_page(&self, inner: &mut Inner, now: Time, placement: &Placement<'_>) {
        let &Placement { stream, oob, probe, frame, ready, applied } = placement;
        if !inner.streams[stream as usize].has_page(&self.flash) {
            self.open_superblock(inner, stream);
        }
        let seq = inner.journal.last() + 1;
        let page = inner.streams[stream as usize].take(&self.flash, seq, ready);
        // The record comes first, so that the map never names a page whose record does not describe it.
        self.flash.place(page, frame, oob);
        inner.journal.begin();
        if let Some((vid, stamp)) = Vid::new(oob.vid).zip(applied) {
            inner.journal.add(Record::Applied { vid, vba: oob.vba, stamp });
        }
        let old = inner.edits.insert_at(&mut inner.journal, probe, page.0);
        let committed = inner.journal.commit();
        debug_assert_eq!(committed, seq);
        #[cfg(test)]
        if applied.is_some() {
            inner.commits.applied_at.push(seq);
        }
        inner.space.get_mut(self.flash.geometry().superblock_of(page)).valid += 1;
        if let Some(old) = old {
            self.release_page(inner, Ppa(old), seq);
        }
        if inner.edits.sweeps.has_written() {
            self.sweep_written(inner);
        }
        self.close_unit(inner, now, stream);
    }

    /// Notes that the map no longer names this page, since transaction `seq`.
    pub(crate) fn release_page(&self, inner: &mut Inner, page: Ppa, seq: Seq) {
        let superblock = self.flash.geometry().superblock_of(page);
        let entry = inner.space.get_mut(superblock);
        entry.valid -= 1;
        entry.released = entry.released.max(seq);
        inner.collector.look_again();
        inner.collector.has_more_room();
        self.note_emptied(inner, superblock);
    }
}
