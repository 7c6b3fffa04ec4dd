// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random bytes of the operating system.

/// Fills `bytes` from the operating system's cryptographic generator.
///
/// # Panics
/// Where the system has no generator: nothing can be proven without one.
pub fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system has a random generator");
}
