// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A map whose keys peers choose.
//!
//! A hash without a seed puts keys that a peer can compute into one bucket. Then each look-up walks all of
//! them, in time that other peers need. This map's seed is random for each process. Its order must therefore
//! decide nothing, or the simulator would not repeat a run: keys come out sorted, or not at all.

use ahash::RandomState;
use std::collections::HashMap;
use std::hash::Hash;

/// The map. It has no iterator on purpose.
#[derive(Debug)]
pub struct PeerMap<K, V>(HashMap<K, V, RandomState>);

impl<K, V> Default for PeerMap<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Copy + Eq + Hash + Ord, V> PeerMap<K, V> {
    /// The value of this key.
    #[inline]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    /// The value of this key, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// The value of this key. If there is none, `value` makes it.
    #[inline]
    pub fn get_or_insert(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        self.0.entry(key).or_insert_with(value)
    }

    /// Whether there is a value of this key.
    #[inline]
    pub fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Sets the value of this key; returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys that `is_wanted` chooses, sorted. It sees all entries, in any order, and may change values.
    pub fn sorted(&mut self, mut is_wanted: impl FnMut(&K, &mut V) -> bool) -> Vec<K> {
        let wanted = self.0.iter_mut().filter_map(|(key, value)| is_wanted(key, value).then_some(*key));
        let mut keys: Vec<K> = wanted.collect();
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::deadline;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    const BUCKETS: u64 = 4096;
    const KEYS: usize = 2048;

    /// Keys that a peer computes: the hash without a seed puts all of them into one of 4,096 buckets.
    fn of_one_bucket() -> Vec<u32> {
        let bucket = |key: &u32| rustc_hash::FxBuildHasher.hash_one(key) % BUCKETS;
        let first = bucket(&1);
        (1..).filter(|key| bucket(key) == first).take(KEYS).collect()
    }

    #[test]
    fn keys_that_a_peer_computes_for_one_bucket_are_spread() {
        let _deadline = deadline();
        let (keys, map) = (of_one_bucket(), PeerMap::<u32, ()>::default());
        let buckets: HashSet<u64> = keys.iter().map(|key| map.0.hasher().hash_one(key) % BUCKETS).collect();
        // Random hashes take 1,611 buckets.
        assert!(buckets.len() > 1400, "{} of {KEYS} keys have a bucket of their own", buckets.len());
    }

    /// A peer cannot compute the buckets: the seed is another one for each map.
    #[test]
    fn two_maps_have_two_seeds() {
        let _deadline = deadline();
        let maps = [PeerMap::<u32, ()>::default(), PeerMap::default()];
        assert_ne!(maps[0].0.hasher().hash_one(7u32), maps[1].0.hasher().hash_one(7u32));
    }

    #[test]
    fn keys_come_out_sorted_whatever_the_seed() {
        let _deadline = deadline();
        let mut map = PeerMap::default();
        (0..100u32).rev().for_each(|key| _ = map.insert(key, key));
        assert_eq!(map.sorted(|key, _| key % 2 == 0), (0..100).step_by(2).collect::<Vec<_>>());
        *map.get_or_insert(500, || 1) += 1;
        assert_eq!((map.remove(&500), map.remove(&500), map.len()), (Some(2), None, 100));
    }
}
