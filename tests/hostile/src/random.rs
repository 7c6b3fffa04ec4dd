// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random numbers from a seed.

/// A generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        gnstor_proto::placement::mix64(self.0)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.draw() % bound as u64).expect("below a usize")
    }

    /// A number of 32 bits.
    pub fn word(&mut self) -> u32 {
        u32::try_from(self.draw() >> 32).expect("32 bits")
    }

    /// Any bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.draw().to_le_bytes()).flatten().take(count).collect()
    }
}
