// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a test runs in its long form. The tests of the crates under `deengine/` include this file by its
//! path.

/// Whether `GNSTOR_LONG` is set.
pub(crate) fn is_long() -> bool {
    std::env::var_os("GNSTOR_LONG").is_some_and(|value| !value.is_empty())
}
