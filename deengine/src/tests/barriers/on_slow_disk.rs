// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD in a file on a disk where each read and each sync takes a second. Writes take a twentieth of that,
//! since FUSE carries out one write of a file at a time.
#![expect(clippy::disallowed_methods, reason = "a disk is slow in real time")]

use super::super::mounts::left_out;
use super::super::slow_folder::{SlowFolder, Word};
use super::on_file::{Load, on_file, step_now, with_volume_later};
use super::*;
use std::time::{Duration, Instant};

/// What a request to the slow disk takes.
const SLOW_MS: u64 = 1000;
/// A step that takes longer has waited for the disk. Other programs may keep the processor for a while.
const STILL: Duration = Duration::from_millis(SLOW_MS / 2);
/// Blocks that are on the disk only, and that the load does not write.
const COLD: std::ops::Range<u32> = 500..512;

/// Keep Alives and reads of what is in memory are answered, whatever the disk does.
#[test]
fn no_step_of_an_engine_waits_for_a_slow_disk() {
    let folder = match SlowFolder::mount() {
        Ok(folder) => folder,
        Err(error) => return left_out("a FUSE mount", &error),
    };
    let start = Instant::now();
    let harness = on_file(folder.path(), |store| Arc::new(store)).with_clients();
    let mut harness = with_volume_later(harness, start);
    for vba in COLD {
        assert_eq!(refusal(&harness.write(vba, &[7])), None);
    }
    let flush = Sqe { nsid: 1.into(), ..sqe(io::FLUSH) };
    let flushed = harness.submit(WRITER, flush);
    while harness.take(WRITER, flushed).is_none() {
        step_now(&mut harness, start);
    }
    [Word::ReadMs, Word::SyncMs].into_iter().for_each(|ms| folder.set(ms, SLOW_MS));
    folder.set(Word::WriteMs, SLOW_MS / 20);
    let seconds = std::env::var("GNSTOR_SLOW_DISK_S").ok().and_then(|text| text.parse().ok()).unwrap_or(15);
    let (begin, mut load) = (Instant::now(), Load::default());
    let (mut longest, mut alive, mut cold_reads) = (Duration::ZERO, 0u64, 0u64);
    let mut cold: Option<u16> = None;
    while begin.elapsed() < Duration::from_secs(seconds) {
        let before = Instant::now();
        step_now(&mut harness, start);
        load.go_on(&mut harness);
        if let Some(cqe) = cold.and_then(|cid| harness.take(READER, cid)) {
            assert_eq!(refusal(&cqe), None, "a slow disk is no reason to fail");
            assert_eq!(harness.peek(READER, 0), &block(7)[..], "a block that was on the disk only");
            (cold, cold_reads) = (None, cold_reads + 1);
        }
        if cold.is_none() {
            let vba = COLD.start + u32::try_from(cold_reads).unwrap() % 12;
            let sqe = harness.io(io::READ, READER, vba, 1);
            cold = Some(harness.submit(READER, sqe));
        }
        for admin in [DAEMON, QueueKey(70), QueueKey(80), QueueKey(90)] {
            assert_eq!(refusal(&harness.run(admin, sqe_of_keep_alive())), None);
            alive += 1;
        }
        longest = longest.max(before.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    let [flushes, changes, writes] = load.done;
    eprintln!(
        "{flushes} flushes, {changes} changes, {writes} writes, {cold_reads} reads from the disk, {alive} \
         keep-alives; {} slow writes, {} syncs; longest step {longest:?}",
        folder.get(Word::Writes),
        folder.get(Word::Syncs),
    );
    [Word::ReadMs, Word::WriteMs, Word::SyncMs].into_iter().for_each(|ms| folder.set(ms, 0));
    assert!(longest < STILL, "an engine stood still for {longest:?}");
    assert!(flushes + changes > 0 && writes > 100 && cold_reads > 0, "{:?}, {cold_reads}", load.done);
    let stats = harness.stats();
    assert_eq!((stats.queues_closed, stats.stragglers_closed, &harness.closed), (0, 0, &Vec::new()));
}
