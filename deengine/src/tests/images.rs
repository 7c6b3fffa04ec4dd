// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data files that another process changed between two starts of their SSD. Some changes cannot be found. If
//! such a limit disappears, its test fails, and its page must be changed.

use super::*;
use gnstor_flash::{DataFile, FileStore, IoMode, Store};
use gnstor_ftl::{DUMP_BYTES, FtlConfig, geometry_for};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Blocks of the SSD.
const BLOCKS: u64 = 1024;

/// An SSD's data file, and copies of it.
pub(super) struct Disk {
    folder: tempfile::TempDir,
    config: SsdConfig,
}

impl Disk {
    pub(super) fn new() -> Self {
        // Memory, if there is some, because the files are short-lived.
        let shared = Path::new("/dev/shm");
        let folder = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
        let preset = Preset::by_name("null").unwrap();
        let (capacity_bytes, serial) = (BLOCKS * 4096, "GN0001".into());
        // The media of this SSD is the file that `ssd` opens.
        let config = SsdConfig { index: 0, preset, capacity_bytes, serial, media: SsdMedia::Ram };
        Self { folder: folder.expect("a folder"), config }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The SSD in the file. It is made if it does not exist.
    fn ssd(&self) -> Ssd {
        let (path, bench) = (self.path("ssd"), Bench::default());
        let is_new = !path.exists();
        let file = if is_new {
            std::fs::File::create(&path).and_then(|file| file.set_len(4096)).expect("a hole");
            let geometry = geometry_for(&self.config.preset, BLOCKS).unwrap();
            let bytes = FtlConfig::store_bytes(&self.config.preset, BLOCKS, DUMP_BYTES).unwrap();
            DataFile::create(&path, &geometry, bytes, "a test").unwrap()
        } else {
            DataFile::open(&path).unwrap()
        };
        // Blocking calls: in virtual time no thread waits for a ring.
        let file = Arc::new(file.with_io(IoMode::Blocking));
        let store = Arc::new(Blocking(FileStore::new(Arc::clone(&file), Arc::clone(&bench.power))));
        Ssd::on_file(self.config.clone(), &bench, file, store, is_new).unwrap()
    }

    pub(super) fn start(&self) -> Harness {
        Harness::around(self.ssd(), Arc::default()).with_clients()
    }

    pub(super) fn keep(&self, name: &str) {
        std::fs::copy(self.path("ssd"), self.path(name)).expect("a copy");
    }

    pub(super) fn put(&self, name: &str) {
        std::fs::copy(self.path(name), self.path("ssd")).expect("a copy");
    }
}

/// The system area of a file. Syncs end before the call does, as in memory.
#[derive(Debug)]
struct Blocking(FileStore);

impl Store for Blocking {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(at, out)
    }

    fn write(&self, at: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(at, data)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.0.sync()
    }

    fn barrier(&self) -> std::io::Result<bool> {
        self.0.barrier()
    }
}

impl Harness {
    /// A block of [`VOLUME`] in a file's content, which takes a while.
    pub(super) fn read_stored(&mut self, vba: u32) -> Result<Vec<u8>, Refusal> {
        let sqe = self.io(io::READ, WRITER, vba, 1);
        let cid = self.submit(WRITER, sqe);
        let end = self.now + Span::from_ms(100);
        loop {
            if let Some(cqe) = self.take(WRITER, cid) {
                return refusal(&cqe).map_or_else(|| Ok(self.peek(WRITER, 0).to_vec()), Err);
            }
            assert!(self.now < end, "a read never completes");
            self.advance(Span::from_ms(1));
        }
    }
}

/// Everything is durable, and the file is closed.
pub(super) fn end(harness: Harness) {
    harness.ssd().shut_down().expect("it shuts down");
}

/// A process that can write to the file replaces a block, its sum and the record's crc. The SSD keeps no
/// secret, so nothing in the file can be signed.
#[test]
fn a_block_that_is_forged_together_with_its_sums_is_given_out() {
    let disk = Disk::new();
    let mut harness = disk.start().with_volume();
    assert_eq!(refusal(&harness.write(3, &[4])), None);
    end(harness);
    disk.keep("honest");
    let page = disk.start().page(3);
    for has_right_sums in [true, false] {
        disk.put("honest");
        forge(&disk.path("ssd"), page, &block(4), &block(5), has_right_sums);
        let mut harness = disk.start();
        harness.map_epoch = 1;
        let read = harness.read_stored(3);
        assert!(
            read == if has_right_sums { Ok(block(5)) } else { Err(Refusal::BadChecksum) },
            "{has_right_sums}"
        );
    }
}

/// Replaces the block of `page` by `new`.
fn forge(path: &Path, page: Ppa, old: &[u8], new: &[u8], with_sums: bool) {
    let file = std::fs::File::options().read(true).write(true).open(path).expect("the file");
    let bytes = std::fs::read(path).expect("the file");
    let only = |places: Vec<usize>, what: &str| match places[..] {
        [at] => at,
        _ => panic!("{what} at {places:?}"),
    };
    let pages = (0..bytes.len() / BLOCK).map(|at| at * BLOCK);
    let data_at = only(pages.filter(|&at| bytes[at..at + BLOCK] == *old).collect(), "the block");
    file.write_all_at(new, data_at as u64).expect("it is written");
    if !with_sums {
        return;
    }
    let words = |at: usize| -> [u64; 5] {
        std::array::from_fn(|word| u64::from_le_bytes(*bytes[at + 8 * word..].first_chunk().unwrap()))
    };
    let sum = u64::from(block_sum(old));
    let is_its_record = |&at: &usize| {
        let words = words(at);
        words[1] & LOW == sum && words[4] & LOW == crc(page, &words)
    };
    let records = (0..bytes.len() / RECORD).map(|nth| nth * RECORD);
    let at = only(records.filter(is_its_record).collect(), "the record");
    let mut words = words(at);
    words[1] = words[1] & !LOW | u64::from(block_sum(new));
    words[4] = words[4] & !LOW | crc(page, &words);
    let record: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    file.write_all_at(&record, at as u64).expect("it is written");
}

/// Bytes of a record, and the lower half of its words (docs/formats-ssd.md).
const RECORD: usize = 64;
const LOW: u64 = 0xFFFF_FFFF;

fn crc(page: Ppa, words: &[u64; 5]) -> u64 {
    let [first @ .., last] = *words;
    let bytes: Vec<u8> = first.into_iter().chain([last & !LOW]).flat_map(u64::to_le_bytes).collect();
    crc32c::crc32c_append(crc32c::crc32c(&bytes), &page.0.to_le_bytes()).into()
}

/// Both copies of the term's cell cannot be read. The key's verifier is in it.
#[test]
fn an_ssd_whose_term_cell_cannot_be_read_takes_the_next_key_and_comes_up_as_one_that_lost_writes() {
    use crate::KeyMatch;
    use gnstor_auth::Secret;
    let (first, next) = (Secret::new([7; 32]), Secret::new([8; 32]));
    let disk = Disk::new();
    let mut harness = disk.start().with_volume();
    assert_eq!(refusal(&harness.write(3, &[4])), None);
    harness.ssd().take_key(&first).expect("it is kept");
    end(harness);
    disk.keep("honest");
    for copies in [1, 2] {
        disk.put("honest");
        spoil_term_cells(&disk.path("ssd"), copies);
        let mut ssd = disk.ssd();
        let is_lost = copies == 2;
        assert_eq!(ssd.is_filling(), is_lost, "{copies} of two copies are spoilt");
        let (same, other) = (ssd.match_key(Some(&first)), ssd.match_key(Some(&next)));
        if !is_lost {
            assert_eq!((same, other), (KeyMatch::Same, KeyMatch::Other));
            continue;
        }
        assert_eq!((same, other), (KeyMatch::Unset, KeyMatch::Unset), "it takes any");
        ssd.take_key(&next).expect("it is kept");
        assert_eq!(ssd.match_key(Some(&first)), KeyMatch::Other);
        let mut harness = Harness::around(ssd, Arc::default()).with_clients();
        harness.map_epoch = 1;
        assert_eq!(harness.read_stored(3).err(), Some(Refusal::NotHereYet));
        end(harness);
        let ssd = disk.ssd();
        assert_eq!((ssd.match_key(Some(&next)), ssd.is_filling()), (KeyMatch::Same, true));
    }
}

/// Writes zeros over so many copies of the cell of kind 2 (docs/formats-ssd.md).
fn spoil_term_cells(path: &Path, copies: usize) {
    let bytes = std::fs::read(path).expect("the file");
    let file = std::fs::File::options().write(true).open(path).expect("the file");
    let head = [&b"GNVC"[..], &2u16.to_le_bytes(), &2u16.to_le_bytes()].concat();
    let sectors = (0..bytes.len() / 512).map(|sector| sector * 512);
    let cells: Vec<_> = sectors.filter(|&at| bytes[at..].starts_with(&head)).collect();
    assert_eq!(cells.len(), 2, "{cells:?}");
    for &at in &cells[..copies] {
        file.write_all_at(&[0; 512], at as u64).expect("it is written");
    }
}
