// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A line in virtual time, with a queue that a test answers.

use super::*;
use gnstor_base::controller::{AskId, Question};
use gnstor_base::testing::deadline;
use gnstor_fabric::admin::Capsule;
use gnstor_proto::nvme::Cqe;
use std::sync::{Arc, Mutex};

/// What a queue was given, and what it is to say.
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

/// A line that is up.
fn connected() -> (Line<Puppet>, Puppet) {
    let mut line = Line::new(0, 1);
    line.give(asked(1, "here:1"));
    line.attend(0);
    assert!(
        matches!(line.pop(), Some(Output::Answer(PeerAsk { ask: AskId(1), .. }, None))),
        "not reached yet"
    );
    assert!(matches!(line.pop(), Some(Output::Dial(Dial { address })) if address == "here:1"));
    let puppet = Puppet::default();
    line.dialled(10, Ok((puppet.clone(), None)));
    (line, puppet)
}

/// Names of the questions that were answered, and whether with something.
fn answers(line: &mut Line<Puppet>) -> Vec<(u32, bool)> {
    std::iter::from_fn(|| line.pop())
        .filter_map(|output| match output {
            Output::Answer(asked, answer) => Some((asked.ask.0, answer.is_some())),
            Output::Dial(_) => None,
        })
        .collect()
}

#[test]
fn a_question_is_sent_and_its_answer_comes_back() {
    let _deadline = deadline();
    let (mut line, puppet) = connected();
    line.give(asked(2, "here:1"));
    line.give(asked(3, "here:1"));
    line.attend(20);
    assert_eq!(puppet.0.lock().unwrap().sent.len(), 2);
    assert!(puppet.0.lock().unwrap().sent.iter().all(|capsule| capsule.data == Data::Out(vec![7; 64])));
    assert!(line.awaits() && answers(&mut line).is_empty());
    puppet.answer_all();
    line.attend(30);
    assert_eq!(answers(&mut line), [(2, true), (3, true)]);
    assert!(!line.awaits());
}

#[test]
fn a_silent_ssd_answers_nothing_and_is_connected_with_anew() {
    let _deadline = deadline();
    let (mut line, _puppet) = connected();
    let (mut now, mut number, mut dialled_at) = (20, 2, None);
    while now < 3000 && dialled_at.is_none() {
        if now % 100 == 20 {
            line.give(asked(number, "here:1"));
            number += 1;
        }
        line.attend(now);
        while let Some(output) = line.pop() {
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
    let mut line: Line<Puppet> = Line::new(0, 1);
    let (mut tries, mut number) = (Vec::new(), 0);
    for now in 0..3000 {
        number += 1;
        line.give(asked(number, "gone:1"));
        line.attend(now);
        while let Some(output) = line.pop() {
            if let Output::Dial(_) = output {
                tries.push(now);
                line.dialled(now, Err(ChannelError::NotReady { peer: "it".into() }));
            }
        }
    }
    let rests: Vec<u64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(rests[..4], [50, 100, 200, 400]);
    assert!(rests[4..].iter().all(|&rest| rest == 400), "{rests:?}");
    // Without a question it connects with no one.
    line.attend(10_000);
    assert!(line.pop().is_none() && !line.is_over(10_000) && line.is_over(20_000));
}

#[test]
fn a_broken_queue_and_another_address_end_the_connection() {
    let _deadline = deadline();
    let (mut line, puppet) = connected();
    line.give(asked(2, "here:1"));
    line.attend(20);
    puppet.0.lock().unwrap().is_broken = true;
    line.attend(30);
    assert_eq!(answers(&mut line), [(2, false)], "no question stays without an answer");
    let (mut line, puppet) = connected();
    line.give(asked(2, "there:2"));
    line.attend(20);
    assert!(puppet.0.lock().unwrap().sent.is_empty());
    assert_eq!(answers(&mut line), [(2, false)]);
    line.give(asked(3, "there:2"));
    line.attend(200);
    assert_eq!(answers(&mut line), [(3, false)]);
    // It was told of another address while it connected.
    line.give(asked(4, "back:1"));
    line.attend(210);
    line.dialled(220, Ok((Puppet::default(), None)));
    line.give(asked(5, "back:1"));
    line.attend(1000);
    let outputs: Vec<Output> = std::iter::from_fn(|| line.pop()).collect();
    assert!(
        matches!(&outputs[..], [.., Output::Dial(Dial { address })] if address == "back:1"),
        "{outputs:?}"
    );
}
