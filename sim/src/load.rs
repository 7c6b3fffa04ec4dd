// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The load of a client. It writes its volume once, and then keeps a number of requests in flight.

use crate::dice::Dice;
use crate::zipf::Zipf;
use gnstor_base::time::Time;
use std::sync::Arc;

/// Reads or writes, in order or at random.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rw {
    /// Reads in order.
    Read,
    /// Writes in order.
    Write,
    /// Reads at random places.
    Randread,
    /// Writes at random places.
    Randwrite,
}

impl Rw {
    /// Whether it writes.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Randwrite)
    }

    /// Whether the places are random.
    pub fn is_random(self) -> bool {
        matches!(self, Self::Randread | Self::Randwrite)
    }
}

/// Distance of units that are neighbours in popularity. It is a prime above the number of units.
const SCATTER: u64 = 2_654_435_761;
/// Blocks of a request of the fill: one chunk.
const FILL_BLOCKS: u32 = 16;
/// Requests in flight during the fill. With few of them the run measures more than the SSDs' buffers.
const FILL_DEPTH: u16 = 16;

/// What a lane does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Begin this request.
    Request { is_write: bool, vba: u32, blocks: u32 },
    /// Begin nothing before this time, unless a request ends.
    Later(Time),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Rests,
    Fills,
    Runs { until: Time },
}

/// The load of one client.
#[derive(Debug)]
pub(crate) struct Load {
    rw: Rw,
    unit_blocks: u32,
    units: u32,
    blocks: u32,
    depth: u16,
    dice: Dice,
    /// Distribution of random units if some are more popular than others, and offset of the most popular one.
    zipf: Option<Arc<Zipf>>,
    offset: u32,
    phase: Phase,
    /// Number of lanes that take part.
    active: usize,
    /// The next unit in order, or the next block of the fill.
    next: u32,
    /// Start and end of each request that has ended since the world took this list.
    pub(crate) ended: Vec<(Time, Time)>,
}

impl Load {
    pub(crate) fn new(
        rw: Rw,
        (unit_blocks, units): (u32, u32),
        depth: u16,
        zipf: Option<Arc<Zipf>>,
        mut dice: Dice,
    ) -> Self {
        let offset = if zipf.is_some() { dice.below(units) } else { 0 };
        Self {
            zipf,
            offset,
            rw,
            unit_blocks,
            units,
            blocks: unit_blocks * units,
            depth,
            dice,
            phase: Phase::Rests,
            active: 0,
            next: 0,
            ended: Vec::new(),
        }
    }

    /// Begins the fill, which writes the whole volume once.
    pub(crate) fn fill(&mut self) {
        self.phase = Phase::Fills;
        self.next = 0;
        self.active = FILL_DEPTH.into();
    }

    /// Begins new requests until `until`. A load in order begins at a random place.
    pub(crate) fn run(&mut self, until: Time) {
        self.phase = Phase::Runs { until };
        self.next = self.dice.below(self.units);
        self.active = self.depth.into();
    }

    /// Draws a unit at random.
    fn draw(&mut self) -> u32 {
        let Some(zipf) = &self.zipf else { return self.dice.below(self.units) };
        let rank = u64::from(zipf.draw(&mut self.dice));
        let unit = (rank * SCATTER + u64::from(self.offset)) % u64::from(self.units);
        u32::try_from(unit).expect("below `units`")
    }

    /// Number of lanes that the load needs.
    pub(crate) fn lanes(&self) -> usize {
        self.depth.max(FILL_DEPTH).into()
    }

    pub(crate) fn ended(&mut self, start: Time, now: Time) {
        self.ended.push((start, now));
    }

    /// The next action of a lane without a request.
    pub(crate) fn next(&mut self, now: Time, lane: usize) -> Next {
        if lane >= self.active {
            return Next::Later(Time::NEVER);
        }
        let (vba, blocks) = match self.phase {
            Phase::Runs { until } if now < until => {
                let unit = if self.rw.is_random() { self.draw() } else { self.next };
                self.next = (self.next + 1) % self.units;
                (unit * self.unit_blocks, self.unit_blocks)
            }
            Phase::Fills if self.next < self.blocks => {
                let vba = self.next;
                let blocks = FILL_BLOCKS.min(self.blocks - vba);
                self.next += blocks;
                (vba, blocks)
            }
            _ => return Next::Later(Time::NEVER),
        };
        let is_write = self.phase == Phase::Fills || self.rw.is_write();
        Next::Request { is_write, vba, blocks }
    }
}
