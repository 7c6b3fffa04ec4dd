// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers of openings: a voter remembers before it says yes, and an older image counts its incarnation up.

use super::super::map3::Cut;
use super::*;
use gnstor_fleet::opening::STANDS_IN;

/// A map that names this SSD, with the voters 1, 2 and 3.
fn naming(ssd: &Ssd) -> FleetMap3 {
    let mut map = voted(&[1, 2, 3]);
    let identity = ssd.identity();
    (map.ssds[0].uuid, map.ssds[0].incarnation) = (identity.uuid, identity.incarnation);
    map
}

impl Harness {
    /// The completion of a command, which may wait for the disk.
    fn awaited_on(&mut self, key: QueueKey, cid: u16) -> Cqe {
        let end = self.now + Span::from_ms(100);
        while self.now < end {
            if let Some(cqe) = self.take(key, cid) {
                return cqe;
            }
            self.advance(Span::from_ns(100_000));
        }
        panic!("it never completes")
    }

    fn submit_ask(&mut self, opening: u32) -> u16 {
        let ask =
            Ask { ssd: 1, array: ARRAY, epoch: 1, incarnation: 0, opening, uuid: [0; 16], is_goodbye: false };
        self.poke(PEER, 0, &ask.encode());
        self.submit(PEER, Sqe { dptr: KeyedSgl::keyed(0, 64, KEY), flags: sqe(0).flags, ..Ask::command() })
    }

    /// The numbers of openings in the questions of the next round.
    fn asks_with(&mut self) -> (Vec<AskId>, Vec<(u32, u32)>) {
        self.step_to(self.now + Span::from_ms(101));
        let newest = self.questions().split_off_newest();
        newest
            .into_iter()
            .map(|(ask, _, question)| {
                let asked = Ask::decode(&question.data).unwrap();
                (ask, (asked.opening, asked.incarnation))
            })
            .unzip()
    }

    pub(super) fn say_older(&mut self, ask: AskId, known: u32) {
        let mut cqe = Cqe { dw1: known.into(), ..Cqe::default() };
        cqe.set_status_word(Refusal::OlderImage.status().0);
        cqe.dw0 = Detail::new(Refusal::OlderImage, None).to_dw0().into();
        self.answer_of_voter(ask, &cqe);
    }
}

/// The questions of the last round alone.
trait Newest {
    fn split_off_newest(self) -> Self;
}

impl Newest for Vec<(AskId, u16, Question)> {
    fn split_off_newest(mut self) -> Self {
        let newest = self.iter().map(|(ask, ..)| ask.0 >> 8).max();
        self.retain(|(ask, ..)| Some(ask.0 >> 8) == newest);
        self
    }
}

#[test]
fn a_voter_says_yes_to_a_new_number_when_it_is_durable_and_never_to_a_lower_one() {
    let (cut, ssd) = Cut::with_slow_syncs(7);
    let mut harness = cut.harness(ssd);
    harness.connect(PEER, 0, Identity::Peer(1), CNTLID_ANY);
    let mut bytes = voted(&[0, 1, 2]).encode().unwrap();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let sqe = harness.daemon_sqe(opcode::MAP_SET, &bytes);
    let cid = harness.submit(DAEMON, sqe);
    assert_eq!(refusal(&harness.awaited_on(DAEMON, cid)), None);
    harness.advance(Span::from_ms(50));

    let cid = harness.submit_ask(5);
    assert!(harness.take(PEER, cid).is_none(), "it says yes before it remembers");
    assert_eq!(refusal(&harness.awaited_on(PEER, cid)), None);
    assert_eq!(harness.ssd().openings()[1], 5);
    let cid = harness.submit_ask(5);
    assert_eq!(refusal(&harness.take(PEER, cid).expect("nothing is written")), None);
    let cid = harness.submit_ask(4);
    let said = harness.take(PEER, cid).expect("nothing is written");
    assert_eq!((refusal(&said), said.dw1.get()), (Some(Refusal::OlderImage), 5));
    // Two at once: the second one is judged by what the first one made durable.
    let (first, second) = (harness.submit_ask(7), harness.submit_ask(6));
    assert_eq!(refusal(&harness.awaited_on(PEER, first)), None);
    assert_eq!(refusal(&harness.awaited_on(PEER, second)), Some(Refusal::OlderImage));

    // Its power fails.
    drop(harness);
    let mut harness = cut.harness(cut.reopen());
    harness.connect(PEER, 0, Identity::Peer(1), CNTLID_ANY);
    let cid = harness.submit_ask(6);
    assert_eq!(refusal(&harness.awaited_on(PEER, cid)), Some(Refusal::OlderImage));
    let cid = harness.submit_ask(7);
    assert_eq!(refusal(&harness.awaited_on(PEER, cid)), None);
}

#[test]
fn an_ssd_raises_its_number_when_a_majority_has_proven_it_and_serves_with_the_new_one() {
    let (cut, ssd) = Cut::new();
    let map = naming(&ssd);
    let mut harness = cut.harness(ssd);
    harness.set_map(&map);
    harness.volume_command(opcode::VOLUME_ADD, &VolumeEntry { replicas: 2, ..entry(VOLUME) });
    let (proof, asked) = harness.asks_with();
    assert_eq!(asked, [(0, 1); 3]);
    harness.say(proof[0], Ok(()));
    assert_eq!(harness.ssd().openings().len(), 0, "one of three proves nothing");
    harness.say(proof[1], Ok(()));
    assert_eq!(harness.ssd().openings(), [1]);
    assert!(!harness.serves(), "what was said to the number before is no lease");
    harness.say(proof[2], Ok(()));
    let (asks, asked) = harness.asks_with();
    assert_eq!(asked, [(1, 1); 3]);
    asks.iter().for_each(|&ask| harness.say(ask, Ok(())));
    assert!(harness.serves());
    assert_eq!(harness.asks_with().1, [(1, 1); 3], "it rises once");

    harness.ssd().shut_down().unwrap();
    drop(harness);
    // A start that no majority hears of does not raise it.
    for _ in 0..3 {
        let mut harness = cut.harness(cut.reopen());
        let (asks, asked) = harness.asks_with();
        assert_eq!(asked, [(1, 1); 3]);
        harness.say(asks[0], Ok(()));
        harness.ssd().shut_down().unwrap();
    }
    assert_eq!(cut.reopen().openings(), [1]);
}

#[test]
fn an_older_image_counts_its_incarnation_up_once_and_serves_no_place_of_the_one_before() {
    let (cut, ssd) = Cut::new();
    let map = naming(&ssd);
    let mut harness = cut.harness(ssd);
    harness.set_map(&map);
    harness.volume_command(opcode::VOLUME_ADD, &VolumeEntry { replicas: 2, ..entry(VOLUME) });
    let (asks, _) = harness.asks_with();
    harness.say_older(asks[0], 7);
    let identity = harness.ssd().identity();
    assert_eq!((identity.incarnation, harness.ssd().is_filling()), (2, true));
    assert_eq!(harness.ssd().openings(), [7]);
    assert!(harness.closed.contains(&DAEMON), "the daemon is to ask who it is");
    harness.say_older(asks[1], 9);
    harness.say(asks[2], Ok(()));
    assert_eq!(harness.ssd().identity().incarnation, 2, "answers to what it asked before");

    let (asks, asked) = harness.asks_with();
    assert_eq!(asked, [(7, 2); 3]);
    asks.iter().for_each(|&ask| harness.say(ask, Ok(())));
    let (asks, asked) = harness.asks_with();
    assert_eq!(asked, [(8, 2); 3]);
    asks.iter().for_each(|&ask| harness.say(ask, Ok(())));
    assert!(!harness.serves(), "the map gives its places to the incarnation before");
    harness.ssd().shut_down().unwrap();
    drop(harness);
    let ssd = cut.reopen();
    assert_eq!((ssd.identity().incarnation, ssd.is_filling()), (2, true), "it is durable");
}

/// The SSD's incarnation, and whether it lacks writes.
fn content(harness: &Harness) -> (u32, bool) {
    let ssd = harness.ssd();
    (ssd.identity().incarnation, ssd.is_filling())
}

/// The content that was lost had the number that the older image counts up to: it had been dropped once and
/// had filled. The map still has it serve.
#[test]
fn an_older_image_serves_no_place_of_an_incarnation_that_the_array_gave_before() {
    let (cut, ssd) = Cut::new();
    let map = naming(&ssd);
    let mut harness = cut.harness(ssd);
    harness.set_map(&map);
    harness.volume_command(opcode::VOLUME_ADD, &VolumeEntry { replicas: 2, ..entry(VOLUME) });
    let (asks, _) = harness.asks_with();
    harness.say_older(asks[0], 7);
    assert_eq!(content(&harness), (2, true));
    assert!(harness.closed.contains(&DAEMON));
    harness.closed.clear();
    harness.connect(DAEMON, 0, Identity::Daemon, CNTLID_ANY);
    let mut newest = FleetMap3 { epoch: map.epoch + 5, ..map };
    newest.ssds[0].incarnation = 2;
    let mut bytes = AnyMap::from(newest.clone()).encode().expect("a map");
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let sqe = harness.daemon_sqe(opcode::MAP_SET, &bytes);
    // Its answer is lost with the queue.
    harness.submit(DAEMON, sqe);
    assert_eq!(content(&harness), (3, true));
    assert!(harness.closed.contains(&DAEMON), "the daemon is to ask who it is");
    for _ in 0..3 {
        let (asks, _) = harness.asks_with();
        asks.iter().for_each(|&ask| harness.say(ask, Ok(())));
    }
    assert!(!harness.serves(), "its places are those of a content that is lost");
    // Only a map in which it fills lets it take part again.
    harness.connect(DAEMON, 0, Identity::Daemon, CNTLID_ANY);
    let mut fills = FleetMap3 { epoch: newest.epoch + 1, ..newest };
    fills.ssds[0].incarnation = 3;
    fills.rows.iter_mut().for_each(|row| row.first = Some(1));
    let own = fills.rows.iter_mut().flat_map(|row| &mut row.places).flatten().filter(|place| place.ssd == 0);
    own.for_each(|place| place.filling = true);
    harness.set_map(&fills);
    assert_eq!(content(&harness), (3, false));
}

#[test]
fn an_ssd_that_stands_in_for_another_one_asks_without_a_number() {
    let (cut, mut ssd) = Cut::new();
    let map = voted(&[1, 2, 3]);
    ssd.stand_in(&map.encode().unwrap()).unwrap();
    let incarnation = ssd.identity().incarnation;
    let mut harness = cut.harness(ssd);
    let (asks, asked) = harness.asks_with();
    assert_eq!(asked, [(STANDS_IN, incarnation); 3]);
    harness.say_older(asks[0], 7);
    asks[1..].iter().for_each(|&ask| harness.say(ask, Ok(())));
    let identity = harness.ssd().identity();
    assert_eq!(identity.incarnation, incarnation);
    assert_eq!(harness.ssd().openings().len(), 0);
}

/// An old number would make the SSD that takes another one's place an older image of that.
#[test]
fn under_a_map_that_names_another_ssd_the_number_of_the_one_before_is_forgotten_and_no_other() {
    let (cut, ssd) = Cut::new();
    let mut harness = cut.harness(ssd);
    let other = QueueKey(41);
    harness.connect(PEER, 0, Identity::Peer(1), CNTLID_ANY);
    harness.connect(other, 0, Identity::Peer(2), CNTLID_ANY);
    let mut map = voted(&[0, 1, 2]);
    assert_eq!(refusal(&harness.set_map(&map)), None);
    let ask = |ssd, opening| Ask {
        ssd,
        array: ARRAY,
        epoch: map.epoch,
        incarnation: 0,
        opening,
        uuid: [0; 16],
        is_goodbye: false,
    };
    let (of_one, of_two) = (|opening| ask(1, opening), |opening| ask(2, opening));
    assert_eq!(refusal(&harness.lease_ask(PEER, of_one(5))), None);
    assert_eq!(refusal(&harness.lease_ask(other, of_two(9))), None);
    let (one, two) = (of_one(1), of_two(8));

    // The same SSDs: an older image is found.
    map = next(&map);
    assert_eq!(refusal(&harness.set_map(&map)), None);
    assert_eq!(harness.ssd().openings(), [0, 5, 9]);
    assert_eq!(refusal(&harness.lease_ask(PEER, one)), Some(Refusal::OlderImage));

    map = next(&map);
    map.ssds[1].uuid = [0xEE; 16];
    assert_eq!(refusal(&harness.set_map(&map)), None);
    assert_eq!(harness.ssd().openings(), [0, 0, 9]);
    assert_eq!(refusal(&harness.lease_ask(PEER, one)), None, "it was never opened before");
    assert_eq!(refusal(&harness.lease_ask(other, two)), Some(Refusal::OlderImage), "it is the same one");

    harness.ssd().shut_down().unwrap();
    drop(harness);
    assert_eq!(cut.reopen().openings(), [0, 1, 9], "it is durable");
}
