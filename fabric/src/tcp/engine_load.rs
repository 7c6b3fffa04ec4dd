// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Slots of streams at engines, and the load that an engine publishes. A listener uses it to choose the
//! engine of a new stream. The engine's account is in `transport::newcomers`.

use gnstor_base::time::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Streams that an engine may have been given and not polled yet, and how many of an engine at work.
const ARRIVING: u32 = 64;
const ARRIVING_AT_WORK: u32 = 8;
/// A client counts as so many newcomers when streams are divided among engines: most newcomers go soon.
const CLIENT_STREAMS: u32 = 8;

/// The published load of an engine. It decides which engine gets the next stream.
#[derive(Debug, Default)]
pub struct EngineLoad {
    /// The engine's streams, clients' with their weight.
    streams: AtomicU32,
    arriving: AtomicU32,
    /// Times in ns: newcomers' debt exceeds the credit until then, and clients are at work until then.
    owes_until: AtomicU64,
    works_until: AtomicU64,
}

impl EngineLoad {
    /// A slot for one more stream.
    pub fn take(self: &Arc<Self>) -> StreamSlot {
        self.streams.fetch_add(1, Relaxed);
        self.arriving.fetch_add(1, Relaxed);
        StreamSlot { load: Arc::clone(self), weight: 1, is_arriving: true }
    }

    /// The engine's streams, by weight.
    pub fn streams(&self) -> u32 {
        self.streams.load(Relaxed)
    }

    /// Publishes until when clients count as active.
    pub(crate) fn works_until(&self, until: Time) {
        self.works_until.store(until.as_ns(), Relaxed);
    }

    /// Publishes until when newcomers' debt exceeds their credit.
    pub(crate) fn owes_until(&self, until: Time) {
        self.owes_until.store(until.as_ns(), Relaxed);
    }

    /// Whether the engine takes no newcomer now.
    pub fn is_shut(&self, now: Time) -> bool {
        let is_before = |at: &AtomicU64| now.as_ns() < at.load(Relaxed);
        let arriving = self.arriving.load(Relaxed);
        let has_had_its_part = || arriving >= ARRIVING_AT_WORK || is_before(&self.owes_until);
        arriving >= ARRIVING || is_before(&self.works_until) && has_had_its_part()
    }
}

/// A stream's place at an engine, until this is dropped.
#[derive(Debug)]
pub struct StreamSlot {
    load: Arc<EngineLoad>,
    weight: u32,
    is_arriving: bool,
}

impl StreamSlot {
    /// The engine has polled the stream.
    pub(crate) fn arrived(&mut self) {
        if std::mem::take(&mut self.is_arriving) {
            self.load.arriving.fetch_sub(1, Relaxed);
        }
    }

    /// A client has been admitted on the stream.
    pub(crate) fn set_admitted(&mut self) {
        self.load.streams.fetch_add(CLIENT_STREAMS - self.weight, Relaxed);
        self.weight = CLIENT_STREAMS;
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.arrived();
        self.load.streams.fetch_sub(self.weight, Relaxed);
    }
}
