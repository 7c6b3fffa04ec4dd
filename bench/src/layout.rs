// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of sizes and offsets that the C++ compiler made (`bench/cuda/layout.h`), compared with Rust's.
#![expect(unsafe_code, reason = "reads the tables that the C++ compiler made")]

use std::ffi::{CStr, c_char};

#[derive(Debug)]
#[repr(C)]
pub(super) struct Row {
    name: *const c_char,
    value: usize,
}

/// Checks that the table has exactly the rows of the mirror, in the same order.
///
/// # Safety
/// `first` must be the first row of a table that ends with a row whose name is null. The other names must be
/// NUL-terminated and stay for ever.
pub(super) unsafe fn assert_same(first: *const Row, mirror: &[(&str, usize)]) {
    let mut rows = Vec::new();
    for i in 0.. {
        // SAFETY: the rows before this one had names, so the table goes on: the caller's promise.
        let row = unsafe { &*first.add(i) };
        if row.name.is_null() {
            break;
        }
        // SAFETY: not null, and the caller's promise.
        rows.push((unsafe { CStr::from_ptr(row.name) }.to_str().expect("ASCII"), row.value));
    }
    assert_eq!(rows, mirror, "the C++ table and the mirror");
}
