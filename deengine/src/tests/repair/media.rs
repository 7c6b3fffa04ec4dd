// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks that the first cannot read any more. They delay no fill and no settle.

use super::*;

impl World {
    /// The result of reading a block of this SSD.
    fn read_at(&mut self, key: QueueKey, ssd: usize, vba: u32) -> Option<Refusal> {
        let ssd = &mut self.ssds[ssd];
        let sqe = ssd.io(io::READ, key, vba, 1);
        ssd.refused(key, sqe)
    }

    fn fail_reads(&self, ssd: usize, vba: u32, once: bool) {
        self.ssds[ssd].faults.unreadable(self.ssds[ssd].page(vba), once);
    }

    fn flush(&mut self, ssd: usize) {
        let cqe = self.ssds[ssd].run(WRITER, sqe(io::FLUSH));
        assert_eq!(refusal(&cqe), None);
    }
}

#[test]
fn blocks_that_no_ssd_can_read_are_unreadable_in_the_place_that_fills_and_it_serves() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 0]));
    (0..20).for_each(|n| world.send_all(&[0, 1], put(n, u64::from(n) + 1)));
    (0..2).for_each(|ssd| world.flush(ssd));
    (0..2).for_each(|ssd| world.ssds[ssd].damage(3));
    (0..2).for_each(|ssd| world.fail_reads(ssd, 5, false));
    world.fail_reads(0, 7, true);
    world.set_map(&map_of(2, &[0, 1, 2], Some(2), [0, 0]));
    let log = world.until_filled(2);
    assert_eq!((log.pulled, log.unreadable), (20, 2));
    world.are_equal(&[0, 1, 2]);
    world.set_map(&map_of(3, &[0, 1, 2], None, [0, 0]));
    for vba in 0..20 {
        let refused = matches!(vba, 3 | 5).then_some(Refusal::BadChecksum);
        assert_eq!(world.read_at(WRITER, 2, vba), refused, "block {vba}");
    }
    world.flush(2);
    assert_eq!(world.read_at(WRITER, 2, 5), Some(Refusal::BadChecksum), "on flash, too");
    assert_eq!(world.ssds[2].read(7), block(8));
    world.send_all(&[0, 1, 2], put(5, 100));
    assert_eq!(world.ssds[2].read(5), block(100), "written anew it is whole");
}

/// As where SSD 2 takes over the place of SSD 1, which has the last good copies.
#[test]
fn a_fill_asks_the_other_ssds_for_blocks_that_the_first_cannot_read() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 0]));
    (0..20).for_each(|n| world.send_all(&[0, 1], put(n, u64::from(n) + 1)));
    // SSD 1 has a copy of block 4 with another stamp.
    world.send_all(&[0], put(4, 100));
    world.flush(0);
    (3..6).for_each(|vba| world.ssds[0].damage(vba));
    let page = world.ssds[0].page(7);
    world.ssds[0].ssd().ftl().flash().rot_record(page, 64);
    world.set_map(&map_of(2, &[0, 1, 2], Some(2), [0, 0]));
    let log = world.until_filled(2);
    assert_eq!((log.pulled, log.unreadable), (20, 2), "blocks 4 and 7, beside a writer");
    world.set_map(&map_of(3, &[1, 2], None, [1, 1]));
    for vba in 0..20 {
        let refused = matches!(vba, 4 | 7).then_some(Refusal::BadChecksum);
        assert_eq!(world.read_at(WRITER, 2, vba), refused, "block {vba}");
    }
    assert_eq!((world.ssds[2].read(3), world.ssds[2].read(5)), (block(4), block(6)));
}

/// SSD 2 gets the copies that SSD 1 has, as if these had never moved. One of them has another stamp than that
/// of the first. Of another one the first's record has rotted.
#[test]
fn an_ssd_that_takes_over_a_place_has_its_copy_of_a_block_that_the_first_cannot_read() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 0]));
    (0..20).for_each(|n| world.send_all(&[0, 1], put(n, u64::from(n) + 1)));
    world.send_all(&[0], put(4, 100));
    (0..2).for_each(|ssd| world.flush(ssd));
    [4, 5].into_iter().for_each(|vba| world.ssds[0].damage(vba));
    world.ssds[1].damage(5);
    let page = world.ssds[0].page(7);
    world.ssds[0].ssd().ftl().flash().rot_record(page, 64);
    let mut map = map_of(2, &[0, 1], None, [0, 0]);
    map.rows.iter_mut().for_each(|row| row.incoming = Some(Incoming3 { ssd: 2, place: 1 }));
    world.set_map(&map);
    let log = world.until_filled(2);
    assert_eq!((log.pulled, log.unreadable), (20, 1), "no SSD can read block 5");
    let mut map = map_of(3, &[0, 1], None, [1, 1]);
    map.rows.iter_mut().for_each(|row| row.places[1] = Some(Place3 { ssd: 2, filling: false }));
    world.set_map(&map);
    for vba in 0..20 {
        let refused = (vba == 5).then_some(Refusal::BadChecksum);
        assert_eq!(world.read_at(WRITER, 2, vba), refused, "block {vba}");
    }
    assert_eq!((world.ssds[2].read(4), world.ssds[2].read(7)), (block(5), block(8)));
}

/// At rest all copies are equal, so one of a block without a stamp is good, too.
#[test]
fn a_fill_of_a_volume_at_rest_takes_a_copy_of_a_block_whose_record_has_rotted_on_the_first() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 0]));
    (0..4).for_each(|n| world.send_all(&[0, 1], put(n, u64::from(n) + 1)));
    world.flush(0);
    for bit in [64, 96] {
        let page = world.ssds[0].page(if bit == 64 { 1 } else { 2 });
        world.ssds[0].ssd().ftl().flash().rot_record(page, bit);
    }
    for ssd in &mut world.ssds {
        ssd.chmod(|entry| (entry.writer, entry.lease_ms) = (None, 0));
    }
    world.set_map(&map_of(2, &[0, 1, 2], Some(2), [0, 0]));
    let log = world.until_filled(2);
    assert_eq!((log.pulled, log.unreadable), (4, 0));
    world.are_equal(&[1, 2]);
    world.set_map(&map_of(3, &[1, 2], None, [1, 1]));
    (0..4).for_each(|vba| assert_eq!(world.read_at(READER, 2, vba), None, "block {vba}"));
}

#[test]
fn a_fill_goes_on_without_an_ssd_that_alone_could_read_a_block_and_never_answers() {
    let mut world = World::new(&map_of(1, &[0, 1], None, [0, 0]));
    (0..4).for_each(|n| world.send_all(&[0, 1], put(n, u64::from(n) + 1)));
    world.flush(0);
    (1..4).for_each(|vba| world.ssds[0].damage(vba));
    world.lost.push(1);
    world.set_map(&map_of(2, &[0, 1, 2], Some(2), [0, 0]));
    (0..1_000).for_each(|_| world.turn());
    let log = world.log(2);
    assert_eq!((log.state, log.waits_for), (FillState::Filling, Some(1)));
    (0..1_200).for_each(|_| world.turn());
    let log = world.log(2);
    assert_eq!((log.state, log.pulled, log.unreadable), (FillState::Filled, 4, 3), "one wait for all three");
}

#[test]
fn a_settle_ends_where_the_first_cannot_read_a_block() {
    let mut world = World::new(&map_of(1, &[0, 1, 2], None, [0, 0]));
    (0..4).for_each(|n| world.send_all(&[0, 1, 2], put(n, u64::from(n) + 1)));
    world.send_all(&[0], put(2, 100));
    world.flush(0);
    // The others have it with this stamp, so nothing moves.
    world.ssds[0].damage(1);
    world.ssds[0].damage(2);
    for ssd in &mut world.ssds {
        ssd.chmod(|entry| (entry.writer, entry.lease_ms, entry.unsettled) = (None, 0, true));
    }
    assert_eq!((world.until_settled(1, 1), world.until_settled(2, 1)), (1, 1));
    for ssd in &mut world.ssds {
        ssd.chmod(|entry| entry.unsettled = false);
    }
    world.are_equal(&[0, 1, 2]);
    let bad = Some(Refusal::BadChecksum);
    let mut reads = |vba| [0, 1, 2].map(|ssd| world.read_at(READER, ssd, vba));
    assert_eq!(reads(1), [bad, None, None]);
    assert_eq!(reads(2), [bad; 3]);
}

/// The record of the first's page looks newer than any other copy, or as if the block had never been written.
#[test]
fn a_settle_keeps_the_good_copies_of_a_block_whose_record_has_rotted_on_the_first() {
    // A bit of the sum, generation, block, sequence and lease epoch.
    for bit in [64, 96, 63, 190, 300] {
        let mut world = World::new(&map_of(1, &[0, 1, 2], None, [0, 0]));
        (0..4).for_each(|n| world.send_all(&[0, 1, 2], put(n, u64::from(n) + 1)));
        world.flush(0);
        let page = world.ssds[0].page(2);
        world.ssds[0].ssd().ftl().flash().rot_record(page, bit);
        for ssd in &mut world.ssds {
            ssd.chmod(|entry| (entry.writer, entry.lease_ms, entry.unsettled) = (None, 0, true));
        }
        world.until_settled(1, 1);
        world.until_settled(2, 1);
        for ssd in &mut world.ssds {
            ssd.chmod(|entry| entry.unsettled = false);
        }
        for ssd in [1, 2] {
            assert_eq!(world.read_at(READER, ssd, 2), None, "bit {bit}");
            assert_eq!(world.ssds[ssd].peek(READER, 0).to_vec(), block(3), "bit {bit}");
        }
    }
}
