// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rule 12: for a day a deleted volume's requests are remembered.

use super::*;
use gnstor_proto::vendor::{RawTombstone, TOMBSTONE_BYTES};
use zerocopy::FromBytes;

const HOUR: Span = Span::from_ms(3_600_000);

fn tombstones(harness: &mut Harness, first: u16, skip: u16, room: usize) -> Vec<RawTombstone> {
    let bytes = u32::try_from(room * TOMBSTONE_BYTES).unwrap();
    let list = Sqe {
        dptr: KeyedSgl::keyed(0, bytes, KEY),
        cdw10: (bytes / 4).into(),
        cdw12: (u32::from(skip) << 16 | u32::from(first)).into(),
        cdw13: 1.into(),
        ..sqe(opcode::VOLUME_LIST)
    };
    let cqe = harness.run(DAEMON, list);
    assert_eq!(refusal(&cqe), None);
    let data = &harness.memory[&DAEMON];
    data.chunks(TOMBSTONE_BYTES)
        .take(cqe.dw0.get() as usize)
        .map(|raw| RawTombstone::read_from_bytes(raw).unwrap())
        .collect()
}

/// Adds and deletes a generation of [`VOLUME`] with the request ids `ids`.
fn live_and_die(harness: &mut Harness, generation: u32, ids: &[u8]) {
    let volume =
        VolumeEntry { generation, request_ids: ids.iter().map(|&id| [id; 16]).collect(), ..entry(VOLUME) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &volume)), None);
    assert_eq!(refusal(&harness.run(DAEMON, Harness::delete_sqe(generation, 9))), None);
    let end = harness.now + Span::from_ms(10);
    harness.step_to(end);
}

fn seen(list: &[RawTombstone]) -> Vec<(u32, u32, u8)> {
    list.iter().map(|raw| (raw.generation.get(), raw.age_s.get(), raw.request_ids[0][0])).collect()
}

#[test]
fn a_deleted_volume_leaves_its_request_ids_for_a_day() {
    let mut harness = Harness::connected(0);
    harness.set_map(&FleetMap::equal(1, 64, 7, 1).unwrap());
    assert_eq!(seen(&tombstones(&mut harness, 0, 0, 8)), []);
    live_and_die(&mut harness, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let list = tombstones(&mut harness, 0, 0, 8);
    let raw = &list[0];
    assert_eq!((list.len(), raw.magic, raw.format.get(), raw.vid.get()), (1, *b"GNVT", 1, VOLUME));
    assert_eq!((raw.generation.get(), raw.version.get(), raw.term.get(), raw.age_s.get()), (1, 9, 1, 0));
    assert_eq!(raw.request_ids.map(|id| id[15]), [1, 2, 3, 4, 5, 6, 7, 8]);
    harness.advance_alive(Span::from_ms(12 * 3_600_000));
    live_and_die(&mut harness, 2, &[9]);
    assert_eq!(seen(&tombstones(&mut harness, 0, 0, 8)), [(1, 43_200, 1), (2, 0, 9)]);
    harness.advance_alive(HOUR + Span::from_ms(11 * 3_600_000));
    assert_eq!(seen(&tombstones(&mut harness, 0, 0, 8)), [(2, 43_200, 9)], "the first is a day old");
    harness.advance_alive(Span::from_ms(12 * 3_600_000));
    assert_eq!(seen(&tombstones(&mut harness, 0, 0, 8)), []);
    let again = VolumeEntry { generation: 2, ..entry(VOLUME) };
    let cqe = harness.volume_command(opcode::VOLUME_ADD, &again);
    assert_eq!(refusal(&cqe), Some(Refusal::StaleVersion), "its generation is remembered for good");
}

#[test]
fn the_list_is_read_piece_by_piece() {
    let mut harness = Harness::connected(0);
    harness.set_map(&FleetMap::equal(1, 64, 7, 1).unwrap());
    for generation in 1..=5 {
        live_and_die(&mut harness, generation, &[u8::try_from(generation).unwrap()]);
    }
    let generations =
        |list: Vec<RawTombstone>| list.iter().map(|raw| raw.generation.get()).collect::<Vec<_>>();
    assert_eq!(generations(tombstones(&mut harness, VOLUME, 0, 2)), [1, 2]);
    assert_eq!(generations(tombstones(&mut harness, VOLUME, 2, 2)), [3, 4]);
    assert_eq!(generations(tombstones(&mut harness, VOLUME, 4, 2)), [5]);
    assert_eq!(generations(tombstones(&mut harness, VOLUME, 5, 2)), []);
    assert_eq!(generations(tombstones(&mut harness, VOLUME + 1, 0, 2)), []);
    assert_eq!(
        generations(tombstones(&mut harness, 0, 3, 8)),
        [1, 2, 3, 4, 5],
        "only those of the first id are left out"
    );
}
