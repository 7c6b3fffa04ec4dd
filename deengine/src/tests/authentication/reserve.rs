// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clients and strangers leave to the daemon and to other SSDs, and to each other.

use super::*;

/// Strangers claim this identity, on queues from this key on. Returns the first one that was refused.
fn claim(harness: &mut Harness, who: Identity, keys: std::ops::Range<u32>) -> Option<Refusal> {
    keys.map(QueueKey).find_map(|key| refusal(&begin(harness, key, Host::from(who))))
}

/// Before a proof a name is a claim only. So the reserve of the daemon cannot be a number of claims.
#[test]
fn strangers_who_claim_to_be_the_daemon_keep_out_neither_daemon_nor_ssd_nor_client() {
    let mut harness = asking(Group::Null);
    // More than there are ids for key holders, and with clients' names more than there are entries.
    assert_eq!(claim(&mut harness, Identity::Daemon, 1000..3000), None);
    assert_eq!(claim(&mut harness, Identity::Client(client(9)), 3000..8000), None);
    assert_eq!(harness.role(QueueKey(1000)), None, "the oldest gave way");
    assert!(harness.role(QueueKey(7999)).is_some(), "and not the newest");
    proven(&mut harness, DAEMON, Host::from(Identity::Daemon));
    proven(&mut harness, QueueKey(401), Host::from(Identity::Peer(3)));
    proven(&mut harness, ADMIN, host(7, 1));
    // What was proven gives way to no claim.
    assert_eq!(claim(&mut harness, Identity::Daemon, 10_000..12_000), None);
    for key in [DAEMON, QueueKey(401), ADMIN] {
        assert!(matches!(harness.role(key), Some(crate::hosts::Role::Admin(_))), "{key:?}");
    }
}

#[test]
fn clients_with_all_controller_ids_leave_some_to_the_daemon_and_to_ssds() {
    let mut harness = asking(Group::Null);
    harness.ssd().hosts.take_all_ids();
    assert_eq!(refusal(&begin(&mut harness, ADMIN, host(7, 1))), Some(Refusal::HostsFull));
    proven(&mut harness, DAEMON, Host::from(Identity::Daemon));
    proven(&mut harness, QueueKey(401), Host::from(Identity::Peer(3)));
    // The id of a client that ends is for the next one.
    harness.worker(ADMIN).close_queue(Time::ZERO, QueueKey(1_000_000));
    harness.ssd().close_queue(Time::ZERO, QueueKey(1_000_000));
    proven(&mut harness, OTHER, host(7, 1));
}

#[test]
fn clients_with_all_entries_leave_some_to_the_daemon_and_to_ssds() {
    let mut harness = asking(Group::Null);
    for raw in 1..=4000 {
        if refusal(&begin(&mut harness, QueueKey(1000 + u32::from(raw)), host(raw, 1))).is_none() {
            let own = host(raw, 1);
            let secret = manager_key().of_host(&own.nqn());
            prove(&mut harness, QueueKey(1000 + u32::from(raw)), own, secret).expect("the right secret");
        }
    }
    assert_eq!(refusal(&begin(&mut harness, ADMIN, host(5000, 1))), Some(Refusal::HostsFull));
    proven(&mut harness, DAEMON, Host::from(Identity::Daemon));
    proven(&mut harness, QueueKey(401), Host::from(Identity::Peer(3)));
}

/// The search takes longer with more queues. So a stranger could hear from its time which ids there are.
#[test]
fn a_stranger_makes_an_ssd_search_for_no_queue_id() {
    let mut harness = asking(Group::Null);
    let seven = host(7, 1);
    let (cntlid, session) = proven(&mut harness, ADMIN, seven);
    let searches = |harness: &mut Harness| harness.ssd().hosts.searches();
    let before = searches(&mut harness);
    for stranger in [host(8, 1), host(7, 2), Host { id: [9; 16], ..seven }] {
        assert_eq!(
            connect_io(&mut harness, QUEUE, stranger, cntlid, &[1; 40]),
            Some(Refusal::ConnectRefused)
        );
    }
    // The right name without the proof.
    assert_eq!(connect_io(&mut harness, QUEUE, seven, cntlid, &[1; 40]), Some(Refusal::ConnectRefused));
    assert_eq!(searches(&mut harness), before);
    let proof = session.prove(cntlid, 1, 1);
    assert_eq!(connect_io(&mut harness, QUEUE, seven, cntlid, proof.as_bytes()), None);
    assert_eq!(searches(&mut harness), before + 1, "its own host is told");
}

/// An exchange costs a power for each public value. A stranger can have the SSD make as many as it likes.
#[test]
fn an_ssd_makes_a_public_value_for_many_first_messages_and_a_challenge_for_each() {
    let mut harness = asking(Group::Ffdhe2048);
    let (_, negotiate) = prover(host(7, 1), Secret::new([0; 32]));
    let mut challenge = |nth: u32| {
        let key = QueueKey(1000 + nth);
        begin(&mut harness, key, host(7, 1));
        assert_eq!(send(&mut harness, key, &negotiate), None);
        let message = receive(&mut harness, key);
        // The head, the challenge and the public value.
        (message[16..48].to_vec(), message[48..48 + 256].to_vec())
    };
    let first: Vec<_> = (0..64).map(&mut challenge).collect();
    let (other, next) = (challenge(64), challenge(65));
    let count = |values: Vec<&Vec<u8>>| values.into_iter().collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(count(first.iter().map(|(_, public)| public).collect()), 1);
    assert_eq!(count(first.iter().map(|(challenge, _)| challenge).collect()), 64);
    assert!(other.1 != first[0].1 && other.1 == next.1, "a pair ends after so many proofs");
}
