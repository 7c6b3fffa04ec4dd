// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each refusal of an I/O command, reached through a capsule.

use super::*;
use gnstor_proto::placement::{Rows, group_of};

#[test]
fn a_command_that_speaks_for_another_client_is_refused() {
    let mut harness = Harness::new();
    for opcode in [io::READ, io::WRITE, io::WRITE_ZEROES] {
        let sqe = harness.io(opcode, WRITER, 0, 1);
        assert_eq!(harness.refused(READER, sqe), Some(Refusal::WrongIdentity));
    }
}

#[test]
fn an_ssd_without_a_map_serves_nothing() {
    let mut harness = Harness::connected(0);
    harness.volume_command(opcode::VOLUME_ADD, &entry(VOLUME));
    let sqe = harness.io(io::READ, READER, 0, 1);
    assert_eq!(harness.refused(READER, sqe), Some(Refusal::NotServing));
}

#[test]
fn an_older_map_is_stale_and_a_newer_one_is_awaited() {
    let mut harness = Harness::new();
    let mut map = FleetMap::equal(1, 64, 7, 1).unwrap();
    map.epoch = 10;
    harness.set_map(&map);
    for (epoch, want) in [(9, Refusal::StaleMap), (11, Refusal::MapBehind), (u32::MAX, Refusal::StaleMap)] {
        harness.map_epoch = epoch;
        let sqe = harness.io(io::READ, READER, 0, 1);
        let cqe = harness.run(READER, sqe);
        assert_eq!((refusal(&cqe), cqe.dw1.get()), (Some(want), 10));
    }
}

#[test]
fn unknown_and_deleted_volumes_are_refused() {
    let mut harness = Harness::new();
    let mut sqe = harness.io(io::READ, READER, 0, 1);
    sqe.cdw11 = (99 << 16 | 8).into();
    let cqe = harness.run(READER, sqe);
    assert_eq!(refusal(&cqe), Some(Refusal::UnknownVolume));
    assert_eq!(Detail::from_dw0(cqe.dw0.get()).vid, 99);
    assert_eq!(refusal(&harness.run(DAEMON, Harness::delete_sqe(1, 2))), None);
    let sqe = harness.io(io::READ, READER, 0, 1);
    assert_eq!(harness.refused(READER, sqe), Some(Refusal::Deleting));
}

#[test]
fn a_range_beyond_the_capacity_is_refused() {
    let mut harness = Harness::new();
    for (vba, blocks) in [(512, 1), (511, 2), (u32::MAX, 1), (u32::MAX, 256)] {
        let sqe = harness.io(io::READ, READER, vba, blocks);
        assert_eq!(harness.refused(READER, sqe), Some(Refusal::OutOfRange), "{vba}+{blocks}");
    }
    let sqe = harness.io(io::READ, READER, 511, 1);
    assert_eq!(harness.refused(READER, sqe), None);
}

#[test]
fn only_readers_and_the_writer_read() {
    let mut harness = Harness::new();
    for (key, want) in [(STRANGER, Some(Refusal::NotAReader)), (READER, None), (WRITER, None)] {
        let sqe = harness.io(io::READ, key, 0, 1);
        assert_eq!(harness.refused(key, sqe), want);
    }
    harness.chmod(|entry| entry.any_reader = true);
    let sqe = harness.io(io::READ, STRANGER, 0, 1);
    assert_eq!(harness.refused(STRANGER, sqe), None);
}

#[test]
fn only_the_writer_writes() {
    let mut harness = Harness::new();
    for (key, want) in [(STRANGER, Refusal::NotAReader), (READER, Refusal::ReadOnly)] {
        for opcode in [io::WRITE, io::WRITE_ZEROES] {
            let sqe = harness.io(opcode, key, 0, 1);
            let cqe = harness.run(key, sqe);
            assert_eq!((refusal(&cqe), cqe.dw1.get()), (Some(want), LEASE));
        }
    }
}

#[test]
fn a_writer_that_was_replaced_is_told_so() {
    let mut harness = Harness::new();
    harness.chmod(|entry| {
        entry.writer = Some(client(9));
        entry.lease_epoch += 1;
    });
    let sqe = harness.io(io::WRITE, WRITER, 0, 1);
    let cqe = harness.run(WRITER, sqe);
    assert_eq!((refusal(&cqe), cqe.dw1.get()), (Some(Refusal::LeaseHeldByOther), LEASE + 1));
    harness.advance(Span::from_ms(10_000));
    let sqe = harness.io(io::WRITE, WRITER, 0, 1);
    assert_eq!(harness.refused(WRITER, sqe), Some(Refusal::LeaseExpired));
}

#[test]
fn a_lease_ends_with_its_time_or_its_epoch_and_a_renewal_lengthens_it() {
    let mut harness = Harness::new();
    let sqe = harness.io(io::WRITE, WRITER, 0, 1);
    assert_eq!(harness.refused(WRITER, Sqe { cdw3: (LEASE - 1).into(), ..sqe }), Some(Refusal::LeaseExpired));
    harness.advance(Span::from_ms(9_000));
    harness.chmod(|_| {});
    harness.advance(Span::from_ms(9_999));
    assert_eq!(harness.refused(WRITER, sqe), None);
    harness.advance(Span::from_ms(1));
    let sqe = harness.io(io::WRITE, WRITER, 0, 1);
    assert_eq!(harness.refused(WRITER, sqe), Some(Refusal::LeaseExpired));
}

#[test]
fn a_request_over_two_chunks_is_refused() {
    let mut harness = Harness::new();
    for opcode in [io::READ, io::WRITE, io::WRITE_ZEROES] {
        let sqe = harness.io(opcode, WRITER, 15, 2);
        assert_eq!(harness.refused(WRITER, sqe), Some(Refusal::InvalidField));
        let sqe = harness.io(opcode, WRITER, 0, 16);
        assert_eq!(harness.refused(WRITER, sqe), None);
    }
}

/// Four SSDs, two replicas: the block of each kind, as SSD 0 sees it.
fn vba_where(map: &FleetMap, entry: &VolumeEntry, wanted: impl Fn(&[u16]) -> bool) -> u32 {
    let chunks = u32::try_from(entry.capacity_blocks).unwrap() >> entry.chunk_shift;
    (0..chunks)
        .map(|chunk| chunk << entry.chunk_shift)
        .find(|&vba| {
            let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
            let ssds: Vec<u16> = map.replicas(group, entry.replicas).map(|member| member.ssd).collect();
            wanted(&ssds)
        })
        .expect("32 chunks over 4 SSDs hold every kind")
}

#[test]
fn replicas_answer_by_their_place_in_the_group() {
    let mut harness = Harness::connected(0);
    let map = FleetMap::equal(4, 64, 7, 1).unwrap();
    harness.set_map(&map);
    let volume = VolumeEntry { replicas: 2, ..entry(VOLUME) };
    harness.volume_command(opcode::VOLUME_ADD, &volume);
    let (first, second) =
        (vba_where(&map, &volume, |ssds| ssds[0] == 0), vba_where(&map, &volume, |ssds| ssds[1] == 0));
    let elsewhere = vba_where(&map, &volume, |ssds| !ssds.contains(&0));

    for opcode in [io::READ, io::WRITE] {
        for vba in [first, second] {
            let sqe = harness.io(opcode, WRITER, vba, 1);
            assert_eq!(harness.refused(WRITER, sqe), None);
        }
        let sqe = harness.io(opcode, WRITER, elsewhere, 1);
        let cqe = harness.run(WRITER, sqe);
        assert_eq!((refusal(&cqe), cqe.dw1.get()), (Some(Refusal::WrongTarget), 1));
    }
    // While there is a writer, others may read only from the first serving member; otherwise from any.
    for (vba, want) in [(first, None), (second, Some(Refusal::AskTheFirst))] {
        let sqe = harness.io(io::READ, READER, vba, 1);
        assert_eq!(harness.refused(READER, sqe), want);
    }
    harness.chmod(|entry| entry.writer = None);
    let sqe = harness.io(io::READ, READER, second, 1);
    assert_eq!(harness.refused(READER, sqe), None);
}

#[test]
fn a_filling_replica_takes_writes_and_refuses_reads() {
    let mut harness = Harness::connected(0);
    let map = FleetMap::equal(6, 64, 7, 1).unwrap();
    let volume = VolumeEntry { replicas: 2, ..entry(VOLUME) };
    let next = map.without(1);
    let vba = (0..32).map(|chunk| chunk << 4).find(|&vba| {
        let group = group_of(volume.vid, vba, 4, volume.factor, 64);
        next.replicas(group, 2).any(|member| member.ssd == 0 && member.filling)
    });
    let vba = vba.expect("SSD 0 fills in for SSD 1 somewhere");
    harness.set_map(&next);
    harness.volume_command(opcode::VOLUME_ADD, &volume);
    let sqe = harness.io(io::WRITE, WRITER, vba, 1);
    assert_eq!(harness.refused(WRITER, sqe), None);
    let sqe = harness.io(io::READ, WRITER, vba, 1);
    assert_eq!(harness.refused(WRITER, sqe), Some(Refusal::NotHereYet));
}

#[test]
fn malformed_fields_are_refused() {
    let mut harness = Harness::new();
    let good = harness.io(io::READ, READER, 0, 1);
    let cases = [
        (Sqe { nsid: 2.into(), ..good }, Refusal::InvalidNamespace),
        (Sqe { nsid: u32::MAX.into(), ..good }, Refusal::InvalidNamespace),
        (Sqe { flags: 0, ..good }, Refusal::InvalidField),
        (Sqe { flags: FLAGS_SGL | 1, ..good }, Refusal::InvalidField),
        (Sqe { cdw11: 8.into(), ..good }, Refusal::InvalidField),
        (Sqe { cdw12: 256.into(), ..good }, Refusal::InvalidField),
        (Sqe { dptr: KeyedSgl::keyed(0, 4095, KEY), ..good }, Refusal::InvalidSgl),
        (Sqe { dptr: KeyedSgl { kind: 0, ..good.dptr }, ..good }, Refusal::InvalidSgl),
        (Sqe { dptr: KeyedSgl::keyed(0, 4096, 1), ..good }, Refusal::TransferError),
        (Sqe { dptr: KeyedSgl::keyed(u64::MAX - 7, 4096, KEY), ..good }, Refusal::TransferError),
        (Sqe { opcode: 0x80, ..good }, Refusal::InvalidOpcode),
    ];
    for (sqe, want) in cases {
        assert_eq!(harness.refused(READER, sqe), Some(want), "{sqe:?}");
    }
    assert_eq!(harness.stats().refusals(Refusal::InvalidField), 4);
    assert_eq!(harness.refused(READER, good), None);
}

#[test]
fn more_commands_than_the_queue_has_entries_are_refused_at_once() {
    let mut harness = Harness::new();
    harness.hold = true;
    let mut refused = 0;
    for _ in 0..80 {
        let sqe = harness.io(io::READ, READER, 0, 1);
        let cid = harness.submit(READER, sqe);
        if let Some(cqe) = harness.take(READER, cid) {
            assert_eq!(refusal(&cqe), Some(Refusal::SequenceError));
            refused += 1;
        }
    }
    assert_eq!((refused, harness.in_flight()), (16, 64));
}
