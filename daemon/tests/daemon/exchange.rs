// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The core with an [`Exchange`] for each SSD, in virtual time: a fence of one volume delays no other volume.

use crate::array::{SSD_BYTES, SimArray};
use crate::bench::{Outcome, client, config, create, delete, name, opened, read, release, renew, write};
use crate::deadline::{Deadline, LIMIT};
use gnstor_daemon::core::Page;
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{CommandId, Core, Effect, Reply, Ticket};
use gnstor_daemon::port::Talk;
use gnstor_fabric::admin::{Capsule, Exchange};
use gnstor_proto::nvme::Sqe;
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;
use gnstor_proto::vendor::opcode::{VOLUME_CHMOD, VOLUME_LIST};
use std::collections::BTreeMap;

/// Longest wait for one admin command, ms.
const DEADLINE: u64 = 5_000;
/// Time of a command, ms.
const QUICK: u64 = 1;
/// Time of a fence, ms.
const FENCE: u64 = 2_000;

/// A daemon and its SSDs. Each SSD takes many commands at once; some commands are slow.
struct World {
    core: Core,
    array: SimArray,
    exchanges: Vec<Exchange<CommandId, Talk>>,
    /// Commands at the SSDs: when they are done, and in what order they came.
    under_way: BTreeMap<(u64, u64), (usize, Capsule)>,
    sent: u64,
    now: u64,
    /// CHMODs of this volume take long on this SSD.
    fenced: Option<(usize, Vid)>,
    /// VOLUME LIST takes long on this SSD.
    slow_list: Option<usize>,
    /// Time and result of each request.
    replies: BTreeMap<Ticket, (u64, Outcome)>,
    tickets: u64,
}

impl World {
    fn start(ssds: usize) -> Self {
        let exchange = |ssd: usize| Exchange::new(format!("SSD {ssd}"), DEADLINE);
        let mut world = Self {
            core: Core::new(config(), &vec![SSD_BYTES; ssds]),
            array: SimArray::new(ssds),
            exchanges: (0..ssds).map(exchange).collect(),
            under_way: BTreeMap::new(),
            sent: 0,
            now: 0,
            fenced: None,
            slow_list: None,
            replies: BTreeMap::new(),
            tickets: 0,
        };
        world.run_until(1_000);
        assert!(world.core.is_serving(), "{:?}", world.core.waits_for());
        world
    }

    fn takes(&self, ssd: usize, sqe: &Sqe, data: &[u8]) -> u64 {
        let is_fenced = self.fenced.is_some_and(|(fenced, vid)| {
            sqe.opcode == VOLUME_CHMOD
                && fenced == ssd
                && VolumeEntry::decode(data).is_ok_and(|entry| entry.vid == vid)
        });
        let is_slow_list = sqe.opcode == VOLUME_LIST && self.slow_list == Some(ssd);
        if is_fenced || is_slow_list { FENCE } else { QUICK }
    }

    /// Carries out effects and sends capsules until nothing is left to do now.
    fn settle(&mut self) {
        loop {
            let mut worked = false;
            while let Some(effect) = self.core.pop_effect() {
                worked = true;
                match effect {
                    Effect::Command { id, ssd, command } => {
                        self.exchanges[usize::from(ssd)].give(id, Talk::start(command).expect("it is short"));
                    }
                    Effect::Reply { ticket, result } => {
                        assert!(self.replies.insert(ticket, (self.now, result)).is_none());
                    }
                    Effect::Serving => {}
                    Effect::Connect { ssd, .. } => panic!("SSD {ssd} is not of this array"),
                    Effect::Stopped(stop) => panic!("{stop}"),
                }
            }
            for ssd in 0..self.exchanges.len() {
                while let Some(capsule) = self.exchanges[ssd].next(self.now) {
                    let data = if let gnstor_fabric::admin::Data::Out(data) = &capsule.data {
                        &data[..]
                    } else {
                        &[]
                    };
                    let done = self.now + self.takes(ssd, &capsule.sqe, data);
                    self.under_way.insert((done, self.sent), (ssd, capsule));
                    self.sent += 1;
                }
                while let Some((id, answer)) = self.exchanges[ssd].pop() {
                    worked = true;
                    self.core.completed(self.now, id, answer);
                }
            }
            if !worked {
                return;
            }
        }
    }

    fn run_until(&mut self, end: u64) {
        self.settle();
        loop {
            let done = self.under_way.first_key_value().map(|(&(at, _), _)| at);
            let exchanges = self.exchanges.iter().filter_map(Exchange::wakes_at);
            let next = exchanges.chain(done).chain(self.core.next_event()).min();
            let Some(at) = next.filter(|&at| at <= end) else { break };
            self.now = self.now.max(at);
            while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (ssd, capsule) = entry.remove();
                let done = self.array.ssd(ssd).carry_out(&capsule, None);
                let (cqe, brought) = done.expect("it is there");
                let exchange = &mut self.exchanges[ssd];
                exchange.completed(cqe, |_, data| data.copy_from_slice(&brought)).expect("it was sent");
            }
            self.exchanges.iter_mut().for_each(|exchange| exchange.step(self.now).expect("it is there"));
            self.core.step(self.now);
            self.settle();
        }
        self.now = end;
    }

    fn send(&mut self, request: Request) -> Ticket {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.core.request(self.now, ticket, request);
        self.settle();
        ticket
    }

    /// Sends, and lets 10 s pass: how long the answer took, and the answer.
    fn ask(&mut self, request: Request) -> (u64, Outcome) {
        let (begun, ticket) = (self.now, self.send(request));
        self.run_until(begun + 10_000);
        self.reply(ticket, begun)
    }

    fn reply(&self, ticket: Ticket, begun: u64) -> (u64, Outcome) {
        let (at, outcome) = self.replies.get(&ticket).cloned().expect("an answer");
        (at - begun, outcome)
    }
}

/// Volumes a and b, and a fence of a under way on SSD 1.
fn with_a_fence() -> (World, Ticket) {
    let mut world = World::start(3);
    for volume in ["a", "b"] {
        world.ask(create(volume)).1.unwrap();
        opened(&world.ask(write(volume, 5, 60_000)).1);
    }
    let a = world.array.ssd(1).active().into_iter().find(|entry| entry.name == "a").unwrap().vid;
    world.fenced = Some((1, a));
    let fence = world.send(release("a", 5));
    (world, fence)
}

#[test]
fn a_fence_holds_up_no_call_for_another_volume() {
    let _deadline = Deadline::after(LIMIT);
    let calls: [fn() -> Request; 7] = [
        || renew("b", 5, 1, 60_000),
        || read("b", 6),
        || release("b", 5),
        || delete("b", 5),
        || create("c"),
        || Request::List(Page::ALL),
        || Request::Get { name: name("b") },
    ];
    for call in calls {
        let (mut world, fence) = with_a_fence();
        let begun = world.now;
        world.run_until(begun + 100);
        let (took, outcome) = world.ask(call());
        outcome.unwrap();
        assert!(took <= 2 * QUICK, "{:?} took {took} ms", call());
        let (took, outcome) = world.reply(fence, begun);
        assert_eq!((took, outcome), (FENCE, Ok(Reply::Done)));
        world.array.agreed();
    }
}

#[test]
fn a_call_for_the_fenced_volume_waits_for_the_fence() {
    let _deadline = Deadline::after(LIMIT);
    let (mut world, _) = with_a_fence();
    let begun = world.now;
    world.run_until(begun + 100);
    world.fenced = None;
    let (took, outcome) = world.ask(write("a", 6, 1_000));
    assert_eq!(opened(&outcome).writer, Some(client(6)), "not before all SSDs have taken the release");
    assert_eq!(took, FENCE - 100 + QUICK);
}

#[test]
fn an_ssd_that_comes_back_is_read_while_changes_go_on() {
    let _deadline = Deadline::after(LIMIT);
    let mut world = World::start(3);
    for volume in ["a", "b"] {
        world.ask(create(volume)).1.unwrap();
        opened(&world.ask(write(volume, 5, 60_000)).1);
    }
    world.core.ssd_lost(world.now, 1, "pulled");
    world.slow_list = Some(1);
    world.core.ssd_found(world.now, 1);
    world.settle();
    let begun = world.now;
    world.run_until(begun + 100);
    assert_eq!(world.core.absent().len(), 1, "its table is being read");
    // A renewal does not need everyone; the table that is being read has the entry of before, or of after.
    let (took, outcome) = world.ask(renew("b", 5, 1, 90_000));
    outcome.unwrap();
    assert!(took <= 2 * QUICK, "{took} ms");
    assert!(world.core.absent().is_empty());
    assert!(world.array.agreed().iter().any(|entry| entry.name == "b" && entry.lease_ms <= 90_000));
    assert_eq!(world.array.ssd(1).counts[&VOLUME_LIST], 4, "three at the start, one now");
}

#[test]
fn a_fence_beyond_its_deadline_is_named_and_repeated_when_it_has_ended() {
    let _deadline = Deadline::after(LIMIT);
    let (mut world, fence) = with_a_fence();
    let begun = world.now;
    // The one under way never ends in time: it is done after 6 s.
    let (key, value) = {
        let key = *world.under_way.iter().find(|(_, (ssd, _))| *ssd == 1).expect("the fence").0;
        (key, world.under_way.remove(&key).expect("it is there"))
    };
    world.under_way.insert((begun + 6_000, key.1), value);
    world.fenced = None;
    world.run_until(begun + DEADLINE - 1);
    assert!(!world.replies.contains_key(&fence));
    let (took, outcome) = world.ask(renew("b", 5, 1, 60_000));
    outcome.unwrap();
    assert!(took <= 2 * QUICK, "{took} ms");
    let (took, outcome) = world.reply(fence, begun);
    let message = outcome.expect_err("SSD 1 did not answer in time").message;
    assert!(message.contains("SSD 1") && message.contains("repeated"), "{message}");
    assert!((DEADLINE..DEADLINE + 10).contains(&took), "{took} ms");
    world.run_until(begun + 30_000);
    assert_eq!(world.array.agreed().iter().find(|entry| entry.name == "a").unwrap().writer, None);
    assert_eq!(world.core.next_event(), None, "nothing is left to be repeated");
}
