// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full SSDs whose blocks go bad.

use super::*;

#[test]
fn an_ssd_that_loses_its_blocks_says_that_it_is_worn_out() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(800, false, 2);
    for vba in 0..800 {
        assert!(harness.write((vid(1), vba), 1));
    }
    let target = |sequence| Target {
        vid: vid(1),
        generation: 1,
        vba: 3,
        stamp: Stamp { lease_epoch: 9, sequence },
        only_mapped: false,
        fills: false,
    };
    for sequence in 1..100_000u64 {
        if sequence % 40 == 0 {
            harness.config.faults.fail_program(1);
        }
        let frame = harness.ftl().take_frame().unwrap();
        match harness.ftl().commit(harness.now, harness.now, &target(sequence), &[NewBlock { frame, sum: 0 }])
        {
            Ok(_) => {}
            Err(CommitError::Stalled) => {
                harness.ftl().give_frame(frame);
                harness.tick();
            }
            Err(CommitError::Full | CommitError::Failing | CommitError::Unmapped) => {
                panic!("the same blocks again and again")
            }
            Err(CommitError::WornOut) => {
                harness.ftl().give_frame(frame);
                harness.history.remove(&(vid(1), 3));
                assert!(harness.ftl().health().worn_out);
                for vba in (0..800).filter(|vba| *vba != 3) {
                    assert!(harness.read((vid(1), vba)).is_some(), "reads go on");
                }
                return;
            }
        }
    }
    panic!("never worn out: {:?} {:?}", harness.ftl().stats(), harness.ftl().health());
}

/// The blocks go bad one by one while writes succeed. A write that finds no room must not need another bad
/// block to have a status.
#[test]
fn a_full_worn_ssd_refuses_writes_where_nothing_is_left_to_collect() {
    let _deadline = crate::tests::deadline();
    let mut worn = 0;
    for seed in 0..12u64 {
        let mut harness = Harness::new(800, false, 30 + seed);
        for vba in 0..800 {
            assert!(harness.write((vid(1), vba), 1));
        }
        let (mut stalls, mut is_refused) = (0, false);
        for sequence in 1..100_000u64 {
            let vba = u32::try_from(mix64(seed << 32 | sequence) % 800).unwrap();
            let stamp = Stamp { lease_epoch: 9, sequence };
            let target = Target { vid: vid(1), generation: 1, vba, stamp, only_mapped: false, fills: false };
            let frame = harness.ftl().take_frame().unwrap();
            let new = [NewBlock { frame, sum: 0 }];
            let written = loop {
                match harness.ftl().commit(harness.now, harness.now, &target, &new) {
                    Err(CommitError::Stalled) if stalls < 1000 => {
                        stalls += 1;
                        harness.pass(Span::from_ms(10));
                    }
                    other => break other,
                }
            };
            match written {
                Ok(_) => stalls = 0,
                Err(CommitError::WornOut) => {
                    assert!(harness.ftl().health().worn_out, "seed {seed}");
                    (is_refused, worn) = (true, worn + 1);
                }
                // Pages of a failed program found no place, and erases wait for them to be durable.
                Err(CommitError::Failing) if harness.ftl().stats().stranded_pages > 0 => is_refused = true,
                Err(error) => panic!("seed {seed}, write {sequence}: {error}: {}", harness.state()),
            }
            if is_refused {
                harness.ftl().give_frame(frame);
                break;
            }
            if sequence % 40 == 0 {
                harness.config.faults.fail_program(1);
            }
        }
        assert!(is_refused, "seed {seed}: {}", harness.state());
        for vba in 0..800 {
            let Extent::Page(page, _) = harness.ftl().extent(vid(1), 1, vba) else { panic!("block {vba}") };
            harness.ftl().unpin(page);
        }
    }
    assert!(worn > 3, "{worn} of 12 were worn out with nothing left to collect");
}
