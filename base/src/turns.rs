// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue for each of several owners, and the owners take turns. So an owner with many entries delays
//! another by at most one entry.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

/// Queues of owners. No queue is empty.
#[derive(Clone, Debug)]
pub struct Turns<K, T> {
    queues: BTreeMap<K, VecDeque<T>>,
    /// Whose turn was the last one.
    last: Option<K>,
    len: usize,
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), last: None, len: 0 }
    }
}

impl<K: Ord + Clone, T> Turns<K, T> {
    /// Number of entries of all owners.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No owner has an entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the owner's last entry.
    pub fn push(&mut self, owner: K, entry: T) {
        self.queues.entry(owner).or_default().push_back(entry);
        self.len += 1;
    }

    /// The first entry of the next owner, in the order of the owners, round and round.
    pub fn pop(&mut self) -> Option<T> {
        let after = self.last.as_ref().and_then(|last| self.queues.range((Excluded(last), Unbounded)).next());
        let owner = after.or_else(|| self.queues.first_key_value())?.0.clone();
        let entry = self.take(&owner, 0);
        self.last = Some(owner);
        entry
    }

    /// Removes the first entry for which this holds.
    pub fn remove(&mut self, mut is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let mut queues = self.queues.iter();
        let (owner, place) =
            queues.find_map(|(owner, queue)| Some((owner.clone(), queue.iter().position(&mut is_it)?)))?;
        self.take(&owner, place)
    }

    /// The first entry of each owner.
    pub fn firsts(&self) -> impl Iterator<Item = &T> {
        self.queues.values().filter_map(VecDeque::front)
    }

    fn take(&mut self, owner: &K, place: usize) -> Option<T> {
        let queue = self.queues.get_mut(owner)?;
        let entry = queue.remove(place)?;
        self.len -= 1;
        if queue.is_empty() {
            self.queues.remove(owner);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::deadline;

    #[test]
    fn owners_take_turns_and_the_entries_of_one_keep_their_order() {
        let _deadline = deadline();
        let mut turns = Turns::default();
        (0..4).for_each(|nth| turns.push("many", nth));
        turns.push("few", 10);
        assert_eq!(turns.firsts().collect::<Vec<_>>(), [&10, &0]);
        let mut order = vec![turns.pop(), turns.pop()];
        turns.push("few", 11);
        order.extend((0..4).map(|_| turns.pop()));
        assert_eq!(order, [10, 0, 11, 1, 2, 3].map(Some));
        assert_eq!((turns.pop(), turns.len()), (None, 0));
    }

    #[test]
    fn an_entry_that_is_removed_has_no_turn() {
        let _deadline = deadline();
        let mut turns = Turns::default();
        [(1, 'a'), (1, 'b'), (2, 'c')].into_iter().for_each(|(owner, entry)| turns.push(owner, entry));
        assert_eq!(
            (turns.remove(|&entry| entry == 'c'), turns.remove(|&entry| entry == 'c')),
            (Some('c'), None)
        );
        assert_eq!((turns.pop(), turns.pop(), turns.is_empty()), (Some('a'), Some('b'), true));
    }
}
