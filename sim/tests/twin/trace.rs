// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trace, drawn from a seed: the requests and completions of one channel, and what the twin does.

use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::placement::{AnyMap, FleetMap, Rows as _, mix64};
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_sim::dice::Dice;
use gnstor_sim::initiator::{Completion, Data, Host, Initiator, Outcome, Request, Volume};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use zerocopy::IntoBytes as _;

/// Reasons of refusals: one of each kind that the headers distinguish, and others.
const REASONS: [u32; 10] = [1, 2, 8, 9, 11, 13, 17, 40, 42, 90];

/// A SEND.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) index: u16,
    pub(crate) signalled: bool,
    pub(crate) capsule: [u8; 64],
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = |at: usize| {
            let bytes = self.capsule[at..at + 4].try_into().expect("4 bytes");
            u32::from_le_bytes(bytes)
        };
        let (signal, cid) = (if self.signalled { "!" } else { "" }, word(0) >> 16);
        write!(f, "[{}{signal} cid {cid:x} opcode {:x} block {:x}", self.index, word(0) & 0xFF, word(40))?;
        write!(f, " +{:x} sequence {:x}", word(48) & 0xFFFF, self.sequence())?;
        (0..16).try_for_each(|at| write!(f, " {:08x}", word(4 * at)))?;
        write!(f, "]")
    }
}

impl Sent {
    pub(crate) fn sequence(&self) -> u64 {
        u64::from_le_bytes(self.capsule[56..].try_into().expect("8 bytes"))
    }

    pub(crate) fn named(&self, sequence: u64) -> Self {
        let mut other = self.clone();
        other.capsule[56..].copy_from_slice(&sequence.to_le_bytes());
        other
    }
}

/// What happens in one run: the SENDs on each queue pair, and status, DW0 and DW1 of each lane's ends.
#[derive(Clone, Default, Debug)]
pub(crate) struct Run {
    pub(crate) sent: [Vec<Sent>; 8],
    pub(crate) ended: BTreeMap<usize, Vec<[u32; 3]>>,
}

impl Run {
    pub(crate) fn send(&mut self, ssd: usize, sent: Sent) {
        self.sent[ssd].push(sent);
    }

    pub(crate) fn end(&mut self, lane: usize, said: [u32; 3]) {
        self.ended.entry(lane).or_default().push(said);
    }
}

/// Counts how often the traces reached the cases that matter.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Seen {
    sent: usize,
    refused: usize,
    retried: usize,
    failed: usize,
    broken: usize,
    elsewhere: usize,
    gate_full: usize,
    no_replica: usize,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.retried += other.retried;
        self.failed += other.failed;
        self.broken += other.broken;
        self.elsewhere += other.elsewhere;
        self.gate_full += other.gate_full;
        self.no_replica += other.no_replica;
    }

    pub(crate) fn assert_all(&self) {
        let Self { sent, refused, retried, failed, broken, elsewhere, gate_full, no_replica } = *self;
        let all = [sent, refused, retried, failed, broken, elsewhere, gate_full, no_replica];
        assert!(all.iter().all(|&count| count > 0), "something did not occur: {self:?}");
    }
}

/// The lanes' requests, and the commands on the wire.
struct Outside {
    asks: Vec<VecDeque<Request>>,
    run: Run,
    /// For each SSD: ids of the commands that were sent and not answered.
    unanswered: Vec<Vec<u16>>,
    /// For each SSD: signalled SENDs that are not retired.
    unretired: Vec<VecDeque<u16>>,
}

impl Host for Outside {
    fn next(&mut self, lane: usize) -> Option<Request> {
        self.asks[lane].pop_front()
    }

    fn send(&mut self, _: usize, ssd: u16, (index, signalled): (u16, bool), sqe: &Sqe) {
        let ssd = usize::from(ssd);
        let capsule = sqe.as_bytes().try_into().expect("64 bytes");
        self.run.send(ssd, Sent { index, signalled, capsule });
        self.unanswered[ssd].push(sqe.cid.get());
        if signalled {
            self.unretired[ssd].push_back(index);
        }
    }

    fn ended(&mut self, lane: usize, outcome: Outcome) {
        self.run.end(lane, [outcome.status, outcome.dw0, outcome.dw1]);
    }
}

/// A trace, and what the twin does in each of its runs.
pub(crate) struct Trace {
    pub(crate) seed: u64,
    pub(crate) text: String,
    pub(crate) runs: Vec<Run>,
    pub(crate) seen: Seen,
}

/// The generator of a trace.
struct Maker {
    dice: Dice,
    text: String,
    twin: Initiator,
    outside: Outside,
    ssds: u32,
    lanes: u32,
    /// Largest number of blocks in a request.
    most: u32,
    /// One in this many answers is a refusal; 0: none.
    refuse_1_of: u32,
    /// One in this many steps breaks a queue pair; 0: none.
    break_1_of: u32,
    is_broken: Vec<bool>,
    /// The warp's lanes use the channel one after the other.
    alone: bool,
    /// Whether answers may be refusals. If two refusals of one request arrive in one pass, lanes that do not
    /// take turns may note either one first.
    may_refuse: bool,
    asks_left: u32,
    seen: Seen,
}

fn volume(dice: &mut Dice, seed: u64, ssds: u32) -> Volume {
    let mut map = FleetMap::equal(ssds as usize, 64, mix64(seed), 1).expect("1 to 8 SSDs");
    if dice.below(4) == 0 {
        map = map.without(u16::try_from(dice.below(ssds)).expect("small"));
    }
    let most = u32::try_from(map.width().min(ssds as usize)).expect("small");
    Volume {
        vid: Vid::new(u16::try_from(1 + dice.below(1000)).expect("small")).expect("not 0"),
        client: ClientId::new(u16::try_from(1 + dice.below(1000)).expect("small")).expect("not 0"),
        factor: mix64(seed ^ 7),
        replicas: u8::try_from(1 + dice.below(most)).expect("small"),
        chunk_shift: [0, 1, 2, 4, 4, 5, 9][dice.below(7) as usize],
        lease_epoch: 1 + dice.below(9),
        blocks: 4096,
        map: Arc::new(map.into()),
    }
}

impl Trace {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 0x7717);
        let ssds = 1 + dice.below(8);
        let volume = volume(&mut dice, seed, ssds);
        let depth = 8 << dice.below(5);
        let lanes = [1, 3, 32, 32][dice.below(4) as usize];
        let alone = dice.below(2);
        let mut text = format!("channel {ssds:x} {depth:x} {alone}\n");
        let Volume { vid, client, factor, replicas, chunk_shift, lease_epoch, blocks, map } = &volume;
        let AnyMap::Two(map) = &**map else { panic!("it was made of format 2") };
        let (epoch, groups, width) = (map.epoch, map.groups(), map.width());
        write!(text, "volume {:x} {:x} {factor:x} {replicas:x} ", vid.get(), client.get()).expect("text");
        write!(text, "{chunk_shift:x} {lease_epoch:x} {blocks:x} {epoch:x} {groups:x} {width:x}")
            .expect("text");
        map.places().iter().for_each(|place| write!(text, " {place:x}").expect("text"));
        text.push('\n');
        let of_ssds = ssds as usize;
        let outside = Outside {
            asks: vec![VecDeque::new(); lanes as usize],
            run: Run::default(),
            unanswered: vec![Vec::new(); of_ssds],
            unretired: vec![VecDeque::new(); of_ssds],
        };
        let mut maker = Maker {
            twin: Initiator::new(volume, of_ssds, depth, lanes as usize),
            outside,
            ssds,
            lanes,
            most: [1, 4, 40, 700][dice.below(4) as usize],
            refuse_1_of: [0, 0, 20, 4][dice.below(4) as usize],
            break_1_of: [0, 0, 0, 12][dice.below(4) as usize],
            is_broken: vec![false; of_ssds],
            alone: alone == 1,
            may_refuse: true,
            asks_left: 8 + dice.below(120),
            seen: Seen::default(),
            text,
            dice,
        };
        let runs = maker.runs();
        Self { seed, text: maker.text, runs, seen: maker.seen }
    }
}

impl Maker {
    /// Makes runs until all requests have ended.
    fn runs(&mut self) -> Vec<Run> {
        let mut runs = Vec::new();
        while self.asks_left > 0 || self.twin.in_flight() > 0 {
            assert!(runs.len() < 100_000, "the twin does not come to an end");
            for _ in 0..1 + self.dice.below(40) {
                self.event();
            }
            if self.dice.below(self.break_1_of.max(1)) == 0 && self.break_1_of > 0 {
                self.break_one();
            }
            self.text.push_str("run\n");
            self.may_refuse = true;
            let retries = self.twin.retries;
            self.twin.run(&mut self.outside);
            self.seen.retried += (self.twin.retries - retries) as usize;
            let run = std::mem::take(&mut self.outside.run);
            self.note(&run);
            runs.push(run);
        }
        assert_eq!(self.twin.protocol_errors, 0);
        runs
    }

    fn note(&mut self, run: &Run) {
        self.seen.sent += run.sent.iter().map(Vec::len).sum::<usize>();
        let statuses = || run.ended.values().flatten().map(|said| said[0]);
        self.seen.failed += statuses().filter(|&status| status != 0).count();
        self.seen.no_replica += statuses().filter(|&status| status == 0x0040_0000).count();
        self.seen.elsewhere += usize::from(self.is_broken.contains(&true) && self.twin.retries > 0);
        self.seen.gate_full += usize::from(self.twin.is_gate_full());
    }

    fn event(&mut self) {
        let ssd = self.dice.below(self.ssds) as usize;
        match self.dice.below(6) {
            0 | 1 => self.ask(),
            2 => self.retire(ssd),
            _ => self.answer(ssd),
        }
    }

    fn ask(&mut self) {
        if self.asks_left == 0 {
            return;
        }
        self.asks_left -= 1;
        let lane = self.dice.below(self.lanes) as usize;
        let blocks = 1 + self.dice.below(self.most);
        let vba = self.dice.below(self.twin.volume().blocks - blocks + 1);
        let is_write = self.dice.below(2) == 0;
        let (address, key) = (u64::from(self.dice.below(1 << 20)) << 16, 1 + self.dice.below(1 << 30));
        self.outside.asks[lane].push_back(Request {
            is_write,
            vba,
            blocks,
            data: Data::Memory { address, key },
            ..Request::default()
        });
        let opcode = 2 - u32::from(is_write);
        writeln!(self.text, "ask {lane:x} {opcode} {vba:x} {blocks:x} {address:x} {key:x}").expect("text");
    }

    fn retire(&mut self, ssd: usize) {
        if self.is_broken[ssd] {
            return;
        }
        let Some(index) = self.outside.unretired[ssd].pop_front() else { return };
        writeln!(self.text, "retire {ssd:x} {index:x}").expect("text");
        self.twin.arrive(u16::try_from(ssd).expect("small"), Completion::Retired(index));
    }

    fn answer(&mut self, ssd: usize) {
        let waiting = &mut self.outside.unanswered[ssd];
        if waiting.is_empty() || self.is_broken[ssd] {
            return;
        }
        let oldest = self.dice.below(2) == 0;
        let at = if oldest { 0 } else { self.dice.below(u32::try_from(waiting.len()).expect("small")) };
        let cid = waiting.remove(at as usize);
        let mut cqe = Cqe { cid: cid.into(), ..Cqe::default() };
        if self.may_refuse && self.refuse_1_of > 0 && self.dice.below(self.refuse_1_of) == 0 {
            cqe.set_status_word(u16::try_from(1 + self.dice.below(0x7FFF)).expect("15 bits"));
            self.seen.refused += 1;
            self.may_refuse = self.alone;
            cqe.dw0 = REASONS[self.dice.below(10) as usize].into();
        }
        cqe.dw1 = self.dice.below(1 << 30).into();
        let (status, dw0, dw1) = (cqe.status_word(), cqe.dw0.get(), cqe.dw1.get());
        writeln!(self.text, "answer {ssd:x} {cid:x} {status:x} {dw0:x} {dw1:x}").expect("text");
        self.twin.arrive(u16::try_from(ssd).expect("small"), Completion::Response(cqe));
    }

    fn break_one(&mut self) {
        let ssd = self.dice.below(self.ssds) as usize;
        if std::mem::replace(&mut self.is_broken[ssd], true) {
            return;
        }
        self.seen.broken += 1;
        writeln!(self.text, "fail {ssd:x} d 15").expect("text");
        let failed = Completion::Failed { opcode: 0xD, syndrome: 0x15 };
        self.twin.arrive(u16::try_from(ssd).expect("small"), failed);
        self.outside.unanswered[ssd].clear();
        self.outside.unretired[ssd].clear();
    }
}
