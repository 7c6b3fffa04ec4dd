// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The manager key of an array in a file: one line, the DHHC-1 text, that only the file's owner may read.

use gnstor_auth::{KeyError, Secret};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Name of the key's file in the folder of an array's data files.
pub const FILE_NAME: &str = "manager.key";

/// Why a file has no usable key.
#[derive(Debug, thiserror::Error)]
pub enum ManagerKeyError {
    /// The file cannot be read or written.
    #[error("the manager key in {path}: {cause}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        cause: io::Error,
    },
    /// Other users may read the file.
    #[error("the manager key in {path} can be read by other users: chmod 600 {path}")]
    Open {
        /// The file.
        path: String,
    },
    /// The file contains no key.
    #[error("the manager key in {path}: {cause}")]
    Text {
        /// The file.
        path: String,
        /// The fault.
        cause: KeyError,
    },
}

/// Reads the key in a file.
///
/// # Errors
/// [`ManagerKeyError`].
pub fn read(path: &Path) -> Result<Secret, ManagerKeyError> {
    let name = || path.display().to_string();
    let failed = |cause| ManagerKeyError::File { path: name(), cause };
    let mut file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        return Err(ManagerKeyError::Open { path: name() });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    let secret = Secret::parse(&text);
    zeroize::Zeroize::zeroize(&mut text);
    secret.map_err(|cause| ManagerKeyError::Text { path: name(), cause })
}

/// Reads the key in a file. If there is no file, makes one with a new key.
///
/// # Errors
/// [`ManagerKeyError`].
pub fn read_or_make(path: &Path) -> Result<Secret, ManagerKeyError> {
    let failed = |cause| ManagerKeyError::File { path: path.display().to_string(), cause };
    let secret = Secret::random();
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read(path),
        Err(error) => Err(failed(error)),
        Ok(mut file) => {
            let text = secret.to_text();
            let written = file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n"));
            written.and_then(|()| file.sync_all()).map_err(failed)?;
            Ok(secret)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once_for_its_owner_only_and_read_again() {
        let _deadline = deadline();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        assert!(matches!(read(&path), Err(ManagerKeyError::File { .. })));
        let made = read_or_make(&path).expect("a new key");
        assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
        for again in [read_or_make(&path), read(&path)] {
            assert_eq!(again.expect("the key").fingerprint(), made.fingerprint());
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("its owner may");
        assert!(matches!(read(&path), Err(ManagerKeyError::Open { .. })));
        std::fs::write(&path, "DHHC-1:01:AAAA:").expect("its owner may");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its owner may");
        let error = read(&path).expect_err("no key").to_string();
        assert!(error.contains("32 bytes") && !error.contains("AAAA"), "{error}");
    }
}
