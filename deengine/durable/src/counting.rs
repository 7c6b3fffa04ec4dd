// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the SMART counters into the metadata store.

use crate::cell::{Cell, CellWrite, Kind};
use crate::error::{DurableError, Patience};
use crate::metadata_store::MetadataStore;
use crate::smart_counters::SmartCounters;

impl MetadataStore {
    /// Makes the counters durable.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn set_smart_counters(&mut self, smart_counters: &SmartCounters) -> Result<(), DurableError> {
        while self.is_counting(Patience::Blocks)? {}
        self.write(Kind::SmartCounters, 0, &smart_counters.encode())?;
        self.contents.smart_counters = *smart_counters;
        Ok(())
    }

    /// As [`Self::set_smart_counters`], but does not wait for the medium: the counters become durable some
    /// time later. If earlier ones are still being written, this call writes nothing, and the caller tries
    /// again.
    ///
    /// # Errors
    /// If the store fails, also for earlier counters.
    pub fn start_smart_counters(&mut self, smart_counters: &SmartCounters) -> Result<(), DurableError> {
        if self.is_counting(Patience::None)? {
            return Ok(());
        }
        self.version += 1;
        let content = smart_counters.encode();
        let cell = Cell { tag: self.durable.tag(), version: self.version, content: &content };
        let twin = *self.twin(Kind::SmartCounters);
        self.counting = Some(CellWrite::start(twin, self.durable.store(), Kind::SmartCounters, 0, &cell)?);
        self.contents.smart_counters = *smart_counters;
        self.is_counting(Patience::None).map(drop)
    }

    /// Continues writing counters, without waiting for the medium. Returns whether some are still being
    /// written.
    ///
    /// # Errors
    /// If the store fails. Then the store has older counters.
    pub fn poll_smart_counters(&mut self) -> Result<bool, DurableError> {
        self.is_counting(Patience::None)
    }

    /// Continues writing counters. Returns whether some are still being written.
    fn is_counting(&mut self, patience: Patience) -> Result<bool, DurableError> {
        let Some(mut write) = self.counting.take() else { return Ok(false) };
        let ended = write.advance(self.durable.store(), patience)?;
        self.counting = ended.is_pending().then_some(write);
        Ok(self.counting.is_some())
    }
}
