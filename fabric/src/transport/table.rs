// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table of named entries with a fast lookup. A name consists of a place and the place's age. So the name
//! of a removed entry never finds the next entry in its place.
//!
//! When a place has used all its ages, it is not used until every other place has used all of them, too. So a
//! name comes again only after four thousand million other names.

use std::collections::VecDeque;
use std::marker::PhantomData;

const PLACE_BITS: u32 = 16;
const PLACES: usize = 1 << PLACE_BITS;
/// Ages go from 1 to this number, so that no name has all bits set.
const LAST_AGE: u16 = u16::MAX - 1;

/// A name in a [`Table`].
pub(super) trait Name: Copy {
    fn of(raw: u32) -> Self;
    fn raw(self) -> u32;
}

/// A table of up to 65,536 entries.
pub(super) struct Table<K, T> {
    places: Vec<(u16, Option<T>)>,
    free: Vec<u16>,
    /// Free places that have had all their ages, the first one first.
    worn: VecDeque<u16>,
    most: usize,
    kind: PhantomData<K>,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        let (free, worn) = (Vec::new(), VecDeque::new());
        Self { places: Vec::new(), free, worn, most: PLACES, kind: PhantomData }
    }
}

impl<K: Name, T> Table<K, T> {
    /// Inserts an entry. Returns `None` if no place is left.
    pub(super) fn insert(&mut self, value: T) -> Option<K> {
        let place = self.free.pop().or_else(|| self.fresh()).or_else(|| self.worn.pop_front())?;
        let (age, slot) = &mut self.places[usize::from(place)];
        *age = *age % LAST_AGE + 1;
        *slot = Some(value);
        Some(K::of(u32::from(*age) << PLACE_BITS | u32::from(place)))
    }

    /// A place that was never used.
    fn fresh(&mut self) -> Option<u16> {
        let place = u16::try_from(self.places.len()).ok().filter(|_| self.places.len() < self.most)?;
        self.places.push((0, None));
        Some(place)
    }

    #[inline]
    fn place(name: K) -> (usize, u16) {
        let raw = name.raw();
        #[expect(clippy::cast_possible_truncation, reason = "the executors of a name")]
        ((raw as u16).into(), (raw >> PLACE_BITS) as u16)
    }

    #[inline]
    pub(super) fn get(&self, name: &K) -> Option<&T> {
        let (place, age) = Self::place(*name);
        self.places.get(place).filter(|(now, _)| *now == age)?.1.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, name: &K) -> Option<&mut T> {
        let (place, age) = Self::place(*name);
        self.places.get_mut(place).filter(|(now, _)| *now == age)?.1.as_mut()
    }

    pub(super) fn remove(&mut self, name: &K) -> Option<T> {
        let (place, age) = Self::place(*name);
        let value = self.places.get_mut(place).filter(|(now, _)| *now == age)?.1.take()?;
        let place = u16::try_from(place).expect("a place");
        match age {
            LAST_AGE => self.worn.push_back(place),
            _ => self.free.push(place),
        }
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        (0u32..).zip(&self.places).filter_map(|(place, (age, value))| {
            Some((K::of(u32::from(*age) << PLACE_BITS | place), value.as_ref()?))
        })
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|(_, value)| value.as_ref())
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|(_, value)| value.as_mut())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use std::collections::HashSet;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct N(u32);
    impl Name for N {
        fn of(raw: u32) -> Self {
            Self(raw)
        }
        fn raw(self) -> u32 {
            self.0
        }
    }

    #[test]
    fn the_name_of_a_removed_thing_finds_nothing() {
        let _deadline = deadline();
        let mut table: Table<N, &str> = Table::default();
        let (a, b) = (table.insert("a").unwrap(), table.insert("b").unwrap());
        assert_eq!(table.get(&a), Some(&"a"));
        assert_eq!(table.remove(&a), Some("a"));
        assert_eq!(table.get(&a), None);
        let c = table.insert("c").unwrap();
        assert_ne!(a, c);
        assert_eq!((table.get(&a), table.get(&c)), (None, Some(&"c")));
        assert_eq!(table.remove(&a), None);
        let all: Vec<_> = table.iter().map(|(name, value)| (name, *value)).collect();
        assert_eq!(all, [(c, "c"), (b, "b")]);
    }

    /// A table of two places is tested in place of one of 65,536.
    #[test]
    fn a_name_comes_again_only_after_all_others_of_all_places() {
        let _deadline = deadline();
        let mut table: Table<N, ()> = Table { most: 2, ..Table::default() };
        let mut given = HashSet::new();
        let first = table.insert(()).expect("a place");
        let mut name = first;
        for _ in 0..2 * u32::from(LAST_AGE) {
            assert_ne!(name.0, u32::MAX, "that name means none");
            assert!(given.insert(name.0), "{name:?} was given before, and after {} names", given.len());
            assert_eq!(table.remove(&name), Some(()));
            assert_eq!((table.get(&name), table.get(&first)), (None, None));
            name = table.insert(()).expect("a place");
        }
        assert_eq!((name, table.places.len()), (first, 2), "all names were given");
        // Both places are in use, and there is no third one.
        assert!(table.insert(()).is_some() && table.insert(()).is_none());
    }
}
