// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening the ledger: deciding between the copies of each cell, and repairing what a cut or a fault left behind.

use crate::bytes::{CHUNK, Fields, index, u64_at};
use crate::cell::{Cell, Kind, Notes};
use crate::durable::Durable;
use crate::error::{DurableError, Refused, read};
use crate::layout::Twin;
use crate::ledger::{
    ENTRY_HEAD, KIND_ENTRY, KIND_FREE, Ledger, LedgerContents, Places, TERM_BYTES, TOMBSTONE_BYTES, Tombstone,
    entry_generation,
};
use crate::odometer::Odometer;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::{REQUEST_IDS, VolumeEntry};

/// What a permission entry's cell holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EntryCell {
    /// An entry, its bytes checked.
    Entry {
        /// The volume.
        vid: Vid,
        /// The entry.
        bytes: Vec<u8>,
    },
    /// The place is free.
    Free,
}

impl EntryCell {
    /// Decodes and checks.
    ///
    /// # Errors
    /// [`Refused`] where this is neither.
    pub fn decode(content: &[u8]) -> Result<Self, Refused> {
        let refused = |why: String| Refused::new("an entry of the ledger", why);
        let mut fields = Fields::new("an entry of the ledger", content);
        let (vid, kind, generation, zero) = (fields.u16()?, fields.u16()?, fields.u32()?, fields.u64()?);
        if zero != 0 {
            return Err(refused("reserved bytes are set".into()));
        }
        match kind {
            KIND_FREE => {
                fields.end()?;
                Ok(Self::Free)
            }
            KIND_ENTRY => {
                let bytes = &content[ENTRY_HEAD..];
                let entry = VolumeEntry::decode(bytes).map_err(|error| refused(error.to_string()))?;
                if entry.vid.get() != vid || entry.generation != generation {
                    return Err(refused(format!("volume id {vid} or generation {generation} is not its own")));
                }
                Ok(Self::Entry { vid: entry.vid, bytes: bytes.to_vec() })
            }
            other => Err(refused(format!("kind {other}"))),
        }
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

/// Calls `f` with the settled cell of each place of a table.
fn for_each(
    durable: &Durable,
    twin: &Twin,
    kind: Kind,
    notes: &mut Notes,
    mut f: impl FnMut(u32, Option<Cell<'_>>, &mut Notes),
) -> Result<(), DurableError> {
    let at_once = (CHUNK as u64 / twin.pitch).clamp(1, twin.count.into());
    let mut buffers = [0, 1].map(|_| vec![0; index(at_once * twin.pitch)]);
    for first in (0..u64::from(twin.count)).step_by(index(at_once)) {
        let bytes = index(at_once.min(u64::from(twin.count) - first) * twin.pitch);
        for (buffer, base) in buffers.iter_mut().zip(twin.copies) {
            read(durable.store(), base + first * twin.pitch, &mut buffer[..bytes], "reading the ledger")?;
        }
        let [a, b] = &buffers;
        let pitch = index(twin.pitch);
        for (nth, (a, b)) in a[..bytes].chunks_exact(pitch).zip(b[..bytes].chunks_exact(pitch)).enumerate() {
            let place = u32::try_from(first + nth as u64).expect("below the count");
            let cell = twin.settle(durable.store(), kind, place, Some(durable.tag()), [a, b], notes)?;
            f(place, cell, notes);
        }
    }
    Ok(())
}

impl Ledger {
    /// An empty one.
    pub(crate) fn fresh(durable: Durable) -> Self {
        let layout = durable.layout();
        let (entries, tombstones) = (layout.entries.count, layout.tombstones.count);
        let places = |count: u32| Places { free: (0..count).rev().collect(), ..Places::default() };
        Self {
            durable,
            contents: LedgerContents::default(),
            entries: places(entries),
            tombstones: places(tombstones),
            version: 0,
            damaged: Vec::new(),
            lost: 0,
        }
    }

    /// Reads the ledger, repairs single bad copies, and finishes burials that were cut short.
    pub(crate) fn open(durable: &Durable, mut notes: Notes) -> Result<Self, DurableError> {
        let mut ledger = Self::fresh(durable.clone());
        let layout = durable.layout();
        let (mut version, mut dead) = (0, Vec::new());
        let Ledger { contents, entries, tombstones, .. } = &mut ledger;

        for_each(durable, &layout.term, Kind::Term, &mut notes, |_, cell, notes| {
            let Some(cell) = cell else { return };
            version = version.max(cell.version);
            if cell.content.len() == TERM_BYTES {
                contents.term = u64_at(cell.content, 0);
                contents.filling = u64_at(cell.content, 8).checked_sub(1);
                contents.leased = u64_at(cell.content, 16) != 0;
            } else {
                notes.refuse("the term", "another length");
            }
        })?;
        for_each(durable, &layout.map, Kind::Map, &mut notes, |_, cell, _| {
            let Some(cell) = cell else { return };
            version = version.max(cell.version);
            contents.map = Some(cell.content.to_vec());
        })?;
        for_each(durable, &layout.odometer, Kind::Odometer, &mut notes, |_, cell, notes| {
            let Some(cell) = cell else { return };
            version = version.max(cell.version);
            match Odometer::decode(cell.content) {
                Ok(odometer) => contents.odometer = odometer,
                Err(refused) => notes.refuse("the odometer", refused),
            }
        })?;

        tombstones.free.clear();
        for_each(durable, &layout.tombstones, Kind::Tombstone, &mut notes, |place, cell, notes| {
            let Some(cell) = cell else { return tombstones.free.push(place) };
            version = version.max(cell.version);
            match Tombstone::decode(cell.content) {
                Ok((vid, tombstone)) => {
                    tombstones.of.insert(vid, place);
                    contents.tombstones.insert(vid, tombstone);
                }
                Err(refused) => notes.refuse("a tombstone", refused),
            }
        })?;
        tombstones.free.reverse();

        entries.free.clear();
        let mut versions = std::collections::BTreeMap::new();
        for_each(durable, &layout.entries, Kind::Entry, &mut notes, |place, cell, notes| {
            let Some(cell) = cell else { return entries.free.push(place) };
            version = version.max(cell.version);
            let (vid, bytes) = match EntryCell::decode(cell.content) {
                Ok(EntryCell::Entry { vid, bytes }) => (vid, bytes),
                Ok(EntryCell::Free) => return entries.free.push(place),
                Err(refused) => {
                    notes.refuse("an entry", refused);
                    return entries.free.push(place);
                }
            };
            let buried = contents.tombstones.get(&vid).is_some_and(|t| t.generation >= entry_generation(&bytes));
            // Two places of one volume: a burial's clearing failed, and the volume id lives again elsewhere.
            let older = versions.get(&vid).is_some_and(|&other| other > cell.version);
            if buried || older {
                dead.push((vid, place));
            } else {
                versions.insert(vid, cell.version);
                contents.entries.insert(vid, bytes);
                if let Some(other) = entries.of.insert(vid, place) {
                    dead.push((vid, other));
                }
            }
        })?;
        entries.free.reverse();

        ledger.version = version;
        for (vid, place) in dead {
            ledger.free_entry(vid, place)?;
            ledger.entries.free.push(place);
        }
        ledger.damaged = notes.refused;
        ledger.lost = notes.lost;
        Ok(ledger)
    }
}

impl Notes {
    /// A cell whose checksum is right and whose content makes no sense: nothing can repair it.
    fn refuse(&mut self, what: &str, why: impl std::fmt::Display) {
        self.refused.push(format!("{what}: {why}"));
        self.lost += 1;
    }
}
