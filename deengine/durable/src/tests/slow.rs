// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Slow disks: what is started counts when its syncs have ended, and not before.

use super::{Bench, SIZES};
use crate::{Checkpoint, Durable, DurableError, Journal, Meta, Record, SmartCounters};
use std::task::Poll;

/// Polls that a sync takes.
const POLLS: u32 = 3;

fn transaction(journal: &mut Journal, value: u64) {
    journal.begin();
    journal.add(Record::Word { index: value % SIZES.map_words, value });
    journal.commit();
}

fn replayed(durable: &Durable) -> Vec<u64> {
    let mut values = Vec::new();
    let from = durable.checkpoint().unwrap().seq;
    let each = |_, records: &[Record]| {
        let Record::Word { value, .. } = records[0] else { panic!("{records:?}") };
        values.push(value);
        Ok::<_, DurableError>(())
    };
    assert!(durable.replay(from, each).unwrap().is_whole());
    values
}

fn start(bench: &Bench) -> (Durable, Journal) {
    let durable = bench.format().durable;
    let replayed = durable.replay(0, |_, _| Ok::<_, DurableError>(())).unwrap();
    let journal = durable.into_journal(&replayed).unwrap();
    (durable, journal)
}

/// Polls until the flush is over.
fn finish(journal: &mut Journal) -> u32 {
    let mut polls = 0;
    while journal.is_flushing() {
        journal.poll_flush().unwrap();
        polls += 1;
    }
    polls
}

#[test]
fn a_flush_counts_when_its_sync_has_ended_and_takes_what_was_there_when_it_began() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::slow(POLLS);
    let (_, mut journal) = start(&bench);
    (1..=5).for_each(|value| transaction(&mut journal, value));
    journal.start_flush(4, true).unwrap();
    assert!(journal.is_flushing());
    transaction(&mut journal, 6);
    journal.poll_flush().unwrap();
    assert_eq!((journal.durable(), journal.last()), (0, 6));
    assert_eq!(finish(&mut journal), POLLS - 1);
    assert_eq!(journal.durable(), 4);
    // A flush that waits finishes the one on its way first.
    journal.start_flush(5, true).unwrap();
    journal.flush(u64::MAX, true).unwrap();
    assert_eq!(journal.durable(), 6);
    drop(journal);
    assert_eq!(replayed(&bench.open().durable), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_power_cut_beside_a_running_flush_leaves_all_that_was_reported() {
    let _deadline = crate::tests::deadline();
    let mut lost = 0;
    for seed in 0..60 {
        let bench = Bench::slow(POLLS);
        let (durable, mut journal) = start(&bench);
        transaction(&mut journal, 1);
        journal.start_flush(1, true).unwrap();
        finish(&mut journal);
        transaction(&mut journal, 2);
        journal.start_flush(2, true).unwrap();
        bench.power.cut();
        assert!(journal.poll_flush().is_err() && !journal.is_flushing());
        assert_eq!(journal.durable(), 1);
        drop((durable, journal));
        bench.power.restore();
        bench.ram.after_power_cut(seed);
        let found = replayed(&bench.open().durable);
        assert!(found == [1] || found == [1, 2], "{found:?}");
        lost += usize::from(found == [1]);
    }
    assert!((10..60).contains(&lost), "{lost}");
}

#[test]
fn a_checkpoint_waits_for_the_header_before_and_after_it() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::slow(POLLS);
    let (durable, mut journal) = start(&bench);
    let words = vec![7; usize::try_from(SIZES.map_words).unwrap()];
    for round in 1..=3u64 {
        transaction(&mut journal, round);
        journal.flush(u64::MAX, true).unwrap();
        let before = durable.checkpoint().unwrap().seq;
        let meta = Meta::empty(&SIZES).encode(&SIZES).unwrap();
        let mut checkpoint = Checkpoint::start_with(&durable, &journal, meta).unwrap();
        let mut polls = 0;
        while !checkpoint.is_ready().unwrap() {
            polls += 1;
        }
        // The first one takes a place that was never used.
        assert_eq!(polls > POLLS, round > 1, "{polls} polls in round {round}");
        checkpoint.words(0, &words).unwrap();
        let mut finishing = checkpoint.start_finish(&journal).unwrap();
        let mut polls = 0;
        while finishing.poll(&mut journal).unwrap() == Poll::Pending {
            polls += 1;
            assert_eq!(durable.checkpoint().unwrap().seq, before, "it counts only when it is durable");
        }
        assert!(polls >= 3 * (POLLS - 1), "content, header, header again: {polls} polls");
        assert_eq!(durable.checkpoint().unwrap().seq, round);
        // A change of the header that waits comes behind the one on its way.
        durable.mark_running().unwrap();
    }
}

#[test]
fn counters_of_smart_are_written_beside_the_work() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::slow(POLLS);
    let mut metadata = bench.format().metadata;
    let counters = |on_ms| SmartCounters { on_ms, ..SmartCounters::default() };
    metadata.start_smart_counters(&counters(1)).unwrap();
    // The first ones are on their way: the second ones are not written yet, and the caller sees that.
    metadata.start_smart_counters(&counters(2)).unwrap();
    assert_eq!(metadata.contents().smart_counters, counters(1));
    for _ in 0..3 * POLLS {
        metadata.start_smart_counters(&counters(3)).unwrap();
    }
    assert_eq!(metadata.contents().smart_counters, counters(3));
    metadata.set_smart_counters(&counters(4)).unwrap();
    assert_eq!(bench.open().metadata.contents().smart_counters, counters(4));
}
