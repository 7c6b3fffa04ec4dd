// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layer against a model: a read returns the last write, whatever else happens.

use super::*;
use crate::repair::Kept;
use proptest::prelude::*;

fn mixed(harness: &mut Harness, seed: u64, steps: u64, blocks: u32) {
    for step in 0..steps {
        let dice = mix64(seed ^ mix64(step));
        let key = (
            vid(u16::try_from(dice % 3).unwrap() + 1),
            u32::try_from(dice >> 8).unwrap_or(u32::MAX) % blocks,
        );
        let key = (key.0, key.1 / 2 * 2);
        match (dice >> 40) % 16 {
            0 => assert!(harness.trim(key, 2)),
            1 => assert!(harness.write(key, 2)),
            2 => harness.tick(),
            3 if step % 7 == 0 => assert!(harness.make_durable()),
            _ => assert!(harness.write(key, 1)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn reads_find_what_was_written_last(seed: u64, timed: bool, blocks in 8u32..300) {
        let _deadline = crate::tests::deadline();
        let mut harness = Harness::new(1024, timed, seed);
        mixed(&mut harness, seed, 3_000, blocks);
        harness.check(harness.last(), "after mixed writes");
        prop_assert!(harness.ftl().stats().erases > 0 || blocks < 40, "collection ran: \
            {:?}", harness.ftl().stats());
    }
}

#[test]
fn an_old_stamp_is_completed_and_not_applied() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(256, false, 1);
    let key = (vid(1), 7);
    assert!(harness.write(key, 1));
    let held = harness.read(key);
    let old = Stamp { lease_epoch: 0, sequence: 99 };
    let target =
        Target { vid: key.0, generation: 1, vba: key.1, stamp: old, only_mapped: false, fills: false };
    let frame = harness.ftl().take_frame().unwrap();
    let free = harness.ftl().flash().free_frames();
    let done =
        harness.ftl().commit(harness.now, harness.now, &target, &[NewBlock { frame, sum: 0 }]).unwrap();
    assert_eq!((done.applied, done.overtaken), (0, 1));
    assert_eq!(harness.read(key), held);
    assert_eq!(harness.ftl().flash().free_frames(), free + 1, "its frame went back");
    assert_eq!(harness.ftl().trim(harness.now, &target, 1).unwrap().overtaken, 1);
    assert_eq!(harness.read(key), held);
}

#[test]
fn a_trimmed_block_still_refuses_older_stamps() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(256, false, 2);
    let key = (vid(1), 7);
    let early = harness.stamp();
    assert!(harness.write(key, 1));
    assert!(harness.trim(key, 1));
    assert_eq!(harness.read(key), None);
    let target =
        Target { vid: key.0, generation: 1, vba: key.1, stamp: early, only_mapped: false, fills: false };
    let frame = harness.ftl().take_frame().unwrap();
    let done =
        harness.ftl().commit(harness.now, harness.now, &target, &[NewBlock { frame, sum: 0 }]).unwrap();
    assert_eq!(done.overtaken, 1, "a late write does not undo the TRIM");
}

/// A fill copies a TRIM of a block that this SSD never had. It may be the last SSD that knows of the TRIM.
#[test]
fn a_trim_that_a_fill_copied_refuses_older_stamps_after_a_restart() {
    let _deadline = crate::tests::deadline();
    for is_checkpointed in [false, true] {
        let mut harness = Harness::new(256, false, 2);
        let (vid, vba, early) = (vid(1), 7, harness.stamp());
        let of = |stamp| Target { vid, generation: 1, vba, stamp, only_mapped: false, fills: true };
        let stamp = harness.stamp();
        let kept = Kept::Tombstone { stamp };
        let noted = harness.ftl().commits().note_stamp(harness.now, &of(stamp)).unwrap();
        assert!(noted.is_some_and(|seq| seq == harness.last()), "it is a transaction");
        assert_eq!(harness.ftl().commits().note_stamp(harness.now, &of(stamp)), Ok(None), "once");
        if is_checkpointed {
            for _ in 0..4_000 {
                assert!(harness.write((vid, 9), 1));
            }
            assert!(harness.ftl().stats().checkpoints > 0);
        }
        assert!(harness.make_durable());
        let flash = harness.power_cycle(1);
        harness.reopen(flash).unwrap();
        assert_eq!(harness.ftl().commits().kept(vid, 1, vba), kept);
        let late = Target { fills: false, ..of(early) };
        let frame = harness.ftl().take_frame().unwrap();
        let block = NewBlock { frame, sum: 0 };
        let done = harness.ftl().commit(harness.now, harness.now, &late, &[block]).unwrap();
        assert_eq!(done.overtaken, 1, "a late write does not undo the TRIM");
    }
}

#[test]
fn another_generation_reads_as_stale() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(256, false, 3);
    assert!(harness.write((vid(1), 0), 1));
    assert_eq!(harness.ftl().extent(vid(1), 2, 0), Extent::StaleGeneration);
}

#[test]
fn a_sweep_finds_every_block_while_others_write() {
    let _deadline = crate::tests::deadline();
    for seed in 0..20 {
        let mut harness = Harness::new(1024, false, seed);
        for vba in 0..400 {
            assert!(harness.write((vid(1), vba), 1));
            assert!(harness.write((vid(2), vba), 1));
        }
        harness.ftl().sweep(vid(1), 1);
        let mut swept = None;
        for step in 0..2_000u32 {
            harness.ftl().sweep_step(harness.now, 2);
            if step % 3 == 0 {
                assert!(harness.write((vid(3), step), 1));
            }
            harness.tick();
            swept = swept.or_else(|| harness.ftl().swept());
            if swept.is_some() {
                break;
            }
        }
        assert_eq!(swept, Some((vid(1), 1)), "seed {seed}");
        assert!(
            harness.ftl().map().scan(0, u64::MAX).all(|(owner, ..)| owner != vid(1)),
            "seed {seed}: a block is left"
        );
        harness.history.retain(|(owner, _), _| *owner != vid(1));
        harness.check(harness.last(), "the others are whole");
    }
}

#[test]
fn a_sweep_finds_blocks_that_insertions_move_behind_its_front() {
    let _deadline = crate::tests::deadline();
    let mut moved_behind = 0;
    for seed in 0..6 {
        let mut harness = Harness::new(1024, false, seed);
        for vba in 0..700 {
            assert!(harness.write((vid(1), vba), 1));
        }
        for vba in 0..324 {
            assert!(harness.write((vid(2), vba), 1));
        }
        harness.ftl().sweep(vid(1), 1);
        let (mut written, mut unmapped) = (0, 0);
        while harness.ftl().swept().is_none() {
            unmapped += harness.ftl().sweep_step(harness.now, 1);
            // The map stays as full as it can be: an insertion ahead of the front then moves other blocks.
            while u64::from(written) < unmapped {
                let before = harness.ftl().map().len();
                assert!(harness.write((vid(3), written), 1));
                written += 1;
                moved_behind += before + 1 - harness.ftl().map().len();
                unmapped += before + 1 - harness.ftl().map().len();
            }
            harness.tick();
        }
        assert!(
            harness.ftl().map().scan(0, u64::MAX).all(|(owner, ..)| owner != vid(1)),
            "seed {seed}: a block is left"
        );
        harness.history.retain(|(owner, _), _| *owner != vid(1));
        harness.check(harness.last(), "the others are whole");
    }
    assert!(moved_behind > 0, "no insertion moved a block of the swept volume behind the front");
}

#[test]
fn a_sweep_finds_the_blocks_in_the_stash() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(256, false, 1);
    // Blocks whose two buckets are among the same three. 24 of them have a slot, the others are in the stash.
    let in_three =
        |vba: &u32| harness.ftl().map().buckets_of(vid(1), *vba).iter().all(|bucket| (4..7).contains(bucket));
    let blocks: Vec<u32> = (0..).filter(in_three).take(34).collect();
    for &vba in &blocks {
        assert!(harness.write((vid(1), vba), 1));
    }
    assert_eq!(harness.ftl().map().stashed(), 10);
    assert!(harness.write((vid(2), 0), 1));
    harness.ftl().sweep(vid(1), 1);
    while harness.ftl().swept().is_none() {
        harness.ftl().sweep_step(harness.now, 1);
        harness.tick();
    }
    assert_eq!(
        (harness.ftl().map().stashed(), harness.ftl().mapped()),
        (0, 1),
        "only the other volume's block is mapped"
    );
}

/// A trim makes room in the table. An entry of the stash moves there, and other words move for it.
#[test]
fn a_sweep_finds_blocks_that_removals_move_behind_its_front() {
    let _deadline = crate::tests::deadline();
    let mut moved_behind = 0;
    for seed in 0..30 {
        let mut harness = Harness::new(1024, false, seed);
        let last = harness.ftl().map().buckets() - 4;
        let is_there = |bucket: &u64| *bucket < 4 || *bucket >= last;
        let in_eight = |volume: u16| {
            let map = harness.ftl().map();
            let is_in = |vba: &u32| map.buckets_of(vid(volume), *vba).iter().all(is_there);
            (0..).filter(is_in).take(44).collect::<Vec<u32>>()
        };
        let (dead, living) = (in_eight(1), in_eight(2));
        // 76 blocks for 64 slots: the last of them are in the stash.
        for &vba in &dead[..32] {
            assert!(harness.write((vid(1), vba), 1));
        }
        for &vba in &living {
            assert!(harness.write((vid(2), vba), 1));
        }
        assert!(harness.ftl().map().stashed() >= 8, "seed {seed}");
        harness.ftl().sweep(vid(1), 1);
        let mut left = 32 - harness.ftl().sweep_step(harness.now, 1);
        for &vba in &living {
            let before = harness.ftl().mapped();
            assert!(harness.trim((vid(2), vba), 1));
            moved_behind += before - 1 - harness.ftl().mapped();
            left -= before - 1 - harness.ftl().mapped();
        }
        while harness.ftl().swept().is_none() {
            left -= harness.ftl().sweep_step(harness.now, 1);
            harness.tick();
        }
        assert_eq!((left, harness.ftl().mapped()), (0, 0), "seed {seed}: a block is left");
    }
    assert!(moved_behind > 0, "no trim moved a block of the swept volume behind the front");
}
