// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How late responses were seen, compared with the time that the model gives them, as the agent counts it.
//! Bucket `i` holds responses of [2^i, 2^(i+1)) ns. Bucket 0 also holds responses that were early or less
//! than 2 ns late.

use serde::{Deserialize, Serialize};

/// How late responses were seen. Each time is the upper end of a bucket, so the true time is at least half of
/// it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Lateness {
    /// Responses in each bucket, up to the last that has any.
    pub buckets: Vec<u64>,
    /// Half of the responses were not later, microseconds.
    pub p50_us: f64,
    /// Nine of ten responses were at most so late.
    pub p90_us: f64,
    /// 99 of 100 were.
    pub p99_us: f64,
    /// 999 of 1000 were.
    pub p99_9_us: f64,
    /// No response was later.
    pub max_us: f64,
}

/// What the agent counted in a launch that it began with `before` and ended with `after`; `None` where it
/// counted nothing.
///
/// # Panics
/// If a count went back.
pub(super) fn between(before: &[u64], after: &[u64]) -> Option<Lateness> {
    let counted = |bucket: usize| after[bucket] - before.get(bucket).unwrap_or(&0);
    of(&(0..after.len()).map(counted).collect::<Vec<_>>())
}

/// The summary of these counts; `None` if all of them are 0.
pub(super) fn of(counts: &[u64]) -> Option<Lateness> {
    let last = counts.iter().rposition(|count| *count != 0)?;
    let buckets = counts[..=last].to_vec();
    let all: u64 = buckets.iter().sum();
    let at = |share: f64| {
        #[expect(clippy::cast_precision_loss, reason = "a share of a count")]
        let wanted = all as f64 * share;
        let mut sum = 0;
        let reaches = |count: &u64| {
            sum += count;
            #[expect(clippy::cast_precision_loss, reason = "a share of a count")]
            let so_far = sum as f64;
            so_far >= wanted
        };
        end_us(buckets.iter().position(reaches).unwrap_or(last))
    };
    let [p50_us, p90_us, p99_us, p99_9_us] = [0.5, 0.9, 0.99, 0.999].map(at);
    Some(Lateness { p50_us, p90_us, p99_us, p99_9_us, max_us: end_us(last), buckets })
}

/// End of a bucket, microseconds.
fn end_us(bucket: usize) -> f64 {
    2.0_f64.powi(i32::try_from(bucket + 1).unwrap_or(i32::MAX)) / 1e3
}

impl Lateness {
    /// A line for people.
    pub(super) fn line(&self) -> String {
        let Self { p50_us, p90_us, p99_us, p99_9_us, max_us, .. } = self;
        let times = [p50_us, p90_us, p99_us, p99_9_us, max_us].map(|us| format!("{us:.3}"));
        let [p50, p90, p99, p99_9, max] = times;
        format!(
            "less than p50 {p50} us, p90 {p90}, p99 {p99}, p99.9 {p99_9}, max {max} after the modelled time"
        )
    }

    /// Begin and end of each bucket in microseconds, and how many responses it holds, for drawing. The first
    /// begins at a nanosecond: times are drawn in powers.
    #[expect(clippy::cast_precision_loss, reason = "a drawing")]
    pub(super) fn bars(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        self.buckets
            .iter()
            .enumerate()
            .map(|(bucket, &count)| (end_us(bucket) / 2.0, end_us(bucket), count as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn shares_fall_into_the_bucket_that_holds_them() {
        let _deadline = deadline();
        let mut counts = [0; 32];
        (counts[0], counts[9], counts[10], counts[20]) = (500, 400, 99, 1);
        let summary = of(&counts).expect("some were counted");
        assert_eq!((summary.buckets.len(), summary.buckets.iter().sum::<u64>()), (21, 1000));
        assert_eq!([summary.p50_us, summary.p90_us, summary.p99_us], [0.002, 1.024, 2.048]);
        assert_eq!((summary.p99_9_us, summary.max_us), (2.048, 2097.152));
        for word in ["p50 0.002 us", "p90 1.024", "max 2097.152"] {
            assert!(summary.line().contains(word), "'{word}' in: {}", summary.line());
        }
        let bars: Vec<_> = summary.bars().collect();
        assert_eq!((bars.len(), bars[0], bars[9]), (21, (0.001, 0.002, 500.0), (0.512, 1.024, 400.0)));
    }

    #[test]
    fn only_the_counts_of_the_launch_are_reported() {
        let _deadline = deadline();
        let (mut before, mut after) = ([0; 32], [0; 32]);
        (before[3], after[3], after[5]) = (7, 7, 2);
        let summary = between(&before, &after).expect("some were counted");
        assert_eq!(summary.buckets, [0, 0, 0, 0, 0, 2]);
        assert_eq!((summary.p50_us, summary.max_us), (0.064, 0.064));
        assert_eq!((between(&after, &after), between(&[], &[]), of(&[0; 32])), (None, None, None));
        assert_eq!(between(&[], &after).map(|summary| summary.buckets[3]), Some(7));
    }

    #[test]
    fn the_last_bucket_has_an_end() {
        let _deadline = deadline();
        let mut counts = [0; 32];
        counts[31] = u64::MAX / 4;
        assert_eq!(of(&counts).map(|summary| summary.max_us), Some(4_294_967.296));
    }
}
