// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Feeds every decoder of file contents with random bytes, and with valid bytes that have one change and a
//! correct checksum. Only a panic is a failure. `DECODERS` has an entry for each source file that decodes
//! numbers. A test fails for a file without an entry.

use super::fuzz::{Dice, bend, seal_note, seal_record, seeds, set_crc};
use super::*;
use crate::file::header::{Layout, decode_boot, encode_boot};
use crate::file::mirror;
use crate::file::note::{self, Copy};
use crate::kept;
use crate::record::{Records, State};
use gnstor_base::region::HostRegion;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a record.
const RECORD: usize = 64;

/// Whether it took the bytes.
type Decoder = fn(&[u8]) -> bool;

const DECODERS: [(&str, Decoder); 5] = [
    ("file/header.rs", |bytes| {
        let boot = bytes.first_chunk().is_some_and(|slot| decode_boot(slot).is_some());
        boot | bytes.first_chunk().is_some_and(|page| Layout::decode(page).is_ok())
    }),
    ("file/mirror.rs", |bytes| {
        let Some(bytes) = bytes.get(..32) else { return false };
        let region = HostRegion::alloc(bytes.len()).unwrap();
        region.write(0, bytes);
        mirror::is_of(&region, 4096, 77)
    }),
    ("file/note.rs", |bytes| {
        bytes.len() == note::BYTES && matches!(note::decode(bytes), Some(Copy::Whole(..)))
    }),
    ("kept.rs", |bytes| {
        let Some(bytes) = bytes.get(..8192) else { return false };
        let region = HostRegion::alloc(bytes.len() + kept::TAIL).unwrap();
        region.write(0, bytes);
        kept::decode(&region).is_some() | kept::decode_tail(&region, 8192).is_some_and(|(seq, _)| seq > 0)
    }),
    ("record.rs", |bytes| {
        let Some(bytes) = bytes.get(..RECORD) else { return false };
        let region = HostRegion::alloc(bytes.len()).unwrap();
        region.write(0, bytes);
        let records = Records::new(region, 1);
        let (page, state) = (Ppa(0), records.state(Ppa(0)));
        let _ = (records.key(page), records.oob(page), records.frame(page), records.resident(page));
        let _ = records.has_pins(std::iter::once(page));
        records.is_sound(page) && state == State::Programmed
    }),
];

/// Lists the source files below a folder, without tests.
fn sources(folder: &Path, at: &str, out: &mut Vec<(String, String)>) {
    for file in std::fs::read_dir(folder.join(at)).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let name = if at.is_empty() { name } else { format!("{at}/{name}") };
        if !path.is_dir() {
            out.push((name, std::fs::read_to_string(&path).unwrap()));
        } else if name != "tests" {
            sources(folder, &name, out);
        }
    }
}

#[test]
fn no_file_that_reads_numbers_is_without_a_decoder_here() {
    let _deadline = crate::tests::deadline();
    let mut files = Vec::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), "", &mut files);
    let marks = ["from_le_bytes(", "from_be_bytes(", "read_from", "ref_from", "transmute!(", "words64("];
    let reads = |text: &str| text.lines().any(|line| marks.iter().any(|mark| line.contains(mark)));
    let readers: BTreeSet<&str> =
        files.iter().filter(|(_, text)| reads(text)).map(|(name, _)| name.as_str()).collect();
    let known: BTreeSet<&str> = DECODERS.iter().map(|(name, _)| *name).collect();
    assert_eq!(readers, known, "files that read numbers, and files that are fuzzed");
}

/// Something that is right, and what puts its checksum right again.
fn sound(dice: &mut Dice) -> (Vec<u8>, fn(&mut [u8])) {
    match dice.below(6) {
        5 => (mirror::sound(4096, 77), |_| {}),
        4 => (kept::sound(dice.roll(), dice.roll() >> 40), |_| {}),
        0 => {
            let geometry = Geometry::new(shape(), 5).unwrap();
            let layout = Layout::new(geometry, 100_000, "a test".into()).unwrap();
            (layout.encode().to_vec(), |page| set_crc(page, 4092))
        }
        1 => (encode_boot(u32::try_from(dice.roll() >> 32).unwrap()).to_vec(), |slot| set_crc(slot, 12)),
        2 => (note::encode(dice.roll() >> 1, "a preset = 1"), seal_note),
        _ => {
            let records = Records::new(HostRegion::alloc(RECORD).unwrap(), 1);
            records.place(Ppa(0), 3, &oob(dice.roll()));
            records.set_state(Ppa(0), State::Programmed);
            let mut bytes = vec![0; RECORD];
            records.region().read(0, &mut bytes);
            (bytes, |record| seal_record(0, record))
        }
    }
}

#[test]
fn no_decoder_minds_any_bytes() {
    let _deadline = crate::tests::deadline();
    let mut taken: BTreeMap<&str, u64> = BTreeMap::new();
    seeds(4_000, |seed| {
        let mut dice = Dice(seed);
        let bytes = if dice.below(4) == 0 {
            let lengths = [16, 64, 4096, note::BYTES, dice.below(9000)];
            let length = lengths[dice.below(lengths.len())];
            (0..length.div_ceil(8)).flat_map(|_| dice.roll().to_le_bytes()).take(length).collect()
        } else {
            let (mut bytes, seal) = sound(&mut dice);
            let front = bytes.len().min(80);
            (0..dice.below(4)).for_each(|_| bend(&mut dice, &mut bytes[..front]));
            match dice.below(6) {
                0 => bytes.truncate(dice.below(bytes.len())),
                1..5 => seal(&mut bytes),
                _ => {}
            }
            bytes
        };
        for (name, decode) in DECODERS {
            *taken.entry(name).or_default() += u64::from(decode(&bytes));
        }
    });
    println!("taken: {taken:?}");
    assert!(taken.values().all(|count| *count > 0), "what never takes anything is hardly tested: {taken:?}");
}
