// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SMART counters survive restarts, however the power failed.

use super::crash::journal_at;
use super::*;
use gnstor_flash::{RamStore, Store};
use gnstor_ftl::{DUMP_BYTES, FtlConfig, Origin};

/// An SSD whose memory outlives it.
pub(super) struct Kept {
    config: SsdConfig,
    bench: Bench,
}

impl Kept {
    pub(super) fn new() -> (Self, Harness) {
        let preset = Preset::by_name("null").unwrap();
        let (capacity_bytes, serial) = (512 * 4096, "GN0001".into());
        let config = SsdConfig { index: 0, preset, capacity_bytes, serial, media: SsdMedia::Ram };
        let mut bench = Bench::default();
        let bytes = FtlConfig::store_bytes(&config.preset, 512, DUMP_BYTES).unwrap();
        bench.store = Some(Arc::new(RamStore::new(bytes, Arc::clone(&bench.power))));
        let ssd = Ssd::format_with(config.clone(), &bench).unwrap();
        bench.flash = Some(Arc::clone(ssd.ftl().flash()));
        let harness = Harness::around(ssd, Arc::clone(&bench.faults)).with_clients().with_volume();
        (Self { config, bench }, harness)
    }

    /// As [`Self::restart`], after a dump: nothing that was acknowledged is gone.
    pub(super) fn restart_with_dump(&self, harness: Harness) -> Harness {
        harness.ssd().power_fail().expect("it is dumped");
        self.restart(harness)
    }

    /// Cuts the power and restores it. What was not durable is gone.
    pub(super) fn restart(&self, harness: Harness) -> Harness {
        self.bench.power.cut();
        drop(harness);
        self.bench.power.restore();
        self.bench.flash.as_ref().unwrap().after_power_cut(1);
        self.bench.store.as_ref().unwrap().after_power_cut(2);
        let ssd = Ssd::reopen(self.config.clone(), &self.bench).unwrap();
        Harness::around(ssd, Arc::clone(&self.bench.faults)).with_clients()
    }
}

/// The values of the SMART page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Smart {
    backup_failed: bool,
    units_read: u64,
    units_written: u64,
    reads: u64,
    writes: u64,
    cycles: u64,
    hours: u64,
    unsafe_shutdowns: u64,
    media_errors: u64,
}

fn smart(harness: &mut Harness) -> Smart {
    let page = harness.log(QueueKey(80), start_of(2, 128)).unwrap();
    let [units_read, units_written, reads, writes, cycles, hours, unsafe_shutdowns, media_errors] =
        [32, 48, 64, 80, 112, 128, 144, 160]
            .map(|at| u64::from_le_bytes(page[at..at + 8].try_into().unwrap()));
    let backup_failed = page[0] & 1 << 4 != 0;
    Smart {
        backup_failed,
        units_read,
        units_written,
        reads,
        writes,
        cycles,
        hours,
        unsafe_shutdowns,
        media_errors,
    }
}

/// 200 writes, 30 reads of which one meets a damaged page, and `hours` with power.
fn work(harness: &mut Harness, hours: u64) {
    (0..200).for_each(|vba| _ = harness.write(vba, &[u64::from(vba)]));
    (0..29).for_each(|vba| _ = harness.read(vba));
    harness.damage(40);
    let sqe = harness.io(io::READ, WRITER, 40, 1);
    assert_eq!(harness.refused(WRITER, sqe), Some(Refusal::BadChecksum));
    harness.write(40, &[1]);
    harness.step_minutes(hours * 60);
}

#[test]
fn smart_goes_on_where_it_was_after_every_end() {
    let (kept, mut harness) = Kept::new();
    assert_eq!(smart(&mut harness).cycles, 1);
    work(&mut harness, 3);
    let first = smart(&mut harness);
    let want = Smart {
        backup_failed: false,
        units_read: 1,
        units_written: 2,
        reads: first.reads,
        writes: 201,
        cycles: 1,
        hours: 3,
        unsafe_shutdowns: 0,
        media_errors: 1,
    };
    assert_eq!(first, want);
    assert!((29..=30).contains(&first.reads));
    harness.ssd().shut_down().unwrap();
    let mut harness = kept.restart(harness);
    assert_eq!(smart(&mut harness), Smart { cycles: 2, ..first }, "after a shutdown");

    harness.now = Time::from_ns(1000);
    harness.step_minutes(2 * 60);
    harness.ssd().power_fail().unwrap();
    let mut harness = kept.restart(harness);
    let dumped = Smart { cycles: 3, hours: 5, unsafe_shutdowns: 1, ..first };
    assert_eq!(smart(&mut harness), dumped, "after a power failure with its dump");

    // A cut without a word loses what was counted since it was last kept, and nothing else.
    harness.with_serving();
    work(&mut harness, 1);
    let worked = smart(&mut harness);
    harness.with_serving();
    (0..10).for_each(|vba| _ = harness.read(vba));
    let mut harness = kept.restart(harness);
    let cut = Smart { cycles: 4, unsafe_shutdowns: 2, backup_failed: true, ..worked };
    assert_eq!(smart(&mut harness), cut, "after a cut without a dump");
    // The next dump that is whole takes the warning back; a shutdown in between does not.
    harness.ssd().shut_down().unwrap();
    let mut harness = kept.restart(harness);
    assert!(smart(&mut harness).backup_failed);
    harness.ssd().power_fail().unwrap();
    let mut harness = kept.restart(harness);
    assert_eq!(smart(&mut harness), Smart { cycles: 6, unsafe_shutdowns: 3, backup_failed: false, ..cut });
}

#[test]
fn a_torn_dump_is_a_backup_that_failed_and_says_so() {
    let (kept, mut harness) = Kept::new();
    work(&mut harness, 0);
    kept.bench.power.arm(2, 5);
    assert!(harness.ssd().power_fail().is_err());
    let mut harness = kept.restart(harness);
    assert!(matches!(harness.ssd().boot().origin, Origin::NoDump(_)));
    assert!(smart(&mut harness).backup_failed);
}

#[test]
fn wear_is_told_in_the_mean_where_single_counts_are_lost() {
    let (kept, mut harness) = Kept::new();
    for round in 0..60u64 {
        (0..400).for_each(|vba| _ = harness.write(vba, &[round]));
    }
    let before = harness.ssd().ftl().health().wear;
    assert!(before.mean_milli >= 2000, "{before:?}");
    harness.ssd().shut_down().unwrap();
    // Both checkpoints and the journal are zeros.
    let store = Arc::clone(kept.bench.store.as_ref().unwrap());
    let from = journal_at(&kept.config);
    let zeros = vec![0; usize::try_from(store.len() - from).unwrap()];
    store.write(from, &zeros).unwrap();
    store.sync().unwrap();
    let harness = kept.restart(harness);
    assert!(matches!(harness.ssd().boot().origin, Origin::Rebuilt(_)));
    let after = harness.ssd().ftl().health().wear;
    // Free superblocks were erased once more.
    assert!(
        (before.mean_milli / 1000..=before.mean_milli / 1000 + 1).contains(&(after.mean_milli / 1000)),
        "{after:?}"
    );
    assert!(after.most - after.least <= 1, "the more worn one is not known: {after:?}");
}

#[test]
fn a_tombstone_keeps_its_term_and_version() {
    let (kept, mut harness) = Kept::new();
    let volume = VolumeEntry { vid: vid(9), term: 3, request_ids: vec![[5; 16], [6; 16]], ..entry(9) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &volume)), None);
    let delete = Sqe {
        cdw2: 7.into(),
        cdw12: 9.into(),
        cdw13: 1.into(),
        cdw14: 4.into(),
        ..sqe(opcode::VOLUME_DELETE)
    };
    assert_eq!(harness.refused(DAEMON, delete), None);
    let end = harness.now + Span::from_ms(10);
    harness.step_to(end);
    let told = |harness: &mut Harness| -> Vec<(u32, u64, u64, [u8; 16])> {
        let found = harness.ssd().table.tombstones(Time::from_ns(2000), 0, 0);
        found
            .iter()
            .map(|raw| (raw.generation.get(), raw.term.get(), raw.version.get(), raw.request_ids[1]))
            .collect()
    };
    assert_eq!(told(&mut harness), [(1, 4, 7, [6; 16])]);
    harness.ssd().shut_down().unwrap();
    let mut harness = kept.restart(harness);
    assert_eq!(told(&mut harness), [(1, 4, 7, [6; 16])], "after a restart");
    // The daemon's term is the highest that was seen, the deleting one included.
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &entry(10))), Some(Refusal::StaleTerm));
}

impl Harness {
    /// The SSD serves again: a newer map, and the volume's lease renewed.
    fn with_serving(&mut self) {
        self.set_map(&FleetMap::equal(1, 64, 7, 2).unwrap());
        let cid = self.chmod(|entry| entry.lease_epoch = LEASE);
        self.advance(Span::from_ms(1));
        assert!(self.take(DAEMON, cid).is_some());
    }
}
