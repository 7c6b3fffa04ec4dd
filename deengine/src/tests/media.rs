// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes of the system area that are not what was written: never a panic, and never another block's
//! content.
//!
//! ```text
//!   an SSD with work behind it, power gone (with a dump, or without) --> image of its store
//!   image --bits flipped, sectors zeroed, swapped, taken from before, cut off--> open
//!       refused with a reason, or every block is one that was written there
//!       a dump that is damaged counts for nothing
//! ```
//! `GNSTOR_FUZZ_SECONDS` makes it go on for so long, `GNSTOR_FUZZ_SEED` is the seed that it begins with.

use super::crash::{journal_at, number};
use super::oracle::Dice;
use super::*;
use gnstor_durable::cell::{Cell, Kind};
use gnstor_durable::checkpoint::CheckpointHead;
use gnstor_durable::page::{PageHead, decode_page};
use gnstor_durable::record::Transactions;
use gnstor_durable::{Bounds, Dump, DumpIdentity, EntryCell, Header, Meta, Record, Sizes, Tombstone};
use gnstor_flash::{Flash, RamStore, Store};
use gnstor_ftl::{DUMP_BYTES, FtlConfig, Origin};

const BLOCKS: u32 = 96;
/// Number of kinds of damage that each SSD gets.
const DAMAGES: u64 = 16;
const CASES: u64 = 2 * DAMAGES;

/// The content of a store. Reading all of it takes long, and the same seed gives the same content.
struct Image {
    /// Sectors that are not all zeros: (place, bytes).
    sectors: Vec<(u64, Vec<u8>)>,
    /// The sectors at an earlier time.
    before: BTreeMap<u64, Vec<u8>>,
}

/// An SSD without power.
struct Remains {
    config: SsdConfig,
    bench: Bench,
    flash: Arc<Flash>,
    store: Arc<RamStore>,
    image: Arc<Image>,
    /// Contents that were ever written to each block.
    ever: Vec<Vec<u64>>,
}

fn sectors_of(store: &RamStore) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    for at in (0..store.len()).step_by(chunk.len()) {
        let bytes = usize::try_from((store.len() - at).min(1 << 20)).expect("a chunk");
        store.read(at, &mut chunk[..bytes]).expect("within the store");
        if chunk[..bytes].iter().all(|byte| *byte == 0) {
            continue;
        }
        let sectors = (at..).step_by(512).zip(chunk[..bytes].chunks(512));
        found
            .extend(sectors.filter(|(_, s)| s.iter().any(|byte| *byte != 0)).map(|(at, s)| (at, s.to_vec())));
    }
    found
}

fn remains(seed: u64, image: Option<&Arc<Image>>) -> Remains {
    let mut dice = Dice(seed);
    let mut config = super::crash::small_ssd(false);
    config.capacity_bytes = u64::from(BLOCKS) * 4096;
    let bytes = FtlConfig::store_bytes(&config.preset, BLOCKS.into(), DUMP_BYTES).unwrap();
    let mut bench = Bench::default();
    let store = Arc::new(RamStore::new(bytes, Arc::clone(&bench.power)));
    bench.store = Some(Arc::clone(&store));
    let ssd = Ssd::format_with(config.clone(), &bench).unwrap();
    let flash = Arc::clone(ssd.ftl().flash());
    bench.flash = Some(Arc::clone(&flash));
    let mut harness = Harness::around(ssd, Arc::clone(&bench.faults)).with_clients().with_volume();
    let mut second = entry(6);
    second.request_ids.push([7; 16]);
    harness.volume_command(opcode::VOLUME_ADD, &second);
    let mut ever = vec![Vec::new(); BLOCKS as usize];
    let (mut tag, mut before) = (0, BTreeMap::new());
    let writes = 50 + dice.below(400);
    for step in 0..writes {
        let vba = dice.small(BLOCKS);
        tag += 1;
        ever[vba as usize].push(tag);
        assert_eq!(refusal(&harness.write(vba, &[tag])), None);
        if step == writes / 2 {
            harness.run(WRITER, sqe(io::FLUSH));
            harness.advance(Span::from_ms(1));
            if image.is_none() {
                before = sectors_of(&store).into_iter().collect();
            }
        }
        if dice.one_in(20) {
            let sqe = harness.io(io::WRITE_ZEROES, WRITER, vba, 1);
            harness.run(WRITER, sqe);
        }
    }
    let mut delete = Harness::delete_sqe(1, 9);
    delete.cdw12 = 6.into();
    harness.run(DAEMON, delete);
    harness.advance(Span::from_ms(1));
    match dice.below(4) {
        0 => {}
        1 => harness.ssd().shut_down().unwrap(),
        _ => _ = harness.ssd().power_fail().unwrap(),
    }
    drop(harness);
    bench.power.cut();
    bench.power.restore();
    flash.after_power_cut(dice.roll());
    store.after_power_cut(dice.roll());
    let image = match image {
        Some(image) => Arc::clone(image),
        None => Arc::new(Image { sectors: sectors_of(&store), before }),
    };
    Remains { config, bench, flash, store, image, ever }
}

impl Remains {
    fn put(&self, at: u64, bytes: &[u8]) {
        self.store.write(at, bytes).expect("within the store");
    }

    /// Damages the image.
    fn damage(&self, dice: &mut Dice) {
        let Image { sectors, before } = &*self.image;
        // Journal and checkpoint are the most; header, metadata and dump get their share.
        let small = sectors.partition_point(|(at, _)| *at < journal_at(&self.config));
        let pick = |dice: &mut Dice| {
            let end = if dice.one_in(3) { sectors.len() } else { small };
            &sectors[dice.index(end)]
        };
        for _ in 0..1 + dice.below(4) {
            let (at, bytes) = pick(dice);
            match dice.below(6) {
                0 | 1 => {
                    let within = if dice.one_in(2) { 64 } else { 512 };
                    let (byte, bit) = (dice.index(within), dice.below(8));
                    self.put(at + byte as u64, &[bytes[byte] ^ 1 << bit]);
                }
                2 => self.put(*at, &[0; 512]),
                3 => {
                    let (other, more) = pick(dice);
                    self.put(*at, more);
                    self.put(*other, bytes);
                }
                4 => {
                    // The content of an earlier time, as after a lost write.
                    let old = before.get(at).cloned().unwrap_or_else(|| vec![0; 512]);
                    self.put(*at, &old);
                }
                _ => {
                    // Zeros from here on, for a while.
                    let end = at + 512 * (1 + dice.below(64));
                    for (at, _) in sectors.iter().filter(|(other, _)| (*at..end).contains(other)) {
                        self.put(*at, &[0; 512]);
                    }
                }
            }
        }
    }

    /// Opens it. Returns how it came up.
    fn open(&self) -> &'static str {
        let ssd = match Ssd::reopen(self.config.clone(), &self.bench) {
            Ok(ssd) => ssd,
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains("system area") || text.contains("the fleet map") || text.contains("entry"),
                    "{text}"
                );
                return "refused";
            }
        };
        let origin = match ssd.boot().origin {
            Origin::Fresh | Origin::Clean => "clean",
            Origin::Dump => "dump",
            Origin::NoDump(_) => "no dump",
            Origin::Rebuilt(_) => "rebuilt",
        };
        let knows = ssd.admin.volumes().is_filling()
            || !ssd.admin.volumes().metadata().lost().is_empty()
            || ssd.admin.volumes().metadata().contents().map.is_none();
        assert!(!ssd.boot().is_lossy() || knows, "it may have lost writes, and will serve");
        let regions = ssd.regions();
        for (vba, ever) in (0u32..).zip(&self.ever) {
            match ssd.ftl().extent(vid(VOLUME), 1, vba) {
                Extent::Unmapped => {}
                Extent::Page(page, sum) => {
                    let Fetch::Here(local) = ssd.ftl().fetch(page) else { panic!("RAM media") };
                    let region =
                        regions.iter().find(|region| region.id() == local.region).expect("one of the SSD's");
                    let mut data = [0; BLOCK];
                    region.read(local.offset, &mut data);
                    ssd.ftl().unpin(page);
                    let tag = u64::from_le_bytes(data[..8].try_into().unwrap()) / 1_000_003;
                    // A read of a page whose sum is wrong is refused, so it is no content.
                    let is_one = ever.contains(&tag) && data[..] == block(tag);
                    assert!(is_one || block_sum(&data) != sum, "block {vba} holds {tag}, {origin}");
                }
                // Reads are refused, or are zeros.
                Extent::StaleGeneration | Extent::WrongKey => {}
            }
        }
        origin
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long to go on is a matter of the wall clock, not of any result"
)]
pub(super) fn seeds(least: u64, mut run: impl FnMut(u64)) -> u64 {
    let (first, seconds) =
        (number("GNSTOR_FUZZ_SEED").unwrap_or(0), number("GNSTOR_FUZZ_SECONDS").unwrap_or(0));
    let start = std::time::Instant::now();
    let mut count = 0;
    while count < least || start.elapsed().as_secs() < seconds {
        run(first.wrapping_add(count));
        count += 1;
    }
    count
}

/// In a process of its own, as the environment is shared by all tests.
#[test]
fn campaigns_begin_with_the_seed_of_the_environment() {
    let _deadline = crate::deadline::deadline();
    let this = std::env::current_exe().expect("the path of the test binary");
    for test in [
        "campaign::every_permit_is_spent",
        "crash::damage::a_damaged_structure_is",
        "media::a_damaged_system",
    ] {
        let mut child = std::process::Command::new(&this)
            .args([&format!("tests::{test}"), "--nocapture", "--test-threads=1"])
            .env("GNSTOR_FUZZ_SEED", "123456")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the test binary runs");
        let output = std::io::BufReader::new(child.stdout.take().expect("it is piped"));
        let first = std::io::BufRead::lines(output).map_while(Result::ok).find(|line| line.contains("seed "));
        child.kill().expect("the test binary is there");
        child.wait().expect("it has ended");
        assert!(first.as_ref().is_some_and(|line| line.ends_with("seed 123456")), "{test}: {first:?}");
    }
}

#[test]
fn a_damaged_system_area_is_refused_or_tells_nothing_wrong() {
    let mut ways: BTreeMap<&str, u64> = BTreeMap::new();
    let mut image = None;
    let count = seeds(CASES, |seed| {
        println!("seed {seed}");
        // An open changes flash, too: each damage has remains of its own.
        let mut dice = Dice(seed ^ 0xD1CE);
        let made = remains(seed / DAMAGES, image.as_ref().filter(|_| seed % DAMAGES != 0));
        image = Some(Arc::clone(&made.image));
        made.damage(&mut dice);
        *ways.entry(made.open()).or_default() += 1;
        // Whatever the result, the next start can open it as well as this one.
        made.bench.power.cut();
        made.bench.power.restore();
        made.flash.after_power_cut(seed);
        made.store.after_power_cut(seed);
        made.open();
    });
    println!("{count} cases: {ways:?}");
}

/// Changes a field of a page or cell of the system area, and the checksum with it.
fn forge(made: &Remains, dice: &mut Dice) {
    let magic = |bytes: &[u8], at: usize| bytes[at..at + 3] == *b"GNV";
    let heads: Vec<u64> =
        made.image.sectors.iter().filter(|(_, s)| magic(s, 0) || magic(s, 4)).map(|(at, _)| *at).collect();
    let at = dice.of(&heads);
    let mut page = [0; BLOCK];
    made.store.read(at, &mut page).expect("within the store");
    let is_cell = magic(&page, 0);
    let length = |page: &[u8]| u32::from_le_bytes(page[28..32].try_into().expect("four bytes")) as usize;
    let used = if is_cell { (64 + length(&page)).min(BLOCK) } else { BLOCK };
    let front = if dice.one_in(2) { 96.min(used) } else { used };
    let field = 8 + dice.index((front - 8) / 4) * 4;
    let old = u32::from_le_bytes(page[field..field + 4].try_into().expect("four bytes"));
    // Not up to the ends of the range: counters there are a test of `durable`.
    let new = match dice.below(5) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1) & 0x3FFF_FFFF,
        2 => old ^ 1 << dice.below(29),
        3 => dice.small(300),
        _ => dice.small(1 << 30),
    };
    page[field..field + 4].copy_from_slice(&new.to_le_bytes());
    let (crc, at_crc) = if is_cell {
        let Some(content) = page[64..].get(..length(&page)) else { return };
        (crc32c::crc32c_append(crc32c::crc32c(&page[..32]), content), 32)
    } else {
        (crc32c::crc32c(&page[4..]), 0)
    };
    page[at_crc..at_crc + 4].copy_from_slice(&crc.to_le_bytes());
    made.put(at, if is_cell { &page[..used.next_multiple_of(512)] } else { &page });
}

#[test]
fn a_system_area_forged_under_right_checksums_is_no_reason_to_panic() {
    let mut image = None;
    let mut ways: BTreeMap<&str, u64> = BTreeMap::new();
    seeds(CASES, |seed| {
        println!("seed {seed}");
        let mut dice = Dice(seed ^ 0xF04E);
        let made = remains(seed / DAMAGES, image.as_ref().filter(|_| seed % DAMAGES != 0));
        image = Some(Arc::clone(&made.image));
        (0..=dice.below(3)).for_each(|_| forge(&made, &mut dice));
        let way = match Ssd::reopen(made.config.clone(), &made.bench) {
            Ok(mut ssd) => {
                for vba in 0..BLOCKS {
                    if let Extent::Page(page, _) = ssd.ftl().extent(vid(VOLUME), 1, vba) {
                        ssd.ftl().unpin(page);
                    }
                }
                if ssd.shut_down().is_ok() { "opened" } else { "not shut down" }
            }
            Err(_) => "refused",
        };
        *ways.entry(way).or_default() += 1;
    });
    println!("{ways:?}");
}

fn sizes() -> Sizes {
    Sizes {
        map_words: 4096,
        superblocks: 64,
        blocks: 256,
        journal_bytes: 1 << 20,
        dump_bytes: 1 << 20,
        volumes: 64,
        map_bytes: 1 << 16,
        held_map: true,
    }
}

/// Every decoder of a whole SSD's system area, on the same bytes. `flash` and `durable` have those within a
/// data file, and a check that none is left out (`tests/fuzz.rs` there).
fn decode_all(bytes: &[u8]) {
    let sizes = sizes();
    for kind in
        [Kind::Header, Kind::Term, Kind::Map, Kind::Entry, Kind::Tombstone, Kind::SmartCounters, Kind::Held]
    {
        let _ = Cell::decode(bytes, kind, 0);
    }
    let _ = PageHead::decode(bytes);
    let _ = decode_page(bytes, &Bounds::from(&sizes), &mut Transactions::default());
    let _ = Header::decode(bytes);
    let _ = Meta::decode(bytes, &sizes);
    let _ = Record::decode(bytes, &Bounds::from(&sizes));
    let _ = EntryCell::decode(bytes);
    let _ = Tombstone::decode(bytes);
    let _ = CheckpointHead::decode(bytes);
    let _ = Dump::decode(bytes.to_vec(), DumpIdentity { tag: 1, number: 1 }, &sizes);
    let _ = VolumeEntry::decode(bytes);
    let _ = FleetMap::decode(bytes);
}

#[test]
fn no_decoder_minds_any_bytes() {
    let Image { sectors, .. } = &*remains(5, None).image;
    seeds(4_000, |seed| {
        let mut dice = Dice(seed);
        let mut bytes: Vec<u8> = match dice.below(3) {
            0 => (0..dice.below(700)).flat_map(|_| dice.roll().to_le_bytes()).collect(),
            1 => vec![u8::try_from(dice.below(256)).expect("a byte"); dice.index(5000)],
            _ => {
                // Real sectors from a random place, in sequence.
                let from = dice.index(sectors.len());
                let count = 1 + dice.index(16);
                let flat = sectors[from..].iter().take(count).flat_map(|(_, sector)| sector.iter().copied());
                flat.skip(dice.index(80)).collect()
            }
        };
        for _ in 0..dice.below(4) {
            if !bytes.is_empty() {
                let at = dice.index(bytes.len());
                bytes[at] ^= 1 << dice.below(8);
            }
        }
        decode_all(&bytes);
    });
}
