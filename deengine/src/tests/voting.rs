// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This SSD as a voter, and as one that asks voters for its lease (rules 2a, 2b, 3a, 3b).

mod by_daemon;
mod exchanged;
mod goodbye;
mod lease_ends;
mod links;
mod opening;
mod peers;
mod rolled_back;
mod writes;

use super::map3::{At, one_group};
use super::*;
use gnstor_base::controller::Question;
use gnstor_fleet::lease::Timing;
use gnstor_proto::placement::map3::{FleetMap3, Vote};
use gnstor_proto::vendor::GET_HELD;
use gnstor_proto::voting::{Activation, Ask, Hold, MapName, PROMISE_BYTES, Promise, TermTake, map_digest};

/// Admin queue of the peer SSD 1.
pub(super) const PEER: QueueKey = QueueKey(40);
const ARRAY: [u8; 16] = [3; 16];

/// A map of four SSDs, of which these vote.
pub(super) fn voted(voters: &[u16]) -> FleetMap3 {
    let mut map = one_group([At::Serves(0), At::Serves(1), At::Hole], Some(0));
    voters.iter().for_each(|&voter| map.ssds[usize::from(voter)].vote = Vote::Voter);
    map.ssds[1].address = "10.0.0.1:4420".into();
    map
}

fn next(map: &FleetMap3) -> FleetMap3 {
    FleetMap3 { epoch: map.epoch + 1, ..map.clone() }
}

fn name_of(map: &FleetMap3) -> MapName {
    MapName { epoch: map.epoch, digest: map_digest(&map.encode().unwrap()) }
}

pub(super) fn with(map: &FleetMap3) -> Harness {
    let mut harness = Harness::connected(0);
    harness.connect(PEER, 0, Identity::Peer(1), CNTLID_ANY);
    assert_eq!(refusal(&harness.set_map(map)), None);
    let volume = VolumeEntry { replicas: 2, ..entry(VOLUME) };
    assert_eq!(refusal(&harness.volume_command(opcode::VOLUME_ADD, &volume)), None);
    harness
}

/// An SSD with this map, after all other voters have confirmed that its content is the newest.
fn opened(map: &FleetMap3) -> Harness {
    let mut harness = with(map);
    harness.step_to(harness.now + Span::from_ms(1));
    for (ask, ..) in harness.questions() {
        harness.say(ask, Ok(()));
    }
    harness
}

impl Harness {
    fn take_term(&mut self, term: u64, instance: u64) -> Result<Promise, Refusal> {
        self.take_term_on(DAEMON, term, instance)
    }

    fn take_term_on(&mut self, key: QueueKey, term: u64, instance: u64) -> Result<Promise, Refusal> {
        let take = TermTake { array: [3; 8], term, instance };
        let sqe = Sqe { dptr: KeyedSgl::keyed(0, 4096, KEY), flags: sqe(0).flags, ..take.command() };
        match refusal(&self.run(key, sqe)) {
            None => Ok(Promise::decode(&self.peek(key, 0)[..PROMISE_BYTES]).unwrap()),
            Some(refusal) => Err(refusal),
        }
    }

    fn hold(&mut self, term: u64, instance: u64, map: &FleetMap3) -> Option<Refusal> {
        let hold = Hold { term, instance, array: map.array, epoch: map.epoch, base: 0 };
        refusal(&self.daemon_out(opcode::MAP_HOLD, &hold.encode(&map.encode().unwrap())))
    }

    fn activate(&mut self, map: &FleetMap3, bytes: Option<&[u8]>) -> Option<Refusal> {
        self.map_epoch = map.wire_epoch();
        let activation = Activation { array: map.array, map: name_of(map), base: 0 };
        refusal(&self.daemon_out(opcode::ACTIVATE, &activation.encode(bytes)))
    }

    fn lease_ask(&mut self, key: QueueKey, ask: Ask) -> Cqe {
        self.poke(key, 0, &ask.encode());
        let sqe = Sqe { dptr: KeyedSgl::keyed(0, 64, KEY), flags: sqe(0).flags, ..Ask::command() };
        self.run(key, sqe)
    }

    pub(super) fn get_map(&mut self, key: QueueKey, held: u32) -> Vec<u8> {
        let dptr = KeyedSgl::keyed(0, 4096, KEY);
        let sqe = Sqe { dptr, cdw10: 1024.into(), cdw12: held.into(), ..sqe(opcode::MAP_GET) };
        let cqe = self.run(key, sqe);
        assert_eq!(refusal(&cqe), None);
        self.peek(key, 0)[..cqe.dw0.get() as usize].to_vec()
    }

    /// The questions since the last call, with the SSD that each is for.
    fn questions(&mut self) -> Vec<(AskId, u16, Question)> {
        let asked = std::mem::take(&mut self.asked);
        let question = |local: LocalRef| {
            let region = self.regions.iter().find(|region| region.id() == local.region).unwrap();
            let mut bytes = vec![0; local.bytes as usize];
            region.read(local.offset, &mut bytes);
            Question::decode(&bytes).unwrap()
        };
        asked.into_iter().map(|(ask, peer, local)| (ask, peer, question(local))).collect()
    }

    fn say(&mut self, ask: AskId, answer: Result<(), Refusal>) {
        let mut cqe = Cqe::default();
        if let Err(refusal) = answer {
            cqe.set_status_word(refusal.status().0);
            cqe.dw0 = Detail::new(refusal, None).to_dw0().into();
        }
        self.answer_of_voter(ask, &cqe);
    }

    fn answer_of_voter(&mut self, ask: AskId, cqe: &Cqe) {
        self.workers[0].answered(self.now, ask, Some(cqe), &[]);
        self.pump();
    }

    fn serves(&mut self) -> bool {
        let sqe = self.io(io::READ, WRITER, 0, 1);
        match self.refused(WRITER, sqe) {
            None => true,
            Some(Refusal::NotServing) => false,
            Some(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_term_is_granted_to_one_instance_and_only_by_its_array() {
    let map = voted(&[0, 1, 2]);
    let mut harness = with(&map);
    let granted = harness.take_term(5, 77).expect("the first");
    assert_eq!(granted, Promise { term: 5, array: ARRAY, active: name_of(&map), held: None });
    assert_eq!(harness.take_term(5, 77), Ok(granted), "it asks again");
    assert_eq!(harness.take_term(5, 78), Err(Refusal::StaleTerm), "another start of a daemon");
    assert_eq!(harness.take_term(4, 77), Err(Refusal::StaleTerm));
    assert_eq!(harness.take_term(6, 0), Err(Refusal::InvalidField), "no instance");
    let other = TermTake { array: [4; 8], term: 9, instance: 1 };
    let sqe = Sqe { dptr: KeyedSgl::keyed(0, 4096, KEY), flags: sqe(0).flags, ..other.command() };
    assert_eq!(harness.refused(DAEMON, sqe), Some(Refusal::OtherArray));
    // A term that another command brought is granted to no one yet, and ends those below.
    harness.volume_command(opcode::VOLUME_ADD, &VolumeEntry { term: 8, ..entry(9) });
    assert_eq!(harness.take_term(7, 77), Err(Refusal::StaleTerm));
    assert!(harness.take_term(8, 78).is_ok());
    assert_eq!(harness.take_term(8, 77), Err(Refusal::StaleTerm));
}

#[test]
fn a_held_map_ends_leases_is_got_by_its_bit_and_becomes_active_by_its_name() {
    let map = voted(&[0, 1, 2]);
    let mut harness = with(&map);
    harness.take_term(5, 77).unwrap();
    let ask = Ask {
        ssd: 1,
        array: ARRAY,
        epoch: map.epoch,
        incarnation: 0,
        opening: 1,
        uuid: [0; 16],
        is_goodbye: false,
    };
    let said = harness.lease_ask(PEER, ask);
    assert_eq!((refusal(&said), said.dw0.get()), (None, 1));
    let mut shrunk = next(&map);
    (shrunk.ssds[1].shrunk_at, shrunk.rows[0].places[1]) = (2, None);
    assert_eq!(harness.activate(&shrunk, None), Some(Refusal::MapBehind), "nothing is held");
    assert_eq!(harness.hold(4, 77, &shrunk), Some(Refusal::StaleTerm));
    assert_eq!(harness.hold(5, 78, &shrunk), Some(Refusal::StaleTerm));
    assert_eq!(harness.hold(5, 77, &map), Some(Refusal::StaleVersion), "it is active");
    let foreign = FleetMap3 { array: [9; 16], ..shrunk.clone() };
    assert_eq!(harness.hold(5, 77, &foreign), Some(Refusal::OtherArray));
    assert_eq!(harness.get_map(DAEMON, GET_HELD), []);
    assert_eq!(harness.hold(5, 77, &shrunk), None);
    assert_eq!(harness.get_map(DAEMON, GET_HELD), shrunk.encode().unwrap());
    assert_eq!(harness.get_map(QueueKey(70), 0), map.encode().unwrap(), "for any client");
    let said = harness.lease_ask(PEER, ask);
    assert_eq!((refusal(&said), said.dw1.get()), (Some(Refusal::Deprived), 2));
    assert_eq!(harness.take_term(6, 79).unwrap().held, Some((5, name_of(&shrunk))));
    let other = FleetMap3 { seed: 1, ..shrunk.clone() };
    assert_eq!(harness.activate(&other, None), Some(Refusal::MapBehind), "another map of that epoch is held");
    assert_eq!(harness.activate(&shrunk, None), None);
    assert_eq!(harness.get_map(DAEMON, 0), shrunk.encode().unwrap());
    assert_eq!(harness.get_map(DAEMON, GET_HELD), [], "it is held no longer");
    assert_eq!(harness.activate(&shrunk, None), Some(Refusal::StaleVersion));
    let third = next(&shrunk);
    assert_eq!(
        harness.activate(&third, Some(&third.encode().unwrap())),
        None,
        "a whole map, not held before"
    );
    let fresh = harness.lease_ask(PEER, Ask { epoch: 3, ..ask });
    assert_eq!(refusal(&fresh), None, "it knows the map");
}

#[test]
fn a_patch_is_held_and_activated_like_the_map_that_it_makes() {
    let map = voted(&[0, 1, 2]);
    let mut harness = with(&map);
    let mut after = next(&map);
    after.ssds[2].weight += 1;
    let patch = map.patch_to(&after).unwrap().expect("the next epoch");
    let hold = Hold { term: 5, instance: 7, array: ARRAY, epoch: 2, base: 1 };
    assert_eq!(refusal(&harness.daemon_out(opcode::MAP_HOLD, &hold.encode(&patch))), None);
    assert_eq!(harness.get_map(DAEMON, GET_HELD), after.encode().unwrap());
    let wrong = Hold { base: 7, ..hold };
    let refused = refusal(&harness.daemon_out(opcode::MAP_HOLD, &wrong.encode(&patch)));
    assert_eq!(refused, Some(Refusal::MapBehind), "it has no such map");
    let activation = Activation { array: ARRAY, map: name_of(&after), base: 1 };
    assert_eq!(refusal(&harness.daemon_out(opcode::ACTIVATE, &activation.encode(Some(&patch)))), None);
    assert_eq!(harness.get_map(DAEMON, 0), after.encode().unwrap());
}

#[test]
fn a_term_that_jumps_is_not_granted_even_to_the_daemon() {
    let mut harness = with(&voted(&[0, 1, 2]));
    assert_eq!(harness.take_term(u64::MAX, 1), Err(Refusal::InvalidField));
    assert_eq!(harness.take_term(1 << 32, 1), Err(Refusal::InvalidField), "registrations end there");
    assert!(harness.take_term(5, 1).is_ok() && harness.take_term(6 + (1 << 20), 1).is_err());
    assert!(harness.take_term(5 + (1 << 20), 1).is_ok());
}

#[test]
fn who_may_say_what_to_a_voter() {
    let map = voted(&[0, 1, 2]);
    let mut harness = with(&map);
    let data = KeyedSgl::keyed(0, 4096, KEY);
    let of = |code| Sqe { dptr: data, cdw10: 1024.into(), ..sqe(code) };
    for code in [opcode::TERM_TAKE, opcode::MAP_HOLD, opcode::MAP_SET, opcode::VOLUME_LIST] {
        assert_eq!(harness.refused(PEER, of(code)), Some(Refusal::NotTheDaemon), "{code:x}");
    }
    for code in [opcode::TERM_TAKE, opcode::MAP_HOLD, opcode::ACTIVATE, opcode::LEASE_ASK] {
        assert_eq!(harness.refused(QueueKey(70), of(code)), Some(Refusal::NotTheDaemon), "{code:x}");
    }
    let ask =
        Ask { ssd: 1, array: ARRAY, epoch: 1, incarnation: 0, opening: 1, uuid: [0; 16], is_goodbye: false };
    assert_eq!(refusal(&harness.lease_ask(DAEMON, ask)), Some(Refusal::WrongIdentity));
    assert_eq!(refusal(&harness.lease_ask(PEER, Ask { ssd: 2, ..ask })), Some(Refusal::WrongIdentity));
    assert_eq!(refusal(&harness.lease_ask(PEER, Ask { ssd: 9, ..ask })), Some(Refusal::WrongIdentity));
    assert_eq!(refusal(&harness.lease_ask(PEER, Ask { array: [4; 16], ..ask })), Some(Refusal::OtherArray));
    let goodbye = Ask { is_goodbye: true, ..ask };
    assert_eq!(refusal(&harness.lease_ask(DAEMON, goodbye)), Some(Refusal::WrongIdentity));
    assert_eq!(refusal(&harness.lease_ask(PEER, Ask { ssd: 2, ..goodbye })), Some(Refusal::WrongIdentity));
    assert_eq!(
        refusal(&harness.lease_ask(PEER, Ask { array: [4; 16], ..goodbye })),
        Some(Refusal::OtherArray)
    );
    harness.poke(PEER, 0, &[7; 64]);
    let noise = Sqe { dptr: KeyedSgl::keyed(0, 64, KEY), flags: sqe(0).flags, ..Ask::command() };
    assert_eq!(harness.refused(PEER, noise), Some(Refusal::InvalidField));
    let third = next(&map);
    harness.poke(PEER, 0, &Activation { array: ARRAY, map: name_of(&third), base: 0 }.encode(None));
    let activate = Sqe { dptr: KeyedSgl::keyed(0, 64, KEY), cdw10: 16.into(), ..sqe(opcode::ACTIVATE) };
    assert_eq!(harness.refused(PEER, activate), Some(Refusal::MapBehind), "a peer may, and nothing is held");
}

#[test]
fn an_ssd_serves_from_a_majority_on_until_the_lease_that_counts_from_asking_is_over() {
    let lease = Span::from_ms(Timing::DEFAULT_MS.lease);
    let mut harness = opened(&voted(&[0, 1, 2]));
    assert!(!harness.serves(), "it has no lease yet");
    harness.step_to(harness.now + Span::from_ms(1));
    let asked = harness.now;
    let questions = harness.questions();
    let peers: Vec<u16> = questions.iter().map(|(_, peer, _)| *peer).collect();
    assert_eq!(peers, [1, 2], "it asks itself without a message");
    let (first, _, question) = &questions[0];
    assert_eq!((question.address.as_str(), question.sqe.opcode), ("10.0.0.1:4420", opcode::LEASE_ASK));
    assert_eq!(Ask::decode(&question.data).map(|ask| (ask.ssd, ask.epoch)), Ok((0, 1)));
    assert!(!harness.serves(), "one of three");
    harness.now = asked + Span::from_ms(40);
    harness.say(*first, Err(Refusal::Deprived));
    assert!(!harness.serves());
    harness.say(questions[1].0, Ok(()));
    assert!(harness.serves(), "itself and SSD 2");
    harness.say(questions[1].0, Ok(()));
    // Rounds go on without an answer, and the lease counts from the first one.
    harness.step_to(asked + lease - Span::from_ms(3));
    assert!(harness.serves());
    assert!(harness.questions().len() >= 4, "a round each 100 ms");
    harness.step_to(asked + lease + Span::from_ms(1));
    assert!(!harness.serves());
    // LEASE RENEW would let it serve beside the maps that voters hold.
    let renew = Sqe { cdw12: 1000.into(), cdw14: 1.into(), ..sqe(opcode::LEASE_RENEW) };
    assert_eq!(harness.refused(DAEMON, renew), Some(Refusal::InvalidOpcode));
}

#[test]
fn a_late_answer_makes_the_lease_no_longer_and_a_silent_voter_is_not_flooded() {
    let mut harness = opened(&voted(&[1, 2, 3]));
    let start = harness.now;
    harness.step_to(start + Span::from_ms(900));
    let questions = harness.questions();
    assert!(questions.len() <= 3 * 4, "at most four to one voter: {}", questions.len());
    for (ask, ..) in questions {
        harness.say(ask, Ok(()));
    }
    assert!(!harness.serves(), "the rounds that were asked are over");
    harness.step_to(harness.now + Span::from_ms(101));
    let fresh = harness.questions();
    assert_eq!(fresh.len(), 3);
    harness.say(fresh[0].0, Ok(()));
    assert!(!harness.serves());
    harness.say(fresh[2].0, Ok(()));
    assert!(harness.serves());
}

/// As after pauses of the whole process, each of which loses a question.
#[test]
fn an_ssd_whose_questions_were_lost_asks_again() {
    let mut harness = opened(&voted(&[1, 2, 3]));
    let start = harness.now;
    harness.step_to(start + Span::from_ms(5000));
    drop(harness.questions());
    assert!(!harness.serves());
    // Within a second it asks each voter anew.
    harness.step_to(start + Span::from_ms(6000));
    let newest = harness.questions();
    harness.step_to(start + Span::from_ms(6001));
    let mut asked: Vec<u16> = newest.iter().rev().take(3).map(|(_, voter, _)| *voter).collect();
    asked.sort_unstable();
    assert_eq!(asked, [1, 2, 3]);
    newest.iter().rev().take(2).for_each(|(ask, ..)| harness.say(*ask, Ok(())));
    assert!(harness.serves(), "two of three said yes to a round whose lease still runs");
}
