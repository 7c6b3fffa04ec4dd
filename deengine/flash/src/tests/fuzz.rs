// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A data file with changes in header, counts of boots and out-of-band records, under wrong and under right
//! checksums.
//!
//! A file is refused with a reason, or opens. Then every page with an unchanged record has its contents, and
//! a page with a wrong record is never taken for another one. `GNSTOR_FUZZ_SECONDS` sets how long this runs,
//! `GNSTOR_FUZZ_SEED` the seed with which it begins.

use super::*;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;
/// Bytes of a record that mean something after a restart.
const KEPT: usize = 40;
const NOTE: &str = "name = \"a preset\"";
/// Offsets of the note's two copies, and the length of one.
const NOTES: [usize; 2] = [12 << 10, 36 << 10];
const NOTE_BYTES: usize = 24 << 10;

pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix64(self.0)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() % end as u64).unwrap()
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Header, boots and records as the file has them.
struct Image {
    front: Vec<u8>,
    records_at: u64,
    records: Vec<u8>,
}

/// A field becomes another number.
pub(super) fn bend(dice: &mut Dice, bytes: &mut [u8]) {
    let width = [1, 4, 8][dice.below(3)];
    let at = dice.below(bytes.len() / width) * width;
    let mut old = [0; 8];
    old[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(old);
    let new = match dice.below(7) {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old ^ 1 << dice.below(8 * width),
        5 => 1 << dice.below(8 * width),
        _ => dice.roll(),
    };
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
}

pub(super) fn set_crc(bytes: &mut [u8], end: usize) {
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..end + 4].copy_from_slice(&crc.to_le_bytes());
}

/// The checksum of a record, as its page describes it: words 0 to 4 and the number of the page.
pub(super) fn seal_record(page: u32, record: &mut [u8]) {
    record[32..36].fill(0);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&record[..KEPT]), &page.to_le_bytes());
    record[32..36].copy_from_slice(&crc.to_le_bytes());
}

/// Writes the checksum of a note's copy, which covers all of it except the checksum field.
pub(super) fn seal_note(copy: &mut [u8]) {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&copy[..20]), &copy[24..]);
    copy[20..24].copy_from_slice(&crc.to_le_bytes());
}

/// At least this many seeds, and for at least the time asked for.
#[expect(
    clippy::disallowed_methods,
    reason = "how long to go on is a matter of the wall clock, not of any result"
)]
pub(super) fn seeds(least: u64, mut run: impl FnMut(u64)) {
    let (first, seconds) =
        (number("GNSTOR_FUZZ_SEED").unwrap_or(0), number("GNSTOR_FUZZ_SECONDS").unwrap_or(0));
    let (start, mut seed) = (std::time::Instant::now(), first);
    while seed < first + least || start.elapsed().as_secs() < seconds {
        if seed.is_multiple_of(1000) {
            println!("seed {seed}");
        }
        run(seed);
        seed += 1;
    }
    println!("{} cases", seed - first);
}

fn make(path: &Path) -> Image {
    let file = new_file(path, IoMode::Blocking);
    let flash = on_file(&file);
    for unit in 0..12 {
        program(&flash, Unit(unit), u64::from(unit) * 4);
    }
    file.set_note(NOTE).unwrap();
    drop((flash, file));
    let raw = OpenOptions::new().read(true).open(path).unwrap();
    let mut front = vec![0; NOTES[1] + NOTE_BYTES];
    raw.read_exact_at(&mut front, 0).unwrap();
    let records_at = u64::from_le_bytes(front[48..56].try_into().unwrap());
    let mut records = vec![0; 240 * 64];
    raw.read_exact_at(&mut records, records_at).unwrap();
    Image { front, records_at, records }
}

/// Changes one field. Returns the kind of the field, and the page if it was in a record.
fn bend_image(dice: &mut Dice, front: &mut [u8], records: &mut [u8]) -> (&'static str, Option<u32>) {
    match dice.below(10) {
        0 | 1 => {
            bend(dice, &mut front[..340]);
            if dice.below(8) > 0 {
                set_crc(front, PAGE - 4);
            }
            ("header", None)
        }
        2 => {
            let slot = PAGE * (1 + dice.below(2));
            bend(dice, &mut front[slot..slot + 16]);
            if dice.below(4) > 0 {
                set_crc(&mut front[slot..slot + 16], 12);
            }
            if dice.below(3) == 0 {
                front.copy_within(slot..slot + 16, 3 * PAGE - slot);
            }
            ("boots", None)
        }
        8 => {
            let at = NOTES[dice.below(2)];
            bend(dice, &mut front[at..at + 48]);
            ("note", None)
        }
        9 => {
            let at = dice.below(2);
            let copy = &mut front[NOTES[at]..NOTES[at] + NOTE_BYTES];
            bend(dice, &mut copy[..48]);
            seal_note(copy);
            if dice.below(2) == 0 {
                front.copy_within(NOTES[at]..NOTES[at] + NOTE_BYTES, NOTES[1 - at]);
            }
            ("note under a right checksum", None)
        }
        kind => {
            let page = u32::try_from(dice.below(60)).unwrap();
            let record = &mut records[page as usize * 64..][..64];
            bend(dice, &mut record[..KEPT]);
            if kind < 6 {
                return ("record", Some(page));
            }
            seal_record(page, record);
            ("record under a right checksum", Some(page))
        }
    }
}

/// One damaged copy of the note does no harm, and a new note can be kept.
fn check_note(file: &DataFile, what: &str) {
    let found = file.note();
    if what != "note under a right checksum" {
        assert_eq!(found.unwrap().as_deref(), Some(NOTE), "{what}");
    }
    if what.starts_with("note") {
        file.set_note("another").unwrap();
        assert_eq!(file.note().unwrap().as_deref(), Some("another"));
    }
}

/// Opens the file and calls everything on it. Returns how far that went.
fn open_all(path: &Path, what: &str, bent: Option<u32>) -> &'static str {
    let file = match open(path) {
        Ok(file) => Arc::new(file.with_io(IoMode::Blocking)),
        Err(error) => {
            assert!(what == "header" && !error.to_string().is_empty(), "{what}: {error}");
            return "refused";
        }
    };
    check_note(&file, what);
    let is_same = *file.geometry() == Geometry::new(shape(), 5).unwrap();
    let config =
        FlashConfig { geometry: file.geometry().clone(), ..config(MediaConfig::File(Arc::clone(&file))) };
    let flash = match Flash::new(config) {
        Ok(flash) => flash,
        Err(error) => {
            assert!(what != "record" && !error.to_string().is_empty(), "{what}: {error}");
            return "refused by its flash";
        }
    };
    for page in (0..u32::try_from(flash.geometry().pages()).unwrap().min(2000)).map(Ppa) {
        let (state, key, stamp) = (flash.page(page), flash.key(page), flash.oob(page));
        if bent == Some(page.0) {
            let own = PageState::Programmed(oob(page.0.into()));
            let is_other = |state| !matches!(state, PageState::Damaged | PageState::Erased) && state != own;
            assert!(
                what != "record" || !is_other(state),
                "{page:?} is taken for another one: {state:?}, {key:?} {stamp:?}"
            );
        } else if is_same && page.0 < 48 {
            assert_eq!(state, PageState::Programmed(oob(page.0.into())), "{page:?} was left alone");
        } else if is_same {
            assert_eq!(state, PageState::Erased, "{page:?} was left alone");
        }
        if matches!(state, PageState::Programmed(_)) {
            let found = read(&flash, page);
            assert!(!is_same || found.is_err() || found.unwrap() == data(page.0.into()), "data of {page:?}");
        }
    }
    for block in (0..flash.geometry().blocks().min(64)).map(Block) {
        let _ = (flash.next_row(block), flash.is_pinned(block));
        let _ = flash.erase(block);
    }
    "opened"
}

#[test]
fn a_data_file_that_lies_is_refused_or_keeps_to_what_its_checksums_say() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let image = make(&path);
    let raw = OpenOptions::new().write(true).open(&path).unwrap();
    let mut came: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    seeds(400, |seed| {
        let (mut front, mut records) = (image.front.clone(), image.records.clone());
        let (what, bent) = bend_image(&mut Dice(seed), &mut front, &mut records);
        raw.write_all_at(&front, 0).unwrap();
        raw.write_all_at(&records, image.records_at).unwrap();
        *came.entry((what, open_all(&path, what, bent))).or_default() += 1;
    });
    println!("{came:?}");
    for way in [
        ("header", "opened"),
        ("header", "refused"),
        ("boots", "opened"),
        ("record under a right checksum", "opened"),
        ("note", "opened"),
        ("note under a right checksum", "opened"),
    ] {
        assert!(came.contains_key(&way), "{way:?} never happened: {came:?}");
    }
}

#[test]
fn a_flipped_bit_makes_no_older_frame_or_pin_one_of_now() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let image = make(&path);
    for round in 0..2u32 {
        let flash = on_file(&Arc::new(open(&path).unwrap()));
        let (buffered, pinned) = (Ppa(52 + 4 * round), Ppa(round));
        flash.place(buffered, flash.take_frame().unwrap(), &oob(0));
        flash.pin(pinned);
        // Their page of records gets to the file when a record in it says something else.
        (0..2).for_each(|_| flash.rot_record(Ppa(63), 0));
        drop(flash);
        let raw = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let word_at = |page: u32, word: u64| image.records_at + u64::from(page) * 64 + word * 8;
        let left = |page: Ppa, word| {
            let mut bytes = [0; 8];
            raw.read_exact_at(&mut bytes, word_at(page.0, word)).unwrap();
            u64::from_le_bytes(bytes)
        };
        let (frame, pins) = (left(buffered, 5), left(pinned, 6));
        assert!(frame >> 32 != 0 && pins >> 32 == frame >> 32, "both are marked by the boot that wrote them");
        // Every bit of the mark, each in the record of a page of its own.
        for (page, bit) in (8..40).zip(32..64) {
            raw.write_all_at(&(frame ^ 1 << bit).to_le_bytes(), word_at(page, 5)).unwrap();
            raw.write_all_at(&(pins ^ 1 << bit).to_le_bytes(), word_at(page, 6)).unwrap();
        }
        let flash = on_file(&Arc::new(open(&path).unwrap()));
        for page in (0..48).map(Ppa) {
            assert!(read(&flash, page).unwrap() == data(page.0.into()), "{page:?} holds what is in the file");
        }
        assert_eq!(flash.page(buffered), PageState::Erased, "a page that was buffered only");
        assert!((0..flash.geometry().blocks()).all(|block| !flash.is_pinned(Block(block))));
    }
}
