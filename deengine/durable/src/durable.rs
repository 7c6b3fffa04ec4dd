// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The system area as a whole, and its header.

use crate::bytes::PAGE_U64;
use crate::cell::{Cell, CellWrite, Kind};
use crate::error::{DurableError, Patience};
use crate::header::{Header, Mode};
use crate::layout::{Layout, Sizes};
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

impl Durable {
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
