// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bent messages of whole runs, in every order, at both ends. No input makes either end panic, and none that
//! was bent proves anything. Where both ends agree on a key, every message arrived as it was sent.

use super::*;
use gnstor_hostile::mutate::{bent, file_of, inputs, seeds};
use gnstor_hostile::random::Random;

/// The five messages of a run without a group and of one with a group.
const CORPUS: &[u8] = include_bytes!("../../../tests/hostile/corpus/auth.bin");

fn recorded() -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    for group in [Group::Null, Group::Ffdhe2048] {
        run(secret(5), secret(5), &[group], group, |_, message| messages.push(message.clone()))
            .expect("both know the secret");
    }
    messages
}

/// The messages are functions of the numbers above. `GNSTOR_WRITE_CORPUS=1` writes the file anew.
#[test]
fn the_corpus_is_what_both_ends_say_to_each_other() {
    let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
    let messages = recorded();
    if std::env::var_os("GNSTOR_WRITE_CORPUS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/hostile/corpus/auth.bin");
        std::fs::write(path, file_of(&messages)).expect("it can be written");
    }
    assert_eq!(inputs(CORPUS), messages);
}

#[test]
fn bent_messages_prove_nothing() {
    let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
    let corpus = inputs(CORPUS);
    let mut proven = 0;
    let count = seeds(1500, |seed| {
        let mut random = Random::new(seed);
        let group = if seed.is_multiple_of(16) { Group::Ffdhe2048 } else { Group::Null };
        let victim = random.below(6);
        let mut changed = false;
        let result = run(secret(5), secret(5), &[group], group, |place, message| {
            if place == victim {
                let before = std::mem::replace(message, bent(&mut random, &corpus));
                changed = before != *message;
            }
        });
        if let Ok((host, ssd)) = result {
            proven += 1;
            assert!(same_key(&host, &ssd), "seed {seed}: both think that they are done");
        } else {
            assert!(changed, "seed {seed}: nothing was bent, and it failed");
        }
    });
    assert!(proven >= count / 20, "{proven} of {count} runs were not bent where it matters");
}

#[test]
fn messages_out_of_turn_and_of_other_runs_prove_nothing() {
    let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
    let corpus = inputs(CORPUS);
    seeds(2000, |seed| {
        let mut random = Random::new(seed);
        let (mut host, _) = Host::begin(names(), secret(5), &[Group::Null], 77, dice(1));
        let negotiate = &corpus[0];
        // The SSD's numbers differ from the corpus, because each run draws new ones.
        let started = Controller::begin(names(), secret(5), Group::Null, negotiate, dice(9));
        let (mut ssd, _) = started.expect("the recorded offer is good");
        for _ in 0..6 {
            let message = match random.below(3) {
                0 => corpus[random.below(corpus.len())].clone(),
                _ => bent(&mut random, &corpus),
            };
            match random.below(5) {
                0 => assert!(ssd.on_reply(&message).is_err(), "seed {seed}: a reply of another run"),
                1 => assert!(ssd.on_success2(&message).is_err(), "seed {seed}"),
                2 => drop(host.on_challenge(&message)),
                3 => drop(host.on_success1(&message)),
                _ => drop(Controller::begin(names(), secret(5), Group::Null, &message, dice(9))),
            }
        }
    });
}
