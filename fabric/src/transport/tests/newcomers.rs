// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams without a client take a bounded part of an engine that serves clients.

use super::*;
use gnstor_proto::fabrics::{self, Identity, fctype};
use gnstor_proto::slba::ClientId;

/// Time that each look at the clock takes: with it, time goes on within a step.
const LOOK_NS: u64 = 3_000;

/// An engine, a client that works in each step, and newcomers that ask for queue pairs without end.
struct Harness {
    array: RcTransport,
    puppet: Puppet,
    client: Wire,
    newcomers: Vec<Wire>,
    ns: u64,
    asked: u32,
}

impl Harness {
    fn new(newcomers: usize) -> Self {
        let config = TransportConfig { link: LinkConfig::UNLIMITED, ..TransportConfig::default() };
        let (mut array, puppet) = (RcTransport::new(config), Puppet::default());
        array.add_target(Box::new(puppet.clone()), Vec::new());
        let (client, far) = pair();
        let slot = array.load().take();
        array.add_client(Time::ZERO, far, slot);
        let mut harness = Self { array, puppet, client, newcomers: Vec::new(), ns: 0, asked: 0 };
        harness.client.send(&Frame::Connect { conn: 1, ssd: 0, request: CmRequest::default() });
        harness.steps(100, false);
        let queue = harness.puppet.seen().opened[0];
        let who = Identity::Client(ClientId::new(1).expect("an id"));
        harness.puppet.seen().on_submit = vec![Effect::Admitted { queue, who }];
        assert_eq!(harness.array.load().streams(), 1);
        harness.steps(100, true);
        assert_eq!(harness.array.load().streams(), 8, "a client counts as so many newcomers");
        for _ in 0..newcomers {
            let (newcomer, far) = pair();
            let slot = harness.array.load().take();
            harness.array.add_client(Time::from_ns(harness.ns), far, slot);
            harness.newcomers.push(newcomer);
        }
        harness
    }

    /// Steps the engine. Returns how often the client was answered, and each newcomer.
    fn steps(&mut self, steps: u32, works: bool) -> (u32, Vec<u32>) {
        let mut answers = (0, vec![0; self.newcomers.len()]);
        for _ in 0..steps {
            if works {
                self.client.send(&Frame::Send { conn: 1, capsule: [0; 64] });
            }
            self.client.flush();
            for newcomer in &mut self.newcomers {
                self.asked += 1;
                newcomer.send(&Frame::Connect { conn: self.asked, ssd: 0, request: CmRequest::default() });
                newcomer.send(&Frame::Close { conn: self.asked });
                newcomer.flush();
            }
            let ns = &mut self.ns;
            self.array.step(|| {
                *ns += LOOK_NS;
                Time::from_ns(*ns)
            });
            let count = |wire: &mut Wire, of: fn(&Frame) -> bool| {
                let frames = std::iter::from_fn(|| wire.poll()).filter(of).count();
                u32::try_from(frames).expect("a few")
            };
            answers.0 += count(&mut self.client, |frame| matches!(frame, Frame::Ack { .. }));
            for (newcomer, answered) in self.newcomers.iter_mut().zip(&mut answers.1) {
                *answered += count(newcomer, |frame| matches!(frame, Frame::Accept { .. }));
            }
        }
        answers
    }
}

#[test]
fn newcomers_have_a_part_of_an_engine_that_serves_clients_and_each_its_share_of_it() {
    let _deadline = deadline();
    let mut harness = Harness::new(3);
    let (client, newcomers) = harness.steps(100, true);
    assert!(client >= 99 && newcomers.iter().all(|&answers| answers > 80), "at first: {newcomers:?}");
    harness.steps(3_000, true);
    let began = harness.ns;
    let (client, newcomers) = harness.steps(3_000, true);
    assert!(client >= 2_999, "{client}");
    // A newcomer's poll with an answer takes two looks at the clock or more.
    let part = u64::from(newcomers.iter().sum::<u32>()) * 2 * LOOK_NS * 100 / (harness.ns - began);
    assert!((2..=13).contains(&part), "newcomers have {part} % of the time: {newcomers:?}");
    let (least, most) = (newcomers.iter().min().unwrap(), newcomers.iter().max().unwrap());
    assert!(least * 2 > *most, "{newcomers:?}");
}

#[test]
fn newcomers_have_an_engine_that_serves_no_client_for_themselves() {
    let _deadline = deadline();
    let mut harness = Harness::new(2);
    harness.steps(3_000, true);
    let now = |harness: &Harness| Time::from_ns(harness.ns);
    assert!(harness.array.load().is_shut(now(&harness)), "it gives no further newcomer a slot");
    // The last work of the client is 100 us ago then.
    harness.steps(10, false);
    let (_, newcomers) = harness.steps(1_000, false);
    assert!(newcomers.iter().all(|&answers| answers > 900), "{newcomers:?}");
    assert!(!harness.array.load().is_shut(now(&harness)));
    // The debt ends after a quarter of a second.
    harness.newcomers.clear();
    while harness.ns < 1_000_000_000 {
        harness.steps(1_000, false);
    }
    harness.steps(100, true);
    assert!(!harness.array.load().is_shut(now(&harness)));
    assert_eq!(harness.array.load().streams(), 8, "a stream that left has no slot");
}

#[test]
fn an_engine_that_serves_clients_has_few_streams_that_it_has_not_polled() {
    let _deadline = deadline();
    let mut harness = Harness::new(0);
    let load = harness.array.load();
    harness.steps(10, true);
    let now = Time::from_ns(harness.ns);
    let slots: Vec<_> = (0..8).map(|_| load.take()).collect();
    assert!(load.is_shut(now) && !load.is_shut(now + Span::from_ms(1)));
    drop(slots);
    assert!(!load.is_shut(now));
    // An engine that serves no client has room for more, and not for any number.
    let slots: Vec<_> = (0..64).map(|_| load.take()).collect();
    assert!(load.is_shut(now + Span::from_ms(1)));
    drop(slots);
}

/// A stream of a client that has been admitted, with further queues.
struct Prover {
    wire: Wire,
    /// Each was opened by the connection whose number is its place and one.
    queues: Vec<QueueKey>,
}

impl Prover {
    fn admitted(harness: &mut Harness) -> Self {
        let (wire, far) = pair();
        let slot = harness.array.load().take();
        harness.array.add_client(Time::from_ns(harness.ns), far, slot);
        let mut prover = Self { wire, queues: Vec::new() };
        for conn in 1..=3 {
            prover.wire.send(&Frame::Connect { conn, ssd: 0, request: CmRequest::default() });
            prover.wire.flush();
            harness.steps(100, false);
            prover.queues.push(*harness.puppet.seen().opened.last().expect("its queue"));
        }
        prover.admit(harness, 1);
        prover
    }

    /// The SSD admits this queue.
    fn admit(&mut self, harness: &mut Harness, conn: u32) {
        let (queue, who) =
            (self.queues[conn as usize - 1], Identity::Client(ClientId::new(2).expect("an id")));
        harness.puppet.seen().on_submit = vec![Effect::Admitted { queue, who }];
        harness.steps(1, true);
    }

    /// Sends the command before each step, while the other client works. Returns the number of steps in which
    /// it was answered, and the part of the time in percent that they took at least.
    fn say(&mut self, harness: &mut Harness, conn: u32, sqe: &Sqe, steps: u32) -> (u32, u64) {
        let (began, mut answered, mut others) = (harness.ns, 0, 0);
        for _ in 0..steps {
            self.wire.send(&Frame::Send { conn, capsule: zerocopy::transmute!(*sqe) });
            self.wire.flush();
            others += harness.steps(1, true).0;
            answered += u32::from(self.acks() > 0);
        }
        assert!(others + 2 >= steps, "the other client has its turn in each step: {others} of {steps}");
        (answered, u64::from(answered) * 2 * LOOK_NS * 100 / (harness.ns - began))
    }

    /// Sends commands on its first queue, when its debt is over. Whether each has its turn.
    fn is_client(&mut self, harness: &mut Harness) -> bool {
        harness.steps(60_000, false);
        self.acks();
        self.say(harness, 1, &Sqe::default(), 3_000);
        let (answered, part) = self.say(harness, 1, &Sqe::default(), 3_000);
        assert!(answered >= 2_990 || (2..=13).contains(&part), "{answered} commands, {part} % of the time");
        answered >= 2_990
    }

    fn acks(&mut self) -> usize {
        let frames = std::iter::from_fn(|| self.wire.poll());
        frames.filter(|frame| matches!(frame, Frame::Ack { .. })).count()
    }
}

#[test]
fn a_client_is_a_newcomer_while_a_proof_of_one_of_its_queues_is_under_way() {
    let _deadline = deadline();
    let mut harness = Harness::new(0);
    let mut prover = Prover::admitted(&mut harness);
    assert!(prover.is_client(&mut harness));
    let proof = fabrics::command(fctype::AUTH_SEND, &fabrics::AuthFields::new(64));
    prover.say(&mut harness, 2, &proof, 3_000);
    let (answered, part) = prover.say(&mut harness, 2, &proof, 3_000);
    assert!((2..=13).contains(&part), "proofs have {part} % of the time, in {answered} steps");
    assert!(!prover.is_client(&mut harness));
    prover.admit(&mut harness, 3);
    assert!(!prover.is_client(&mut harness), "another queue was admitted: the proof is under way still");
    prover.admit(&mut harness, 2);
    assert!(prover.is_client(&mut harness), "it has proven itself");
    prover.say(&mut harness, 2, &proof, 100);
    assert!(prover.is_client(&mut harness), "an SSD hears no proof on a queue that is admitted");
}

#[test]
fn a_proof_ends_with_its_queue() {
    let _deadline = deadline();
    for closes in [true, false] {
        let mut harness = Harness::new(0);
        let mut prover = Prover::admitted(&mut harness);
        let proof = fabrics::command(fctype::AUTH_SEND, &fabrics::AuthFields::new(64));
        prover.say(&mut harness, 2, &proof, 100);
        assert!(!prover.is_client(&mut harness));
        if closes {
            prover.wire.send(&Frame::Close { conn: 2 });
            prover.wire.flush();
        } else {
            harness.puppet.seen().on_submit = vec![Effect::Close { queue: prover.queues[1] }];
        }
        assert!(prover.is_client(&mut harness), "closed by the client: {closes}");
    }
}

/// A client whose queues all begin a proof in one poll: only the first report is a client's.
#[test]
fn a_poll_of_a_client_ends_when_it_becomes_a_newcomer() {
    let _deadline = deadline();
    let mut harness = Harness::new(0);
    let mut prover = Prover::admitted(&mut harness);
    assert!(prover.is_client(&mut harness));
    // Newcomers have had their part for a while.
    harness.array.newcomers.spend(Time::from_ns(harness.ns), Span::from_ms(30));
    let proof = fabrics::command(fctype::AUTH_SEND, &fabrics::AuthFields::new(64));
    for nth in 0..10 {
        let conn = 2 + nth % 2;
        prover.wire.send(&Frame::Send { conn, capsule: zerocopy::transmute!(proof) });
    }
    prover.wire.flush();
    harness.steps(10, true);
    assert_eq!(prover.acks(), 1);
}
