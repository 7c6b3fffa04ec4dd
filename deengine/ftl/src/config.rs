// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a layer is made from, and why it cannot be made.

use gnstor_durable::{DurableError, Sizes};
use gnstor_flash::{Faults, Geometry, GeometryError, MediaConfig, Power, Store};
use gnstor_model::{Collection, Preset};
use std::io;
use std::sync::Arc;

/// Volumes in a permission table.
pub const MAX_VOLUMES: u32 = 4096;
/// Most bytes of an encoded fleet map.
pub const MAP_BYTES: u32 = 1 << 20;
/// Energy budget of a dump (protocol rule 11): 13 ms at 4,950 MB/s.
pub const DUMP_BYTES: u64 = 64 << 20;

/// What a layer is made from.
#[derive(Clone, Debug)]
pub struct FtlConfig {
    /// Shape, times and over-provisioning.
    pub preset: Preset,
    /// Blocks promised.
    pub logical_pages: u64,
    /// Where pages are.
    pub media: MediaConfig,
    /// Where journal, checkpoint, dump and ledger are.
    pub store: Arc<dyn Store>,
    /// What goes wrong.
    pub faults: Arc<Faults>,
    /// When the power goes.
    pub power: Arc<Power>,
    /// Frames for data on its way: writes whose data has not arrived, pages in the write buffer, loads.
    pub spare_frames: u32,
    /// How space is won back.
    pub collection: Collection,
    /// Energy budget of a dump, bytes.
    pub dump_bytes: u64,
    /// Key of the map's permutation, and the identity of a store that is formatted.
    pub seed: u64,
}

/// Why a layer cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The capacity.
    #[error("{0}")]
    Capacity(String),
    /// The geometry.
    #[error("geometry: {0}")]
    Geometry(#[from] GeometryError),
    /// Memory or the file.
    #[error("media: {0}")]
    Media(#[from] io::Error),
    /// The system area.
    #[error("system area: {0}")]
    Durable(#[from] DurableError),
    /// What was found contradicts itself.
    #[error("the SSD cannot be restored: {0}")]
    Damaged(String),
}

pub(crate) fn sizes(
    geometry: &Geometry,
    buffer_pages: u32,
    logical_pages: u64,
    map_words: u64,
    dump_bytes: u64,
) -> Result<Sizes, OpenError> {
    // The longer the journal, the rarer the checkpoints and the longer a restore. It follows the data, so that half of it
    // has room for several times what happens while the write buffer goes to flash.
    let least = (1 << 20) + u64::from(buffer_pages) * 4096;
    let journal_bytes = (map_words * 16).max(least).min(512 << 20).next_multiple_of(4096);
    if logical_pages == 0 {
        return Err(OpenError::Capacity("an SSD holds at least one block of 4 KiB".into()));
    }
    Ok(Sizes {
        map_words,
        superblocks: geometry.superblocks(),
        blocks: geometry.blocks(),
        journal_bytes,
        dump_bytes,
        volumes: MAX_VOLUMES,
        map_bytes: MAP_BYTES,
    })
}
