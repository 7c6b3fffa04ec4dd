// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The journal without power cuts: times of writes, laps of the ring, boots, and stale pages.

use super::{Bench, SIZES};
use crate::page::PageHead;
use crate::{Checkpoint, Durable, DurableError, End, Journal, Meta, Record, Replayed, Seq};
use gnstor_flash::Store;

const RING: u64 = SIZES.journal_bytes / 4096;

fn word(value: u64) -> Record {
    Record::Word { index: value % SIZES.map_words, value }
}

fn transaction(journal: &mut Journal, value: u64, words: usize) -> Seq {
    journal.begin();
    (0..words).for_each(|_| journal.add(word(value)));
    journal.commit()
}

fn replay(durable: &Durable) -> (Vec<u64>, Replayed) {
    let mut values = Vec::new();
    let from = durable.checkpoint().unwrap().seq;
    let replayed = durable.replay(from, |seq, records| {
        assert_eq!(seq, from + values.len() as u64 + 1);
        let Record::Word { value, .. } = records[0] else { panic!("{records:?}") };
        values.push(value);
        Ok::<_, DurableError>(())
    });
    (values, replayed.unwrap())
}

fn start(bench: &Bench) -> (Durable, Journal) {
    let durable = bench.format().durable;
    let (_, replayed) = replay(&durable);
    let journal = durable.into_journal(&replayed).unwrap();
    (durable, journal)
}

fn restart(bench: &Bench) -> (Vec<u64>, Durable, Journal) {
    let durable = bench.open().durable;
    let (values, replayed) = replay(&durable);
    assert!(replayed.is_whole(), "{:?}", replayed.end);
    let journal = durable.into_journal(&replayed).unwrap();
    (values, durable, journal)
}

fn checkpoint(durable: &Durable, journal: &mut Journal) {
    let mut checkpoint = Checkpoint::begin(durable, journal, &Meta::empty(&SIZES)).unwrap();
    checkpoint.words(0, &vec![0; 5000]).unwrap();
    journal.flush(checkpoint.needs(), true).unwrap();
    checkpoint.finish(journal).unwrap();
}

#[test]
fn only_full_pages_are_written_unless_forced() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (_, mut journal) = start(&bench);
    // Each takes 8 + 16 bytes, so 168 of them fill a page exactly.
    (0..200).for_each(|n| assert_eq!(transaction(&mut journal, n, 1), n + 1));
    journal.flush(160, false).unwrap();
    assert_eq!(journal.durable(), 0, "what would fill the page must not be written yet");
    journal.flush(200, false).unwrap();
    assert_eq!((journal.durable(), journal.tail_bytes()), (168, 32 * 24));
    journal.flush(180, true).unwrap();
    assert_eq!((journal.durable(), journal.tail_bytes()), (180, 20 * 24));
    let before = bench.power.ops();
    journal.flush(180, true).unwrap();
    assert_eq!(bench.power.ops(), before, "nothing to write, nothing to sync");
    journal.flush(u64::MAX, true).unwrap();
    assert_eq!((journal.durable(), journal.last(), journal.tail_bytes()), (200, 200, 0));
    assert_eq!(restart(&bench).0, (0..200).collect::<Vec<_>>());
}

#[test]
fn the_largest_transaction_fits_and_an_open_one_is_not_written() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (_, mut journal) = start(&bench);
    transaction(&mut journal, 1, 249);
    journal.begin();
    journal.add(word(2));
    journal.flush(u64::MAX, true).unwrap();
    assert_eq!(journal.durable(), 1);
    journal.abandon();
    assert_eq!(transaction(&mut journal, 3, 1), 2);
    journal.flush(u64::MAX, true).unwrap();
    assert_eq!(restart(&bench).0, [1, 3]);
}

#[test]
#[should_panic(expected = "does not fit a journal page")]
fn a_transaction_beyond_a_page_is_a_broken_invariant() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    transaction(&mut start(&bench).1, 1, 250);
}

#[test]
fn the_ring_is_never_overwritten_before_a_checkpoint() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut journal) = start(&bench);
    let mut wrote = 0;
    while journal.has_room(1000) {
        transaction(&mut journal, wrote, 1);
        wrote += 1;
        journal.flush(u64::MAX, true).unwrap();
    }
    assert!(wrote >= RING - RING / 16 - 4 && journal.fill_permille() > 800, "{wrote}");
    let error = loop {
        transaction(&mut journal, wrote, 1);
        match journal.flush(u64::MAX, true) {
            Ok(()) => wrote += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, DurableError::RingFull { .. }), "{error}");
    assert_eq!((wrote, journal.durable()), (RING, RING));
    assert_eq!(replay(&durable).0, (0..RING).collect::<Vec<_>>());
    // The transaction without room makes the checkpoint's `needs` too late: only the ones before it count.
    drop(journal);
    let (values, durable, mut journal) = restart(&bench);
    assert_eq!(values.len() as u64, RING);
    checkpoint(&durable, &mut journal);
    assert_eq!(journal.fill_permille(), 0);
    transaction(&mut journal, 77, 1);
    journal.flush(u64::MAX, true).unwrap();
    assert_eq!(restart(&bench).0, [77]);
}

#[test]
fn many_laps_and_boots_replay_exactly_what_follows_the_checkpoint() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (mut durable, mut journal) = start(&bench);
    let (mut next, mut since) = (0, Vec::new());
    for round in 0..200u64 {
        for _ in 0..round % 7 + 1 {
            transaction(&mut journal, next, usize::try_from(round % 50 + 1).unwrap());
            since.push(next);
            next += 1;
        }
        journal.flush(u64::MAX, round % 3 != 0).unwrap();
        if journal.fill_permille() >= 500 {
            checkpoint(&durable, &mut journal);
            since.clear();
        }
        if round % 11 == 0 {
            journal.flush(u64::MAX, true).unwrap();
            let values;
            (values, durable, journal) = restart(&bench);
            assert_eq!(values, since);
        }
    }
}

#[test]
fn a_stale_page_of_an_older_boot_is_never_replayed() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut journal) = start(&bench);
    // Pages 0, 1 and 2 have one transaction each, all of boot 2. Then page 1 is torn.
    for n in 0..3 {
        transaction(&mut journal, n, 1);
        transaction(&mut journal, n, 249);
    }
    journal.flush(u64::MAX, true).unwrap();
    let pages = 3;
    let mut saved = vec![0; 4096 * pages];
    bench.ram.read(durable.ring_at(0), &mut saved).unwrap();
    let heads: Vec<_> = saved.chunks(4096).map(|page| PageHead::decode(page).unwrap()).collect();
    assert_eq!(
        heads.iter().map(|head| (head.page, head.first)).collect::<Vec<_>>(),
        [(0, 1), (1, 3), (2, 5)]
    );
    bench.ram.write(durable.ring_at(1), &vec![0xEE; 4096]).unwrap();
    let (values, durable, mut journal) = restart(&bench);
    assert_eq!(values, [0, 0], "all three were of one flush, so page 2 proves nothing");
    // The next boot writes page 1 with the same number of transactions: page 2 would follow, except for its
    // boot.
    transaction(&mut journal, 100, 1);
    transaction(&mut journal, 101, 1);
    journal.flush(u64::MAX, true).unwrap();
    assert_eq!(replay(&durable).0, [0, 0, 100, 101]);
    // The same if the newer boot has written nothing: the old page 1 comes back, as after a lost write.
    let (_, durable, _) = restart(&bench);
    bench.ram.write(durable.ring_at(2), &saved[8192..]).unwrap();
    assert_eq!(replay(&durable).0, [0, 0, 100, 101]);
}

#[test]
fn a_page_that_was_durable_and_is_gone_is_damage() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut journal) = start(&bench);
    for n in 0..5 {
        transaction(&mut journal, n, 1);
        journal.flush(u64::MAX, true).unwrap();
    }
    bench.flip(durable.ring_at(2) + 70, 3);
    let (values, replayed) = replay(&bench.open().durable);
    assert_eq!((values.len(), replayed.last), (2, 2));
    assert!(
        matches!(&replayed.end, End::Damaged { reason } if reason.contains("page 3")),
        "{:?}",
        replayed.end
    );
    let durable = bench.open().durable;
    assert!(matches!(durable.into_journal(&replayed), Err(DurableError::JournalDamaged { last: 2, .. })));
    // The way out: rebuild, a fresh journal, a checkpoint. Nothing of the old journal is found again.
    let mut journal = durable.fresh_journal().unwrap();
    assert!(durable.checkpoint().is_err());
    transaction(&mut journal, 50, 1);
    checkpoint(&durable, &mut journal);
    transaction(&mut journal, 51, 1);
    journal.flush(u64::MAX, true).unwrap();
    assert_eq!(restart(&bench).0, [51]);
}

#[test]
fn the_last_page_is_missed_after_a_clean_shutdown_and_after_a_restart() {
    let _deadline = crate::tests::deadline();
    for clean in [true, false] {
        let bench = Bench::new();
        let (durable, mut journal) = start(&bench);
        transaction(&mut journal, 1, 1);
        journal.flush(u64::MAX, true).unwrap();
        if clean {
            durable.mark_clean(&journal).unwrap();
            assert_eq!(bench.open().state, crate::State::Clean);
        } else {
            let _ = restart(&bench);
        }
        bench.flip(durable.ring_at(0) + 1, 0);
        assert!(!replay(&bench.open().durable).1.is_whole());
    }
}

#[test]
fn a_flush_after_a_clean_mark_takes_it_back() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut journal) = start(&bench);
    transaction(&mut journal, 1, 1);
    assert!(matches!(durable.mark_clean(&journal), Err(DurableError::NotDurable { needed: 1, durable: 0 })));
    journal.flush(u64::MAX, true).unwrap();
    durable.mark_clean(&journal).unwrap();
    transaction(&mut journal, 2, 1);
    journal.flush(u64::MAX, true).unwrap();
    assert_eq!(bench.open().state, crate::State::Unclean);
    assert_eq!(restart(&bench).0, [1, 2]);
}

#[test]
fn replay_starts_only_at_a_checkpoint() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, _) = start(&bench);
    let result = durable.replay(1, |_, _| Ok::<_, DurableError>(()));
    assert!(matches!(result, Err(DurableError::UnknownPosition { seq: 1 })));
}
