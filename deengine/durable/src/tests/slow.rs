// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Slow disks: what is started counts when its syncs have ended, and not before.

use super::{Bench, SIZES, entry, vid};
use crate::{
    Checkpoint, Durable, DurableError, Journal, Meta, MetadataStore, Record, SmartCounters, Tombstone,
};
use std::task::Poll;

/// Number of polls until a sync ends.
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
    // A flush that waits first finishes the one in progress.
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
        // The first one uses a place that had no cell.
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
        // A change of the header that waits comes after the one in progress.
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
    // The first counters are still being written. So the second ones are not written yet, and the caller sees
    // that.
    metadata.start_smart_counters(&counters(2)).unwrap();
    assert_eq!(metadata.contents().smart_counters, counters(1));
    for _ in 0..3 * POLLS {
        metadata.start_smart_counters(&counters(3)).unwrap();
    }
    assert_eq!(metadata.contents().smart_counters, counters(3));
    metadata.set_smart_counters(&counters(4)).unwrap();
    assert_eq!(bench.open().metadata.contents().smart_counters, counters(4));
}

/// Polls until what was started is over.
fn finish_changes(metadata: &mut MetadataStore) -> u32 {
    let mut polls = 1;
    loop {
        match metadata.poll() {
            Poll::Pending => polls += 1,
            Poll::Ready(result) => {
                result.unwrap();
                return polls;
            }
        }
    }
}

#[test]
fn changes_of_the_metadata_wait_for_no_disk_and_take_effect_when_they_are_durable() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::slow(POLLS);
    let mut metadata = bench.format().metadata;
    metadata.start_term(3);
    metadata.start_entry(vid(1), &entry(vid(1), 1, 1));
    assert!(metadata.poll().is_pending());
    assert_eq!((metadata.contents().term, metadata.contents().entries.len()), (0, 0));
    // Term, empty cells of new places, header, entry: each cell has two syncs.
    let polls = finish_changes(&mut metadata);
    assert!(polls > 6 * (POLLS - 1), "{polls}");
    assert_eq!((metadata.contents().term, metadata.contents().entries.len()), (3, 1));
    assert_eq!(bench.open().metadata.contents(), metadata.contents());
    metadata.start_map(&[5; 4000]);
    metadata.start_bury(vid(1), Tombstone { generation: 1, ..Tombstone::default() });
    metadata.start_filling(9);
    metadata.start_leased(4);
    finish_changes(&mut metadata);
    let contents = metadata.contents();
    assert_eq!((contents.entries.len(), contents.tombstones.len()), (0, 1));
    assert_eq!((contents.term, contents.filling, contents.leased), (4, Some(9), true));
    assert_eq!(bench.open().metadata.contents(), contents);
}

#[test]
fn a_change_that_is_refused_takes_those_behind_it_along() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::slow(POLLS);
    let mut metadata = bench.format().metadata;
    metadata.bury(vid(1), Tombstone { generation: 4, ..Tombstone::default() }).unwrap();
    metadata.start_entry(vid(1), &entry(vid(1), 4, 1));
    metadata.start_term(7);
    let Poll::Ready(Err(DurableError::Buried { .. })) = metadata.poll() else { panic!("it is buried") };
    assert!(!metadata.is_changing());
    metadata.start_term(8);
    finish_changes(&mut metadata);
    assert_eq!(bench.open().metadata.contents().term, 8);
}

#[test]
fn a_power_cut_beside_a_change_leaves_all_of_it_or_nothing() {
    let _deadline = crate::tests::deadline();
    let mut found = [0; 3];
    for seed in 0..80u64 {
        let bench = Bench::slow(POLLS);
        let mut metadata = bench.format().metadata;
        metadata.put_entry(vid(1), &entry(vid(1), 1, 1)).unwrap();
        metadata.start_entry(vid(1), &entry(vid(1), 1, 2));
        metadata.start_bury(vid(1), Tombstone { generation: 1, ..Tombstone::default() });
        for _ in 0..seed % 25 {
            let _ = metadata.poll();
        }
        bench.power.cut();
        drop(metadata);
        bench.power.restore();
        bench.ram.after_power_cut(seed);
        let metadata = bench.open().metadata;
        assert_eq!((metadata.lost(), metadata.is_changing()), (&[] as &[crate::cell::Kind], false));
        match metadata.contents().entries.get(&vid(1)) {
            Some(bytes) if *bytes == entry(vid(1), 1, 1) => found[0] += 1,
            Some(bytes) => {
                assert_eq!(*bytes, entry(vid(1), 1, 2));
                found[1] += 1;
            }
            None => found[2] += 1,
        }
        assert_eq!(
            metadata.contents().entries.is_empty(),
            metadata.contents().tombstones.contains_key(&vid(1))
        );
    }
    assert!(found.iter().all(|&count| count > 5), "{found:?}");
}
