// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection in virtual time, with a queue that a test answers.

use super::*;
use gnstor_base::controller::{AskId, Question};
use gnstor_base::testing::deadline;
use gnstor_fabric::admin::Capsule;
use gnstor_proto::nvme::Cqe;
use std::sync::{Arc, Mutex};

/// The commands that a queue got, and the answers that it will give.
#[derive(Default, Debug)]
struct Wire {
    sent: Vec<Capsule>,
    answers: VecDeque<Cqe>,
    is_broken: bool,
}

#[derive(Clone, Default, Debug)]
struct Puppet(Arc<Mutex<Wire>>);

impl Puppet {
    fn answer_all(&self) {
        let mut wire = self.0.lock().unwrap();
        let sent = std::mem::take(&mut wire.sent);
        wire.answers.extend(sent.iter().map(|capsule| Cqe { cid: capsule.sqe.cid, ..Cqe::default() }));
    }
}

impl AdminQueue for Puppet {
    fn send(&mut self, capsule: &Capsule) -> Result<(), ChannelError> {
        self.0.lock().unwrap().sent.push(capsule.clone());
        Ok(())
    }
    fn poll(&mut self) -> Result<Option<Cqe>, ChannelError> {
        let mut wire = self.0.lock().unwrap();
        if wire.is_broken {
            return Err(ChannelError::Broken { peer: "it".into(), cause: "a test".into() });
        }
        Ok(wire.answers.pop_front())
    }
    fn read(&mut self, _: usize, _: &mut [u8]) {}
    fn give_up(&mut self, _: &ChannelError) {}
}

fn asked(number: u32, address: &str) -> PeerAsk {
    let question =
        Question { sqe: gnstor_proto::voting::Ask::command(), address: address.into(), data: [7; 64] };
    PeerAsk { target: 0, ask: AskId(number), peer: 1, question }
}

/// A connection that is up.
fn connected() -> (PeerConnection<Puppet>, Puppet) {
    let mut connection = PeerConnection::new(0, 1);
    connection.give(asked(1, "here:1"));
    connection.attend(0);
    assert!(
        matches!(connection.pop(), Some(Output::Answer(PeerAsk { ask: AskId(1), .. }, None))),
        "not reached yet"
    );
    assert!(matches!(connection.pop(), Some(Output::Dial(Dial { address })) if address == "here:1"));
    let puppet = Puppet::default();
    connection.dialled(10, Ok((puppet.clone(), None)));
    (connection, puppet)
}

/// Names of the questions that were answered, and whether with something.
fn answers(connection: &mut PeerConnection<Puppet>) -> Vec<(u32, bool)> {
    std::iter::from_fn(|| connection.pop())
        .filter_map(|output| match output {
            Output::Answer(asked, answer) => Some((asked.ask.0, answer.is_some())),
            Output::Dial(_) => None,
        })
        .collect()
}

#[test]
fn a_question_is_sent_and_its_answer_comes_back() {
    let _deadline = deadline();
    let (mut connection, puppet) = connected();
    connection.give(asked(2, "here:1"));
    connection.give(asked(3, "here:1"));
    connection.attend(20);
    assert_eq!(puppet.0.lock().unwrap().sent.len(), 2);
    assert!(puppet.0.lock().unwrap().sent.iter().all(|capsule| capsule.data == Data::Out(vec![7; 64])));
    assert!(connection.awaits() && answers(&mut connection).is_empty());
    puppet.answer_all();
    connection.attend(30);
    assert_eq!(answers(&mut connection), [(2, true), (3, true)]);
    assert!(!connection.awaits());
}

#[test]
fn a_silent_ssd_answers_nothing_and_is_connected_with_anew() {
    let _deadline = deadline();
    let (mut connection, _puppet) = connected();
    let (mut now, mut number, mut dialled_at) = (20, 2, None);
    while now < 3000 && dialled_at.is_none() {
        if now % 100 == 20 {
            connection.give(asked(number, "here:1"));
            number += 1;
        }
        connection.attend(now);
        while let Some(output) = connection.pop() {
            match output {
                Output::Answer(_, answer) => assert_eq!(answer, None),
                Output::Dial(_) => dialled_at = Some(now),
            }
        }
        now += 10;
    }
    // The first is late after 250 ms; that nothing is heard for the second wait ends the queue.
    assert!(dialled_at.is_some_and(|at| (500..1500).contains(&at)), "{dialled_at:?}");
}

#[test]
fn rests_between_two_tries_grow_and_stay_short() {
    let _deadline = deadline();
    let mut connection: PeerConnection<Puppet> = PeerConnection::new(0, 1);
    let (mut tries, mut number) = (Vec::new(), 0);
    for now in 0..3000 {
        number += 1;
        connection.give(asked(number, "gone:1"));
        connection.attend(now);
        while let Some(output) = connection.pop() {
            if let Output::Dial(_) = output {
                tries.push(now);
                connection.dialled(now, Err(ChannelError::NotReady { peer: "it".into() }));
            }
        }
    }
    let rests: Vec<u64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(rests[..4], [50, 100, 200, 400]);
    assert!(rests[4..].iter().all(|&rest| rest == 400), "{rests:?}");
    // Without a question it does not connect.
    connection.attend(10_000);
    assert!(connection.pop().is_none() && !connection.is_over(10_000) && connection.is_over(20_000));
}

/// A process that was stopped for long has questions in flight, and gets others before it looks at any.
#[test]
fn a_connection_that_owes_an_answer_does_not_end_after_a_long_pause() {
    let _deadline = deadline();
    let (mut connection, puppet) = connected();
    connection.attend(20);
    connection.give(asked(2, "here:1"));
    assert!(!connection.is_over(20_000), "a question that was not looked at");
    connection.attend(20_000);
    assert!(!connection.is_over(40_000), "a question in flight");
    puppet.answer_all();
    connection.attend(20_010);
    assert!(!connection.is_over(40_000), "an answer that was not taken");
    assert_eq!(answers(&mut connection), [(2, true)]);
    assert!(connection.is_over(40_000));
}

#[test]
fn a_broken_queue_and_another_address_end_the_connection() {
    let _deadline = deadline();
    let (mut connection, puppet) = connected();
    connection.give(asked(2, "here:1"));
    connection.attend(20);
    puppet.0.lock().unwrap().is_broken = true;
    connection.attend(30);
    assert_eq!(answers(&mut connection), [(2, false)], "no question stays without an answer");
    let (mut connection, puppet) = connected();
    connection.give(asked(2, "there:2"));
    connection.attend(20);
    assert!(puppet.0.lock().unwrap().sent.is_empty());
    assert_eq!(answers(&mut connection), [(2, false)]);
    connection.give(asked(3, "there:2"));
    connection.attend(200);
    assert_eq!(answers(&mut connection), [(3, false)]);
    // It got another address while it was connecting.
    connection.give(asked(4, "back:1"));
    connection.attend(210);
    connection.dialled(220, Ok((Puppet::default(), None)));
    connection.give(asked(5, "back:1"));
    connection.attend(1000);
    let outputs: Vec<Output> = std::iter::from_fn(|| connection.pop()).collect();
    assert!(
        matches!(&outputs[..], [.., Output::Dial(Dial { address })] if address == "back:1"),
        "{outputs:?}"
    );
}
