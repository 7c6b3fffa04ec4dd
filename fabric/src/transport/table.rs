// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Things with names, looked up for every command. A name is a place and the age of the place. So the name
//! of a removed thing does not find the next one in its place.

use std::marker::PhantomData;

const PLACE_BITS: u32 = 16;

/// A name in a [`Table`].
pub(super) trait Name: Copy {
    fn of(raw: u32) -> Self;
    fn raw(self) -> u32;
}

/// Up to 65,536 things.
pub(super) struct Table<K, T> {
    places: Vec<(u16, Option<T>)>,
    free: Vec<u16>,
    kind: PhantomData<K>,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), kind: PhantomData }
    }
}

impl<K: Name, T> Table<K, T> {
    /// Puts it in; `None` where there is no place left.
    pub(super) fn insert(&mut self, value: T) -> Option<K> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                let place = u16::try_from(self.places.len()).ok()?;
                self.places.push((0, None));
                place
            }
        };
        let (age, slot) = &mut self.places[usize::from(place)];
        *age = age.wrapping_add(1);
        *slot = Some(value);
        Some(K::of(u32::from(*age) << PLACE_BITS | u32::from(place)))
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
        self.free.push(u16::try_from(place).expect("a place"));
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
}
