// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD that is stopped in order says goodbye, and voters tell the daemon (rule 2b).

use super::*;

/// SSD 1 asks the voter with this number of openings, or says goodbye.
fn of(opening: u32, is_goodbye: bool) -> Ask {
    Ask { ssd: 1, array: ARRAY, epoch: 1, incarnation: 0, opening, uuid: [0; 16], is_goodbye }
}

/// What a voter says to the daemon that has it hold a map without SSD 1, after these words of SSD 1.
fn said_after(mut harness: Harness, words: &[Ask]) -> [u32; 2] {
    let map = voted(&[0, 1, 2]);
    words.iter().for_each(|&word| _ = harness.lease_ask(PEER, word));
    let mut shrunk = next(&map);
    (shrunk.ssds[1].shrunk_at, shrunk.rows[0].places[1]) = (2, None);
    let hold = Hold { term: 5, instance: 77, array: map.array, epoch: 2, base: 0 };
    let cqe = harness.daemon_out(opcode::MAP_HOLD, &hold.encode(&shrunk.encode().unwrap()));
    assert_eq!(refusal(&cqe), None);
    [cqe.dw0.get(), cqe.dw1.get()]
}

#[test]
fn a_voter_that_holds_a_map_names_who_said_goodbye_and_was_not_opened_since() {
    let harness = || with(&voted(&[0, 1, 2]));
    assert_eq!(said_after(harness(), &[of(1, false)]), [0, 0]);
    assert_eq!(said_after(harness(), &[of(1, false), of(1, true)]), [0b10, 0]);
    // What the same opening asked before may come later. Its SSD takes no answer any more.
    assert_eq!(said_after(harness(), &[of(1, false), of(1, true), of(1, false)]), [0b10, 0]);
    assert_eq!(
        said_after(harness(), &[of(1, false), of(1, true), of(2, false)]),
        [0, 0],
        "it may have a lease again"
    );
    assert_eq!(
        said_after(harness(), &[of(1, false), of(2, false), of(1, true)]),
        [0, 0],
        "the goodbye came late"
    );
    assert_eq!(said_after(harness(), &[of(1, false), of(2, false), of(1, true), of(2, true)]), [0b10, 0]);
    // The voter does not know this number: another one may have heard of a higher one.
    assert_eq!(said_after(harness(), &[of(3, true)]), [0, 0]);
}

#[test]
fn an_ssd_that_said_goodbye_serves_nothing_and_asks_for_nothing() {
    let mut harness = opened(&voted(&[0, 1, 2]));
    harness.step_to(harness.now + Span::from_ms(1));
    let questions = harness.questions();
    questions.iter().for_each(|(ask, ..)| harness.say(*ask, Ok(())));
    assert!(harness.serves());
    harness.step_to(harness.now + Span::from_ms(100));
    let asked = harness.questions();
    assert_eq!(asked.len(), 2, "the next round, whose answers come late");
    let now = harness.now;
    assert!(!harness.workers[0].leave(now), "no other voter has heard it");
    assert!(!harness.serves(), "its lease has ended");
    harness.step_to(harness.now + Span::from_ms(1));
    let words = harness.questions();
    let said: Vec<_> =
        words.iter().map(|(_, peer, word)| (*peer, Ask::decode(&word.data).unwrap())).collect();
    let is_goodbye = |(_, ask): &(u16, Ask)| ask.is_goodbye && (ask.ssd, ask.epoch) == (0, 1);
    assert!(said.len() == 2 && said.iter().all(is_goodbye), "{said:?}");
    asked.iter().for_each(|(ask, ..)| harness.say(*ask, Ok(())));
    assert!(!harness.serves(), "an earlier question is answered");
    let now = harness.now;
    assert!(!harness.workers[0].leave(now));
    harness.say(words[0].0, Ok(()));
    assert!(harness.workers[0].leave(now), "two of three have heard it");
    assert!(!harness.serves());
    harness.step_to(harness.now + Span::from_ms(1_000));
    assert_eq!(harness.questions().len(), 0, "it asks for no lease and says goodbye once");
    assert!(!harness.serves());
}

#[test]
fn a_goodbye_that_no_voter_answers_is_not_waited_for() {
    let mut harness = opened(&voted(&[0, 1, 2]));
    let now = harness.now;
    assert!(!harness.workers[0].leave(now));
    harness.step_to(harness.now + Span::from_ms(1));
    for (ask, ..) in harness.questions() {
        let now = harness.now;
        harness.workers[0].answered(now, ask, None, &[]);
        harness.pump();
    }
    let now = harness.now;
    assert!(harness.workers[0].leave(now));
    assert!(!harness.serves());
}

/// No SSD asks for a lease there.
#[test]
fn without_voters_nothing_is_said_and_the_ssd_serves_on() {
    let mut harness = Harness::connected(0);
    let now = harness.now;
    assert!(harness.workers[0].leave(now));
    harness.step_to(harness.now + Span::from_ms(200));
    assert_eq!(harness.questions().len(), 0);
}
