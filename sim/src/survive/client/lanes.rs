// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The requests of a client: one on each lane of its twin. An SSD may refuse a request for its map, or its
//! queue may break. Then it waits and starts over with the same stamps, until its deadline.
//!
//! ```text
//!   Idle --drawn--> Runs --ended well--> Idle
//!                    |  ^
//!   refused, broken  v  | another map, or 4 ms
//!                   Waits --deadline--> Idle: it may be there, or not
//! ```

use super::session::Session;
use crate::dice::Dice;
use crate::initiator::{Data, Host, NO_REPLICA, Outcome, QP_BROKEN, Request, STARTS_OVER};
use crate::survive::end::{KEY, Memory, lock};
use crate::survive::history::{BLOCK, Found, History, Life, ReadOf, data_of, found_in};
use crate::survive::stats::Path;
use crate::survive::wire::Post;
use gnstor_base::time::{Span, Time};
use gnstor_proto::nvme::{ReadWrite, Sqe};
use gnstor_proto::slba::Stamp;
use gnstor_proto::status::{Detail, Refusal};
use std::collections::BTreeSet;

/// Blocks of a request, at most.
pub(super) const MOST: u32 = 16;
/// The memory in front of the lanes: Connect's data of each SSD.
const FRONT: usize = 64 << 10;
/// A request that waits looks again after this time, without another map.
const AGAIN: Span = Span::from_ms(4);
/// A request ends within this time, or is given up.
const DEADLINE: Span = Span::from_ms(6_000);

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Op {
    number: u64,
    is_write: bool,
    is_zeroes: bool,
    fua: bool,
    vba: u32,
    blocks: u32,
    pub(super) begun: Time,
    deadline: Time,
    sequence: Option<u64>,
    /// For a read: the newest acknowledged stamps when it began, and the SSDs that it asked last.
    floors: Vec<Stamp>,
    ssds: Vec<u16>,
    epoch: u64,
}

#[derive(Clone, Debug)]
enum Lane {
    Idle,
    Runs(Op),
    Waits { op: Op, at: Time, epoch: u64 },
}

/// What a client does to its volume.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) life: Life,
    pub(super) blocks: u32,
    pub(super) may_write: bool,
    /// SSDs take it for the writer, also if it opened the volume to read.
    pub(super) is_writer: bool,
    /// Requests that are still to begin.
    pub(super) left: u32,
    /// Of a hundred requests so many are writes, of a hundred writes so many are zeroes, and so many FUA.
    pub(super) mix: [u32; 3],
    /// A request of each batch of requests; the pause between two.
    pub(super) pause: Span,
}

/// The lanes, and the ends of requests.
pub(super) struct Lanes {
    pub(super) number: usize,
    pub(super) dice: Dice,
    pub(super) memory: Memory,
    lanes: Vec<Lane>,
    pub(super) work: Option<Work>,
    pub(super) epoch: u64,
    /// No request begins before.
    next_at: Time,
    /// A write was not acknowledged.
    pub(super) in_doubt: bool,
    /// A refusal said that the map may have changed.
    pub(super) suspects: bool,
    /// A refusal said that the lease has to be renewed, or is lost.
    pub(super) wants_renewal: bool,
    pub(super) is_fenced: bool,
    next_op: u64,
}

/// The twin's surroundings for one run.
pub(super) struct Hand<'a> {
    pub(super) lanes: &'a mut Lanes,
    pub(super) sessions: &'a [Session],
    pub(super) post: &'a mut Post,
    pub(super) history: &'a mut History,
    /// What is sent to these SSDs still goes to their old queues, and is lost.
    pub(super) anew: &'a BTreeSet<u16>,
    /// The index and the command id of each SEND.
    pub(super) indexes: &'a mut Vec<(u16, u16, u16)>,
}

/// Memory that a client needs.
pub(super) fn memory_bytes(lanes: usize) -> usize {
    probe_address(lanes) + BLOCK
}

/// The block behind the lanes, for a probe.
pub(super) fn probe_address(lanes: usize) -> usize {
    FRONT + lanes * MOST as usize * BLOCK
}

impl Lanes {
    pub(super) fn new(number: usize, dice: Dice, memory: Memory, count: usize) -> Self {
        Self {
            number,
            dice,
            memory,
            lanes: vec![Lane::Idle; count],
            work: None,
            epoch: 0,
            next_at: Time::ZERO,
            in_doubt: false,
            suspects: false,
            wants_renewal: false,
            is_fenced: false,
            next_op: (number as u64) << 40,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| matches!(lane, Lane::Idle))
    }

    /// The oldest request without an end.
    pub(super) fn oldest(&self) -> Option<Time> {
        let begun = self.lanes.iter().filter_map(|lane| match lane {
            Lane::Idle => None,
            Lane::Runs(op) | Lane::Waits { op, .. } => Some(op.begun),
        });
        begun.min()
    }

    /// All requests are forgotten: the client is gone.
    pub(super) fn forget(&mut self) {
        self.lanes.fill(Lane::Idle);
        self.work = None;
    }

    /// Requests that waited too long end. Returns the time of the next call.
    pub(super) fn attend(&mut self, post: &mut Post) -> Time {
        let mut next = Time::NEVER;
        for at in 0..self.lanes.len() {
            let Lane::Waits { op, at: again, .. } = &self.lanes[at] else { continue };
            let gives_up = self.work.as_ref().is_none_or(|work| op.is_write && !work.may_write);
            if op.deadline <= post.now || gives_up {
                let op = op.clone();
                self.lanes[at] = Lane::Idle;
                self.failed(post, &op);
            } else {
                next = next.min(*again).min(op.deadline);
            }
        }
        let begins = self.work.as_ref().is_some_and(|work| work.left > 0);
        if begins && self.lanes.iter().any(|lane| matches!(lane, Lane::Idle)) {
            next.min(self.next_at)
        } else {
            next
        }
    }

    fn failed(&mut self, post: &mut Post, op: &Op) {
        self.in_doubt |= op.is_write;
        post.stats.path(if op.is_write { Path::WriteFailed } else { Path::ReadFailed });
    }

    fn address(lane: usize) -> usize {
        FRONT + lane * MOST as usize * BLOCK
    }

    fn draw(&mut self, post: &Post, history: &mut History, lane: usize) -> Option<Op> {
        let work = self.work.as_mut().filter(|work| work.left > 0)?;
        if post.now < self.next_at {
            return None;
        }
        let dice = &mut self.dice;
        work.left -= 1;
        self.next_at = post.now + Span::from_ps(work.pause.as_ps() * u64::from(dice.below(1000)) / 500);
        let is_write = work.may_write && dice.below(100) < work.mix[0];
        let is_zeroes = is_write && dice.below(100) < work.mix[1];
        let fua = is_write && dice.below(100) < work.mix[2];
        let blocks = [1, 1, 1, 2, 3, MOST][dice.below(6) as usize].min(work.blocks);
        let vba = dice.below(work.blocks - blocks + 1);
        self.next_op += 1;
        let (number, life) = (self.next_op, work.life);
        let mut op = Op {
            number,
            is_write,
            is_zeroes,
            fua,
            vba,
            blocks,
            begun: post.now,
            deadline: post.now + DEADLINE,
            sequence: None,
            floors: Vec::new(),
            ssds: vec![u16::MAX; blocks as usize],
            epoch: self.epoch,
        };
        if is_write {
            let tag = history.begin_write((life, self.number, number), (vba, blocks), is_zeroes);
            if let Some(tag) = tag {
                let mut memory = lock(&self.memory);
                for block in 0..blocks {
                    let at = Self::address(lane) + block as usize * BLOCK;
                    memory[at..at + BLOCK].copy_from_slice(&data_of(tag + u64::from(block)));
                }
            }
        } else {
            op.floors = (vba..vba + blocks).map(|vba| history.floor(life, vba)).collect();
            // What the lane read before is not taken for an answer.
            lock(&self.memory)[Self::address(lane)..][..blocks as usize * BLOCK].fill(0xEE);
        }
        Some(op)
    }

    fn request(op: &Op, lane: usize) -> Request {
        let data = Data::Memory { address: Self::address(lane) as u64, key: KEY };
        let Op { is_write, is_zeroes, fua, sequence, vba, blocks, .. } = *op;
        Request { is_write, is_zeroes, fua, sequence, vba, blocks, data }
    }

    /// Whether a request that ended so starts over.
    fn starts_over(&mut self, post: &mut Post, outcome: &Outcome) -> bool {
        if outcome.status & QP_BROKEN != 0 || matches!(outcome.status, NO_REPLICA | STARTS_OVER) {
            self.suspects = true;
            if outcome.status == STARTS_OVER {
                post.stats.path(Path::StartsOver);
            }
            return true;
        }
        let Some(refusal) = Detail::from_dw0(outcome.dw0).refusal() else { return false };
        post.stats.refusal(refusal);
        match refusal {
            Refusal::StaleMap | Refusal::MapBehind | Refusal::WrongTarget | Refusal::GroupWaits => {
                self.suspects = true;
                true
            }
            Refusal::NotHereYet | Refusal::AskTheFirst | Refusal::NotServing | Refusal::NotReady => true,
            Refusal::TransferError => true,
            Refusal::LeaseExpired => {
                self.wants_renewal = true;
                true
            }
            Refusal::LeaseHeldByOther | Refusal::ReadOnly | Refusal::UnknownVolume | Refusal::NotAReader => {
                self.is_fenced = true;
                false
            }
            Refusal::Deleting => {
                self.is_fenced = true;
                false
            }
            _ => false,
        }
    }
}

impl Host for Hand<'_> {
    fn next(&mut self, lane: usize) -> Option<Request> {
        let op = match &self.lanes.lanes[lane] {
            Lane::Runs(_) => return None,
            Lane::Waits { op, at, epoch } => {
                if self.post.now < *at && self.lanes.epoch == *epoch {
                    return None;
                }
                self.post.stats.path(Path::Retry);
                op.clone()
            }
            Lane::Idle => self.lanes.draw(self.post, self.history, lane)?,
        };
        let op = Op { epoch: self.lanes.epoch, ..op };
        let request = Lanes::request(&op, lane);
        self.lanes.lanes[lane] = Lane::Runs(op);
        Some(request)
    }

    fn send(&mut self, lane: usize, ssd: u16, (index, _): (u16, bool), sqe: &Sqe) {
        let rw = ReadWrite::decode(sqe);
        let (vba, blocks) = (rw.slba.unpack().map_or(0, |address| address.vba), rw.blocks);
        self.indexes.push((ssd, sqe.cid.get(), index));
        let (Some(work), Lane::Runs(op)) = (&self.lanes.work, &mut self.lanes.lanes[lane]) else { return };
        if op.is_write {
            self.history.sent(work.life, op.number, (vba, blocks), rw.stamp);
        } else {
            (vba..vba + blocks).for_each(|vba| op.ssds[(vba - op.vba) as usize] = ssd);
        }
        if let Some(session) = self.sessions.get(usize::from(ssd)).filter(|_| !self.anew.contains(&ssd)) {
            session.send(self.post, *sqe);
        }
    }

    fn ended(&mut self, lane: usize, outcome: Outcome) {
        let Lane::Runs(mut op) = std::mem::replace(&mut self.lanes.lanes[lane], Lane::Idle) else { return };
        let Some(work) = &self.lanes.work else { return };
        let (life, may_write, is_writer) = (work.life, work.may_write, work.is_writer);
        let now = self.post.now;
        let number = self.lanes.number;
        self.post.note(|| {
            let Op { is_write, is_zeroes, vba, blocks, ref ssds, .. } = op;
            let what = if is_zeroes {
                "zeroed"
            } else if is_write {
                "wrote"
            } else {
                "read"
            };
            let Outcome { status, dw0, sequence, .. } = outcome;
            let how = if status == 0 {
                "well".into()
            } else {
                format!("status {status:#x}, reason {}", dw0 & 0xFF)
            };
            let of = if is_write { format!("sequence {sequence}") } else { format!("SSDs {ssds:?}") };
            format!("client {number} {what} volume {} block {vba}+{blocks}: {how}, {of}", life.0.get())
        });
        if outcome.status == 0 {
            if op.is_write {
                let path = if op.is_zeroes { Path::ZeroesAcked } else { Path::WriteAcked };
                self.post.stats.path(if op.fua { Path::FuaAcked } else { path });
                return self.history.acked(life, (op.number, op.begun), (op.vba, op.blocks), now);
            }
            self.post.stats.path(Path::ReadDone);
            return self.judge(lane, &op, life, is_writer);
        }
        if self.lanes.starts_over(self.post, &outcome) && now < op.deadline && (may_write || !op.is_write) {
            if op.is_write && outcome.sequence > 0 {
                op.sequence = Some(outcome.sequence);
            }
            let epoch = op.epoch;
            self.lanes.lanes[lane] = Lane::Waits { op, at: now + AGAIN, epoch };
            return;
        }
        self.lanes.failed(self.post, &op);
    }
}

impl Hand<'_> {
    fn judge(&mut self, lane: usize, op: &Op, life: Life, is_writer: bool) {
        let found: Vec<Found> = {
            let memory = lock(&self.lanes.memory);
            let data = &memory[Lanes::address(lane)..][..op.blocks as usize * BLOCK];
            data.chunks_exact(BLOCK).map(found_in).collect()
        };
        let (client, epoch, begun) = (self.lanes.number, op.epoch, op.begun);
        for (at, found) in found.into_iter().enumerate() {
            let vba = op.vba + u32::try_from(at).expect("few");
            let (ssd, floor) = (op.ssds[at], op.floors[at]);
            let of = ReadOf { life, vba, client, is_writer, ssd, epoch, begun, floor };
            self.history.read(of, found, self.post.now);
        }
    }
}
