// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A figure that a preset must reach, the load under which it holds, and its source.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The source of a figure without a publication: our own estimate.
pub const MODELLED: &str = "modelled";

/// One figure of an SSD: published, or this project's estimate.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The load to which the figure applies.
    pub what: Workload,
    /// The figure, in `unit`.
    pub value: f64,
    /// Unit.
    pub unit: Measure,
    /// Whether it must be met or is only a limit.
    #[serde(default)]
    pub bound: Bound,
    /// The state of the SSD to which the figure applies.
    pub state: State,
    /// Publisher, or [`MODELLED`].
    pub source: String,
}

impl Figure {
    /// Whether the figure is published, so that the model must reach it.
    pub fn is_sourced(&self) -> bool {
        self.source != MODELLED
    }

    /// How far `got` is off, in percent of the figure; 0 where a limit is kept.
    pub fn deviation_percent(&self, got: f64) -> f64 {
        match self.bound {
            Bound::AtMost if got <= self.value => 0.0,
            Bound::About | Bound::AtMost => (got / self.value - 1.0) * 100.0,
        }
    }
}

/// A load on an SSD: commands of one kind, always `depth` in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Read or write.
    pub op: Op,
    /// In the order of the addresses or at random.
    pub pattern: Pattern,
    /// 4 KiB blocks of a command.
    pub blocks: u32,
    /// Commands in flight.
    pub depth: u32,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = match self.pattern {
            Pattern::Sequential => "sequential",
            Pattern::Random => "random",
        };
        let op = match self.op {
            Op::Read => "read",
            Op::Write => "write",
        };
        write!(f, "{}K {pattern} {op} QD{}", self.blocks * 4, self.depth)
    }
}

/// The kind of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// The order of the addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// Uniform over the whole SSD.
    Random,
}

/// The state an SSD is in when it is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Written at most once: nothing is collected.
    Fresh,
    /// Filled, then overwritten twice at random: collection costs a share of each write.
    Steady,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fresh => "fresh",
            Self::Steady => "steady",
        })
    }
}

/// Unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Measure {
    /// 10^6 bytes a second.
    #[serde(rename = "MB/s")]
    MbPerS,
    /// Commands a second.
    #[serde(rename = "IOPS")]
    Iops,
    /// Mean latency, microseconds.
    #[serde(rename = "us")]
    Us,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MbPerS => "MB/s",
            Self::Iops => "IOPS",
            Self::Us => "us",
        })
    }
}

/// Kind of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The model meets it within 2 %.
    #[default]
    About,
    /// The model does not exceed it.
    AtMost,
}
