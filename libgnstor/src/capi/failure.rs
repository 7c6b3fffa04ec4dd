// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A call that fails returns a negative error number, and leaves words for `gn_last_error`.

use crate::error::Error;
use gnstor_fabric::device::DeviceError;
use gnstor_gnor::node::NodeError;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
pub(super) const EEXIST: i32 = 17;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
pub(super) const ERANGE: i32 = 34;
const ETIMEDOUT: i32 = 110;

/// An error number with its words.
pub(super) struct Failure {
    pub(super) errno: i32,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { errno: EINVAL, message: message.into() }
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        let errno = match &e {
            Error::Node(NodeError::Device(cause)) => match cause {
                DeviceError::NoCuda(_) => ENODEV,
                DeviceError::Memory { .. } => ENOMEM,
                DeviceError::Timeout { .. } => ETIMEDOUT,
                DeviceError::Switch { .. } => EINVAL,
                DeviceError::Driver { .. } | DeviceError::Kernel { .. } | DeviceError::Copy { .. } => EIO,
            },
            other => other.errno(),
        };
        Self { errno, message: e.to_string() }
    }
}

impl From<DeviceError> for Failure {
    fn from(e: DeviceError) -> Self {
        Error::from(e).into()
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn keep(message: &str) {
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending reads no error.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Runs a call's body; failures and panics become negative error numbers.
pub(super) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // State that a panic may have left half done is behind locks, which the panic poisons.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let what = panic.downcast_ref::<String>().map(String::as_str);
            let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Failure { errno: EIO, message: format!("internal error: {what}") }
        }
    };
    keep(&failure.message);
    -(failure.errno.max(1))
}

/// Ends an object whose destructor must not unwind into C.
pub(super) fn quietly(body: impl FnOnce()) {
    let _ = guard(|| {
        body();
        Ok(())
    });
}

/// `gn_last_error`.
#[unsafe(no_mangle)]
pub extern "C" fn gn_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
