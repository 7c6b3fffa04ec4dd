// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What volumes reserve, beside slow counts.

use super::*;
use crate::deadline::{Deadline, LIMIT};
use gnstor_proto::placement::FleetMap;
use gnstor_proto::slba::ClientId;
use gnstor_proto::vendor::Limits;

fn layout(vid: u16, replicas: u8) -> Layout {
    Layout { vid: Vid::new(vid).unwrap(), factor: 0x1234_5678 * u64::from(vid), chunk_shift: 4, replicas }
}

fn array(map: FleetMap, blocks: u64) -> Capacity {
    let count = map.ssds.len();
    Capacity::new(map.into(), &vec![blocks; count])
}

fn equal(ssds: usize) -> FleetMap {
    FleetMap::equal(ssds, 256, 7, 1).unwrap()
}

fn blocks_of(array: &Capacity, layout: Layout, blocks: u64) -> Vec<u64> {
    array.blocks_on_each(layout, blocks, array.stripes(layout, blocks, None).as_ref())
}

/// A volume of two replicas.
fn entry(vid: u16, capacity_blocks: u64, chunk_shift: u8) -> VolumeEntry {
    VolumeEntry {
        vid: Vid::new(vid).unwrap(),
        generation: 1,
        version: 1,
        term: 1,
        deleting: false,
        name: "v".into(),
        labels: String::new(),
        capacity_blocks,
        replicas: 2,
        chunk_shift,
        factor: 0x1234_5678 * u64::from(vid),
        owner: ClientId::new(1).unwrap(),
        any_reader: false,
        readers: Vec::new(),
        writer: None,
        unsettled: false,
        lease_epoch: 0,
        lease_ms: 0,
        request_ids: Vec::new(),
        limits: Limits::default(),
        salvaged_s: 0,
    }
}

#[test]
fn the_largest_volume_fits_and_one_block_more_does_not() {
    let _deadline = Deadline::after(LIMIT);
    for ssds in 1..=5 {
        for replicas in 1..=u8::try_from(ssds.min(3)).unwrap() {
            let array = array(equal(ssds), 16_384);
            let largest = array.largest(layout(1, replicas));
            assert!(largest <= 16_384 * ssds as u64 / u64::from(replicas));
            assert!(
                largest > 16_384 * ssds as u64 / u64::from(replicas) * 8 / 10,
                "{ssds} {replicas} {largest}"
            );
            assert!(array.fits(layout(1, replicas), largest));
            assert!(!array.fits(layout(1, replicas), largest + 1));
        }
    }
}

#[test]
fn the_largest_volume_follows_volumes_that_come_and_go() {
    let _deadline = Deadline::after(LIMIT);
    let mut array = array(equal(4), 16_384);
    let empty = array.largest(layout(1, 2));
    let entry = entry(2, 8000, 4);
    array.reserve(&entry);
    let less = array.largest(layout(1, 2));
    assert!(less < empty - 7000 && array.fits(layout(1, 2), less) && !array.fits(layout(1, 2), less + 1));
    array.release(entry.vid);
    assert_eq!(array.largest(layout(1, 2)), empty);
    for vid in 1..500 {
        assert!(array.largest(layout(vid, 1)) > 0);
    }
    assert!(array.largest.borrow().len() <= KEPT_ANSWERS);
}

#[test]
fn the_count_agrees_with_the_placement_of_every_block() {
    let _deadline = Deadline::after(LIMIT);
    for map in [equal(4), equal(4).without(2), equal(5).without(0).without(3)] {
        let array = array(map.clone(), 1 << 20);
        let layout = layout(9, 3);
        let mut naive = vec![0; map.ssds.len()];
        for vba in 0..9_999 {
            let group = group_of(layout.vid, vba, layout.chunk_shift, layout.factor, map.groups());
            map.replicas(group, layout.replicas).for_each(|member| naive[usize::from(member.ssd)] += 1);
        }
        assert_eq!(blocks_of(&array, layout, 9_999), naive);
    }
}

#[test]
fn the_upper_bound_is_above_the_exact_count_and_within_a_few_percent() {
    let _deadline = Deadline::after(LIMIT);
    let array = array(equal(5), 1 << 30);
    for (vid, replicas) in [(1, 1), (2, 2), (3, 3)] {
        let exact = blocks_of(&array, layout(vid, replicas), 1 << 21);
        for (ssd, share) in array.shares(replicas).into_iter().enumerate() {
            let bound = upper_bound(1 << 17, share) << 4;
            assert!(bound >= exact[ssd] && bound < exact[ssd] * 105 / 100, "{bound} {}", exact[ssd]);
        }
    }
    assert_eq!((upper_bound(1 << 28, 1.0), upper_bound(1 << 28, 0.0)), (1 << 28, 0));
}

#[test]
fn a_volume_beyond_the_exact_range_keeps_room_for_the_spread() {
    let _deadline = Deadline::after(LIMIT);
    let array = array(equal(4), 1 << 26);
    let largest = array.largest(layout(1, 2));
    assert!(largest > EXACT_CHUNKS << 4 && largest < 1 << 27, "{largest}");
    assert!(array.fits(layout(1, 2), largest) && !array.fits(layout(1, 2), largest + 16));
}

#[test]
fn a_block_without_an_ssd_is_a_hole() {
    let _deadline = Deadline::after(LIMIT);
    let array = array(equal(2).without(0), 1 << 20);
    assert!(array.has_holes(1) && !array.has_holes(2));
    assert_eq!(array.largest(layout(1, 1)), 0);
    assert_eq!(array.largest(layout(1, 2)), 1 << 20);
}

/// The largest volume by a walk over all chunks.
fn largest_by_chunks(array: &Capacity, layout: Layout) -> u64 {
    let (chunk, mut free) = (1 << layout.chunk_shift, array.free());
    for index in 0.. {
        let room = array.members(layout, index).map(|ssd| free[ssd]).min().expect("no holes");
        if room < chunk {
            return index * chunk + room;
        }
        array.members(layout, index).for_each(|ssd| free[ssd] -= chunk);
    }
    unreachable!("an SSD is full at some time")
}

#[test]
fn a_count_by_stripes_is_a_count_by_chunks_however_many_groups_there_are() {
    let _deadline = Deadline::after(LIMIT);
    for (groups, chunk_shift) in [(8, 0), (32, 2), (64, 4), (1024, 1)] {
        let map = FleetMap::equal(5, groups, 7, 1).unwrap().without(3);
        let array = array(map.clone(), 5_003);
        for (vid, replicas) in [(1, 2), (77, 3)] {
            let layout = Layout { chunk_shift, ..layout(vid, replicas) };
            for blocks in [1, 31, 32 << chunk_shift, (64 << chunk_shift) + 1, 6_001] {
                let mut naive = vec![0; map.ssds.len()];
                for vba in 0..blocks {
                    let group = group_of(layout.vid, vba, chunk_shift, layout.factor, groups);
                    map.replicas(group, replicas).for_each(|member| naive[usize::from(member.ssd)] += 1);
                }
                assert_eq!(blocks_of(&array, layout, blocks.into()), naive, "{groups} groups, {blocks}");
            }
            assert_eq!(array.largest(layout), largest_by_chunks(&array, layout), "{groups} groups");
        }
    }
}

#[test]
fn the_next_map_gives_volumes_the_blocks_that_a_new_count_gives() {
    let _deadline = Deadline::after(LIMIT);
    let volumes: Vec<_> = (1..20).map(|vid| entry(vid, 3_000 + u64::from(vid), 2)).collect();
    let before = array(equal(4), 1 << 20).with(volumes.iter().cloned(), None);
    let (next, other) = (equal(4).without(1), FleetMap::equal(4, 512, 7, 1).unwrap());
    // A volume whose id has another size by now is counted anew.
    let grown: Vec<_> =
        volumes.iter().cloned().map(|entry| VolumeEntry { capacity_blocks: 9_000, ..entry }).collect();
    for (map, volumes) in [(&next, &volumes), (&other, &volumes), (&next, &grown)] {
        let known = array(map.clone(), 1 << 20).with(volumes.iter().cloned(), Some(&before));
        let anew = array(map.clone(), 1 << 20).with(volumes.iter().cloned(), None);
        assert_eq!(known.ssds(), anew.ssds());
    }
}

/// As many as the count of chunks one by one allows.
#[test]
#[expect(clippy::disallowed_methods, reason = "the time that it takes is what is asked")]
fn many_volumes_of_four_million_chunks_delay_neither_a_create_nor_a_map() {
    const VOLUMES: u16 = 100;
    let _deadline = Deadline::after(LIMIT);
    let volumes: Vec<_> = (1..=VOLUMES).map(|vid| entry(vid, EXACT_CHUNKS, 0)).collect();
    let begun = std::time::Instant::now();
    let mut before = array(equal(4), 1 << 40).with(volumes.iter().cloned(), None);
    let created = begun.elapsed();
    let layout = Layout { chunk_shift: 0, ..layout(VOLUMES + 1, 2) };
    assert!(before.fits(layout, EXACT_CHUNKS));
    let fits = begun.elapsed() - created;
    for lost in 0..3 {
        before = array(equal(4).without(lost), 1 << 40).with(volumes.iter().cloned(), Some(&before));
    }
    let maps = begun.elapsed() - created - fits;
    println!(
        "summary {VOLUMES} volumes of 4 million chunks: {created:.1?}, one more {fits:.1?}, 3 maps {maps:.1?}"
    );
    // A count of all chunks takes minutes here.
    assert!(begun.elapsed() < LIMIT / 4, "{created:.1?} {fits:.1?} {maps:.1?}");
}
