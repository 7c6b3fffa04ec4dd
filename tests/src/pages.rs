// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small pages for tests.

use std::sync::Once;

/// Disables transparent huge pages for this process and its children. A test touches few pages of large
/// regions. With huge pages the kernel would clear 2 MiB for each of them, which took a sixth of the tests'
/// time.
#[expect(unsafe_code, reason = "the standard library has no such call")]
pub fn small_pages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the call takes no pointers, and only chooses how the kernel backs this process's memory. If
        // the kernel does not know the call, tests run with huge pages, so the result does not matter.
        let _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    });
}
