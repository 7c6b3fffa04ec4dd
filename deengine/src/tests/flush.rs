// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flush: which writes become durable, and which clients it does nothing for.

use super::smart_counters::Kept;
use super::*;

/// A second volume.
const OTHER: u16 = VOLUME + 1;

/// Two volumes: client 7 writes [`VOLUME`], and client 9 the other one.
fn two_volumes() -> Harness {
    let mut harness = Harness::new();
    let other = VolumeEntry { writer: Some(client(9)), owner: client(9), ..entry(OTHER) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &other)), None);
    harness
}

fn flush(harness: &mut Harness, key: QueueKey) {
    let cid = harness.submit(key, Sqe { nsid: 1.into(), ..sqe(io::FLUSH) });
    let end = harness.now + Span::from_ms(100);
    while harness.now < end {
        if let Some(cqe) = harness.take(key, cid) {
            return assert_eq!(refusal(&cqe), None);
        }
        harness.advance(Span::from_ns(100_000));
    }
    panic!("a Flush of {key:?} does not end");
}

/// The price of a Flush that all clients pay: padding, and syncs; and the durable transaction.
fn costs(harness: &Harness) -> (u64, String, u64) {
    let stats = harness.layer_stats();
    (stats.padded_pages, format!("{:?}", stats.syncs), harness.ssd().ftl().durable())
}

/// The last change of a volume is durable.
fn is_durable(harness: &Harness, raw: u16) -> bool {
    let (last, durable) = harness.ssd().ftl().last_change(vid(raw));
    last <= durable
}

/// Client 9 writes a block of its volume.
fn write_other(harness: &mut Harness, vba: u32) {
    harness.poke(STRANGER, 0, &block(3));
    let mut sqe = harness.io(io::WRITE, STRANGER, vba, 1);
    let address = Address { client: client(9), vid: vid(OTHER), vba };
    ReadWrite { slba: Slba::pack(address), ..ReadWrite::decode(&sqe) }.encode(&mut sqe);
    assert_eq!(harness.refused(STRANGER, sqe), None);
}

#[test]
fn a_flush_of_a_client_that_writes_nothing_pads_and_syncs_nothing() {
    let mut harness = Harness::new();
    for vba in 0..10 {
        assert_eq!(refusal(&harness.write(vba, &[1])), None);
        let before = costs(&harness);
        assert!(!is_durable(&harness, VOLUME), "the block is in a half-filled unit");
        for key in [READER, STRANGER] {
            flush(&mut harness, key);
        }
        assert_eq!(costs(&harness), before, "a reader's Flush, and a stranger's, do nothing");
    }
}

#[test]
fn a_writer_pays_for_its_own_writes_only() {
    let mut harness = two_volumes();
    for vba in 0..10 {
        write_other(&mut harness, vba);
        flush(&mut harness, STRANGER);
        assert!(is_durable(&harness, OTHER));
        assert_eq!(refusal(&harness.write(vba, &[1])), None);
        let before = costs(&harness);
        for _ in 0..3 {
            flush(&mut harness, STRANGER);
        }
        assert_eq!(costs(&harness), before, "all that it writes is durable already");
        assert!(!is_durable(&harness, VOLUME));
    }
}

/// What a host does, by name.
type Way<'a> = (&'a str, &'a dyn Fn(&mut Harness));

#[test]
fn a_flush_makes_durable_what_is_acknowledged_in_the_volumes_of_its_client() {
    let mut harness = two_volumes();
    let ways: [Way<'_>; 3] = [
        ("write", &|harness| assert_eq!(refusal(&harness.write(3, &[1, 2])), None)),
        ("write zeroes", &|harness| {
            let sqe = harness.io(io::WRITE_ZEROES, WRITER, 3, 1);
            assert_eq!(harness.refused(WRITER, sqe), None);
        }),
        ("another write", &|harness| assert_eq!(refusal(&harness.write(3, &[4])), None)),
    ];
    for (way, change) in ways {
        change(&mut harness);
        // What others write meanwhile hides nothing.
        write_other(&mut harness, 1);
        assert!(!is_durable(&harness, VOLUME), "{way}");
        flush(&mut harness, WRITER);
        assert!(is_durable(&harness, VOLUME), "{way}");
    }
}

/// Also what another client wrote, and what a client wrote before it lost the right to.
#[test]
fn a_flush_covers_what_was_written_before_the_volume_changed_hands() {
    for flushes in [STRANGER, WRITER] {
        let mut harness = Harness::new();
        assert_eq!(refusal(&harness.write(3, &[1])), None);
        let hands: &[Option<ClientId>] =
            if flushes == STRANGER { &[Some(client(9))] } else { &[Some(client(9)), None, Some(client(8))] };
        for &writer in hands {
            harness.chmod(|entry| entry.writer = writer);
        }
        assert!(!is_durable(&harness, VOLUME));
        flush(&mut harness, flushes);
        assert!(is_durable(&harness, VOLUME), "{flushes:?} is answered for");
        // It is remembered for as long as it is needed.
        assert_eq!(refusal(&harness.run(WRITER, Sqe { nsid: 1.into(), ..sqe(io::FLUSH) })), None);
        let before = costs(&harness);
        flush(&mut harness, WRITER);
        assert_eq!(costs(&harness), before);
    }
}

/// After a start the layer knows of no volume when it was changed last. The second start has no dump.
#[test]
fn the_first_flush_of_a_writer_after_a_start_covers_what_was_acknowledged_before() {
    let (kept, mut harness) = Kept::new();
    assert_eq!(refusal(&harness.write(3, &[1])), None);
    assert!(!is_durable(&harness, VOLUME), "only the dump has it");
    let last = |harness: &Harness| harness.ssd().ftl().last_change(vid(VOLUME)).0;
    let before = last(&harness);
    let mut harness = kept.restart_with_dump(harness);
    assert!(last(&harness) >= before, "a Flush waits for no less than before the start");
    harness.set_map(&FleetMap::equal(1, 64, 7, 1).unwrap());
    flush(&mut harness, WRITER);
    assert!(is_durable(&harness, VOLUME));
    let mut harness = kept.restart(harness);
    // It may have lost writes, as it knows of no dump, until a newer map.
    let mut map = FleetMap::equal(1, 64, 7, 1).unwrap();
    map.epoch = 2;
    harness.set_map(&map);
    assert_eq!(harness.read(3), block(1));
}
