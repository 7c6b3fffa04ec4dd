// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an SSD with a manager key lets a host do before it has proven who it is, and after.

mod admitted;
mod any_bytes;
mod connect_data;
mod key_holder;
mod replaced;
mod reserve;
mod unlocked;

use super::*;
use crate::Authentication;
use gnstor_auth::message::{MAX_MESSAGE, id};
use gnstor_auth::{Dice, Failure, Group, Host as Prover, Names, Secret, SessionKey};
use gnstor_proto::fabrics::{AUTHENTICATION_REQUIRED, AuthFields, Host};
use proptest::prelude::*;

const ADMIN: QueueKey = QueueKey(200);
const QUEUE: QueueKey = QueueKey(201);
const SECOND: QueueKey = QueueKey(202);
const OTHER: QueueKey = QueueKey(300);

fn manager_key() -> Secret {
    Secret::new([7; 32])
}

fn host(raw: u16, serial: u64) -> Host {
    Host { serial, ..Host::from(Identity::Client(client(raw))) }
}

/// Bytes that never repeat, and are the same in every run of a test.
fn counter() -> impl FnMut(&mut [u8]) + Send {
    let mut next = 0u64;
    move |bytes| {
        for chunk in bytes.chunks_mut(8) {
            next += 1;
            chunk.copy_from_slice(&next.to_le_bytes()[..chunk.len()]);
        }
    }
}

fn asking(group: Group) -> Harness {
    let (harness, random) = (Harness::bare(0, 1024), Box::new(counter()));
    harness.ssd().require_authentication(Authentication { manager_key: manager_key(), group, random });
    harness
}

fn begin(harness: &mut Harness, key: QueueKey, host: Host) -> Cqe {
    harness.open(key, 0, 64);
    let data = ConnectData::new(host, CNTLID_ANY, &ssd_subnqn(0));
    harness.connect_with(key, ConnectFields { sqsize_z: 63.into(), ..Default::default() }, &data)
}

fn auth_sqe(kind: u8, bytes: usize) -> Sqe {
    let bytes = u32::try_from(bytes).unwrap();
    let mut sqe = command(kind, &AuthFields::new(bytes));
    sqe.dptr = KeyedSgl::keyed(0, bytes, KEY);
    sqe
}

fn send(harness: &mut Harness, key: QueueKey, message: &[u8]) -> Option<Refusal> {
    harness.poke(key, 0, message);
    harness.refused(key, auth_sqe(fctype::AUTH_SEND, message.len()))
}

fn receive(harness: &mut Harness, key: QueueKey) -> Vec<u8> {
    assert_eq!(harness.refused(key, auth_sqe(fctype::AUTH_RECV, 512)), None);
    harness.peek(key, 0)[..512].to_vec()
}

fn names(host: Host) -> Names {
    Names { host: host.nqn(), subsystem: ssd_subnqn(0) }
}

fn prover(host: Host, secret: Secret) -> (Prover, Vec<u8>) {
    Prover::begin(names(host), secret, &[Group::Null, Group::Ffdhe2048], 9, Dice::thrown(|b| b.fill(3)))
}

/// The whole run after Connect.
fn prove(harness: &mut Harness, key: QueueKey, host: Host, secret: Secret) -> Result<SessionKey, Failure> {
    let (mut prover, negotiate) = prover(host, secret);
    assert_eq!(send(harness, key, &negotiate), None);
    let reply = prover.on_challenge(&receive(harness, key))?;
    assert_eq!(send(harness, key, &reply), None);
    let (success2, session) = prover.on_success1(&receive(harness, key))?;
    assert_eq!(send(harness, key, &success2), None);
    Ok(session)
}

fn cntlid_of(cqe: &Cqe) -> u16 {
    assert_eq!(refusal(cqe), None);
    assert_eq!(cqe.dw0.get() & !0xFFFF, AUTHENTICATION_REQUIRED);
    u16::try_from(cqe.dw0.get() & 0xFFFF).unwrap()
}

/// A host that has proven who it is, and its session.
fn proven(harness: &mut Harness, key: QueueKey, host: Host) -> (u16, SessionKey) {
    let cntlid = cntlid_of(&begin(harness, key, host));
    let session = prove(harness, key, host, manager_key().of_host(&host.nqn())).expect("the right secret");
    harness.enable(key);
    (cntlid, session)
}

fn connect_io(
    harness: &mut Harness,
    key: QueueKey,
    host: Host,
    cntlid: u16,
    proof: &[u8],
) -> Option<Refusal> {
    if harness.role(key).is_none() {
        harness.open(key, 1, 64);
    }
    let mut data = ConnectData::new(host, cntlid, &ssd_subnqn(0));
    data.proof[..proof.len()].copy_from_slice(proof);
    let fields = ConnectFields { qid: 1.into(), sqsize_z: 63.into(), ..Default::default() };
    refusal(&harness.connect_with(key, fields, &data))
}

#[test]
fn a_host_with_its_secret_gets_in_and_its_queues_serve() {
    for group in [Group::Null, Group::Ffdhe2048] {
        let mut harness = asking(group);
        proven(&mut harness, DAEMON, Host::from(Identity::Daemon));
        harness.set_map(&FleetMap::equal(1, 64, 7, 1).unwrap());
        assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &entry(VOLUME))), None);
        let seven = host(7, 0x1_0000_0001);
        let (cntlid, session) = proven(&mut harness, QueueKey(70), seven);
        let proof = session.prove(cntlid, 1, 1);
        assert_eq!(connect_io(&mut harness, WRITER, seven, cntlid, proof.as_bytes()), None);
        assert_eq!(refusal(&harness.write(3, &[4])), None);
        assert_eq!(harness.read(3), block(4));
    }
}

#[test]
fn before_the_proof_every_other_command_is_refused() {
    let mut harness = asking(Group::Null);
    for host in [host(7, 1), Host::from(Identity::Daemon)] {
        begin(&mut harness, ADMIN, host);
        let set = command(
            fctype::PROPERTY_SET,
            &PropertyFields { offset: property::CC.into(), ..Default::default() },
        );
        let commands = [
            sqe(admin::IDENTIFY),
            sqe(admin::KEEP_ALIVE),
            log_sqe(2, 0, 128, false),
            sqe(opcode::MAP_GET),
            sqe(opcode::VOLUME_ADD),
            sqe(opcode::LEASE_RENEW),
            set,
            command(fctype::CONNECT, &ConnectFields::default()),
            command(fctype::DISCONNECT, &ConnectFields::default()),
        ];
        for sqe in commands {
            assert_eq!(harness.refused(ADMIN, sqe), Some(Refusal::AuthenticationRequired), "{sqe:?}");
        }
        harness.worker(ADMIN).close_queue(Time::ZERO, ADMIN);
    }
}

/// No secret at all, another client's, an older registration's, the client's own for the daemon's name.
#[test]
fn a_host_without_its_own_secret_is_refused_and_its_queue_is_closed() {
    let of = |host: Host| manager_key().of_host(&host.nqn());
    let daemon = Host::from(Identity::Daemon);
    let cases = [
        (host(7, 2), Secret::new([0; 32])),
        (host(7, 2), of(host(8, 2))),
        (host(7, 2), of(host(7, 1))),
        (daemon, of(host(7, 2))),
        (daemon, Secret::new([0; 32])),
    ];
    for (host, secret) in cases {
        let mut harness = asking(Group::Null);
        begin(&mut harness, ADMIN, host);
        assert_eq!(prove(&mut harness, ADMIN, host, secret).unwrap_err(), Failure::Authentication);
        assert_eq!(harness.refused(ADMIN, sqe(opcode::MAP_GET)), Some(Refusal::AuthenticationRequired));
        let (_, again) = prover(host, of(host));
        assert_eq!(send(&mut harness, ADMIN, &again), Some(Refusal::AuthenticationRequired), "no second run");
        harness.advance(Span::from_ms(200));
        assert_eq!(harness.closed, [ADMIN]);
    }
}

#[test]
fn the_host_notices_an_ssd_without_the_manager_key() {
    let harness = Harness::bare(0, 1024);
    let manager_key = Secret::new([9; 32]);
    harness.ssd().require_authentication(Authentication {
        manager_key,
        group: Group::Null,
        random: Box::new(counter()),
    });
    let mut harness = harness;
    begin(&mut harness, ADMIN, host(7, 1));
    let (mut prover, negotiate) = prover(host(7, 1), self::manager_key().of_host(&host(7, 1).nqn()));
    assert_eq!(send(&mut harness, ADMIN, &negotiate), None);
    let reply = prover.on_challenge(&receive(&mut harness, ADMIN)).unwrap();
    assert_eq!(send(&mut harness, ADMIN, &reply), None);
    // It does not know the host's key either, so it says that the host is not proven.
    assert!(prover.on_success1(&receive(&mut harness, ADMIN)).is_err());
}

#[test]
fn a_recorded_run_opens_no_second_queue() {
    let mut harness = asking(Group::Null);
    begin(&mut harness, ADMIN, host(7, 1));
    let (mut prover, negotiate) = prover(host(7, 1), manager_key().of_host(&host(7, 1).nqn()));
    send(&mut harness, ADMIN, &negotiate);
    let first = receive(&mut harness, ADMIN);
    let reply = prover.on_challenge(&first).unwrap();
    send(&mut harness, ADMIN, &reply);
    begin(&mut harness, OTHER, host(7, 1));
    send(&mut harness, OTHER, &negotiate);
    assert_ne!(receive(&mut harness, OTHER)[16..48], first[16..48], "challenges are fresh");
    send(&mut harness, OTHER, &reply);
    assert_eq!(receive(&mut harness, OTHER)[1], id::FAILURE1);
    assert_eq!(harness.role(OTHER).map(|role| matches!(role, Role::Unproven(_))), Some(true));
}

#[test]
fn a_run_that_does_not_end_is_ended() {
    let mut harness = asking(Group::Null);
    begin(&mut harness, ADMIN, host(7, 1));
    harness.advance(Span::from_ms(4999));
    let (_, negotiate) = prover(host(7, 1), Secret::new([0; 32]));
    assert_eq!(send(&mut harness, ADMIN, &negotiate), None);
    assert_eq!(harness.closed, []);
    harness.advance(Span::from_ms(1));
    assert_eq!(harness.closed, [ADMIN]);
    // A host that is proven stays.
    let mut harness = asking(Group::Null);
    proven(&mut harness, ADMIN, host(7, 1));
    harness.advance(Span::from_ms(60_000));
    assert_eq!(harness.closed, []);
}

#[test]
fn an_io_queue_needs_a_fresh_proof_of_its_own_controller() {
    let mut harness = asking(Group::Null);
    let seven = host(7, 1);
    let (cntlid, session) = proven(&mut harness, ADMIN, seven);
    let (other, other_session) = proven(&mut harness, OTHER, seven);
    let good = session.prove(cntlid, 1, 5);
    let cases = [
        (Vec::new(), Refusal::AuthenticationRequired),
        (vec![0xFF; 40], Refusal::ConnectRefused),
        (other_session.prove(other, 1, 5).as_bytes().to_vec(), Refusal::ConnectRefused),
        (other_session.prove(cntlid, 1, 5).as_bytes().to_vec(), Refusal::ConnectRefused),
        (session.prove(cntlid, 2, 5).as_bytes().to_vec(), Refusal::ConnectRefused),
    ];
    for (proof, want) in cases {
        assert_eq!(connect_io(&mut harness, QUEUE, seven, cntlid, &proof), Some(want));
    }
    let eight = connect_io(&mut harness, QUEUE, host(7, 2), cntlid, good.as_bytes());
    assert_eq!(eight, Some(Refusal::ConnectRefused), "another registration");
    assert_eq!(connect_io(&mut harness, QUEUE, seven, cntlid, good.as_bytes()), None);
    // The queue ends. The recorded data of its Connect opens no other queue, nor does an older number.
    harness.worker(QUEUE).close_queue(Time::ZERO, QUEUE);
    assert_eq!(
        connect_io(&mut harness, SECOND, seven, cntlid, good.as_bytes()),
        Some(Refusal::ConnectRefused)
    );
    let older = session.prove(cntlid, 1, 4);
    assert_eq!(
        connect_io(&mut harness, SECOND, seven, cntlid, older.as_bytes()),
        Some(Refusal::ConnectRefused)
    );
    let newer = session.prove(cntlid, 1, 6);
    assert_eq!(connect_io(&mut harness, SECOND, seven, cntlid, newer.as_bytes()), None);
}

#[test]
fn a_controller_that_is_not_proven_gets_no_io_queue() {
    let mut harness = asking(Group::Null);
    let cntlid = cntlid_of(&begin(&mut harness, ADMIN, host(7, 1)));
    let refused = connect_io(&mut harness, QUEUE, host(7, 1), cntlid, &[1; 40]);
    assert_eq!(refused, Some(Refusal::AuthenticationRequired));
}

#[test]
fn an_older_registration_of_an_id_is_refused_once_a_newer_one_is_proven() {
    let mut harness = asking(Group::Null);
    proven(&mut harness, ADMIN, host(7, 3));
    // A newer queue that proves nothing replaces nothing.
    begin(&mut harness, OTHER, host(7, 4));
    assert_eq!(harness.closed, []);
    let newer = manager_key().of_host(&host(7, 4).nqn());
    prove(&mut harness, OTHER, host(7, 4), newer).unwrap();
    assert_eq!(harness.closed, [ADMIN]);
    assert_eq!(refusal(&begin(&mut harness, ADMIN, host(7, 3))), Some(Refusal::ConnectRefused));
    assert_eq!(refusal(&begin(&mut harness, SECOND, host(8, 3))), None, "ids have serials of their own");
}

#[test]
fn a_stranger_with_a_clients_name_does_not_end_its_queues() {
    let mut harness = asking(Group::Null);
    proven(&mut harness, ADMIN, host(7, 3));
    let stranger = Host { id: [9; 16], ..host(7, 3) };
    begin(&mut harness, OTHER, stranger);
    assert!(prove(&mut harness, OTHER, stranger, Secret::new([1; 32])).is_err());
    harness.advance(Span::from_ms(6000));
    assert_eq!(harness.closed, [OTHER]);
}

#[test]
fn commands_of_the_protocol_are_checked() {
    let mut harness = asking(Group::Null);
    begin(&mut harness, ADMIN, host(7, 1));
    let bend = |change: fn(&mut AuthFields)| {
        let mut fields = AuthFields::new(64);
        change(&mut fields);
        let mut sqe = command(fctype::AUTH_SEND, &fields);
        sqe.dptr = KeyedSgl::keyed(0, 64, KEY);
        sqe
    };
    for sqe in [
        bend(|f| f.secp = 0xEA),
        bend(|f| f.spsp0 = 0),
        bend(|f| f.spsp1 = 2),
        bend(|f| f.bytes = 0.into()),
        bend(|f| f.bytes = u32::MAX.into()),
        auth_sqe(fctype::AUTH_SEND, MAX_MESSAGE + 1),
        auth_sqe(fctype::AUTH_RECV, 1 << 20),
    ] {
        assert_eq!(harness.refused(ADMIN, sqe), Some(Refusal::InvalidField));
    }
    assert_eq!(harness.refused(ADMIN, bend(|f| f.bytes = 63.into())), Some(Refusal::InvalidSgl));
    let nothing = harness.refused(ADMIN, auth_sqe(fctype::AUTH_RECV, 512));
    assert_eq!(nothing, Some(Refusal::SequenceError), "there is no answer yet");
    let secret = manager_key().of_host(&host(7, 1).nqn());
    prove(&mut harness, ADMIN, host(7, 1), secret).unwrap();
    assert_eq!(send(&mut harness, ADMIN, &[0; 72]), Some(Refusal::SequenceError), "only once");
}

#[test]
fn an_ssd_without_a_manager_key_asks_for_nothing() {
    let mut harness = Harness::bare(0, 1024);
    assert_eq!(begin(&mut harness, ADMIN, host(7, 1)).dw0.get() & AUTHENTICATION_REQUIRED, 0);
    assert_eq!(harness.admitted.len(), 1);
    assert_eq!(send(&mut harness, ADMIN, &[0; 72]), Some(Refusal::SequenceError));
    harness.enable(ADMIN);
}

#[test]
fn an_ssd_tells_its_first_key_from_others_also_after_a_restart() {
    use crate::KeyMatch;
    let (kept, mut harness) = super::smart_counters::Kept::new();
    let other = Secret::new([8; 32]);
    assert_eq!(harness.ssd().match_key(Some(&other)), KeyMatch::Unset);
    harness.ssd().take_key(&manager_key()).unwrap();
    for _ in 0..2 {
        let ssd = harness.ssd();
        assert_eq!(ssd.match_key(Some(&manager_key())), KeyMatch::Same);
        assert_eq!((ssd.match_key(Some(&other)), ssd.match_key(None)), (KeyMatch::Other, KeyMatch::Missing));
        drop(ssd);
        harness = kept.restart(harness);
    }
    harness.ssd().take_key(&other).unwrap();
    let harness = kept.restart(harness);
    assert_eq!(harness.ssd().match_key(Some(&other)), KeyMatch::Same);
    assert_eq!(harness.ssd().match_key(Some(&manager_key())), KeyMatch::Other);
}

#[test]
fn no_debug_output_shows_a_key() {
    let mut harness = asking(Group::Null);
    proven(&mut harness, ADMIN, host(7, 1));
    let shown = format!("{:?}", *harness.ssd());
    assert!(shown.contains("Authentication"), "the gate is shown");
    for secret in [manager_key(), manager_key().of_host(&host(7, 1).nqn())] {
        let text = secret.to_text();
        assert!(!shown.contains(text.as_str()));
    }
    assert!(!shown.contains("7, 7, 7, 7, 7, 7, 7, 7"), "nor its bytes");
}
