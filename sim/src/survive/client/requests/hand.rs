// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The environment of a client's twin: the next requests, the wires, and the ends of requests.

use super::{AGAIN, Op, RequestState, Requests, ZEROED};
use crate::initiator::{Host, Outcome, Request};
use crate::survive::client::session::Session;
use crate::survive::end::lock;
use crate::survive::history::{BLOCK, Found, History, Life, ReadOf, found_in};
use crate::survive::stats::Path;
use crate::survive::wire::Post;
use gnstor_proto::nvme::{ReadWrite, Sqe};
use std::collections::BTreeSet;

/// The twin's surroundings for one run.
pub(in crate::survive::client) struct Hand<'a> {
    pub(in crate::survive::client) requests: &'a mut Requests,
    pub(in crate::survive::client) sessions: &'a [Session],
    pub(in crate::survive::client) post: &'a mut Post,
    pub(in crate::survive::client) history: &'a mut History,
    /// SSDs whose queues were recreated. Commands to them still go to the old queues, and are lost.
    pub(in crate::survive::client) anew: &'a BTreeSet<u16>,
    /// The index and the command id of each SEND.
    pub(in crate::survive::client) indexes: &'a mut Vec<(u16, u16, u16)>,
}

impl Host for Hand<'_> {
    fn next(&mut self, lane: usize) -> Option<Request> {
        let op = match &self.requests.states[lane] {
            RequestState::Runs(_) => return None,
            RequestState::Waits { op, at, epoch } => {
                if self.post.now < *at && self.requests.epoch == *epoch {
                    return None;
                }
                self.post.stats.path(Path::Retry);
                op.clone()
            }
            RequestState::Idle => self.requests.draw(self.post, self.history, lane)?,
        };
        let op = Op { epoch: self.requests.epoch, sent_to: BTreeSet::new(), ..op };
        let request = Requests::request(&op, lane);
        self.requests.states[lane] = RequestState::Runs(op);
        Some(request)
    }

    fn send(&mut self, lane: usize, ssd: u16, (index, _): (u16, bool), sqe: &Sqe) {
        let rw = ReadWrite::decode(sqe);
        let (vba, blocks) = (rw.slba.unpack().map_or(0, |address| address.vba), rw.blocks);
        self.indexes.push((ssd, sqe.cid.get(), index));
        let (Some(work), RequestState::Runs(op)) = (&self.requests.work, &mut self.requests.states[lane])
        else {
            return;
        };
        if op.is_write {
            op.sent_to.insert(ssd);
            self.history.sent(work.life, op.number, (vba, blocks), rw.stamp);
        } else {
            (vba..vba + blocks).for_each(|vba| op.ssds[(vba - op.vba) as usize] = ssd);
        }
        if let Some(session) = self.sessions.get(usize::from(ssd)).filter(|_| !self.anew.contains(&ssd)) {
            session.send(self.post, *sqe);
        }
    }

    fn ended(&mut self, lane: usize, outcome: Outcome) {
        let RequestState::Runs(mut op) =
            std::mem::replace(&mut self.requests.states[lane], RequestState::Idle)
        else {
            return;
        };
        let Some(work) = &self.requests.work else { return };
        let (life, may_write, is_writer) = (work.life, work.may_write, work.is_writer);
        let now = self.post.now;
        let number = self.requests.number;
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
                if op.is_zeroes {
                    self.requests.zeroed.truncate(ZEROED);
                    self.requests.zeroed.push_front((op.vba, op.blocks, outcome.sequence));
                }
                self.history.all_have(life, op.number, (op.vba, op.blocks), self.post);
                return self.history.acked(life, (op.number, op.begun), (op.vba, op.blocks), now);
            }
            self.post.stats.path(Path::ReadDone);
            return self.judge(lane, &op, life, is_writer);
        }
        if self.requests.starts_over(self.post, &outcome) && now < op.deadline && (may_write || !op.is_write)
        {
            if op.is_write && outcome.sequence > 0 {
                op.sequence = Some(outcome.sequence);
            }
            let epoch = op.epoch;
            self.requests.states[lane] = RequestState::Waits { op, at: now + AGAIN, epoch };
            return;
        }
        self.requests.failed(self.post, &op);
    }
}

impl Hand<'_> {
    fn judge(&mut self, lane: usize, op: &Op, life: Life, is_writer: bool) {
        let found: Vec<Found> = {
            let memory = lock(&self.requests.memory);
            let data = &memory[Requests::address(lane)..][..op.blocks as usize * BLOCK];
            data.chunks_exact(BLOCK).map(found_in).collect()
        };
        let (client, epoch, begun) = (self.requests.number, op.epoch, op.begun);
        for (at, found) in found.into_iter().enumerate() {
            let vba = op.vba + u32::try_from(at).expect("few");
            let (ssd, floor) = (op.ssds[at], op.floors[at]);
            let of = ReadOf { life, vba, client, is_writer, ssd, epoch, begun, floor };
            self.history.read(of, found, self.post.now);
        }
    }
}
