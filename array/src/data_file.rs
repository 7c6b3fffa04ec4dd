// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file or device of an SSD: its state before an SSD is made there, and after a failure.

use crate::media_error::MediaError;
use gnstor_deengine::{DataFileInfo, Ssd, SsdError};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// So many zeros over either end of a device leave no mark of a file system or of an SSD.
const ENDS: u64 = 1 << 20;
/// An empty file of this length asks for a sparse SSD.
const HOLE: u64 = 4096;

/// Examines a path: `Some` if an SSD is there, `None` if one can be made. With `format` the contents are
/// given up, unless a process uses them.
pub(crate) fn look(path: &Path, format: bool) -> Result<Option<DataFileInfo>, MediaError> {
    let (reason, kind) = match Ssd::describe(path) {
        Ok(info) if !format => return Ok(Some(info)),
        Ok(_) => (String::new(), ErrorKind::InvalidData),
        Err(SsdError::File(error)) => (error.to_string(), io::Error::from(error).kind()),
        Err(error) => (format!("{}: {error}", path.display()), ErrorKind::InvalidData),
    };
    match kind {
        ErrorKind::InvalidData if !format => Err(MediaError::Damaged(given_up(&reason))),
        ErrorKind::NotFound | ErrorKind::InvalidData => {
            if format {
                wipe(path)
                    .map_err(|e| MediaError::File(format!("{}: cannot be wiped: {e}", path.display())))?;
            }
            Ok(None)
        }
        _ => Err(MediaError::File(reason)),
    }
}

/// What the user can do with a file that has other contents.
fn given_up(reason: &str) -> String {
    format!("{reason}; gnstor ssd --format gives up what it holds and makes a new SSD there")
}

fn wipe(path: &Path) -> io::Result<()> {
    let meta = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        meta => meta?,
    };
    let file = OpenOptions::new().write(true).open(path)?;
    if meta.is_file() {
        // A hole has no contents, and its owner wants a sparse SSD.
        if meta.blocks() > 0 {
            file.set_len(0)?;
        }
    } else {
        let end = io::Seek::seek(&mut &file, io::SeekFrom::End(0))?;
        let zeros = vec![0; usize::try_from(ENDS.min(end)).map_err(io::Error::other)?];
        file.write_all_at(&zeros, 0)?;
        file.write_all_at(&zeros, end - zeros.len() as u64)?;
    }
    file.sync_all()
}

/// The state of a path before an SSD was made there, so that a failure can restore it.
#[derive(Debug)]
pub(crate) struct Before<'a> {
    path: &'a Path,
    was_there: bool,
    is_device: bool,
    sparse: bool,
}

impl<'a> Before<'a> {
    /// Prepares a path for [`Ssd::format`].
    pub(crate) fn new(path: &'a Path, sparse: bool) -> io::Result<Self> {
        let meta = std::fs::metadata(path);
        let is_device = meta.as_ref().is_ok_and(|meta| meta.file_type().is_block_device());
        if sparse && meta.as_ref().map_or(true, |meta| meta.is_file() && meta.len() == 0) {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(false).mode(0o600).open(path);
            file.and_then(|file: File| file.set_len(HOLE))?;
        }
        Ok(Self { path, was_there: meta.is_ok(), is_device, sparse })
    }

    /// The error if no SSD could be made there: the reason, and what to do.
    pub(crate) fn failed(&self, error: SsdError) -> String {
        let mut text = error.to_string();
        let of_file = match error {
            SsdError::File(error) => Some(io::Error::from(error).kind()),
            _ => None,
        };
        match of_file {
            Some(ErrorKind::StorageFull) if !self.is_device && !self.sparse => {
                text.push_str(
                    ": make room, take a smaller size, or have the file grow as it is written, with --sparse",
                );
            }
            Some(ErrorKind::AlreadyExists) => text = given_up(&text),
            _ => {}
        }
        let is_hole =
            || std::fs::metadata(self.path).is_ok_and(|meta| meta.len() == HOLE && meta.blocks() == 0);
        // The data file has removed what it could not finish. A file that is there now belongs to another
        // process.
        let is_left = if of_file.is_some() { self.sparse && is_hole() } else { !self.is_device };
        if is_left && !self.was_there {
            remove(self.path);
        }
        text
    }
}

/// Removes an empty file that this process made.
pub(crate) fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "what was made could not be taken back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_sparse_data_file_is_its_owners_alone_too() {
        let _deadline = gnstor_base::testing::deadline();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ssd-0.gns");
        Before::new(&path, true).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
