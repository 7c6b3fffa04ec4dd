// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time passes on a harness: its workers step, and what they want done is carried out, held, or lost with
//! its queue.

use super::*;

impl Harness {
    pub(super) fn step(&mut self, now: Time) {
        self.workers.iter_mut().for_each(|worker| worker.step(now));
    }

    pub(super) fn next_event(&self) -> Option<Time> {
        self.workers.iter().filter_map(Worker::next_event).min()
    }

    pub(super) fn advance(&mut self, span: Span) {
        self.now = self.now + span;
        self.step(self.now);
        self.pump();
    }

    /// As [`Self::advance`]. Meanwhile all hosts have kept their connections alive.
    pub(super) fn advance_alive(&mut self, span: Span) {
        self.now = self.now + span;
        let now = self.now;
        self.workers.iter_mut().for_each(|worker| worker.resumed(now));
        self.advance(Span::ZERO);
    }

    /// As [`Self::step_to`]. Meanwhile all hosts keep their connections alive.
    pub(super) fn step_minutes(&mut self, minutes: u64) {
        for _ in 0..minutes {
            self.step_to(self.now + Span::from_ms(60_000));
            self.advance_alive(Span::ZERO);
        }
    }

    /// Steps until the SSD has nothing more to do before `end`.
    pub(super) fn step_to(&mut self, end: Time) {
        while let Some(at) = self.next_event().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.step(self.now);
            self.pump();
        }
        self.now = end;
    }

    pub(super) fn pop_effect(&mut self) -> Option<Effect> {
        let mut pop = || self.workers.iter_mut().find_map(Worker::pop_effect);
        // What a worker is asked about it may answer through one that was asked before it.
        if let Some(effect) = pop().or_else(pop) {
            return Some(effect);
        }
        self.workers.iter_mut().for_each(Worker::end_step);
        self.workers.iter_mut().find_map(Worker::pop_effect)
    }

    pub(super) fn pump(&mut self) {
        while let Some(effect) = self.pop_effect() {
            if let Effect::Push {
                transfer,
                queue,
                local,
                role: role @ (PushRole::Part | PushRole::Last(_)),
                ..
            } = effect
            {
                let answer = self.answers.entry((queue, transfer.0)).or_default();
                answer.left += 1;
                answer.bytes += local.bytes;
                if let PushRole::Last(reply) = role {
                    answer.reply = Some(reply);
                }
            }
            match effect {
                Effect::Complete { queue, cqe, at, pushed_bytes } => {
                    assert!(self.memory.contains_key(&queue), "a completion for a queue that is closed");
                    self.completions.push(Completion { queue, cqe, at, pushed_bytes });
                }
                Effect::Admitted { queue, who } => self.admitted.push((queue, who)),
                Effect::Ask { ask, peer, local } => self.asked.push((ask, peer, local)),
                Effect::Close { queue } => {
                    self.memory.remove(&queue);
                    self.closed.push(queue);
                    self.close_queue(self.now, queue);
                }
                Effect::Pull { .. } | Effect::Push { .. } if self.hold => self.held.push(effect),
                Effect::Pull { .. } | Effect::Push { .. } => self.carry_out(effect),
            }
        }
    }

    pub(super) fn carry_out(&mut self, effect: Effect) {
        let (Effect::Pull { queue, .. } | Effect::Push { queue, .. }) = effect else {
            panic!("not a transfer")
        };
        let (transfer, outcome) = self.moved(effect);
        self.answer(queue, transfer, outcome);
    }

    /// A transfer has ended, or a part of an answer. When the last part has ended and all succeeded, its host
    /// gets the response.
    pub(super) fn answer(&mut self, queue: QueueKey, transfer: TransferId, mut outcome: Outcome) {
        if let Some(answer) = self.answers.get_mut(&(queue, transfer.0)) {
            answer.left -= 1;
            if !matches!(outcome, Outcome::Done { .. }) {
                answer.failure.get_or_insert(outcome);
            }
            // The other parts have not ended.
            let (0, Some(reply)) = (answer.left, answer.reply) else { return };
            let (bytes, failure, is_orphan) = (answer.bytes, answer.failure, answer.is_orphan);
            self.answers.remove(&(queue, transfer.0));
            outcome = failure.unwrap_or(Outcome::Done { sum: 0 });
            if failure.is_none() && !is_orphan {
                let Reply { cqe, at } = reply;
                self.completions.push(Completion { queue, cqe, at, pushed_bytes: bytes });
            }
        }
        let now = self.now;
        self.worker(queue).transferred(now, transfer, outcome);
        self.pump();
    }

    /// Carries out what was held, in the order given by `pick` among what is left.
    pub(super) fn release(&mut self, mut pick: impl FnMut(usize) -> usize) {
        self.hold = false;
        while !self.held.is_empty() {
            let at = pick(self.held.len());
            let effect = self.held.remove(at);
            self.carry_out(effect);
        }
    }

    pub(super) fn moved(&mut self, effect: Effect) -> (TransferId, Outcome) {
        let (transfer, queue, remote, local) = match effect {
            Effect::Pull { transfer, queue, remote, local, .. }
            | Effect::Push { transfer, queue, remote, local, .. } => (transfer, queue, remote, local),
            _ => panic!("not a transfer"),
        };
        let Some(memory) = self.memory.get_mut(&queue) else { return (transfer, Outcome::ConnectionLost) };
        let from = usize::try_from(remote.address).unwrap_or(usize::MAX);
        let range = from..from.saturating_add(local.bytes as usize);
        let Some(bytes) = memory.get_mut(range).filter(|_| remote.key == KEY) else {
            return (transfer, Outcome::RemoteAccess);
        };
        let region =
            self.regions.iter().find(|region| region.id() == local.region).expect("one of the SSD's");
        let sum_of = |bytes: &[u8]| if bytes.len() == BLOCK { block_sum(bytes) } else { 0 };
        match effect {
            Effect::Pull { .. } => {
                region.write(local.offset, bytes);
                (transfer, Outcome::Done { sum: sum_of(bytes) })
            }
            Effect::Push { sum, .. } => {
                let mut data = vec![0; local.bytes as usize];
                region.read(local.offset, &mut data);
                let real = sum_of(&data);
                if sum.is_some_and(|sum| sum != real) {
                    return (transfer, Outcome::BadChecksum);
                }
                bytes.copy_from_slice(&data);
                if let Some(pushed) = &mut self.pushed {
                    pushed.push((queue, data));
                }
                (transfer, Outcome::Done { sum: real })
            }
            _ => panic!("not a transfer"),
        }
    }

    /// The queue is gone. No queue gets the responses of its answers, even if another one with the same name
    /// opens.
    pub(super) fn drop_responses(&mut self, key: QueueKey) {
        let its = self.answers.range_mut((key, 0)..=(key, u32::MAX));
        its.for_each(|(_, answer)| answer.is_orphan = true);
    }

    pub(super) fn close_queue(&mut self, now: Time, key: QueueKey) {
        self.drop_responses(key);
        self.worker(key).close_queue(now, key);
    }
}
