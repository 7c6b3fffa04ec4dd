// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metadata store itself: its contents, and the places of its cells. [`crate::metadata`] has the layout.

use crate::cell::{Cell, CellWrite, Kind};
use crate::durable::Durable;
use crate::error::{DurableError, Patience};
use crate::layout::Twin;
use crate::metadata::Metadata;
use crate::steps::Changes;
use gnstor_proto::slba::Vid;
use std::collections::BTreeMap;

/// The metadata store of an SSD. A call whose name does not begin with `start` returns when its change is
/// durable in both copies. Changes that were started end in order ([`MetadataStore::poll`]).
///
/// After an error the next open may or may not find the change. The contents in memory do not have it.
#[derive(Debug)]
pub struct MetadataStore {
    pub(crate) durable: Durable,
    pub(crate) contents: Metadata,
    pub(crate) entries: Places,
    pub(crate) tombstones: Places,
    /// Version of the last cell written.
    pub(crate) version: u64,
    pub(crate) damaged: Vec<String>,
    pub(crate) lost: Vec<Kind>,
    /// SMART counters on their way to the store.
    pub(crate) counting: Option<CellWrite>,
    /// Other changes in progress.
    pub(crate) changes: Changes,
}

/// Assigns the places of a table to volumes.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) of: BTreeMap<Vid, u32>,
    pub(crate) free: Vec<u32>,
}

impl Places {
    /// The volume's place, or a free one.
    pub(crate) fn find(&self, vid: Vid) -> Option<u32> {
        self.of.get(&vid).or(self.free.last()).copied()
    }

    pub(crate) fn take(&mut self, vid: Vid, place: u32) {
        if self.of.insert(vid, place).is_none() {
            self.free.pop();
        }
    }
}

impl MetadataStore {
    /// Whether there is room for this volume's entry and, once the volume ends, for its tombstone.
    pub fn has_room(&self, vid: Vid) -> bool {
        let Metadata { entries, tombstones, .. } = &self.contents;
        let layout = self.durable.layout();
        let beside = entries.keys().filter(|other| **other != vid && !tombstones.contains_key(other)).count();
        let own = usize::from(!tombstones.contains_key(&vid));
        let is_there = entries.contains_key(&vid);
        (is_there || entries.len() < layout.entries.count as usize)
            && tombstones.len() + beside + own <= layout.tombstones.count as usize
    }

    /// Contents of the metadata store.
    pub fn contents(&self) -> &Metadata {
        &self.contents
    }

    /// Copies of the metadata store or the header that were refused at open, with reasons. A single bad copy
    /// was repaired. A write that a power cut interrupts leaves one, too.
    pub fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// Kinds of the places of which no copy was whole: durable records are lost.
    pub fn lost(&self) -> &[Kind] {
        &self.lost
    }

    pub(crate) fn write(&mut self, kind: Kind, place: u32, content: &[u8]) -> Result<(), DurableError> {
        let mut write = self.start_cell(kind, place, content)?;
        while write.advance(self.durable.store(), Patience::Blocks)?.is_pending() {}
        Ok(())
    }

    /// Starts the write of a cell's first copy.
    pub(crate) fn start_cell(
        &mut self,
        kind: Kind,
        place: u32,
        content: &[u8],
    ) -> Result<CellWrite, DurableError> {
        let twin = *self.twin(kind);
        // Also after a failed write: two copies of a cell never have the same version and different contents.
        self.version += 1;
        let cell = Cell { tag: self.durable.tag(), version: self.version, content };
        CellWrite::start(twin, self.durable.store(), kind, place, &cell)
    }

    pub(crate) fn table(&mut self, kind: Kind) -> &mut Places {
        if kind == Kind::Tombstone { &mut self.tombstones } else { &mut self.entries }
    }

    /// Whether it has room for a map that is held: a store of an earlier version has none.
    pub fn can_hold(&self) -> bool {
        self.durable.layout().held.is_some()
    }

    pub(crate) fn twin(&self, kind: Kind) -> &Twin {
        let layout = self.durable.layout();
        match kind {
            Kind::Held => layout.held.as_ref().expect("`begin` has looked for the room"),
            Kind::Header => unreachable!("the header is written by Durable"),
            Kind::Term => &layout.term,
            Kind::Map => &layout.map,
            Kind::Entry => &layout.entries,
            Kind::Tombstone => &layout.tombstones,
            Kind::SmartCounters => &layout.smart_counters,
        }
    }
}
