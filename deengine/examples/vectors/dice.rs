// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random draws from a seed.

use gnstor_proto::placement::mix64;

/// Numbers from a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix64(self.0)
    }

    pub(crate) fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.roll() % u64::from(end)).expect("below a u32")
    }

    pub(crate) fn one_in(&mut self, count: u32) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.roll() % len as u64).expect("below a usize")
    }

    pub(crate) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.index(list.len())]
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.roll().to_le_bytes()[0]
    }
}
