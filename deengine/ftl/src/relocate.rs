// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failed programs: the block is retired, and the pages of the unit are written elsewhere.

use crate::layer::{Ftl, Inner};
use crate::space::Stream;
use crate::stream::Sealed;
use gnstor_base::time::Time;
use gnstor_durable::{Record, Seq};
use gnstor_flash::{Block, Frame, Oob, PageState, Ppa};
use gnstor_proto::slba::Vid;

/// A buffered page whose program failed.
struct Failed<'a> {
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
    /// Retires the block of a unit whose program failed, and writes the unit's pages elsewhere.
    pub(crate) fn relocate(&self, inner: &mut Inner, now: Time, stream: Stream, sealed: Sealed) {
        let geometry = self.flash.geometry();
        inner.stats.program_failures += 1;
        self.retire(inner, geometry.block_of(sealed.unit));
        // The checkpoint's copy may name a page that moves now without a transaction of its own.
        inner.checkpoints.abandon();
        let first = geometry.first_page(sealed.unit).0;
        for page in (first..first + geometry.unit_pages()).map(Ppa) {
            let PageState::Buffered(oob) = self.flash.page(page) else { continue };
            let Some(vid) = Vid::new(oob.vid) else { continue };
            let is_valid = self.map.get(vid, oob.vba) == Some(page.0);
            // No room was reserved for this page, so it goes to either stream.
            let has_room = |stream: &Stream| {
                inner.space.free() > 0 || inner.streams[*stream as usize].room(&self.flash, 1) > 0
            };
            let to = [stream, Stream::Host, Stream::Collect].into_iter().find(has_room);
            let (Some(stream), Some(frame)) = (to, self.flash.take_frame()) else {
                // The page stays where it is, and is readable until the power fails.
                inner.stats.stranded_pages += 1;
                continue;
            };
            if self.flash.copy(page, frame).is_err() {
                self.flash.give_frame(frame);
                inner.stats.lost_pages += u64::from(is_valid);
                continue;
            }
            let failed = Failed { page, oob: &oob, frame, since: sealed.first, is_valid };
            self.replace_page(inner, now, stream, &failed);
            inner.stats.moved_pages += 1;
        }
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
    fn replace_page(&self, inner: &mut Inner, now: Time, stream: Stream, failed: &Failed<'_>) {
        let &Failed { page: from, oob, frame, since, is_valid } = failed;
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
