// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CLIENT END: what earlier holders of a client id have at an SSD ends, also where the present one never was.

use super::*;
use gnstor_base::time::Span;
use gnstor_proto::client_end::ClientEnd;
use gnstor_proto::ssd_identity::KnownOpening;

/// Queues of a second and a third host.
const NEWER: QueueKey = QueueKey(210);
const LATE: QueueKey = QueueKey(220);
const TERM: u64 = 5;

/// An SSD with a manager key, a proven daemon of term 5, and a volume that each client may read.
fn harness() -> Harness {
    let mut harness = asking(Group::Null);
    proven(&mut harness, DAEMON, Host::from(Identity::Daemon));
    harness.set_map(&FleetMap::equal(1, 64, 7, TERM).unwrap());
    let entry = VolumeEntry { any_reader: true, term: TERM, ..entry(VOLUME) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &entry)), None);
    harness
}

/// A client with an admin and an I/O queue.
fn connected(harness: &mut Harness, admin: QueueKey, queue: QueueKey, host: Host) {
    let (cntlid, session) = proven(harness, admin, host);
    let proof = session.prove(cntlid, 1, 1);
    assert_eq!(connect_io(harness, queue, host, cntlid, proof.as_bytes()), None);
}

fn end(raw: u16, serial: u64) -> Sqe {
    Sqe { flags: FLAGS_SGL, ..ClientEnd { client: client(raw), serial, term: TERM }.command() }
}

fn read(harness: &mut Harness) -> Option<Refusal> {
    let sqe = harness.io(io::READ, QUEUE, 0, 1);
    harness.refused(QUEUE, sqe)
}

#[test]
fn the_queues_and_the_secret_of_an_earlier_holder_end_and_nothing_else_does() {
    let mut harness = harness();
    connected(&mut harness, ADMIN, QUEUE, host(20, 3));
    connected(&mut harness, OTHER, QueueKey(301), host(30, 2));
    // A host that has not proven itself yet would be let in later.
    begin(&mut harness, LATE, host(20, 3));
    assert_eq!(read(&mut harness), None);
    for _ in 0..2 {
        // The second time there is nothing left to do, and that is no error.
        assert_eq!(harness.refused(DAEMON, end(20, 4)), None);
        let mut closed = harness.closed.clone();
        closed.sort_unstable();
        assert_eq!(closed, [ADMIN, QUEUE, LATE]);
    }
    assert_eq!(refusal(&begin(&mut harness, SECOND, host(20, 3))), Some(Refusal::ConnectRefused));
    assert!(harness.role(OTHER).is_some(), "ids have serials of their own");
    let secret = manager_key().of_host(&host(20, 4).nqn());
    begin(&mut harness, NEWER, host(20, 4));
    prove(&mut harness, NEWER, host(20, 4), secret).expect("the present holder is let in");
}

#[test]
fn the_present_holder_and_later_ones_keep_their_queues() {
    let mut harness = harness();
    connected(&mut harness, ADMIN, QUEUE, host(20, 4));
    assert_eq!(harness.refused(DAEMON, end(20, 4)), None);
    // What an earlier daemon meant does not end what a later one gave, and takes nothing back.
    assert_eq!(harness.refused(DAEMON, end(20, 3)), None);
    assert_eq!((harness.closed.len(), read(&mut harness)), (0, None));
    assert_eq!(refusal(&begin(&mut harness, SECOND, host(20, 3))), Some(Refusal::ConnectRefused));
}

#[test]
fn only_a_daemon_of_the_newest_term_ends_clients_and_only_by_a_valid_command() {
    let mut harness = harness();
    connected(&mut harness, ADMIN, QUEUE, host(20, 3));
    proven(&mut harness, OTHER, Host::from(Identity::Peer(1)));
    for queue in [ADMIN, OTHER] {
        assert_eq!(harness.refused(queue, end(20, 9)), Some(Refusal::NotTheDaemon));
    }
    let older = ClientEnd { client: client(20), serial: 9, term: TERM - 1 }.command();
    let older = Sqe { flags: FLAGS_SGL, ..older };
    assert_eq!(harness.refused(DAEMON, older), Some(Refusal::StaleTerm));
    assert_eq!(harness.refused(DAEMON, end(20, 0)), Some(Refusal::InvalidField));
    let of_no_id = Sqe { cdw12: 0.into(), ..end(20, 9) };
    assert_eq!(harness.refused(DAEMON, of_no_id), Some(Refusal::InvalidField));
    assert_eq!((harness.closed.len(), read(&mut harness)), (0, None));
    begin(&mut harness, NEWER, host(20, 3));
    assert!(harness.role(NEWER).is_some(), "its secret is believed as before");
}

/// The worker of the queue runs on a thread of its own, and hears of the end some time later.
#[test]
fn a_worker_that_has_not_closed_the_queue_yet_begins_no_read_for_the_earlier_holder() {
    let mut harness = harness();
    connected(&mut harness, ADMIN, QUEUE, host(20, 3));
    assert_ne!(worker_of(DAEMON), worker_of(QUEUE));
    harness.capsule(harness.now, DAEMON, &end(20, 4));
    let answered = harness.worker(DAEMON).pop_effect();
    assert!(matches!(answered, Some(Effect::Complete { queue: DAEMON, .. })), "{answered:?}");
    let sqe = harness.io(io::READ, QUEUE, 0, 1);
    harness.capsule(harness.now, QUEUE, &sqe);
    let next = harness.worker(QUEUE).pop_effect();
    assert!(matches!(next, Some(Effect::Close { queue: QUEUE })), "{next:?}");
    assert_eq!(harness.stats().late_capsules, 1);
}

/// What the worker of the daemon's queue does, and no other one.
fn run_daemon(harness: &mut Harness) -> usize {
    let mut completed = 0;
    while let Some(effect) = harness.worker(DAEMON).pop_effect() {
        match effect {
            Effect::Complete { queue: DAEMON, cqe, .. } => {
                assert_eq!(refusal(&cqe), None);
                completed += 1;
            }
            Effect::Pull { queue: DAEMON, .. } => {
                let (transfer, outcome) = harness.moved(effect);
                let now = harness.now;
                harness.worker(DAEMON).transferred(now, transfer, outcome);
            }
            other => panic!("another effect: {other:?}"),
        }
    }
    completed
}

/// The worker may not have closed the queue yet when the write's data comes.
#[test]
fn a_write_of_the_earlier_holder_that_is_under_way_is_none_of_the_present_holder() {
    for is_late in [false, true] {
        let mut harness = harness();
        let written = VolumeEntry { writer: Some(client(20)), any_reader: true, term: TERM, ..entry(VOLUME) };
        let written = VolumeEntry { version: 2, ..written };
        assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_CHMOD, &written)), None);
        connected(&mut harness, ADMIN, QUEUE, host(20, 3));
        harness.hold = true;
        harness.poke(QUEUE, 0, &block(2));
        let sqe = harness.io(io::WRITE, QUEUE, 0, 1);
        harness.submit(QUEUE, sqe);
        let data = harness.held.pop().expect("its data is on the way");
        harness.capsule(harness.now, DAEMON, &end(20, 4));
        assert_eq!(run_daemon(&mut harness), 1, "it waits for no write");
        let arrives = |harness: &mut Harness| {
            let (transfer, outcome) = harness.moved(data);
            let now = harness.now;
            harness.worker(QUEUE).transferred(now, transfer, outcome);
        };
        let next = VolumeEntry { version: 3, lease_epoch: LEASE + 1, ..written };
        let sqe = harness.daemon_sqe(opcode::VOLUME_CHMOD, next.encode().as_bytes());
        if is_late {
            harness.capsule(harness.now, DAEMON, &sqe);
            run_daemon(&mut harness);
            arrives(&mut harness);
        } else {
            arrives(&mut harness);
            harness.capsule(harness.now, DAEMON, &sqe);
        }
        harness.hold = false;
        harness.pump();
        let version = harness.ssd().table.volume(vid(VOLUME)).expect("it is there").entry().version;
        assert_eq!((version, harness.closed.contains(&QUEUE)), (3, true));
        let before = harness.mapped_blocks();
        harness.advance(Span::from_ms(100));
        assert_eq!(harness.mapped_blocks(), before, "nothing comes after the entry");
        assert!(!is_late || before == 0, "the entry has another lease epoch");
    }
}

/// The daemon says which number of openings it knows. Returns the SSD's own.
fn opening(harness: &mut Harness, known: u32) -> u32 {
    let cid = harness.submit(DAEMON, Sqe { flags: FLAGS_SGL, ..KnownOpening(known).command() });
    let end = harness.now + Span::from_ms(100);
    loop {
        if let Some(cqe) = harness.take(DAEMON, cid) {
            assert_eq!(refusal(&cqe), None);
            return cqe.dw0.get();
        }
        assert!(harness.now < end, "OPENING never completes");
        harness.advance(Span::from_ms(1));
    }
}

/// A limit of decision 77: the second OPENING, which lets the SSD serve, waits for no CLIENT END.
#[test]
fn without_voters_an_ssd_that_serves_before_it_has_heard_a_client_end_believes_the_earlier_holder() {
    let (kept, mut harness) = Kept::new();
    ask(&harness);
    let named = VolumeEntry { version: 2, readers: vec![client(20)], ..entry(VOLUME) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_CHMOD, &named)), None);
    assert_eq!(harness.refused(DAEMON, end(20, 4)), None);
    assert_eq!(refusal(&begin(&mut harness, OTHER, host(20, 3))), Some(Refusal::ConnectRefused));

    let mut harness = kept.restart_with_dump(harness);
    ask(&harness);
    harness.ssd().await_opening(1);
    connected(&mut harness, ADMIN, QUEUE, host(20, 3));
    assert_eq!(read(&mut harness), Some(Refusal::NotServing));
    let number = opening(&mut harness, 0);
    assert_eq!(opening(&mut harness, number), number);
    assert_eq!(read(&mut harness), None, "by the entry, which names the present holder");
    // The CLIENT END comes at last.
    assert_eq!(harness.refused(DAEMON, end(20, 4)), None);
    let mut closed = harness.closed.clone();
    closed.sort_unstable();
    assert_eq!(closed, [ADMIN, QUEUE]);
    assert_eq!(refusal(&begin(&mut harness, OTHER, host(20, 3))), Some(Refusal::ConnectRefused));
}

#[test]
fn an_ssd_without_a_manager_key_ends_nothing() {
    let mut harness = Harness::new();
    assert_eq!(harness.refused(DAEMON, end(7, 9)), None);
    assert_eq!((harness.closed.len(), harness.read(0)), (0, vec![0; BLOCK]));
}
