// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of a data file. Each message names the file.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a file is not to be used as an SSD.
#[derive(Debug, Error)]
pub enum DataFileError {
    /// The operating system refused.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is in use, by another process or by another handle of this one.
    #[error("{}: in use by another process as an SSD; one file serves one SSD at a time", .0.display())]
    Locked(PathBuf),
    /// A block device that another process has opened exclusively.
    #[error("{}: in use: it is mounted, part of something else (swap, RAID, LVM), or an SSD of another \
        process", .0.display())]
    Busy(PathBuf),
    /// Neither a file nor a block device.
    #[error("{}: is {what}; an SSD is kept in a file or on a block device", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// Kind of the file.
        what: &'static str,
    },
    /// The file is blank: an SSD can be made there, but none can be opened.
    #[error("{}: there is no SSD in it yet", .0.display())]
    Blank(PathBuf),
    /// Creation would overwrite something.
    #[error("{}: holds something already ({what}), which a new SSD would overwrite", path.display())]
    Occupied {
        /// The file.
        path: PathBuf,
        /// Kind of the data found.
        what: &'static str,
    },
    /// A block device with too little space.
    #[error("{}: the device has {}, but this SSD needs {}", path.display(), Size(*has), Size(*needs))]
    TooSmall {
        /// The device.
        path: PathBuf,
        /// Size of the device.
        has: u64,
        /// The least size.
        needs: u64,
    },
    /// The file system has too little space.
    #[error("{}: {} of disk space are to be set aside for it, and the file system has {} \
        left", path.display(), Size(*needs), Size(*free))]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Bytes needed.
        needs: u64,
        /// Bytes free.
        free: u64,
    },
    /// The process may not write files of this length.
    #[error("{}: will be {} long, and this process may write files of {} at most: raise the limit (ulimit \
        -f)", path.display(), Size(*needs), Size(*limit))]
    Limited {
        /// The file.
        path: PathBuf,
        /// Length of the file.
        needs: u64,
        /// The process's limit.
        limit: u64,
    },
    /// The file is no SSD of this format, or it is damaged.
    #[error("{}: is not an SSD of GNStor that can be opened: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
}

impl From<DataFileError> for io::Error {
    fn from(error: DataFileError) -> Self {
        let kind = match &error {
            DataFileError::Io { source, .. } => source.kind(),
            DataFileError::Locked(_) => io::ErrorKind::WouldBlock,
            DataFileError::Busy(_) => io::ErrorKind::ResourceBusy,
            DataFileError::NotAFile { .. } => io::ErrorKind::InvalidInput,
            DataFileError::Blank(_) => io::ErrorKind::NotFound,
            DataFileError::Occupied { .. } => io::ErrorKind::AlreadyExists,
            DataFileError::TooSmall { .. } | DataFileError::NoSpace { .. } => io::ErrorKind::StorageFull,
            DataFileError::Limited { .. } => io::ErrorKind::FileTooLarge,
            DataFileError::Refused { .. } => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

/// Bytes, as a person reads them.
pub(crate) struct Size(pub(crate) u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mebibytes = self.0.div_ceil(1 << 20);
        if mebibytes < 10 << 10 {
            write!(f, "{mebibytes} MiB")
        } else {
            write!(f, "{} GiB", mebibytes.div_ceil(1 << 10))
        }
    }
}
