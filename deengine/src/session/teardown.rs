// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a queue: its commands die, their memory lives on until the last transfer is answered.

use crate::commands::Work;
use crate::controller::Ssd;
use gnstor_base::controller::{Effect, Outcome, QueueKey};
use gnstor_base::time::Time;

impl Ssd {
    /// The SSD closes a queue, and the queues that depend on it.
    pub(crate) fn shut(&mut self, now: Time, key: QueueKey) {
        if self.hosts.queue(key).is_some() {
            self.smart.stats_mut().queues_closed += 1;
            self.tear_down(now, key);
            self.commands.emit(Effect::Close { queue: key });
        }
    }

    pub(crate) fn tear_down(&mut self, now: Time, key: QueueKey) {
        let Some(others) = self.hosts.close(key) else { return };
        let doomed: Vec<u32> =
            self.commands.iter().filter(|(_, command)| command.queue == key).map(|(id, _)| id).collect();
        for id in doomed {
            self.orphan(id);
        }
        self.drop_effects_of(now, key);
        for other in others {
            self.shut(now, other);
        }
        self.complete_fences(now);
    }

    /// The command's queue is gone: it is no longer in flight, but its memory stays until its transfers
    /// are answered.
    fn orphan(&mut self, id: u32) {
        let Some(command) = self.commands.get_mut(id) else { return };
        let Some(permit) = command.permit.take() else { return };
        permit.forfeit();
        self.smart.stats_mut().permits_forfeited += 1;
        let gone = Work::Orphan { blocks: Vec::new(), buffer: None };
        let idle = command.pending == 0;
        let mut left = Vec::new();
        match std::mem::replace(&mut command.work, gone) {
            Work::Read(request) => left.push(request),
            Work::Write(end) => {
                self.shares.give_of(&end.request);
                command.work = Work::Orphan { blocks: end.blocks, buffer: None };
                left.push(end.request);
            }
            Work::Starved(end) | Work::Stalled(end) => {
                command.work = Work::Orphan { blocks: end.blocks, buffer: None };
                left.push(end.request);
            }
            Work::Trim(requests) => left = requests,
            Work::Compare { request, buffer, .. } => {
                command.work = Work::Orphan { blocks: Vec::new(), buffer: Some(buffer) };
                left.push(request);
            }
            Work::Deallocate { buffer, .. }
            | Work::Connect { buffer, .. }
            | Work::Authenticate { buffer }
            | Work::Answer { buffer, .. }
            | Work::Entry { buffer, .. }
            | Work::Map { buffer, .. } => {
                command.work = Work::Orphan { blocks: Vec::new(), buffer: Some(buffer) };
            }
            Work::Fence { .. } => self.volumes.drop_fence(id),
            Work::Change => self.changes.drop_command(id),
            Work::MakeDurable(_)
            | Work::AwaitEvent
            | Work::Delayed { .. }
            | Work::Abort
            | Work::Orphan { .. } => {}
        }
        left.into_iter().for_each(|request| self.table.leave(request));
        if idle {
            self.finish(Time::ZERO, id);
        }
    }

    /// Effects of the queue that are not taken yet: the next queue of this key must not get them.
    fn drop_effects_of(&mut self, now: Time, key: QueueKey) {
        let mut lost = Vec::new();
        self.commands.effects().retain(|effect| match *effect {
            Effect::Pull { transfer, queue, .. } | Effect::Push { transfer, queue, .. } if queue == key => {
                lost.push(transfer);
                false
            }
            Effect::Complete { queue, .. } => queue != key,
            Effect::Pull { .. } | Effect::Push { .. } | Effect::Close { .. } | Effect::Ask { .. } => true,
        });
        for transfer in lost {
            self.transferred(now, transfer, Outcome::ConnectionLost);
        }
    }
}
