// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's commands: who may send them, and what the table accepts.

use super::voting::PEER;
use super::*;
use crate::permission::MAX_VOLUMES;

fn list(harness: &mut Harness, first: u16, slots: u32) -> (u32, Vec<VolumeEntry>) {
    let bytes = slots * 4096;
    let cqe = harness.run(
        DAEMON,
        Sqe {
            dptr: KeyedSgl::keyed(0, bytes, KEY),
            cdw10: (bytes / 4).into(),
            cdw12: u32::from(first).into(),
            ..sqe(opcode::VOLUME_LIST)
        },
    );
    assert_eq!(refusal(&cqe), None);
    let count = cqe.dw0.get();
    (
        count,
        (0..count as usize).map(|slot| VolumeEntry::decode(harness.peek(DAEMON, slot)).unwrap()).collect(),
    )
}

/// What becomes of a vendor command whose namespace is wrong: that is looked at after the identity.
const MAY: Refusal = Refusal::InvalidNamespace;
const NOT: Refusal = Refusal::NotTheDaemon;

/// Opcode, and what a client, another SSD and the daemon hear.
const RIGHTS: [(u8, [Refusal; 3]); 16] = [
    (opcode::VOLUME_ADD, [NOT, NOT, MAY]),
    (opcode::VOLUME_LIST, [NOT, NOT, MAY]),
    (opcode::VOLUME_DELETE, [NOT, NOT, MAY]),
    (opcode::VOLUME_CHMOD, [NOT, NOT, MAY]),
    (opcode::LEASE_RENEW, [NOT, NOT, MAY]),
    (opcode::MAP_SET, [NOT, NOT, MAY]),
    (opcode::MAP_GET, [MAY, MAY, MAY]),
    (opcode::MAP_HOLD, [NOT, NOT, MAY]),
    (opcode::TERM_TAKE, [NOT, NOT, MAY]),
    (opcode::ACTIVATE, [NOT, MAY, MAY]),
    (opcode::LEASE_ASK, [NOT, MAY, Refusal::WrongIdentity]),
    (opcode::SETTLE, [NOT, NOT, MAY]),
    (opcode::PEER_READ, [NOT, MAY, Refusal::WrongIdentity]),
    (opcode::REPAIR, [NOT, NOT, MAY]),
    (opcode::CLIENT_END, [NOT, NOT, MAY]),
    (opcode::OPENING, [NOT, NOT, MAY]),
];

/// Every opcode of the protocol has its line here, so a new one cannot be given to clients by mistake.
#[test]
fn each_vendor_command_is_taken_from_the_hosts_that_may_send_it_and_from_no_others() {
    let mut harness = Harness::new();
    harness.connect(PEER, 0, Identity::Peer(1), CNTLID_ANY);
    let named = opcodes::named("mod opcode {");
    for (code, line) in &named {
        assert!(RIGHTS.iter().any(|(known, _)| known == code), "who may send {line}?");
    }
    assert_eq!(named.len(), RIGHTS.len());
    for (code, answers) in RIGHTS {
        for (key, answer) in [QueueKey(70), PEER, DAEMON].into_iter().zip(answers) {
            let wrong = Sqe { nsid: 0.into(), ..sqe(code) };
            assert_eq!(harness.refused(key, wrong), Some(answer), "{code:02x}h from {key:?}");
            if answer != MAY {
                let data = KeyedSgl::keyed(0, 4096, KEY);
                let whole = Sqe { dptr: data, cdw10: 1024.into(), ..sqe(code) };
                assert_eq!(harness.refused(key, whole), Some(answer), "{code:02x}h from {key:?}");
            }
        }
        assert_eq!(harness.refused(WRITER, sqe(code)), Some(Refusal::InvalidOpcode), "not on an I/O queue");
    }
}

#[test]
fn entries_are_listed_in_order_page_by_page() {
    let mut harness = Harness::new();
    for raw in [9u16, 3, 400] {
        assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &entry(raw))), None);
    }
    let vids =
        |(count, entries): (u32, Vec<VolumeEntry>)| (count, entries.iter().map(|e| e.vid.get()).collect());
    assert_eq!(vids(list(&mut harness, 0, 3)), (3, vec![3, 5, 9]));
    assert_eq!(vids(list(&mut harness, 10, 3)), (1, vec![400]));
    assert_eq!(list(&mut harness, 3, 1).1, [entry(3)]);
    assert_eq!(list(&mut harness, 401, 1).0, 0);
}

#[test]
fn an_entry_is_taken_only_if_it_is_whole_and_newer() {
    let mut harness = Harness::new();
    let add = |harness: &mut Harness, entry: &VolumeEntry| {
        refusal(&harness.volume_command(opcode::VOLUME_ADD, entry))
    };
    let chmod = |harness: &mut Harness, entry: &VolumeEntry| {
        refusal(&harness.volume_command(opcode::VOLUME_CHMOD, entry))
    };
    assert_eq!(add(&mut harness, &entry(VOLUME)), Some(Refusal::VolumeExists));
    assert_eq!(chmod(&mut harness, &entry(77)), Some(Refusal::VolumeAbsent));
    assert_eq!(chmod(&mut harness, &entry(VOLUME)), Some(Refusal::StaleVersion));
    let next = VolumeEntry { version: 2, ..entry(VOLUME) };
    for wrong in [
        VolumeEntry { generation: 2, ..next.clone() },
        VolumeEntry { factor: 1, ..next.clone() },
        VolumeEntry { chunk_shift: 5, ..next.clone() },
        VolumeEntry { capacity_blocks: 5, ..next.clone() },
        VolumeEntry { lease_epoch: LEASE - 1, ..next.clone() },
        VolumeEntry { deleting: true, ..next.clone() },
    ] {
        assert_eq!(chmod(&mut harness, &wrong), Some(Refusal::InvalidField));
    }
    assert_eq!(chmod(&mut harness, &VolumeEntry { term: 5, ..next.clone() }), None);
    assert_eq!(chmod(&mut harness, &VolumeEntry { version: 3, ..next.clone() }), Some(Refusal::StaleTerm));
    assert_eq!(add(&mut harness, &entry(6)), Some(Refusal::StaleTerm));
    assert_eq!(
        add(&mut harness, &VolumeEntry { deleting: true, term: 5, ..entry(6) }),
        Some(Refusal::InvalidField)
    );
    let torn = harness.daemon_out(opcode::VOLUME_ADD, &[0x5A; 4096]);
    assert_eq!(refusal(&torn), Some(Refusal::InvalidField));
    let short = harness.daemon_out(opcode::VOLUME_ADD, &[0; 64]);
    assert_eq!(refusal(&short), Some(Refusal::InvalidField));
}

#[test]
fn the_table_is_full_at_its_limit() {
    let mut harness = Harness::new();
    for raw in 0..u16::try_from(MAX_VOLUMES).unwrap() - 1 {
        harness.ssd().table.add(harness.now, entry(raw + 100)).unwrap();
    }
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &entry(9999))), Some(Refusal::TableFull));
}

#[test]
fn an_ssd_refuses_a_volume_that_its_system_area_has_no_room_for() {
    let mut harness = Harness::new();
    let add = |harness: &mut Harness, entry: &VolumeEntry| {
        refusal(&harness.volume_command(opcode::VOLUME_ADD, entry))
    };
    let most = gnstor_ftl::volumes_for(harness.ssd().ftl().logical_pages());
    let there = harness.ssd().admin.volumes().metadata().contents().entries.len();
    for raw in (100u16..).take(most as usize - there) {
        assert_eq!(add(&mut harness, &entry(raw)), None, "volume {raw}");
    }
    assert_eq!(harness.ssd().admin.volumes().metadata().contents().entries.len(), most as usize);
    assert_eq!(add(&mut harness, &entry(9999)), Some(Refusal::TableFull));
    assert_eq!(refusal(&harness.run(DAEMON, Harness::delete_sqe(1, 2))), None);
    assert_eq!(
        add(&mut harness, &entry(9999)),
        Some(Refusal::TableFull),
        "the sweep of a deleted volume is not done"
    );
    let end = harness.now + Span::from_ms(10);
    harness.step_to(end);
    assert_eq!(add(&mut harness, &entry(9999)), None);
}

#[test]
fn a_deleted_volume_id_lives_again_only_after_its_sweep_and_in_a_higher_generation() {
    let mut harness = Harness::new();
    harness.write(0, &[1, 2, 3, 4]);
    harness.volume_command(opcode::VOLUME_ADD, &entry(6));
    let other_before = harness.mapped_blocks();
    let delete = |harness: &mut Harness, generation, version| {
        refusal(&harness.run(DAEMON, Harness::delete_sqe(generation, version)))
    };
    assert_eq!(delete(&mut harness, 0, 9), Some(Refusal::StaleVersion));
    assert_eq!(delete(&mut harness, 2, 9), Some(Refusal::VolumeAbsent));
    assert_eq!(delete(&mut harness, 1, 1), Some(Refusal::StaleVersion));
    assert_eq!(delete(&mut harness, 1, 2), None);
    assert_eq!(delete(&mut harness, 1, 2), None, "deleting it again succeeds");
    assert!(list(&mut harness, VOLUME, 1).1[0].deleting);
    let again = VolumeEntry { generation: 2, ..entry(VOLUME) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &again)), Some(Refusal::SweepPending));
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_CHMOD, &again)), Some(Refusal::Deleting));

    let end = harness.now + Span::from_ms(10);
    harness.step_to(end);
    assert_eq!((other_before, harness.mapped_blocks()), (4, 0));
    let next = harness.next_event().expect("what SMART counts is kept");
    assert_eq!(next.as_ns(), crate::smart::smart_counters::SAVE_EVERY.as_ns(), "nothing else is left to do");
    assert_eq!(list(&mut harness, VOLUME, 4).1, [entry(6)]);
    assert_eq!(delete(&mut harness, 1, 2), None, "and once it is gone, too");
    assert_eq!(delete(&mut harness, 3, 2), Some(Refusal::VolumeAbsent));
    assert_eq!(
        refusal(&harness.volume_command(opcode::VOLUME_ADD, &entry(VOLUME))),
        Some(Refusal::StaleVersion)
    );
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &again)), None);
    assert_eq!(harness.read(0), [0; BLOCK], "no deleted byte is ever readable again");
}

#[test]
fn maps_are_taken_by_term_and_epoch_and_given_back() {
    let mut harness = Harness::connected(0);
    let get = |harness: &mut Harness, bytes: u32| {
        let dptr = KeyedSgl::keyed(0, bytes, KEY);
        harness.run(DAEMON, Sqe { dptr, cdw10: (bytes / 4).into(), ..sqe(opcode::MAP_GET) })
    };
    assert_eq!(get(&mut harness, 4096).dw0.get(), 0, "no map yet");
    let mut map = FleetMap::equal(3, 1024, 7, 2).unwrap();
    map.epoch = 5;
    assert_eq!(refusal(&harness.set_map(&map)), None);
    let length = get(&mut harness, 16_384).dw0.get() as usize;
    assert_eq!(FleetMap::decode(&harness.memory[&DAEMON][..length]), Ok(map.clone()));

    let with = |term, epoch| {
        let mut next = map.clone();
        (next.term, next.epoch) = (term, epoch);
        next
    };
    assert_eq!(refusal(&harness.set_map(&with(2, 4))), Some(Refusal::StaleVersion));
    assert_eq!(refusal(&harness.set_map(&with(1, 6))), Some(Refusal::StaleTerm));
    assert_eq!(refusal(&harness.set_map(&with(3, 5))), None, "another term, the same epoch");
    assert_eq!(refusal(&harness.daemon_out(opcode::MAP_SET, &[7; 4096])), Some(Refusal::InvalidField));
}
