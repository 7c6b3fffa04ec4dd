// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fill without a serving copy: the operator has called the last one lost.

use super::*;

fn alone(epoch: u64, fills: Option<u16>) -> FleetMap3 {
    let mut map = map_of(epoch, &[2], fills, [2, 2]);
    map.ssds[..2].iter_mut().for_each(|ssd| ssd.state = State3::Out);
    if fills.is_some() {
        map.rows.iter_mut().for_each(|row| row.first = None);
    }
    map
}

#[test]
fn where_no_copy_serves_a_fill_asks_no_ssd_and_ends_with_what_there_is() {
    let mut world = World::new(&map_of(1, &[0, 1, 2], None, [0, 0]));
    (0..20).for_each(|n| world.send_all(&[0, 1, 2], put(n, u64::from(n) + 1)));
    world.lost.extend([0, 1]);
    assert_eq!(refusal(&world.ssds[2].set_map(&alone(2, Some(2)))), None);
    let sqe = world.ssds[2].io(io::READ, WRITER, 5, 1);
    assert_eq!(world.ssds[2].refused(WRITER, sqe), Some(Refusal::NotHereYet), "it does not serve yet");
    assert_eq!(world.send(2, put(30, 100)), Some(Refusal::GroupWaits), "nor does the group take writes");
    let log = world.until_filled(2);
    assert_eq!((log.pulled, log.waits_for, world.fetched), (0, None, 0));
    assert_eq!(refusal(&world.ssds[2].set_map(&alone(3, None))), None);
    assert_eq!(world.ssds[2].read(5), block(6));
}
