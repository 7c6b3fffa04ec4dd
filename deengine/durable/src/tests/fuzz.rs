// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything that is decoded from a store, from random bytes, and from valid bytes with a change under a
//! right checksum.
//!
//! ```text
//!   decoders each file that takes numbers out of bytes has an entry in DECODERS; a test fails without it
//!   stores   a store --change a field, reseal up to the head--> open, read all of it, go on
//! ```
//! Only a panic is a failure: forged checksums may lead to any contents. `GNSTOR_FUZZ_SECONDS` sets how long
//! both run, `GNSTOR_FUZZ_SEED` the seed with which they begin.

use super::bend::{bend, bend_store};
use super::flips::make;
use super::formats::{bounds, encode, header, meta, page};
use super::{Dice, SIZES, entry, vid};
use crate::cell::{Cell, Kind};
use crate::checkpoint_head::{CheckpointHead, table_entry};
use crate::dump::Group;
use crate::metadata::{Metadata, entry_generation};
use crate::page::{PageHead, decode_page};
use crate::record::Transactions;
use crate::{
    Dump, DumpIdentity, DumpState, Durable, DurableError, EntryCell, Header, Meta, Record, SmartCounters,
    Tombstone, Unusable,
};
use gnstor_flash::Store;
use std::collections::{BTreeMap, BTreeSet};

/// Whether it took the bytes.
type Decoder = fn(&[u8]) -> bool;

/// Every file that reads numbers, and what in it does.
const DECODERS: [(&str, Decoder); 12] = [
    ("cell.rs", |bytes| {
        let singles = [Kind::Header, Kind::Term, Kind::Map, Kind::Held, Kind::SmartCounters];
        let kinds = [singles.as_slice(), &[Kind::Entry, Kind::Tombstone]].concat();
        kinds.iter().any(|&kind| Cell::decode(bytes, kind, 0).is_ok())
    }),
    ("checkpoint_head.rs", |bytes| {
        (0..bytes.len() / 8).for_each(|nth| _ = table_entry(bytes, nth));
        CheckpointHead::decode(bytes).is_ok()
    }),
    ("dump.rs", |bytes| {
        let group = Group::at(bytes);
        group.is_ok_and(|group| group.is_whole() && group.records().count() == usize::from(group.count()))
    }),
    ("header.rs", |bytes| Header::decode(bytes).is_ok()),
    ("metadata.rs", |bytes| bytes.len() >= 4096 && entry_generation(bytes) > 0),
    ("meta.rs", |bytes| Meta::decode(bytes, &SIZES).is_ok()),
    ("smart_counters.rs", |bytes| SmartCounters::decode(bytes).is_ok()),
    ("page.rs", |bytes| {
        let _ = PageHead::peek(bytes);
        decode_page(bytes, &bounds(), &mut Transactions::default()).is_ok()
    }),
    ("read_dump.rs", |bytes| {
        let tag = bytes.get(8..16).map_or(0, |at| crate::bytes::u64_at(at, 0));
        let number = bytes.get(16..24).map_or(0, |at| crate::bytes::u64_at(at, 0));
        Dump::decode(bytes.to_vec(), DumpIdentity { tag, number }, &SIZES).is_ok_and(|dump| {
            let _ = dump.replay(dump.durable(), |_, _| Ok::<_, DurableError>(()));
            dump.pages().count() > 0
        })
    }),
    ("open_metadata.rs", |bytes| EntryCell::decode(bytes).is_ok() | Tombstone::decode(bytes).is_ok()),
    ("term_cell.rs", |bytes| Metadata::default().take_term_cell(bytes).is_ok()),
    ("record.rs", |bytes| {
        Record::decode(bytes, &bounds()).is_ok() | Transactions::default().decode(bytes, 3, &bounds()).is_ok()
    }),
];

#[test]
fn no_file_that_reads_numbers_is_without_a_decoder_here() {
    let _deadline = crate::tests::deadline();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let mut readers = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() || name == "bytes.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let reads = |line: &&str| {
            let marks = [
                "u16_at(",
                "u32_at(",
                "u64_at(",
                "Fields::new(",
                "from_le_bytes(",
                "from_bytes(",
                "transmute!(",
            ];
            // A magic number consists of bytes, too.
            marks.iter().any(|mark| line.contains(mark)) && !line.contains("from_le_bytes(*b\"")
        };
        if text.lines().any(|line| reads(&line)) {
            readers.insert(name);
        }
    }
    let known: BTreeSet<String> = DECODERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(readers, known, "files that read numbers, and files that are fuzzed");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long to go on is a matter of the wall clock, not of any result"
)]
fn seeds(least: u64, mut run: impl FnMut(u64)) {
    let (first, seconds) =
        (number("GNSTOR_FUZZ_SEED").unwrap_or(0), number("GNSTOR_FUZZ_SECONDS").unwrap_or(0));
    let start = std::time::Instant::now();
    let mut seed = first;
    while seed < first + least || start.elapsed().as_secs() < seconds {
        if seed.is_multiple_of(1000) {
            println!("seed {seed}");
        }
        run(seed);
        seed += 1;
    }
    println!("{} cases", seed - first);
}

/// Something that is right.
fn sound(dice: &mut Dice, dump: &[u8]) -> Vec<u8> {
    let records =
        |dice: &mut Dice| (0..3).map(|_| (0..5).map(|_| dice.record()).collect()).collect::<Vec<_>>();
    match dice.below(11) {
        0 => header(dice.next()).encode(),
        1 => meta(dice.next()).encode(&SIZES).unwrap(),
        2 => page(&records(dice)),
        3 => encode(&records(dice)),
        4 => dump.to_vec(),
        5 => dump[4096..].to_vec(),
        6 => {
            let slot = crate::header::Slot { number: 3, seq: 4, page: 5, boot: 6 };
            let (map_words, meta_bytes) = (dice.next(), dice.next());
            CheckpointHead { tag: 7, slot, map_words, meta_bytes, entries: 9, table_crc: 10 }.encode()
        }
        7 => {
            let kinds = [Kind::Header, Kind::Term, Kind::Map, Kind::Entry, Kind::Tombstone];
            let content = header(dice.next()).encode();
            let kind = kinds[usize::try_from(dice.below(5)).unwrap()];
            Cell { tag: 1, version: 2, content: &content }.encode(kind, 0)
        }
        8 => SmartCounters { on_ms: dice.below(1 << 62), ..SmartCounters::default() }.encode(),
        9 => [vec![3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], entry(vid(3), 2, 1)].concat(),
        _ => {
            let mut bytes = vec![0; crate::metadata::TOMBSTONE_BYTES];
            (bytes[0], bytes[2], bytes[4]) = (1, 2, 3);
            bytes
        }
    }
}

/// A group of a dump is at its second page here: no journal is waiting.
fn some_dump() -> Vec<u8> {
    let bench = super::Bench::new();
    let durable = bench.format().durable;
    let replayed = durable.replay(0, |_, _| Ok::<_, DurableError>(())).unwrap();
    let journal = durable.into_journal(&replayed).unwrap();
    let pages = super::dump::pages(&mut Dice(4), 5);
    let bytes = super::dump::write_dump(&durable, &journal, super::dump::lend(&pages)).unwrap();
    let mut out = vec![0; usize::try_from(bytes).unwrap()];
    bench.ram.read(durable.layout().dump, &mut out).unwrap();
    out
}

#[test]
fn no_decoder_minds_any_bytes() {
    let _deadline = crate::tests::deadline();
    let dump = some_dump();
    let mut taken: BTreeMap<&str, u64> = BTreeMap::new();
    seeds(6_000, |seed| {
        let mut dice = Dice(seed);
        let bytes = match dice.below(4) {
            0 => (0..dice.below(700)).flat_map(|_| dice.next().to_le_bytes()).collect(),
            1 => vec![dice.next().to_le_bytes()[0]; usize::try_from(dice.below(9000)).unwrap()],
            _ => {
                let mut bytes = sound(&mut dice, &dump);
                let front = bytes.len().min(if dice.below(2) == 0 { 128 } else { 5000 });
                (0..dice.below(4)).for_each(|_| bend(&mut dice, &mut bytes[..front]));
                match dice.below(6) {
                    0 => bytes.truncate(usize::try_from(dice.below(bytes.len() as u64)).unwrap()),
                    1..4 if bytes.len() >= 4096 => crate::bytes::seal(&mut bytes[..4096]),
                    _ => {}
                }
                bytes
            }
        };
        for (name, decode) in DECODERS {
            *taken.entry(name).or_default() += u64::from(decode(&bytes));
        }
    });
    println!("taken: {taken:?}");
    assert!(taken.values().all(|count| *count > 0), "what never takes anything is hardly tested: {taken:?}");
}

/// Opens a store and reads all of it. Returns how far it came.
fn read_all(store: std::sync::Arc<dyn Store>) -> &'static str {
    let Ok(opened) = Durable::open(store, SIZES) else { return "refused" };
    let (durable, mut metadata) = (opened.durable, opened.metadata);
    let dump = durable.read_dump();
    let _ = metadata.put_entry(vid(3), &entry(vid(3), 9, 1));
    let checkpoint = durable.checkpoint().and_then(|mut restored| {
        restored.for_each(|_, _| Ok::<_, Unusable>(()))?;
        Ok(restored.seq)
    });
    let replayed = checkpoint.map(|seq| durable.replay(seq, |_, _| Ok::<_, DurableError>(())));
    let (mut journal, end) = match replayed {
        Ok(Ok(replayed)) => match durable.into_journal(&replayed) {
            Ok(journal) => (journal, "replayed"),
            Err(_) => (durable.fresh_journal().expect("the store is fine"), "journal refused"),
        },
        _ => (durable.fresh_journal().expect("the store is fine"), "checkpoint refused"),
    };
    if let DumpState::Intact(dump) = &dump {
        let _ = dump.pages().count();
        let _ = dump.replay(journal.last(), |_, _| Ok::<_, DurableError>(()));
        let _ = journal.adopt(dump);
    }
    let _ = journal.flush(journal.last(), true);
    let _ = durable.invalidate_dump();
    end
}

fn bend_stores(least: u64, ends: bool) -> BTreeMap<(&'static str, &'static str), u64> {
    let made = make();
    let mut image = vec![0; usize::try_from(made.end).unwrap()];
    made.bench.ram.read(0, &mut image).unwrap();
    let mut came: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    seeds(least, |seed| {
        let mut dice = Dice(seed);
        let mut bent = image.clone();
        let mut what = "nothing";
        for _ in 0..1 + dice.below(3) {
            what = bend_store(&mut dice, &mut bent, ends);
        }
        made.bench.ram.write(0, &bent).unwrap();
        made.bench.ram.sync().unwrap();
        *came.entry((what, read_all(made.bench.store()))).or_default() += 1;
    });
    println!("{came:?}");
    came
}

/// A counter one before the end of its range overflows when it is counted up: decoders refuse it.
#[test]
fn a_counter_at_the_end_of_its_range_is_no_reason_to_panic() {
    let _deadline = crate::tests::deadline();
    bend_stores(4_000, true);
}

#[test]
fn a_store_bent_under_right_checksums_is_no_reason_to_panic() {
    let _deadline = crate::tests::deadline();
    let came = bend_stores(2_000, false);
    for what in ["cell", "journal page", "checkpoint", "dump"] {
        let taken = came.iter().filter(|((bent, end), _)| *bent == what && *end == "replayed").count();
        assert!(taken > 0, "a bent {what} is always refused: its checksum is not right again");
    }
}
