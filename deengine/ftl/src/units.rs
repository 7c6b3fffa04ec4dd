// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units of a stream: superblocks are opened, units sealed and programmed, full superblocks closed.

use crate::layer::{Ftl, Inner};
use crate::space::Stream;
use crate::stream::Full;
use gnstor_base::time::Time;
use gnstor_durable::Record;
use gnstor_flash::Ppa;

pub(crate) const STREAMS: [Stream; 2] = [Stream::Host, Stream::Collect];

impl Ftl {
    /// Opens a free superblock for a stream. The caller has made room.
    pub(crate) fn open_superblock(&self, inner: &mut Inner, stream: Stream) {
        let superblock = inner.space.open(stream).expect("room was made before");
        inner.streams[stream as usize].open(superblock);
        let order = inner.space.opened();
        inner.journal.begin();
        inner.journal.add(Record::Opened { superblock, stream: stream as u8, order });
        inner.journal.commit();
    }

    /// Called after a page was placed: seals the unit where it is full.
    pub(crate) fn close_unit(&self, inner: &mut Inner, now: Time, stream: Stream) {
        if let Some(full) = inner.streams[stream as usize].full(self.flash.geometry()) {
            self.seal(inner, now, stream, full);
        }
    }

    /// Starts the program of a full unit, and closes its superblock where that is full too.
    fn seal(&self, inner: &mut Inner, now: Time, stream: Stream, full: Full) {
        let superblock = self.flash.geometry().superblock_of_unit(full.unit);
        let from = full.ready.max(now).max(inner.space.get(superblock).erased_at);
        let kind = match stream {
            Stream::Host => gnstor_model::Stream::Host,
            Stream::Collect => gnstor_model::Stream::Collect,
        };
        self.flash.start_program(full.unit);
        let at = self.timing().map_or(now, |mut timing| timing.program(from, full.unit, kind));
        inner.space.get_mut(superblock).unprogrammed += 1;
        inner.stats.flash_pages += u64::from(self.flash.geometry().unit_pages());
        let writing = &mut inner.streams[stream as usize];
        writing.seal(full, at);
        if let Some(superblock) = writing.finished(&self.flash) {
            inner.space.close(superblock);
            inner.journal.begin();
            inner.journal.add(Record::Closed { superblock });
            inner.journal.commit();
            self.note_emptied(inner, superblock);
        }
    }

    /// Fills half-filled units with padding, so that they can be programmed.
    pub(crate) fn pad_units(&self, inner: &mut Inner, now: Time) {
        for stream in STREAMS {
            let geometry = self.flash.geometry();
            let Some((full, missing)) = inner.streams[stream as usize].pad(geometry) else { continue };
            if stream == Stream::Host
                && let Some(mut timing) = self.timing()
            {
                timing.pad(u32::try_from(missing.len()).expect("pages of a unit"));
            }
            inner.stats.padded_pages += missing.len() as u64;
            missing.map(Ppa).for_each(|page| self.flash.pad(page));
            self.seal(inner, now, stream, full);
        }
    }
}
