// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The metadata store without power cuts: its content, its refusals, and the effect of one bad copy.

use super::{Bench, SIZES, entry, vid};
use crate::cell::Kind;
use crate::{Durable, DurableError, Sizes, SsdIdentity, State, Tombstone};
use gnstor_flash::Store;
use gnstor_proto::vendor::REQUEST_IDS;

#[test]
fn a_volume_has_room_only_where_its_tombstone_has() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let mut metadata = bench.format().metadata;
    let (entries, tombstones) = (u64::from(SIZES.volumes), u64::from(SIZES.tombstones()));
    for raw in 1..=tombstones - entries {
        let raw = vid(u16::try_from(raw).unwrap());
        assert!(metadata.has_room(raw));
        metadata.put_entry(raw, &entry(raw, 1, 1)).unwrap();
        metadata.bury(raw, Tombstone { generation: 1, ..Tombstone::default() }).unwrap();
    }
    for raw in 1001..=1000 + u16::try_from(entries).unwrap() {
        assert!(metadata.has_room(vid(raw)));
        metadata.put_entry(vid(raw), &entry(vid(raw), 1, 1)).unwrap();
        assert!(metadata.has_room(vid(raw)), "its own place is room enough");
    }
    assert!(!metadata.has_room(vid(2000)), "every entry is in use");
    metadata.bury(vid(1001), Tombstone { generation: 1, ..Tombstone::default() }).unwrap();
    assert!(!metadata.has_room(vid(2000)), "every tombstone is in use, or reserved for a volume that lives");
    assert!(metadata.has_room(vid(1001)), "its tombstone is replaced");
    for raw in 1002..=1000 + u16::try_from(entries).unwrap() {
        metadata.bury(vid(raw), Tombstone { generation: 1, ..Tombstone::default() }).unwrap();
    }
}

#[test]
fn everything_comes_back() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let mut metadata = bench.format().metadata;
    metadata.set_term(9).unwrap();
    metadata.set_map(&[7; 5000]).unwrap();
    metadata.set_openings(&[5, 7, 6]).unwrap();
    metadata.set_filling(3).unwrap();
    let identity = SsdIdentity { uuid: [8; 16], incarnation: 4 };
    metadata.set_identity(identity, None).unwrap();
    for raw in 1..=4 {
        metadata.put_entry(vid(raw), &entry(vid(raw), 1, 1)).unwrap();
    }
    assert!(matches!(
        metadata.put_entry(vid(5), &entry(vid(5), 1, 1)),
        Err(DurableError::MetadataFull { .. })
    ));
    metadata.put_entry(vid(2), &entry(vid(2), 1, 2)).unwrap();
    let ids: Vec<_> = (0..12).map(|n| ([n; 16], u64::from(n))).collect();
    let ids_of = ids.clone();
    metadata
        .bury(vid(3), Tombstone { generation: 1, term: 5, version: 6, ids: ids_of, buried_at: 1_000 })
        .unwrap();
    metadata.put_entry(vid(5), &entry(vid(5), 8, 1)).unwrap();
    let opened = bench.open();
    assert_eq!(opened.metadata.contents(), metadata.contents());
    assert_eq!((opened.state, opened.metadata.damaged()), (State::Fresh, &[] as &[String]));
    let contents = metadata.contents();
    assert_eq!((&contents.openings[..], contents.filling), (&[5, 7, 6][..], Some(3)));
    assert_eq!(contents.identity, Some(identity));
    metadata.set_identity(SsdIdentity { incarnation: 5, ..identity }, Some(7)).unwrap();
    let opened = bench.open();
    let contents = opened.metadata.contents();
    let incarnation = contents.identity.map(|identity| identity.incarnation);
    assert_eq!((incarnation, contents.filling, &contents.openings[..]), (Some(5), Some(7), &[5, 7, 6][..]));
    assert_eq!(contents.entries.keys().map(|v| v.get()).collect::<Vec<_>>(), [1, 2, 4, 5]);
    assert_eq!(contents.tombstones[&vid(3)].ids, ids[..REQUEST_IDS]);
    assert_eq!((contents.tombstones[&vid(3)].term, contents.tombstones[&vid(3)].version), (5, 6));
    assert_eq!((contents.term, contents.map.as_deref()), (9, Some(&[7; 5000][..])));
}

/// First byte and length of each row of a table of `docs/formats-ssd.md`, by the heading of its column.
fn documented(column: &str) -> Vec<(usize, String)> {
    let page = include_str!("../../../../docs/formats-ssd.md");
    let rows = page.lines().skip_while(|line| !line.starts_with(&format!("| {column} |"))).skip(2);
    let row = |line: &str| {
        let mut fields = line.split('|').skip(1).map(|field| field.trim().to_owned());
        let at = fields.next().expect("a first column").parse().expect("a number of bytes");
        (at, fields.next().expect("a length"))
    };
    rows.take_while(|line| line.starts_with('|')).map(row).collect()
}

/// The rows follow each other without a gap, as far as their lengths are numbers.
fn is_gapless(rows: &[(usize, String)]) -> bool {
    rows.windows(2).all(|two| two[0].1.parse().is_ok_and(|length: usize| two[0].0 + length == two[1].0))
}

#[test]
fn the_term_cell_is_as_the_page_of_formats_says() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let mut metadata = bench.format().metadata;
    metadata.set_openings(&[5, 7, 6]).unwrap();
    metadata.set_filling(3).unwrap();
    metadata.start_leased(9);
    metadata.finish().unwrap();
    let copies = bench.open().durable.layout().term.copies;
    let mut cell = vec![0; 512];
    bench.store().read(copies[0], &mut cell).unwrap();
    let number = |at: usize, length: usize| {
        let mut word = [0; 8];
        word[..length].copy_from_slice(&cell[at..at + length]);
        u64::from_le_bytes(word)
    };
    let head = documented("cell byte");
    assert!(is_gapless(&head) && head.len() == 10, "{head:?}");
    let at = |row: usize| head[row].0;
    let content = at(9);
    assert_eq!((&cell[at(0)..at(1)], number(at(1), 2), number(at(2), 2)), (&b"GNVC"[..], 2, 2));
    let (place, length) = (number(at(5), 4), number(at(6), 4));
    assert_eq!((place, length), (0, 24 + 3 * 8));
    let crc = crc32c::crc32c_append(
        crc32c::crc32c(&cell[..at(7)]),
        &cell[content..content + usize::try_from(length).unwrap()],
    );
    assert_eq!(number(at(7), 4), u64::from(crc));
    assert_eq!((number(at(8), 4), content), (0, crate::cell::HEAD));

    let term = documented("content byte");
    assert!(is_gapless(&term) && term.len() == 4, "{term:?}");
    let fields: Vec<u64> = term[..3].iter().map(|(at, _)| number(content + at, 8)).collect();
    assert_eq!(fields, [9, 4, 1], "term, 1 + epoch, lease");
    let openings = (0..3).map(|ssd| number(content + term[3].0 + 8 * ssd, 8));
    assert_eq!(openings.collect::<Vec<_>>(), [5, 7, 6]);
    assert_eq!(term[3].1, format!("8 for each SSD, at most {} SSDs", crate::metadata::MOST_SSDS));
    metadata.set_identity(SsdIdentity { uuid: [0xAB; 16], incarnation: 6 }, None).unwrap();
    bench.store().read(copies[0], &mut cell).unwrap();
    let number = |at: usize| u64::from_le_bytes(*cell[content + at..].first_chunk().unwrap());
    assert_eq!((number(16), number(48), number(56), number(64)), (3, number(56), 0xABAB_ABAB_ABAB_ABAB, 6));
}

#[test]
fn a_buried_generation_stays_buried() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let mut metadata = bench.format().metadata;
    metadata.put_entry(vid(1), &entry(vid(1), 4, 1)).unwrap();
    metadata.bury(vid(1), Tombstone { generation: 4, ..Tombstone::default() }).unwrap();
    let mut metadata = bench.open().metadata;
    assert!(matches!(
        metadata.put_entry(vid(1), &entry(vid(1), 4, 9)),
        Err(DurableError::Buried { buried: 4, .. })
    ));
    metadata.put_entry(vid(1), &entry(vid(1), 5, 1)).unwrap();
    // An older burial changes nothing; a new life keeps the tombstone of the one before.
    metadata.bury(vid(1), Tombstone { generation: 3, ..Tombstone::default() }).unwrap();
    let metadata = bench.open().metadata;
    assert_eq!(metadata.contents().tombstones[&vid(1)].generation, 4);
    assert!(metadata.contents().entries.contains_key(&vid(1)));
}

#[test]
fn wrong_bytes_are_refused_before_anything_is_written() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let mut metadata = bench.format().metadata;
    let before = bench.power.ops();
    assert!(matches!(metadata.put_entry(vid(1), &entry(vid(2), 1, 1)), Err(DurableError::Entry { .. })));
    assert!(matches!(metadata.put_entry(vid(1), &[0; 4096]), Err(DurableError::Entry { .. })));
    assert!(matches!(metadata.set_map(&[0; 6001]), Err(DurableError::TooLarge { .. })));
    assert_eq!(bench.power.ops(), before);
}

#[test]
fn one_bad_copy_is_repaired_and_two_are_a_loss() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    bench.format();
    let mut metadata = bench.open().metadata;
    metadata.put_entry(vid(1), &entry(vid(1), 1, 1)).unwrap();
    let copies = bench.open().durable.layout().entries.copies;
    for copy in copies {
        bench.flip(copy + 1000, 5);
        let opened = bench.open();
        assert_eq!(opened.metadata.contents(), metadata.contents());
        assert_eq!(
            (opened.metadata.damaged().len(), opened.metadata.lost().len()),
            (1, 0),
            "{:?}",
            opened.metadata.damaged()
        );
        assert!(bench.open().metadata.damaged().is_empty(), "it was repaired");
    }
    copies.into_iter().for_each(|copy| bench.flip(copy + 1000, 5));
    let opened = bench.open();
    assert!(opened.metadata.contents().entries.is_empty());
    assert_eq!((opened.metadata.damaged().len(), opened.metadata.lost()), (2, &[Kind::Entry][..]));
}

#[test]
fn nothing_of_an_earlier_format_is_found_again() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let mut metadata = bench.format().metadata;
    metadata.put_entry(vid(1), &entry(vid(1), 1, 1)).unwrap();
    metadata.bury(vid(2), Tombstone { generation: 1, ..Tombstone::default() }).unwrap();
    metadata.set_term(4).unwrap();
    for damage in [false, true] {
        if damage {
            let mut metadata = bench.open().metadata;
            metadata.set_term(4).unwrap();
            (0..2).for_each(|copy| bench.flip(copy * 4096 + 100, 1));
            assert!(matches!(Durable::open(bench.store(), SIZES), Err(DurableError::Header { .. })));
        }
        let opened = bench.format();
        assert_eq!(opened.metadata.contents(), bench.open().metadata.contents());
        assert_eq!(bench.open().metadata.contents(), &Default::default());
        assert_eq!(bench.open().metadata.damaged(), &[] as &[String]);
    }
}

#[test]
fn other_sizes_and_no_format_are_refused_with_the_reason() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let error = Durable::open(bench.store(), SIZES).unwrap_err().to_string();
    assert!(error.contains("never formatted"), "{error}");
    bench.format();
    let other = Sizes { superblocks: 7, ..SIZES };
    let error = Durable::open(bench.store(), other).unwrap_err().to_string();
    assert!(error.contains("`superblocks` = 8, not 7"), "{error}");
    let large = Sizes { map_words: 1 << 30, ..SIZES };
    assert!(matches!(Durable::open(bench.store(), large), Err(DurableError::StoreTooSmall { .. })));
}

/// How long a journal is made is a choice that changes from build to build.
#[test]
fn the_journal_is_as_long_as_it_was_made() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    bench.format();
    for journal_bytes in [16 * 4096, SIZES.journal_bytes * 8] {
        let opened = Durable::open(bench.store(), Sizes { journal_bytes, ..SIZES }).unwrap();
        assert_eq!(*opened.durable.sizes(), SIZES);
    }
}

/// Makes both copies of a place zeros.
fn wipe(bench: &Bench, copies: [u64; 2]) {
    copies.into_iter().for_each(|at| bench.ram.write(at, &[0; 4096]).unwrap());
    bench.ram.sync().unwrap();
}

#[test]
fn a_place_of_which_nothing_is_left_is_lost_unless_it_was_never_used() {
    let _deadline = crate::tests::deadline();
    let bench = Bench::new();
    let opened = bench.format();
    let layout = opened.durable.layout();
    let singles = [
        (Kind::Term, layout.term),
        (Kind::Map, layout.map),
        (Kind::Held, layout.held.expect("room for a held map")),
        (Kind::SmartCounters, layout.smart_counters),
    ];
    for (kind, twin) in singles {
        let before = [0, 1].map(|copy| {
            let mut bytes = [0; 4096];
            bench.ram.read(twin.copies[copy], &mut bytes).unwrap();
            bytes
        });
        wipe(&bench, twin.copies);
        assert_eq!(bench.open().metadata.lost(), [kind], "never set since the format, but written by it");
        twin.copies.into_iter().zip(before).for_each(|(at, bytes)| bench.ram.write(at, &bytes).unwrap());
    }
    assert!(bench.open().metadata.lost().is_empty());
    // Places that were never used are not read.
    wipe(&bench, layout.entries.copies);
    wipe(&bench, layout.tombstones.copies);
    let mut metadata = bench.open().metadata;
    assert!(metadata.lost().is_empty());
    metadata.put_entry(vid(1), &entry(vid(1), 1, 1)).unwrap();
    metadata.bury(vid(2), Tombstone { generation: 1, ..Tombstone::default() }).unwrap();
    wipe(&bench, layout.entries.copies);
    let opened = bench.open();
    assert_eq!(opened.metadata.lost(), [Kind::Entry]);
    assert!(opened.metadata.damaged().iter().all(|why| why.contains("Entry 0") && why.contains("zeros")));
    // A page of tombstones is eight places, of which the first was used and all have a cell.
    wipe(&bench, layout.tombstones.copies);
    let mut metadata = bench.open().metadata;
    assert_eq!(metadata.lost(), [[Kind::Tombstone; 8].as_slice(), &[Kind::Entry]].concat());
    // A new record there makes the place whole again.
    metadata.put_entry(vid(1), &entry(vid(1), 1, 2)).unwrap();
    assert_eq!(bench.open().metadata.lost(), [Kind::Tombstone; 8]);
}
