// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a scrub finds wrong copies: they do not match their own sum, or differ from the first's copy.

use super::TURN;
use crate::commands::cold::{Data, Stored};
use crate::controller::Ssd;
use crate::permission::fleet::Place;
use crate::repair::apply::{held, theirs};
use crate::repair::state::{Name, Range, Work, Wrong};
use gnstor_base::time::Time;
use gnstor_flash::Ppa;
use gnstor_fleet::repair::{Held, scrubs_beside_writers};
use gnstor_ftl::Extent;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::pull::Row;
use std::collections::BTreeMap;

/// Most of its own copies that the SSD reads in one step.
const AT_ONCE: usize = 32;

impl Ssd {
    /// Reads the next copies of this SSD. From the first one that is on the medium only, they begin to load
    /// and are looked at anew when they are there.
    pub(super) fn look_at_own(&mut self, now: Time, range: &mut Range) {
        let end = range.first + range.blocks;
        let (mut cold, mut pages, mut read) = (std::mem::take(&mut self.repair.cold.0), Vec::new(), 0);
        let mut vba = range.at;
        while vba < end && pages.len() < AT_ONCE {
            // What comes behind a page that is loaded is only loaded, too.
            let is_seen = read == pages.len();
            if self.serves_block(range, vba) {
                match self.ftl().extent(range.vid, range.generation, vba) {
                    Extent::Page(page, sum) => {
                        let stamp = self.ftl().flash().oob(page).map(|oob| oob.stamp).unwrap_or_default();
                        let is_sound = self.ftl().flash().is_sound(page);
                        pages.push(page);
                        match self.stored(page, &mut cold) {
                            Stored::Here(data) if is_seen => {
                                read += 1;
                                if !is_sound {
                                    self.note_wrong_record(range, vba);
                                } else if data.is_none_or(|bytes| block_sum(&bytes[..]) != sum) {
                                    self.note_wrong(range, vba, (Held::Block { stamp, sum }, false));
                                }
                            }
                            Stored::Here(_) | Stored::Loading => {}
                        }
                    }
                    Extent::WrongKey if is_seen => self.note_wrong_record(range, vba),
                    Extent::WrongKey | Extent::Unmapped | Extent::StaleGeneration => {}
                }
            }
            vba += 1;
            if read == pages.len() {
                range.at = vba;
            }
        }
        self.let_go_cold(&mut cold, &pages[read..]);
        let started = cold.take_started();
        self.repair.cold = (cold, u32::try_from(started.len()).expect("a step's pages"));
        self.await_for_scrub(started);
        if read > 0 {
            let done = self.ftl().read_time(now, &pages[..read], 0).max(now + TURN);
            self.repair.scrub.due = done.max(self.turn(now, Work::Read, read));
        }
    }

    /// A page has been loaded for the scrub, or the medium does not give it.
    pub(crate) fn scrub_landed(&mut self, now: Time, page: Ppa, data: Data) {
        self.repair.cold.1 -= 1;
        // The scrub may have ended, or begun its range anew.
        if self.repair.scrub.range.is_none() || self.repair.cold.0.land(page, data) {
            self.ftl().unpin(page);
        }
        self.wake_at(now);
    }

    /// Whether pages are being loaded for the scrub.
    pub(super) fn awaits_pages(&self) -> bool {
        self.repair.cold.1 > 0
    }

    /// The scrub leaves its range.
    pub(super) fn let_go_range(&mut self) {
        let mut cold = std::mem::take(&mut self.repair.cold.0);
        self.let_go_cold(&mut cold, &[]);
    }

    /// Notes that the record beside the block's page is wrong. Then any good copy counts as newer.
    fn note_wrong_record(&self, range: &mut Range, vba: u32) {
        let own = held(self.ftl().commits().kept(range.vid, range.generation, vba));
        self.note_wrong(range, vba, (own, false));
    }

    fn serves_block(&self, range: &Range, vba: u32) -> bool {
        self.scrubbed(range.vid)
            .zip(self.table.fleet())
            .is_some_and(|(entry, fleet)| matches!(fleet.place(entry, vba), Place::Serving { .. }))
    }

    /// Whether no write to the volume can be under way.
    pub(super) fn is_at_rest(&self, range: &Range) -> bool {
        self.scrubbed(range.vid).is_some_and(|entry| entry.writer.is_none() && !entry.unsettled)
    }

    fn note_wrong(&self, range: &mut Range, vba: u32, own: (Held, bool)) {
        let peers = self.scrubbed(range.vid).zip(self.table.fleet());
        let peers = peers.map(|(entry, fleet)| fleet.serving_peers(entry, vba)).unwrap_or_default();
        range.rotten += 1;
        range.wrong.push_back(Wrong { vba, own, peers: peers.into(), tries: 0 });
    }

    /// Takes the rows of a group's first. `None`: the data is no answer to the question.
    pub(super) fn compare_scrubbed(
        &mut self,
        range: &mut Range,
        peer: u16,
        rows: u32,
        data: &[u8],
    ) -> Option<()> {
        let rows = Row::decode_all(data, usize::try_from(rows).ok()?)?;
        let rows: BTreeMap<u32, Row> = rows.into_iter().map(|row| (row.block, row)).collect();
        range.firsts.retain(|first| *first != peer);
        let is_at_rest = self.is_at_rest(range);
        let blocks: Vec<u32> = (range.first..range.first + range.blocks).collect();
        for part in blocks.chunks(64) {
            let meant: Vec<u32> =
                part.iter().copied().filter(|vba| self.source_in(range, *vba) == Some(peer)).collect();
            let mut found = Vec::new();
            let commits = self.ftl().commits();
            for vba in meant {
                let theirs = theirs(rows.get(&vba));
                let own = held(commits.kept(range.vid, range.generation, vba));
                if own.reads_as(theirs) || range.wrong.iter().any(|wrong| wrong.vba == vba) {
                    continue;
                }
                if scrubs_beside_writers((own, true), (theirs, true), true, is_at_rest) {
                    found.push((vba, own));
                } else {
                    range.differ += u64::from(is_at_rest);
                }
            }
            drop(commits);
            found.into_iter().for_each(|(vba, own)| self.note_wrong(range, vba, (own, true)));
        }
        Some(())
    }

    fn source_in(&self, range: &Range, vba: u32) -> Option<u16> {
        self.source_of(Name::Scrub, self.scrubbed(range.vid)?, vba)
    }
}
