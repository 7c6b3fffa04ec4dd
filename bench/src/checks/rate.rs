// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limited rates: how many requests begin, and from when their latencies count.

use super::*;
use crate::kernel::bucket_ns;
use std::sync::atomic::AtomicU32;

const RUNTIME: Duration = Duration::from_secs(1);

/// The launch of one second with this schedule.
fn paced(read: u32, write: u32) -> Asked {
    Asked { flags: VERIFY, read_percent: 0, runtime: RUNTIME, pace: Some(Pace { read, write }) }
}

impl Bed {
    /// Requests of the last launch, reads (0) or writes (1), that took this long.
    fn slower(&self, op: usize, than: Duration) -> u64 {
        let mut raw = vec![0; BUCKETS * 8];
        self.rest[4].read(op * BUCKETS * 8, &mut raw).expect("it is inside");
        let counts = raw.chunks_exact(8).map(|raw| u64::read_from_bytes(raw).expect("eight bytes"));
        let slow = |(bucket, _): &(usize, u64)| u128::from(bucket_ns(*bucket)) >= than.as_nanos();
        counts.enumerate().filter(slow).map(|(_, count)| count).sum()
    }
}

#[test]
fn a_rate_is_kept_and_never_exceeded() {
    let _deadline = deadline();
    let mut bed = Bed::new(8, 32, 1);
    for rate in [1, 10, 200] {
        let lanes = bed.run(paced(rate, 0), |_, data| whole(data));
        let begun = sum(&lanes, |lane| lane.ios[0]);
        // A loaded machine may not begin the last ones in time.
        let least = u64::from(rate) - u64::from(rate) / 4;
        assert!((least..=rate.into()).contains(&begun), "{begun} of {rate}");
    }
}

#[test]
fn a_mix_keeps_both_rates_and_each_thread_reads_and_writes() {
    let _deadline = deadline();
    let mut bed = Bed::new(3, 12, 1);
    let lanes = bed.run(paced(600, 300), |_, data| whole(data));
    let (reads, writes) = (sum(&lanes, |lane| lane.ios[0]), sum(&lanes, |lane| lane.ios[1]));
    // A loaded machine may begin fewer.
    assert!(reads + writes <= 900 && reads + writes >= 128, "{reads} and {writes}");
    // Within a window of 64 starts the order is random.
    assert!(reads.abs_diff(2 * writes) <= 64, "{reads} reads and {writes} writes");
    for lane in &lanes {
        let all: u64 = lane.ios.iter().sum();
        assert!(lane.ios.iter().all(|&ios| ios * 10 > all), "{lane:?}");
        assert_eq!((lane.wrong, lane.verified), (0, lane.ios[0]));
    }
}

#[test]
fn a_stall_shows_in_the_latency_of_each_request_that_was_due_meanwhile() {
    let _deadline = deadline();
    const STALL: Duration = Duration::from_millis(200);
    let mut bed = Bed::new(4, 8, 1);
    let served = AtomicU32::new(0);
    let lanes = bed.run(paced(1000, 0), |_, data| {
        if served.fetch_add(1, Ordering::Relaxed) == 20 {
            std::thread::sleep(STALL);
        }
        whole(data)
    });
    let begun = sum(&lanes, |lane| lane.ios[0]);
    assert!(begun <= 1000, "{begun}");
    // 200 requests were due in the stall, and half of them waited for half of it or longer. Counted from
    // their actual starts, only the four in flight would be slow.
    let slow = bed.slower(0, STALL / 2);
    assert!(slow >= 50, "{slow} waited for {:?}", STALL / 2);
    assert!(lanes.iter().any(|lane| u128::from(lane.max_ns[0]) >= STALL.as_nanos()));
}
