// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening the metadata store: chooses between the copies of each cell, and repairs damage of cuts and
//! faults.

use crate::bytes::{CHUNK, Fields, index, u64_at};
use crate::cell::{Cell, Copies, Kind, Notes};
use crate::durable::Durable;
use crate::error::{DurableError, Refused, read};
use crate::layout::Twin;
use crate::metadata::{
    ENTRY_HEAD, HELD_HEAD, HeldMap, Metadata, TOMBSTONE_BYTES, Tombstone, entry_generation,
};
use crate::metadata_store::{MetadataStore, Places};
use crate::smart_counters::SmartCounters;
use crate::steps::Changes;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::{REQUEST_IDS, VolumeEntry};
use std::collections::BTreeMap;

/// Content of a permission entry's cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntryCell {
    /// The volume.
    pub vid: Vid,
    /// The entry, its bytes checked.
    pub bytes: Vec<u8>,
}

impl EntryCell {
    /// Decodes and checks.
    ///
    /// # Errors
    /// [`Refused`] where this is none.
    pub fn decode(content: &[u8]) -> Result<Self, Refused> {
        let refused = |why: String| Refused::new("an entry of the metadata store", why);
        let mut fields = Fields::new("an entry of the metadata store", content);
        let (vid, zero, generation, rest) = (fields.u16()?, fields.u16()?, fields.u32()?, fields.u64()?);
        if zero != 0 || rest != 0 {
            return Err(refused("reserved bytes are set".into()));
        }
        let bytes = &content[ENTRY_HEAD..];
        let entry = VolumeEntry::decode(bytes).map_err(|error| refused(error.to_string()))?;
        if entry.vid.get() != vid || entry.generation != generation {
            return Err(refused(format!("volume id {vid} or generation {generation} is not its own")));
        }
        Ok(Self { vid: entry.vid, bytes: bytes.to_vec() })
    }
}

impl Tombstone {
    /// Decodes and checks.
    ///
    /// # Errors
    /// [`Refused`] where this is no tombstone.
    pub fn decode(content: &[u8]) -> Result<(Vid, Self), Refused> {
        let refused = |why: String| Refused::new("a tombstone", why);
        let mut fields = Fields::new("a tombstone", content);
        if content.len() != TOMBSTONE_BYTES {
            return Err(refused(format!("{} bytes", content.len())));
        }
        let (raw, count) = (fields.u16()?, usize::from(fields.u16()?));
        let vid = Vid::new(raw).ok_or_else(|| refused(format!("volume id {raw}")))?;
        if count > REQUEST_IDS {
            return Err(refused(format!("{count} request ids")));
        }
        let (generation, buried_at) = (fields.u32()?, fields.u64()?);
        let (term, version) = (fields.u64()?, fields.u64()?);
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            ids.push((fields.take()?, fields.u64()?));
        }
        if fields.bytes(fields.left())?.iter().any(|&byte| byte != 0) {
            return Err(refused("reserved bytes are set".into()));
        }
        Ok((vid, Self { generation, term, version, ids, buried_at }))
    }
}

/// Calls `f` with the cell of each of the first `count` places of a table, `None` where it is lost. Returns
/// the highest version.
fn for_each(
    durable: &Durable,
    (twin, count): (&Twin, u32),
    kind: Kind,
    notes: &mut Notes,
    mut f: impl FnMut(u32, Option<Cell<'_>>, &mut Notes),
) -> Result<u64, DurableError> {
    let at_once = (CHUNK as u64 / twin.pitch).clamp(1, twin.count.into());
    let mut buffers = [0, 1].map(|_| vec![0; index(at_once * twin.pitch)]);
    let mut version = 0;
    for first in (0..u64::from(count)).step_by(index(at_once)) {
        let bytes = index(at_once.min(u64::from(count) - first) * twin.pitch);
        for (buffer, base) in buffers.iter_mut().zip(twin.copies) {
            read(
                durable.store(),
                base + first * twin.pitch,
                &mut buffer[..bytes],
                "reading the metadata store",
            )?;
        }
        let [a, b] = &buffers;
        let pitch = index(twin.pitch);
        for (nth, (a, b)) in a[..bytes].chunks_exact(pitch).zip(b[..bytes].chunks_exact(pitch)).enumerate() {
            let place = u32::try_from(first + nth as u64).expect("below the count");
            let read = Copies { kind, place, tag: Some(durable.tag()), bytes: [a, b] };
            let cell = twin.reconcile(durable.store(), read, notes)?;
            version = cell.map_or(version, |cell| version.max(cell.version));
            f(place, cell, notes);
        }
    }
    Ok(version)
}

impl MetadataStore {
    /// An empty metadata store without any cell of a place.
    fn fresh(durable: &Durable) -> Self {
        Self {
            durable: durable.clone(),
            contents: Metadata::default(),
            entries: Places::default(),
            tombstones: Places::default(),
            version: 0,
            damaged: Vec::new(),
            lost: Vec::new(),
            counting: None,
            changes: Changes::default(),
        }
    }

    /// Writes an empty metadata store to the store.
    pub(crate) fn format(durable: &Durable) -> Result<Self, DurableError> {
        let mut metadata = Self::fresh(durable);
        metadata.set_term(0)?;
        metadata.write(Kind::Map, 0, &[])?;
        if metadata.can_hold() {
            metadata.write(Kind::Held, 0, &[])?;
        }
        metadata.set_smart_counters(&SmartCounters::default())?;
        Ok(metadata)
    }

    /// Reads the metadata store, repairs single bad copies, and finishes burials that were cut short.
    pub(crate) fn open(durable: &Durable, mut notes: Notes) -> Result<Self, DurableError> {
        let mut metadata = Self::fresh(durable);
        let of_singles = metadata.read_singles(&mut notes)?;
        // Tombstones come before entries: they decide which entries are dead.
        let of_tombstones = metadata.read_tombstones(&mut notes)?;
        let (of_entries, dead) = metadata.read_entries(&mut notes)?;
        metadata.version = of_singles.max(of_tombstones).max(of_entries);
        for place in dead {
            metadata.write(Kind::Entry, place, &[])?;
            metadata.entries.free.push(place);
        }
        metadata.damaged = notes.refused;
        metadata.lost = notes.lost;
        Ok(metadata)
    }

    /// Reads term, fleet map and SMART counters. Returns the highest version.
    fn read_singles(&mut self, notes: &mut Notes) -> Result<u64, DurableError> {
        let (durable, contents) = (&self.durable, &mut self.contents);
        let layout = durable.layout();
        let of_term = for_each(durable, (&layout.term, 1), Kind::Term, notes, |_, cell, notes| {
            let Some(cell) = cell else { return };
            if let Err(refused) = contents.take_term_cell(cell.content) {
                notes.refuse(Kind::Term, refused);
            }
        })?;
        let of_map = for_each(durable, (&layout.map, 1), Kind::Map, notes, |_, cell, _| {
            contents.map = cell.filter(|cell| !cell.content.is_empty()).map(|cell| cell.content.to_vec());
        })?;
        let mut of_held = 0;
        if let Some(held) = &layout.held {
            of_held = for_each(durable, (held, 1), Kind::Held, notes, |_, cell, notes| {
                let Some(cell) = cell.filter(|cell| !cell.content.is_empty()) else { return };
                match cell.content.split_at_checked(HELD_HEAD) {
                    Some((term, map)) => {
                        contents.held = Some(HeldMap { term: u64_at(term, 0), map: map.to_vec() });
                    }
                    None => notes.refuse(Kind::Held, "it is too short"),
                }
            })?;
        }
        let place = (&layout.smart_counters, 1);
        let of_counters = for_each(durable, place, Kind::SmartCounters, notes, |_, cell, notes| {
            let Some(cell) = cell else { return };
            match SmartCounters::decode(cell.content) {
                Ok(smart_counters) => contents.smart_counters = smart_counters,
                Err(refused) => notes.refuse(Kind::SmartCounters, refused),
            }
        })?;
        Ok(of_term.max(of_map).max(of_held).max(of_counters))
    }

    /// Reads the tombstones. Returns the highest version.
    fn read_tombstones(&mut self, notes: &mut Notes) -> Result<u64, DurableError> {
        let Self { durable, contents, tombstones, .. } = self;
        let places = (&durable.layout().tombstones, durable.header().tombstones);
        let version = for_each(durable, places, Kind::Tombstone, notes, |place, cell, notes| {
            let Some(cell) = cell.filter(|cell| !cell.content.is_empty()) else {
                return tombstones.free.push(place);
            };
            match Tombstone::decode(cell.content) {
                Ok((vid, tombstone)) => {
                    tombstones.of.insert(vid, place);
                    contents.tombstones.insert(vid, tombstone);
                }
                Err(refused) => notes.refuse(Kind::Tombstone, refused),
            }
        })?;
        tombstones.free.reverse();
        Ok(version)
    }

    /// Reads the permission entries. Returns the highest version, and the places of entries that do not
    /// count.
    fn read_entries(&mut self, notes: &mut Notes) -> Result<(u64, Vec<u32>), DurableError> {
        let Self { durable, contents, entries, .. } = self;
        let (mut versions, mut dead) = (BTreeMap::new(), Vec::new());
        let places = (&durable.layout().entries, durable.header().entries);
        let version = for_each(durable, places, Kind::Entry, notes, |place, cell, notes| {
            let Some(cell) = cell.filter(|cell| !cell.content.is_empty()) else {
                return entries.free.push(place);
            };
            let EntryCell { vid, bytes } = match EntryCell::decode(cell.content) {
                Ok(entry) => entry,
                Err(refused) => {
                    notes.refuse(Kind::Entry, refused);
                    return entries.free.push(place);
                }
            };
            let buried =
                contents.tombstones.get(&vid).is_some_and(|t| t.generation >= entry_generation(&bytes));
            // Two places belong to one volume. A burial did not clear the first, and the volume id has a new
            // entry in the other.
            let older = versions.get(&vid).is_some_and(|&other| other > cell.version);
            if buried || older {
                dead.push(place);
            } else {
                versions.insert(vid, cell.version);
                contents.entries.insert(vid, bytes);
                if let Some(other) = entries.of.insert(vid, place) {
                    dead.push(other);
                }
            }
        })?;
        entries.free.reverse();
        Ok((version, dead))
    }
}

impl Notes {
    /// Refuses a cell whose checksum is correct and whose content is not valid. Nothing can repair it.
    fn refuse(&mut self, kind: Kind, why: impl std::fmt::Display) {
        self.refused.push(format!("{kind:?}: {why}"));
        self.lost.push(kind);
    }
}
