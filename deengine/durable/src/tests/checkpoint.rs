// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checkpoints without power cuts: fuzzy copies, falling back, and what `finish` insists on.

use super::{Bench, Dice, SIZES};
use crate::bytes::CHUNK;
use crate::{AppliedStamp, Checkpoint, Durable, DurableError, HistoryMeta, Journal, Meta, Record, Unusable};
use gnstor_proto::slba::{Stamp, Vid};

/// A map's words and the journal that follows them.
struct Words {
    words: Vec<u64>,
    journal: Journal,
    dice: Dice,
}

impl Words {
    fn change(&mut self, count: u64) {
        for _ in 0..count {
            self.journal.begin();
            for _ in 0..self.dice.below(4) {
                let (index, value) = (self.dice.below(SIZES.map_words), self.dice.next());
                self.words[usize::try_from(index).unwrap()] = value;
                self.journal.add(Record::Word { index, value });
            }
            self.journal.commit();
        }
    }

    fn checkpoint(&mut self, durable: &Durable, page_seq: u64) {
        let meta = Meta { page_seq, ..Meta::empty(&SIZES) };
        let mut checkpoint = Checkpoint::begin(durable, &self.journal, &meta).unwrap();
        for first in (0..SIZES.map_words).step_by(700) {
            self.change(3);
            let end = (first + 700).min(SIZES.map_words);
            let range = usize::try_from(first).unwrap()..usize::try_from(end).unwrap();
            checkpoint.words(first, &self.words[range]).unwrap();
        }
        self.journal.flush(checkpoint.needs(), true).unwrap();
        checkpoint.finish(&mut self.journal).unwrap();
    }
}

fn start(bench: &Bench) -> (Durable, Words) {
    let durable = bench.format().durable;
    let replayed = durable.replay(0, |_, _| Ok::<_, DurableError>(())).unwrap();
    let journal = durable.into_journal(&replayed).unwrap();
    (durable, Words { words: vec![0; 5000], journal, dice: Dice(4) })
}

/// The result of a restore from the newest whole checkpoint, and that checkpoint's `page_seq`.
fn restore(durable: &Durable) -> Result<(Vec<u64>, u64), Unusable> {
    let mut below = u64::MAX;
    loop {
        let mut restored = durable.checkpoint_before(below)?;
        let mut words = vec![0; 5000];
        let copied = restored.for_each(|first, chunk| {
            let first = usize::try_from(first).unwrap();
            words[first..first + chunk.len()].copy_from_slice(chunk);
            Ok::<_, Unusable>(())
        });
        if copied.is_ok() {
            let replayed = durable.replay(restored.seq, |_, records| {
                for record in records {
                    let Record::Word { index, value } = *record else { panic!("{record:?}") };
                    words[usize::try_from(index).unwrap()] = value;
                }
                Ok::<_, DurableError>(())
            })?;
            if replayed.is_whole() {
                return Ok((words, restored.meta.page_seq));
            }
        }
        below = restored.number();
    }
}

#[test]
fn a_fuzzy_copy_and_the_journal_give_the_exact_words() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut map) = start(&bench);
    for round in 1..9 {
        map.change(30);
        map.checkpoint(&durable, round);
        map.change(10);
        map.journal.flush(u64::MAX, true).unwrap();
        assert_eq!(restore(&bench.open().durable).unwrap(), (map.words.clone(), round));
    }
}

#[test]
fn a_damaged_newest_checkpoint_falls_back_while_the_journal_reaches() {
    let _deadline = crate::tests::deadline();
    let offsets = |durable: &Durable, which: usize| {
        let layout = durable.layout();
        [0, layout.table, layout.meta, layout.words, layout.words + 20_000]
            .map(|at| layout.checkpoints[which] + at + 9)
    };
    for nth in 0..5 {
        let bench = Bench::new();
        let (durable, mut map) = start(&bench);
        map.change(300);
        map.checkpoint(&durable, 1);
        map.change(30);
        map.checkpoint(&durable, 2);
        map.change(3);
        map.journal.flush(u64::MAX, true).unwrap();
        let newest = durable.header().newest().unwrap();
        bench.flip(offsets(&durable, newest)[nth], 0);
        assert_eq!(restore(&bench.open().durable).unwrap(), (map.words.clone(), 1), "damage {nth}");
        // Continuing from the older checkpoint keeps it, and its part of the ring, until a newer one is
        // finished.
        let opened = bench.open().durable;
        let older = opened.checkpoint_before(2 + 1).unwrap();
        let replayed = opened.replay(older.seq, |_, _| Ok::<_, DurableError>(())).unwrap();
        if older.meta.page_seq == 1 {
            map.journal = opened.into_journal(&replayed).unwrap();
            map.checkpoint(&opened, 3);
            assert_eq!(restore(&bench.open().durable).unwrap(), (map.words.clone(), 3));
        }
    }
}

#[test]
fn an_older_checkpoint_is_of_no_use_once_the_ring_has_been_reused() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut map) = start(&bench);
    map.checkpoint(&durable, 1);
    map.change(20);
    map.checkpoint(&durable, 2);
    // Almost a lap beyond the newer one. This overwrites the first pages that the older one needs.
    while map.journal.fill_permille() < 990 {
        map.change(1);
        map.journal.flush(u64::MAX, true).unwrap();
    }
    assert_eq!(restore(&bench.open().durable).unwrap().0, map.words);
    let newest = durable.header().newest().unwrap();
    bench.flip(durable.layout().checkpoints[newest] + 30, 0);
    let error = restore(&bench.open().durable).unwrap_err();
    assert!(!error.reason.is_empty());
}

#[test]
fn finish_insists_on_all_words_and_a_durable_journal() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut map) = start(&bench);
    map.change(5);
    let begin = |map: &Words| Checkpoint::begin(&durable, &map.journal, &Meta::empty(&SIZES)).unwrap();
    let mut early = begin(&map);
    assert!(matches!(early.words(1, &[0]), Err(DurableError::WordsOrder { expected: 0, first: 1, .. })));
    assert!(matches!(early.words(0, &vec![0; 5001]), Err(DurableError::WordsOrder { .. })));
    early.words(0, &[0; 10]).unwrap();
    map.journal.flush(u64::MAX, true).unwrap();
    let error = early.finish(&mut map.journal).unwrap_err();
    assert!(matches!(error, DurableError::Incomplete { has: 10, of: 5000 }), "{error}");
    let mut late = begin(&map);
    map.change(1);
    late.words(0, &map.words).unwrap();
    assert_eq!(late.needs(), 6);
    let error = late.finish(&mut map.journal).unwrap_err();
    assert!(matches!(error, DurableError::NotDurable { needed: 6, durable: 5 }), "{error}");
    map.journal.flush(u64::MAX, true).unwrap();
    assert_eq!(restore(&bench.open().durable).unwrap().0, map.words);
}

#[test]
fn an_abandoned_transaction_does_not_hold_a_checkpoint_up() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut map) = start(&bench);
    let mut checkpoint = Checkpoint::begin(&durable, &map.journal, &Meta::empty(&SIZES)).unwrap();
    map.journal.begin();
    checkpoint.words(0, &map.words).unwrap();
    assert_eq!(checkpoint.needs(), 1);
    map.journal.abandon();
    checkpoint.finish(&mut map.journal).unwrap();
}

#[test]
fn a_checkpoint_may_be_written_by_another_thread() {
    let _deadline = crate::tests::deadline();
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_send::<Checkpoint>();
    is_send::<Journal>();
    is_shared::<Durable>();
}

#[test]
fn the_older_one_is_void_while_it_is_overwritten() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut map) = start(&bench);
    map.checkpoint(&durable, 1);
    map.checkpoint(&durable, 2);
    let newest = durable.checkpoint().unwrap().number();
    assert_eq!(durable.checkpoint_before(newest).unwrap().meta.page_seq, 1);
    let mut running = Checkpoint::begin(&durable, &map.journal, &Meta::empty(&SIZES)).unwrap();
    running.words(0, &map.words).unwrap();
    drop(running);
    let durable = bench.open().durable;
    assert_eq!(durable.checkpoint().unwrap().meta.page_seq, 2);
    assert!(durable.checkpoint_before(newest).is_err());
}

/// A meta of this many bytes, a multiple of 16.
fn meta_of(bytes: usize) -> Meta {
    let mut meta = Meta::empty(&SIZES);
    let front = meta.encode(&SIZES).unwrap().len();
    let stamp = |n: usize| Stamp { lease_epoch: 3, sequence: n as u64 + 1 };
    let history =
        |count: usize| (0..count).map(|n| AppliedStamp::new(u32::try_from(n).unwrap(), stamp(n))).collect();
    // Volumes of 8 bytes each, and stamps in the rest.
    let mut left = (bytes - front) / 8;
    while left > 0 {
        let count = ((left - 1) / 2).min(u16::MAX.into());
        let raw = u16::try_from(meta.histories.len() + 1).unwrap();
        meta.histories.push(HistoryMeta { vid: Vid::new(raw).unwrap(), ahead: 0, stamps: history(count) });
        left -= 1 + 2 * count;
    }
    assert_eq!(meta.encode(&SIZES).unwrap().len(), bytes);
    meta
}

#[test]
fn a_meta_of_many_pieces_is_restored_whole() {
    let _deadline = crate::tests::deadline();
    for bytes in [CHUNK - 16, CHUNK, CHUNK + 16, 2 * CHUNK, 3 * CHUNK + 112] {
        let bench = Bench::new();
        let (durable, mut map) = start(&bench);
        let meta = meta_of(bytes);
        let mut checkpoint = Checkpoint::begin(&durable, &map.journal, &meta).unwrap();
        // Few words: most of the meta is left for the end.
        checkpoint.words(0, &map.words).unwrap();
        checkpoint.finish(&mut map.journal).unwrap();
        assert!(bench.open().durable.checkpoint().unwrap().meta == meta, "{bytes} bytes");
    }
}

#[test]
fn stamp_histories_come_one_by_one_in_two_parts_while_the_words_are_written() {
    let _deadline = crate::tests::deadline();
    for bytes in [CHUNK - 16, CHUNK, CHUNK + 16, 3 * CHUNK + 112] {
        let bench = Bench::new();
        let (durable, mut map) = start(&bench);
        let whole = meta_of(bytes);
        let front =
            Meta { histories: Vec::new(), ..whole.clone() }.encode_front(vec![7; 10], &SIZES).unwrap();
        let mut checkpoint = Checkpoint::begin_with(&durable, &map.journal, front).unwrap();
        let (first, rest) = map.words.split_at(map.words.len() / 2);
        checkpoint.words(0, first).unwrap();
        for (number, HistoryMeta { vid, stamps, .. }) in whole.histories.iter().enumerate() {
            let (older, newer) = stamps.split_at(stamps.len().min(70));
            checkpoint.history(map.journal.last(), *vid, [older, newer]).unwrap();
            if number == 0 {
                checkpoint.words(first.len() as u64, rest).unwrap();
            }
        }
        checkpoint.finish(&mut map.journal).unwrap();
        assert!(bench.open().durable.checkpoint().unwrap().meta == whole, "{bytes} bytes");
    }
}

#[test]
fn a_stamp_history_that_knows_more_than_the_journal_has_on_flash_holds_up_its_checkpoint() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut map) = start(&bench);
    let front = Meta::empty(&SIZES).encode_front(Vec::new(), &SIZES).unwrap();
    let mut checkpoint = Checkpoint::begin_with(&durable, &map.journal, front).unwrap();
    checkpoint.words(0, &map.words).unwrap();
    map.journal.begin();
    let seq = map.journal.commit();
    checkpoint.history(seq, Vid::MIN, [&[], &[]]).unwrap();
    assert_eq!(checkpoint.needs(), seq);
    assert!(matches!(
        checkpoint.finish(&mut map.journal),
        Err(DurableError::NotDurable { needed, .. }) if needed == seq
    ));
}

#[test]
fn a_meta_of_the_older_form_is_read() {
    let _deadline = crate::tests::deadline();
    let mut old = Meta::empty(&SIZES).encode(&SIZES).unwrap();
    let at = old.len();
    old[40..48].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    old.extend_from_slice(&[3, 0, 0, 0, 1, 0, 0, 0]);
    old.extend_from_slice(&[5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    let stamp = Stamp { lease_epoch: 6, sequence: 7 };
    let history =
        HistoryMeta { vid: Vid::new(3).unwrap(), ahead: 0, stamps: vec![AppliedStamp::new(5, stamp)] };
    assert_eq!(Meta::decode(&old, &SIZES).unwrap(), Meta { histories: vec![history], ..Meta::empty(&SIZES) });
    // Cut short, or with a second volume that was not announced.
    assert!(Meta::decode(&old[..old.len() - 1], &SIZES).is_err());
    let twice = [&old[..], &old[at..]].concat();
    assert!(Meta::decode(&twice, &SIZES).is_err());
}

#[test]
fn a_meta_that_is_too_long_is_refused_and_the_checkpoint_before_stays() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut map) = start(&bench);
    map.checkpoint(&durable, 1);
    let refused = Checkpoint::begin_with(&durable, &map.journal, vec![0; 8 << 20]);
    assert!(matches!(refused, Err(DurableError::TooLarge { .. })));
    assert_eq!(restore(&durable).unwrap(), (map.words.clone(), 1));
}
