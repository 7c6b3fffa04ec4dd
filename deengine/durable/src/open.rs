// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Opening: finds a formatted system area in a store.

use crate::bytes::{PAGE, PAGE_U64};
use crate::cell::{Copies, Kind, Notes};
use crate::durable::{Current, Durable};
use crate::error::{DurableError, read, sync};
use crate::header::{Header, Mode};
use crate::layout::{Layout, Sizes};
use crate::metadata_store::MetadataStore;
use gnstor_flash::Store;
use std::sync::Arc;

/// Result of formatting or opening.
#[derive(Debug)]
pub struct Opened {
    /// The durable side.
    pub durable: Durable,
    /// The metadata store, ready.
    pub metadata: MetadataStore,
    /// How the SSD was left.
    pub state: State,
}

/// How the SSD was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Formatted and never used.
    Fresh,
    /// Shut down with everything flushed.
    Clean,
    /// Anything else: a power failure, or a process that ended.
    Unclean,
}

pub(crate) fn read_header(store: &dyn Store) -> Result<[Vec<u8>; 2], DurableError> {
    let mut copies = [vec![0; PAGE], vec![0; PAGE]];
    for (at, copy) in (0..).step_by(PAGE).zip(&mut copies) {
        read(store, at, copy, "reading the header")?;
    }
    Ok(copies)
}

/// Whether nothing was ever written to the place of the header.
pub(crate) fn is_blank(copies: &[Vec<u8>; 2]) -> bool {
    copies.iter().flatten().all(|&byte| byte == 0)
}

impl Durable {
    /// Opens a formatted store, and repairs cells of header and metadata store that a cut left half-written.
    /// Nothing else changes. The lengths of journal and dump, and the number of volumes that the tables hold,
    /// are those of the formatting.
    ///
    /// # Errors
    /// If the store is not formatted, has other sizes, or fails.
    pub fn open(store: Arc<dyn Store>, sizes: Sizes) -> Result<Opened, DurableError> {
        sizes.check()?;
        // The header's place does not depend on them.
        let layout = Layout::new(&sizes);
        if store.len() < 2 * PAGE_U64 {
            return Err(DurableError::StoreTooSmall { has: store.len(), needs: layout.end });
        }
        // A later cut must not undo bytes that are read from here on.
        sync(store.as_ref(), "opening")?;
        let copies = read_header(store.as_ref())?;
        let mut notes = Notes::default();
        let slices = [copies[0].as_slice(), copies[1].as_slice()];
        let read = Copies { kind: Kind::Header, place: 0, tag: None, bytes: slices };
        let cell = layout.header.reconcile(store.as_ref(), read, &mut notes)?;
        let Some(cell) = cell else {
            let reason =
                if is_blank(&copies) { "it was never formatted".into() } else { notes.refused.join("; ") };
            return Err(DurableError::Header { reason });
        };
        let header = Header::decode(cell.content)
            .map_err(|refused| DurableError::Header { reason: refused.to_string() })?;
        if header.tag() != cell.tag {
            return Err(DurableError::Header { reason: "its tag is not its own".into() });
        }
        let Sizes { journal_bytes, dump_bytes, volumes, held_map, .. } = header.sizes;
        let sizes = Sizes { journal_bytes, dump_bytes, volumes, held_map, ..sizes };
        let layout = check_room(store.as_ref(), &sizes)?;
        header.check_sizes(&sizes)?;
        let state = match header.mode {
            Mode::Formatting => {
                return Err(DurableError::Header {
                    reason: "formatting was cut short, so it holds nothing".into(),
                });
            }
            Mode::Fresh => State::Fresh,
            Mode::Clean => State::Clean,
            Mode::Running => State::Unclean,
        };
        let current = Current::new(header, cell.version, false);
        let durable = Self::new(store, sizes, layout, current);
        let metadata = MetadataStore::open(&durable, notes)?;
        Ok(Opened { durable, metadata, state })
    }
}

pub(crate) fn check_room(store: &dyn Store, sizes: &Sizes) -> Result<Layout, DurableError> {
    sizes.check()?;
    let layout = Layout::new(sizes);
    if store.len() < layout.end {
        return Err(DurableError::StoreTooSmall { has: store.len(), needs: layout.end });
    }
    Ok(layout)
}
