// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conditions that a preset must meet before a model is built from it.

use super::{Preset, PresetError};
use crate::figure::Figure;

/// Number of buffered pages that a power-failure dump has room for. Its energy budget is 16,384 pages (64
/// MiB). Some 250 of them are heads of groups. The rest is for the journal's tail, and for a command that
/// finds the buffer full.
const DUMP_PAGES: u32 = 15_616;
/// The largest command that must fit into the buffer beside two units.
const COMMAND_PAGES: u32 = 256;
/// A second: longer than any flash operation.
const MOST_NS: u64 = 1_000_000_000;
/// 1 TB/s.
const MOST_BYTES_PER_S: u64 = 1_000_000_000_000;

impl Preset {
    /// Every value in its range, and units that nest.
    pub(super) fn check(&self) -> Result<(), PresetError> {
        self.check_name()?;
        self.check_shape()?;
        for (key, value) in self.times_ns() {
            range(key, value, 0, MOST_NS)?;
        }
        for (key, value) in self.rates() {
            // 0 takes no time; below 1 MB/s a page would take longer than everything else together.
            if value != 0 {
                range(key, value, 1_000_000, MOST_BYTES_PER_S)?;
            }
        }
        range("over_provisioning_permille", self.over_provisioning_permille.into(), 10, 4000)?;
        self.check_buffer()?;
        self.collection.check()?;
        self.faults.check(self.shape.channels * self.shape.dies_per_channel)?;
        self.figures.iter().enumerate().try_for_each(|(number, figure)| check_figure(number + 1, figure))
    }

    fn check_name(&self) -> Result<(), PresetError> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=32).contains(&self.name.len()) || !self.name.bytes().all(good) {
            return Err(PresetError::Name(self.name.clone()));
        }
        Ok(())
    }

    fn check_shape(&self) -> Result<(), PresetError> {
        let shape = self.shape;
        range("channels", shape.channels.into(), 1, 64)?;
        range("dies_per_channel", shape.dies_per_channel.into(), 1, 64)?;
        range("planes", shape.planes.into(), 1, 16)?;
        range("unit_pages", shape.unit_pages.into(), 1, 64)?;
        range("sense_pages", shape.sense_pages.into(), 1, 64)?;
        range("rows", shape.rows.into(), 1, 16_384)?;
        let (unit_pages, sense_pages, planes) = (shape.unit_pages, shape.sense_pages, shape.planes);
        if !unit_pages.is_multiple_of(sense_pages) {
            return Err(PresetError::UnitOfSenses { unit_pages, sense_pages });
        }
        if self.independent_planes && !unit_pages.is_multiple_of(planes * sense_pages) {
            return Err(PresetError::UnitOfPlanes { unit_pages, planes, sense_pages });
        }
        Ok(())
    }

    fn check_buffer(&self) -> Result<(), PresetError> {
        let buffer_pages = self.buffer_pages;
        let least = 2 * self.shape.unit_pages + COMMAND_PAGES;
        if buffer_pages < least {
            return Err(PresetError::BufferTooSmall { buffer_pages, least });
        }
        if self.power_protected && buffer_pages > DUMP_PAGES {
            return Err(PresetError::BufferBeyondEnergy { buffer_pages, most: DUMP_PAGES });
        }
        range("buffer_pages", buffer_pages.into(), 1, 1 << 20)
    }
}

pub(super) fn range(key: &'static str, value: u64, least: u64, most: u64) -> Result<(), PresetError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(PresetError::Range { key, value, least, most }) }
}

fn check_figure(index: usize, figure: &Figure) -> Result<(), PresetError> {
    let problem = if !(figure.value.is_finite() && figure.value > 0.0) {
        "`value` must be a number above 0"
    } else if !(1..=COMMAND_PAGES).contains(&figure.what.blocks) {
        "`blocks` must be from 1 to 256"
    } else if !(1..=4096).contains(&figure.what.depth) {
        "`depth` must be from 1 to 4096"
    } else if figure.source.trim().is_empty() {
        "`source` must say who published it, or \"modelled\""
    } else {
        return Ok(());
    };
    Err(PresetError::Figure { index, what: figure.what.to_string(), problem })
}
