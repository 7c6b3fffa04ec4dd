// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disk space of a file, set aside before it is needed.

use super::DataFileError;
use crate::sys;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes of a block in which a file's space is counted.
const COUNTED: u64 = 512;

/// More zeros than this are not looked through.
const MOST_ZEROS: u64 = 1 << 30;

/// Whether a file holds anything but zeros, or too much to be looked through.
pub(super) fn has_data(file: &File) -> io::Result<bool> {
    // List all parts before the first read, since readahead turns holes into parts.
    let (mut parts, mut seen) = (Vec::new(), 0);
    while let Some(part) = sys::next_data(file, parts.last().map_or(0, |part: &Range<u64>| part.end))? {
        seen += part.end - part.start;
        if seen > MOST_ZEROS {
            return Ok(true);
        }
        parts.push(part);
    }
    let mut bytes = vec![0; 1 << 20];
    for part in parts {
        for from in part.clone().step_by(bytes.len()) {
            let piece = usize::try_from(part.end - from).unwrap_or(usize::MAX).min(bytes.len());
            file.read_exact_at(&mut bytes[..piece], from)?;
            if bytes[..piece].iter().any(|&byte| byte != 0) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Sets space aside under the first `bytes` of a file, on any file system.
pub(super) fn reserve(path: &Path, file: &File, bytes: u64) -> Result<(), DataFileError> {
    set_aside(path, file, bytes, sys::reserve).map(drop)
}

/// As [`reserve`], but only if the file system can reserve space without writing. Returns false if it cannot.
pub(super) fn reserve_data(path: &Path, file: &File, bytes: u64) -> Result<bool, DataFileError> {
    let set = set_aside(path, file, bytes, sys::reserve_at_once)?;
    if !set {
        tracing::warn!(
            path = %path.display(),
            "this file system sets no space aside: when it is full, writes to the SSD wait until there is \
             room"
        );
    }
    Ok(set)
}

fn set_aside(
    path: &Path,
    file: &File,
    bytes: u64,
    how: impl FnOnce(&File, u64) -> io::Result<()>,
) -> Result<bool, DataFileError> {
    let failed = |source| DataFileError::Io { path: path.into(), what: "setting disk space aside", source };
    let meta = file.metadata().map_err(failed)?;
    let has = meta.blocks() * COUNTED;
    if has >= bytes.max(meta.len()) {
        return Ok(true);
    }
    let full = |free| DataFileError::NoSpace { path: path.into(), needs: bytes, free };
    // Checking first avoids that a request which cannot succeed fills the disk, or that root takes its own
    // reserve.
    let room = sys::room(file).map_err(failed)?;
    let lacks = if meta.len() <= bytes { bytes.saturating_sub(has) } else { 0 };
    if let Some(free) = room.filter(|&free| free < lacks) {
        return Err(full(free));
    }
    match how(file, bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        Err(error) if is_full(&error) => Err(full(room.unwrap_or(0))),
        Err(error) => Err(failed(error)),
    }
}

/// The file system is full, or the owner's quota is.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
