// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of pages, units, blocks and superblocks, and conversions between them.
//!
//! ```text
//!   page = (superblock * rows + row) * dies * unit_pages + die * unit_pages + slot
//!   unit = page / unit_pages           block = superblock * dies + die
//! ```
//! So pages are numbered in the order in which they are written: a superblock is filled row after row, each
//! row die after die. Neighbouring dies are on different channels (`channel = die % channels`).

use thiserror::Error;

/// Number of a 4 KiB page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ppa(pub u32);

/// Number of a unit: the pages that one die programs at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Unit(pub u32);

/// Number of a block: the pages that one die erases at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Block(pub u32);

/// Number of a superblock: the block of the same number on every die.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Superblock(pub u32);

/// Shape of a die array, as in a preset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// Channels of the SSD.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Planes of a die, programmed and erased together.
    pub planes: u32,
    /// 4 KiB pages that one die programs at once over all planes, 1 to 64.
    pub unit_pages: u32,
    /// 4 KiB pages that are sensed at once; divides `unit_pages`.
    pub sense_pages: u32,
    /// Units in a block.
    pub rows: u32,
}

impl Shape {
    fn figures(&self) -> [(&'static str, u32); 6] {
        [
            ("channels", self.channels),
            ("dies per channel", self.dies_per_channel),
            ("planes", self.planes),
            ("pages in a unit", self.unit_pages),
            ("pages sensed at once", self.sense_pages),
            ("units in a block", self.rows),
        ]
    }
}

/// A shape that no SSD can have.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum GeometryError {
    /// A figure is zero.
    #[error("an SSD with zero {0} holds nothing: give at least 1")]
    Zero(&'static str),
    /// A unit is larger than a record of a unit can be.
    #[error("a program unit has 1 to 64 pages of 4 KiB, not {0}")]
    UnitPages(u32),
    /// Sensed pages do not nest in a unit.
    #[error(
        "a unit of {unit_pages} pages cannot be sensed {sense_pages} pages at a time: the one must divide \
         the other"
    )]
    SensePages {
        /// Pages of a unit.
        unit_pages: u32,
        /// Pages sensed at once.
        sense_pages: u32,
    },
    /// More pages than a [`Ppa`] can number.
    #[error("an SSD has fewer than 2^32 - 1 pages of 4 KiB (16 TiB); this one would have more")]
    TooLarge,
}

/// A shape and the number of superblocks. Together they determine the address of every page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    shape: Shape,
    superblocks: u32,
    dies: u32,
    superblock_pages: u32,
}

/// With fewer superblocks [`Geometry::for_pages`] makes blocks smaller, because collection needs superblocks
/// to choose from.
const FEW_SUPERBLOCKS: u64 = 64;

impl Geometry {
    /// A geometry of `superblocks` superblocks.
    ///
    /// # Errors
    /// For a zero, a unit that does not fit, or too many pages.
    pub fn new(shape: Shape, superblocks: u32) -> Result<Self, GeometryError> {
        let row_pages = Self::row_pages(&shape)?;
        if superblocks == 0 {
            return Err(GeometryError::Zero("superblocks"));
        }
        let pages = row_pages.checked_mul(u64::from(shape.rows)).ok_or(GeometryError::TooLarge)?;
        let all = pages.checked_mul(u64::from(superblocks)).ok_or(GeometryError::TooLarge)?;
        if all >= u64::from(u32::MAX) {
            return Err(GeometryError::TooLarge);
        }
        let superblock_pages = u32::try_from(pages).map_err(|_| GeometryError::TooLarge)?;
        Ok(Self { shape, superblocks, dies: shape.channels * shape.dies_per_channel, superblock_pages })
    }

    /// The first field in which another geometry differs: its name, its value here, and its value there.
    pub fn difference(&self, other: &Self) -> Option<(&'static str, u32, u32)> {
        let figures = |g: &Self| g.shape.figures().into_iter().chain([("superblocks", g.superblocks)]);
        let mut pairs = figures(self).zip(figures(other));
        pairs.find(|(here, there)| here != there).map(|((name, here), (_, there))| (name, here, there))
    }

    /// The smallest geometry with at least `physical_pages`. If that had fewer than 64 superblocks, its
    /// blocks get fewer rows than the shape says, but at least one.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn for_pages(shape: Shape, physical_pages: u64) -> Result<Self, GeometryError> {
        let row_pages = Self::row_pages(&shape)?;
        if physical_pages == 0 {
            return Err(GeometryError::Zero("pages"));
        }
        // The most rows with which `physical_pages` still need 64 superblocks.
        let most = (physical_pages - 1) / (row_pages * (FEW_SUPERBLOCKS - 1));
        let rows =
            u32::try_from(most.clamp(1, u64::from(shape.rows))).map_err(|_| GeometryError::TooLarge)?;
        let superblocks = physical_pages.div_ceil(row_pages * u64::from(rows));
        Self::new(Shape { rows, ..shape }, u32::try_from(superblocks).map_err(|_| GeometryError::TooLarge)?)
    }

    /// Number of pages in one row over all dies. It checks the whole shape.
    fn row_pages(shape: &Shape) -> Result<u64, GeometryError> {
        if let Some((name, _)) = shape.figures().into_iter().find(|(_, value)| *value == 0) {
            return Err(GeometryError::Zero(name));
        }
        if shape.unit_pages > 64 {
            return Err(GeometryError::UnitPages(shape.unit_pages));
        }
        if !shape.unit_pages.is_multiple_of(shape.sense_pages) {
            let Shape { unit_pages, sense_pages, .. } = *shape;
            return Err(GeometryError::SensePages { unit_pages, sense_pages });
        }
        let dies = shape.channels.checked_mul(shape.dies_per_channel).ok_or(GeometryError::TooLarge)?;
        match u64::from(dies) * u64::from(shape.unit_pages) {
            pages if pages < u64::from(u32::MAX) => Ok(pages),
            _ => Err(GeometryError::TooLarge),
        }
    }

    /// The shape; `rows` as this SSD has them.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Dies of the SSD.
    #[inline]
    pub fn dies(&self) -> u32 {
        self.dies
    }

    /// Superblocks of the SSD.
    #[inline]
    pub fn superblocks(&self) -> u32 {
        self.superblocks
    }

    /// Units in a block.
    #[inline]
    pub fn rows(&self) -> u32 {
        self.shape.rows
    }

    /// Pages in a unit.
    #[inline]
    pub fn unit_pages(&self) -> u32 {
        self.shape.unit_pages
    }

    /// Units in a superblock.
    #[inline]
    pub fn superblock_units(&self) -> u32 {
        self.shape.rows * self.dies
    }

    /// Pages in a superblock.
    #[inline]
    pub fn superblock_pages(&self) -> u32 {
        self.superblock_pages
    }

    /// Pages of the SSD.
    #[inline]
    pub fn pages(&self) -> u64 {
        u64::from(self.superblock_pages) * u64::from(self.superblocks)
    }

    /// Units of the SSD.
    #[inline]
    pub fn units(&self) -> u32 {
        self.superblock_units() * self.superblocks
    }

    /// Blocks of the SSD.
    #[inline]
    pub fn blocks(&self) -> u32 {
        self.superblocks * self.dies
    }

    /// The unit that a page is in.
    #[inline]
    pub fn unit_of(&self, page: Ppa) -> Unit {
        Unit(page.0 / self.shape.unit_pages)
    }

    /// The first page of a unit.
    #[inline]
    pub fn first_page(&self, unit: Unit) -> Ppa {
        Ppa(unit.0 * self.shape.unit_pages)
    }

    /// The die that a unit is on.
    #[inline]
    pub fn die_of(&self, unit: Unit) -> u32 {
        unit.0 % self.dies
    }

    /// The channel that a die is on.
    #[inline]
    pub fn channel_of_die(&self, die: u32) -> u32 {
        die % self.shape.channels
    }

    /// The row of a unit in its block.
    #[inline]
    pub fn row_of(&self, unit: Unit) -> u32 {
        unit.0 / self.dies % self.shape.rows
    }

    /// The superblock that a page is in.
    #[inline]
    pub fn superblock_of(&self, page: Ppa) -> Superblock {
        Superblock(page.0 / self.superblock_pages)
    }

    /// The superblock that a unit is in.
    #[inline]
    pub fn superblock_of_unit(&self, unit: Unit) -> Superblock {
        Superblock(unit.0 / self.superblock_units())
    }

    /// The block that a unit is in.
    #[inline]
    pub fn block_of(&self, unit: Unit) -> Block {
        Block(self.superblock_of_unit(unit).0 * self.dies + self.die_of(unit))
    }

    /// The first unit of a superblock: row 0 on die 0.
    #[inline]
    pub fn first_unit(&self, superblock: Superblock) -> Unit {
        Unit(superblock.0 * self.superblock_units())
    }

    /// The die that a block is on.
    #[inline]
    pub fn die_of_block(&self, block: Block) -> u32 {
        block.0 % self.dies
    }

    /// The superblock that a block is part of.
    #[inline]
    pub fn superblock_of_block(&self, block: Block) -> Superblock {
        Superblock(block.0 / self.dies)
    }

    /// The unit of a block in a row.
    #[inline]
    pub fn unit_at(&self, block: Block, row: u32) -> Unit {
        debug_assert!(row < self.shape.rows);
        let first = self.first_unit(self.superblock_of_block(block));
        Unit(first.0 + row * self.dies + self.die_of_block(block))
    }

    /// The units of a block in the order in which they are programmed.
    pub fn units_of(&self, block: Block) -> impl DoubleEndedIterator<Item = Unit> + use<> {
        let (first, dies) = (self.unit_at(block, 0).0, self.dies);
        (0..self.shape.rows).map(move |row| Unit(first + row * dies))
    }

    /// The pages of a unit, in order.
    pub fn pages_of(&self, unit: Unit) -> impl DoubleEndedIterator<Item = Ppa> + use<> {
        let first = self.first_page(unit).0;
        (first..first + self.shape.unit_pages).map(Ppa)
    }
}
