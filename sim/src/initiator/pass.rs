// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One pass of a warp: begin, stage, commit, take completions, finish.

use super::lane::Target;
use super::{
    Command, Completion, Gate, Got, Initiator, LANES, Lane, NONE, Outcome, QP_BROKEN, Request, STARTS_OVER,
    Wish, bits,
};
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::placement::AnyMap;
use std::sync::Arc;

/// The source of requests, and the wires.
pub trait Host {
    /// The next request for a lane that has none.
    fn next(&mut self, lane: usize) -> Option<Request>;

    /// Sends a command of a lane to SSD `ssd`, as the SEND with this index.
    fn send(&mut self, lane: usize, ssd: u16, index: (u16, bool), sqe: &Sqe);

    /// Reports that a lane's request has ended.
    fn ended(&mut self, lane: usize, outcome: Outcome);
}

impl Initiator {
    /// Makes passes of all warps in turn until none changes anything.
    pub fn run(&mut self, host: &mut impl Host) {
        while self.run_once(host) {}
    }

    /// Makes one pass of each warp. Returns whether it changed anything.
    pub fn run_once(&mut self, host: &mut impl Host) -> bool {
        let mut has_changed = false;
        for warp in 0..self.warps.len() {
            has_changed |= self.pass(warp, host);
        }
        has_changed
    }

    /// From now on commands go by another map. If a part of a write was sent by the map before, the write
    /// sends nothing more, and ends with [`STARTS_OVER`]. So all its members have it in one epoch (rule 5a).
    pub fn follow(&mut self, map: Arc<AnyMap>) {
        self.volume.map = map;
        for number in 0..self.lanes.len() {
            let lane = &mut self.lanes[number];
            if lane.request.is_write && lane.head != NONE && lane.issued > 0 && !lane.is_all_sent() {
                lane.sent = lane.request.blocks;
                if lane.outcome.status == 0 {
                    lane.outcome.status = STARTS_OVER;
                }
                self.look(number);
            }
        }
    }

    /// The queue pair to an SSD was made anew, and its Connect has succeeded.
    pub fn reopen(&mut self, ssd: u16, depth: u32) {
        self.gates[usize::from(ssd)] = Gate::new(depth);
    }

    /// Makes one pass of a warp. Returns whether it changed anything.
    fn pass(&mut self, warp: usize, host: &mut impl Host) -> bool {
        let mut changed = self.begin(warp, host);
        if self.warps[warp].wants != 0 {
            changed |= self.stage(warp, host);
        }
        if !self.completions.is_empty() {
            self.take_completions(host);
            changed = true;
        }
        if self.warps[warp].finishes != 0 {
            self.finish(warp, host);
            changed = true;
        }
        changed
    }

    fn begin(&mut self, warp: usize, host: &mut impl Host) -> bool {
        let mut begun = 0;
        for bit in bits(self.warps[warp].idle) {
            let lane = warp * LANES + bit;
            let Some(request) = host.next(lane) else { continue };
            self.lanes[lane] = Lane::new(request);
            begun |= 1 << bit;
        }
        self.warps[warp].idle &= !begun;
        self.warps[warp].wants |= begun;
        begun != 0
    }

    /// `io_stage` and `io_commit`.
    fn stage(&mut self, warp: usize, host: &mut impl Host) -> bool {
        let wants = self.warps[warp].wants;
        let mut got = std::mem::take(&mut self.got);
        let targets = self.take_slots(warp, wants, &mut got);
        let mut answers = got.iter();
        let (mut changed, mut staged) = (false, 0);
        for bit in bits(wants) {
            let number = warp * LANES + bit;
            let lane = &mut self.lanes[number];
            let target = targets[bit].expect("placed above");
            let (begins, sends) = (lane.head == NONE, target.sends());
            let answer = if begins || sends { *answers.next().expect("one a wish") } else { Got::Nothing };
            let cid = match answer {
                Got::Slot(slot) => slot,
                Got::Ticket(ticket) => {
                    lane.ticket = Some(ticket);
                    continue;
                }
                // A lane may use its own slot again when all its commands are answered.
                Got::Nothing if sends && lane.issued == lane.done => lane.head,
                Got::Nothing if sends => continue,
                Got::Nothing => NONE,
            };
            changed = true;
            if begins {
                self.begin_with(number, cid);
            }
            if self.stage_command(number, cid, &target) {
                staged |= 1 << bit;
            }
            self.look(number);
        }
        self.got = got;
        self.commit(warp, staged, host);
        changed
    }

    /// Where the next command of each lane goes, and the slots that the lanes get for them.
    fn take_slots(&mut self, warp: usize, wants: u32, got: &mut Vec<Got>) -> [Option<Target>; LANES] {
        let mut targets = [None; LANES];
        self.wishes.clear();
        for bit in bits(wants) {
            let number = warp * LANES + bit;
            let lane = &self.lanes[number];
            let hint = u32::try_from(number).expect("below 128");
            let target = lane.place(&self.volume, &self.gates, hint);
            targets[bit] = Some(target);
            if lane.head == NONE {
                self.wishes.push((bit, lane.ticket.map_or(Wish::Ticket, Wish::Has)));
            } else if target.sends() {
                self.wishes.push((bit, Wish::Spare));
            }
        }
        self.slots.take(warp, &self.wishes, got);
        targets
    }

    /// A lane's request begins, with its first slot. A write takes the numbers of its stamps.
    fn begin_with(&mut self, number: usize, cid: u8) {
        let lane = &mut self.lanes[number];
        lane.head = cid;
        lane.ticket = None;
        if lane.request.is_write {
            lane.outcome.sequence = lane.request.sequence.unwrap_or(self.next_sequence);
            if lane.request.sequence.is_none() {
                self.next_sequence += u64::from(lane.parts(&self.volume, lane.request.blocks));
            }
        }
    }

    /// Stages a lane's next command, or ends it where no SSD can have it. Returns whether it is staged.
    fn stage_command(&mut self, number: usize, cid: u8, target: &Target) -> bool {
        let lane = &mut self.lanes[number];
        self.retries += u32::from(target.is_elsewhere);
        let ssd = target.ssd.filter(|_| target.sends());
        if let Some(ssd) = ssd {
            let sqe = lane.capsule(&self.volume, cid);
            let of = u16::try_from(number).expect("below 128");
            self.commands[usize::from(cid)] = Command { sqe, lane: of, ssd: Some(ssd) };
            (lane.staged, lane.ssd) = (cid, ssd);
        } else {
            lane.end_command(lane.missing(&self.volume, target), 0, 0);
        }
        lane.advance(&self.volume);
        ssd.is_some()
    }

    /// Sends what the lanes `staged` of a warp have staged.
    fn commit(&mut self, warp: usize, staged: u32, host: &mut impl Host) {
        for bit in bits(staged) {
            let lane = &mut self.lanes[warp * LANES + bit];
            let (cid, ssd) = (lane.staged, lane.ssd);
            lane.staged = NONE;
            if self.gates[usize::from(ssd)].arrive(cid) {
                self.post(ssd, cid, host);
            }
        }
    }

    fn post(&mut self, ssd: u16, cid: u8, host: &mut impl Host) {
        let index = self.gates[usize::from(ssd)].take();
        let command = &self.commands[usize::from(cid)];
        host.send(command.lane.into(), ssd, index, &command.sqe);
    }

    /// Notes what a lane waits for.
    fn look(&mut self, number: usize) {
        let lane = &self.lanes[number];
        let (warp, bit) = (&mut self.warps[number / LANES], 1 << (number % LANES));
        if lane.is_all_sent() {
            warp.wants &= !bit;
            if lane.issued == lane.done {
                warp.finishes |= bit;
            }
        }
    }

    /// Takes up to 32 entries of the completion queue. It handles responses first, then failed queue pairs,
    /// then waiting commands of these SSDs.
    fn take_completions(&mut self, host: &mut impl Host) {
        let mut touched = 0u64;
        let mut failed = 0;
        let count = self.completions.len().min(LANES);
        for at in 0..count {
            let (ssd, completion) = self.completions[at];
            touched |= 1 << ssd;
            match completion {
                Completion::Response(cqe) => self.respond(ssd, &cqe),
                Completion::Retired(index) => self.gates[usize::from(ssd)].retire(index),
                Completion::Failed { .. } => failed += 1,
            }
        }
        for at in 0..count {
            match self.completions.pop_front() {
                Some((ssd, Completion::Failed { opcode, syndrome })) if failed > 0 => {
                    self.break_queue(ssd, u32::from(opcode) << 8 | u32::from(syndrome));
                }
                Some(_) => {}
                None => unreachable!("entry {at} of {count}"),
            }
        }
        while touched != 0 {
            let ssd = u16::try_from(touched.trailing_zeros()).expect("below 64");
            touched &= touched - 1;
            while let Some(cid) = self.gates[usize::from(ssd)].admit() {
                self.post(ssd, cid, host);
            }
        }
    }

    fn respond(&mut self, ssd: u16, cqe: &Cqe) {
        self.gates[usize::from(ssd)].complete();
        let cid = cqe.cid.get();
        match self.commands.get(usize::from(cid)) {
            Some(command) if command.ssd == Some(ssd) => {
                let cid = u8::try_from(cid).expect("below SLOTS");
                self.end_command(cid, cqe.status_word().into(), cqe.dw0.get(), cqe.dw1.get());
            }
            _ => self.protocol_errors += 1,
        }
    }

    fn end_command(&mut self, cid: u8, status: u32, dw0: u32, dw1: u32) {
        let command = &mut self.commands[usize::from(cid)];
        command.ssd = None;
        let number = usize::from(command.lane);
        if cid != self.lanes[number].head {
            self.slots.give(cid);
        }
        // DW0 and DW1 have a meaning only after a failure.
        let (dw0, dw1) = if status == 0 { (0, 0) } else { (dw0, dw1) };
        self.lanes[number].end_command(status, dw0, dw1);
        self.look(number);
    }

    /// A queue pair has failed: every command in flight on it ends with `cause`.
    fn break_queue(&mut self, ssd: u16, cause: u32) {
        if !self.gates[usize::from(ssd)].close(QP_BROKEN | cause) {
            return;
        }
        for cid in 0..u8::try_from(self.commands.len()).expect("SLOTS") {
            if self.commands[usize::from(cid)].ssd == Some(ssd) {
                self.end_command(cid, QP_BROKEN | cause, 0, 0);
            }
        }
    }

    /// Does the work of `io_finished`.
    fn finish(&mut self, warp: usize, host: &mut impl Host) {
        let finishes = std::mem::take(&mut self.warps[warp].finishes);
        for bit in bits(finishes) {
            let number = warp * LANES + bit;
            let lane = &mut self.lanes[number];
            if lane.tries_elsewhere(&self.volume) {
                let sequence = lane.outcome.sequence;
                let attempt = lane.attempt + 1;
                (lane.attempt, lane.sent, lane.issued, lane.done) = (attempt, 0, 0, 0);
                lane.outcome = Outcome { sequence, ..Outcome::default() };
                self.retries += 1;
                self.warps[warp].wants |= 1 << bit;
                continue;
            }
            let (head, outcome) = (lane.head, lane.outcome);
            lane.head = NONE;
            self.slots.give(head);
            self.warps[warp].idle |= 1 << bit;
            host.ended(number, outcome);
        }
    }
}
