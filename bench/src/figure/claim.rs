// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Statements of the paper about several points, and the same values from the measurement. Points with too
//! few cores are left out.

use super::point::Point;
use crate::report::word;
use crate::words::Mode;
use serde::Serialize;

/// A choice of points.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Select {
    bs: Option<u64>,
    reads: Option<bool>,
    ssds: Option<u16>,
}

impl Select {
    pub(super) fn all() -> Self {
        Self::default()
    }

    pub(super) fn size(bs: u64) -> Self {
        Self { bs: Some(bs), ..Self::default() }
    }

    pub(super) fn reads(self) -> Self {
        Self { reads: Some(true), ..self }
    }

    pub(super) fn writes(self) -> Self {
        Self { reads: Some(false), ..self }
    }

    pub(super) fn ssds(self, ssds: u16) -> Self {
        Self { ssds: Some(ssds), ..self }
    }

    fn has(self, point: &Point) -> bool {
        self.bs.is_none_or(|bs| bs == point.bs)
            && self.reads.is_none_or(|reads| reads == point.is_read())
            && self.ssds.is_none_or(|ssds| ssds == point.ssds)
    }

    fn words(self) -> String {
        let bs = self.bs.map(|bs| format!("{}k", bs >> 10));
        let what = self.reads.map(|reads| if reads { "reads" } else { "writes" }.to_owned());
        let ssds = self.ssds.map(|ssds| format!("{ssds} SSDs"));
        let words: Vec<String> = [bs, what, ssds].into_iter().flatten().collect();
        if words.is_empty() { "all loads".into() } else { words.join(", ") }
    }
}

/// The measured quantity that a ratio compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    Throughput,
    Latency,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The mean over loads of one mode's value divided by another's.
    Times { this: Mode, that: Mode, of: Of },
    /// The most of a series, the paper's gigabytes a second.
    Best { mode: Mode },
}

/// A sentence of the paper about several points.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    value: f64,
    kind: Kind,
    select: Select,
}

/// The result of a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// The paper's gigabytes a second.
    pub(super) gbps: f64,
    /// Mean latency, microseconds.
    pub(super) mean_us: f64,
}

/// A claim with the measured value.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct ClaimSummary {
    /// The statement.
    pub(super) what: String,
    /// `times`, or `GB/s` of the paper.
    pub(super) unit: &'static str,
    /// The paper's value.
    pub(super) paper: f64,
    /// The measured value; null if no points that count were measured.
    pub(super) measured: Option<f64>,
    /// Points, or pairs of points, in it.
    pub(super) points: usize,
}

impl Claim {
    /// On average `this` mode has `value` times what `that` one has.
    pub(super) fn times(value: f64, this: Mode, that: Mode, select: Select, of: Of) -> Self {
        Self { value, kind: Kind::Times { this, that, of }, select }
    }

    /// The best value of the mode is `value`, in the paper's gigabytes a second.
    pub(super) fn best(value: f64, mode: Mode, select: Select) -> Self {
        Self { value, kind: Kind::Best { mode }, select }
    }

    /// The claim with the value of these points; `None` for a claim that does not count.
    pub(super) fn summary(&self, points: &[(&Point, Option<Measured>)]) -> ClaimSummary {
        let counted = || {
            points.iter().filter(|(point, _)| self.select.has(point)).filter_map(|(p, m)| Some((*p, (*m)?)))
        };
        let on = self.select.words();
        match self.kind {
            Kind::Best { mode } => {
                let series =
                    || counted().filter(|(point, _)| point.mode == mode).map(|(_, measured)| measured.gbps);
                ClaimSummary {
                    what: format!("{}, {on}, best throughput", word(mode)),
                    unit: "GB/s",
                    paper: self.value,
                    measured: series().max_by(f64::total_cmp),
                    points: series().count(),
                }
            }
            Kind::Times { this, that, of } => {
                let value =
                    |measured: Measured| if of == Of::Latency { measured.mean_us } else { measured.gbps };
                let ratios = || {
                    counted().filter(|(point, _)| point.mode == this).filter_map(|(point, measured)| {
                        let partner = Point { mode: that, paper: None, ..point.clone() };
                        let same = |other: &Point| Point { paper: None, ..other.clone() } == partner;
                        let (_, other) = counted().find(|(other, _)| same(other))?;
                        Some(value(measured) / value(other))
                    })
                };
                let count = ratios().count();
                #[expect(clippy::cast_precision_loss, reason = "a few points")]
                let mean = (count != 0).then(|| ratios().sum::<f64>() / count as f64);
                let what = if of == Of::Latency { "latency" } else { "throughput" };
                ClaimSummary {
                    what: format!("{} over {}, {on}, {what}", word(this), word(that)),
                    unit: "times",
                    paper: self.value,
                    measured: mean,
                    points: count,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Rw;
    use gnstor_base::testing::deadline;

    fn point(mode: Mode, rw: Rw, bs: u64) -> Point {
        Point { mode, rw, bs, clients: 1, ssds: 4, paper: None }
    }

    fn measured(gbps: f64, mean_us: f64) -> Option<Measured> {
        Some(Measured { gbps, mean_us })
    }

    #[test]
    fn a_ratio_is_the_mean_over_pairs_that_count() {
        let _deadline = deadline();
        let points = [
            (&point(Mode::Gd, Rw::Read, 4096), measured(1.0, 40.0)),
            (&point(Mode::Gnstor, Rw::Read, 4096), measured(2.0, 30.0)),
            (&point(Mode::Gd, Rw::Randread, 4096), measured(1.0, 40.0)),
            (&point(Mode::Gnstor, Rw::Randread, 4096), measured(4.0, 10.0)),
            // One of another size, one without a partner that counts, and one of another mode.
            (&point(Mode::Gd, Rw::Read, 65536), measured(1.0, 1.0)),
            (&point(Mode::Gnstor, Rw::Read, 65536), measured(100.0, 1.0)),
            (&point(Mode::Gd, Rw::Write, 4096), None),
            (&point(Mode::Gnstor, Rw::Write, 4096), measured(100.0, 1.0)),
            (&point(Mode::Basic, Rw::Read, 4096), measured(0.1, 1.0)),
        ];
        let summary = |of| Claim::times(1.8, Mode::Gnstor, Mode::Gd, Select::size(4096), of).summary(&points);
        assert_eq!((summary(Of::Throughput).measured, summary(Of::Throughput).points), (Some(3.0), 2));
        assert_eq!((summary(Of::Latency).measured, summary(Of::Latency).paper), (Some(0.5), 1.8));
        assert_eq!(summary(Of::Throughput).what, "gnstor over gd, 4k, throughput");
    }

    #[test]
    fn a_best_value_is_the_most_of_its_series() {
        let _deadline = deadline();
        let points = [
            (&point(Mode::Gnstor, Rw::Randread, 4096), measured(3.0, 1.0)),
            (&Point { clients: 2, ..point(Mode::Gnstor, Rw::Randread, 4096) }, measured(5.0, 1.0)),
            (&Point { clients: 4, ..point(Mode::Gnstor, Rw::Randread, 4096) }, None),
            (&point(Mode::Gnstor, Rw::Randwrite, 4096), measured(9.0, 1.0)),
        ];
        let summary = |select| Claim::best(11.8, Mode::Gnstor, select).summary(&points);
        assert_eq!(
            (summary(Select::size(4096).reads()).measured, summary(Select::size(4096).reads()).points),
            (Some(5.0), 2)
        );
        assert_eq!(summary(Select::size(65536)).measured, None);
    }
}
