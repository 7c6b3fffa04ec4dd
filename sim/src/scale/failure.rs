// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A world in which an SSD fails: what happened when, and the rates before, without the SSD, while others
//! fill, and after that.

use super::Sweep;
use crate::fleet::Course;
use crate::{Fail, Usage};
use gnstor_base::time::{Span, Time};
use serde::Serialize;

/// Requests that ended in each of these spans of the measured time are counted together.
const BUCKET: Span = Span::from_ms(1);

/// What followed from the failure of an SSD.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failure {
    /// Number of the SSD.
    pub ssd: usize,
    /// When it failed, nanoseconds of the measured time.
    pub at_ns: u64,
    /// From then until the last client of its array followed a map without it; `None`: not in this run.
    pub dropped_ns: Option<u64>,
    /// From then until every place had an SSD that serves again; `None`: not in this run.
    pub whole_ns: Option<u64>,
    /// Fleet maps that clients saw after the failure.
    pub maps: u64,
    /// Bytes of the blocks that SSDs copied from other SSDs.
    pub rebuilt_bytes: u64,
    /// The longest time in which no request of a client of its array ended.
    pub pause_ns: u64,
    /// Requests a second of all clients before the failure.
    pub before_iops: Option<u64>,
    /// The same, from the failure until it was dropped.
    pub out_iops: Option<u64>,
    /// The same, from then until every place served again.
    pub fill_iops: Option<u64>,
    /// The same, after that.
    pub after_iops: Option<u64>,
}

/// Counts of requests that ended, by time.
#[derive(Debug)]
pub(super) struct Counts {
    begin: Time,
    buckets: Vec<u64>,
}

impl Counts {
    pub(super) fn new(begin: Time, runtime: Span) -> Self {
        let count = runtime.as_ps().div_ceil(BUCKET.as_ps());
        Self { begin, buckets: vec![0; usize::try_from(count).expect("at most a minute")] }
    }

    /// A request ended in the measured time.
    pub(super) fn ended(&mut self, at: Time) {
        let bucket = at.since(self.begin).as_ps() / BUCKET.as_ps();
        self.buckets[usize::try_from(bucket).expect("at most a minute")] += 1;
    }

    /// Rate in the buckets that lie within these times; `None`: there are none.
    fn rate(&self, from: Time, to: Time) -> Option<u64> {
        let place = |at: Time| at.since(self.begin).as_ps();
        let first = usize::try_from(place(from).div_ceil(BUCKET.as_ps())).ok()?;
        let end = usize::try_from(place(to) / BUCKET.as_ps()).ok()?.min(self.buckets.len());
        let sum: u64 = self.buckets.get(first..end).filter(|of| !of.is_empty())?.iter().sum();
        Some(sum * 1_000_000_000 / (BUCKET.as_ns() * (end - first) as u64))
    }
}

impl Failure {
    pub(super) fn of(fail: Fail, (course, pause): (Course, Span), counts: &Counts, end: Time) -> Self {
        let Course { failed, dropped, whole, rebuilt_bytes, epochs } = course;
        let at = failed.unwrap_or(end);
        let after = |then: Option<Time>| then.map(|then| then.since(at).as_ns());
        let (out_until, fills_until) = (dropped.unwrap_or(end), whole.unwrap_or(end));
        Self {
            ssd: fail.ssd,
            at_ns: fail.at.as_ns(),
            dropped_ns: after(dropped),
            whole_ns: after(whole),
            maps: epochs,
            rebuilt_bytes,
            pause_ns: pause.as_ns(),
            before_iops: counts.rate(counts.begin, at),
            out_iops: counts.rate(at, out_until),
            fill_iops: counts.rate(out_until, fills_until),
            after_iops: counts.rate(fills_until, end),
        }
    }
}

/// Whether the SSD can fail in each world of the sweep.
pub(super) fn check(sweep: &Sweep, fail: Fail) -> Result<(), Usage> {
    let Fail { ssd, at, .. } = fail;
    let fewest = sweep.ssds.first;
    if ssd >= fewest {
        let last = fewest.saturating_sub(1);
        return Err(Usage(format!("--fail {ssd}@...: {fewest} SSDs have the numbers 0 to {last}")));
    }
    if at >= sweep.runtime {
        let [at, runtime] = [at, sweep.runtime].map(|time| time.as_ns() / 1_000_000);
        return Err(Usage(format!(
            "--fail {ssd}@{at}ms is not before the end: --runtime is {runtime} ms, so use a time below that"
        )));
    }
    if sweep.replicas < 2 {
        return Err(Usage(format!(
            "--fail {ssd}@...: with --replicas {} the last copies would be lost: use 2 or more",
            sweep.replicas
        )));
    }
    if fewest < 3 {
        return Err(Usage(format!(
            "--fail {ssd}@...: after it {} of {fewest} voters is no majority: use 3 SSDs or more",
            fewest - 1
        )));
    }
    Ok(())
}
