// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which streams are polled, and in which order.

use super::*;
use crate::transport::TransportConfig;
use gnstor_base::testing::deadline;

#[test]
fn streams_have_their_deadlines_checked_as_often_while_the_thread_naps() {
    let _deadline = deadline();
    let mut transport = RcTransport::new(TransportConfig::default());
    assert_eq!(transport.waits(Time::ZERO).next, None, "without streams nothing is checked");
    transport.ready.slots.extend((0..5000).map(|_| Slot::default()));
    transport.ready.streams = 5000;
    let at = |ms| Time::ZERO + Span::from_ms(ms);
    transport.step(at(10));
    assert_eq!(transport.ready.at, 128);
    transport.step(at(15));
    assert_eq!((transport.ready.at, transport.waits(at(15)).next), (128, Some(at(110))));
    transport.step(at(110));
    assert_eq!(transport.ready.at, 11 * 128);
}

/// Each look at it takes so long.
struct Ticking(Time, Span);

const LOOK_TAKES: Span = Span::from_ns(1000);

impl Clock for Ticking {
    fn now(&mut self) -> Time {
        self.0 = self.0 + self.1;
        self.0
    }
}

/// A transport with streams of newcomers that sleep after each poll. Their time is used up but for one poll
/// in a turn.
fn with_newcomers(count: u32) -> RcTransport {
    let mut transport = RcTransport::new(TransportConfig::default());
    transport.ready.slots.extend((0..count).map(|_| Slot::default()));
    transport.newcomers.spend(Time::ZERO, Span::from_ms(10));
    transport
}

fn turn(transport: &mut RcTransport, nth: u32) {
    let now = Time::ZERO + Span::from_ns(8000 * u64::from(nth));
    transport.newcomers.serve(now);
    transport.poll_streams(&mut Ticking(now, LOOK_TAKES), now, false);
}

#[test]
fn newcomers_that_wait_are_polled_before_any_that_wakes_later() {
    const WAITING: u32 = 5;
    let _deadline = deadline();
    let mut transport = with_newcomers(3 * WAITING);
    (0..WAITING).for_each(|token| transport.ready.wake(token));
    for nth in 0..2 * WAITING {
        transport.ready.wake(WAITING + nth);
        turn(&mut transport, nth);
        let awake: Vec<_> = transport.ready.slots.iter().map(|slot| slot.is_awake).collect();
        let expected: Vec<_> = (0..3 * WAITING).map(|token| nth < token && token <= WAITING + nth).collect();
        assert_eq!(awake, expected, "turn {nth}");
    }
}

#[test]
fn a_newcomer_waits_for_one_of_each_other_host_however_many_that_has() {
    const MANY: u32 = 100;
    let _deadline = deadline();
    let mut transport = with_newcomers(MANY + 1);
    let host = |last| Some(std::net::Ipv4Addr::new(192, 0, 2, last).into());
    for (nth, slot) in (0..).zip(&mut transport.ready.slots) {
        slot.host = host(if nth < MANY { 1 } else { 2 });
    }
    (0..=MANY).for_each(|token| transport.ready.wake(token));
    for nth in 0..2 {
        turn(&mut transport, nth);
    }
    let awake = transport.ready.slots.iter().filter(|slot| slot.is_awake).count();
    assert_eq!((awake, transport.ready.slots[MANY as usize].is_awake), (MANY as usize - 1, false));
}

#[test]
fn a_stream_that_is_no_newcomer_any_more_waits_for_none() {
    let _deadline = deadline();
    let mut transport = with_newcomers(3);
    (0..3).for_each(|token| transport.ready.wake(token));
    transport.newcomers.spend(Time::ZERO, Span::from_ms(1));
    turn(&mut transport, 0);
    let mut waiting = transport.ready.waiting.clone();
    let waiting: Vec<_> = std::iter::from_fn(|| waiting.pop()).map(|(_, token)| token).collect();
    assert_eq!(waiting, [0, 1, 2], "they have had their part");
    transport.ready.set_admitted(1);
    turn(&mut transport, 1);
    assert_eq!((transport.ready.waiting.len(), transport.ready.slots[1].is_awake), (2, false));
}

#[test]
fn clients_have_their_turn_after_a_millisecond_of_newcomers() {
    let _deadline = deadline();
    let mut transport = RcTransport::new(TransportConfig::default());
    transport.ready.slots.extend((0..10).map(|_| Slot::default()));
    (0..10).for_each(|token| transport.ready.wake(token));
    let polled = |transport: &mut RcTransport| {
        let before = transport.ready.waiting.len();
        transport.poll_streams(&mut Ticking(Time::ZERO, Span::from_ns(200_000)), Time::ZERO, false);
        before - transport.ready.waiting.len()
    };
    // Three looks at the clock for each.
    assert_eq!([polled(&mut transport), polled(&mut transport)], [2, 2]);
}
