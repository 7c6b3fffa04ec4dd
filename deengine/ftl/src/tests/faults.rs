// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flash that fails: programs, erases, reads, bad blocks from the factory.

use super::*;

#[test]
fn failed_programs_lose_nothing() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(800, false, 1);
    for step in 0..4_000u64 {
        if step % 500 == 499 {
            harness.config.faults.fail_program(3);
        }
        let vba = u32::try_from(mix64(step) % 800).unwrap();
        assert!(harness.write((vid(1), vba), 1));
    }
    let stats = harness.ftl().stats();
    assert!(stats.program_failures >= 5 && stats.bad_blocks >= 5, "{stats:?}");
    harness.check(harness.last(), "after failed programs");
    // Relocated pages become durable, too.
    assert!(harness.make_durable());
    let last = harness.last();
    let flash = harness.power_cycle(3);
    harness.reopen(flash).unwrap();
    harness.check(last, "after a restart");
}

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
            Err(CommitError::Full | CommitError::Unmapped) => panic!("the same blocks again and again"),
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

/// Other SSDs compare stamp and sum, and would take another one for another content.
#[test]
fn a_page_that_cannot_be_read_when_it_is_moved_keeps_stamp_and_sum_and_reads_as_nothing_else() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(600, false, 4);
    for vba in 0..600 {
        assert!(harness.write((vid(1), vba), 1));
    }
    let kept = |harness: &Harness| harness.ftl().commits().kept(vid(1), 1, 5);
    let Extent::Page(page, sum) = harness.ftl().extent(vid(1), 1, 5) else { panic!("written") };
    harness.ftl().unpin(page);
    let before = kept(&harness);
    harness.config.faults.unreadable(page, false);
    for step in 0..60_000u64 {
        let vba = 100 + u32::try_from(mix64(step) % 500).unwrap();
        assert!(harness.write((vid(1), vba), 1));
        if harness.ftl().stats().lost_pages > 0 {
            break;
        }
    }
    assert_eq!(harness.ftl().stats().lost_pages, 1);
    let Extent::Page(moved, sum_now) = harness.ftl().extent(vid(1), 1, 5) else { panic!("still mapped") };
    assert_ne!(moved, page);
    assert_eq!((kept(&harness), sum_now), (before, sum));
    let frame = harness.ftl().take_frame().unwrap();
    let mut bytes = [0; 4096];
    harness.ftl().flash().copy(moved, frame).unwrap();
    harness.ftl().flash().read_frame(frame, &mut bytes);
    harness.ftl().give_frame(frame);
    assert_ne!(sum, gnstor_proto::checksum::block_sum(&bytes), "what is there does not pass for data");
    harness.ftl().unpin(moved);
}

#[test]
fn no_page_of_lost_data_matches_its_sum() {
    let _deadline = crate::tests::deadline();
    let zeros = gnstor_proto::checksum::block_sum(&[0; 4096]);
    for sum in [zeros, !zeros, 0, 7] {
        assert_ne!(gnstor_proto::checksum::block_sum(crate::other_than(sum)), sum);
    }
}

#[test]
fn factory_bad_blocks_are_never_written() {
    let _deadline = crate::tests::deadline();
    let power = Arc::new(Power::steady());
    let (mut config, _) = config(2000, false, &power, 11);
    config.preset.over_provisioning_permille = 150;
    config.faults = Arc::new(Faults::seeded(77, 20_000));
    let bytes = FtlConfig::store_bytes(&config.preset, 2000, config.dump_bytes).unwrap();
    let store = Arc::new(RamStore::new(bytes, Arc::clone(&power)));
    config.store = Arc::clone(&store) as _;
    let mut harness = Harness::start(config, store);
    let bad = harness.ftl().flash().factory_bad();
    assert!(!bad.is_empty(), "two in a hundred are bad");
    for vba in 0..2000 {
        assert!(harness.write((vid(1), vba), 1));
    }
    for step in 0..8_000u64 {
        assert!(harness.write((vid(1), u32::try_from(mix64(step) % 2000).unwrap()), 1));
    }
    harness.check(harness.last(), "beside bad blocks");
    let geometry = harness.ftl().flash().geometry();
    for (_, _, page) in harness.ftl().map().scan(0, u64::MAX) {
        let block = geometry.block_of(geometry.unit_of(gnstor_flash::Ppa(page)));
        assert!(!bad.contains(&block), "{block:?} is bad from the factory");
    }
}

/// Checks that transaction `seq` becomes durable although one program fails, and survives a power cut right
/// after that.
fn survives_a_failure(mut harness: Harness, seq: Seq) {
    for _ in 0..10_000 {
        if harness.ftl().durable() >= seq {
            break;
        }
        harness.tick();
    }
    assert_eq!(harness.ftl().stats().program_failures, 1);
    assert!(harness.ftl().durable() >= seq, "it becomes durable");
    let flash = harness.power_cycle(1);
    harness.reopen(flash).unwrap();
    assert!(harness.boot.last >= seq);
    harness.check(harness.boot.last, "after a failed program and a power cut");
}

#[test]
fn a_page_saved_into_the_last_place_of_a_unit_holds_the_journal_back() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(400, true, 1);
    harness.config.faults.fail_program(1);
    assert!(harness.write((vid(1), 0), 4));
    // The unit is being programmed, and a caller waits for it. One of its pages stays valid, and finds the
    // next unit almost full.
    let (seq, _) = harness.ftl().make_durable(harness.now);
    assert!(harness.write((vid(1), 1), 3));
    assert_eq!(harness.ftl().stats().program_failures, 0, "not yet");
    survives_a_failure(harness, seq);
}

#[test]
fn a_page_overwritten_before_its_program_failed_does_not_take_the_older_one_with_it() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(400, true, 1);
    assert!(harness.write((vid(1), 0), 4) && harness.make_durable());
    harness.config.faults.fail_program(1);
    assert!(harness.write((vid(1), 0), 4));
    let (seq, _) = harness.ftl().make_durable(harness.now);
    // All of it is overwritten. The last block is in a unit that is not full when the failure shows, so it is
    // not durable.
    assert!(harness.write((vid(1), 10), 1) && harness.write((vid(1), 0), 4));
    survives_a_failure(harness, seq);
}

#[test]
fn what_the_last_program_before_a_shutdown_failed_to_write_is_there() {
    let _deadline = crate::tests::deadline();
    for failing in 1..4 {
        let mut harness = Harness::new(400, false, 1);
        for vba in 0..30 {
            assert!(harness.write((vid(1), vba), 1));
        }
        // Of the unit that the shutdown cuts short, and of the unit that is written in its place.
        (1..=failing).for_each(|n| harness.config.faults.fail_program(n));
        harness.ftl().shut_down().unwrap();
        assert_eq!(harness.ftl().stats().program_failures, failing);
        let last = harness.last();
        let flash = harness.power_cycle(2);
        harness.reopen(flash).unwrap();
        assert_eq!(harness.boot.origin, crate::restore::Origin::Clean);
        harness.check(last, "after a shutdown");
    }
}

#[test]
fn a_program_that_fails_during_a_checkpoint_loses_nothing_at_a_power_cut() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(400, true, 1);
    assert!(harness.write((vid(1), 0), 4) && harness.make_durable());
    harness.config.faults.fail_program(1);
    assert!(harness.write((vid(1), 0), 4));
    // The checkpoint copies the words that name the unit while its program is under way; then the program
    // fails.
    harness.ftl().copy_checkpoint();
    let checkpoints = harness.ftl().stats().checkpoints;
    assert!(harness.make_durable());
    assert_eq!(harness.ftl().stats().program_failures, 1);
    assert_eq!(
        harness.ftl().stats().checkpoints,
        checkpoints,
        "the checkpoint that named the failed unit does not count"
    );
    let last = harness.last();
    let flash = harness.power_cycle(1);
    harness.reopen(flash).unwrap();
    assert!(harness.boot.last >= last);
    harness.check(last, "after a failed program and a power cut");
}

#[test]
fn a_block_that_fails_to_erase_stays_bad_after_a_power_cut() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(400, false, 1);
    let geometry = harness.ftl().flash().geometry().clone();
    (0..geometry.blocks())
        .step_by(4)
        .for_each(|block| harness.config.faults.fail_erase(gnstor_flash::Block(block)));
    for step in 0..4_000u64 {
        assert!(harness.write((vid(1), u32::try_from(mix64(step) % 200).unwrap()), 1));
        if harness.ftl().stats().bad_blocks > 0 {
            break;
        }
    }
    while harness.ftl().lock().erasures.is_running() {
        harness.tick();
    }
    let bad = harness.ftl().stats().bad_blocks;
    assert!(bad > 0 && harness.make_durable());
    let last = harness.ftl().durable();
    let flash = harness.power_cycle(1);
    // The flash keeps its own marks, so the restore's count shows the pages that the journal names.
    harness.reopen(flash).unwrap();
    assert!(harness.ftl().stats().bad_blocks >= bad, "the journal names every block that failed to erase");
    assert!(harness.boot.last >= last);
    let last = harness.boot.last;
    harness.check(last, "after failed erases and a power cut");
}
