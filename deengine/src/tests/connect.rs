// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections: who gets a queue, what ends one, and the admin commands of the specification.

use super::*;
use gnstor_proto::fabrics::cm_reject;
use gnstor_proto::nvme::{IdentifyController, cns};

const ADMIN: QueueKey = QueueKey(200);
const QUEUE: QueueKey = QueueKey(201);

fn ten() -> Identity {
    Identity::Client(client(10))
}

fn fields(qid: u16) -> ConnectFields {
    ConnectFields { qid: qid.into(), sqsize_z: 31.into(), ..Default::default() }
}

fn property_get(harness: &mut Harness, offset: u32, attrib: u8) -> Cqe {
    harness.run(
        ADMIN,
        command(
            fctype::PROPERTY_GET,
            &PropertyFields { attrib, offset: offset.into(), ..Default::default() },
        ),
    )
}

#[test]
fn the_transport_level_request_is_checked() {
    let mut harness = Harness::bare(0, 16);
    let good = CmRequest { hrqsize: 8.into(), hsqsize_z: 7.into(), ..Default::default() };
    let cases = [
        (CmRequest { recfmt: 1.into(), ..good }, cm_reject::INVALID_RECFMT),
        (CmRequest { qid: 2000.into(), ..good }, cm_reject::INVALID_QID),
        (CmRequest { hsqsize_z: 0.into(), ..good }, cm_reject::INVALID_HSQSIZE),
        (CmRequest { hsqsize_z: 5000.into(), ..good }, cm_reject::INVALID_HSQSIZE),
        (CmRequest { hsqsize_z: 64.into(), ..good }, cm_reject::INVALID_HSQSIZE),
        (CmRequest { hrqsize: 0.into(), ..good }, cm_reject::INVALID_HRQSIZE),
    ];
    for (request, reason) in cases {
        assert_eq!(harness.open_queue(harness.now, ADMIN, &request), Err(reason));
    }
    assert_eq!(harness.open_queue(harness.now, ADMIN, &good), Ok(()));
    assert_eq!(harness.open_queue(harness.now, ADMIN, &good), Err(cm_reject::NO_RESOURCES));
}

#[test]
fn nothing_but_connect_comes_first() {
    let mut harness = Harness::new();
    harness.open(ADMIN, 0, 32);
    for opcode in [admin::IDENTIFY, io::READ, opcode::VOLUME_ADD] {
        assert_eq!(harness.refused(ADMIN, sqe(opcode)), Some(Refusal::SequenceError));
    }
    assert_eq!(refusal(&property_get(&mut harness, property::VS, 0)), Some(Refusal::SequenceError));
}

#[test]
fn connect_refuses_strange_hosts_and_wrong_parameters_and_lets_them_try_again() {
    let mut harness = Harness::new();
    harness.open(ADMIN, 0, 32);
    let good = ConnectData::new(ten(), CNTLID_ANY, &ssd_subnqn(0));
    let mut stranger = good;
    stranger.hostnqn = [0; 256];
    stranger.hostnqn[..3].copy_from_slice(b"nqn");
    let cases = [
        (fields(1), good, Refusal::ConnectInvalid),
        (ConnectFields { sqsize_z: 32.into(), ..fields(0) }, good, Refusal::ConnectInvalid),
        (ConnectFields { sqsize_z: 0.into(), ..fields(0) }, good, Refusal::ConnectInvalid),
        (ConnectFields { recfmt: 1.into(), ..fields(0) }, good, Refusal::ConnectInvalid),
        (fields(0), ConnectData::new(ten(), CNTLID_ANY, &ssd_subnqn(1)), Refusal::ConnectInvalid),
        (fields(0), ConnectData::new(ten(), 1, &ssd_subnqn(0)), Refusal::ConnectInvalid),
        (fields(0), stranger, Refusal::ConnectRefused),
    ];
    for (fields, data, want) in cases {
        assert_eq!(refusal(&harness.connect_with(ADMIN, fields, &data)), Some(want));
    }
    let cqe = harness.connect_with(ADMIN, fields(0), &good);
    assert_eq!(refusal(&cqe), None);
    assert_ne!(cqe.dw0.get(), 0, "the controller's id");
    assert_eq!(
        refusal(&harness.connect_with(ADMIN, fields(0), &good)),
        Some(Refusal::SequenceError),
        "only once"
    );
}

#[test]
fn an_io_queue_needs_a_live_enabled_controller_of_the_same_identity() {
    let mut harness = Harness::new();
    let cqe = harness.connect(ADMIN, 0, ten(), CNTLID_ANY);
    let cntlid = u16::try_from(cqe.dw0.get()).unwrap();
    harness.open(QUEUE, 1, 32);
    let attempt = |harness: &mut Harness, identity, cntlid| {
        let data = ConnectData::new(identity, cntlid, &ssd_subnqn(0));
        refusal(&harness.connect_with(QUEUE, fields(1), &data))
    };
    assert_eq!(attempt(&mut harness, ten(), cntlid), Some(Refusal::SequenceError), "not enabled");
    harness.enable(ADMIN);
    assert_eq!(attempt(&mut harness, ten(), 999), Some(Refusal::ConnectInvalid));
    assert_eq!(attempt(&mut harness, ten(), 0), Some(Refusal::ConnectInvalid));
    assert_eq!(attempt(&mut harness, Identity::Daemon, cntlid), Some(Refusal::ConnectRefused));
    assert_eq!(attempt(&mut harness, ten(), cntlid), None);
    harness.open(QueueKey(202), 1, 32);
    let data = ConnectData::new(ten(), cntlid, &ssd_subnqn(0));
    let twice = harness.connect_with(QueueKey(202), fields(1), &data);
    assert_eq!(refusal(&twice), Some(Refusal::ConnectInvalid), "the queue id is taken");
}

#[test]
fn the_properties_tell_the_controllers_state() {
    let mut harness = Harness::new();
    harness.connect(ADMIN, 0, ten(), CNTLID_ANY);
    let cap = property_get(&mut harness, property::CAP, 1);
    assert_eq!(cap.dw0.get() & 0xFFFF, 1023, "MQES");
    assert_eq!(cap.dw1.get() & 1 << 5, 1 << 5, "the NVM command set");
    assert_eq!(property_get(&mut harness, property::VS, 0).dw0.get(), 0x0002_0000);
    assert_eq!(property_get(&mut harness, property::CSTS, 0).dw0.get(), 0);
    harness.enable(ADMIN);
    assert_eq!(property_get(&mut harness, property::CSTS, 0).dw0.get(), 1);
    for (offset, attrib) in [(property::CAP, 0), (property::VS, 1), (0x20, 0)] {
        assert_eq!(refusal(&property_get(&mut harness, offset, attrib)), Some(Refusal::InvalidField));
    }
}

#[test]
fn disabling_a_controller_closes_its_io_queues_only() {
    let mut harness = Harness::new();
    let off = PropertyFields { offset: property::CC.into(), ..Default::default() };
    assert_eq!(harness.refused(QueueKey(80), command(fctype::PROPERTY_SET, &off)), None);
    assert_eq!(harness.closed, [READER]);
    harness.enable(QueueKey(80));
}

#[test]
fn a_host_that_stops_its_keep_alive_loses_all_its_queues() {
    let mut harness = Harness::new();
    harness.open(ADMIN, 0, 32);
    let data = ConnectData::new(ten(), CNTLID_ANY, &ssd_subnqn(0));
    let cqe = harness.connect_with(ADMIN, ConnectFields { kato_ms: 1000.into(), ..fields(0) }, &data);
    harness.enable(ADMIN);
    harness.connect(QUEUE, 1, ten(), u16::try_from(cqe.dw0.get()).unwrap());
    for _ in 0..5 {
        harness.advance(Span::from_ms(900));
        assert_eq!(harness.refused(ADMIN, sqe(admin::KEEP_ALIVE)), None);
    }
    assert!(harness.closed.is_empty());
    let end = harness.now + Span::from_ms(1000);
    harness.step_to(end - Span::from_ns(1));
    assert!(harness.closed.is_empty());
    harness.step_to(end);
    assert_eq!(harness.closed, [QUEUE, ADMIN]);
    assert_eq!(harness.stats().queues_closed, 2);
}

/// A machine that vanished says nothing, and no end of its TCP stream is heard.
#[test]
fn a_host_that_asks_for_no_keep_alive_or_for_days_loses_its_queues_after_two_minutes() {
    for (asked_ms, later_ms) in [(0, None), (u32::MAX, None), (1000, Some(0)), (1000, Some(u32::MAX))] {
        let mut harness = Harness::new();
        harness.open(ADMIN, 0, 32);
        let data = ConnectData::new(ten(), CNTLID_ANY, &ssd_subnqn(0));
        harness.connect_with(ADMIN, ConnectFields { kato_ms: asked_ms.into(), ..fields(0) }, &data);
        harness.enable(ADMIN);
        if let Some(ms) = later_ms {
            let mut set = sqe(admin::SET_FEATURES);
            (set.cdw10, set.cdw11) = (0x0F.into(), ms.into());
            assert_eq!(harness.refused(ADMIN, set), None);
        }
        let end = harness.now + Span::from_ms(120_000);
        harness.step_to(end - Span::from_ns(1));
        assert!(!harness.closed.contains(&ADMIN), "{asked_ms} {later_ms:?}");
        harness.step_to(end);
        assert!(harness.closed.contains(&ADMIN), "{asked_ms} {later_ms:?}");
    }
}

/// The hosts of an SSD that stood still could not be heard.
#[test]
fn after_a_pause_of_the_ssd_each_host_has_its_keep_alive_timeout_anew() {
    let mut harness = Harness::new();
    harness.open(ADMIN, 0, 32);
    let data = ConnectData::new(ten(), CNTLID_ANY, &ssd_subnqn(0));
    harness.connect_with(ADMIN, ConnectFields { kato_ms: 1000.into(), ..fields(0) }, &data);
    harness.advance_alive(Span::from_ms(20_000));
    let now = harness.now;
    assert!(harness.closed.is_empty());
    harness.step_to(now + Span::from_ms(999));
    assert!(harness.closed.is_empty());
    harness.step_to(now + Span::from_ms(1000));
    assert_eq!(harness.closed, [ADMIN]);
}

#[test]
fn losing_the_admin_queue_closes_the_io_queues() {
    let mut harness = Harness::new();
    harness.memory.remove(&QueueKey(80));
    harness.close_queue(harness.now, QueueKey(80));
    harness.pump();
    assert_eq!(harness.closed, [READER]);
}

#[test]
fn after_disconnect_a_queue_takes_no_commands() {
    let mut harness = Harness::new();
    assert_eq!(harness.refused(READER, command(fctype::DISCONNECT, &PropertyFields::default())), None);
    let sqe = harness.io(io::READ, READER, 0, 1);
    assert_eq!(harness.refused(READER, sqe), Some(Refusal::SequenceError));
    assert_eq!(
        harness.refused(QueueKey(80), command(fctype::DISCONNECT, &PropertyFields::default())),
        Some(Refusal::InvalidField)
    );
}

/// Client 10 with an admin queue whose keep-alive timeout is a second, and I/O queues that said Disconnect.
/// All have the id 1: it is free after each Disconnect.
fn with_ended_queues(ended: &[QueueKey]) -> Harness {
    let mut harness = Harness::new();
    harness.open(ADMIN, 0, 32);
    let data = ConnectData::new(ten(), CNTLID_ANY, &ssd_subnqn(0));
    let cqe = harness.connect_with(ADMIN, ConnectFields { kato_ms: 1000.into(), ..fields(0) }, &data);
    let cntlid = u16::try_from(cqe.dw0.get()).unwrap();
    harness.enable(ADMIN);
    for &key in ended {
        assert_eq!(refusal(&harness.connect(key, 1, ten(), cntlid)), None, "the id is free");
        assert_eq!(harness.refused(key, command(fctype::DISCONNECT, &PropertyFields::default())), None);
    }
    assert!(harness.closed.is_empty(), "the host may close them itself");
    harness
}

/// What a host does, by name.
type Way<'a> = (&'a str, &'a dyn Fn(&mut Harness));

/// Otherwise they would stay for ever, and count against their client's quota.
#[test]
fn queues_end_with_their_controller_after_disconnect_too() {
    let ended = [201, 202, 203].map(QueueKey);
    let off = PropertyFields { offset: property::CC.into(), ..Default::default() };
    let ways: [Way<'_>; 4] = [
        ("keep-alive timeout", &|harness| harness.step_to(harness.now + Span::from_ms(1001))),
        ("end of the admin queue", &|harness| {
            harness.memory.remove(&ADMIN);
            harness.close_queue(harness.now, ADMIN);
            harness.pump();
        }),
        ("controller reset", &|harness| {
            assert_eq!(harness.refused(ADMIN, command(fctype::PROPERTY_SET, &off)), None);
        }),
        ("another host", &|harness| assert!(connect_as(harness, QueueKey(300), 2).is_ok())),
    ];
    for (way, end) in ways {
        let mut harness = with_ended_queues(&ended);
        end(&mut harness);
        for key in ended {
            assert!(harness.closed.contains(&key), "{way}: {key:?} stays");
            assert!(harness.role(key).is_none(), "{way}");
        }
    }
}

#[test]
fn a_host_closes_its_queues_after_disconnect_and_its_controller_goes_on() {
    let mut harness = with_ended_queues(&[QUEUE]);
    harness.memory.remove(&QUEUE);
    harness.close_queue(harness.now, QUEUE);
    assert_eq!(harness.refused(ADMIN, sqe(admin::KEEP_ALIVE)), None);
    harness.step_to(harness.now + Span::from_ms(1001));
    assert_eq!(harness.closed, [ADMIN]);
}

#[test]
fn identify_names_the_ssd_and_its_one_namespace() {
    let mut harness = Harness::new();
    let identify = |cns: u8, nsid: u32| Sqe {
        dptr: KeyedSgl::keyed(0, 4096, KEY),
        nsid: nsid.into(),
        cdw10: u32::from(cns).into(),
        ..sqe(admin::IDENTIFY)
    };
    assert_eq!(harness.refused(DAEMON, identify(cns::CONTROLLER, 0)), None);
    let found = IdentifyController::decode(harness.peek(DAEMON, 0).try_into().unwrap());
    assert_eq!((found.serial.as_str(), found.vwc, found.subnqn), ("GN0001", 0, ssd_subnqn(0)));
    assert_eq!(harness.refused(DAEMON, identify(cns::NAMESPACE, 1)), None);
    assert_eq!(harness.peek(DAEMON, 0)[..4], 1024u32.to_le_bytes());
    assert_eq!(harness.peek(DAEMON, 0)[130], 12);
    assert_eq!(harness.refused(DAEMON, identify(cns::NAMESPACE, 2)), Some(Refusal::InvalidNamespace));
    assert_eq!(harness.refused(DAEMON, identify(cns::ACTIVE_NAMESPACES, 0)), None);
    assert_eq!(harness.peek(DAEMON, 0)[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(harness.refused(DAEMON, identify(0x55, 0)), Some(Refusal::InvalidField));
    let short = Sqe { dptr: KeyedSgl::keyed(0, 512, KEY), ..identify(cns::CONTROLLER, 0) };
    assert_eq!(harness.refused(DAEMON, short), Some(Refusal::InvalidSgl));
}

#[test]
fn features_abort_and_events() {
    let mut harness = Harness::new();
    let feature = |opcode, id: u32, value: u32| Sqe { cdw10: id.into(), cdw11: value.into(), ..sqe(opcode) };
    let queues = harness.run(DAEMON, feature(admin::SET_FEATURES, 7, 0x0003_0003));
    assert_eq!(queues.dw0.get(), 0x03FF_03FF);
    assert_eq!(harness.refused(DAEMON, feature(admin::SET_FEATURES, 0xF, 5000)), None);
    assert_eq!(harness.run(DAEMON, feature(admin::GET_FEATURES, 0xF, 0)).dw0.get(), 5000);
    assert_eq!(harness.refused(DAEMON, feature(admin::GET_FEATURES, 0x99, 0)), Some(Refusal::InvalidField));
    let aborted = harness.run(DAEMON, sqe(admin::ABORT));
    assert_eq!((aborted.status_word(), aborted.dw0.get()), (0, 1));
    for _ in 0..4 {
        let cid = harness.submit(DAEMON, sqe(admin::ASYNC_EVENT_REQUEST));
        assert!(harness.take(DAEMON, cid).is_none(), "held until the queue ends");
    }
    assert_eq!(harness.run(DAEMON, sqe(admin::ASYNC_EVENT_REQUEST)).status_word(), 0x4105);
    assert_eq!(harness.in_flight(), 4);
    harness.close_queue(harness.now, DAEMON);
    assert_eq!((harness.in_flight(), harness.stats().permits_forfeited), (0, 4));
}

/// Connects an admin queue of client 10 as the host with this identifier.
fn connect_as(harness: &mut Harness, key: QueueKey, host_id: u8) -> Result<u16, Refusal> {
    harness.open(key, 0, 64);
    let mut data = ConnectData::new(ten(), CNTLID_ANY, &ssd_subnqn(0));
    data.host_id = [host_id; 16];
    let cqe = harness.connect_with(key, ConnectFields { sqsize_z: 63.into(), ..Default::default() }, &data);
    refusal(&cqe).map_or_else(|| Ok(u16::try_from(cqe.dw0.get()).unwrap()), Err)
}

#[test]
fn a_client_that_comes_back_as_another_host_finds_its_old_queues_gone() {
    let mut harness = Harness::new();
    let [old, beside, back] = [100, 200, 300].map(QueueKey);
    let first = connect_as(&mut harness, old, 1).unwrap();
    harness.enable(old);
    let io_queue = QueueKey(101);
    harness.open(io_queue, 1, 64);
    let mut data = ConnectData::new(ten(), first, &ssd_subnqn(0));
    data.host_id = [2; 16];
    let fields = ConnectFields { qid: 1.into(), sqsize_z: 63.into(), ..Default::default() };
    let cqe = harness.connect_with(io_queue, fields, &data);
    assert_eq!(refusal(&cqe), Some(Refusal::ConnectRefused), "a queue of another host");
    data.host_id = [1; 16];
    let fields = ConnectFields { qid: 1.into(), sqsize_z: 63.into(), ..Default::default() };
    assert_eq!(refusal(&harness.connect_with(io_queue, fields, &data)), None);
    // Several connections of one host may exist at the same time.
    assert!(connect_as(&mut harness, beside, 1).is_ok());
    assert_eq!(harness.closed, []);
    // A write of the old connection is on its way when the client comes back from elsewhere.
    harness.hold = true;
    let late = harness.io(io::READ, READER, 0, 1);
    harness.submit(READER, late);
    harness.hold = false;
    assert!(connect_as(&mut harness, back, 2).is_ok());
    let mut closed = harness.closed.clone();
    closed.sort_unstable();
    assert_eq!(closed, [old, io_queue, beside], "of this client alone, and all of it");
    assert!(harness.role(back).is_some() && harness.role(READER).is_some() && harness.role(DAEMON).is_some());
    // Two daemons differ: the terms decide between them.
    let other = QueueKey(400);
    harness.open(other, 0, 64);
    let mut data = ConnectData::new(Identity::Daemon, CNTLID_ANY, &ssd_subnqn(0));
    data.host_id = [9; 16];
    let fields = ConnectFields { sqsize_z: 63.into(), ..Default::default() };
    assert_eq!(refusal(&harness.connect_with(other, fields, &data)), None);
    assert!(harness.role(DAEMON).is_some());
}
