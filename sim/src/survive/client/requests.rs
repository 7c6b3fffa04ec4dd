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

mod hand;

pub(in crate::survive::client) use hand::Hand;

use crate::dice::Dice;
use crate::initiator::{Data, NO_REPLICA, Outcome, QP_BROKEN, Request, STARTS_OVER};
use crate::survive::end::{KEY, Memory, lock};
use crate::survive::history::{BLOCK, History, Life, data_of};
use crate::survive::stats::Path;
use crate::survive::wire::Post;
use gnstor_base::time::{Span, Time};
use gnstor_proto::slba::Stamp;
use gnstor_proto::status::{Detail, Refusal};
use std::collections::{BTreeSet, VecDeque};

/// Blocks of a request, at most.
pub(super) const MOST: u32 = 16;
/// The memory in front of the lanes: Connect's data of each SSD.
const FRONT: usize = 64 << 10;
/// A waiting request tries again after this time, even without another map.
const AGAIN: Span = Span::from_ms(4);
/// Zeroes that are remembered.
const ZEROED: usize = 32;
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
    /// How long the kernel had stood still before.
    stood: Span,
    deadline: Time,
    sequence: Option<u64>,
    /// For a read: the newest acknowledged stamps when it began, and the SSDs that it asked last.
    floors: Vec<Stamp>,
    ssds: Vec<u16>,
    /// For a write: the SSDs that a part was sent to.
    sent_to: BTreeSet<u16>,
    epoch: u64,
}

#[derive(Clone, Debug)]
enum RequestState {
    Idle,
    Runs(Op),
    Waits { op: Op, at: Time, epoch: u64 },
}

/// A client's work on its volume.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) life: Life,
    pub(super) blocks: u32,
    pub(super) may_write: bool,
    /// SSDs take it for the writer, also if it opened the volume to read.
    pub(super) is_writer: bool,
    /// Requests that are still to begin.
    pub(super) left: u32,
    /// Percentage of writes among the requests, and of zeroes and of FUA among the writes.
    pub(super) mix: [u32; 3],
    /// A request of each batch of requests; the pause between two.
    pub(super) pause: Span,
}

/// The requests of all lanes, and their ends.
pub(super) struct Requests {
    pub(super) number: usize,
    pub(super) dice: Dice,
    pub(super) memory: Memory,
    states: Vec<RequestState>,
    pub(super) work: Option<Work>,
    pub(super) epoch: u64,
    /// Time before which no request begins.
    next_at: Time,
    /// A write was not acknowledged.
    pub(super) in_doubt: bool,
    /// A refusal said that the map may have changed.
    pub(super) suspects: bool,
    /// A refusal said that the lease has to be renewed, or is lost.
    pub(super) wants_renewal: bool,
    pub(super) is_fenced: bool,
    next_op: u64,
    /// How long the kernel stood still in all.
    pub(super) stood: Span,
    /// The last zeroes that were acknowledged: block, number of blocks, sequence.
    zeroed: VecDeque<(u32, u32, u64)>,
}

/// Memory that a client needs.
pub(super) fn memory_bytes(lanes: usize) -> usize {
    probe_address(lanes) + BLOCK
}

/// The block behind the lanes, for a probe.
pub(super) fn probe_address(lanes: usize) -> usize {
    FRONT + lanes * MOST as usize * BLOCK
}

impl Requests {
    pub(super) fn new(number: usize, dice: Dice, memory: Memory, count: usize) -> Self {
        Self {
            number,
            dice,
            memory,
            states: vec![RequestState::Idle; count],
            work: None,
            epoch: 0,
            next_at: Time::ZERO,
            in_doubt: false,
            suspects: false,
            wants_renewal: false,
            is_fenced: false,
            next_op: (number as u64) << 40,
            stood: Span::ZERO,
            zeroed: VecDeque::new(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.states.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.states.iter().all(|lane| matches!(lane, RequestState::Idle))
    }

    /// Works on a volume from now on.
    pub(super) fn begin(&mut self, work: Work) {
        self.work = Some(work);
        (self.in_doubt, self.is_fenced, self.wants_renewal) = (false, false, false);
        self.zeroed.clear();
    }

    /// The only SSD that a part of this lane's write was sent to.
    pub(super) fn sent_alone(&self, lane: usize) -> Option<u16> {
        let RequestState::Runs(op) = &self.states[lane] else { return None };
        op.sent_to.first().copied().filter(|_| op.sent_to.len() == 1)
    }

    /// Whether later zeroes of some of its blocks are acknowledged, and this lane's write is not.
    pub(super) fn is_overtaken(&self, lane: usize, sequence: u64) -> bool {
        let RequestState::Runs(op) = &self.states[lane] else { return false };
        let overlaps = |vba: u32, blocks: u32| vba < op.vba + op.blocks && op.vba < vba + blocks;
        !op.is_zeroes && self.zeroed.iter().any(|(vba, blocks, of)| *of > sequence && overlaps(*vba, *blocks))
    }

    /// The oldest request without an end, and what it is. While the kernel stood still it did not age.
    pub(super) fn oldest(&self) -> Option<(Time, String)> {
        let ages_from = |op: &Op| op.begun + Span::from_ps(self.stood.as_ps() - op.stood.as_ps());
        let open = self.states.iter().filter_map(|lane| match lane {
            RequestState::Idle => None,
            RequestState::Runs(op) | RequestState::Waits { op, .. } => Some((ages_from(op), op)),
        });
        let (from, op) = open.min_by_key(|(from, _)| *from)?;
        let what = if op.is_write { "a write" } else { "a read" };
        Some((from, format!("{what} of {}+{}", op.vba, op.blocks)))
    }

    /// The client's clock leaps ahead: requests end earlier.
    pub(super) fn leap(&mut self, by: Span) {
        for lane in &mut self.states {
            if let RequestState::Runs(op) | RequestState::Waits { op, .. } = lane {
                op.deadline = op.deadline.before(by);
            }
        }
    }

    /// Forgets all requests, since the client is gone.
    pub(super) fn forget(&mut self) {
        self.states.fill(RequestState::Idle);
        self.work = None;
    }

    /// Ends requests that waited too long. Returns the time of the next call.
    pub(super) fn attend(&mut self, post: &mut Post) -> Time {
        let mut next = Time::NEVER;
        for at in 0..self.states.len() {
            let RequestState::Waits { op, at: again, .. } = &self.states[at] else { continue };
            let gives_up = self.work.as_ref().is_none_or(|work| op.is_write && !work.may_write);
            if op.deadline <= post.now || gives_up {
                let op = op.clone();
                self.states[at] = RequestState::Idle;
                self.failed(post, &op);
            } else {
                next = next.min(*again).min(op.deadline);
            }
        }
        let begins = self.work.as_ref().is_some_and(|work| work.left > 0);
        if begins && self.states.iter().any(|lane| matches!(lane, RequestState::Idle)) {
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
            stood: self.stood,
            deadline: post.now + DEADLINE,
            sequence: None,
            floors: Vec::new(),
            ssds: vec![u16::MAX; blocks as usize],
            sent_to: BTreeSet::new(),
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
            // Data of the lane's previous read must not pass for an answer.
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
            Refusal::StaleMap
            | Refusal::MapBehind
            | Refusal::WrongTarget
            | Refusal::GroupWaits
            | Refusal::NeedsSalvage => {
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
