// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of an SSD as a whole.

use crate::request::Refused;
use gnstor_durable::DurableError;
use gnstor_flash::DataFileError;
use gnstor_ftl::OpenError;
use gnstor_proto::status::Refusal;
use std::io;

/// Why an SSD cannot be made or opened, or has not shut down in order.
#[derive(Debug, thiserror::Error)]
pub enum SsdError {
    /// The translation layer.
    #[error(transparent)]
    Layer(#[from] OpenError),
    /// The data file.
    #[error(transparent)]
    File(#[from] DataFileError),
    /// Memory.
    #[error("memory for the SSD: {0}")]
    Memory(io::Error),
    /// The metadata or the dump.
    #[error("system area: {0}")]
    Durable(#[from] DurableError),
    /// The request is not possible.
    #[error("{0}")]
    Refused(String),
}

impl SsdError {
    /// Whether the content of the file or of the system area cannot be used. Another argument, or room on the
    /// disk, would not help.
    pub fn is_damage(&self) -> bool {
        let is_bad = |kind: io::ErrorKind| !matches!(kind, io::ErrorKind::StorageFull);
        match self {
            Self::Layer(OpenError::Damaged(_)) => true,
            Self::Layer(OpenError::Durable(DurableError::Io { source, .. }))
            | Self::Durable(DurableError::Io { source, .. }) => is_bad(source.kind()),
            Self::Layer(OpenError::Durable(_)) | Self::Durable(_) => true,
            Self::Layer(OpenError::Media(error)) => error.kind() == io::ErrorKind::InvalidData,
            Self::File(error) => matches!(error, DataFileError::Refused { .. }),
            Self::Layer(OpenError::Capacity(_) | OpenError::Geometry(_))
            | Self::Memory(_)
            | Self::Refused(_) => false,
        }
    }
}

/// The refusal of a change that the system area cannot store.
pub(crate) fn not_durable(error: &DurableError) -> Refused {
    tracing::error!("the metadata cannot be written: {error}");
    Refusal::NotReady.into()
}
