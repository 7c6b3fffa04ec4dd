// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is written is what is read, whatever the order in which transfers end.

use super::*;
use gnstor_proto::placement::mix64;
use proptest::prelude::*;

#[test]
fn a_written_block_reads_back_and_others_read_as_zeros() {
    let mut harness = Harness::new();
    assert_eq!(refusal(&harness.write(16, &[1, 2, 3])), None);
    let sqe = harness.io(io::READ, READER, 16, 4);
    harness.poke(READER, 0, &[0xEE; 4 * BLOCK]);
    assert_eq!(refusal(&harness.run(READER, sqe)), None);
    for (index, tag) in [1, 2, 3].into_iter().enumerate() {
        assert_eq!(harness.peek(READER, index), block(tag));
    }
    assert_eq!(harness.peek(READER, 3), [0; BLOCK]);
    let stats = harness.stats();
    assert_eq!((stats.reads, stats.blocks_read, stats.blocks_written, stats.unmapped_reads), (1, 4, 3, 1));
    assert_eq!(harness.mapped_blocks(), 3);
}

#[test]
fn a_completion_tells_what_it_pushed_and_carries_the_head_of_its_queue() {
    let mut harness = Harness::new();
    let mut heads = Vec::new();
    for _ in 0..70 {
        let sqe = harness.io(io::READ, READER, 0, 2);
        harness.submit(READER, sqe);
        let completion = harness.completions.pop().unwrap();
        assert_eq!((completion.pushed_bytes, completion.at), (8192, harness.now));
        heads.push(completion.cqe.sqhd.get());
    }
    // One command came before: Connect.
    assert_eq!(heads, (2..72).map(|count| count % 64).collect::<Vec<u16>>());
}

#[test]
fn an_overwritten_page_stays_until_its_reader_is_done() {
    let mut harness = Harness::new();
    harness.write(0, &[1]);
    harness.hold = true;
    let sqe = harness.io(io::READ, READER, 0, 1);
    let reading = harness.submit(READER, sqe);
    harness.hold = false;
    // Every page of the SSD is written over; the one being read must not be among them.
    for tag in 0..3000 {
        assert_eq!(refusal(&harness.write(0, &[tag])), None);
    }
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(READER, reading).unwrap()), None);
    assert_eq!(harness.peek(READER, 0), block(1));
}

#[test]
fn a_lower_or_equal_stamp_completes_without_being_applied() {
    let mut harness = Harness::new();
    let old = harness.io(io::WRITE, WRITER, 3, 1);
    harness.write(3, &[2]);
    harness.poke(WRITER, 0, &block(1));
    assert_eq!(harness.refused(WRITER, old), None);
    assert_eq!(harness.read(3), block(2));
    let same = harness.io(io::WRITE, WRITER, 3, 1);
    harness.poke(WRITER, 0, &block(3));
    assert_eq!(harness.refused(WRITER, same), None);
    harness.poke(WRITER, 0, &block(4));
    assert_eq!(harness.refused(WRITER, same), None);
    assert_eq!(harness.read(3), block(3), "the stamp of the second write is not above that of the first");
    // The same with a deallocation in between.
    let older = harness.io(io::WRITE, WRITER, 3, 1);
    let zero = harness.io(io::WRITE_ZEROES, WRITER, 3, 1);
    assert_eq!(harness.refused(WRITER, zero), None);
    harness.poke(WRITER, 0, &block(9));
    assert_eq!(harness.refused(WRITER, older), None);
    assert_eq!(harness.read(3), [0; BLOCK]);
    assert_eq!(harness.stats().old_stamps, 3);
    assert_eq!(harness.mapped_blocks(), 0);
}

#[test]
fn a_write_that_is_sent_again_on_a_new_connection_is_applied_once() {
    let mut harness = Harness::new();
    let (admin, again) = (QueueKey(72), QueueKey(73));
    // It is done, and the answer is lost with the connection. A newer write of the next block follows.
    harness.poke(WRITER, 0, &block(1));
    let write = harness.io(io::WRITE, WRITER, 3, 1);
    assert_eq!(harness.refused(WRITER, write), None);
    let identity = Identity::Client(client(7));
    let cqe = harness.connect(admin, 0, identity, CNTLID_ANY);
    harness.enable(admin);
    let cntlid = u16::try_from(cqe.dw0.get()).unwrap();
    assert_eq!(refusal(&harness.connect(again, 1, identity, cntlid)), None);
    // Other data shows whether the write is applied.
    harness.poke(again, 0, &block(2));
    assert_eq!(harness.refused(again, write), None, "it completes as the first one did");
    assert_eq!(harness.stats().old_stamps, 1);
    assert_eq!(harness.read(3), block(1));
    // A write that had not arrived is applied when it is sent again, also after a newer write of another
    // block.
    let lost = harness.io(io::WRITE, WRITER, 5, 1);
    harness.write(3, &[4]);
    harness.poke(again, 0, &block(5));
    assert_eq!(harness.refused(again, lost), None);
    assert_eq!((harness.read(5), harness.read(3)), (block(5), block(4)));
    assert_eq!(harness.stats().old_stamps, 1);
}

#[test]
fn two_writes_of_a_block_end_with_the_higher_stamp_in_either_order() {
    for first_ends_first in [true, false] {
        let mut harness = Harness::new();
        harness.hold = true;
        harness.poke(WRITER, 0, &block(1));
        harness.poke(WRITER, BLOCK, &block(2));
        let first = harness.io(io::WRITE, WRITER, 0, 1);
        let mut second = harness.io(io::WRITE, WRITER, 0, 1);
        second.dptr = KeyedSgl::keyed(BLOCK as u64, 4096, KEY);
        harness.submit(WRITER, first);
        harness.submit(WRITER, second);
        harness.release(|left| if first_ends_first { 0 } else { left - 1 });
        assert_eq!(harness.read(0), block(2));
    }
}

#[test]
fn a_damaged_page_is_refused_and_not_delivered() {
    let mut harness = Harness::new();
    harness.write(0, &[1]);
    harness.damage(0);
    let sqe = harness.io(io::READ, READER, 0, 1);
    harness.poke(READER, 0, &[0xEE; BLOCK]);
    assert_eq!(harness.refused(READER, sqe), Some(Refusal::BadChecksum));
    assert_eq!(harness.peek(READER, 0), [0xEE; BLOCK]);
}

#[test]
fn a_page_of_an_earlier_life_reads_as_zeros_and_one_of_another_block_is_an_error() {
    let mut harness = Harness::new();
    harness.write(0, &[1]);
    // A write of an earlier volume that passed every check.
    let frame = harness.ssd().ftl().take_frame().unwrap();
    let stamp = Stamp { lease_epoch: LEASE, sequence: 1 << 40 };
    let target = gnstor_ftl::Target {
        vid: vid(VOLUME),
        generation: 0,
        vba: 1,
        stamp,
        only_mapped: false,
        fills: false,
    };
    harness
        .ssd()
        .ftl()
        .commit(harness.now, harness.now, &target, &[gnstor_ftl::NewBlock { frame, sum: 0 }])
        .unwrap();
    assert_eq!(harness.read(1), [0; BLOCK]);
    assert_eq!(harness.stats().stale_generation_reads, 1);
    harness.ssd().ftl().misdirect(vid(VOLUME), 0, 1);
    let sqe = harness.io(io::READ, READER, 0, 1);
    assert_eq!(harness.refused(READER, sqe), Some(Refusal::WrongKey));
}

#[test]
fn a_failed_transfer_leaves_the_block_and_the_frames_as_they_were() {
    let mut harness = Harness::new();
    harness.write(0, &[1, 2]);
    let free = harness.free_frames();
    let mut sqe = harness.io(io::WRITE, WRITER, 0, 2);
    // The second block is beyond the registered memory.
    sqe.dptr = KeyedSgl::keyed((HOST_BYTES - BLOCK) as u64, 8192, KEY);
    assert_eq!(harness.refused(WRITER, sqe), Some(Refusal::TransferError));
    // The second block arrives with another sum than it was sent with.
    harness.poke(WRITER, 0, &[block(3), block(4)].concat());
    harness.hold = true;
    let sqe = harness.io(io::WRITE, WRITER, 0, 2);
    let cid = harness.submit(WRITER, sqe);
    let Some(Effect::Pull { transfer, queue, .. }) = harness.held.pop() else {
        panic!("two blocks are pulled")
    };
    harness.release(|_| 0);
    assert!(harness.take(WRITER, cid).is_none(), "one block is not all");
    harness.answer(queue, transfer, Outcome::BadChecksum);
    let said = harness.take(WRITER, cid).expect("an answer");
    assert_eq!(refusal(&said), Some(Refusal::TransferError));
    assert_eq!((harness.read(0), harness.read(1)), (block(1), block(2)));
    assert_eq!(harness.free_frames(), free);
    assert!(harness.frames_are_whole());
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

fn deallocate(harness: &mut Harness, list: &[(u16, u16, u32, u32)]) -> Option<Refusal> {
    let sqe = deallocation(harness, list);
    harness.refused(WRITER, sqe)
}

/// A Dataset Management command of client 7 with these ranges, which are in its memory.
fn deallocation(harness: &mut Harness, list: &[(u16, u16, u32, u32)]) -> Sqe {
    let mut sqe = harness.io(io::DATASET_MANAGEMENT, WRITER, 0, 1);
    let bytes = ranges(list);
    harness.poke(WRITER, 0, &bytes);
    sqe.dptr = KeyedSgl::keyed(0, u32::try_from(bytes.len()).unwrap(), KEY);
    sqe.cdw10 = u32::try_from(list.len() - 1).unwrap().into();
    sqe.cdw11 = 4.into();
    sqe
}

#[test]
fn trim_and_write_zeroes_with_a_wrong_lease_epoch_or_map_epoch_are_refused_and_change_nothing() {
    let mut harness = Harness::new();
    let mut map = FleetMap::equal(1, 64, 7, 1).unwrap();
    map.epoch = 10;
    harness.set_map(&map);
    harness.map_epoch = 10;
    harness.write(0, &[1]);
    for is_trim in [true, false] {
        let command = |harness: &mut Harness| {
            if is_trim {
                deallocation(harness, &[(VOLUME, 7, 0, 1)])
            } else {
                harness.io(io::WRITE_ZEROES, WRITER, 0, 1)
            }
        };
        for lease in [LEASE - 1, LEASE + 1] {
            let sqe = Sqe { cdw3: lease.into(), ..command(&mut harness) };
            let cqe = harness.run(WRITER, sqe);
            assert_eq!(
                (refusal(&cqe), cqe.dw1.get()),
                (Some(Refusal::LeaseExpired), LEASE),
                "TRIM {is_trim}"
            );
        }
        for (epoch, want) in [(9, Refusal::StaleMap), (11, Refusal::MapBehind)] {
            harness.map_epoch = epoch;
            let sqe = command(&mut harness);
            harness.map_epoch = 10;
            let cqe = harness.run(WRITER, sqe);
            assert_eq!((refusal(&cqe), cqe.dw1.get()), (Some(want), 10), "TRIM {is_trim}, map epoch {epoch}");
        }
        assert_eq!((harness.read(0), harness.mapped_blocks()), (block(1), 1));
    }
    assert_eq!(deallocate(&mut harness, &[(VOLUME, 7, 0, 1)]), None);
    assert_eq!(harness.mapped_blocks(), 0);
}

#[test]
fn deallocated_ranges_read_as_zeros() {
    let mut harness = Harness::new();
    harness.write(0, &[1, 2, 3]);
    harness.write(32, &[4]);
    assert_eq!(deallocate(&mut harness, &[(VOLUME, 7, 0, 2), (VOLUME, 7, 32, 4)]), None);
    assert_eq!(
        (harness.read(0), harness.read(2), harness.read(32)),
        (vec![0; BLOCK], block(3), vec![0; BLOCK])
    );
}

#[test]
fn one_range_of_another_client_refuses_the_whole_deallocation() {
    let mut harness = Harness::new();
    harness.write(0, &[1]);
    assert_eq!(
        deallocate(&mut harness, &[(VOLUME, 7, 0, 1), (VOLUME, 8, 0, 1)]),
        Some(Refusal::WrongIdentity)
    );
    assert_eq!(deallocate(&mut harness, &[(VOLUME, 7, 0, 1), (99, 7, 0, 1)]), Some(Refusal::UnknownVolume));
    assert_eq!(harness.read(0), block(1));
    assert_eq!(harness.in_flight(), 0);
}

#[test]
fn a_full_ssd_refuses_new_blocks_and_still_takes_overwrites() {
    let mut harness = Harness::bare(0, 64);
    harness.connect(DAEMON, 0, Identity::Daemon, CNTLID_ANY);
    let cntlid = harness.connect(QueueKey(70), 0, Identity::Client(client(7)), CNTLID_ANY).dw0.get();
    harness.enable(QueueKey(70));
    harness.connect(WRITER, 1, Identity::Client(client(7)), u16::try_from(cntlid).unwrap());
    harness.set_map(&FleetMap::equal(1, 64, 7, 1).unwrap());
    harness.volume_command(opcode::VOLUME_ADD, &entry(VOLUME));
    for vba in 0..64 {
        assert_eq!(refusal(&harness.write(vba, &[u64::from(vba)])), None);
    }
    assert_eq!(refusal(&harness.write(64, &[1])), Some(Refusal::CapacityExceeded));
    for round in 0..10u64 {
        assert_eq!(refusal(&harness.write(5, &[round])), None);
    }
    let sqe = harness.io(io::WRITE_ZEROES, WRITER, 0, 1);
    assert_eq!(harness.refused(WRITER, sqe), None);
    assert_eq!(refusal(&harness.write(64, &[1])), None);
}

#[test]
fn flush_succeeds() {
    let mut harness = Harness::new();
    assert_eq!(harness.refused(WRITER, sqe(io::FLUSH)), None);
    assert_eq!(harness.refused(WRITER, Sqe { nsid: u32::MAX.into(), ..sqe(io::FLUSH) }), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Many writes, deallocations and reads in flight, whose transfers end in any order. Afterwards each
    /// block has the content of the command with its highest stamp, and no page is lost.
    #[test]
    fn the_highest_stamp_wins_in_any_order_of_transfers(seed: u64) {
        let mut harness = Harness::new();
        let mut newest: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        for round in 0..8u64 {
            harness.hold = true;
            for step in 0..24u64 {
                let dice = mix64(seed ^ round << 32 ^ step);
                let (vba, tag) = (u32::try_from(dice % 12).unwrap(), dice >> 8);
                match dice >> 60 {
                    0..10 => {
                        let at = usize::try_from(step).unwrap() * BLOCK;
                        let mut sqe = harness.io(io::WRITE, WRITER, vba, 1);
                        sqe.dptr = KeyedSgl::keyed(at as u64, 4096, KEY);
                        harness.poke(WRITER, at, &block(tag % 1000));
                        harness.submit(WRITER, sqe);
                        newest.insert(vba, Some(tag % 1000));
                    }
                    10..12 => {
                        let sqe = harness.io(io::WRITE_ZEROES, WRITER, vba, 1);
                        prop_assert_eq!(harness.refused(WRITER, sqe), None);
                        newest.insert(vba, None);
                    }
                    _ => {
                        let sqe = harness.io(io::READ, READER, vba, 4);
                        harness.submit(READER, sqe);
                    }
                }
            }
            let mut dice = seed ^ round;
            harness.release(|left| {
                dice = mix64(dice);
                usize::try_from(dice).unwrap() % left
            });
            for completion in std::mem::take(&mut harness.completions) {
                prop_assert_eq!(refusal(&completion.cqe), None);
            }
            for (&vba, &tag) in &newest {
                prop_assert_eq!(harness.read(vba), tag.map_or(vec![0; BLOCK], block), "block {}", vba);
            }
        }
        prop_assert_eq!(harness.in_flight(), 0);
        prop_assert!(harness.frames_are_whole());
        let stats = harness.stats();
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
        let config =
            SsdConfig { index: 0, preset, capacity_bytes, serial: "GN0001".into(), media: SsdMedia::Ram };
        let ssd = Ssd::format_with(config, &bench).unwrap();
        let mut harness = Harness::around(ssd, bench.faults).with_clients().with_volume();
        let (write, flush) = (harness.io(io::WRITE, WRITER, 0, 1), sqe(io::FLUSH));
        harness.submit(WRITER, write);
        harness.submit(WRITER, flush);
        harness.step_to(harness.now + Span::from_ms(100));
        let read = harness.io(io::READ, WRITER, 0, 1);
        let cid = harness.submit(WRITER, read);
        harness.completions.iter().find(|c| c.cqe.cid.get() == cid).unwrap().at.since(harness.now)
    };
    let (sound, slow) = (lone_read(100), lone_read(1000));
    assert!(slow.as_ns() > 3 * sound.as_ns(), "{sound:?} {slow:?}");
}
