// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bits flip in the records beside pages. No block reads as zeros or as another one, no later write is lost,
//! and collection goes on.

use super::*;
use crate::repair::Kept;
use gnstor_flash::Fetch;

/// Bits of a record: block, volume, generation, sum, sequence, order, lease epoch, crc.
const BITS: [u32; 13] = [63, 40, 32, 20, 16, 127, 96, 64, 128, 190, 200, 300, 257];
const BLOCK: u32 = 5;

/// A layer with 600 blocks. The record of one of them has a flipped bit.
fn rotten(bit: u32) -> (Harness, Ppa) {
    let mut harness = Harness::new(600, false, 4);
    for vba in 0..600 {
        assert!(harness.write((vid(1), vba), 1));
    }
    assert!(harness.make_durable());
    let Extent::Page(page, _) = harness.ftl().extent(vid(1), 1, BLOCK) else { panic!("written") };
    harness.ftl().unpin(page);
    harness.ftl().flash().rot_record(page, bit);
    (harness, page)
}

/// Whether the block has data, or is reported as unreadable. It must not read as zeros.
fn has_data(harness: &Harness, bit: u32) -> bool {
    match harness.ftl().extent(vid(1), 1, BLOCK) {
        Extent::WrongKey => false,
        Extent::Page(page, sum) => {
            let mut bytes = [0; 4096];
            let fetched = harness.ftl().fetch(page);
            let is_read = if let Fetch::Here(local) = fetched { Some(local) } else { None };
            is_read.into_iter().for_each(|local| harness.ftl().read_fetched(local, &mut bytes));
            harness.ftl().unpin(page);
            is_read.is_some() && gnstor_proto::checksum::block_sum(&bytes) == sum
        }
        other => panic!("bit {bit}: {other:?}"),
    }
}

#[test]
fn a_block_whose_record_has_rotted_takes_the_next_write_and_is_older_than_any_copy() {
    let _deadline = crate::tests::deadline();
    for bit in BITS {
        let (mut harness, page) = rotten(bit);
        assert!(!harness.ftl().flash().is_sound(page), "bit {bit}");
        has_data(&harness, bit);
        let kept = harness.ftl().commits().kept(vid(1), 1, BLOCK);
        assert!(
            matches!(kept, Kept::Block { stamp, .. } if stamp == Stamp::default()),
            "bit {bit}: {kept:?}"
        );
        assert!(harness.write((vid(1), BLOCK), 1));
        assert!(has_data(&harness, bit), "bit {bit}: the write counts");
        let kept = harness.ftl().commits().kept(vid(1), 1, BLOCK);
        assert!(matches!(kept, Kept::Block { stamp, .. } if stamp > Stamp::default()), "bit {bit}: {kept:?}");
        harness.check(harness.last(), "after the write");
    }
}

#[test]
fn collection_passes_a_page_whose_record_has_rotted_until_its_block_is_written() {
    let _deadline = crate::tests::deadline();
    for bit in BITS {
        let (mut harness, page) = rotten(bit);
        let superblock = harness.ftl().flash().geometry().superblock_of(page);
        let is_stuck = |harness: &Harness| harness.ftl().lock().space.get(superblock).is_stuck;
        let overwrite = |harness: &mut Harness, steps: std::ops::Range<u64>| {
            for step in steps {
                let vba = u32::try_from(mix64(step) % 600).unwrap();
                assert!(vba == BLOCK || harness.write((vid(1), vba), 1));
            }
        };
        overwrite(&mut harness, 0..6_000);
        assert!(is_stuck(&harness), "bit {bit}: nothing else of it is valid by now");
        has_data(&harness, bit);
        assert!(harness.write((vid(1), BLOCK), 1));
        overwrite(&mut harness, 6_000..8_000);
        assert!(!is_stuck(&harness), "bit {bit}: it was erased");
        harness.check(harness.last(), "after collection");
    }
}
