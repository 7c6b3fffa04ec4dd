// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No copy serves, and several fill: they merge (rule 17).

use super::*;
use gnstor_fleet::salvage::merge;

/// Each of these SSDs fills; the others serve.
fn merging(epoch: u64, fill: &[u16]) -> FleetMap3 {
    let mut map = map_of(epoch, &[0, 1, 2], None, [0, 0]);
    for row in &mut map.rows {
        row.places.iter_mut().flatten().for_each(|place| place.filling = fill.contains(&place.ssd));
        let serves = |at: &Option<Place3>| at.is_some_and(|place| !place.filling);
        row.first = row.places.iter().position(serves).and_then(|at| u8::try_from(at).ok());
    }
    map
}

/// Numbers that look drawn.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// What each SSD has of each block.
fn all_held(world: &World) -> Vec<Vec<Held>> {
    (0..BLOCKS).map(|vba| (0..3).map(|ssd| world.held(ssd, vba)).collect()).collect()
}

fn is_merged(world: &World, before: &[Vec<Held>], ssd: usize) {
    for (vba, copies) in (0..BLOCKS).zip(before) {
        let (has, right) = (world.held(ssd, vba), merge(copies.iter().copied()));
        assert!(has.reads_as(right), "SSD {ssd}, block {vba}: {has:?} of {copies:?}");
    }
}

#[test]
fn copies_that_merge_take_the_newest_of_each_other_one_and_no_client_is_served() {
    let mut world = World::new(&map_of(1, &[0, 1, 2], None, [0, 0]));
    (0..50).for_each(|n| world.send_all(&[0, 1, 2], put(n, u64::from(n) + 1)));
    world.send_all(&[0], put(3, 100));
    world.send_all(&[1], put(4, 101));
    world.send_all(&[1], put(300, 102));
    world.send_all(&[2], trim(5, 103));
    world.send_all(&[2], put(6, 104));
    world.send_all(&[1], put(6, 105));
    world.send_all(&[0], trim(7, 106));
    world.send_all(&[2], put(7, 107));
    let before = all_held(&world);
    world.lost.push(1);
    world.set_map(&merging(2, &[0, 1, 2]));
    let sqe = world.ssds[0].io(io::READ, WRITER, 8, 1);
    assert_eq!(world.ssds[0].refused(WRITER, sqe), Some(Refusal::GroupWaits));
    assert_eq!(world.send(0, put(8, 900)), Some(Refusal::GroupWaits));
    (0..3000).for_each(|_| world.turn());
    let log = world.log(0);
    assert_eq!((log.state, log.waits_for), (FillState::Filling, Some(1)), "each other one is needed");
    world.lost.clear();
    for ssd in 0..3 {
        world.until_filled(ssd);
        is_merged(&world, &before, ssd);
    }
    world.are_equal(&[0, 1, 2]);
    assert!(matches!(world.held(0, 6), Held::Block { stamp, .. } if stamp.sequence == 105));
    assert!(!matches!(world.held(1, 5), Held::Block { .. }), "the TRIM was newer");
    world.set_map(&merging(3, &[]));
    assert_eq!(world.ssds[0].read(6), block(105));
    assert_eq!(world.ssds[2].read(300), block(102));
}

/// Copies that differ by chance, SSDs that do not answer for a while, and one that serves before the others.
#[test]
fn however_the_questions_come_each_copy_is_the_newest_there_was() {
    for seed in 0..12 {
        let mut state = seed;
        let mut world = World::new(&map_of(1, &[0, 1, 2], None, [0, 0]));
        for sequence in 1..400 {
            let vba = u32::try_from(draw(&mut state) % 100).expect("few");
            let change =
                if draw(&mut state).is_multiple_of(5) { trim(vba, sequence) } else { put(vba, sequence) };
            for ssd in 0..3 {
                if !draw(&mut state).is_multiple_of(3) {
                    world.send_all(&[ssd], change);
                }
            }
        }
        let before = all_held(&world);
        world.set_map(&merging(2, &[0, 1, 2]));
        let first = usize::try_from(seed % 3).expect("few");
        for _ in 0..4 {
            world.lost = vec![u16::try_from(draw(&mut state) % 3).expect("few")];
            (0..draw(&mut state) % 30).for_each(|_| world.turn());
        }
        world.lost.clear();
        world.until_filled(first);
        is_merged(&world, &before, first);
        // The others go on with what the first one has.
        let others: Vec<u16> = (0..3u16).filter(|ssd| usize::from(*ssd) != first).collect();
        world.set_map(&merging(3, &others));
        // A client sends its first write again, which one of them has not heard of.
        let stale = (0..100).find(|vba| {
            let newest = merge(before[*vba as usize].iter().copied());
            matches!(newest, Held::Block { stamp, .. } if stamp.sequence > 1)
        });
        world.send_all(&[0, 1, 2], put(stale.expect("some"), 1));
        for ssd in others {
            world.until_filled(ssd.into());
            is_merged(&world, &before, ssd.into());
        }
        world.are_equal(&[0, 1, 2]);
    }
}
