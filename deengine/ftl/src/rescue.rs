// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program that fails: its block is bad, and what it should have written goes elsewhere.

use crate::layer::{Ftl, Inner};
use crate::space::Stream;
use gnstor_base::time::Time;
use gnstor_durable::{Record, Seq};
use gnstor_flash::{Frame, Oob, PageState, Ppa};
use gnstor_proto::slba::Vid;

impl Ftl {
    /// A unit could not be programmed: its block is bad from now on, and what the map names on it is written elsewhere.
    pub(crate) fn rescue(&self, inner: &mut Inner, now: Time, stream: Stream, sealed: crate::stream::Sealed) {
        let geometry = self.flash.geometry();
        let block = geometry.block_of(sealed.unit);
        inner.stats.program_failures += 1;
        if !self.flash.is_bad(block) {
            self.flash.mark_bad(block);
            inner.stats.bad_blocks += 1;
            inner.journal.begin();
            inner.journal.add(Record::Bad { block });
            inner.journal.commit();
        }
        // What it has copied may name a page that moves now without a transaction of its own.
        inner.checkpoint = None;
        let first = geometry.first_page(sealed.unit).0;
        for page in (first..first + geometry.unit_pages()).map(Ppa) {
            let PageState::Buffered(oob) = self.flash.page(page) else { continue };
            let Some(vid) = Vid::new(oob.vid) else { continue };
            let is_valid = self.map.get(vid, oob.vba) == Some(page.0);
            // Nobody has made room for this: either stream will do.
            let roomy =
                |stream: &Stream| inner.space.free() > 0 || inner.streams[*stream as usize].room(&self.flash, 1) > 0;
            let to = [stream, Stream::Host, Stream::Collect].into_iter().find(roomy);
            let (Some(stream), Some(frame)) = (to, self.flash.take_frame()) else {
                // It stays where it is: readable as long as there is power.
                inner.stats.stranded_pages += 1;
                continue;
            };
            if self.flash.copy(page, frame).is_err() {
                self.flash.give_frame(frame);
                inner.stats.lost_pages += u64::from(is_valid);
                continue;
            }
            self.replant(inner, now, stream, page, &oob, frame, sealed.first, is_valid);
            inner.stats.moved_pages += 1;
        }
    }

    /// Puts a page that could not be programmed elsewhere, as if it had been put there at first: the transactions that
    /// name it are not durable, since its unit never was, and are changed to name the new page. So is a page that was
    /// overwritten meanwhile: were it left out, a power cut between the two writes would lose both the one and what it
    /// replaced.
    #[expect(clippy::too_many_arguments, reason = "a page, where it goes, and since when it is waited for")]
    fn replant(
        &self,
        inner: &mut Inner,
        now: Time,
        stream: Stream,
        from: Ppa,
        oob: &Oob,
        frame: Frame,
        since: Seq,
        is_valid: bool,
    ) {
        if !inner.streams[stream as usize].has_page(&self.flash) {
            self.open_superblock(inner, stream);
        }
        // Holds the journal back until the new unit is on flash.
        let page = inner.streams[stream as usize].take(&self.flash, since, now);
        self.flash.place(page, frame, oob);
        // Not what is older than the unit: a dump's transactions name pages of its own, in the same places, that are still to be written.
        inner.journal.amend(since, |index, value| self.map.moved_word(index, value, from.0, page.0).unwrap_or(value));
        let superblock = self.flash.geometry().superblock_of(page);
        if let Some(vid) = Vid::new(oob.vid).filter(|_| is_valid) {
            let moved = inner.writer.insert(vid, oob.vba, page.0, &mut |_, _| {});
            debug_assert_eq!(moved, Ok(Some(from.0)), "the word changes where it is");
            inner.space.get_mut(superblock).valid += 1;
            self.let_go(inner, from, 0);
        } else {
            // Whatever unmapped it is not durable yet.
            let last = inner.journal.last();
            let entry = inner.space.get_mut(superblock);
            entry.let_go = entry.let_go.max(last);
        }
        self.close_unit(inner, now, stream);
    }
}
