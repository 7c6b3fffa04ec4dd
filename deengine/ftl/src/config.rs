// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configuration of a layer, its sizes, and errors of opening it.

use crate::reserve::reserved_superblocks;
use gnstor_durable::{DurableError, Sizes};
use gnstor_flash::{DataFile, Faults, Geometry, GeometryError, MediaConfig, Power, Store};
use gnstor_map::Map;
use gnstor_model::{Collection, Preset};
use std::io;
use std::sync::Arc;

/// Most volumes of a large SSD; a small one has room for fewer, [`volumes_for`].
pub const MAX_VOLUMES: u32 = 4096;
/// Volumes that every SSD has room for.
const LEAST_VOLUMES: u64 = 64;
/// An SSD has room for one volume per this many blocks: 2 MiB.
const BLOCKS_PER_VOLUME: u64 = 512;
/// Most bytes of an encoded fleet map.
pub const MAP_BYTES: u32 = 1 << 20;
const _: () = assert!(gnstor_proto::placement::MAP_BYTES <= MAP_BYTES as usize);
/// Energy budget of a dump (protocol rule 11) on a large SSD: 13 ms at 4,950 MB/s.
pub const DUMP_BYTES: u64 = 64 << 20;
/// Capacity of a small SSD, divided by the bytes of its dump.
const DUMP_SHARE: u64 = 64;
/// A dump has room for at least this many times the write buffer.
const DUMP_BUFFERS: u64 = 4;
/// Bytes of a dump beside the write buffer: the journal's tail, heads of groups, units that are being filled.
const DUMP_BESIDE: u64 = 4 << 20;

/// Volumes that an SSD has room for: permission entries, tombstones and stamp histories.
///
/// Each takes 160 KiB of disk. The SSD refuses a volume beyond them with `TableFull`.
pub fn volumes_for(logical_pages: u64) -> u32 {
    let volumes = (logical_pages / BLOCKS_PER_VOLUME).max(LEAST_VOLUMES);
    u32::try_from(volumes).map_or(MAX_VOLUMES, |volumes| volumes.min(MAX_VOLUMES))
}

/// Bytes that a dump of this SSD may have, `most` at the most.
fn dump_for(buffer_pages: u32, logical_pages: u64, most: u64) -> u64 {
    let least = DUMP_BUFFERS * u64::from(buffer_pages) * BLOCK + DUMP_BESIDE;
    (logical_pages.saturating_mul(BLOCK) / DUMP_SHARE).max(least).min(most).next_multiple_of(BLOCK)
}

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// Configuration of a layer.
#[derive(Clone, Debug)]
pub struct FtlConfig {
    /// Shape, times and over-provisioning.
    pub preset: Preset,
    /// Blocks promised.
    pub logical_pages: u64,
    /// Medium of the pages.
    pub media: MediaConfig,
    /// Store of journal, checkpoint, dump and metadata store.
    pub store: Arc<dyn Store>,
    /// Injected faults.
    pub faults: Arc<Faults>,
    /// Power of the SSD, which tests can cut.
    pub power: Arc<Power>,
    /// Frames for data on its way: writes whose data has not arrived, pages in the write buffer, loads.
    pub spare_frames: u32,
    /// Settings of collection.
    pub collection: Collection,
    /// Energy budget of a dump in bytes; a small SSD has less, see [`FtlConfig::sizes`].
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
    /// The structures of the SSD contradict each other.
    #[error("the SSD cannot be restored: {0}")]
    Damaged(String),
}

/// The geometry of an SSD of this preset that promises `logical_pages`.
///
/// # Errors
/// Where no such geometry exists.
pub fn geometry_for(preset: &Preset, logical_pages: u64) -> Result<Geometry, OpenError> {
    if logical_pages == 0 {
        return Err(OpenError::Capacity("an SSD holds at least one block of 4 KiB".into()));
    }
    let geometry = preset.geometry(logical_pages)?;
    let held = preset.physical_pages(logical_pages).div_ceil(geometry.superblock_pages().into());
    let superblocks = held + u64::from(reserved_superblocks(preset, &geometry, logical_pages));
    let superblocks = u32::try_from(superblocks)
        .map_err(|_| OpenError::Capacity(format!("{logical_pages} blocks are too many")))?;
    Ok(Geometry::new(*geometry.shape(), superblocks)?)
}

impl FtlConfig {
    /// How large the store for the system area must be.
    ///
    /// # Errors
    /// As [`geometry_for`].
    pub fn store_bytes(preset: &Preset, logical_pages: u64, dump_bytes: u64) -> Result<u64, OpenError> {
        Ok(Self::sizes(preset, logical_pages, dump_bytes)?.store_bytes())
    }

    /// Number of disk bytes of such an SSD's data file: system area, records and data.
    ///
    /// # Errors
    /// As [`geometry_for`], or that no such file is possible.
    pub fn data_file_bytes(preset: &Preset, logical_pages: u64, dump_bytes: u64) -> Result<u64, OpenError> {
        let system_bytes = Self::store_bytes(preset, logical_pages, dump_bytes)?;
        let geometry = geometry_for(preset, logical_pages)?;
        DataFile::bytes_for(&geometry, system_bytes).map_err(OpenError::Capacity)
    }

    /// Sizes with which the system area is formatted.
    ///
    /// # Errors
    /// As [`geometry_for`].
    pub fn sizes(preset: &Preset, logical_pages: u64, dump_bytes: u64) -> Result<Sizes, OpenError> {
        let geometry = geometry_for(preset, logical_pages)?;
        let words = Map::words_for(logical_pages, geometry.pages())
            .ok_or_else(|| OpenError::Capacity(format!("a map of {logical_pages} blocks is not possible")))?;
        sizes(&geometry, preset.buffer_pages, logical_pages, words, dump_bytes)
    }
}

pub(crate) fn sizes(
    geometry: &Geometry,
    buffer_pages: u32,
    logical_pages: u64,
    map_words: u64,
    dump_bytes: u64,
) -> Result<Sizes, OpenError> {
    // A longer journal means fewer checkpoints and a longer restore. Half of it holds several times the
    // transactions that are committed while the write buffer is programmed.
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
        dump_bytes: dump_for(buffer_pages, logical_pages, dump_bytes),
        volumes: volumes_for(logical_pages),
        map_bytes: MAP_BYTES,
        held_map: true,
    })
}
