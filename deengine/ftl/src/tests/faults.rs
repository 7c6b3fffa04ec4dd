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

/// No frame is free for the pages of a unit whose program fails.
#[test]
fn pages_of_a_failed_program_that_find_no_frame_are_not_durable_and_move_when_one_is_free() {
    let _deadline = crate::tests::deadline();
    for ends in ["shut down", "dump", "cut"] {
        let mut harness = Harness::new(800, false, 21);
        assert!(harness.write((vid(1), 0), 8) && harness.make_durable());
        let durable = harness.last();
        // The next unit, and one of another die after it.
        harness.config.faults.fail_program(1);
        let frames: Vec<_> = {
            assert!(harness.write((vid(1), 100), 3));
            let mut frames: Vec<_> = std::iter::from_fn(|| harness.ftl().take_frame()).collect();
            let last = frames.pop().expect("a frame for the last page of the unit");
            harness.ftl().give_frame(last);
            assert!(harness.write((vid(1), 103), 1));
            frames
        };
        let (wanted, _) = harness.ftl().make_durable(harness.now);
        for _ in 0..1000 {
            harness.tick();
        }
        assert!(harness.ftl().durable() < wanted, "pages without a place are not durable");
        assert!(harness.ftl().stats().stranded_pages > 0);
        harness.check(harness.last(), "they are read where they are");
        match ends {
            "cut" => {
                let flash = harness.power_cycle(5);
                harness.reopen(flash).unwrap();
                harness.check(durable, "after a cut");
            }
            "dump" => {
                harness.ftl().power_fail().unwrap();
                let last = harness.last();
                let flash = harness.power_cycle(5);
                harness.reopen(flash).unwrap();
                harness.check(last, "after a dump");
            }
            _ => {
                frames.into_iter().for_each(|frame| harness.ftl().give_frame(frame));
                assert!(harness.make_durable());
                harness.ftl().shut_down().unwrap();
                let last = harness.last();
                let flash = harness.power_cycle(5);
                harness.reopen(flash).unwrap();
                harness.check(last, "after a shutdown");
            }
        }
    }
}

#[test]
fn a_trim_of_the_largest_chunk_needs_no_room_for_all_its_transactions_at_once() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(5000, false, 23);
    for vba in (0..4096).step_by(8) {
        assert!(harness.write((vid(1), vba), 8));
    }
    assert!(harness.trim((vid(1), 0), 4096));
    harness.check(harness.last(), "after a TRIM of 4,096 blocks");
}

/// Fails each sync, or each write, of the system area.
#[derive(Debug)]
struct FailingStore {
    inner: Arc<RamStore>,
    syncs_fail: std::sync::atomic::AtomicBool,
}

impl FailingStore {
    fn check(&self) -> std::io::Result<()> {
        match self.syncs_fail.load(std::sync::atomic::Ordering::Relaxed) {
            true => Err(std::io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }
}

impl gnstor_flash::Store for FailingStore {
    fn len(&self) -> u64 {
        gnstor_flash::Store::len(&*self.inner)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.inner.read(at, out)
    }

    fn write(&self, at: u64, data: &[u8]) -> std::io::Result<()> {
        self.inner.write(at, data)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.check().and_then(|()| self.inner.sync())
    }

    fn start_sync(&self) -> std::io::Result<gnstor_flash::Started> {
        self.check().and_then(|()| self.inner.start_sync())
    }

    fn poll_sync(&self, ticket: gnstor_flash::SyncTicket) -> std::task::Poll<std::io::Result<()>> {
        self.inner.poll_sync(ticket)
    }

    fn barrier(&self) -> std::io::Result<bool> {
        self.inner.barrier()
    }

    fn memory(&self) -> Option<Arc<HostRegion>> {
        self.inner.memory()
    }
}

/// Writes and TRIMs end with an error where the disk takes nothing more. Waiting for ever is no status.
#[test]
fn writes_and_trims_are_refused_where_the_journal_cannot_be_written_for_seconds() {
    let _deadline = crate::tests::deadline();
    let power = Arc::new(Power::steady());
    let (mut config, inner) = config(2000, false, &power, 24);
    let store = Arc::new(FailingStore { inner: Arc::clone(&inner), syncs_fail: false.into() });
    config.store = Arc::clone(&store) as _;
    let mut harness = Harness::start(config, inner);
    for vba in 0..2000 {
        assert!(harness.write((vid(1), vba), 1));
    }
    assert!(harness.make_durable());
    store.syncs_fail.store(true, std::sync::atomic::Ordering::Relaxed);
    let frame = harness.ftl().take_frame().unwrap();
    let target = |vba| {
        let stamp = Stamp { lease_epoch: 9, sequence: 1 };
        Target { vid: vid(1), generation: 1, vba, stamp, only_mapped: false, fills: false }
    };
    let (mut refused, mut stalls) = (None, 0);
    for sequence in 1..100_000u64 {
        let target = Target {
            stamp: Stamp { lease_epoch: 9, sequence },
            ..target(u32::try_from(mix64(sequence) % 2000).unwrap())
        };
        let Some(frame) = harness.ftl().take_frame() else {
            harness.pass(Span::from_ms(1));
            continue;
        };
        match harness.ftl().commit(harness.now, harness.now, &target, &[NewBlock { frame, sum: 0 }]) {
            Ok(_) => harness.tick(),
            Err(error) => {
                harness.ftl().give_frame(frame);
                if error == CommitError::Stalled {
                    stalls += 1;
                    harness.pass(Span::from_ms(10));
                    assert!(stalls < 1000, "a write waits for ever");
                } else {
                    refused = Some(error);
                    break;
                }
            }
        }
    }
    harness.ftl().give_frame(frame);
    assert_eq!(refused.map(|error| error.to_string()).as_deref(), Some("the disk takes no writes"));
    let trimmed = harness.ftl().trim(harness.now, &target(7), 64);
    assert!(!matches!(trimmed, Err(CommitError::Stalled)), "{trimmed:?}");
    // The disk is well again.
    store.syncs_fail.store(false, std::sync::atomic::Ordering::Relaxed);
    let mut now = harness.now;
    let frame = harness.ftl().take_frame().unwrap();
    while harness.ftl().commit(now, now, &target(7), &[NewBlock { frame, sum: 0 }]).is_err() {
        now = now + Span::from_ms(1);
        harness.ftl().maintain(now);
        assert!(now.since(harness.now) < Span::from_ms(60_000), "writes go on");
    }
}
