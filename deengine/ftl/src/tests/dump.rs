// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Acknowledged pages that are not on flash always fit into the dump: writes wait before they would not.

use super::*;
use crate::restore::Origin;

/// Programs take 0.2 s, so that no page leaves the buffer by itself. There are more frames than a dump holds.
fn slow(dump_bytes: u64) -> Harness {
    let power = Arc::new(Power::steady());
    let (mut config, _) = config(4000, true, &power, 5);
    config.preset.program_ns = 200_000_000;
    (config.dump_bytes, config.spare_frames) = (dump_bytes, 4000);
    let bytes = FtlConfig::store_bytes(&config.preset, 4000, dump_bytes).unwrap();
    let store = Arc::new(RamStore::new(bytes, Arc::clone(&power)));
    config.store = Arc::clone(&store) as _;
    Harness::start(config, store)
}

/// Writes blocks one after the other until one has to wait. Returns their number.
fn fill(harness: &mut Harness, blocks: u32, at_most: u32) -> u32 {
    for written in (0..at_most).step_by(blocks as usize) {
        let stalls = harness.ftl().stats().stalls;
        let target = Target {
            vid: vid(1),
            generation: 1,
            vba: written,
            stamp: Stamp { lease_epoch: 1, sequence: harness.sequence },
            only_mapped: false,
            fills: false,
        };
        harness.sequence += 1;
        let new: Vec<NewBlock> = (0..blocks)
            .map(|index| {
                let data = content(tag(target.stamp, written + index));
                let frame = harness.ftl().take_frame().expect("more frames than a dump has room for");
                harness.ftl().flash().write_frame(frame, &data);
                NewBlock { frame, sum: gnstor_proto::checksum::block_sum(&data) }
            })
            .collect();
        match harness.ftl().commit(harness.now, harness.now, &target, &new) {
            Ok(committed) => {
                let seqs = std::mem::take(&mut harness.ftl().lock().commits.applied_at);
                for (index, seq) in (0..blocks).zip(seqs) {
                    let entry = harness.history.entry((vid(1), written + index)).or_default();
                    entry.push((seq, Some(tag(target.stamp, written + index))));
                }
                assert!(committed.overtaken == 0);
            }
            Err(error) => {
                assert_eq!(error, CommitError::Stalled);
                assert!(harness.ftl().stats().stalls > stalls);
                new.into_iter().for_each(|block| harness.ftl().give_frame(block.frame));
                return written;
            }
        }
    }
    panic!("{at_most} blocks are in the buffer and no write waits");
}

#[test]
fn a_buffer_of_slow_programs_never_outgrows_the_dump() {
    let _deadline = crate::tests::deadline();
    for (dump_bytes, blocks) in [(2 << 20, 1), (2 << 20, 13), (4 << 20, 64), (4 << 20, 256)] {
        let mut harness = slow(dump_bytes);
        harness.sequence = 1;
        let written = fill(&mut harness, blocks, 3000);
        let bytes = harness.ftl().power_fail().unwrap();
        assert!(bytes <= dump_bytes, "{bytes} of {dump_bytes}");
        // The budget stopped it: not much more would have fitted.
        let rest = dump_bytes - bytes;
        assert!(
            rest < 4096 * u64::from(3 * blocks + 32),
            "{written} blocks of {blocks}: {rest} bytes were left"
        );
        let last = harness.last();
        let flash = harness.power_cycle(9);
        harness.reopen(flash).unwrap();
        assert_eq!(harness.boot.origin, Origin::Dump);
        harness.check(last, "after a full dump");
    }
}

#[test]
fn who_waits_for_room_in_the_dump_goes_on_when_programs_end() {
    let _deadline = crate::tests::deadline();
    let mut harness = slow(2 << 20);
    harness.sequence = 1;
    let first = fill(&mut harness, 4, 3000);
    // A second is five programs of each die.
    harness.pass(Span::from_ms(1_000));
    for vba in 0..40 {
        assert!(harness.write((vid(1), first + vba), 1), "there is room again");
    }
    harness.check(harness.last(), "after waiting");
}

#[test]
fn collection_beside_slow_programs_leaves_room_in_the_dump() {
    let _deadline = crate::tests::deadline();
    let dump_bytes = 2 << 20;
    let mut harness = slow(dump_bytes);
    for vba in 0..4000 {
        assert!(harness.write((vid(2), vba), 1));
    }
    // Collection has work: six of ten blocks are unmapped, in every superblock.
    for vba in (0..4000).filter(|vba| vba % 10 < 6) {
        assert!(harness.trim((vid(2), vba), 1));
    }
    assert!(harness.make_durable());
    harness.pass(Span::from_ms(1_000));
    fill(&mut harness, 4, 2400);
    let before = harness.ftl().stats().background_steps;
    // No program ends within this time, and no host writes: collection alone may add pages to the buffer.
    harness.now = harness.now + crate::collect::state::IDLE_AFTER;
    for _ in 0..200 {
        harness.pass(Span::from_ns(100_000));
    }
    assert!(harness.ftl().stats().background_steps > before, "collection ran beside the full buffer");
    let bytes = harness.ftl().power_fail().expect("the dump has room for every page in the buffer");
    assert!(bytes <= dump_bytes, "{bytes} of {dump_bytes}");
    let last = harness.last();
    let flash = harness.power_cycle(11);
    harness.reopen(flash).unwrap();
    assert_eq!(harness.boot.origin, Origin::Dump);
    harness.check(last, "after a dump beside collection");
}
