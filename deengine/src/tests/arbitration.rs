// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands that find the firmware busy: who is next, and what becomes of commands that never are.

use super::*;

const ADMIN: QueueKey = QueueKey(100);
const URGENT: QueueKey = QueueKey(101);
const HIGH: QueueKey = QueueKey(102);
const MEDIUM: QueueKey = QueueKey(103);
const LOW: QueueKey = QueueKey(104);
const CC_WEIGHTED: u64 = 1 << 11;

fn set_cc(harness: &mut Harness, value: u64) -> Option<Refusal> {
    let fields = PropertyFields { offset: property::CC.into(), value: value.into(), ..Default::default() };
    harness.refused(ADMIN, command(fctype::PROPERTY_SET, &fields))
}

/// Client 10 with a queue of each class; its CC has `cc` beside the enable bit.
fn harness(cc: u64) -> Harness {
    let mut harness = Harness::timed();
    harness.chmod(|entry| entry.any_reader = true);
    let identity = Identity::Client(client(10));
    let cntlid = u16::try_from(harness.connect(ADMIN, 0, identity, CNTLID_ANY).dw0.get()).unwrap();
    assert_eq!(set_cc(&mut harness, property::CC_ENABLE | cc), None);
    for (class, key) in [URGENT, HIGH, MEDIUM, LOW].into_iter().enumerate() {
        let qid = u16::try_from(class + 1).unwrap();
        harness.open(key, qid, 64);
        let cattr = u8::try_from(class).unwrap();
        let fields = ConnectFields { qid: qid.into(), sqsize_z: 63.into(), cattr, ..Default::default() };
        let data = ConnectData::new(identity, cntlid, &ssd_subnqn(0));
        assert_eq!(refusal(&harness.connect_with(key, fields, &data)), None);
    }
    harness.hold = true;
    harness.completions.clear();
    harness
}

fn reads(harness: &mut Harness, key: QueueKey, count: u32) -> Vec<u16> {
    (0..count)
        .map(|index| {
            let mut sqe = harness.io(io::READ, key, index, 1);
            sqe.dptr = KeyedSgl::keyed(u64::from(index) * 4096, 4096, KEY);
            harness.submit(key, sqe)
        })
        .collect()
}

/// Lets the firmware take everything; the queues in the order in which it did.
fn order(harness: &mut Harness) -> Vec<QueueKey> {
    let end = harness.now + Span::from_ms(10);
    harness.step_to(end);
    harness
        .held
        .iter()
        .map(|effect| if let Effect::Push { queue, .. } = *effect { queue } else { panic!() })
        .collect()
}

#[test]
fn classes_share_by_their_weights_behind_the_urgent_one() {
    let mut harness = harness(CC_WEIGHTED);
    reads(&mut harness, LOW, 20);
    reads(&mut harness, MEDIUM, 20);
    reads(&mut harness, HIGH, 20);
    reads(&mut harness, URGENT, 3);
    let order = order(&mut harness);
    // The first found the firmware free.
    assert_eq!(order[..4], [LOW, URGENT, URGENT, URGENT]);
    let count =
        |range: std::ops::Range<usize>, key| order[range].iter().filter(|&&queue| queue == key).count();
    for round in 0..2 {
        let range = 4 + round * 14..18 + round * 14;
        let states = [HIGH, MEDIUM, LOW].map(|key| count(range.clone(), key));
        assert_eq!(states, [8, 4, 2], "round {round}");
    }
    assert_eq!(order.len(), 63);
}

#[test]
fn weights_are_what_the_host_has_set() {
    let mut harness = harness(CC_WEIGHTED);
    let set = Sqe { cdw10: 1.into(), cdw11: (3 << 16 | 3 << 8).into(), ..sqe(admin::SET_FEATURES) };
    assert_eq!(harness.refused(ADMIN, set), None);
    for key in [LOW, MEDIUM, HIGH] {
        reads(&mut harness, key, 20);
    }
    let order = order(&mut harness);
    let states = [HIGH, MEDIUM, LOW].map(|key| order[1..28].iter().filter(|&&queue| queue == key).count());
    assert_eq!(states, [3, 12, 12]);
}

#[test]
fn plain_round_robin_has_no_classes_and_starves_no_queue() {
    let mut harness = harness(0);
    reads(&mut harness, URGENT, 40);
    reads(&mut harness, LOW, 5);
    reads(&mut harness, READER, 5);
    let order = order(&mut harness);
    // Controllers take turns, and within controller 10 its queues do.
    let late = order.iter().rposition(|&queue| queue == LOW).unwrap();
    assert!(late <= 1 + 5 + 10, "{order:?}");
    let reader = order.iter().rposition(|&queue| queue == READER).unwrap();
    // A worker with as many waiting as the first takes up to sixteen at once.
    assert!(reader <= 1 + 10 + 16, "{order:?}");
    assert_eq!(order.len(), 50);
}

/// Client `raw` with so many controllers, each with an I/O queue. Returns the I/O queues. All are on the same
/// worker as [`READER`].
fn with_controllers(harness: &mut Harness, raw: u16, count: u32, cc: u64) -> Vec<QueueKey> {
    let identity = Identity::Client(client(raw));
    let place = |nth: u32| QueueKey(3 * (100 * u32::from(raw) + nth) + READER.0 % 3);
    let queues = (0..count).map(|nth| {
        let (admin, queue) = (place(2 * nth), place(2 * nth + 1));
        let cntlid = u16::try_from(harness.connect(admin, 0, identity, CNTLID_ANY).dw0.get()).unwrap();
        let value = (property::CC_ENABLE | cc).into();
        let fields = PropertyFields { offset: property::CC.into(), value, ..Default::default() };
        assert_eq!(harness.refused(admin, command(fctype::PROPERTY_SET, &fields)), None);
        assert_eq!(refusal(&harness.connect(queue, 1, identity, cntlid)), None);
        queue
    });
    queues.collect()
}

/// A client of many controllers has no more turns than one with a single one.
#[test]
fn clients_take_turns_however_many_controllers_each_has() {
    for cc in [0, CC_WEIGHTED] {
        let mut harness = Harness::timed();
        harness.chmod(|entry| entry.any_reader = true);
        let many = with_controllers(&mut harness, 10, if cc == 0 { 40 } else { 16 }, cc);
        harness.hold = true;
        let address = Address { client: client(10), vid: vid(VOLUME), vba: 1 };
        for &queue in &many {
            for _ in 0..4 {
                let mut sqe = harness.io(io::READ, queue, 1, 1);
                let read = ReadWrite::decode(&sqe);
                ReadWrite { slba: Slba::pack(address), ..read }.encode(&mut sqe);
                harness.submit(queue, sqe);
            }
        }
        reads(&mut harness, READER, 30);
        let order = order(&mut harness);
        let own = order[..60].iter().filter(|&&queue| queue == READER).count();
        assert!((28..=30).contains(&own), "{own} of the first 60 commands: {order:?}");
        // Within the client its controllers take turns.
        let first: std::collections::BTreeSet<QueueKey> =
            order.iter().copied().filter(|&queue| queue != READER).take(many.len()).collect();
        assert!(first.len() >= many.len() - 1, "{} of {} controllers", first.len(), many.len());
        assert_eq!(order.len(), 4 * many.len() + 30);
    }
}

/// Every worker looks at the shared orders of all of them.
#[test]
fn a_client_has_a_bounded_number_of_controllers_with_weighted_round_robin() {
    let mut harness = Harness::timed();
    with_controllers(&mut harness, 10, 16, CC_WEIGHTED);
    let other = Identity::Client(client(11));
    for (identity, refused) in [(Identity::Client(client(10)), Some(Refusal::InvalidField)), (other, None)] {
        harness.connect(ADMIN, 0, identity, CNTLID_ANY);
        assert_eq!(set_cc(&mut harness, property::CC_ENABLE | CC_WEIGHTED), refused);
        assert_eq!(set_cc(&mut harness, 0), None);
        assert_eq!(set_cc(&mut harness, property::CC_ENABLE), None, "plain round robin is not counted");
        harness.memory.remove(&ADMIN);
        harness.close_queue(harness.now, ADMIN);
    }
}

#[test]
fn reads_and_writes_that_wait_take_turns() {
    let mut harness = Harness::timed();
    for vba in 0..20 {
        for (key, verb) in [(READER, io::READ), (WRITER, io::WRITE)] {
            let sqe = harness.io(verb, key, vba, 1);
            harness.submit(key, sqe);
        }
    }
    let end = harness.now + Span::from_ms(10);
    harness.step_to(end);
    let is_read: Vec<bool> =
        harness.completions.iter().rev().take(40).map(|done| done.queue == READER).collect();
    assert_eq!(is_read.len(), 40);
    for ten in is_read.chunks(10).take(3) {
        let count = ten.iter().filter(|&&is_read| is_read).count();
        assert!((4..=6).contains(&count), "{is_read:?}");
    }
}

#[test]
fn the_data_of_a_write_is_pulled_while_the_firmware_is_busy() {
    const AT_MOST: usize = 256;
    let mut harness = Harness::timed();
    harness.hold = true;
    let before = harness.now;
    for index in 0..60 {
        let sqe = harness.io(io::WRITE, WRITER, 8 * (index % 32), 8);
        harness.submit(WRITER, sqe);
    }
    assert_eq!(harness.now, before, "no time has passed");
    // The first found the firmware free.
    assert_eq!(harness.held.len(), AT_MOST + 8, "and no more: the rest waits where it came from");
    harness.hold = false;
    harness.release(|_| 0);
    let end = harness.now + Span::from_ms(10);
    harness.step_to(end);
    assert_eq!(harness.in_flight(), 0);
    assert_eq!(harness.worker(WRITER).writes_done(), 60);
}

#[test]
fn an_urgent_class_goes_before_its_own_host_only() {
    let mut harness = harness(CC_WEIGHTED);
    reads(&mut harness, URGENT, 40);
    reads(&mut harness, LOW, 1);
    reads(&mut harness, READER, 3);
    let order = order(&mut harness);
    assert_eq!(order.iter().position(|&queue| queue == LOW), Some(43));
    assert!(order[..7].iter().filter(|&&queue| queue == READER).count() == 3, "{order:?}");
}

#[test]
fn admin_commands_wait_for_no_other() {
    let mut harness = harness(CC_WEIGHTED);
    let read = reads(&mut harness, URGENT, 10);
    assert_eq!((harness.held.len(), harness.waiting()), (1, 9), "the firmware is busy");
    assert_eq!(refusal(&harness.run(ADMIN, sqe(admin::KEEP_ALIVE))), None);
    assert_eq!((harness.held.len(), harness.in_flight()), (1, 10));
    let at = harness.next_event().unwrap();
    harness.step_to(at);
    assert_eq!(harness.held.len(), 2, "and they take no time of the firmware");
    assert_eq!(read.len(), 10);
}

#[test]
fn the_commands_of_a_queue_keep_their_order() {
    let mut harness = harness(CC_WEIGHTED);
    for _ in 0..3 {
        reads(&mut harness, LOW, 15);
        reads(&mut harness, HIGH, 15);
    }
    order(&mut harness);
    for key in [LOW, HIGH] {
        let addresses: Vec<u64> = harness
            .held
            .iter()
            .filter_map(|effect| match *effect {
                Effect::Push { queue, remote, .. } if queue == key => Some(remote.address / 4096),
                _ => None,
            })
            .collect();
        assert_eq!(addresses, [0..15u64, 0..15, 0..15].into_iter().flatten().collect::<Vec<_>>());
    }
}

#[test]
fn a_waiting_command_has_not_moved_the_head_of_its_queue() {
    let mut harness = harness(0);
    let ids = reads(&mut harness, READER, 4);
    harness.hold = false;
    harness.release(|_| 0);
    // Connect and the first read have been fetched.
    assert_eq!(harness.take(READER, ids[0]).unwrap().sqhd.get(), 2);
    let end = harness.now + Span::from_ms(1);
    harness.step_to(end);
    for (at, &cid) in (3u16..).zip(&ids[1..]) {
        assert_eq!(harness.take(READER, cid).unwrap().sqhd.get(), at);
    }
}

#[test]
fn waiting_commands_die_with_their_queue_or_their_controller() {
    let mut harness = harness(CC_WEIGHTED);
    for key in [LOW, HIGH, URGENT, READER] {
        reads(&mut harness, key, 5);
    }
    assert_eq!(harness.in_flight(), 20);
    harness.memory.remove(&HIGH);
    harness.close_queue(harness.now, HIGH);
    assert_eq!((harness.in_flight(), harness.stats().permits_forfeited), (15, 5));
    harness.memory.remove(&ADMIN);
    harness.close_queue(harness.now, ADMIN);
    harness.pump();
    // They are on several workers: in no order.
    harness.closed.sort_unstable();
    assert_eq!(harness.closed, [URGENT, MEDIUM, LOW]);
    // One read of the first queue was under way: its transfer is still awaited.
    assert_eq!((harness.in_flight(), harness.stats().permits_forfeited), (6, 15));
    let order = order(&mut harness);
    assert_eq!(order, [LOW, READER, READER, READER, READER, READER]);
    harness.release(|_| 0);
    assert_eq!((harness.in_flight(), harness.waiting()), (0, 0));
}

#[test]
fn what_comes_behind_disconnect_is_out_of_sequence() {
    let mut harness = harness(0);
    reads(&mut harness, LOW, 1);
    let end = harness.submit(LOW, command(fctype::DISCONNECT, &PropertyFields::default()));
    let late = reads(&mut harness, LOW, 2);
    order(&mut harness);
    assert_eq!(refusal(&harness.take(LOW, end).unwrap()), None);
    for cid in late {
        assert_eq!(refusal(&harness.take(LOW, cid).unwrap()), Some(Refusal::SequenceError));
    }
}

#[test]
fn the_mechanism_is_checked_when_a_controller_is_enabled() {
    let mut harness = harness(0);
    harness.hold = false;
    assert_eq!(
        set_cc(&mut harness, property::CC_ENABLE | CC_WEIGHTED),
        Some(Refusal::InvalidField),
        "not while enabled"
    );
    assert_eq!(set_cc(&mut harness, 0), None);
    for ams in [2, 3, 7] {
        assert_eq!(set_cc(&mut harness, property::CC_ENABLE | ams << 11), Some(Refusal::InvalidField));
    }
    assert_eq!(set_cc(&mut harness, property::CC_ENABLE | CC_WEIGHTED), None);
    let fields = PropertyFields { attrib: 1, offset: property::CAP.into(), ..Default::default() };
    let cap = harness.run(ADMIN, command(fctype::PROPERTY_GET, &fields));
    assert_eq!(cap.dw0.get() >> 17 & 3, 1, "CAP.AMS");
}

#[test]
fn a_late_step_changes_no_modelled_time() {
    let ends = |late: bool| {
        let mut harness = harness(CC_WEIGHTED);
        for key in [LOW, HIGH, MEDIUM, URGENT] {
            reads(&mut harness, key, 10);
        }
        harness.hold = false;
        if late {
            harness.advance(Span::from_ms(5));
            // The turn passes from worker to worker, so each of them is called more than once.
            harness.step_to(harness.now);
        } else {
            order(&mut harness);
        }
        harness.release(|_| 0);
        let mut ends: Vec<(QueueKey, u16, Time)> =
            harness.completions.iter().map(|c| (c.queue, c.cqe.cid.get(), c.at)).collect();
        ends.sort_unstable();
        ends
    };
    assert_eq!(ends(true), ends(false));
    assert_eq!(ends(true).len(), 40);
}

#[test]
fn with_a_preset_that_takes_no_time_nothing_waits() {
    let mut harness = Harness::new();
    harness.hold = true;
    for _ in 0..50 {
        let sqe = harness.io(io::READ, READER, 0, 1);
        harness.submit(READER, sqe);
    }
    assert_eq!((harness.held.len(), harness.waiting()), (50, 0));
}
