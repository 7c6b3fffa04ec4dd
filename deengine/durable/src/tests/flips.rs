// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One bit of the store is wrong, anywhere. No panic and no wrong data follows, and missing data is reported.

use super::dump::{lend, pages, write_dump};
use super::{Bench, Dice, SIZES, entry, vid};
use crate::{Checkpoint, DumpState, Durable, DurableError, Meta, Metadata, Record, Tombstone, Unusable};
use gnstor_flash::Store;

pub(super) struct Made {
    pub(super) bench: Bench,
    history: Vec<Vec<Record>>,
    metadata: Metadata,
    pages: Vec<super::dump::Page>,
    pub(super) end: u64,
}

/// A store with everything in it.
pub(super) fn make() -> Made {
    let bench = Bench::new();
    let opened = bench.format();
    let (durable, mut metadata) = (opened.durable, opened.metadata);
    let mut dice = Dice(11);
    metadata.put_entry(vid(1), &entry(vid(1), 1, 1)).unwrap();
    metadata.put_entry(vid(2), &entry(vid(2), 1, 1)).unwrap();
    let tombstone =
        Tombstone { generation: 1, ids: vec![([1; 16], 5)], buried_at: 6, ..Tombstone::default() };
    metadata.bury(vid(2), tombstone).unwrap();
    metadata.set_term(3).unwrap();
    metadata.set_map(&[9; 600]).unwrap();
    let replayed = durable.replay(0, |_, _| Ok::<_, DurableError>(())).unwrap();
    let mut journal = durable.into_journal(&replayed).unwrap();
    let mut history = Vec::new();
    let mut words = vec![0; 5000];
    for round in 0..3 {
        for _ in 0..40 {
            let records = dice.records();
            journal.begin();
            records.iter().for_each(|record| journal.add(*record));
            journal.commit();
            for record in &records {
                if let Record::Word { index, value } = *record {
                    words[usize::try_from(index).unwrap()] = value;
                }
            }
            history.push(records);
        }
        if round < 2 {
            let mut checkpoint = Checkpoint::begin(&durable, &journal, &Meta::empty(&SIZES)).unwrap();
            checkpoint.words(0, &words).unwrap();
            journal.flush(checkpoint.needs(), true).unwrap();
            checkpoint.finish(&mut journal).unwrap();
        }
    }
    journal.flush(110, true).unwrap();
    let pages = pages(&mut dice, 9);
    write_dump(&durable, &journal, lend(&pages)).unwrap();
    Made { end: SIZES.store_bytes(), metadata: metadata.contents().clone(), bench, history, pages }
}

/// Restores as much as possible, and checks that all of it is correct.
fn check(made: &Made) {
    let opened = match Durable::open(made.bench.store(), SIZES) {
        Ok(opened) => opened,
        Err(error) => panic!("one bad copy must not keep it from opening: {error}"),
    };
    assert_eq!(opened.metadata.contents(), &made.metadata);
    let durable = opened.durable;
    let mut below = u64::MAX;
    let restored = loop {
        let Ok(mut restored) = durable.checkpoint_before(below) else { panic!("both checkpoints") };
        let mut words = vec![0; 5000];
        let result = restored.for_each(|first, chunk| {
            let first = usize::try_from(first).unwrap();
            words[first..first + chunk.len()].copy_from_slice(chunk);
            Ok::<_, Unusable>(())
        });
        below = restored.number();
        if result.is_err() {
            continue;
        }
        // No word changed during the copy, so the words are exactly the state after `seq`.
        let mut exact = vec![0; 5000];
        for record in made.history[..usize::try_from(restored.seq).unwrap()].iter().flatten() {
            if let Record::Word { index, value } = *record {
                exact[usize::try_from(index).unwrap()] = value;
            }
        }
        assert!(words == exact);
        break restored;
    };
    let replayed = durable.replay(restored.seq, |seq, records| {
        assert_eq!(records, made.history[usize::try_from(seq - 1).unwrap()]);
        Ok::<_, DurableError>(())
    });
    let replayed = replayed.unwrap();
    match durable.read_dump() {
        DumpState::Intact(dump) => {
            assert!(dump.pages().eq(lend(&made.pages)));
            assert_eq!((dump.durable(), dump.last()), (110, 120));
            let reached = dump.replay(replayed.last, |seq, records| {
                assert_eq!(records, made.history[usize::try_from(seq - 1).unwrap()]);
                Ok::<_, DurableError>(())
            });
            // A missing page at the very end of the journal looks like a torn one. Only the dump shows that
            // it was durable.
            assert_eq!(reached.is_ok(), replayed.last >= 110);
        }
        DumpState::Torn { reason } => assert!(!reason.is_empty() && replayed.last == 110),
        DumpState::Missing => assert_eq!(replayed.last, 110),
    }
}

#[test]
fn one_bit_anywhere() {
    let _deadline = crate::tests::deadline();
    let made = make();
    check(&made);
    let mut image = vec![0; usize::try_from(made.end).unwrap()];
    made.bench.ram.read(0, &mut image).unwrap();
    let mut dice = Dice(5);
    // Every sector that has something in it, several bits of each.
    for (nth, sector) in
        image.chunks(512).enumerate().filter(|(_, sector)| sector.iter().any(|&byte| byte != 0))
    {
        for _ in 0..6 {
            // The first bytes have the magic, the checksum and the lengths.
            let within = if dice.below(2) == 0 { dice.below(64) } else { dice.below(512) };
            let at = nth as u64 * 512 + within;
            made.bench.flip(at, u8::try_from(dice.below(8)).unwrap());
            check(&made);
            // Bytes that were repaired stay. Everything else gets its old content back.
            made.bench.ram.write(nth as u64 * 512, sector).unwrap();
        }
    }
}

#[test]
fn garbage_anywhere_never_panics() {
    let _deadline = crate::tests::deadline();
    let mut dice = Dice(6);
    for round in 0..40 {
        let made = make();
        let layout = crate::layout::Layout::new(&SIZES);
        for _ in 0..1 + dice.below(30) {
            let at = match round % 4 {
                0 => dice.below(made.end),
                1 => layout.ring + dice.below(SIZES.journal_bytes),
                2 => layout.dump + dice.below(SIZES.dump_bytes / 4),
                _ => 16_384 + dice.below(layout.ring - 16_384),
            };
            made.bench.flip(at.min(made.end - 1), u8::try_from(dice.below(8)).unwrap());
        }
        let Ok(opened) = Durable::open(made.bench.store(), SIZES) else { continue };
        let durable = opened.durable;
        let _ = durable.read_dump();
        if let Ok(mut restored) = durable.checkpoint() {
            let _ = restored.for_each(|_, _| Ok::<_, Unusable>(()));
            let _ = durable.replay(restored.seq, |seq, records| {
                assert_eq!(records, made.history[usize::try_from(seq - 1).unwrap()]);
                Ok::<_, DurableError>(())
            });
        }
        durable.fresh_journal().unwrap();
    }
}
