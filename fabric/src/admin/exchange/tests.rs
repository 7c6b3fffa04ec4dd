// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An exchange in virtual time: what may overtake what, and completions that should not be.

use super::*;
use crate::admin::{PIECE_BYTES, WINDOW_BYTES};
use proptest::prelude::*;

const DEADLINE: u64 = 5_000;
/// Opcode of the capsules of these tests; CDW12 is the command, CDW13 the number of its capsule.
const OPCODE: u8 = 0xC0;

/// A command of several capsules.
#[derive(Clone, Debug)]
struct Sim {
    name: u32,
    order: Option<u64>,
    /// Bytes that each capsule brings.
    brings: usize,
    capsules: u32,
    asked: u32,
}

#[derive(Clone, PartialEq, Debug)]
enum End {
    Replied(Vec<u8>),
    Lost(ChannelError),
}

impl Dialogue for Sim {
    type Answer = End;

    fn order(&self) -> Option<u64> {
        self.order
    }

    fn ask(&self) -> Ask {
        let (cdw12, cdw13) = (self.name.into(), self.asked.into());
        let data = if self.brings == 0 { Data::None } else { Data::In(self.brings) };
        Ask { sqe: Sqe { opcode: OPCODE, cdw12, cdw13, ..Sqe::default() }, data }
    }

    fn replied(&mut self, reply: Reply) -> Option<End> {
        self.asked += 1;
        (self.asked == self.capsules).then_some(End::Replied(reply.data))
    }

    fn lost(&mut self, error: &ChannelError) -> End {
        End::Lost(error.clone())
    }
}

type Exchange = super::Exchange<u32, Sim>;

fn exchange() -> Exchange {
    Exchange::new("SSD 0", DEADLINE)
}

fn command(name: u32, order: Option<u64>) -> Sim {
    Sim { name, order, brings: 0, capsules: 1, asked: 0 }
}

fn give(exchange: &mut Exchange, commands: impl IntoIterator<Item = Sim>) {
    commands.into_iter().for_each(|command| exchange.give(command.name, command));
}

/// The commands that are sent now, with their ids.
fn sent(exchange: &mut Exchange, now: u64) -> Vec<(u32, u16)> {
    std::iter::from_fn(|| exchange.next(now))
        .map(|capsule| (capsule.sqe.cdw12.get(), capsule.sqe.cid.get()))
        .collect()
}

fn cqe(cid: u16) -> Cqe {
    Cqe { cid: cid.into(), ..Cqe::default() }
}

fn complete(exchange: &mut Exchange, cid: u16) -> Result<(), ChannelError> {
    exchange.completed(cqe(cid), |_, data| data.fill(7))
}

fn answers(exchange: &mut Exchange) -> Vec<(u32, End)> {
    std::iter::from_fn(|| exchange.pop()).collect()
}

fn replied() -> End {
    End::Replied(Vec::new())
}

fn lost(exchange: &mut Exchange) -> Vec<u32> {
    let is_lost = |(name, end)| matches!(end, End::Lost(_)).then_some(name).expect("it is lost");
    answers(exchange).into_iter().map(is_lost).collect()
}

#[test]
fn a_slow_command_holds_up_its_own_order_and_no_other() {
    let _deadline = gnstor_base::testing::deadline();
    let mut exchange = exchange();
    give(&mut exchange, [command(1, Some(1)), command(2, Some(1)), command(3, Some(2)), command(4, None)]);
    assert_eq!(sent(&mut exchange, 0), [(1, 0), (3, 1), (4, 2)], "2 waits for 1");
    complete(&mut exchange, 2).unwrap();
    complete(&mut exchange, 1).unwrap();
    assert_eq!(answers(&mut exchange), [(4, replied()), (3, replied())]);
    give(&mut exchange, [command(5, Some(1)), command(6, Some(2))]);
    assert_eq!(sent(&mut exchange, 10), [(6, 3)], "5 is behind 2");
    complete(&mut exchange, 0).unwrap();
    assert_eq!(sent(&mut exchange, 20), [(2, 4)]);
    complete(&mut exchange, 4).unwrap();
    assert_eq!(sent(&mut exchange, 30), [(5, 5)]);
}

#[test]
fn a_dialogue_of_several_capsules_keeps_its_place_in_its_order() {
    let _deadline = gnstor_base::testing::deadline();
    let mut exchange = exchange();
    let long = Sim { capsules: 3, brings: 12, ..command(1, Some(9)) };
    give(&mut exchange, [long, command(2, Some(9))]);
    for cid in 0..3 {
        assert_eq!(sent(&mut exchange, 0), [(1, cid)]);
        complete(&mut exchange, cid).unwrap();
    }
    assert_eq!(answers(&mut exchange), [(1, End::Replied(vec![7; 12]))]);
    assert_eq!(sent(&mut exchange, 0), [(2, 3)]);
}

#[test]
fn a_completion_that_nothing_waits_for_ends_the_exchange_and_loses_what_is_under_way() {
    let _deadline = gnstor_base::testing::deadline();
    // An id that was never assigned, an id of a command of another SSD's queue, and an id that was completed
    // before.
    for wrong in [900, 5, 1] {
        let mut exchange = exchange();
        give(
            &mut exchange,
            [command(1, Some(1)), command(2, Some(2)), command(3, None), command(4, Some(1))],
        );
        assert_eq!(sent(&mut exchange, 0).len(), 3);
        complete(&mut exchange, 1).unwrap();
        assert_eq!(answers(&mut exchange), [(2, replied())]);
        let error = complete(&mut exchange, wrong).unwrap_err();
        assert!(error.to_string().contains(&format!("command {wrong}, which is not under way")), "{error}");
        assert_eq!(lost(&mut exchange), [1, 3, 4]);
        // Nothing more is sent or accepted, and even a correct id comes too late.
        assert_eq!(complete(&mut exchange, 0), Err(error.clone()));
        exchange.keep_alive();
        give(&mut exchange, [command(5, None)]);
        assert_eq!((exchange.next(1), exchange.step(1)), (None, Err(error.clone())));
        assert_eq!(answers(&mut exchange), [(5, End::Lost(error))]);
        assert!(!exchange.awaits() && exchange.wakes_at().is_none());
    }
}

#[test]
fn a_lost_connection_loses_every_command_once() {
    let _deadline = gnstor_base::testing::deadline();
    let mut exchange = exchange();
    give(&mut exchange, (0..30).map(|name| command(name, Some(u64::from(name) / 2))));
    exchange.keep_alive();
    assert_eq!(sent(&mut exchange, 0).len(), COMMANDS + 1);
    let error = ChannelError::Broken { peer: "SSD 0".into(), cause: "pulled".into() };
    assert_eq!(exchange.end(error.clone()), error);
    let mut all = lost(&mut exchange);
    all.sort_unstable();
    assert_eq!(all, (0..30).collect::<Vec<_>>());
    let second = ChannelError::NotReady { peer: "SSD 0".into() };
    assert_eq!((exchange.end(second), exchange.pop()), (error, None), "the first reason stays");
}

#[test]
fn a_deadline_loses_one_command_and_the_others_go_on() {
    let _deadline = gnstor_base::testing::deadline();
    let mut exchange = exchange();
    give(&mut exchange, [command(1, Some(1))]);
    assert_eq!(sent(&mut exchange, 0), [(1, 0)]);
    give(&mut exchange, [command(2, Some(2)), command(3, Some(1))]);
    assert_eq!(sent(&mut exchange, 1_000), [(2, 1)]);
    assert_eq!(exchange.wakes_at(), Some(DEADLINE));
    exchange.step(DEADLINE - 1).unwrap();
    assert_eq!(exchange.pop(), None);
    exchange.step(DEADLINE).unwrap();
    // What waits for the late one's order would overtake it on the SSD, or wait without a bound.
    let ends = answers(&mut exchange);
    let timeout = |what: &str| {
        let after = Duration::from_millis(DEADLINE);
        End::Lost(ChannelError::Timeout { what: what.into(), after })
    };
    assert_eq!(ends, [(1, timeout("SSD 0")), (3, timeout("an earlier command of this kind to SSD 0"))]);
    give(&mut exchange, [command(4, Some(1)), command(5, Some(3))]);
    assert_eq!(lost(&mut exchange), [4], "at once");
    assert_eq!(sent(&mut exchange, DEADLINE), [(5, 2)]);
    complete(&mut exchange, 1).unwrap();
    assert_eq!(answers(&mut exchange), [(2, replied())]);
    // The completion of the late command frees its order, and answers no command a second time.
    complete(&mut exchange, 0).unwrap();
    assert_eq!(exchange.pop(), None);
    give(&mut exchange, [command(6, Some(1))]);
    assert_eq!(sent(&mut exchange, DEADLINE), [(6, 3)]);
}

/// An SSD writes its metadata for one command after another. The last of many has the time for all of them.
#[test]
fn a_command_has_the_time_of_those_ahead_of_it_too() {
    let _deadline = gnstor_base::testing::deadline();
    let mut exchange = exchange();
    give(&mut exchange, (0..4).map(|name| command(name, Some(name.into()))));
    assert_eq!(sent(&mut exchange, 0).len(), 4);
    for cid in 0..4u16 {
        exchange.step(u64::from(cid + 1) * DEADLINE - 1).unwrap();
        assert_eq!(exchange.pop(), None);
        complete(&mut exchange, cid).unwrap();
        assert_eq!(answers(&mut exchange), [(cid.into(), replied())]);
    }
    give(&mut exchange, [command(4, Some(4))]);
    sent(&mut exchange, 100_000);
    assert_eq!(exchange.wakes_at(), Some(100_000 + DEADLINE));
}

#[test]
fn a_second_deadline_ends_the_exchange() {
    let _deadline = gnstor_base::testing::deadline();
    let mut exchange = exchange();
    give(&mut exchange, [command(1, Some(1))]);
    sent(&mut exchange, 0);
    exchange.step(DEADLINE).unwrap();
    assert_eq!(lost(&mut exchange), [1]);
    give(&mut exchange, [command(2, Some(2))]);
    sent(&mut exchange, 2 * DEADLINE - 1);
    exchange.step(2 * DEADLINE - 1).unwrap();
    assert!(matches!(exchange.step(2 * DEADLINE), Err(ChannelError::Timeout { .. })));
    assert_eq!(lost(&mut exchange), [2]);
}

#[test]
fn a_keep_alive_goes_out_beside_a_full_queue_and_its_silence_ends_the_exchange() {
    let _deadline = gnstor_base::testing::deadline();
    let mut exchange = exchange();
    give(&mut exchange, (0..20).map(|name| command(name, None)));
    assert_eq!(sent(&mut exchange, 0).len(), COMMANDS);
    exchange.keep_alive();
    exchange.keep_alive();
    let capsule = exchange.next(100).expect("there is room for it");
    assert_eq!((capsule.sqe.opcode, capsule.data), (nvme::admin::KEEP_ALIVE, Data::None));
    exchange.keep_alive();
    assert_eq!(exchange.next(100), None, "one at a time");
    complete(&mut exchange, capsule.sqe.cid.get()).unwrap();
    assert_eq!(exchange.pop(), None);
    exchange.keep_alive();
    assert!(exchange.next(200).is_some());
    for cid in 0..14 {
        complete(&mut exchange, cid).unwrap();
    }
    assert_eq!(answers(&mut exchange).len(), 14);
    exchange.step(199 + DEADLINE).unwrap();
    assert!(matches!(exchange.step(200 + DEADLINE), Err(ChannelError::Timeout { .. })));
    assert_eq!(lost(&mut exchange), (14..20).collect::<Vec<_>>());
}

#[test]
fn data_of_commands_in_flight_never_share_memory_and_a_long_transfer_gets_its_turn() {
    let _deadline = gnstor_base::testing::deadline();
    let mut exchange = exchange();
    let bringing = |name, brings| Sim { brings, ..command(name, None) };
    give(&mut exchange, [bringing(1, PIECE_BYTES), bringing(2, WINDOW_BYTES), bringing(3, 1)]);
    assert_eq!(sent(&mut exchange, 0), [(1, 0)], "3 does not overtake 2, which would never fit");
    complete(&mut exchange, 0).unwrap();
    assert_eq!(sent(&mut exchange, 0), [(2, 1)]);
    complete(&mut exchange, 1).unwrap();
    let capsule = exchange.next(0).expect("3");
    assert_eq!((capsule.at, capsule.data), (0, Data::In(1)));
    // A failed command brings nothing.
    let mut failed = cqe(2);
    failed.set_status_word(2);
    exchange.completed(failed, |_, _| panic!("nothing is read")).unwrap();
    assert_eq!(answers(&mut exchange).last(), Some(&(3, replied())));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Give { order: Option<u64>, brings: usize, capsules: u32 },
    Complete { which: usize },
    Pass { ms: u64 },
    KeepAlive,
}

fn step() -> impl Strategy<Value = Step> {
    let (order, brings) = (proptest::option::of(0u64..4), prop_oneof![Just(0), Just(1), Just(400_000)]);
    prop_oneof![
        6 => (order, brings, 1u32..4)
            .prop_map(|(order, brings, capsules)| Step::Give { order, brings, capsules }),
        8 => any::<usize>().prop_map(|which| Step::Complete { which }),
        1 => (0u64..3_000).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::KeepAlive),
    ]
}

/// A controller that completes what it was sent in any order, and the rules it holds the exchange to.
#[derive(Default)]
struct Controller {
    /// Command id, command, bytes of its area, and time of arrival.
    held: Vec<(u16, Option<u32>, std::ops::Range<usize>, u64)>,
    orders: BTreeMap<u32, Option<u64>>,
}

impl Controller {
    fn take(&mut self, now: u64, exchange: &mut Exchange) {
        while let Some(capsule) = exchange.next(now) {
            let cid = capsule.sqe.cid.get();
            let name = (capsule.sqe.opcode == OPCODE).then(|| capsule.sqe.cdw12.get());
            let area = capsule.at..capsule.at + capsule.data.bytes();
            for (other, held, there, _) in &self.held {
                assert_ne!(cid, *other, "an id names one command");
                assert!(area.end <= there.start || there.end <= area.start, "{area:?} and {there:?}");
                let order = |name: &Option<u32>| name.and_then(|name| self.orders[&name]);
                assert!(order(&name).is_none() || order(&name) != order(held), "{name:?} overtakes {held:?}");
            }
            assert!(area.end <= WINDOW_BYTES);
            self.held.push((cid, name, area, now));
            assert!(self.held.len() <= COMMANDS + 1);
        }
    }
}

proptest! {
    #[test]
    fn whatever_the_order_of_completions_each_command_is_answered_once(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let _deadline = gnstor_base::testing::deadline();
        let (mut exchange, mut controller) = (exchange(), Controller::default());
        let (mut now, mut given) = (0, 0);
        let mut ends: BTreeMap<u32, End> = BTreeMap::new();
        // The last command of each order that was carried out: later ones only.
        let mut last: BTreeMap<u64, u32> = BTreeMap::new();
        let mut ended = false;
        let drain = steps.into_iter().chain(std::iter::repeat_n(Step::Complete { which: 0 }, 2_000));
        for step in drain {
            match step {
                Step::Give { order, brings, capsules } => {
                    controller.orders.insert(given, order);
                    exchange.give(given, Sim { name: given, order, brings, capsules, asked: 0 });
                    given += 1;
                }
                Step::Complete { which } if !controller.held.is_empty() => {
                    let (cid, name, ..) = controller.held.swap_remove(which % controller.held.len());
                    if !ended {
                        complete(&mut exchange, cid).unwrap();
                    }
                    if let Some((name, order)) = name.and_then(|n| Some((n, controller.orders[&n]?))) {
                        let before = last.insert(order, name);
                        prop_assert!(before.is_none_or(|before| before <= name), "{before:?} before {name}");
                    }
                }
                Step::Complete { .. } => {}
                Step::Pass { ms } => {
                    now += ms;
                    let silent = controller.held.iter().any(|(_, name, _, at)| {
                        let patience = if name.is_some() { 2 } else { 1 };
                        // A late step gives a late command its second deadline from then on.
                        now >= at + patience * DEADLINE
                    });
                    let stepped = exchange.step(now);
                    prop_assert!(stepped.is_ok() || silent || ended, "{stepped:?}");
                    ended |= stepped.is_err();
                }
                Step::KeepAlive => exchange.keep_alive(),
            }
            controller.take(now, &mut exchange);
            while let Some((name, end)) = exchange.pop() {
                prop_assert!(ends.insert(name, end).is_none(), "{name} is answered twice");
            }
        }
        prop_assert_eq!(ends.len(), given as usize, "each is answered");
        prop_assert!(!exchange.awaits() && exchange.wakes_at().is_none());
        let in_time = ends.values().all(|end| matches!(end, End::Replied(_)));
        prop_assert!(in_time || now >= DEADLINE);
    }
}
