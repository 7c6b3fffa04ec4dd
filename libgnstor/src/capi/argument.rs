// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of C's arguments, and handles that go to C and come back.

use super::failure::{Failure, quietly};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

/// The object behind a handle or an argument.
///
/// # Safety
/// Null, or valid for reads while the result is used.
pub(super) unsafe fn object<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(format!("{what} is null")))
}

/// A reference of its own to the object behind a handle.
///
/// # Safety
/// Null, or a handle that has not been closed.
pub(super) unsafe fn share<T>(handle: *const T, what: &str) -> Result<Arc<T>, Failure> {
    if handle.is_null() {
        return Err(Failure::invalid(format!("{what} is null")));
    }
    // SAFETY: handles come from Arc::into_raw, and the caller's is not closed: the count is at least one.
    unsafe {
        Arc::increment_strong_count(handle);
        Ok(Arc::from_raw(handle))
    }
}

/// # Safety
/// Null, or a NUL-terminated string that stays as it is while the result is used.
pub(super) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is null")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// # Safety
/// Null, or valid for reads of `bytes` bytes, which do not change while the result is used.
pub(super) unsafe fn bytes_in<'a>(data: *const c_void, bytes: usize) -> Result<&'a [u8], Failure> {
    check_range(data, bytes)?;
    // SAFETY: not null, of a possible length, and the caller's promise.
    Ok(if bytes == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data.cast(), bytes) } })
}

/// # Safety
/// Null, or valid for reads and writes of `bytes` bytes, which no other code uses while the result is used.
pub(super) unsafe fn bytes_out<'a>(data: *mut c_void, bytes: usize) -> Result<&'a mut [u8], Failure> {
    check_range(data, bytes)?;
    // SAFETY: the pointer is not null, the length is possible, and the rest is the caller's promise. If C has
    // stored nothing there yet, this compiler cannot know that: the bytes have some value.
    Ok(if bytes == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(data.cast(), bytes) } })
}

fn check_range(data: *const c_void, bytes: usize) -> Result<(), Failure> {
    match (data.is_null(), isize::try_from(bytes)) {
        (true, _) if bytes != 0 => Err(Failure::invalid("data is null")),
        (_, Err(_)) => Err(Failure::invalid(format!("{bytes} bytes are more than there can be"))),
        _ => Ok(()),
    }
}

/// Refuses a null result pointer before anything is done.
pub(super) fn result_goes_to<T>(out: *mut T, what: &str) -> Result<(), Failure> {
    if out.is_null() { Err(Failure::invalid(format!("the pointer for {what} is null"))) } else { Ok(()) }
}

/// Hands an object to C.
///
/// # Safety
/// `out` is valid for a write.
pub(super) unsafe fn hand_out<T>(object: T, out: *mut *const T) {
    // SAFETY: the caller's promise.
    unsafe { out.write(Arc::into_raw(Arc::new(object))) };
}

/// Takes an object back from C.
///
/// # Safety
/// Null, or a handle that is used no more.
pub(super) unsafe fn take_back<T>(handle: *const T) {
    if !handle.is_null() {
        // SAFETY: from Arc::into_raw in `hand_out`; the caller gives up its reference.
        let object = unsafe { Arc::from_raw(handle) };
        quietly(|| drop(object));
    }
}
