// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk where each read takes a second. Collection waits for it, but no call of the layer does.
#![expect(clippy::disallowed_methods, reason = "the test is about real time")]

use super::slow_folder::{SlowFolder, Word};
use super::*;
use gnstor_flash::{DataFile, FileStore};
use std::time::{Duration, Instant};

/// What a read of the slow disk takes.
const SLOW_MS: u64 = 1000;
/// A call that takes longer has waited for the disk. Other programs may keep the processor for a while.
const STILL: Duration = Duration::from_millis(SLOW_MS / 2);
/// Blocks of the SSD.
const BLOCKS: u32 = 2000;

fn on(folder: &SlowFolder) -> FtlConfig {
    let power = Arc::new(Power::steady());
    let (mut config, _) = config(BLOCKS.into(), false, &power, 3);
    let geometry = crate::geometry_for(&config.preset, config.logical_pages).unwrap();
    let bytes = FtlConfig::store_bytes(&config.preset, config.logical_pages, config.dump_bytes).unwrap();
    let path = folder.path().join("ssd");
    let file = Arc::new(DataFile::create(&path, &geometry, bytes, "a test").unwrap());
    config.media = MediaConfig::File(Arc::clone(&file));
    config.store = Arc::new(FileStore::new(file, power));
    config.spare_frames = 1024;
    config
}

/// A write that may be stalled for as long as collection waits for the disk.
fn try_write(ftl: &Ftl, now: Time, vba: u32, sequence: u64) -> Option<Result<(), CommitError>> {
    let frame = ftl.take_frame()?;
    let stamp = Stamp { lease_epoch: 1, sequence };
    let data = content(tag(stamp, vba));
    ftl.flash().write_frame(frame, &data);
    let target = Target { vid: vid(1), generation: 1, vba, stamp, only_mapped: false, fills: false };
    let block = NewBlock { frame, sum: gnstor_proto::checksum::block_sum(&data) };
    let result = ftl.commit(now, now, &target, &[block]);
    if result.is_err() {
        ftl.give_frame(frame);
    }
    Some(result.map(drop))
}

/// The tag of a block's content.
fn read(ftl: &Ftl, vba: u32) -> u64 {
    u64::from_le_bytes(super::stored(ftl, vba)[..8].try_into().unwrap())
}

#[test]
fn no_call_of_the_layer_waits_for_the_reads_of_collection() {
    let _deadline = crate::tests::deadline();
    let folder = match SlowFolder::mount() {
        Ok(folder) => folder,
        Err(error) => return mounts::left_out("a FUSE mount", &error),
    };
    let config = on(&folder);
    let ftl = Ftl::format(&config).unwrap().ftl;
    let begin = Instant::now();
    let now = || Time::from_ns(1 + u64::try_from(begin.elapsed().as_nanos()).unwrap());
    let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut sequence, mut longest, mut stalled) = (0u64, (Duration::ZERO, ""), 0u64);
    let mut slow_since: Option<Instant> = None;
    while slow_since.is_none_or(|since| since.elapsed() < Duration::from_secs(12)) {
        // The SSD is full, and further writes need collection.
        if slow_since.is_none() && sequence > 2 * u64::from(BLOCKS) {
            folder.set(Word::ReadMs, SLOW_MS);
            slow_since = Some(Instant::now());
            longest = (Duration::ZERO, "");
        }
        let vba = u32::try_from(mix64(sequence) % u64::from(BLOCKS)).unwrap();
        let before = Instant::now();
        ftl.maintain(now());
        longest = longest.max((before.elapsed(), "maintain"));
        let before = Instant::now();
        let written = try_write(&ftl, now(), vba, sequence + 1);
        longest = longest.max((before.elapsed(), "commit"));
        match written {
            Some(Ok(())) => {
                sequence += 1;
                newest.insert(vba, tag(Stamp { lease_epoch: 1, sequence }, vba));
            }
            None | Some(Err(CommitError::Stalled)) => stalled += 1,
            Some(Err(error)) => panic!("a slow disk is no reason for {error}"),
        }
        if stalled % 64 == 63 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let reads = folder.get(Word::Reads);
    eprintln!(
        "{sequence} writes, {stalled} stalls, {reads} slow reads, longest {longest:?}, {:?}",
        ftl.stats()
    );
    folder.set(Word::ReadMs, 0);
    assert!(reads > 3, "collection had to read");
    for (&vba, &tag) in &newest {
        assert_eq!(read(&ftl, vba), tag, "block {vba}");
    }
    assert!(longest.0 < STILL, "the layer waited for the disk: {longest:?}");
    ftl.shut_down().unwrap();
    drop(ftl);
    let ftl = Ftl::open(&config, |_, _, _| true, &|_, _| {}).unwrap().ftl;
    for (&vba, &tag) in &newest {
        assert_eq!(read(&ftl, vba), tag, "block {vba} after a restart");
    }
}
