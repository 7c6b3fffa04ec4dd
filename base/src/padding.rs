// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Padding that keeps words which one thread writes away from words that others write.

use core::ops::{Deref, DerefMut};

/// A value with cache lines of its own: two, since processors fetch lines in pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Padded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

const _: () = assert!(size_of::<Padded<u8>>() == 128 && align_of::<Padded<u64>>() == 128);
