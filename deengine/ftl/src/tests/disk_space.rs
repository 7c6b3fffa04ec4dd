// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disk space of an SSD's data file, by capacity.

use super::*;
use crate::config::{DUMP_BYTES, MAP_BYTES, MAX_VOLUMES, volumes_for};
use crate::restore::Origin;
use crate::stamp_history::HISTORY;
use gnstor_durable::Sizes;

const MIB: u64 = 1 << 20;

fn default_preset() -> Preset {
    Preset::by_name("gnstor-980pro").unwrap()
}

fn sizes(mib: u64) -> Sizes {
    FtlConfig::sizes(&default_preset(), mib << 8, DUMP_BYTES).unwrap()
}

#[test]
fn the_system_area_of_a_small_ssd_is_small() {
    let _deadline = crate::tests::deadline();
    // Bytes of the data file, in MiB. The flash itself, spare space and records included, is 83, 306 and
    // 1,162 MiB.
    for (mib, most) in [(64, 115), (256, 350), (1024, 1280), (16_384, 19_100)] {
        let bytes = FtlConfig::data_file_bytes(&default_preset(), mib << 8, DUMP_BYTES).unwrap();
        assert!(bytes <= most * MIB, "{mib} MiB take {} MiB", bytes.div_ceil(MIB));
    }
}

#[test]
fn a_larger_ssd_never_has_room_for_less() {
    let _deadline = crate::tests::deadline();
    assert_eq!([64, 256, 1024, 16_384].map(|mib| sizes(mib).volumes), [64, 128, 512, MAX_VOLUMES]);
    assert_eq!(sizes(16_384).dump_bytes, DUMP_BYTES);
    let all: Vec<Sizes> = [1, 2, 64, 128, 200, 256, 1024, 4096, 16_384].map(sizes).into();
    for pair in all.windows(2) {
        assert!(pair[0].volumes <= pair[1].volumes && pair[0].dump_bytes <= pair[1].dump_bytes);
    }
    assert!(all.iter().all(|sizes| sizes.dump_bytes >= 4 * 4096 * u64::from(default_preset().buffer_pages)));
    assert_eq!(volumes_for(u64::MAX), MAX_VOLUMES);
}

#[test]
fn every_volume_of_an_ssd_can_have_a_whole_stamp_history_over_a_restart() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(1000, false, 1);
    let volumes = volumes_for(1000);
    for raw in 1..=u16::try_from(volumes).unwrap() {
        let mut inner = harness.ftl().lock();
        let stamps = 0..u32::try_from(HISTORY).unwrap();
        stamps.for_each(|vba| {
            inner.stamps.histories.record(vid(raw), vba, Stamp { lease_epoch: 1, sequence: 5 })
        });
    }
    let ftl = harness.ftl();
    ftl.checkpoint_now(&mut ftl.lock()).unwrap();
    ftl.shut_down().unwrap();
    let flash = harness.power_cycle(3);
    harness.reopen(flash).unwrap();
    assert_eq!(harness.boot.origin, Origin::Clean);
    let full = (1..=u16::try_from(volumes).unwrap())
        .filter(|raw| harness.ftl().stamp_history(vid(*raw)).len() == HISTORY);
    assert_eq!(full.count(), volumes as usize);
}

/// The sizes of each SSD before capacity decided them.
#[test]
fn a_store_that_was_formatted_for_more_volumes_is_opened() {
    let _deadline = crate::tests::deadline();
    let power = Arc::new(Power::steady());
    let (mut config, _) = config(1000, false, &power, 1);
    let now = FtlConfig::sizes(&config.preset, 1000, DUMP_BYTES).unwrap();
    let before = Sizes { volumes: MAX_VOLUMES, dump_bytes: DUMP_BYTES, map_bytes: MAP_BYTES, ..now };
    let store = Arc::new(RamStore::new(before.store_bytes(), Arc::clone(&power)));
    (config.store, config.dump_bytes) = (Arc::clone(&store) as _, DUMP_BYTES);
    drop(gnstor_durable::Durable::format(Arc::clone(&store) as _, before, config.seed).unwrap());
    let opened = Ftl::open(&config, |_, _, _| true, &|_, _| {}).unwrap();
    assert_eq!(*opened.ftl.durable.sizes(), before);
    assert_eq!(opened.boot.mapped, 0);
}
