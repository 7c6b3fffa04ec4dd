// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue for each of several owners, and the owners take queue. So an owner with many entries delays
//! another by at most one entry. No call looks at more than a few entries, however many there are.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// Queues of owners.
#[derive(Clone, Debug)]
pub struct RoundRobin<K, T> {
    /// By owner, and then by number: of two entries the later one has the higher number.
    entries: BTreeMap<(K, u64), T>,
    /// Whose turn was the last one.
    last: Option<K>,
    next: u64,
}

impl<K, T> Default for RoundRobin<K, T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), last: None, next: 0 }
    }
}

impl<K: Ord + Clone, T> RoundRobin<K, T> {
    /// Number of entries of all owners.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No owner has an entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the owner's last entry. Returns its number, which no other entry has.
    pub fn push(&mut self, owner: K, entry: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.insert((owner, number), entry);
        number
    }

    /// The first entry of the next owner, in the order of the owners, round and round, and its number.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let (owner, number, _) = self.first_after(self.last.as_ref())?;
        let owner = owner.clone();
        let entry = self.remove(&owner, number);
        self.last = Some(owner);
        Some((number, entry?))
    }

    /// The last entry of the next owner, and its number. An owner with more entries than are ever taken has
    /// its new ones taken at once, where [`Self::pop`] would take each of them late.
    pub fn pop_newest(&mut self) -> Option<(u64, T)> {
        let owner = self.first_after(self.last.as_ref())?.0.clone();
        let of_owner = (owner.clone(), 0)..=(owner.clone(), u64::MAX);
        let (&(_, number), _) = self.entries.range(of_owner).next_back()?;
        let entry = self.remove(&owner, number);
        self.last = Some(owner);
        Some((number, entry?))
    }

    /// The first entry of the owner after this one, round and round, with its owner and number.
    pub fn first_after(&self, owner: Option<&K>) -> Option<(&K, u64, &T)> {
        let behind = |owner: &K| (Excluded((owner.clone(), u64::MAX)), Unbounded);
        let after = owner.and_then(|owner| self.entries.range(behind(owner)).next());
        let ((owner, number), entry) = after.or_else(|| self.entries.first_key_value())?;
        Some((owner, *number, entry))
    }

    /// Removes an entry.
    pub fn remove(&mut self, owner: &K, number: u64) -> Option<T> {
        self.entries.remove(&(owner.clone(), number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::deadline;
    use std::cell::Cell;
    use std::cmp::Ordering;

    #[test]
    fn owners_take_turns_and_the_entries_of_one_keep_their_order() {
        let _deadline = deadline();
        let mut queue = RoundRobin::default();
        (0..4).for_each(|nth| _ = queue.push("many", nth));
        queue.push("few", 10);
        let first = |owner| queue.first_after(owner).map(|(owner, _, entry)| (*owner, *entry));
        assert_eq!(first(None), Some(("few", 10)));
        assert_eq!((first(Some(&"few")), first(Some(&"many"))), (Some(("many", 0)), Some(("few", 10))));
        let pop = |queue: &mut RoundRobin<_, _>| queue.pop().map(|(_, entry)| entry);
        let mut order = vec![pop(&mut queue), pop(&mut queue)];
        queue.push("few", 11);
        order.extend((0..4).map(|_| pop(&mut queue)));
        assert_eq!(order, [10, 0, 11, 1, 2, 3].map(Some));
        assert_eq!((queue.pop(), queue.len()), (None, 0));
    }

    #[test]
    fn the_newest_entry_of_each_owner_has_its_turn_first() {
        let _deadline = deadline();
        let mut queue = RoundRobin::default();
        (0..3).for_each(|nth| _ = queue.push("many", nth));
        queue.push("few", 10);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop_newest()).map(|(_, entry)| entry).collect();
        assert_eq!(order, [10, 2, 1, 0]);
        assert!(queue.is_empty());
    }

    #[test]
    fn an_entry_that_is_removed_has_no_turn() {
        let _deadline = deadline();
        let mut queue = RoundRobin::default();
        let numbers = [(1, 'a'), (1, 'b'), (2, 'c')].map(|(owner, entry)| queue.push(owner, entry));
        assert_eq!(queue.remove(&1, numbers[2]), None, "it is another owner's");
        assert_eq!((queue.remove(&2, numbers[2]), queue.remove(&2, numbers[2])), (Some('c'), None));
        let popped = (queue.pop(), queue.pop());
        assert_eq!(popped, (Some((numbers[0], 'a')), Some((numbers[1], 'b'))));
        assert!(queue.is_empty());
    }

    thread_local! {
        static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// An owner that counts how often one is compared.
    #[derive(Clone, PartialEq, Eq)]
    struct Counted(u64);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    #[test]
    fn an_entry_among_ten_thousands_is_found_in_few_steps_whether_one_has_them_or_each_has_one() {
        const ENTRIES: u64 = 12_288;
        let _deadline = deadline();
        for owners in [1, ENTRIES] {
            let mut queue = RoundRobin::default();
            let numbers: Vec<_> = (0..ENTRIES).map(|nth| queue.push(Counted(nth % owners), nth)).collect();
            let nth = ENTRIES / 2;
            let steps = |work: &mut dyn FnMut()| {
                COMPARED.set(0);
                work();
                COMPARED.get()
            };
            let owner = Counted(nth % owners);
            let counts = [
                steps(&mut || assert_eq!(queue.remove(&owner, numbers[nth as usize]), Some(nth))),
                steps(&mut || assert_eq!(queue.pop().map(|(_, entry)| entry), Some(0))),
                steps(&mut || assert!(queue.first_after(Some(&owner)).is_some())),
            ];
            assert!(counts.iter().all(|&count| count < 200), "{owners} owners: {counts:?} steps");
        }
    }
}
