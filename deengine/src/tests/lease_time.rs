// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cost of a renewal of the serving lease on an SSD with the largest number of volumes.
#![expect(clippy::disallowed_methods, reason = "it measures")]

use super::lease::renew;
use super::*;
use crate::permission::MAX_VOLUMES;
use std::time::{Duration, Instant};

/// How often each is measured: 2,000 times with `GNSTOR_LONG`, as decision 47 has it.
fn rounds() -> u32 {
    if std::env::var_os("GNSTOR_LONG").is_some() { 2000 } else { 20 }
}

/// Every renewal is accepted, whatever the number of volumes. The test prints times and does not judge them:
/// medians of a renewal, and of the next read on each worker. A worker that has to fetch the rules again does
/// so with its next command.
#[test]
fn a_lease_is_renewed_with_all_volumes() {
    for volumes in [1, u16::try_from(MAX_VOLUMES).unwrap()] {
        let mut harness = Harness::connected(0).with_volume();
        for raw in (1..=volumes).filter(|&raw| raw != VOLUME).take(usize::from(volumes) - 1) {
            let entry = VolumeEntry { capacity_blocks: 1, ..entry(raw) };
            // Only the table: so small an SSD has no room for the entries of all.
            harness.ssd().table.add(harness.now, entry).expect("below the limit");
        }
        harness.write(0, &[1]);
        let (mut renewals, mut reads) = (Vec::new(), Vec::new());
        for _ in 0..rounds() {
            let begin = Instant::now();
            assert_eq!(renew(&mut harness, 1, 1, 10_000), None);
            renewals.push(begin.elapsed());
            let begin = Instant::now();
            for queue in [WRITER, READER, STRANGER] {
                let sqe = harness.io(io::READ, queue, 0, 1);
                let _ = harness.refused(queue, sqe);
            }
            reads.push(begin.elapsed());
        }
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        let (renewal, reads) = (median(&mut renewals), median(&mut reads));
        println!("{volumes} volumes: a renewal {renewal:?}, three commands on three workers {reads:?}");
    }
}
