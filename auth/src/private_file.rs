// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files with secrets are the user's alone.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Refuses a file that other users can read or write.
///
/// # Errors
/// A sentence with the file, and with the remedy.
pub fn check_private(path: &Path) -> Result<(), String> {
    let meta = std::fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if meta.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(format!("{} can be read by other users: chmod 600 it", path.display()))
}
