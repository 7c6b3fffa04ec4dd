// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process is killed at random moments. All writes that it has acknowledged must be there.
//!
//! The test starts itself a second time as the victim. The victim writes and trims random blocks. It prints
//! what it is about to do, and later that the command is acknowledged. The test kills it after some time,
//! over and over on the same data file. The kill comes while the victim writes, restores, or makes the file
//! anew.

use super::long::is_long;
use super::*;
use crate::restore::Origin;
use gnstor_flash::{DataFile, FileStore, Store};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const VICTIM: &str = "GNSTOR_FTL_TEST_VICTIM";
const BLOCKS: u32 = 2000;

fn on_file(path: &Path) -> FtlConfig {
    let power = Arc::new(Power::steady());
    let (mut config, _) = config(BLOCKS.into(), false, &power, 3);
    config.preset.power_protected = true;
    let geometry = crate::geometry_for(&config.preset, config.logical_pages).unwrap();
    let bytes = FtlConfig::store_bytes(&config.preset, config.logical_pages, config.dump_bytes).unwrap();
    let file = if path.exists() {
        // The last owner may still hold the file.
        let open = || match DataFile::open(path) {
            Err(gnstor_flash::DataFileError::Locked(_)) => None,
            other => Some(other.unwrap()),
        };
        std::iter::repeat_with(open)
            .take(1000)
            .find_map(|file| {
                file.or_else(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    None
                })
            })
            .expect("the data file stays locked")
    } else {
        DataFile::create(path, &geometry, bytes, "").unwrap()
    };
    let file = Arc::new(file);
    config.store = Arc::new(FileStore::new(Arc::clone(&file), power));
    config.media = MediaConfig::File(file);
    config.spare_frames = 1024;
    config
}

fn open(config: &FtlConfig) -> OpenedFtl {
    Ftl::open(config, |_, _, _| true, &|_, _| {}).unwrap()
}

/// Works until it is killed; its stamps begin at a number that no earlier victim had.
fn victim(path: &Path, first: u64) {
    let ftl = open(&on_file(path)).ftl;
    let mut out = std::io::stdout();
    for sequence in first.. {
        let dice = mix64(sequence);
        let now = Time::from_ns(sequence * 1000);
        let stamp = Stamp { lease_epoch: 1, sequence };
        let vba = u32::try_from(dice % u64::from(BLOCKS)).unwrap();
        let target = Target { vid: vid(1), generation: 1, vba, stamp, only_mapped: false, fills: false };
        let trims = dice >> 32 & 15 == 0;
        let tag = if trims { 0 } else { tag(stamp, vba) };
        writeln!(out, "try {vba} {tag}").unwrap();
        if trims {
            while ftl.trim(now, &target, 1).is_err() {
                ftl.maintain(now);
            }
        } else {
            let data = content(tag);
            let frame = loop {
                match ftl.take_frame() {
                    Some(frame) => break frame,
                    None => _ = ftl.maintain(now),
                }
            };
            ftl.flash().write_frame(frame, &data);
            let block = NewBlock { frame, sum: gnstor_proto::checksum::block_sum(&data) };
            while ftl.commit(now, now, &target, &[block]).is_err() {
                ftl.maintain(now);
            }
        }
        writeln!(out, "done {vba} {tag}").unwrap();
        if dice >> 40 & 63 == 0 {
            ftl.make_durable(now);
        }
        if dice >> 48 & 3 == 0 {
            ftl.maintain(now);
        }
    }
}

/// The content of a block; 0: none.
fn read(ftl: &Ftl, regions: &[Arc<HostRegion>], vba: u32) -> u64 {
    let page = match ftl.extent(vid(1), 1, vba) {
        Extent::Page(page, _) => page,
        Extent::Unmapped => return 0,
        other => panic!("block {vba}: {other:?}"),
    };
    let (local, ticket) = super::fetched(ftl, page, vba);
    let mut data = [0; 4096];
    regions.iter().find(|region| region.id() == local.region).unwrap().read(local.offset, &mut data);
    ticket.into_iter().for_each(|ticket| ftl.release(ticket));
    ftl.unpin(page);
    let tag = u64::from_le_bytes(data[..8].try_into().unwrap());
    assert!(data == content(tag), "block {vba} is torn");
    tag
}

/// Starts this test again, as the victim.
fn spawn(first: u64, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "tests::killed::what_a_killed_process_has_acknowledged_is_there"])
        .env(VICTIM, format!("{first} {}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills the victim after a pause. Notes the possible contents of blocks, from what the victim has said.
/// Returns how it ended, and the number of acknowledged writes and trims.
fn follow(mut child: Child, pause: Duration, allowed: &mut BTreeMap<u32, Vec<u64>>) -> (ExitStatus, u64) {
    let mut done = 0;
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let status = std::thread::scope(|scope| {
        let killer = scope.spawn(move || {
            std::thread::sleep(pause);
            child.kill().unwrap();
            child.wait().unwrap()
        });
        for line in said {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, vba, tag] = words[..] else { continue };
            let (Ok(vba), Ok(tag)) = (vba.parse(), tag.parse()) else { continue };
            let held = allowed.entry(vba).or_insert_with(|| vec![0]);
            match what {
                "try" => held.push(tag),
                "done" => {
                    done += 1;
                    *held = vec![tag];
                }
                _ => {}
            }
        }
        killer.join().unwrap()
    });
    (status, done)
}

/// After a shutdown nothing is left in memory.
fn nothing_is_left(path: &Path) {
    let left = std::fs::read_dir("/dev/shm").unwrap().map_while(Result::ok);
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let of_file = format!("-{inode:x}-");
    let left: Vec<_> = left.filter(|file| file.file_name().to_string_lossy().contains(&of_file)).collect();
    assert!(left.is_empty(), "after a shutdown nothing is left in memory: {left:?}");
}

#[test]
fn what_a_killed_process_has_acknowledged_is_there() {
    let _deadline = crate::tests::deadline();
    if let Ok(what) = std::env::var(VICTIM) {
        let (first, path) = what.split_once(' ').unwrap();
        return victim(Path::new(path), first.parse().unwrap());
    }
    let rounds = if is_long() { 1000 } else { 50 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    Ftl::format(&on_file(&path)).unwrap().ftl.shut_down().unwrap();
    // Possible contents of each block. The last one is acknowledged; earlier ones are no longer possible.
    let mut allowed: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let (mut acknowledged, mut relocated, mut dumps) = (0, 0, 0);
    for round in 0..rounds {
        let child = spawn((round + 1) * 1_000_000_000, &path);
        let pause = Duration::from_micros(5_000 + mix64(round) % 150_000);
        let (killer, done) = follow(child, pause, &mut allowed);
        acknowledged += done;
        assert!(!killer.success(), "the victim ended by itself");
        // In two rounds of three the next victim restores, and may be killed meanwhile.
        if round % 3 != 0 && round + 1 < rounds {
            continue;
        }
        let config = on_file(&path);
        let OpenedFtl { ftl, boot, .. } = open(&config);
        assert!(!boot.is_lossy(), "round {round}: {boot:?}");
        relocated += boot.rewritten;
        dumps += u32::from(boot.origin == Origin::Dump);
        let regions = ftl.regions();
        for vba in 0..BLOCKS {
            let tag = read(&ftl, &regions, vba);
            let held = allowed.entry(vba).or_insert_with(|| vec![0]);
            assert!(held.contains(&tag), "round {round}: block {vba} holds {tag:x}, not one of {held:x?}");
            *held = vec![tag];
        }
        ftl.shut_down().unwrap();
    }
    eprintln!(
        "{rounds} kills, {acknowledged} acknowledged, {dumps} found in memory, {relocated} pages relocated"
    );
    assert!(acknowledged > 1000 && relocated > 20 && dumps > 5, "{acknowledged} {relocated} {dumps}");
    nothing_is_left(&path);
}

fn write(ftl: &Ftl, vba: u32, sequence: u64) {
    let stamp = Stamp { lease_epoch: 1, sequence };
    let data = content(tag(stamp, vba));
    let frame = ftl.take_frame().unwrap();
    ftl.flash().write_frame(frame, &data);
    let target = Target { vid: vid(1), generation: 1, vba, stamp, only_mapped: false, fills: false };
    let block = NewBlock { frame, sum: gnstor_proto::checksum::block_sum(&data) };
    ftl.commit(Time::ZERO, Time::ZERO, &target, &[block]).unwrap();
}

#[test]
fn memory_of_another_life_is_not_used() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("ssd"), folder.path().join("copy"));
    let config = on_file(&path);
    let ftl = Ftl::format(&config).unwrap().ftl;
    write(&ftl, 7, 1);
    // As a kill leaves it: nothing is dropped in order. Another file has other memory.
    std::fs::copy(&path, &copy).unwrap();
    let found = open(&on_file(&copy));
    assert!(matches!(found.boot.origin, Origin::NoDump(_)), "{:?}", found.boot);
    assert_eq!(found.ftl.mapped(), 0);
    drop(found);
    // Memory that its owner lets go of is gone.
    drop(ftl);
    drop(config);
    let config = on_file(&path);
    let OpenedFtl { ftl, boot, .. } = open(&config);
    assert!(matches!(boot.origin, Origin::NoDump(_)), "{boot:?}");
    drop((ftl, config));
    // A volatile SSD has no such memory.
    let (mut config, _) = super::config(BLOCKS.into(), false, &Arc::new(Power::steady()), 3);
    config.spare_frames = 1024;
    let file = Arc::new(DataFile::open(&path).unwrap().volatile());
    config.store = Arc::new(FileStore::new(Arc::clone(&file), Arc::clone(&config.power)));
    config.media = MediaConfig::File(file);
    assert!(open(&config).ftl.flash().kept().is_none());
}

/// A system area on a disk that breaks.
#[derive(Debug)]
struct Breaking {
    inner: FileStore,
    is_broken: AtomicBool,
}

impl Breaking {
    fn check(&self) -> io::Result<()> {
        if self.is_broken.load(Ordering::Relaxed) {
            Err(io::Error::other("the disk is broken"))
        } else {
            Ok(())
        }
    }
}

impl Store for Breaking {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(at, out)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.inner.write(at, data)
    }

    fn sync(&self) -> io::Result<()> {
        self.check()?;
        self.inner.sync()
    }

    fn barrier(&self) -> io::Result<bool> {
        self.check()?;
        self.inner.barrier()
    }
}

#[test]
fn a_dump_that_cannot_be_written_leaves_memory_to_the_next_start() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let mut config = on_file(&path);
    let MediaConfig::File(file) = &config.media else { panic!("it is in a file") };
    let inner = FileStore::new(Arc::clone(file), Arc::clone(&config.power));
    let store = Arc::new(Breaking { inner, is_broken: AtomicBool::new(false) });
    config.store = Arc::clone(&store) as _;
    let ftl = Ftl::format(&config).unwrap().ftl;
    for vba in 0..99 {
        write(&ftl, vba, u64::from(vba) + 1);
    }
    store.is_broken.store(true, Ordering::Relaxed);
    ftl.shut_down().unwrap_err();
    ftl.power_fail().unwrap_err();
    drop((ftl, config, store));
    let config = on_file(&path);
    let OpenedFtl { ftl, boot, .. } = open(&config);
    assert!(boot.origin == Origin::Dump && !boot.is_lossy(), "{boot:?}");
    let regions = ftl.regions();
    for vba in 0..99 {
        let stamp = Stamp { lease_epoch: 1, sequence: u64::from(vba) + 1 };
        assert_eq!(read(&ftl, &regions, vba), tag(stamp, vba));
    }
    ftl.shut_down().unwrap();
}

#[test]
fn a_loss_that_was_not_noted_yet_is_not_forgotten_over_a_kill() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let config = on_file(&path);
    let ftl = Ftl::format(&config).unwrap().ftl;
    write(&ftl, 7, 1);
    drop((ftl, config));
    // The start after a loss is killed before its owner notes the loss, and the one after that as well.
    for _ in 0..2 {
        let config = on_file(&path);
        let OpenedFtl { ftl, boot, .. } = open(&config);
        assert!(boot.is_lossy(), "{boot:?}");
        write(&ftl, 8, 2);
        ftl.flash().kept().unwrap().stay();
    }
    let config = on_file(&path);
    let OpenedFtl { ftl, mut metadata, boot } = open(&config);
    assert!(boot.is_lossy(), "{boot:?}");
    // The acknowledged writes of the lossy runs exist.
    let stamp = Stamp { lease_epoch: 1, sequence: 2 };
    assert_eq!(read(&ftl, &ftl.regions(), 8), tag(stamp, 8));
    metadata.set_filling(5).unwrap();
    ftl.flash().kept().unwrap().stay();
    drop((ftl, metadata, config));
    let config = on_file(&path);
    let OpenedFtl { boot, .. } = open(&config);
    assert!(!boot.is_lossy() && boot.origin == Origin::Dump, "{boot:?}");
}
