// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An operator pauses fills.

use super::*;
use gnstor_proto::scrub::Order;

/// SSD 2 has begun to fill, and gets the order to pause.
fn paused() -> World {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 0]));
    (0..300).for_each(|n| world.send_all(&[0, 1], put(n, u64::from(n) + 1)));
    world.set_map(&map_of(2, &[0, 1, 2], Some(2), [0, 0]));
    while world.fetched < 2 {
        world.turn();
    }
    assert_eq!(world.order(DAEMON, 2, 0, Order::FillPause), Some(Refusal::StaleTerm));
    assert!(!world.ssds[2].ssd().is_fill_paused());
    assert_eq!(world.order(DAEMON, 2, 1, Order::FillPause), None);
    // Earlier questions are answered.
    (0..20).for_each(|_| world.turn());
    world
}

#[test]
fn a_paused_fill_asks_nothing_and_takes_writes_until_it_is_resumed() {
    let mut world = paused();
    let (before, fetched) = (world.log(2), world.fetched);
    assert!(before.pulled > 0 && before.pulled < 300, "{before:?}");
    world.send_all(&[0, 1, 2], put(400, 500));
    (0..500).for_each(|_| world.turn());
    let log = world.log(2);
    assert_eq!((log.state, log.pulled, world.fetched), (FillState::Filling, before.pulled, fetched));
    assert_eq!(world.order(DAEMON, 2, 1, Order::FillResume), None);
    assert_eq!(world.until_filled(2).pulled, 300);
    world.are_equal(&[0, 1, 2]);
}

/// The next daemon does not know of the pause.
#[test]
fn the_next_daemon_ends_a_pause_by_its_term_alone() {
    let mut world = paused();
    let next = FleetMap3 { term: 2, ..map_of(3, &[0, 1, 2], Some(2), [0, 0]) };
    world.set_map(&next);
    assert_eq!(world.until_filled(2).pulled, 300);
    world.are_equal(&[0, 1, 2]);
}

#[test]
fn a_settle_goes_on_where_the_fill_is_paused() {
    let mut world = paused();
    world.send_all(&[0], put(3, 900));
    for ssd in &mut world.ssds {
        ssd.chmod(|entry| (entry.writer, entry.lease_ms, entry.unsettled) = (None, 0, true));
    }
    world.until_settled(2, 2);
    world.until_settled(1, 2);
    assert!(world.held(2, 3).reads_as(world.held(0, 3)));
    assert_eq!(world.log(2).state, FillState::Filling);
}
