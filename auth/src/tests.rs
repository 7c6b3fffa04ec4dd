// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both sides against each other, against wrong secrets, and against every bent message.

mod fuzz;
mod vectors;

use super::*;
use crate::deadline::{Deadline, LIMIT};
use crate::key::{KEY_BYTES, is_mac, mac};
use crate::message::MAX_MESSAGE;
use proptest::prelude::*;
use std::sync::Arc;

const HOST: &str = "nqn.2026-11.dev.gnstor:client.0007.1";
const SSD: &str = "nqn.2026-11.dev.gnstor:ssd.2";

fn names() -> Names {
    Names { host: HOST.into(), subsystem: SSD.into() }
}

fn dice(seed: u8) -> Dice {
    Dice {
        challenge: [seed; 32],
        pair: Arc::new(KeyPair::new([seed | 1; crate::group::PRIVATE_BYTES])),
        sequence: u32::from(seed) + 1,
    }
}

fn secret(seed: u8) -> Secret {
    Secret::new([seed; KEY_BYTES])
}

/// The four messages of a run. The third party may change each of them on its way.
fn run(
    host_secret: Secret,
    ssd_secret: Secret,
    groups: &[Group],
    group: Group,
    mut bend: impl FnMut(usize, &mut Vec<u8>),
) -> Result<(SessionKey, SessionKey), Failure> {
    let (mut host, mut message) = Host::begin(names(), host_secret, groups, 77, dice(1));
    bend(0, &mut message);
    let (mut ssd, mut message) =
        Controller::begin(names(), ssd_secret, group, &message, dice(2)).map_err(|(_, failure)| failure)?;
    bend(1, &mut message);
    let mut message = host.on_challenge(&message)?;
    bend(2, &mut message);
    let mut message = ssd.on_reply(&message)?;
    bend(3, &mut message);
    let (mut message, host_key) = host.on_success1(&message)?;
    bend(4, &mut message);
    Ok((host_key, ssd.on_success2(&message)?))
}

fn same_key(one: &SessionKey, other: &SessionKey) -> bool {
    other.accepts(3, 5, &one.prove(3, 5, 9))
}

#[test]
fn both_sides_prove_the_secret_and_share_a_key_in_every_group() {
    let _deadline = Deadline::after(LIMIT);
    for group in [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072] {
        let (host, ssd) = run(secret(5), secret(5), &[group], group, |_, _| {}).unwrap();
        assert!(same_key(&host, &ssd), "{group:?}");
    }
}

#[test]
fn a_host_with_another_secret_is_refused_and_so_is_an_ssd() {
    let _deadline = Deadline::after(LIMIT);
    for groups in [&[Group::Null][..], &[Group::Ffdhe2048]] {
        let failed = run(secret(5), secret(6), groups, groups[0], |_, _| {}).unwrap_err();
        assert_eq!(failed, Failure::Authentication);
    }
    // An SSD that does not know the secret accepts any reply, and cannot answer the host's challenge.
    let (mut host, _) = Host::begin(names(), secret(5), &[Group::Null], 77, dice(1));
    let (_, negotiate) = Host::begin(names(), secret(6), &[Group::Null], 77, dice(1));
    let (_, challenge) = Controller::begin(names(), secret(6), Group::Null, &negotiate, dice(2)).unwrap();
    let reply = host.on_challenge(&challenge).unwrap();
    assert!(reply.len() > 48);
    let forged =
        [&message::DHCHAP.to_le_bytes()[..], &[message::id::SUCCESS1, 0, 0, 77, 0, 32, 0, 1]].concat();
    let forged = [&forged[..], &[0; 7], &[9; 32]].concat();
    assert_eq!(host.on_success1(&forged[..]).unwrap_err(), Failure::Authentication);
}

#[test]
fn a_flipped_bit_anywhere_ends_the_run() {
    let _deadline = Deadline::after(LIMIT);
    for (step, bytes) in [(1, 48), (2, 80), (3, 48)] {
        for bit in 0..bytes * 8 {
            let bent = run(secret(5), secret(5), &[Group::Null], Group::Null, |at, message| {
                if at == step {
                    message[bit / 8] ^= 1 << (bit % 8);
                }
            });
            let is_reserved = match step {
                1 | 2 => (2..4).contains(&(bit / 8)) || bit / 8 == 7 || (step == 2 && bit / 8 == 9),
                _ => (2..4).contains(&(bit / 8)) || bit / 8 == 7 || (9..16).contains(&(bit / 8)),
            };
            assert!(bent.is_err() || is_reserved, "message {step}, bit {bit} is not noticed");
        }
    }
}

#[test]
fn a_challenge_of_another_run_proves_nothing_in_this_one() {
    let _deadline = Deadline::after(LIMIT);
    let (mut first, negotiate) = Host::begin(names(), secret(5), &[Group::Null], 77, dice(1));
    let (_, challenge) = Controller::begin(names(), secret(5), Group::Null, &negotiate, dice(2)).unwrap();
    let recorded = first.on_challenge(&challenge).unwrap();
    // The SSD's dice differ in the next run: the recorded reply answers no challenge of it.
    let (mut ssd, _) = Controller::begin(names(), secret(5), Group::Null, &negotiate, dice(3)).unwrap();
    assert_eq!(ssd.on_reply(&recorded).unwrap_err(), Failure::Authentication);
}

#[test]
fn each_throw_has_a_challenge_an_exponent_and_a_number_of_its_own() {
    let _deadline = Deadline::after(LIMIT);
    let thrown = |first: u8| {
        let mut value = first;
        Dice::thrown(|bytes| {
            for byte in bytes {
                *byte = value;
                value = value.wrapping_mul(5).wrapping_add(3);
            }
        })
    };
    let group = Group::Ffdhe2048;
    let (one, two) = (thrown(1), thrown(2));
    assert_ne!(one.challenge, two.challenge);
    assert_ne!(one.pair.public(group), two.pair.public(group));
    assert_ne!(one.sequence, two.sequence);
    let reused: [u8; 35] = std::array::from_fn(|at| one.challenge.get(at).copied().unwrap_or_default());
    assert_ne!(one.pair.public(group), group.public(&reused), "no byte is used twice");
    assert_ne!(one.challenge, [0; 32]);
    // Two runs with one exponent have challenges and numbers of their own.
    let mut count = 0;
    let [a, b] = [0, 1].map(|_| {
        Dice::with(Arc::clone(&one.pair), |bytes| {
            count += 1;
            bytes.fill(count);
        })
    });
    assert!(a.challenge != b.challenge && a.sequence != b.sequence);
}

/// Of two runs with the pairs of both ends the same, neither response nor session key of one is the other's.
#[test]
fn runs_with_one_key_pair_prove_nothing_to_each_other() {
    let _deadline = Deadline::after(LIMIT);
    let pairs = [3, 7].map(|seed| Arc::new(KeyPair::new([seed; crate::group::PRIVATE_BYTES])));
    let group = Group::Ffdhe2048;
    let with = |end: usize, nth: u8| Dice::with(Arc::clone(&pairs[end]), |bytes| bytes.fill(nth));
    let begun = |nth: u8| {
        let (host, negotiate) = Host::begin(names(), secret(5), &[group], 77, with(0, nth));
        let (ssd, challenge) =
            Controller::begin(names(), secret(5), group, &negotiate, with(1, nth + 100)).unwrap();
        (host, ssd, challenge)
    };
    let (mut host, mut ssd, challenge) = begun(1);
    let reply = host.on_challenge(&challenge).unwrap();
    let (_, mut other_ssd, _) = begun(2);
    assert_eq!(other_ssd.on_reply(&reply).unwrap_err(), Failure::Authentication);
    let (success2, key) = host.on_success1(&ssd.on_reply(&reply).unwrap()).unwrap();
    ssd.on_success2(&success2).unwrap();
    let (mut other_host, mut other_ssd, challenge) = begun(2);
    let reply = other_host.on_challenge(&challenge).unwrap();
    let (_, other_key) = other_host.on_success1(&other_ssd.on_reply(&reply).unwrap()).unwrap();
    assert!(!same_key(&key, &other_key), "each run has a session of its own");
}

#[test]
fn a_run_that_failed_cannot_go_on() {
    let _deadline = Deadline::after(LIMIT);
    let (_, negotiate) = Host::begin(names(), secret(5), &[Group::Null], 77, dice(1));
    let (mut ssd, challenge) =
        Controller::begin(names(), secret(5), Group::Null, &negotiate, dice(2)).unwrap();
    let (mut host, _) = Host::begin(names(), secret(5), &[Group::Null], 77, dice(1));
    let good = host.on_challenge(&challenge).unwrap();
    let mut bad = good.clone();
    bad[20] ^= 1;
    assert_eq!(ssd.on_reply(&bad).unwrap_err(), Failure::Authentication);
    assert_eq!(ssd.on_reply(&good).unwrap_err(), Failure::Message, "no second guess at one challenge");
}

#[test]
fn another_group_than_the_ssd_demands_is_refused() {
    let _deadline = Deadline::after(LIMIT);
    for (offered, demanded) in [(Group::Null, Group::Ffdhe2048), (Group::Ffdhe3072, Group::Null)] {
        let refused = run(secret(5), secret(5), &[offered], demanded, |_, _| {}).unwrap_err();
        assert_eq!(refused, Failure::Group);
    }
    // A third party strikes the strong group off the offer. The host notices a group that it did not offer.
    let struck = run(secret(5), secret(5), &[Group::Ffdhe2048], Group::Null, |at, message| {
        if at == 0 {
            message[12 + message::GROUPS_AT] = Group::Null as u8;
        }
    });
    assert_eq!(struck.unwrap_err(), Failure::Group);
}

#[test]
fn the_failure_that_the_other_side_states_is_told() {
    let _deadline = Deadline::after(LIMIT);
    let (mut host, _) = Host::begin(names(), secret(5), &[Group::Null], 77, dice(1));
    let told = message::failure(message::id::FAILURE1, 77, Failure::Hash);
    assert_eq!(host.on_challenge(&told).unwrap_err(), Failure::Hash);
}

#[test]
fn a_secret_survives_its_text_form_and_damaged_texts_are_named() {
    let _deadline = Deadline::after(LIMIT);
    let text = secret(9).to_text();
    assert!(text.starts_with("DHHC-1:01:") && text.ends_with(':'));
    assert_eq!(Secret::parse(&text).unwrap().fingerprint(), secret(9).fingerprint());
    assert_eq!(format!("{:?}", secret(9)), "Secret(..)");
    let damaged = text.replacen("CQkJ", "CQkK", 1);
    assert_eq!(Secret::parse(&damaged).unwrap_err(), KeyError::Checksum);
    assert_eq!(Secret::parse("DHHC-1:02:AAAA:").unwrap_err(), KeyError::Hash);
    assert_eq!(Secret::parse("DHHC-1:01:AAAA:").unwrap_err(), KeyError::Length);
    assert_eq!(Secret::parse("hunter2").unwrap_err(), KeyError::Form);
}

#[test]
fn hosts_have_keys_of_their_own() {
    let _deadline = Deadline::after(LIMIT);
    let manager = secret(1);
    let keys = [HOST, "nqn.2026-11.dev.gnstor:client.0007.2", "nqn.2026-11.dev.gnstor:daemon"];
    let mut prints: Vec<_> = keys.iter().map(|name| manager.of_host(name).fingerprint()).collect();
    prints.push(manager.fingerprint());
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), 4);
}

#[test]
fn a_proof_opens_its_own_queue_only() {
    let _deadline = Deadline::after(LIMIT);
    let (key, other) = run(secret(5), secret(5), &[Group::Null], Group::Null, |_, _| {}).unwrap();
    let proof = key.prove(3, 5, 9);
    assert!(other.accepts(3, 5, &proof));
    assert!(!other.accepts(4, 5, &proof), "another controller");
    assert!(!other.accepts(3, 6, &proof), "another queue");
    assert!(!other.accepts(3, 5, &QueueProof { number: 10.into(), ..proof }), "another number");
    let mut bent = proof;
    bent.tag[31] ^= 1;
    assert!(!other.accepts(3, 5, &bent));
}

/// Each proof is compared by the same function, which looks at every byte.
#[test]
fn a_mac_that_is_right_but_for_one_byte_or_in_part_is_refused() {
    let _deadline = Deadline::after(LIMIT);
    let (key, parts): (_, [&[u8]; 2]) = ([5; KEY_BYTES], [b"one", b"two"]);
    let tag = mac(&key, &parts);
    assert!(is_mac(&key, &parts, &tag));
    for at in 0..KEY_BYTES {
        let mut bent = tag;
        bent[at] ^= 1;
        assert!(!is_mac(&key, &parts, &bent), "byte {at}");
        assert!(!is_mac(&key, &parts, &tag[..at]), "{at} bytes of it");
    }
    assert!(!is_mac(&key, &parts, &[&tag[..], &[0]].concat()), "a byte more");
}

proptest! {
    /// Any bytes in the place of any message: no panic, and no key.
    #[test]
    fn any_bytes_end_the_run(step in 0usize..5, bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _deadline = Deadline::after(LIMIT);
        let bent = run(secret(5), secret(5), &[Group::Ffdhe2048, Group::Null], Group::Null, |at, message| {
            if at == step {
                *message = bytes.clone();
            }
        });
        prop_assert!(bent.is_err());
    }
}

/// The host's buffer is larger than the message; the controller fills it up with zeros.
#[test]
fn a_padded_message_is_read_as_the_message() {
    let _deadline = Deadline::after(LIMIT);
    for group in [Group::Null, Group::Ffdhe2048] {
        let (host, ssd) = run(secret(5), secret(5), &[group], group, |at, message| {
            if at == 1 || at == 3 {
                message.resize(MAX_MESSAGE, 0);
            }
        })
        .unwrap();
        assert!(same_key(&host, &ssd));
    }
}

#[test]
fn random_bytes_differ() {
    let _deadline = Deadline::after(LIMIT);
    let (mut one, mut other) = ([0; 32], [0; 32]);
    random::fill(&mut one);
    random::fill(&mut other);
    assert_ne!(one, other);
}
