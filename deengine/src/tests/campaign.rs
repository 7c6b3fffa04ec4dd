// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A campaign of seeds, on SSDs with and without modelled times. Admin and I/O queues get good commands, good
//! commands with flipped bits, and noise. Data is correct, damaged or noise. Transfers end in every way,
//! queues close and open, time passes, and flash ages.
//!
//! After every step each accepted command is either open or was answered once, on its own queue.
//! `GNSTOR_FUZZ_SEED` is the first seed, and `GNSTOR_FUZZ_SECONDS` adds seeds for this time.

mod commands;

use super::media::seeds;
use super::*;
use crate::commands::scratch::Owner;
use crate::hosts::Role;
use crate::{Event, FlashHealth};
use gnstor_proto::placement::mix64;
use gnstor_proto::vendor::{SERVING_LEASE_MS, WRITE_LEASE_MS};
use std::collections::BTreeSet;
use zerocopy::FromBytes;

const SEEDS: u64 = 100;
const STEPS: u32 = 400;

struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix64(self.0)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    fn small(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(end.into())).expect("below a u32")
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[usize::try_from(self.below(list.len() as u64)).expect("short")]
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Admin queue and I/O queue of each host.
const HOSTS: [(QueueKey, QueueKey, u16); 4] = [
    (DAEMON, QueueKey(2), 0),
    (QueueKey(70), WRITER, 7),
    (QueueKey(80), READER, 8),
    (QueueKey(90), STRANGER, 9),
];

struct Campaign {
    harness: Harness,
    dice: Dice,
    open: BTreeSet<(QueueKey, u16)>,
}

impl Campaign {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let preset = dice.of(&["null", "gnstor-980pro"]);
        let mut harness = Harness::bare_as(preset, 0, 256).with_clients().with_volume();
        let limits = Limits { max_iops: dice.small(2000), max_bytes_per_s: dice.below(20_000_000) };
        harness.daemon_out(opcode::VOLUME_ADD, VolumeEntry { limits, ..entry(6) }.encode().as_bytes());
        if dice.one_in(2) {
            harness.chmod(|entry| entry.lease_ms = *WRITE_LEASE_MS.end());
        }
        harness.completions.clear();
        harness.hold = true;
        Self { harness, dice, open: BTreeSet::new() }
    }

    fn submit(&mut self, key: QueueKey, sqe: Sqe) {
        let is_open = self.harness.memory.contains_key(&key);
        let cid = self.harness.next_cid.wrapping_add(1);
        if is_open {
            assert!(self.open.insert((key, cid)), "a command id is used again");
        }
        self.harness.submit(key, sqe);
    }

    fn end_a_transfer(&mut self) {
        let count = self.harness.held.len() as u64;
        if count == 0 {
            return;
        }
        let at = usize::try_from(self.dice.below(count)).expect("few");
        let effect = self.harness.held.remove(at);
        let (Effect::Pull { transfer, queue, .. } | Effect::Push { transfer, queue, .. }) = effect else {
            unreachable!("only transfers are held")
        };
        let sum = self.dice.small(u32::MAX);
        match self.dice.below(12) {
            0 => self.harness.answer(queue, transfer, Outcome::BadChecksum),
            1 => self.harness.answer(queue, transfer, Outcome::RemoteAccess),
            2 => self.harness.answer(queue, transfer, Outcome::ConnectionLost),
            3 => self.harness.answer(queue, transfer, Outcome::Done { sum }),
            _ => self.harness.carry_out(effect),
        }
        if self.dice.one_in(8) && !self.harness.answers.contains_key(&(queue, transfer.0)) {
            // The same answer again belongs to no waiting command.
            self.harness.answer(queue, transfer, Outcome::Done { sum });
        }
    }

    /// Closes a host's connections, one or both, and opens them again, mostly correctly.
    fn reconnect(&mut self) {
        let (admin, queue, raw) = self.dice.of(&HOSTS);
        let has_controller = |harness: &mut Harness| match harness.role(admin) {
            Some(Role::Admin(cntlid)) => Some(cntlid),
            _ => None,
        };
        if has_controller(&mut self.harness).is_none() || self.dice.one_in(3) {
            self.connect(admin, 0, CNTLID_ANY, raw);
            let value = self.dice.of(&[1u64, 1, 1 | 1 << 11]);
            let fields =
                PropertyFields { offset: property::CC.into(), value: value.into(), ..Default::default() };
            self.submit(admin, command(fctype::PROPERTY_SET, &fields));
        }
        let cntlid = has_controller(&mut self.harness).filter(|_| !self.dice.one_in(8)).unwrap_or(3);
        self.connect(queue, 1, cntlid, raw);
    }

    fn connect(&mut self, key: QueueKey, qid: u16, cntlid: u16, raw: u16) {
        self.harness.memory.remove(&key);
        self.harness.close_queue(self.harness.now, key);
        self.harness.pump();
        // What was open on the old connection is not open on the new one.
        self.check();
        self.harness.open(key, qid, 32);
        let identity = ClientId::new(raw).map_or(Identity::Daemon, Identity::Client);
        self.harness.poke(key, 0, ConnectData::new(identity, cntlid, &ssd_subnqn(0)).as_bytes());
        let cattr = self.dice.small(4).to_le_bytes()[0];
        let fields = ConnectFields { qid: qid.into(), sqsize_z: 31.into(), cattr, ..Default::default() };
        let mut sqe = command(fctype::CONNECT, &fields);
        sqe.dptr = KeyedSgl::keyed(0, 1024, KEY);
        self.submit(key, sqe);
        if !self.dice.one_in(6) {
            let mine = |effect: &Effect| matches!(effect, Effect::Pull { queue, .. } if *queue == key);
            if let Some(at) = self.harness.held.iter().rposition(mine) {
                let effect = self.harness.held.remove(at);
                self.harness.carry_out(effect);
            }
        }
    }

    fn age(&mut self) {
        let now = self.harness.now;
        match self.dice.below(4) {
            0 => {
                let event =
                    self.dice.of(&[Event::PersistentError, Event::NamespaceChanged, Event::FirmwareStarting]);
                self.harness.ssd().raise(now, event);
            }
            1 => {
                let available_spare = self.dice.small(101).to_le_bytes()[0];
                let read_only = self.dice.one_in(3);
                let health = FlashHealth { available_spare, read_only, ..FlashHealth::default() };
                self.harness.ssd().set_flash_health(now, health);
            }
            2 => self.harness.ssd().set_write_cache(self.dice.one_in(2)),
            _ => self.harness.ssd().set_recovering(self.dice.one_in(8)),
        }
        self.harness.pump();
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..50 => {
                let (admin, queue, _) = self.dice.of(&HOSTS);
                if self.dice.one_in(3) {
                    self.fill(admin);
                    self.fill(queue);
                }
                let (sqe, is_admin) = self.command(queue);
                // Now and then on the wrong queue.
                let key = if is_admin != self.dice.one_in(10) { admin } else { queue };
                self.submit(key, sqe);
            }
            50..82 => (0..=self.dice.below(10)).for_each(|_| self.end_a_transfer()),
            82..85 => {
                let stray = self.dice.small(u32::MAX);
                let is_held = |effect: &Effect| match effect {
                    Effect::Pull { transfer, .. } | Effect::Push { transfer, .. } => transfer.0 == stray,
                    _ => false,
                };
                if !self.harness.held.iter().any(is_held) {
                    self.harness.answer(DAEMON, TransferId(stray), Outcome::Done { sum: 0 });
                }
            }
            85..88 => self.reconnect(),
            88..97 => {
                let ns = if self.dice.one_in(10) {
                    self.dice.below(1_500_000_000)
                } else {
                    self.dice.below(20_000)
                };
                self.harness.advance(Span::from_ns(ns));
            }
            _ => self.age(),
        }
        self.check();
    }

    fn check(&mut self) {
        for completion in std::mem::take(&mut self.harness.completions) {
            let named = (completion.queue, completion.cqe.cid.get());
            assert!(self.open.remove(&named), "{named:?} was answered twice, or never asked");
            refusal(&completion.cqe);
        }
        self.open.retain(|(key, _)| self.harness.memory.contains_key(key));
        let stats = self.harness.stats();
        let live = stats.permits_issued - stats.permits_spent - stats.permits_forfeited;
        assert_eq!(live, self.open.len() as u64, "each permit is spent or forfeited exactly once");
        assert!(self.harness.in_flight() as u64 >= live);
    }

    fn finish(mut self) {
        self.harness.ssd().set_recovering(false);
        let end = self.harness.now + Span::from_ms(10_000);
        self.harness.step_to(end);
        self.harness.release(|left| left - 1);
        self.check();
        for (admin, queue, _) in HOSTS {
            for key in [queue, admin] {
                self.harness.memory.remove(&key);
                self.harness.close_queue(self.harness.now, key);
            }
        }
        self.harness.pump();
        self.check();
        assert_eq!((self.harness.in_flight(), self.open.len()), (0, 0));
        assert!(self.harness.frames_are_whole(), "no frame is lost");
        for bytes in [4096, 8192] {
            let taken: Vec<_> =
                std::iter::from_fn(|| self.harness.ssd().commands.scratch_mut().take(Owner::Daemon, bytes))
                    .collect();
            assert_eq!(taken.len(), if bytes == 4096 { 4096 } else { 9 }, "no buffer is lost");
        }
    }
}

/// Runs one seed. Returns the numbers of refused and of completed commands.
fn run(seed: u64) -> (u64, u64) {
    println!("seed {seed}");
    let mut campaign = Campaign::new(seed);
    for _ in 0..STEPS {
        campaign.step();
    }
    let stats = campaign.harness.stats();
    let counts = (Refusal::ALL.iter().map(|&refusal| stats.refusals(refusal)).sum(), stats.permits_spent);
    campaign.finish();
    counts
}

#[test]
fn every_permit_is_spent_or_forfeited_once() {
    let (mut refused, mut spent) = (0, 0);
    seeds(SEEDS, |seed| {
        let counts = run(seed);
        refused += counts.0;
        spent += counts.1;
    });
    // A campaign in which nothing succeeds tests little.
    assert!(refused > 0 && spent > refused * 5 / 4, "{refused} of {spent} were refused");
}
