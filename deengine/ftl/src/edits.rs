// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the map: each word that the map's writer stores is journaled, and running sweeps see it.

use crate::sweep::state::Sweeps;
use gnstor_durable::{Journal, Record};
use gnstor_map::{MapWriter, Probe};
use gnstor_proto::slba::Vid;

/// The map's writer, and the sweeps that must see each word that it stores.
#[derive(Debug)]
pub(crate) struct Edits {
    writer: MapWriter,
    pub(crate) sweeps: Sweeps,
}

impl Edits {
    pub(crate) fn new(writer: MapWriter) -> Self {
        Self { writer, sweeps: Sweeps::default() }
    }

    /// Maps the block of a probe to a page, in the journal's transaction in hand. Returns the page before.
    #[inline]
    pub(crate) fn insert_at(&mut self, journal: &mut Journal, probe: &Probe, page: u32) -> Option<u32> {
        let Self { writer, sweeps } = self;
        let old = writer.insert_at(probe, page, &mut |index, value| {
            journal.add(Record::Word { index, value });
            sweeps.note(index, value);
        });
        old.expect("the map is sized for every logical page, and no commit takes more")
    }

    /// Unmaps the block of a probe, in the journal's transaction in hand. Returns the page before.
    #[inline]
    pub(crate) fn remove_at(&mut self, journal: &mut Journal, probe: &Probe) -> Option<u32> {
        let Self { writer, sweeps } = self;
        writer.remove_at(probe, &mut |index, value| {
            journal.add(Record::Word { index, value });
            sweeps.note(index, value);
        })
    }

    /// As [`Self::remove_at`], of a block that was not probed.
    pub(crate) fn remove(&mut self, journal: &mut Journal, vid: Vid, vba: u32) -> Option<u32> {
        let Self { writer, sweeps } = self;
        writer.remove(vid, vba, &mut |index, value| {
            journal.add(Record::Word { index, value });
            sweeps.note(index, value);
        })
    }

    /// Maps a mapped block to another page, without a transaction: its word changes where it is. Returns the
    /// page before; `None` where the block is not mapped, or cannot be.
    pub(crate) fn move_in_place(&mut self, vid: Vid, vba: u32, page: u32) -> Option<u32> {
        self.writer.insert(vid, vba, page, &mut |_, _| {}).ok().flatten()
    }
}
