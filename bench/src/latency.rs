// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Latencies as the device counted them, read as percentiles.

use super::harness::Outcome;
use super::kernel::{BUCKETS, LaneResult, bucket_ns};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Mean, exact.
    pub mean: f64,
    /// Median; this and those that follow are within 1 %.
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

/// I/Os of one kind, timed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timed {
    /// I/Os.
    pub ios: u64,
    /// I/Os a second.
    pub iops: f64,
    /// Decimal gigabytes a second.
    pub gbps: f64,
    /// Latency from before the request is built until its thread has seen its end, by the device's clock.
    pub latency_us: Latency,
    /// How often each latency was seen, for drawing.
    #[serde(skip, default = "no_latencies")]
    pub histogram: Histogram<u64>,
}

/// Latencies from 1 ns to half an hour.
fn no_latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 1 << 41, 3).expect("bounds and digits are allowed")
}

/// Length of the measured part: from the end of the warm-up to the end of the last I/O of any thread.
pub(super) fn elapsed_ns(outcome: &Outcome) -> u64 {
    let lanes = || outcome.lanes.iter().flatten().filter(|lane| lane.last_ns != 0);
    let first = lanes().map(|lane| lane.first_ns).min().unwrap_or(0);
    lanes().map(|lane| lane.last_ns).max().unwrap_or(0).saturating_sub(first)
}

/// The reads (0) or writes (1) of a launch; `None` where there were none.
#[expect(clippy::cast_precision_loss, reason = "figures to print")]
pub(super) fn timed(outcome: &Outcome, op: usize, bs: u64) -> Option<Timed> {
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
    let ns = elapsed_ns(outcome).max(1) as f64;
    Some(Timed { ios, iops: ios as f64 * 1e9 / ns, gbps: (ios * bs) as f64 / ns, latency_us, histogram })
}
