// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Erases: superblocks without a valid page are erased when that is safe.
//!
//! An emptied superblock may be erased when
//! * every transaction that released one of its pages is durable,
//! * no unit of it is still being programmed,
//! * no reader has pinned one of its pages.

pub(crate) mod state;

use crate::layer::{Ftl, Inner};
use crate::space::State;
use gnstor_base::time::Time;
use gnstor_durable::{Record, Seq};
use gnstor_flash::{Block, NotErased, Superblock, Unit};
use state::Erasing;

/// Pages of emptied superblocks that may wait although nothing prevents their erase: 8 GiB.
const MOST_KEPT: u64 = 1 << 21;

impl Ftl {
    /// Blocks that may be erased now. None while hosts write and there is room, because an erase delays reads
    /// and programs of its die. An emptied superblock keeps its memory until its erase, so their number is
    /// bounded.
    pub(crate) fn erases_at_once(&self, inner: &Inner, now: Time) -> u32 {
        let kept = u64::from(inner.erasures.count()) * u64::from(self.flash.geometry().superblock_pages());
        u32::from(
            inner.space.free() <= self.low + 1 || now >= inner.collector.idle_from() || kept > MOST_KEPT,
        )
    }

    /// Whether an emptied superblock waits only for programs that have been started.
    pub(crate) fn awaits_programs(&self, inner: &Inner) -> bool {
        let filling = inner.streams.iter().filter_map(|s| s.filling_since()).min();
        inner.erasures.iter().any(|superblock| {
            let released = inner.space.get(superblock).released;
            filling.is_none_or(|since| released < since) && !self.is_pinned(superblock)
        })
    }

    /// The newest transaction that an erase waits for.
    pub(crate) fn awaited_by_erases(&self, inner: &Inner) -> Option<Seq> {
        inner.erasures.iter().map(|superblock| inner.space.get(superblock).released).max()
    }

    /// Notes that a superblock may have lost its last valid page.
    pub(crate) fn note_emptied(&self, inner: &mut Inner, superblock: Superblock) {
        let entry = inner.space.get(superblock);
        if entry.state == State::Closed && entry.valid == 0 {
            inner.collector.drop_victim(superblock);
            inner.erasures.add(superblock);
        }
    }

    /// Erases up to `most` blocks of superblocks that may be erased, one superblock after the other.
    pub(crate) fn erase_emptied(&self, inner: &mut Inner, now: Time, most: u32) {
        let mut left = most;
        inner.erasures.awaits_reader = false;
        while left > 0 {
            let before = left;
            let mut emptied = std::mem::take(&mut inner.erasures.emptied);
            emptied.retain(|&superblock| !self.is_erased(inner, now, superblock, &mut left));
            debug_assert!(inner.erasures.emptied.is_empty(), "an erase empties no superblock");
            inner.erasures.emptied = emptied;
            // Another round, because this one skipped the superblocks before the one whose erase had begun.
            if left == before {
                break;
            }
        }
        let is_put_off = left == 0 || inner.erasures.awaits_reader;
        inner.erasures.has_more = is_put_off && !inner.erasures.emptied.is_empty();
    }

    /// Continues the erase of a superblock, or begins it where none runs. Returns whether the superblock is
    /// erased.
    fn is_erased(&self, inner: &mut Inner, now: Time, superblock: Superblock, left: &mut u32) -> bool {
        let mut erasing = match inner.erasures.running.take() {
            Some(erasing) if erasing.superblock == superblock => erasing,
            None if self.may_be_erased(inner, superblock) => {
                Erasing { superblock, done: 0, bad: Vec::new(), erased_at: now }
            }
            other => {
                inner.erasures.running = other;
                return false;
            }
        };
        let is_over = self.erase_some(&mut erasing, inner, now, left);
        if is_over {
            self.end_erase(inner, erasing);
        } else {
            inner.erasures.running = Some(erasing);
        }
        is_over
    }

    fn may_be_erased(&self, inner: &Inner, superblock: Superblock) -> bool {
        let entry = inner.space.get(superblock);
        entry.unprogrammed == 0 && entry.released <= inner.journal.durable() && !self.is_pinned(superblock)
    }

    /// Erases at most `left` good blocks. Returns false if some remain. The map does not name their pages, so
    /// only a reader that looked one up before can pin it, and not for long.
    fn erase_some(&self, erasing: &mut Erasing, inner: &mut Inner, now: Time, left: &mut u32) -> bool {
        for block in self.blocks_of(erasing.superblock).skip(erasing.done) {
            if !self.flash.is_bad(block) {
                if *left == 0 {
                    return false;
                }
                match self.flash.erase(block) {
                    Err(NotErased::Pinned(_)) => {
                        inner.erasures.awaits_reader = true;
                        return false;
                    }
                    Err(NotErased::Failed(_)) => {
                        self.flash.mark_bad(block);
                        inner.stats.bad_blocks += 1;
                        erasing.bad.push(block);
                    }
                    Ok(()) => {}
                }
                *left -= 1;
                if let Some(mut timing) = self.timing() {
                    erasing.erased_at = erasing.erased_at.max(timing.erase(now, block));
                }
            }
            erasing.done += 1;
        }
        true
    }

    fn end_erase(&self, inner: &mut Inner, erasing: Erasing) {
        let Erasing { superblock, bad, erased_at, .. } = erasing;
        let erases = inner.space.get(superblock).erases + 1;
        inner.journal.begin();
        bad.into_iter().for_each(|block| inner.journal.add(Record::Bad { block }));
        inner.journal.add(Record::Erased { superblock, erases });
        inner.journal.commit();
        inner.stats.erases += 1;
        inner.space.freed(superblock, erases, self.good_pages(superblock));
        inner.space.get_mut(superblock).erased_at = erased_at;
    }

    fn blocks_of(&self, superblock: Superblock) -> impl Iterator<Item = Block> + '_ {
        let geometry = self.flash.geometry();
        let first = geometry.first_unit(superblock).0;
        (first..first + geometry.dies()).map(|unit| geometry.block_of(Unit(unit)))
    }

    fn is_pinned(&self, superblock: Superblock) -> bool {
        self.blocks_of(superblock).any(|block| self.flash.is_pinned(block))
    }

    /// Pages of a superblock on good blocks.
    fn good_pages(&self, superblock: Superblock) -> u32 {
        let good = self.blocks_of(superblock).filter(|block| !self.flash.is_bad(*block)).count();
        let geometry = self.flash.geometry();
        u32::try_from(good).expect("dies") * geometry.rows() * geometry.unit_pages()
    }
}
