// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dump without power cuts: round trip, budget, invalidation, and how it joins the journal.

use super::{Bench, Dice, SIZES};
use crate::{DumpPage, DumpState, DumpWriter, Durable, DurableError, Journal, Record, dump};
use gnstor_flash::{Oob, Ppa};
use gnstor_proto::slba::Stamp;

pub(crate) type Page = (Ppa, Oob, Option<[u8; 4096]>);

#[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
pub(crate) fn pages(dice: &mut Dice, count: u64) -> Vec<Page> {
    let page = |dice: &mut Dice| {
        let stamp = Stamp { lease_epoch: dice.next() as u32, sequence: dice.next() };
        let (vid, generation, vba, sum) = (dice.next() as u16, dice.next() as u32, dice.next() as u32, 5);
        let oob = Oob { vid, generation, vba, stamp, sum, seq: dice.below(1 << 62) };
        (Ppa(dice.next() as u32), oob, (dice.below(8) != 0).then(|| [dice.next() as u8; 4096]))
    };
    (0..count).map(|_| page(dice)).collect()
}

pub(crate) fn lend(pages: &[Page]) -> impl Iterator<Item = DumpPage<'_>> {
    pages.iter().map(|(page, oob, data)| DumpPage { page: *page, oob: *oob, data: data.as_ref() })
}

fn start(bench: &Bench) -> (Durable, Journal) {
    let durable = bench.format().durable;
    let replayed = durable.replay(0, |_, _| Ok::<_, DurableError>(())).unwrap();
    let journal = durable.into_journal(&replayed).unwrap();
    (durable, journal)
}

fn transactions(journal: &mut Journal, dice: &mut Dice, count: usize) -> Vec<Vec<Record>> {
    let all: Vec<Vec<Record>> = (0..count).map(|_| dice.records()).collect();
    for records in &all {
        journal.begin();
        records.iter().for_each(|record| journal.add(*record));
        journal.commit();
    }
    all
}

/// Writes a dump of these pages and returns its bytes.
pub(super) fn write_dump<'a>(
    durable: &Durable,
    journal: &Journal,
    pages: impl IntoIterator<Item = DumpPage<'a>>,
) -> Result<u64, DurableError> {
    let mut writer = DumpWriter::begin(durable, journal)?;
    for page in pages {
        writer.page(page)?;
    }
    writer.finish()
}

#[test]
fn a_dump_comes_back_whole_and_joins_the_journal() {
    let _deadline = crate::tests::deadline();
    for (count, tail) in [(0, 0), (1, 1), (50, 20), (0, 40), (51, 0)] {
        let bench = Bench::new();
        let (durable, mut journal) = start(&bench);
        let mut dice = Dice(count);
        transactions(&mut journal, &mut dice, 5);
        journal.flush(u64::MAX, true).unwrap();
        let written = transactions(&mut journal, &mut dice, tail);
        let pages = pages(&mut dice, count);
        let bytes = write_dump(&durable, &journal, lend(&pages)).unwrap();
        assert!(bytes <= dump::bytes_for(journal.tail_bytes(), count));

        let durable = bench.open().durable;
        let DumpState::Intact(dump) = durable.read_dump() else { panic!("{:?}", durable.read_dump()) };
        assert_eq!((dump.durable(), dump.last()), (5, 5 + tail as u64));
        assert_eq!(dump.pages().collect::<Vec<_>>(), lend(&pages).collect::<Vec<_>>());
        let replayed = durable.replay(0, |_, _| Ok::<_, DurableError>(())).unwrap();
        let mut seen = Vec::new();
        dump.replay(replayed.last, |seq, records| {
            assert_eq!(seq, 6 + seen.len() as u64);
            seen.push(records.to_vec());
            Ok::<_, DurableError>(())
        })
        .unwrap();
        assert_eq!(seen, written);
        let mut journal = durable.into_journal(&replayed).unwrap();
        journal.adopt(&dump).unwrap();
        assert_eq!((journal.last(), journal.durable()), (dump.last(), 5));
        // The dump stays until it is invalidated, and no other can take its place.
        assert!(matches!(DumpWriter::begin(&durable, &journal), Err(DurableError::DumpHeld)));
        journal.flush(u64::MAX, true).unwrap();
        assert!(matches!(bench.open().durable.read_dump(), DumpState::Intact(_)));
        durable.invalidate_dump().unwrap();
        assert!(matches!(bench.open().durable.read_dump(), DumpState::Missing));
        let mut again = Vec::new();
        let replayed = bench.open().durable.replay(0, |_, records| {
            again.push(records.to_vec());
            Ok::<_, DurableError>(())
        });
        assert_eq!(again[5..], written);
        assert!(replayed.unwrap().is_whole());
    }
}

#[test]
fn a_dump_beyond_the_energy_budget_is_refused() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, journal) = start(&bench);
    let room = SIZES.dump_bytes / 4096;
    // 63 records to a group: head, group head, 61 data pages and the commit page fill 64 pages.
    let page = DumpPage { page: Ppa(1), oob: Oob::default(), data: Some(&[7; 4096]) };
    let mut writer = DumpWriter::begin(&durable, &journal).unwrap();
    let fits = (0..).take_while(|_| writer.page(page).is_ok()).count() as u64;
    assert_eq!(fits, room - 3);
    assert_eq!(dump::bytes_for(0, fits), SIZES.dump_bytes);
    assert!(matches!(writer.page(page), Err(DurableError::TooLarge { .. })));
    assert_eq!(writer.finish().unwrap(), SIZES.dump_bytes);
    assert!(matches!(durable.read_dump(), DumpState::Intact(_)));
}

#[test]
fn a_dump_that_is_not_finished_is_torn() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let (durable, mut journal) = start(&bench);
    let mut dice = Dice(9);
    transactions(&mut journal, &mut dice, 5);
    let all = pages(&mut dice, 20);
    // First a whole dump with the same number, so that its commit page is after the unfinished one.
    write_dump(&durable, &journal, lend(&all)).unwrap();
    let DumpState::Intact(_) = durable.read_dump() else { panic!() };
    let mut writer = DumpWriter::begin(&durable, &journal).unwrap();
    writer.page(DumpPage { page: Ppa(5), ..lend(&all).next().unwrap() }).unwrap();
    drop(writer);
    transactions(&mut journal, &mut dice, 1);
    let writer = DumpWriter::begin(&durable, &journal).unwrap();
    drop(writer);
    let DumpState::Torn { reason } = durable.read_dump() else { panic!("{:?}", durable.read_dump()) };
    assert!(!reason.is_empty());
}
