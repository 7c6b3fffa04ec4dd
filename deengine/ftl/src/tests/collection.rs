// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Collection: a full SSD goes on taking writes, wear is spread, pins are minded.

use super::*;
use gnstor_model::Policy;

/// Writes at random over a full SSD.
fn churn(harness: &mut Harness, seed: u64, writes: u64, blocks: u32) {
    for step in 0..writes {
        let vba = u32::try_from(mix64(seed ^ step) % u64::from(blocks)).unwrap();
        assert!(harness.write((vid(1), vba), 1));
        if step % 8 == 0 {
            harness.tick();
        }
    }
}

#[test]
fn a_logically_full_ssd_takes_overwrites_for_ever() {
    let _deadline = crate::tests::deadline();
    for timed in [false, true] {
        for policy in [Policy::Greedy, Policy::CostBenefit] {
            let power = Arc::new(Power::steady());
            let (mut config, store) = config(1500, timed, &power, 5);
            config.collection.policy = policy;
            let mut harness = Harness::start(config, store);
            for vba in 0..1500 {
                assert!(harness.write((vid(1), vba), 1));
            }
            let target = Target {
                vid: vid(2),
                generation: 1,
                vba: 0,
                stamp: harness.stamp(),
                only_mapped: false,
                fills: false,
            };
            let new = [NewBlock { frame: harness.ftl().take_frame().unwrap(), sum: 0 }];
            assert_eq!(harness.ftl().commit(harness.now, harness.now, &target, &new), Err(CommitError::Full));
            harness.ftl().give_frame(new[0].frame);
            churn(&mut harness, 9, 12_000, 1500);
            harness.check(harness.last(), "after churn at 100 % fill");
            let stats = harness.ftl().stats();
            assert!(stats.moved_pages > 0 && stats.erases > 100, "{stats:?}");
        }
    }
}

#[test]
fn write_amplification_counts_every_page_programmed() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(1500, false, 6);
    for vba in 0..1500 {
        assert!(harness.write((vid(1), vba), 1));
    }
    churn(&mut harness, 1, 6000, 1500);
    assert!(harness.make_durable());
    let stats = harness.ftl().stats();
    assert_eq!(stats.flash_pages, stats.host_pages + stats.moved_pages + stats.padded_pages, "{stats:?}");
    assert!(stats.amplification_milli() > 1000);
}

#[test]
fn a_pinned_page_survives_until_it_is_unpinned() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(600, false, 7);
    for vba in 0..600 {
        assert!(harness.write((vid(1), vba), 1));
    }
    let Extent::Page(page, sum) = harness.ftl().extent(vid(1), 1, 5) else { panic!("block 5 was written") };
    churn(&mut harness, 3, 4_000, 600);
    let Fetch::Here(local) = harness.ftl().fetch(page) else { panic!("in memory") };
    let mut data = [0; 4096];
    harness.region.iter().find(|r| r.id() == local.region).unwrap().read(local.offset, &mut data);
    assert_eq!(gnstor_proto::checksum::block_sum(&data), sum, "the reader's bytes did not change under it");
    harness.ftl().unpin(page);
    churn(&mut harness, 4, 2_000, 600);
}

/// A reader looked a page up before its block was written again, pins the page for a moment, and loses its
/// CPU.
#[test]
fn a_reader_that_is_late_delays_an_erase_and_ends_nothing() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(600, false, 9);
    let mut step = 0;
    while !harness.ftl().lock().erasures.is_running() {
        step += 1;
        assert!(step < 10_000, "an erase takes several steps");
        assert!(harness.write((vid(1), u32::try_from(mix64(step) % 600).unwrap()), 1));
        harness.tick();
    }
    let geometry = harness.ftl().flash().geometry().clone();
    // The last page of each superblock is on its last block, which is erased last.
    let late: Vec<Ppa> = {
        let inner = harness.ftl().lock();
        inner.erasures.iter().map(|of| Ppa((of.0 + 1) * geometry.superblock_pages() - 1)).collect()
    };
    late.iter().for_each(|page| harness.ftl().flash().pin(*page));
    let erases = harness.ftl().stats().erases;
    for _ in 0..20 {
        harness.tick();
    }
    assert!(harness.ftl().lock().erasures.is_running(), "it waits for the reader");
    assert_eq!(harness.ftl().stats().erases, erases);
    assert!(harness.ftl().next_event(harness.now) < Time::NEVER, "the erase is tried again");
    late.iter().for_each(|page| harness.ftl().flash().unpin(*page));
    harness.pass(Span::from_ms(20));
    for _ in 0..100 {
        harness.tick();
    }
    assert!(!harness.ftl().lock().erasures.is_running() && harness.ftl().stats().erases > erases);
    harness.check(harness.last(), "after an erase that waited");
}

#[test]
fn cold_data_is_moved_when_wear_spreads() {
    let _deadline = crate::tests::deadline();
    let power = Arc::new(Power::steady());
    let (mut config, store) = config(1000, false, &power, 8);
    config.collection.wear_bound = 8;
    let mut harness = Harness::start(config, store);
    for vba in 0..1000 {
        assert!(harness.write((vid(1), vba), 1));
    }
    // All writes go to a tenth of the blocks.
    churn(&mut harness, 2, 30_000, 100);
    let wear = harness.ftl().health().wear;
    println!("wear after 30,000 hot writes: {wear:?}");
    assert!(wear.most - wear.least <= 8 + 3, "{wear:?}");
    harness.check(harness.last(), "cold data is whole");
}

#[test]
fn quiet_times_win_space_back() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(1500, false, 10);
    for vba in 0..1500 {
        assert!(harness.write((vid(1), vba), 1));
    }
    // Six in ten blocks everywhere: no superblock is empty by itself.
    for vba in (0..1500).filter(|vba| vba % 10 < 6) {
        assert!(harness.trim((vid(1), vba), 1));
    }
    let before = harness.ftl().health().free_superblocks;
    for _ in 0..3000 {
        harness.tick();
    }
    let after = harness.ftl().health().free_superblocks;
    assert!(after > before, "{before} free superblocks before, {after} after");
    harness.check(harness.last(), "after background collection");
}

#[test]
fn an_ssd_takes_every_block_of_the_capacity_that_it_states() {
    let _deadline = crate::tests::deadline();
    for timed in [false, true] {
        for capacity in [1, 33, 1000, 4096u32] {
            let mut harness = Harness::new(capacity.into(), timed, 3);
            for step in 0..capacity {
                // Three volumes, in an order in which neighbours are far apart.
                let key = (vid(u16::try_from(step % 3).unwrap() + 1), step.wrapping_mul(0x9E37_79B1));
                assert!(harness.write(key, 1), "block {step} of {capacity}");
            }
            assert_eq!(harness.ftl().mapped(), u64::from(capacity));
            harness.check(harness.last(), "after the last block");
        }
    }
}
