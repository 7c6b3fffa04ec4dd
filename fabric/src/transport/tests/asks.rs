// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions of an SSD on their way to the thread that carries them.

use super::*;
use gnstor_base::controller::Question;
use gnstor_base::region::LocalRef;

/// An SSD asks three questions in one step.
fn ask_three(transport: &mut RcTransport, puppet: &Puppet, local: LocalRef) {
    let ask = |number| Effect::Ask { ask: AskId(number), peer: 1, local };
    puppet.seen().effects.extend((0..3).map(ask));
    transport.drain_effects(Time::ZERO, 0);
    assert!(transport.step(Time::ZERO), "it has handed them over");
    assert!(!transport.step(Time::ZERO), "and waits");
}

#[test]
fn the_questions_of_a_step_wake_their_carrier_once() {
    let _deadline = deadline();
    let (mut transport, puppet) = (RcTransport::new(TransportConfig::default()), Puppet::default());
    let memory = HostRegion::alloc(4096).unwrap();
    let address = "an address".to_owned();
    let question = Question { sqe: Sqe::default(), address, data: std::array::from_fn(|_| 0) };
    memory.write(0, &question.encode());
    transport.add_target(Box::new(puppet.clone()), vec![Arc::clone(&memory)]);
    let bytes = u32::try_from(Question::BYTES).unwrap();
    let local = LocalRef { region: memory.id(), offset: 0, bytes };
    let (carrier, carried) = mpsc::channel();
    transport.carry_asks(Some(carrier));
    ask_three(&mut transport, &puppet, local);
    let asked: Vec<_> = carried.try_iter().collect();
    let [asked] = asked.as_slice() else { panic!("{} messages", asked.len()) };
    assert_eq!(asked.iter().map(|asked| asked.ask.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(asked.iter().all(|asked| asked.question == question));
    assert_eq!(puppet.seen().unanswered, []);
    // A carrier that has gone, and then none: each question has its answer.
    drop(carried);
    ask_three(&mut transport, &puppet, local);
    assert_eq!(puppet.seen().unanswered, [0, 1, 2].map(AskId));
    transport.carry_asks(None);
    puppet.seen().effects.push_back(Effect::Ask { ask: AskId(3), peer: 1, local });
    transport.drain_effects(Time::ZERO, 0);
    assert_eq!(puppet.seen().unanswered, [0, 1, 2, 3].map(AskId));
}
