// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The log pages report events exactly.

use super::*;
use crate::FlashHealth;
use crate::admin::effects;

const CLIENT: QueueKey = QueueKey(80);

fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
}

#[test]
fn smart_counts_what_was_done() {
    let mut harness = Harness::timed();
    let zero = harness.log(CLIENT, start_of(2, 128)).unwrap();
    assert_eq!((zero[0], u64_at(&zero, 32), u64_at(&zero, 64), u64_at(&zero, 112)), (0, 0, 0, 1));
    harness.hold = false;
    for vba in 0..130 {
        let sqe = harness.io(io::WRITE, WRITER, vba, 1);
        harness.submit(WRITER, sqe);
        harness.advance(Span::from_ms(1));
    }
    for _ in 0..7 {
        let sqe = harness.io(io::READ, READER, 0, 16);
        harness.submit(READER, sqe);
        harness.advance(Span::from_ms(1));
    }
    let refused = harness.io(io::READ, STRANGER, 0, 1);
    harness.submit(STRANGER, refused);
    harness.advance_alive(Span::from_ms(7_200_000));
    let health = FlashHealth {
        percentage_used: 3,
        available_spare: 99,
        unsafe_shutdowns: 2,
        earlier_power_cycles: 9,
        earlier_minutes: 6000,
        media_errors: 4,
        ..FlashHealth::default()
    };
    harness.ssd().set_flash_health(harness.now, health);
    let page = harness.log(CLIENT, start_of(2, 128)).unwrap();
    assert_eq!(page[1..6], [0x39, 0x01, 99, 10, 3], "313 K, spare, threshold, used");
    // 7 x 16 blocks and 130 blocks of eight sectors, in thousands.
    assert_eq!((u64_at(&page, 32), u64_at(&page, 48)), (1, 2));
    assert_eq!((u64_at(&page, 64), u64_at(&page, 80)), (7, 130));
    assert_eq!(
        (u64_at(&page, 112), u64_at(&page, 128), u64_at(&page, 144), u64_at(&page, 160)),
        (10, 102, 2, 4)
    );
    assert_eq!(u64_at(&page, 176), 0, "this host has had no errors");
    let busy = u64::from(130u32) * 1374 + 8 * 1260;
    assert_eq!(harness.ssd().activity().busy.as_ns(), busy, "the firmware's time, the refused command's too");
}

#[test]
fn a_damaged_page_counts_as_a_media_error() {
    let mut harness = Harness::new();
    harness.write(0, &[1]);
    harness.damage(0);
    let sqe = harness.io(io::READ, READER, 0, 1);
    assert_eq!(harness.refused(READER, sqe), Some(Refusal::BadChecksum));
    let smart = harness.log(CLIENT, start_of(2, 128)).unwrap();
    assert_eq!((u64_at(&smart, 160), u64_at(&smart, 176)), (1, 1));
}

#[test]
fn a_host_sees_its_own_errors_and_the_daemon_sees_all() {
    let mut harness = Harness::new();
    let sqe = harness.io(io::READ, STRANGER, 3, 1);
    let cid = harness.submit(STRANGER, sqe);
    assert_eq!(refusal(&harness.take(STRANGER, cid).unwrap()), Some(Refusal::NotAReader));
    let own = harness.log(QueueKey(90), start_of(1, 1024)).unwrap();
    assert_eq!(u64_at(&own, 0), 1);
    assert_eq!(own[8..12], [1, 0, cid.to_le_bytes()[0], cid.to_le_bytes()[1]]);
    assert_eq!(own[12..16], [0x0C, 0x85, 0xFF, 0xFF], "4286h, no parameter");
    assert_eq!(u64_at(&own, 16), u64::from(VOLUME) << 48);
    assert_eq!(own[32..36], [Refusal::NotAReader as u8, 1, 5, 0], "of SSD 0, by its number plus one");
    assert_eq!(harness.log(CLIENT, start_of(1, 1024)).unwrap(), [0; 4096]);
    assert_eq!(harness.log(DAEMON, start_of(1, 1024)).unwrap(), own);
}

#[test]
fn offset_and_length_are_those_of_the_page() {
    let mut harness = Harness::new();
    let whole = harness.log(CLIENT, start_of(2, 128)).unwrap();
    assert_eq!(harness.log(CLIENT, start_of(2, 1).at(4)).unwrap(), whole[4..8]);
    assert_eq!(
        harness.log(CLIENT, start_of(2, 2).at(508)).unwrap(),
        [&whole[508..], &[0; 4]].concat(),
        "zeros behind the end"
    );
    assert_eq!(harness.log(CLIENT, start_of(2, 1).at(512)).unwrap(), [0; 4]);
    assert_eq!(harness.log(CLIENT, start_of(2, 1).at(516)), Err(Refusal::InvalidField));
    assert_eq!(harness.log(CLIENT, start_of(2, 1).at(2)), Err(Refusal::InvalidField));
    let cases = [
        (Sqe { cdw13: 1.into(), ..log_sqe(2, 0, 128, false) }, Refusal::InvalidField),
        (Sqe { cdw14: (1 << 23).into(), ..log_sqe(2, 0, 128, false) }, Refusal::InvalidField),
        (Sqe { cdw11: 0xFFFF.into(), ..log_sqe(2, 0, 128, false) }, Refusal::InvalidField),
        (Sqe { nsid: 1.into(), ..log_sqe(2, 0, 128, false) }, Refusal::InvalidNamespace),
        (Sqe { dptr: KeyedSgl::keyed(0, 512, KEY), ..log_sqe(2, 0, 127, false) }, Refusal::InvalidSgl),
        (log_sqe(0x70, 0, 1, false), Refusal::InvalidLogPage),
        (log_sqe(0xC5, 0, 1, false), Refusal::InvalidLogPage),
    ];
    for (sqe, want) in cases {
        let cqe = harness.run(CLIENT, sqe);
        assert_eq!(refusal(&cqe), Some(want), "{sqe:?}");
    }
    let cqe = harness.run(CLIENT, log_sqe(0x55, 0, 1, false));
    assert_eq!(cqe.status_word() & 0x7FF, 0x109);
}

#[test]
fn exactly_the_listed_pages_can_be_read() {
    let mut harness = Harness::new();
    let list = harness.log(DAEMON, start_of(0, 256)).unwrap();
    for page in 0..=255u8 {
        let listed = list[usize::from(page) * 4] == 1;
        let got = harness.log(DAEMON, start_of(page, 4));
        assert_eq!(got.is_ok(), listed, "{page:02x}h");
        assert_eq!(got == Err(Refusal::InvalidLogPage), !listed);
    }
}

#[test]
fn the_effects_page_names_exactly_the_opcodes_that_are_known() {
    let mut harness = Harness::new();
    let page = harness.log(CLIENT, start_of(5, 1024)).unwrap();
    assert_eq!(page, effects::page());
    let known = |page: &[u8], at: usize| page[at] & 1 == 1;
    for opcode in 0..=255u8 {
        // An event request is held, and a fabrics command is another matter: both are known to be known.
        if opcode != admin::ASYNC_EVENT_REQUEST && opcode != gnstor_proto::fabrics::OPCODE {
            let invalid = harness.refused(DAEMON, sqe(opcode)) == Some(Refusal::InvalidOpcode);
            assert_eq!(invalid, !known(&page, usize::from(opcode) * 4), "admin {opcode:02x}h");
            let invalid = harness.refused(WRITER, sqe(opcode)) == Some(Refusal::InvalidOpcode);
            assert_eq!(invalid, !known(&page, 1024 + usize::from(opcode) * 4), "I/O {opcode:02x}h");
        }
    }
    assert_eq!(page[1024 + 4], 0x03, "Write changes blocks");
}

#[test]
fn the_firmware_slot_is_the_version_of_identify() {
    let mut harness = Harness::new();
    let slots = harness.log(CLIENT, start_of(3, 128)).unwrap();
    assert_eq!(slots[0], 1);
    let identify = Sqe { dptr: KeyedSgl::keyed(0, 4096, KEY), cdw10: 1.into(), ..sqe(admin::IDENTIFY) };
    assert_eq!(harness.refused(CLIENT, identify), None);
    let data = harness.peek(CLIENT, 0);
    assert_eq!(data[64..72], slots[8..16]);
    // OAES, ACL, AERL, FRMW, LPA, ELPE, ONCS, VWC.
    assert_eq!((&data[92..96], &data[258..263]), (&[0, 3, 0, 0][..], &[3, 3, 3, 6, 63][..]));
    assert_eq!((data[520] & 0b1_1100, data[525], data[264]), (0b1_1100, 0, 1));
}

/// The rows of C0h or C1h: id, generation and the six counters.
fn rows(harness: &mut Harness, page: u8) -> Vec<(u16, u32, [u64; 6])> {
    let data = harness.log(DAEMON, start_of(page, 1024)).unwrap();
    let count = usize::try_from(u32::from_le_bytes(data[8..12].try_into().unwrap())).unwrap();
    data[64..64 + count * 64]
        .chunks(64)
        .map(|row| {
            let id = u16::from_le_bytes([row[0], row[1]]);
            let generation = u32::from_le_bytes(row[4..8].try_into().unwrap());
            (id, generation, std::array::from_fn(|index| u64_at(row, 8 + index * 8)))
        })
        .collect()
}

#[test]
fn volumes_and_clients_have_counters_of_their_own() {
    let mut harness = Harness::new();
    harness.volume_command(opcode::VOLUME_ADD, &entry(3));
    harness.write(0, &[1, 2, 3]);
    let zeroes = harness.io(io::WRITE_ZEROES, WRITER, 0, 2);
    assert_eq!(harness.refused(WRITER, zeroes), None);
    for key in [READER, READER, WRITER, STRANGER] {
        let sqe = harness.io(io::READ, key, 0, 4);
        harness.run(key, sqe);
    }
    let mut elsewhere = harness.io(io::READ, READER, 0, 1);
    elsewhere.cdw11 = (99 << 16 | 8).into();
    assert_eq!(harness.refused(READER, elsewhere), Some(Refusal::UnknownVolume));
    assert_eq!(rows(&mut harness, 0xC0), [(3, 1, [0; 6]), (VOLUME, 1, [3, 2, 12, 3, 1, 0])]);
    assert_eq!(
        rows(&mut harness, 0xC1),
        [(7, 0, [1, 2, 4, 3, 0, 0]), (8, 0, [2, 0, 8, 0, 1, 0]), (9, 0, [0, 0, 0, 0, 1, 0])]
    );
    for page in [0xC0, 0xC1, 0xC2] {
        assert_eq!(harness.log(CLIENT, start_of(page, 16)), Err(Refusal::NotTheDaemon));
    }
}

#[test]
fn the_flash_page_tells_wear_and_what_collection_costs() {
    let mut harness = Harness::new();
    for round in 0..40u64 {
        (0..64).for_each(|at| _ = harness.write(at * 8, &[round; 8]));
        harness.advance(Span::from_ms(1));
    }
    let health = harness.ssd().ftl().health();
    let stats = harness.layer_stats();
    let page = harness.log(DAEMON, start_of(0xC2, 32)).unwrap();
    assert_eq!(page[..6], *b"GNLF\x01\0");
    let spread = (u64_at(&page, 8), u64_at(&page, 16), u64_at(&page, 24));
    assert_eq!(spread, (health.wear.least.into(), health.wear.most.into(), health.wear.mean_milli));
    assert!(health.wear.most > 0 && stats.host_pages == 40 * 512);
    assert_eq!(
        (u64_at(&page, 32), u64_at(&page, 40), u64_at(&page, 64)),
        (40 * 512, stats.flash_pages, stats.erases)
    );
}
