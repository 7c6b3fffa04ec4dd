// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system area as a whole: formatting, opening, and its header.

use crate::bytes::{PAGE, PAGE_U64};
use crate::cell::{Cell, CellWrite, Kind, Notes};
use crate::error::{DurableError, Patience, read, sync};
use crate::header::{Header, Mode, Slot};
use crate::journal::Journal;
use crate::layout::{Layout, Sizes};
use crate::metadata::MetadataStore;
use crate::page::PAYLOAD;
use crate::record::MIN_TRANSACTION_BYTES;
use crate::replay::{End, Replayed};
use gnstor_flash::Store;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// The durable side of an SSD. This is a handle: clones refer to the same one.
#[derive(Clone, Debug)]
pub struct Durable {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    sizes: Sizes,
    layout: Layout,
    tag: u64,
    current: Mutex<Current>,
}

#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) header: Header,
    pub(crate) version: u64,
    /// No dump exists that may be the only copy of its content.
    pub(crate) dump_resolved: bool,
    /// A change of the header that is on its way to the store.
    pub(crate) updating: Option<Updating>,
    /// Number of changes of the header so far, and errors of changes whose callers have not asked yet.
    pub(crate) updates: u64,
    pub(crate) failed: Vec<(UpdateNumber, DurableError)>,
}

impl Current {
    pub(crate) fn new(header: Header, version: u64, dump_resolved: bool) -> Self {
        Self { header, version, dump_resolved, updating: None, updates: 0, failed: Vec::new() }
    }
}

/// Number of a change of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UpdateNumber(u64);

/// A change of the header that counts once both copies are durable.
#[derive(Debug)]
pub(crate) struct Updating {
    number: UpdateNumber,
    header: Header,
    write: CellWrite,
}

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
        let cell = layout.header.reconcile(store.as_ref(), Kind::Header, 0, None, slices, &mut notes)?;
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

    pub(crate) fn new(store: Arc<dyn Store>, sizes: Sizes, layout: Layout, current: Current) -> Self {
        let tag = current.header.tag();
        Self { shared: Arc::new(Shared { store, sizes, layout, tag, current: Mutex::new(current) }) }
    }

    /// The id that was given at formatting.
    pub fn id(&self) -> u64 {
        self.current().header.id
    }

    /// How often it has been restored, this time included once [`Self::into_journal`] has been called.
    pub fn boot(&self) -> u32 {
        self.current().header.boot
    }

    /// The sizes it was formatted with.
    pub fn sizes(&self) -> &Sizes {
        &self.shared.sizes
    }

    /// Continues after a replay, with a new boot number that is durable before this returns. From here on the
    /// SSD counts as running. The caller adopts an intact dump next ([`Journal::adopt`]). Sequence numbers of
    /// replay and dump are not used again. A number may be used again if it was only on a page that never
    /// became durable. Such a page is void, because its boot is older.
    ///
    /// # Errors
    /// If the replay met damage (then call [`Self::fresh_journal`]), or the store fails.
    pub fn into_journal(&self, replayed: &Replayed) -> Result<Journal, DurableError> {
        if let End::Damaged { reason } = &replayed.end {
            return Err(DurableError::JournalDamaged { last: replayed.last, reason: reason.clone() });
        }
        self.update(|header| {
            header.boot += 1;
            header.mode = Mode::Running;
            header.journal_page = replayed.page;
            header.floor = header.must_reach().max(replayed.last);
            // A newer checkpoint that could not be used must not be kept in place of the usable one.
            for slot in header.slots.iter_mut().filter(|slot| slot.number > replayed.slot.number) {
                *slot = Slot::default();
            }
        })?;
        Ok(Journal::new(self.clone(), self.boot(), replayed.slot.page, replayed.page, replayed.last))
    }

    /// Begins a new journal after a rebuild from the pages' records. The old checkpoints and the old journal
    /// count no longer. [`Self::checkpoint`] returns an error until a checkpoint is finished. Page and
    /// transaction numbers start above all numbers that may be on the store.
    ///
    /// # Errors
    /// If the store fails.
    pub fn fresh_journal(&self) -> Result<Journal, DurableError> {
        let ring = self.ring_pages();
        self.update(|header| {
            let newest = header.newest().map_or(0, |newest| header.slots[newest].page);
            let per_page = (PAYLOAD / MIN_TRANSACTION_BYTES) as u64;
            header.boot += 1;
            header.mode = Mode::Running;
            // A ring holds pages of less than two laps after the newest checkpoint's.
            header.journal_page = header.journal_page.max(newest) + 2 * ring;
            header.floor = header.must_reach() + 2 * ring * per_page;
            header.slots = [Slot::default(); 2];
        })?;
        let header = self.header();
        Ok(Journal::new(self.clone(), header.boot, header.journal_page, header.journal_page, header.floor))
    }

    /// Marks the SSD as clean: everything is durable and no write follows. The next open returns
    /// [`State::Clean`]. A later flush removes the mark first.
    ///
    /// # Errors
    /// If the journal has a tail that is not durable, or the store fails.
    pub fn mark_clean(&self, journal: &Journal) -> Result<(), DurableError> {
        if journal.durable() < journal.last() {
            return Err(DurableError::NotDurable { needed: journal.last(), durable: journal.durable() });
        }
        self.update(|header| {
            header.mode = Mode::Clean;
            header.floor = header.must_reach().max(journal.last());
        })
    }

    /// Marks the SSD as in use, durably. Call this before the first new write, unless [`Self::into_journal`]
    /// came just before.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn mark_running(&self) -> Result<(), DurableError> {
        if self.current().header.mode == Mode::Running {
            return Ok(());
        }
        self.update(|header| header.mode = Mode::Running)
    }

    /// Invalidates the dump, durably. Its content is durable in its proper places, or the dump was torn or
    /// absent. This is required after each open before a dump can be written.
    ///
    /// # Errors
    /// If the store fails.
    pub fn invalidate_dump(&self) -> Result<(), DurableError> {
        self.update(|header| header.dump += 1)?;
        self.current().dump_resolved = true;
        Ok(())
    }

    pub(crate) fn dump_number(&self) -> Result<u64, DurableError> {
        let current = self.current();
        if current.dump_resolved { Ok(current.header.dump) } else { Err(DurableError::DumpHeld) }
    }

    /// Changes the header durably, in both copies.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Header)) -> Result<(), DurableError> {
        let mut current = self.current();
        self.advance_update(&mut current, Patience::Blocks);
        let number = self.begin_update(&mut current, change)?;
        self.advance_update(&mut current, Patience::Blocks);
        current.end_of(number)
    }

    /// Whether a change of the header is on its way. A second one would have to wait for it.
    pub fn is_updating(&self) -> bool {
        let mut current = self.current();
        self.advance_update(&mut current, Patience::None);
        current.updating.is_some()
    }

    /// As [`Self::update`], but does not wait for the medium if no other change is in progress.
    pub(crate) fn start_update(
        &self,
        change: impl FnOnce(&mut Header),
    ) -> Result<UpdateNumber, DurableError> {
        let mut current = self.current();
        self.advance_update(&mut current, Patience::Blocks);
        let number = self.begin_update(&mut current, change)?;
        self.advance_update(&mut current, Patience::None);
        Ok(number)
    }

    /// The result of a change that [`Self::start_update`] began. It is returned once.
    pub(crate) fn end_update(
        &self,
        number: UpdateNumber,
        patience: Patience,
    ) -> Result<Poll<()>, DurableError> {
        let mut current = self.current();
        self.advance_update(&mut current, patience);
        if current.updating.as_ref().is_some_and(|updating| updating.number == number) {
            return Ok(Poll::Pending);
        }
        current.end_of(number).map(Poll::Ready)
    }

    fn begin_update(
        &self,
        current: &mut Current,
        change: impl FnOnce(&mut Header),
    ) -> Result<UpdateNumber, DurableError> {
        let mut header = current.header.clone();
        change(&mut header);
        current.version += 1;
        let content = header.encode();
        let cell = Cell { tag: self.tag(), version: current.version, content: &content };
        let write = CellWrite::start(self.layout().header, self.store(), Kind::Header, 0, &cell)?;
        current.updates += 1;
        let number = UpdateNumber(current.updates);
        current.updating = Some(Updating { number, header, write });
        Ok(number)
    }

    /// Continues the change that is in progress.
    fn advance_update(&self, current: &mut Current, patience: Patience) {
        while let Some(mut updating) = current.updating.take() {
            match updating.write.advance(self.store(), patience) {
                Ok(Poll::Ready(())) => current.header = updating.header,
                Ok(Poll::Pending) => {
                    current.updating = Some(updating);
                    if patience == Patience::None {
                        return;
                    }
                }
                Err(error) => current.failed.push((updating.number, error)),
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.shared.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn header(&self) -> Header {
        self.current().header.clone()
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        self.shared.store.as_ref()
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.shared.layout
    }

    pub(crate) fn tag(&self) -> u64 {
        self.shared.tag
    }

    pub(crate) fn ring_pages(&self) -> u64 {
        self.shared.layout.ring_pages
    }

    /// Offset of a page of the journal.
    pub(crate) fn ring_at(&self, page: u64) -> u64 {
        self.shared.layout.ring + page % self.ring_pages() * PAGE_U64
    }
}

impl Current {
    /// The result of a change that is over.
    fn end_of(&mut self, number: UpdateNumber) -> Result<(), DurableError> {
        match self.failed.iter().position(|(failed, _)| *failed == number) {
            Some(at) => Err(self.failed.swap_remove(at).1),
            None => Ok(()),
        }
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
