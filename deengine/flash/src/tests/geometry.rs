// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of pages, units, blocks, superblocks.

use super::shape;
use crate::*;
use proptest::prelude::*;

fn shapes() -> impl Strategy<Value = Shape> {
    let parts = (1..9u32, 1..5u32, 1..5u32, 1..5u32, 1..9u32, 1..40u32);
    parts.prop_map(|(channels, dies_per_channel, planes, sense_pages, times, rows)| Shape {
        channels,
        dies_per_channel,
        planes,
        unit_pages: sense_pages * times,
        sense_pages,
        rows,
    })
}

proptest! {
    #[test]
    fn every_way_from_a_number_to_another_agrees_with_the_formula(
        shape in shapes(), superblocks in 1..50u32, pick in any::<prop::sample::Index>()
    ) {
        let _deadline = crate::tests::deadline();
        let of = Geometry::new(shape, superblocks).unwrap();
        let pages = usize::try_from(of.pages()).unwrap();
        let page = Ppa(u32::try_from(pick.index(pages)).unwrap());
        let unit = of.unit_of(page);
        let (die, row, superblock) = (of.die_of(unit), of.row_of(unit), of.superblock_of(page));
        let slot = page.0 - of.first_page(unit).0;
        prop_assert!(slot < of.unit_pages() && row < of.rows());
        prop_assert!(die < of.dies() && superblock.0 < of.superblocks());
        prop_assert_eq!(
            page.0,
            (superblock.0 * of.rows() + row) * of.dies() * of.unit_pages() + die * of.unit_pages() + slot
        );
        let block = of.block_of(unit);
        prop_assert_eq!(block, Block(superblock.0 * of.dies() + die));
        prop_assert_eq!((of.die_of_block(block), of.superblock_of_block(block)), (die, superblock));
        prop_assert_eq!(of.superblock_of_unit(unit), superblock);
        prop_assert_eq!(of.unit_at(block, row), unit);
        prop_assert_eq!(of.units_of(block).position(|at| at == unit), Some(row as usize));
        prop_assert_eq!(of.pages_of(unit).position(|at| at == page), Some(slot as usize));
        prop_assert!(of.channel_of_die(die) < shape.channels);
        prop_assert_eq!(of.units_of(block).count(), of.rows() as usize);
        prop_assert_eq!(u64::from(of.units()) * u64::from(of.unit_pages()), of.pages());
        prop_assert_eq!(of.first_unit(superblock).0 % of.superblock_units(), 0);
        prop_assert_eq!(of.blocks() * of.rows(), of.units());
    }

    #[test]
    fn for_pages_is_the_smallest_that_holds_them(shape in shapes(), pages in 1..200_000u64) {
        let _deadline = crate::tests::deadline();
        let of = Geometry::for_pages(shape, pages).unwrap();
        prop_assert!(of.pages() >= pages);
        prop_assert!(of.pages() - u64::from(of.superblock_pages()) < pages, "one superblock less would do");
        prop_assert!(of.rows() <= shape.rows);
        prop_assert!(of.rows() == 1 || of.superblocks() >= 64, "{} rows, {} \
            superblocks", of.rows(), of.superblocks());
        if of.rows() < shape.rows {
            let more = Shape { rows: of.rows() + 1, ..shape };
            let larger = pages.div_ceil(u64::from(Geometry::new(more, 1).unwrap().superblock_pages()));
            prop_assert!(larger < 64, "rows were made smaller than they need be");
        }
    }
}

#[test]
fn shapes_that_cannot_be_are_refused_with_a_reason() {
    let _deadline = crate::tests::deadline();
    let refused = |shape, superblocks| Geometry::new(shape, superblocks).unwrap_err();
    assert_eq!(refused(Shape { channels: 0, ..shape() }, 1), GeometryError::Zero("channels"));
    assert_eq!(refused(Shape { rows: 0, ..shape() }, 1), GeometryError::Zero("units in a block"));
    assert_eq!(refused(shape(), 0), GeometryError::Zero("superblocks"));
    assert_eq!(refused(Shape { unit_pages: 65, ..shape() }, 1), GeometryError::UnitPages(65));
    let nested = GeometryError::SensePages { unit_pages: 4, sense_pages: 3 };
    assert_eq!(refused(Shape { sense_pages: 3, ..shape() }, 1), nested);
    assert_eq!(refused(Shape { channels: u32::MAX, ..shape() }, 1), GeometryError::TooLarge);
    assert_eq!(refused(Shape { rows: u32::MAX, ..shape() }, u32::MAX), GeometryError::TooLarge);
    assert_eq!(Geometry::for_pages(shape(), 0), Err(GeometryError::Zero("pages")));
    assert_eq!(Geometry::for_pages(shape(), u64::MAX), Err(GeometryError::TooLarge));

    let one = Shape { channels: 1, dies_per_channel: 1, planes: 1, unit_pages: 1, sense_pages: 1, rows: 1 };
    assert_eq!(Geometry::new(one, u32::MAX - 1).unwrap().pages(), u64::from(u32::MAX) - 1);
    assert_eq!(Geometry::new(one, u32::MAX), Err(GeometryError::TooLarge));
}

#[test]
fn an_ssd_of_a_tebibyte_costs_nothing_until_it_is_written() {
    let _deadline = crate::tests::deadline();
    let shape =
        Shape { channels: 16, dies_per_channel: 8, planes: 4, unit_pages: 48, sense_pages: 4, rows: 768 };
    let geometry = Geometry::for_pages(shape, (1 << 28) * 107 / 100).unwrap();
    let flash = Flash::new(FlashConfig {
        geometry: geometry.clone(),
        ..super::config(MediaConfig::Ram { shared: false })
    });
    let flash = flash.unwrap();
    let last = Unit(geometry.units() - 1);
    super::program(&flash, last, 5);
    super::assert_holds(&flash, geometry.first_page(last), 5, true);
    flash.erase(geometry.block_of(last)).unwrap();
    assert_eq!(u64::from(flash.free_frames()), geometry.pages() + 48);
}
