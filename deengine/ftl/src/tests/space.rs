// SPDX-License-Identifier: Apache-2.0 OR MIT
//! States of superblocks, victims and wear.

use super::*;

fn closed(space: &mut Space, valid: u32) -> Superblock {
    let superblock = space.open(Stream::Host).unwrap();
    space.close(superblock);
    space.get_mut(superblock).valid = valid;
    superblock
}

#[test]
fn the_least_erased_superblock_is_opened_first() {
    let _deadline = crate::tests::deadline();
    let mut space = Space::new(3, |_| 10);
    space.freed(Superblock(0), 5, 10);
    space.freed(Superblock(2), 3, 10);
    let order: Vec<_> = std::iter::from_fn(|| space.open(Stream::Host)).map(|s| s.0).collect();
    assert_eq!(order, [1, 2, 0]);
    assert_eq!(space.free(), 0);
}

#[test]
fn greedy_takes_the_emptiest_and_cost_benefit_minds_age() {
    let _deadline = crate::tests::deadline();
    let mut space = Space::new(20, |_| 100);
    let old = closed(&mut space, 60);
    for _ in 0..15 {
        closed(&mut space, 100);
    }
    let young = closed(&mut space, 50);
    assert_eq!(space.victim(Policy::Greedy), Some(young));
    assert_eq!(space.victim(Policy::CostBenefit), Some(old));
}

#[test]
fn full_open_and_unprogrammed_superblocks_are_no_victims() {
    let _deadline = crate::tests::deadline();
    let mut space = Space::new(4, |_| 10);
    closed(&mut space, 10);
    space.open(Stream::Host).unwrap();
    let busy = closed(&mut space, 1);
    space.get_mut(busy).unprogrammed = 1;
    assert_eq!(space.victim(Policy::Greedy), None);
    space.get_mut(busy).unprogrammed = 0;
    assert_eq!(space.victim(Policy::Greedy), Some(busy));
}

#[test]
fn a_cold_superblock_is_found_when_the_spread_is_beyond_the_bound() {
    let _deadline = crate::tests::deadline();
    let mut space = Space::new(3, |_| 10);
    let cold = closed(&mut space, 10);
    space.freed(Superblock(2), 9, 10);
    assert_eq!(space.cold(9), None);
    assert_eq!(space.cold(8), Some(cold));
    assert_eq!(space.wear(), Wear { least: 0, most: 9, mean_milli: 3000 });
}

#[test]
fn a_superblock_without_good_blocks_is_dead() {
    let _deadline = crate::tests::deadline();
    let mut space = Space::new(2, |s| s.0 * 10);
    assert_eq!((space.free(), space.good_pages()), (1, 10));
    space.freed(Superblock(1), 1, 0);
    assert_eq!((space.free(), space.open(Stream::Host)), (0, None));
}
