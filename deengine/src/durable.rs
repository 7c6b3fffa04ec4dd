// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Power on and power off: makes an SSD, opens one from its file, and restores the permission table.
//!
//! ```text
//!   VOLUME ADD, CHMOD, DELETE, MAP SET --written through, in two places--> metadata --> completion (rule 3)
//!   power on: metadata --> table, tombstones, map; journal, checkpoint, dump --> contents          (rule 11)
//! ```
//! A write lease does not survive a power cycle: its end was measured on a clock that stopped. Its holder
//! is told "expired" and renews it. An SSD that may have lost acknowledged writes takes part as a filling
//! one until it is given a newer map.

mod recall;

use crate::config::{FRAMES, SsdConfig, SsdMedia};
use crate::controller::Ssd;
use crate::error::SsdError;
use gnstor_durable::cell::Kind;
use gnstor_durable::{MetadataStore, SsdIdentity};
use gnstor_flash::{DataFile, Faults, FileStore, Flash, MediaConfig, Power, RamStore, Store};
use gnstor_ftl::{DUMP_BYTES, Ftl, FtlConfig, geometry_for};
use gnstor_model::{Difference, Preset};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::placement::mix64;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The description of an SSD in its data file.
#[derive(Clone, PartialEq, Debug)]
pub struct DataFileInfo {
    /// Logical capacity.
    pub capacity_bytes: u64,
    /// The SSD's complete preset.
    pub preset: Preset,
    /// Number of the SSD in its array.
    pub index: u16,
    /// Serial number.
    pub serial: String,
}

/// The environment of an SSD in memory, for tests: faults and power.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Injected faults.
    pub faults: Arc<Faults>,
    /// Power, which a test can cut.
    pub power: Arc<Power>,
    /// The system area, if it outlives the SSD.
    pub store: Option<Arc<RamStore>>,
    /// The flash, if it outlives the SSD.
    pub flash: Option<Arc<Flash>>,
    /// The identity of an SSD that is formatted; `None`: it draws one.
    pub uuid: Option<[u8; 16]>,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            faults: Arc::new(Faults::default()),
            power: Arc::new(Power::steady()),
            store: None,
            flash: None,
            uuid: None,
        }
    }
}

impl Bench {
    /// An environment with the faults of the preset.
    pub fn of(config: &SsdConfig) -> Self {
        Self { faults: Arc::new(config.preset.faults.faults(config.index)), ..Self::default() }
    }
}

fn layer_config(config: &SsdConfig, media: MediaConfig, store: Arc<dyn Store>, bench: &Bench) -> FtlConfig {
    FtlConfig {
        preset: config.preset.clone(),
        logical_pages: config.capacity_bytes / u64::from(BLOCK_BYTES),
        media,
        store,
        faults: Arc::clone(&bench.faults),
        power: Arc::clone(&bench.power),
        spare_frames: FRAMES + 2 * config.preset.buffer_pages,
        collection: config.preset.collection,
        dump_bytes: DUMP_BYTES,
        seed: mix64(0x474E_5374_6F72 ^ u64::from(config.index)),
    }
}

impl Ssd {
    /// An empty SSD: nothing mapped, no volumes, no map. A file must not exist yet; a block device is
    /// overwritten.
    ///
    /// # Errors
    /// [`SsdError`]: no memory, no file, a capacity that is not possible.
    pub fn format(config: SsdConfig) -> Result<Self, SsdError> {
        let bench = Bench::of(&config);
        Self::format_with(config, &bench)
    }

    /// As [`Self::format`], with faults and a power switch.
    ///
    /// # Errors
    /// As [`Self::format`].
    pub fn format_with(config: SsdConfig, bench: &Bench) -> Result<Self, SsdError> {
        let pages = config.capacity_bytes / u64::from(BLOCK_BYTES);
        let bytes = FtlConfig::store_bytes(&config.preset, pages, DUMP_BYTES)?;
        let (media, store): (_, Arc<dyn Store>) = match &config.media {
            SsdMedia::Ram | SsdMedia::SharedRam => {
                let store = bench
                    .store
                    .clone()
                    .unwrap_or_else(|| Arc::new(RamStore::new(bytes, Arc::clone(&bench.power))));
                (MediaConfig::Ram { shared: config.media == SsdMedia::SharedRam }, store)
            }
            SsdMedia::File(path) | SsdMedia::VolatileFile(path) => {
                let geometry = geometry_for(&config.preset, pages)?;
                let file = DataFile::create(path, &geometry, bytes, &label(&config))?;
                let is_volatile = matches!(config.media, SsdMedia::VolatileFile(_));
                let file = Arc::new(if is_volatile { file.volatile() } else { file });
                file.set_note(&plain(&config.preset).to_toml())?;
                (
                    MediaConfig::File(Arc::clone(&file)),
                    Arc::new(FileStore::new(file, Arc::clone(&bench.power))),
                )
            }
        };
        let layer = layer_config(&config, media, store, bench);
        let opened = match &bench.flash {
            Some(flash) => Ftl::format_on(Arc::clone(flash), &layer)?,
            None => Ftl::format(&layer)?,
        };
        let mut ssd = Self::around(config, opened)?;
        if let Some(uuid) = bench.uuid {
            let identity = SsdIdentity { uuid, incarnation: 1 };
            ssd.admin.volumes_mut().metadata_mut().set_identity(identity, None)?;
        }
        Ok(ssd)
    }

    /// Opens the SSD in a file, with its contents. From now on it uses the settings of `config`, as far as
    /// they can change. `progress` is called during a rebuild that reads all records.
    ///
    /// # Errors
    /// [`SsdError`]: there is no such file, it has another capacity, its preset differs in fixed settings, or
    /// another process uses it.
    pub fn open(config: SsdConfig, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Self, SsdError> {
        let Some((path, is_volatile)) = config.media.file() else {
            return Err(SsdError::Refused("an SSD in memory has nothing to open".into()));
        };
        let file = DataFile::open(path)?;
        let file = Arc::new(if is_volatile { file.volatile() } else { file });
        let info = info(&file)?;
        let refused = |what: String| Err(SsdError::Refused(format!("{}: {what}", path.display())));
        if info.capacity_bytes != config.capacity_bytes {
            let (has, wanted) = (info.capacity_bytes, config.capacity_bytes);
            return refused(format!("it holds an SSD of {has} bytes, not one of {wanted}"));
        }
        let differences = info.preset.differences(&config.preset);
        if let Some(Difference { key, one, other, .. }) =
            differences.iter().find(|difference| difference.is_fixed)
        {
            return refused(format!("it holds an SSD with {key} = {one}, not {other}"));
        }
        if !differences.is_empty() {
            file.set_note(&plain(&config.preset).to_toml())?;
        }
        let media = MediaConfig::File(Arc::clone(&file));
        let bench = Bench::of(&config);
        let store = Arc::new(FileStore::new(file, Arc::clone(&bench.power)));
        let layer = layer_config(&config, media, store, &bench);
        let opened = Ftl::open(&layer, is_live, progress)?;
        Self::around(config, opened)
    }

    /// Opens an SSD in memory after its power came back.
    ///
    /// # Errors
    /// [`SsdError`].
    pub fn reopen(config: SsdConfig, bench: &Bench) -> Result<Self, SsdError> {
        let (Some(store), Some(flash)) = (&bench.store, &bench.flash) else {
            return Err(SsdError::Refused(
                "an SSD in memory is opened on the flash and store that it left".into(),
            ));
        };
        let media = MediaConfig::Ram { shared: config.media == SsdMedia::SharedRam };
        let layer = layer_config(&config, media, Arc::clone(store) as _, bench);
        let opened = Ftl::open_on(Arc::clone(flash), &layer, is_live, &|_, _| {})?;
        Self::around(config, opened)
    }

    /// Makes or opens the SSD in a file, with another store for its system area, and with faults and a power
    /// switch.
    #[cfg(test)]
    pub(crate) fn on_file(
        config: SsdConfig,
        bench: &Bench,
        file: Arc<DataFile>,
        store: Arc<dyn Store>,
        is_new: bool,
    ) -> Result<Self, SsdError> {
        let layer = layer_config(&config, MediaConfig::File(file), store, bench);
        let opened = if is_new { Ftl::format(&layer)? } else { Ftl::open(&layer, is_live, &|_, _| {})? };
        Self::around(config, opened)
    }

    /// Describes the SSD in a data file.
    ///
    /// # Errors
    /// [`SsdError`]: no such file, not a data file, in use.
    pub fn describe(path: &Path) -> Result<DataFileInfo, SsdError> {
        info(&DataFile::open(path)?)
    }

    /// Stops in good order: everything is durable, and the next start finds nothing to restore.
    ///
    /// # Errors
    /// [`SsdError`]; then the next start is one after a power failure.
    pub fn shut_down(&mut self) -> Result<(), SsdError> {
        self.finish_changes();
        self.save_smart_counters();
        Ok(self.ftl().shut_down()?)
    }

    /// The power fails. If the preset has power protection, there is energy for a dump. Returns the dump's
    /// bytes, 0 without one. Nothing may be submitted afterwards.
    ///
    /// # Errors
    /// [`SsdError`]: the dump could not be written.
    pub fn power_fail(&mut self) -> Result<u64, SsdError> {
        if !self.config().preset.power_protected {
            return Ok(0);
        }
        let dump = self.ftl().power_fail();
        self.smart_mut().set_backup_failed(dump.is_err());
        self.save_smart_counters();
        Ok(dump?)
    }

    /// How often each SSD of its array has been opened and shut down, as far as this SSD knows.
    pub fn openings(&self) -> &[u64] {
        &self.admin.volumes().metadata().contents().openings
    }

    /// Writes down how often each SSD of its array has been opened. Waits for the disk.
    ///
    /// # Errors
    /// [`SsdError`]: the system area does not take it.
    pub fn set_openings(&mut self, openings: &[u64]) -> Result<(), SsdError> {
        Ok(self.admin.volumes_mut().metadata_mut().set_openings(openings)?)
    }

    /// The permission entries that it keeps, of volumes that are being deleted, too.
    pub fn volume_entries(&self) -> BTreeMap<Vid, VolumeEntry> {
        let entries = self.admin.volumes().metadata().contents().entries.iter();
        entries.filter_map(|(&vid, bytes)| Some((vid, VolumeEntry::decode(bytes).ok()?))).collect()
    }

    /// Whether acknowledged writes may be missing. Then the SSD takes writes and serves no reads.
    pub fn is_filling(&self) -> bool {
        self.admin.volumes().is_filling() || self.admin.volumes().stands_in()
    }

    /// Places of the permission metadata that could not be read when it started.
    pub fn lost_places(&self) -> usize {
        let is_of_table = |kind: &&Kind| **kind != Kind::Held;
        self.admin.volumes().metadata().lost().iter().filter(is_of_table).count()
    }

    /// Waits until changes that have begun are on the disk. No command waits for them any more.
    fn finish_changes(&mut self) {
        if let Err(error) = self.admin.volumes_mut().metadata_mut().finish() {
            tracing::warn!("a change of the metadata was not acknowledged and is not kept: {error}");
        }
    }
}

/// Whether a volume lives in this generation, for a rebuild.
fn is_live(metadata: &MetadataStore, vid: Vid, generation: u32) -> bool {
    let entry = metadata.contents().entries.get(&vid).and_then(|bytes| VolumeEntry::decode(bytes).ok());
    entry.is_some_and(|entry| entry.generation == generation && !entry.deleting)
}

fn label(config: &SsdConfig) -> String {
    format!("{} {} {}", config.index, config.capacity_bytes, config.serial)
}

/// Without the figures that a preset of this name must reach: an SSD does not need them.
fn plain(preset: &Preset) -> Preset {
    Preset { figures: Vec::new(), ..preset.clone() }
}

fn info(file: &DataFile) -> Result<DataFileInfo, SsdError> {
    let label = file.label();
    let refuse = || SsdError::Refused(format!("the data file's label is not an SSD's: {label:?}"));
    let mut words = label.splitn(3, ' ');
    let mut next = || words.next().ok_or_else(refuse);
    let (index, capacity) = (next()?, next()?);
    let text = file.note()?;
    let text =
        text.ok_or_else(|| SsdError::Refused("formatting was cut short, so it holds nothing".into()))?;
    let preset = Preset::from_toml(&text).map_err(|error| {
        SsdError::Refused(format!("the preset that it was made with cannot be read: {error}"))
    })?;
    Ok(DataFileInfo {
        index: index.parse().map_err(|_| refuse())?,
        capacity_bytes: capacity.parse().map_err(|_| refuse())?,
        preset,
        serial: next()?.to_owned(),
    })
}
