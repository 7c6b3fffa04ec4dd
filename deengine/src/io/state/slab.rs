// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbered slots for commands and transfers in flight.
//!
//! A number is an index and the age of the slot. So an answer that comes twice or too late finds no value,
//! and never another one. Slots are reused: after warm-up nothing is allocated.

/// Age in the upper 8 bits, the index in the lower 22, and between them which kind of pool it is.
const AGE_SHIFT: u32 = 24;
/// Set in the numbers of a marked pool.
pub(crate) const MARK: u32 = 1 << 23;
/// Set in the numbers of a pool that is marked the other way.
pub(crate) const OTHER_MARK: u32 = 1 << 22;
/// Set in the numbers of a pool with both marks.
pub(crate) const BOTH_MARKS: u32 = MARK | OTHER_MARK;
const INDEX_MASK: u32 = OTHER_MARK - 1;

/// A pool of `T` with stable numbers.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    mark: u32,
}

#[derive(Debug)]
struct Slot<T> {
    age: u8,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), mark: 0 }
    }

    /// A pool whose numbers differ from those of [`Self::new`].
    pub(crate) fn marked() -> Self {
        Self { mark: MARK, ..Self::new() }
    }

    /// A pool whose numbers differ from those of both others.
    pub(crate) fn marked_otherwise() -> Self {
        Self { mark: OTHER_MARK, ..Self::new() }
    }

    /// A pool whose numbers differ from those of all others.
    pub(crate) fn marked_twice() -> Self {
        Self { mark: BOTH_MARKS, ..Self::new() }
    }

    /// Number of live values.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether `count` more values have a number.
    pub(crate) fn has_room(&self, count: u32) -> bool {
        self.len() + count as usize <= INDEX_MASK as usize
    }

    /// Puts a value in; the caller has asked [`Self::has_room`].
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return self.mark | index | u32::from(slot.age) << AGE_SHIFT;
        }
        let index =
            u32::try_from(self.slots.len()).ok().filter(|&i| i < INDEX_MASK).expect("asked for room first");
        self.slots.push(Slot { age: 0, value: Some(value) });
        self.mark | index
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut((id & INDEX_MASK) as usize)?;
        if u32::from(slot.age) == id >> AGE_SHIFT { slot.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        let index = id & INDEX_MASK;
        let slot = self.slots.get_mut(index as usize)?;
        if u32::from(slot.age) != id >> AGE_SHIFT {
            return None;
        }
        let value = slot.value.take()?;
        slot.age = slot.age.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }

    /// All live values. This scans the pool.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// All live values with their numbers, by a scan: for rare things such as closing a queue.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0u32..).zip(&self.slots).filter_map(|(index, slot)| {
            slot.value.as_ref().map(|value| (self.mark | index | u32::from(slot.age) << AGE_SHIFT, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_answers_once_and_never_names_the_next_value() {
        let _deadline = crate::deadline::deadline();
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_ne!(first, second);
        assert_eq!((slab.remove(first), slab.get_mut(first)), (None, None));
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(second, &"second")]);
        assert_eq!(slab.len(), 1);
    }
}
