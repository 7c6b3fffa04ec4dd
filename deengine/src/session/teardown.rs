// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The end of a queue: its commands die, their memory lives on until the last transfer is answered.

use crate::commands::{CompletionPermit, Work};
use crate::controller::Ssd;
use gnstor_base::controller::{Effect, Outcome, QueueKey};
use gnstor_base::time::Time;

impl Ssd {
    /// The SSD closes a queue, and the queues that depend on it.
    pub(crate) fn shut(&mut self, now: Time, key: QueueKey) {
        if self.hosts.queue(key).is_some() {
            self.smart_mut().count_closed_queue();
            self.tear_down(now, key);
            self.commands.emit(Effect::Close { queue: key });
        }
    }

    pub(crate) fn tear_down(&mut self, now: Time, key: QueueKey) {
        let Some(others) = self.hosts.close(key) else { return };
        self.admin.drop_queue(key);
        for id in self.commands.of_queue(key) {
            self.orphan(now, id);
        }
        self.drop_grants(key);
        self.drop_effects_of(now, key);
        for other in others {
            self.shut(now, other);
        }
        self.complete_fences(now);
    }

    /// The queue of a command is gone, so it has no completion.
    pub(super) fn forfeit(&mut self, permit: CompletionPermit) {
        permit.forfeit();
        self.smart_mut().count_forfeited();
    }

    /// The command's queue is gone: it is no longer in flight, but its memory stays until its transfers
    /// are answered.
    fn orphan(&mut self, now: Time, id: u32) {
        let Some(command) = self.commands.get_mut(id) else { return };
        let Some(permit) = command.take_permit() else { return };
        let (is_idle, vid) = (command.is_idle(), command.vid());
        let work = command.take_work();
        self.forfeit(permit);
        let (mut held, mut left) = (None, Vec::new());
        match work {
            Work::Starved(request) => left.push(request),
            Work::Trim(requests) => left = requests,
            Work::Compare { request, buffer, .. } => {
                held = Some(buffer);
                left.push(request);
            }
            Work::Deallocate { buffer, .. }
            | Work::Connect { buffer, .. }
            | Work::Authenticate { buffer }
            | Work::Answer { buffer, .. }
            | Work::Entry { buffer, .. }
            | Work::Map { buffer, .. } => held = Some(buffer),
            Work::Tell(telling) => self.end_telling(*telling),
            Work::Fence { .. } => self.admin.drop_fence(id),
            Work::Change => self.admin.drop_change(id),
            Work::Delayed { turn, .. } => self.leave_line(now, vid, turn),
            Work::MakeDurable(_) | Work::AwaitEvent | Work::Abort | Work::Orphan { .. } => {}
        }
        if let Some(command) = self.commands.get_mut(id) {
            command.go_on(Work::Orphan { buffer: held });
        }
        left.into_iter().for_each(|request| self.table.leave(request));
        if is_idle {
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
            Effect::Complete { queue, .. } | Effect::Admitted { queue, .. } => queue != key,
            Effect::Pull { .. } | Effect::Push { .. } | Effect::Close { .. } | Effect::Ask { .. } => true,
        });
        for transfer in lost {
            self.transferred(now, transfer, Outcome::ConnectionLost);
        }
    }
}
