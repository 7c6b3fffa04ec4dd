// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small pages for tests.

use std::sync::Once;

/// This process and the processes that it starts get no transparent huge pages. A test touches few pages of
/// large regions. With huge pages the kernel clears 2 MiB at each, which took a sixth of the tests' time.
#[expect(unsafe_code, reason = "the standard library has no such call")]
pub fn small_pages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: takes no pointers, and only chooses how the kernel backs this process's memory.
        // A kernel without this call lets tests run as they are, so the result does not matter.
        let _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    });
}
