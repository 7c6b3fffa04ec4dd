// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Digests: an SSD that is back lists only ranges with differences. Ranges found equal count as compared.

use super::*;

/// SSD 2 was away, and comes back after these changes.
fn returned(before: impl IntoIterator<Item = Change>, meanwhile: &[Change]) -> World {
    let mut world = World::new(&map_of(1, &[0, 1, 2], None, [0, 1]));
    before.into_iter().for_each(|change| world.send_all(&[0, 1, 2], change));
    let mut out = map_of(2, &[0, 1], None, [0, 1]);
    out.ssds[2].state = State3::Out;
    world.set_map(&out);
    meanwhile.iter().for_each(|change| world.send_all(&[0, 1], *change));
    let mut fills = map_of(3, &[0, 1, 2], Some(2), [0, 1]);
    fills.ssds[2].incarnation = 2;
    world.set_map(&fills);
    world
}

#[test]
fn an_ssd_that_is_back_lists_only_where_something_has_changed() {
    let writes = || (0..BLOCKS).map(|vba| put(vba, u64::from(vba) + 1));
    let mut world = returned(writes(), &[]);
    assert_eq!((world.until_filled(2).pulled, world.listed[0]), (0, 0), "nothing has changed");
    assert_eq!(world.listed[1], 2 * BLOCKS, "each of the two firsts is asked");
    // A write, a TRIM, and a TRIM of what was never written.
    let mut world = returned(writes(), &[put(70, 9000), trim(300, 9001)]);
    assert_eq!(world.until_filled(2).pulled, 2);
    assert!(world.listed[0] <= 2 * 64, "{:?}", world.listed);
    world.are_equal(&[0, 1, 2]);
    let mut world = returned((0..40).map(|vba| put(vba, u64::from(vba) + 1)), &[trim(400, 9000)]);
    world.until_filled(2);
    assert_eq!(world.send(2, put(400, 8000)), None);
    assert!(matches!(world.held(2, 400), Held::Tombstone { .. }), "an older write than the TRIM is late");
}

#[test]
fn what_a_digest_has_found_the_same_takes_no_older_write() {
    let mut world = returned((0..BLOCKS).map(|vba| put(vba, u64::from(vba) + 100)), &[]);
    world.until_filled(2);
    assert_eq!(world.listed[0], 0);
    // The others have refused it, because they had a newer one.
    assert_eq!(world.send(2, put(7, 20)), None);
    world.are_equal(&[0, 1, 2]);
    world.send_all(&[0, 1, 2], put(7, 9000));
    world.are_equal(&[0, 1, 2]);
}

#[test]
fn a_settle_lists_only_where_something_differs() {
    let mut world = World::new(&map_of(1, &[0, 1, 2], None, [0, 0]));
    (0..BLOCKS).for_each(|vba| world.send_all(&[0, 1, 2], put(vba, u64::from(vba) + 1)));
    world.send_all(&[1], put(500, 9000));
    for ssd in &mut world.ssds {
        ssd.chmod(|entry| (entry.writer, entry.lease_ms, entry.unsettled) = (None, 0, true));
    }
    assert_eq!((world.until_settled(1, 1), world.until_settled(2, 1)), (1, 0));
    assert_eq!(world.listed, [64, 2 * BLOCKS]);
    world.are_equal(&[0, 1, 2]);
}
