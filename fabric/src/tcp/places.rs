// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bounded number of places. Each TCP connection of a listener holds one until it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many places.
#[derive(Debug)]
pub struct Places {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Places {
    /// All of them free.
    pub fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// A place, if one is free.
    pub fn take(&self) -> Option<Place> {
        // Relaxed: the number guards no other memory.
        let more = |taken: usize| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place(Arc::clone(&self.taken)))
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let _deadline = deadline();
        let places = Places::new(2);
        let (first, second) = (places.take(), places.take());
        assert!(first.is_some() && second.is_some() && places.take().is_none());
        drop(first);
        assert_eq!(places.taken(), 1);
        assert!(places.take().is_some());
    }
}
