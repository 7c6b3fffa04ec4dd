// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is written is what is read, whatever the order in which transfers end.

use super::*;
use gnstor_proto::placement::mix64;
use proptest::prelude::*;

#[test]
fn a_written_block_reads_back_and_others_read_as_zeros() {
    let mut rig = Rig::new();
    assert_eq!(refusal(&rig.write(16, &[1, 2, 3])), None);
    let sqe = rig.io(io::READ, READER, 16, 4);
    rig.poke(READER, 0, &[0xEE; 4 * BLOCK]);
    assert_eq!(refusal(&rig.run(READER, sqe)), None);
    for (index, tag) in [1, 2, 3].into_iter().enumerate() {
        assert_eq!(rig.peek(READER, index), block(tag));
    }
    assert_eq!(rig.peek(READER, 3), [0; BLOCK]);
    let stats = rig.stats();
    assert_eq!((stats.reads, stats.blocks_read, stats.blocks_written, stats.unmapped_reads), (1, 4, 3, 1));
    assert_eq!(rig.mapped_blocks(), 3);
}

#[test]
fn a_completion_tells_what_it_pushed_and_carries_the_head_of_its_queue() {
    let mut rig = Rig::new();
    let mut heads = Vec::new();
    for _ in 0..70 {
        let sqe = rig.io(io::READ, READER, 0, 2);
        rig.submit(READER, sqe);
        let completion = rig.completions.pop().unwrap();
        assert_eq!((completion.pushed_bytes, completion.at), (8192, rig.now));
        heads.push(completion.cqe.sqhd.get());
    }
    // One command came before: Connect.
    assert_eq!(heads, (2..72).map(|count| count % 64).collect::<Vec<u16>>());
}

#[test]
fn an_overwritten_page_stays_until_its_reader_is_done() {
    let mut rig = Rig::new();
    rig.write(0, &[1]);
    rig.hold = true;
    let sqe = rig.io(io::READ, READER, 0, 1);
    let reading = rig.submit(READER, sqe);
    rig.hold = false;
    // Every page of the SSD is written over; the one being read must not be among them.
    for tag in 0..3000 {
        assert_eq!(refusal(&rig.write(0, &[tag])), None);
    }
    rig.release(|_| 0);
    assert_eq!(refusal(&rig.take(READER, reading).unwrap()), None);
    assert_eq!(rig.peek(READER, 0), block(1));
}

#[test]
fn a_lower_or_equal_stamp_completes_without_being_applied() {
    let mut rig = Rig::new();
    let old = rig.io(io::WRITE, WRITER, 3, 1);
    rig.write(3, &[2]);
    rig.poke(WRITER, 0, &block(1));
    assert_eq!(rig.refused(WRITER, old), None);
    assert_eq!(rig.read(3), block(2));
    let same = rig.io(io::WRITE, WRITER, 3, 1);
    rig.poke(WRITER, 0, &block(3));
    assert_eq!(rig.refused(WRITER, same), None);
    rig.poke(WRITER, 0, &block(4));
    assert_eq!(rig.refused(WRITER, same), None);
    assert_eq!(rig.read(3), block(3), "the stamp of the second write is not above that of the first");
    // The same holds where a deallocation came between.
    let older = rig.io(io::WRITE, WRITER, 3, 1);
    let zero = rig.io(io::WRITE_ZEROES, WRITER, 3, 1);
    assert_eq!(rig.refused(WRITER, zero), None);
    rig.poke(WRITER, 0, &block(9));
    assert_eq!(rig.refused(WRITER, older), None);
    assert_eq!(rig.read(3), [0; BLOCK]);
    assert_eq!(rig.stats().old_stamps, 3);
    assert_eq!(rig.mapped_blocks(), 0);
}

#[test]
fn two_writes_of_a_block_end_with_the_higher_stamp_in_either_order() {
    for first_ends_first in [true, false] {
        let mut rig = Rig::new();
        rig.hold = true;
        rig.poke(WRITER, 0, &block(1));
        rig.poke(WRITER, BLOCK, &block(2));
        let first = rig.io(io::WRITE, WRITER, 0, 1);
        let mut second = rig.io(io::WRITE, WRITER, 0, 1);
        second.dptr = KeyedSgl::keyed(BLOCK as u64, 4096, KEY);
        rig.submit(WRITER, first);
        rig.submit(WRITER, second);
        rig.release(|left| if first_ends_first { 0 } else { left - 1 });
        assert_eq!(rig.read(0), block(2));
    }
}

#[test]
fn a_damaged_page_is_refused_and_not_delivered() {
    let mut rig = Rig::new();
    rig.write(0, &[1]);
    rig.damage(0);
    let sqe = rig.io(io::READ, READER, 0, 1);
    rig.poke(READER, 0, &[0xEE; BLOCK]);
    assert_eq!(rig.refused(READER, sqe), Some(Refusal::BadChecksum));
    assert_eq!(rig.peek(READER, 0), [0xEE; BLOCK]);
}

#[test]
fn a_page_of_an_earlier_life_reads_as_zeros_and_one_of_another_block_is_an_error() {
    let mut rig = Rig::new();
    rig.write(0, &[1]);
    // A write of an earlier life that got past every check.
    let frame = rig.ssd().ftl.take_frame().unwrap();
    let stamp = Stamp { lease_epoch: LEASE, sequence: 1 << 40 };
    let target = gnstor_ftl::Target { vid: vid(VOLUME), generation: 0, vba: 1, stamp };
    rig.ssd().ftl.commit(rig.now, rig.now, &target, &[gnstor_ftl::NewBlock { frame, sum: 0 }]).unwrap();
    assert_eq!(rig.read(1), [0; BLOCK]);
    assert_eq!(rig.stats().stale_generation_reads, 1);
    rig.ssd().ftl.misdirect(vid(VOLUME), 0, 1);
    let sqe = rig.io(io::READ, READER, 0, 1);
    assert_eq!(rig.refused(READER, sqe), Some(Refusal::WrongKey));
}

#[test]
fn a_failed_transfer_leaves_the_block_and_the_frames_as_they_were() {
    let mut rig = Rig::new();
    rig.write(0, &[1, 2]);
    let free = rig.free_frames();
    let mut sqe = rig.io(io::WRITE, WRITER, 0, 2);
    // The second block lies beyond the registered memory.
    sqe.dptr = KeyedSgl::keyed((HOST_BYTES - BLOCK) as u64, 8192, KEY);
    assert_eq!(rig.refused(WRITER, sqe), Some(Refusal::TransferError));
    assert_eq!((rig.read(0), rig.read(1)), (block(1), block(2)));
    assert_eq!(rig.free_frames(), free);
    assert!(rig.frames_are_whole());
}

fn ranges(list: &[(u16, u16, u32, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(volume, owner, vba, blocks) in list {
        let slba = Slba::pack(Address { vid: vid(volume), client: client(owner), vba });
        bytes.extend_from_slice(&0u32.to_le_bytes());
        bytes.extend_from_slice(&blocks.to_le_bytes());
        bytes.extend_from_slice(&slba.0.to_le_bytes());
    }
    bytes
}

fn deallocate(rig: &mut Rig, list: &[(u16, u16, u32, u32)]) -> Option<Refusal> {
    let sqe = deallocation(rig, list);
    rig.refused(WRITER, sqe)
}

/// A Dataset Management command of client 7 with these ranges, which are in its memory.
fn deallocation(rig: &mut Rig, list: &[(u16, u16, u32, u32)]) -> Sqe {
    let mut sqe = rig.io(io::DATASET_MANAGEMENT, WRITER, 0, 1);
    let bytes = ranges(list);
    rig.poke(WRITER, 0, &bytes);
    sqe.dptr = KeyedSgl::keyed(0, u32::try_from(bytes.len()).unwrap(), KEY);
    sqe.cdw10 = u32::try_from(list.len() - 1).unwrap().into();
    sqe.cdw11 = 4.into();
    sqe
}

#[test]
fn trim_and_write_zeroes_with_a_wrong_lease_epoch_or_map_epoch_are_refused_and_change_nothing() {
    let mut rig = Rig::new();
    let mut map = FleetMap::equal(1, 64, 7, 1).unwrap();
    map.epoch = 10;
    rig.set_map(&map);
    rig.map_epoch = 10;
    rig.write(0, &[1]);
    for is_trim in [true, false] {
        let command = |rig: &mut Rig| {
            if is_trim { deallocation(rig, &[(VOLUME, 7, 0, 1)]) } else { rig.io(io::WRITE_ZEROES, WRITER, 0, 1) }
        };
        for lease in [LEASE - 1, LEASE + 1] {
            let sqe = Sqe { cdw3: lease.into(), ..command(&mut rig) };
            let cqe = rig.run(WRITER, sqe);
            assert_eq!((refusal(&cqe), cqe.dw1.get()), (Some(Refusal::LeaseExpired), LEASE), "TRIM {is_trim}");
        }
        for (epoch, want) in [(9, Refusal::StaleMap), (11, Refusal::MapBehind)] {
            rig.map_epoch = epoch;
            let sqe = command(&mut rig);
            rig.map_epoch = 10;
            let cqe = rig.run(WRITER, sqe);
            assert_eq!((refusal(&cqe), cqe.dw1.get()), (Some(want), 10), "TRIM {is_trim}, map epoch {epoch}");
        }
        assert_eq!((rig.read(0), rig.mapped_blocks()), (block(1), 1));
    }
    assert_eq!(deallocate(&mut rig, &[(VOLUME, 7, 0, 1)]), None);
    assert_eq!(rig.mapped_blocks(), 0);
}

#[test]
fn deallocated_ranges_read_as_zeros() {
    let mut rig = Rig::new();
    rig.write(0, &[1, 2, 3]);
    rig.write(32, &[4]);
    assert_eq!(deallocate(&mut rig, &[(VOLUME, 7, 0, 2), (VOLUME, 7, 32, 4)]), None);
    assert_eq!((rig.read(0), rig.read(2), rig.read(32)), (vec![0; BLOCK], block(3), vec![0; BLOCK]));
}

#[test]
fn one_range_of_somebody_else_refuses_the_whole_deallocation() {
    let mut rig = Rig::new();
    rig.write(0, &[1]);
    assert_eq!(deallocate(&mut rig, &[(VOLUME, 7, 0, 1), (VOLUME, 8, 0, 1)]), Some(Refusal::WrongIdentity));
    assert_eq!(deallocate(&mut rig, &[(VOLUME, 7, 0, 1), (99, 7, 0, 1)]), Some(Refusal::UnknownVolume));
    assert_eq!(rig.read(0), block(1));
    assert_eq!(rig.in_flight(), 0);
}

#[test]
fn a_full_ssd_refuses_new_blocks_and_still_takes_overwrites() {
    let mut rig = Rig::bare(0, 64);
    rig.connect(DAEMON, 0, Identity::Daemon, CNTLID_ANY);
    let cntlid = rig.connect(QueueKey(70), 0, Identity::Client(client(7)), CNTLID_ANY).dw0.get();
    rig.enable(QueueKey(70));
    rig.connect(WRITER, 1, Identity::Client(client(7)), u16::try_from(cntlid).unwrap());
    rig.set_map(&FleetMap::equal(1, 64, 7, 1).unwrap());
    rig.volume_command(opcode::VOLUME_ADD, &entry(VOLUME));
    for vba in 0..64 {
        assert_eq!(refusal(&rig.write(vba, &[u64::from(vba)])), None);
    }
    assert_eq!(refusal(&rig.write(64, &[1])), Some(Refusal::CapacityExceeded));
    for round in 0..10u64 {
        assert_eq!(refusal(&rig.write(5, &[round])), None);
    }
    let sqe = rig.io(io::WRITE_ZEROES, WRITER, 0, 1);
    assert_eq!(rig.refused(WRITER, sqe), None);
    assert_eq!(refusal(&rig.write(64, &[1])), None);
}

#[test]
fn flush_succeeds() {
    let mut rig = Rig::new();
    assert_eq!(rig.refused(WRITER, sqe(io::FLUSH)), None);
    assert_eq!(rig.refused(WRITER, Sqe { nsid: u32::MAX.into(), ..sqe(io::FLUSH) }), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Many writes, deallocations and reads in flight, their transfers ending in any order: afterwards each block
    /// holds what the command with its highest stamp left there, and no page is lost.
    #[test]
    fn the_highest_stamp_wins_in_any_order_of_transfers(seed: u64) {
        let mut rig = Rig::new();
        let mut newest: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        for round in 0..8u64 {
            rig.hold = true;
            for step in 0..24u64 {
                let dice = mix64(seed ^ round << 32 ^ step);
                let (vba, tag) = (u32::try_from(dice % 12).unwrap(), dice >> 8);
                match dice >> 60 {
                    0..10 => {
                        let at = usize::try_from(step).unwrap() * BLOCK;
                        let mut sqe = rig.io(io::WRITE, WRITER, vba, 1);
                        sqe.dptr = KeyedSgl::keyed(at as u64, 4096, KEY);
                        rig.poke(WRITER, at, &block(tag % 1000));
                        rig.submit(WRITER, sqe);
                        newest.insert(vba, Some(tag % 1000));
                    }
                    10..12 => {
                        let sqe = rig.io(io::WRITE_ZEROES, WRITER, vba, 1);
                        prop_assert_eq!(rig.refused(WRITER, sqe), None);
                        newest.insert(vba, None);
                    }
                    _ => {
                        let sqe = rig.io(io::READ, READER, vba, 4);
                        rig.submit(READER, sqe);
                    }
                }
            }
            let mut dice = seed ^ round;
            rig.release(|left| {
                dice = mix64(dice);
                usize::try_from(dice).unwrap() % left
            });
            for completion in std::mem::take(&mut rig.completions) {
                prop_assert_eq!(refusal(&completion.cqe), None);
            }
            for (&vba, &tag) in &newest {
                prop_assert_eq!(rig.read(vba), tag.map_or(vec![0; BLOCK], block), "block {}", vba);
            }
        }
        prop_assert_eq!(rig.in_flight(), 0);
        prop_assert!(rig.frames_are_whole());
        let stats = rig.stats();
        prop_assert_eq!(stats.permits_issued, stats.permits_spent);
    }
}

#[test]
fn a_slow_die_makes_its_reads_slow() {
    let lone_read = |percent| {
        let bench = Bench::default();
        (0..256).for_each(|die| bench.faults.set_slow(die, percent));
        let preset = Preset::by_name("gnstor-980pro").unwrap();
        let capacity_bytes = 1024 * 4096;
        let config = SsdConfig { index: 0, preset, capacity_bytes, serial: "GN0001".into(), media: SsdMedia::Ram };
        let ssd = Ssd::format_with(config, &bench).unwrap();
        let mut rig = Rig::around(ssd, bench.faults).with_clients().with_volume();
        let (write, flush) = (rig.io(io::WRITE, WRITER, 0, 1), sqe(io::FLUSH));
        rig.submit(WRITER, write);
        rig.submit(WRITER, flush);
        rig.step_to(rig.now + Span::from_ms(100));
        let read = rig.io(io::READ, WRITER, 0, 1);
        let cid = rig.submit(WRITER, read);
        rig.completions.iter().find(|c| c.cqe.cid.get() == cid).unwrap().at.since(rig.now)
    };
    let (sound, slow) = (lone_read(100), lone_read(1000));
    assert!(slow.as_ns() > 3 * sound.as_ns(), "{sound:?} {slow:?}");
}
