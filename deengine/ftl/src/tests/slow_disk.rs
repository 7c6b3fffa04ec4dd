// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk whose every barrier takes long (`slow_store.rs` says how long). The layer waits for it, but its
//! thread does not.
#![expect(clippy::disallowed_methods, reason = "the test is about real time")]

use super::slow_store::{SlowStore, barrier_time, still_after};
use super::*;
use gnstor_flash::{DataFile, FileStore};
use std::time::{Duration, Instant};

/// Number of calls of the layer, and the longest of them.
struct Clock {
    start: Instant,
    longest: (Duration, &'static str),
    /// Time in calls that stood still.
    still: Duration,
}

impl Clock {
    fn now(&self) -> Time {
        Time::from_ns(1 + u64::try_from(self.start.elapsed().as_nanos()).unwrap())
    }

    fn time<T>(&mut self, what: &'static str, call: impl FnOnce(Time) -> T) -> T {
        let (before, now) = (Instant::now(), self.now());
        let result = call(now);
        let taken = before.elapsed();
        self.longest = self.longest.max((taken, what));
        self.still += if taken > still_after() { taken } else { Duration::ZERO };
        result
    }
}

/// A layer whose store is slow from its first start on.
fn on_slow_disk(path: &std::path::Path) -> FtlConfig {
    let power = Arc::new(Power::steady());
    let (mut config, _) = config(4000, false, &power, 3);
    // Erases wait for the journal, and so for the disk. There is room for some rounds of this.
    config.preset.over_provisioning_permille = 3000;
    let geometry = crate::geometry_for(&config.preset, config.logical_pages).unwrap();
    let bytes = FtlConfig::store_bytes(&config.preset, config.logical_pages, config.dump_bytes).unwrap();
    let file = Arc::new(DataFile::create(path, &geometry, bytes, "a test").unwrap());
    let inner = FileStore::new(Arc::clone(&file), Arc::clone(&power));
    // A format and a start may wait for the disk.
    config.media = MediaConfig::File(Arc::clone(&file));
    config.store = Arc::new(FileStore::new(file, power));
    config.spare_frames = 1024;
    Ftl::format(&config).unwrap().ftl.shut_down().unwrap();
    config.store = Arc::new(SlowStore::new(inner));
    config
}

/// Checks after a shutdown that every block has its last content.
fn check_all(config: &FtlConfig, newest: &BTreeMap<u32, u64>) {
    let OpenedFtl { ftl, boot, .. } = Ftl::open(config, |_, _, _| true, &|_, _| {}).unwrap();
    assert_eq!(boot.origin, crate::restore::Origin::Clean);
    let region = ftl.regions();
    for (&vba, &tag) in newest {
        let Extent::Page(page, _) = ftl.extent(vid(1), 1, vba) else { panic!("block {vba} is gone") };
        let (local, ticket) = super::fetched(&ftl, page, vba);
        let mut data = [0; 4096];
        region.iter().find(|region| region.id() == local.region).unwrap().read(local.offset, &mut data);
        assert!(data == content(tag), "block {vba}");
        ticket.into_iter().for_each(|ticket| ftl.release(ticket));
        ftl.unpin(page);
    }
}

#[test]
fn a_slow_barrier_stops_no_engine_and_fails_no_write() {
    let _deadline = crate::tests::deadline();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd");
    let config = on_slow_disk(&path);
    let OpenedFtl { ftl, .. } = Ftl::open(&config, |_, _, _| true, &|_, _| {}).unwrap();

    let mut clock = Clock { start: Instant::now(), longest: (Duration::ZERO, ""), still: Duration::ZERO };
    let (mut sequence, mut last_wait, mut flushes) = (0u64, Duration::ZERO, 0);
    let mut flush: Option<(Seq, Instant)> = None;
    let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
    let long = std::env::var("GNSTOR_SLOW_DISK_S").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    while clock.start.elapsed() < Duration::from_secs(long) || ftl.stats().checkpoints == 0 {
        clock.time("maintain", |now| ftl.maintain(now));
        let _ = clock.time("poll_loaded", |_| ftl.poll_loaded());
        match flush {
            None => flush = Some((clock.time("make_durable", |now| ftl.make_durable(now)).0, Instant::now())),
            Some((seq, since)) if clock.time("durable", |_| ftl.durable()) >= seq => {
                (flush, flushes, last_wait) = (None, flushes + 1, last_wait.max(since.elapsed()));
            }
            Some(_) => {}
        }
        let Some(frame) = ftl.take_frame() else { continue };
        let vba = u32::try_from(mix64(sequence) % 4000).unwrap();
        let stamp = Stamp { lease_epoch: 1, sequence: sequence + 1 };
        let data = content(tag(stamp, vba));
        ftl.flash().write_frame(frame, &data);
        let block = NewBlock { frame, sum: gnstor_proto::checksum::block_sum(&data) };
        let target = Target { vid: vid(1), generation: 1, vba, stamp, only_mapped: false, fills: false };
        match clock.time("commit", |now| ftl.commit(now, now, &target, &[block])) {
            Ok(_) => {
                sequence += 1;
                newest.insert(vba, tag(stamp, vba));
            }
            Err(CommitError::Stalled) => ftl.give_frame(frame),
            Err(error) => panic!("a slow disk is no reason for {error}"),
        }
    }
    eprintln!(
        "{sequence} writes, {flushes} flushes of {last_wait:?} at most, longest call {:?}, {:?}",
        clock.longest,
        ftl.stats()
    );
    // Barriers take nine tenths of the time.
    let (still, all) = (clock.still, clock.start.elapsed());
    assert!(still < all / 4, "of {all:?} the layer stood still for {still:?}: {:?}", clock.longest);
    assert!(sequence > 1000 && flushes > 2, "{sequence} writes and {flushes} flushes");
    // Its own barriers, barriers in progress, and those of a checkpoint.
    assert!(last_wait < 8 * barrier_time(), "a flush took {last_wait:?}");
    ftl.shut_down().unwrap();
    drop(ftl);
    check_all(&config, &newest);
}
