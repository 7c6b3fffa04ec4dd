// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The last resort: the map from out-of-band records alone.

use super::*;
use crate::restore::Origin;
use gnstor_flash::{Flash, Oob, PageState, Ppa, Store, Superblock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

#[test]
fn without_journal_and_checkpoints_the_records_bring_everything_back_that_lives() {
    let _deadline = crate::tests::deadline();
    let mut harness = Harness::new(1000, false, 1);
    for step in 0..5_000u64 {
        let key = (vid(1 + u16::try_from(step % 2).unwrap()), u32::try_from(mix64(step) % 400).unwrap());
        assert!(harness.write(key, 1));
    }
    assert!(harness.make_durable());
    let last = harness.last();
    let flash = harness.power_cycle(5);
    // Checkpoints and journal of the system area are noise now; the headers are left.
    let noise: Vec<u8> = (0..4096u64).map(|i| mix64(i).to_le_bytes()[0]).collect();
    let sizes =
        FtlConfig::sizes(&harness.config.preset, harness.config.logical_pages, harness.config.dump_bytes)
            .unwrap();
    let mut at = sizes.journal_at();
    while at + 4096 <= harness.store.len() {
        harness.store.write(at, &noise).unwrap();
        at += 4096;
    }
    harness.store.sync().unwrap();
    forge_newest(&flash);
    let looked_at = AtomicU64::new(0);
    let progress = |done: u64, total: u64| {
        assert!(done <= total);
        looked_at.fetch_max(done, Ordering::Relaxed);
    };
    let live =
        |_: &gnstor_durable::MetadataStore, owner: Vid, generation: u32| owner == vid(1) && generation == 1;
    let OpenedFtl { ftl, boot, .. } = Ftl::open_on(flash, &harness.config, live, &progress).unwrap();
    assert!(matches!(boot.origin, Origin::Rebuilt(_)) && boot.is_lossy(), "{boot:?}");
    assert_eq!(looked_at.into_inner(), ftl.flash().geometry().pages());
    harness.region = ftl.regions();
    harness.ftl = Some(ftl);
    harness.history.retain(|(owner, _), _| *owner == vid(1));
    harness.check(last, "rebuilt");
    // The SSD goes on: further writes, a restart.
    for vba in 0..300 {
        assert!(harness.write((vid(1), vba), 1));
    }
    assert!(harness.make_durable());
    let last = harness.last();
    let flash = harness.power_cycle(6);
    harness.reopen(flash).unwrap();
    assert!(matches!(harness.boot.origin, Origin::NoDump(_)), "{:?}", harness.boot);
    for key in harness.history.clone().into_keys() {
        let newest = harness.history[&key].last().unwrap().1;
        assert_eq!(harness.read(key), newest, "{key:?} as of {last}");
    }
}

/// A unit of pages whose records have the highest number, with correct checksums. No later write could have a
/// higher one.
fn forge_newest(flash: &Flash) {
    let geometry = flash.geometry();
    let pages = |superblock: u32| {
        superblock * geometry.superblock_pages()..(superblock + 1) * geometry.superblock_pages()
    };
    let blank = |superblock: &u32| pages(*superblock).all(|page| flash.page(Ppa(page)) == PageState::Erased);
    let superblock = (0..geometry.superblocks()).find(blank).expect("a free superblock");
    let unit = geometry.first_unit(Superblock(superblock));
    for (vba, page) in (0..).zip(geometry.pages_of(unit)) {
        let oob = Oob { vid: 1, generation: 1, vba, seq: u64::MAX, ..Oob::default() };
        flash.place(page, flash.take_frame().expect("a frame"), &oob);
    }
    flash.start_program(unit);
    assert_eq!(flash.finish_program(unit), Poll::Ready(Ok(())));
}
