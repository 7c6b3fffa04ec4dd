// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failed programs: the block is retired, and the pages of the unit are written elsewhere.

use crate::layer::{Ftl, Inner};
use crate::space::Stream;
use crate::stream::{Failed, Sealed, Writing};
use crate::units::STREAMS;
use gnstor_base::time::Time;
use gnstor_durable::{Record, Seq};
use gnstor_flash::{Block, Frame, Oob, PageState, Ppa};
use gnstor_proto::slba::Vid;

/// A buffered page whose program failed.
struct FailedPage<'a> {
    page: Ppa,
    oob: &'a Oob,
    /// A copy of its data.
    frame: Frame,
    /// First transaction of its unit.
    since: Seq,
    /// The map names this page.
    is_valid: bool,
}

impl Ftl {
    /// Retires the block of a unit whose program failed. The unit's pages are still in the buffer. They must
    /// be written elsewhere.
    pub(crate) fn program_failed(&self, inner: &mut Inner, stream: Stream, sealed: Sealed) {
        inner.stats.program_failures += 1;
        self.retire(inner, self.flash.geometry().block_of(sealed.unit));
        inner.streams[stream as usize].fail(sealed);
    }

    /// Writes the pages of failed units elsewhere, as far as there are frames and room for them. Other pages
    /// stay where they are: they can be read, a dump has them, and nothing that names them is durable.
    pub(crate) fn relocate(&self, inner: &mut Inner, now: Time) {
        for stream in STREAMS {
            while let Some(failed) = inner.streams[stream as usize].failed().copied() {
                let next = self.relocate_from(inner, now, stream, failed);
                let left = self.flash.geometry().unit_pages() - next;
                if left > 0 {
                    let Some(failed) = inner.streams[stream as usize].failed() else { break };
                    failed.next = next;
                    if !std::mem::replace(&mut failed.is_stranded, true) {
                        inner.stats.stranded_pages += u64::from(left);
                    }
                    break;
                }
                inner.streams[stream as usize].pop_failed();
                self.unit_is_done(inner, failed.sealed.unit);
            }
        }
        inner.flushing.note_stranded(now, inner.streams.iter().any(Writing::has_failed));
    }

    /// Returns the first page, as a slot of the unit, that has found no other place.
    fn relocate_from(&self, inner: &mut Inner, now: Time, stream: Stream, failed: Failed) -> u32 {
        let Failed { sealed, next, .. } = failed;
        let geometry = self.flash.geometry();
        let first = geometry.first_page(sealed.unit).0;
        for slot in next..geometry.unit_pages() {
            let page = Ppa(first + slot);
            let PageState::Buffered(oob) = self.flash.page(page) else { continue };
            let Some(vid) = Vid::new(oob.vid) else { continue };
            let is_valid = self.map.get(vid, oob.vba) == Some(page.0);
            // No room was reserved for this page, so it goes to either stream.
            let has_room = |stream: &Stream| {
                inner.space.free() > 0 || inner.streams[*stream as usize].room(&self.flash, 1) > 0
            };
            let Some(stream) = [stream, Stream::Host, Stream::Collect].into_iter().find(has_room) else {
                return slot;
            };
            let Some(frame) = self.flash.take_frame() else { return slot };
            if self.flash.copy(page, frame).is_err() {
                self.flash.give_frame(frame);
                inner.stats.lost_pages += u64::from(is_valid);
                continue;
            }
            // The checkpoint's copy may name a page that moves now without a transaction of its own.
            inner.checkpoints.abandon();
            let failed = FailedPage { page, oob: &oob, frame, since: sealed.first, is_valid };
            self.replace_page(inner, now, stream, &failed);
            inner.stats.moved_pages += 1;
        }
        geometry.unit_pages()
    }

    fn retire(&self, inner: &mut Inner, block: Block) {
        if !self.flash.is_bad(block) {
            self.flash.mark_bad(block);
            inner.stats.bad_blocks += 1;
            inner.journal.begin();
            inner.journal.add(Record::Bad { block });
            inner.journal.commit();
        }
    }

    /// Places a page as if it had never been anywhere else. The transactions that name it are not durable,
    /// since its unit never was, and are changed to name the new page.
    ///
    /// A page that was overwritten meanwhile is placed too. Without it, a power cut between the two writes
    /// would lose both the first write and the data that it replaced.
    fn replace_page(&self, inner: &mut Inner, now: Time, stream: Stream, failed: &FailedPage<'_>) {
        let &FailedPage { page: from, oob, frame, since, is_valid } = failed;
        if !inner.streams[stream as usize].has_page(&self.flash) {
            self.open_superblock(inner, stream);
        }
        // `since` holds the journal back until the new unit is on flash.
        let page = inner.streams[stream as usize].take(&self.flash, since, now);
        self.flash.place(page, frame, oob);
        // Transactions before `since` do not change. A dump's transactions use the same page numbers for its
        // own pages, which are not written yet.
        inner
            .journal
            .amend(since, |index, value| self.map.moved_word(index, value, from.0, page.0).unwrap_or(value));
        let superblock = self.flash.geometry().superblock_of(page);
        if let Some(vid) = Vid::new(oob.vid).filter(|_| is_valid) {
            let moved = inner.edits.move_in_place(vid, oob.vba, page.0);
            debug_assert_eq!(moved, Some(from.0), "the word changes where it is");
            inner.space.get_mut(superblock).valid += 1;
            self.release_page(inner, from, 0);
        } else {
            // The transaction that unmapped it is not durable yet.
            let last = inner.journal.last();
            let entry = inner.space.get_mut(superblock);
            entry.released = entry.released.max(last);
        }
        self.close_unit(inner, now, stream);
    }
}
