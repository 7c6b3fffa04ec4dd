// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of a modelled SSD: its parts, the cost of each, and the figures that it must reach.
//!
//! The crate's presets are files of `presets/`, in the same format as a user's own. Every number stands
//! beside its source or the arithmetic behind it.

mod change;
mod checks;
mod file;
mod settings;

pub use change::Difference;
pub use settings::{Collection, FaultPlan, Policy, SlowDie};

use crate::figure::Figure;
use gnstor_base::time::Span;
use gnstor_flash::{Geometry, GeometryError, Shape};
use serde::Deserialize;
use thiserror::Error;

/// Figures of one SSD. A time or a rate of zero means "takes no time".
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(try_from = "file::PresetFile")]
pub struct Preset {
    /// Name, as [`Preset::by_name`] takes it.
    pub name: String,
    /// Channels, dies, planes, pages that are sensed and programmed at once, rows of a block.
    pub shape: Shape,
    /// Each plane senses on its own, as recent flash does. Otherwise a sense holds the whole die.
    pub independent_planes: bool,
    /// Serial firmware time of a read command, ns: one command delays the next by it.
    pub fw_read_ns: u64,
    /// Serial firmware time of any other command, ns.
    pub fw_write_ns: u64,
    /// Latency of the permission check and the map's hashes, ns. Pipelined: it delays a command, not the next
    /// one.
    pub hash_ns: u64,
    /// Other pipelined latency of a read (front end, error correction, completion), ns.
    pub fixed_read_ns: u64,
    /// Other pipelined latency of a write, ns.
    pub fixed_write_ns: u64,
    /// Sensing time of a flash page (tR), ns.
    pub sense_ns: u64,
    /// Program time of a unit (tPROG), ns; for several bits a cell the mean over its pages.
    pub program_ns: u64,
    /// Erase time of a block of `shape.rows` rows (tERASE), ns. A smaller block takes its share.
    pub erase_ns: u64,
    /// Rate of a channel, bytes/s.
    pub channel_bytes_per_s: u64,
    /// Rate of the SSD's link towards the host, bytes/s.
    pub to_host_bytes_per_s: u64,
    /// Rate of the SSD's link from the host, bytes/s.
    pub from_host_bytes_per_s: u64,
    /// Physical space beyond the logical, in thousandths of the logical.
    pub over_provisioning_permille: u32,
    /// 4 KiB pages of write buffer.
    pub buffer_pages: u32,
    /// Whether the write buffer survives a power failure.
    pub power_protected: bool,
    /// Settings of collection.
    pub collection: Collection,
    /// Faults at a rate.
    pub faults: FaultPlan,
    /// Figures that the model must reach.
    pub figures: Vec<Figure>,
}

/// The presets of the crate: name and file.
const BUILT_IN: &[(&str, &str)] = &[
    ("gnstor-980pro", include_str!("../presets/gnstor-980pro.toml")),
    ("970pro", include_str!("../presets/970pro.toml")),
    ("p5800x", include_str!("../presets/p5800x.toml")),
    ("pm1743", include_str!("../presets/pm1743.toml")),
    ("cm7r", include_str!("../presets/cm7r.toml")),
    ("9550max", include_str!("../presets/9550max.toml")),
    ("ps1010", include_str!("../presets/ps1010.toml")),
    ("null", include_str!("../presets/null.toml")),
];

/// With fewer superblocks blocks are made smaller.
const FEW_SUPERBLOCKS: u64 = 256;

const fn names<const N: usize>() -> [&'static str; N] {
    let mut names = [""; N];
    let mut index = 0;
    while index < N {
        names[index] = BUILT_IN[index].0;
        index += 1;
    }
    names
}

impl Preset {
    /// The names that [`Self::by_name`] knows.
    pub const NAMES: &'static [&'static str] = &names::<{ BUILT_IN.len() }>();

    /// The preset of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        Some(Self::from_toml(text).expect("the crate's own presets are checked by its tests"))
    }

    /// Reads a user's preset. `base` names the preset that fills in missing keys; without it every key must
    /// be there. `presets/example.toml` explains each.
    pub fn from_toml(text: &str) -> Result<Self, PresetError> {
        let file: file::PresetFile = toml::from_str(text)?;
        Self::try_from(file)
    }

    /// The preset as a file that [`Self::from_toml`] reads back: a start for one's own.
    pub fn to_toml(&self) -> String {
        toml::to_string(&file::PresetFile::from(self)).expect("numbers, words and a list of them are TOML")
    }

    /// Figures that the model must reach.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Whether the preset takes no time.
    pub fn is_null(&self) -> bool {
        self.times_ns().iter().all(|(_, ns)| *ns == 0) && self.rates().iter().all(|(_, rate)| *rate == 0)
    }

    /// Time that a page costs a busy SSD: to read one, and to write one. In a long run over all dies the
    /// slowest part decides: the link, the channels, or the flash.
    pub fn page_costs(&self) -> (Span, Span) {
        let shape = &self.shape;
        let dies = u64::from(shape.channels.max(1)) * u64::from(shape.dies_per_channel.max(1));
        let planes = if self.independent_planes { u64::from(shape.planes.max(1)) } else { 1 };
        let page = |rate: u64| Span::transfer(gnstor_flash::PAGE_BYTES.into(), rate);
        let channels = page(self.channel_bytes_per_s).as_ps() / u64::from(shape.channels.max(1));
        let sensed = dies * planes * u64::from(shape.sense_pages.max(1));
        let programmed = dies * u64::from(shape.unit_pages.max(1));
        let read = [page(self.to_host_bytes_per_s).as_ps(), channels, self.sense_ns * 1000 / sensed];
        let write = [page(self.from_host_bytes_per_s).as_ps(), channels, self.program_ns * 1000 / programmed];
        let slowest = |costs: [u64; 3]| Span::from_ps(costs.into_iter().max().unwrap_or_default());
        (slowest(read), slowest(write))
    }

    /// Number of physical pages for this many logical ones, without [`Self::reserved_superblocks`].
    pub fn physical_pages(&self, logical_pages: u64) -> u64 {
        let spare = u128::from(logical_pages) * u128::from(self.over_provisioning_permille);
        let spare = u64::try_from(spare.div_ceil(1000)).unwrap_or(u64::MAX);
        logical_pages.saturating_add(spare)
    }

    /// The geometry of an SSD with this many logical pages, with over-provisioned space and
    /// [`Self::reserved_superblocks`]. Blocks get fewer rows than the shape says where there would be fewer
    /// than 256 superblocks. The rows are chosen so that the least space remains beyond the request. An SSD
    /// with more spare space than the preset's would collect less.
    pub fn geometry(&self, logical_pages: u64) -> Result<Geometry, GeometryError> {
        let pages = self.physical_pages(logical_pages);
        let row = Geometry::new(Shape { rows: 1, ..self.shape }, 1)?.pages();
        let most = (pages / (row * FEW_SUPERBLOCKS)).clamp(1, u64::from(self.shape.rows));
        let held = |rows: u64| pages.div_ceil(row * rows).saturating_mul(row * rows);
        let rows = (most.div_ceil(2)..=most).rev().min_by_key(|rows| held(*rows)).unwrap_or(most);
        let superblocks = (held(rows) / (row * rows)).saturating_add(u64::from(self.reserved(row * rows)));
        let rows = u32::try_from(rows).map_err(|_| GeometryError::TooLarge)?;
        Geometry::new(
            Shape { rows, ..self.shape },
            u32::try_from(superblocks).map_err(|_| GeometryError::TooLarge)?,
        )
    }

    /// Superblocks that an SSD needs beyond its over-provisioned space. Two are open, and collection starts
    /// while all but two of the others are still free. So no stream waits for an erase behind the write
    /// buffer's programs. The buffer of a small SSD is larger than a superblock, and its collection costs as
    /// much as a real SSD's.
    pub fn reserved_superblocks(&self, geometry: &Geometry) -> u32 {
        self.reserved(geometry.superblock_pages().into())
    }

    fn reserved(&self, superblock_pages: u64) -> u32 {
        let behind_buffer = (2 * u64::from(self.buffer_pages)).div_ceil(superblock_pages.max(1));
        u32::try_from(3 + behind_buffer).unwrap_or(u32::MAX)
    }

    fn times_ns(&self) -> [(&'static str, u64); 8] {
        [
            ("fw_read_ns", self.fw_read_ns),
            ("fw_write_ns", self.fw_write_ns),
            ("hash_ns", self.hash_ns),
            ("fixed_read_ns", self.fixed_read_ns),
            ("fixed_write_ns", self.fixed_write_ns),
            ("sense_ns", self.sense_ns),
            ("program_ns", self.program_ns),
            ("erase_ns", self.erase_ns),
        ]
    }

    fn rates(&self) -> [(&'static str, u64); 3] {
        [
            ("channel_bytes_per_s", self.channel_bytes_per_s),
            ("to_host_bytes_per_s", self.to_host_bytes_per_s),
            ("from_host_bytes_per_s", self.from_host_bytes_per_s),
        ]
    }
}

/// Why a preset file is refused.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum PresetError {
    /// Not TOML, an unknown key, or a value of the wrong kind; the message names the line.
    #[error("the preset file cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// `base` names nothing.
    #[error("`base = {0:?}` is no preset; there are {known}", known = Preset::NAMES.join(", "))]
    NoSuchBase(String),
    /// A key is missing, and there is no base that has it.
    #[error("`{0}` is missing; give it, or name a preset to take it from: base = \"gnstor-980pro\"")]
    Missing(&'static str),
    /// The name could not be typed on a command line.
    #[error("name {0:?} must have 1 to 32 of a-z, A-Z, 0-9, `-`, `_` and `.`")]
    Name(String),
    /// A number is out of its range.
    #[error("`{key} = {value}` must be from {least} to {most}")]
    Range {
        /// The key.
        key: &'static str,
        /// Value of the key.
        value: u64,
        /// The least value.
        least: u64,
        /// The greatest value.
        most: u64,
    },
    /// A chance is out of its range.
    #[error("`{key} = {value}` must be from 0 to {most}")]
    Chance {
        /// The key.
        key: &'static str,
        /// Value of the key.
        value: f64,
        /// The greatest value.
        most: f64,
    },
    /// A change of a preset that cannot be.
    #[error("{setting}: {reason}")]
    Setting {
        /// The setting as it was given.
        setting: String,
        /// Reason.
        reason: String,
    },
    /// Units do not nest.
    #[error(
        "`unit_pages = {unit_pages}` must be a multiple of `sense_pages = {sense_pages}`: a program covers \
         whole flash pages"
    )]
    UnitOfSenses {
        /// Pages programmed at once.
        unit_pages: u32,
        /// Pages sensed at once.
        sense_pages: u32,
    },
    /// Units do not nest.
    #[error(
        "`unit_pages = {unit_pages}` must be a multiple of `planes = {planes}` times `sense_pages = \
         {sense_pages}`: each plane has its flash page in a program"
    )]
    UnitOfPlanes {
        /// Pages programmed at once.
        unit_pages: u32,
        /// Planes of a die.
        planes: u32,
        /// Pages sensed at once.
        sense_pages: u32,
    },
    /// The buffer would be full before a unit is.
    #[error("`buffer_pages = {buffer_pages}` must be at least {least}: two units and a command of 256 pages")]
    BufferTooSmall {
        /// Pages of write buffer.
        buffer_pages: u32,
        /// Least value.
        least: u32,
    },
    /// More than a power failure leaves time to write.
    #[error(
        "`buffer_pages = {buffer_pages}` is more than the {most} that can be saved at a power failure; \
         make it smaller or say `power_protected = false`"
    )]
    BufferBeyondEnergy {
        /// Pages of write buffer.
        buffer_pages: u32,
        /// Pages that a dump has room for.
        most: u32,
    },
    /// A figure makes no sense.
    #[error("figure {index} ({what}): {problem}")]
    Figure {
        /// Position of the figure in the file, from 1.
        index: usize,
        /// Load of the figure.
        what: String,
        /// Reason.
        problem: &'static str,
    },
}
