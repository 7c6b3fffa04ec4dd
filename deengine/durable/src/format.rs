// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formatting: it turns a store into an empty system area.

use crate::bytes::{CHUNK, PAGE_U64, index};
use crate::cell::{Cell, Kind};
use crate::checkpoint::Checkpoint;
use crate::durable::{Current, Durable};
use crate::error::{DurableError, read, sync, write};
use crate::header::{Header, Mode, Slot};
use crate::journal::Position;
use crate::layout::{Layout, Sizes};
use crate::meta::Meta;
use crate::metadata_store::MetadataStore;
use crate::open::{Opened, State, check_room, is_blank, read_header};
use gnstor_flash::Store;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

impl Durable {
    /// Formats a store: an empty metadata store, an empty journal, an empty checkpoint. Contents of an
    /// earlier format cannot come back. [`Self::open`] refuses a store whose formatting was interrupted.
    ///
    /// # Errors
    /// If the sizes are impossible, the store is too small, or it fails.
    pub fn format(store: Arc<dyn Store>, sizes: Sizes, id: u64) -> Result<Opened, DurableError> {
        let layout = check_room(store.as_ref(), &sizes)?;
        let copies = read_header(store.as_ref())?;
        let cells = copies.each_ref().map(|copy| Cell::decode(copy, Kind::Header, 0));
        let old = cells.iter().flatten().max_by_key(|cell| cell.version);
        let (life, version) = match old.map(|cell| (Header::decode(cell.content), cell.version)) {
            Some((Ok(header), version)) => (header.life + 1, version),
            Some((Err(_), version)) => (wipe(store.as_ref(), &layout)?, version),
            None if is_blank(&copies) => (1, 0),
            // Something was here, and its life is not known: leave nothing that could be taken for ours.
            None => (wipe(store.as_ref(), &layout)?, 0),
        };
        let header = Header {
            id,
            life,
            sizes,
            entries: 0,
            tombstones: 0,
            mode: Mode::Formatting,
            boot: 1,
            journal_page: 0,
            floor: 0,
            dump: 1,
            slots: [Slot::default(); 2],
        };
        let durable = Self::new(store, sizes, layout, Current::new(header, version, true));
        durable.update(|_| {})?;
        let begun = Arc::new(AtomicU64::new(0));
        let start = Position { seq: 0, page: 0, boot: 1 };
        let mut checkpoint =
            Checkpoint::begin_at(&durable, start, begun, Meta::empty(&sizes).encode(&sizes)?)?;
        checkpoint.wait_ready()?;
        let zeros = vec![0; index(sizes.map_words.min((CHUNK / 8) as u64))];
        for first in (0..sizes.map_words).step_by(zeros.len()) {
            let count = index((sizes.map_words - first).min(zeros.len() as u64));
            checkpoint.words(first, &zeros[..count])?;
        }
        checkpoint.complete()?;
        let metadata = MetadataStore::format(&durable)?;
        durable.update(|header| header.mode = Mode::Fresh)?;
        Ok(Opened { durable, metadata, state: State::Fresh })
    }
}

/// Zeroes all bytes except the words of checkpoints, which count only under a head. Returns the life of the
/// new format.
fn wipe(store: &dyn Store, layout: &Layout) -> Result<u64, DurableError> {
    let areas =
        [(0, layout.checkpoints[0])].into_iter().chain(layout.checkpoints.map(|at| (at, at + PAGE_U64)));
    let (zeros, mut buffer) = (vec![0; CHUNK], vec![0; CHUNK]);
    for (from, until) in areas {
        for at in (from..until).step_by(CHUNK) {
            let chunk = &mut buffer[..index((until - at).min(CHUNK as u64))];
            read(store, at, chunk, "formatting")?;
            if chunk.iter().any(|&byte| byte != 0) {
                write(store, at, &zeros[..chunk.len()], "formatting")?;
            }
        }
    }
    sync(store, "formatting")?;
    Ok(1)
}
