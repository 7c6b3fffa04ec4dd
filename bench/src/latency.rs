// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Latencies as the device counted them, read as percentiles.

use super::harness::Outcome;
use super::kernel::{BUCKETS, LaneResult, bucket_ns};
use super::spread::{Better, Spread};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Mean, exact.
    pub mean: f64,
    /// Median; it and the percentiles below are within 1 %.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th.
    pub p99: f64,
    /// 99.9th.
    pub p99_9: f64,
    /// 99.99th.
    pub p99_99: f64,
    /// Slowest, exact.
    pub max: f64,
}

/// Percentiles and maximum of several runs, microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(super) struct Tails {
    /// Medians of the runs' I/Os.
    pub(super) p50_us: Option<Spread>,
    pub(super) p99_us: Option<Spread>,
    pub(super) p99_9_us: Option<Spread>,
    /// The slowest I/O of each run.
    pub(super) max_us: Option<Spread>,
}

/// Head of what [`columns`] prints.
pub(super) const TAILS_HEAD: &str = "   p50 us    p99 us  p99.9 us    max us";

/// p50, p99, p99.9 and maximum as columns of a table.
pub(super) fn columns(latencies_us: [Option<f64>; 4]) -> String {
    let column = |us: Option<f64>| match us {
        Some(us) if us < 10_000.0 => format!("{us:>9.1}"),
        Some(us) => format!("{us:>9.0}"),
        None => format!("{:>9}", "-"),
    };
    latencies_us.map(column).join(" ")
}

impl Latency {
    /// p50, p99, p99.9 and maximum.
    pub(super) fn tails(&self) -> [f64; 4] {
        [self.p50, self.p99, self.p99_9, self.max]
    }
}

impl Tails {
    /// Of these runs.
    pub(super) fn of<'a>(runs: impl Iterator<Item = &'a Timed>) -> Self {
        let all: Vec<[f64; 4]> = runs.map(|timed| timed.latency_us.tails()).collect();
        let [p50_us, p99_us, p99_9_us, max_us] =
            [0, 1, 2, 3].map(|place| Spread::of(all.iter().map(|tails| tails[place]), Better::Low));
        Self { p50_us, p99_us, p99_9_us, max_us }
    }

    /// Each with its name.
    pub(super) fn named(&self) -> [(&'static str, Option<Spread>); 4] {
        [("p50", self.p50_us), ("p99", self.p99_us), ("p99.9", self.p99_9_us), ("max", self.max_us)]
    }

    /// The medians as columns of a table.
    pub(super) fn columns(&self) -> String {
        columns(self.named().map(|(_, spread)| spread.map(|spread| spread.median)))
    }
}

/// I/Os of one direction with their latencies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timed {
    /// I/Os.
    pub ios: u64,
    /// I/Os a second.
    pub iops: f64,
    /// Decimal gigabytes a second.
    pub gbps: f64,
    /// Latency from before the request is built until its thread has seen its end, by the device's clock.
    /// With a limited rate it counts from when the request was due.
    pub latency_us: Latency,
    /// Number of I/Os with each latency, for drawing.
    #[serde(skip, default = "no_latencies")]
    pub histogram: Histogram<u64>,
}

/// Latencies from 1 ns to half an hour.
pub(super) fn no_latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 41, 3).expect("bounds and digits are allowed")
}

/// Length of the measured part: from the end of the warm-up to the end of the last I/O of any thread, and at
/// least `least`.
pub(super) fn elapsed_ns(outcome: &Outcome, least: Duration) -> u64 {
    let lanes = || outcome.lanes.iter().flatten().filter(|lane| lane.last_ns != 0);
    let first = lanes().map(|lane| lane.first_ns).min().unwrap_or(0);
    let elapsed = lanes().map(|lane| lane.last_ns).max().unwrap_or(0).saturating_sub(first);
    elapsed.max(u64::try_from(least.as_nanos()).expect("at most days"))
}

/// The reads (0) or writes (1) of a launch whose measured part took `ns`; `None` if there were none.
#[expect(clippy::cast_precision_loss, reason = "figures to print")]
pub(super) fn timed(outcome: &Outcome, op: usize, bs: u64, ns: u64) -> Option<Timed> {
    let lanes = || outcome.lanes.iter().flatten();
    let max_ns = lanes().map(|lane: &LaneResult| lane.max_ns[op]).max().unwrap_or(0);
    let sum_ns: u64 = lanes().map(|lane| lane.sum_ns[op]).sum();
    let mut histogram = no_latencies();
    for bucket in 0..BUCKETS {
        let count = outcome.buckets[op][bucket];
        if count != 0 {
            // The middle of the last bucket may lie above the slowest.
            histogram.saturating_record_n(bucket_ns(bucket).min(max_ns).max(1), count);
        }
    }
    let ios = histogram.len();
    if ios == 0 {
        return None;
    }
    let us = |ns: u64| ns as f64 / 1000.0;
    let at = |quantile| us(histogram.value_at_quantile(quantile).min(max_ns));
    let latency_us = Latency {
        mean: us(sum_ns) / ios as f64,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p99_9: at(0.999),
        p99_99: at(0.9999),
        max: us(max_ns),
    };
    let ns = ns.max(1) as f64;
    Some(Timed { ios, iops: ios as f64 * 1e9 / ns, gbps: (ios * bs) as f64 / ns, latency_us, histogram })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn tails_of_runs_are_medians_or_the_worse_of_two_and_stand_below_their_heads() {
        let _deadline = deadline();
        let run = |factor: f64| Timed {
            ios: 1,
            iops: 1.0,
            gbps: 1.0,
            latency_us: Latency {
                mean: 2.0,
                p50: factor,
                p90: 3.0,
                p99: 10.0 * factor,
                p99_9: 100.0 * factor,
                p99_99: 4.0,
                max: 123_456.7 * factor,
            },
            histogram: no_latencies(),
        };
        let runs = [run(3.0), run(1.0), run(2.0)];
        let tails = Tails::of(runs.iter());
        assert_eq!(tails.p99_us, Some(Spread { median: 20.0, least: 10.0, most: 30.0 }));
        assert_eq!(tails.columns(), "      2.0      20.0     200.0    246913");
        assert_eq!(tails.columns().len(), TAILS_HEAD.len());
        assert_eq!(Tails::of(runs[..2].iter()).columns(), "      3.0      30.0     300.0    370370");
        assert_eq!(Tails::of([].iter()), Tails::default());
        assert_eq!(Tails::default().columns(), "        -         -         -         -");
    }
}
