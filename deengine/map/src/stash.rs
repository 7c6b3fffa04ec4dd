// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stash: the few keys for which the table had no place. An entry is two words, so that a reader needs a
//! version to see a pair whole.
//!
//! ```text
//!   word 2 i       |valid|      zeros      |          key (48)    | both words are 0 where there is no entry
//!   word 2 i + 1   |      zeros      |            page (32)       |
//! ```
//! The version is odd while the writer changes words. A reader uses words that it read between two loads of
//! the same even version. A map sized for its load has an empty stash, and then a reader loads one word.

use crate::counter::Counter;
use crate::shape::VALID;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Entries.
pub(crate) const STASH: usize = 32;

/// Version and count of the stash, which are not in the image.
#[derive(Debug, Default)]
pub(crate) struct Stash {
    count: Counter,
    version: Counter,
}

impl Stash {
    /// Number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.count.get()).unwrap_or(STASH)
    }

    /// Whether the stash is empty. The fence pairs with the `Release` store of the count: a reader that sees
    /// an entry gone sees its new place.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let empty = self.count.get() == 0;
        fence(Ordering::Acquire);
        empty
    }

    /// The page of a key, for readers.
    pub(crate) fn look(&self, words: &[AtomicU64], key: u64) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        self.whole(|| position(words, key).map(|at| page(words, at)))
    }

    /// Copies all entries, for readers.
    pub(crate) fn copy(&self, words: &[AtomicU64]) -> [Option<(u64, u32)>; STASH] {
        if self.is_empty() {
            return [None; STASH];
        }
        self.whole(|| std::array::from_fn(|at| key(words, at).map(|key| (key, page(words, at)))))
    }

    /// Runs the writer's `change` so that readers see all of it or nothing. After it there are `count`
    /// entries.
    pub(crate) fn change(&self, count: usize, change: impl FnOnce()) {
        let version = self.version.get();
        self.version.set(version.wrapping_add(1));
        // A reader that saw one of the words below, and then its own Acquire fence, sees the odd version.
        fence(Ordering::Release);
        change();
        self.version.set(version.wrapping_add(2));
        self.count.set(count as u64);
    }

    /// Result of `read` on words that did not change meanwhile.
    fn whole<T>(&self, read: impl Fn() -> T) -> T {
        loop {
            let before = self.version.get();
            fence(Ordering::Acquire);
            let value = read();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.get() == before {
                return value;
            }
            std::hint::spin_loop();
        }
    }
}

/// Position of a key.
pub(crate) fn position(words: &[AtomicU64], wanted: u64) -> Option<usize> {
    (0..STASH).find(|&at| key(words, at) == Some(wanted))
}

/// The key of an entry.
pub(crate) fn key(words: &[AtomicU64], at: usize) -> Option<u64> {
    let word = words[2 * at].load(Ordering::Relaxed);
    (word & VALID != 0).then_some(word & !VALID)
}

/// The page of an entry.
#[expect(clippy::cast_possible_truncation, reason = "a page number has at most 32 bits")]
pub(crate) fn page(words: &[AtomicU64], at: usize) -> u32 {
    words[2 * at + 1].load(Ordering::Relaxed) as u32
}
