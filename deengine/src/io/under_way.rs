// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reads and writes that a worker has under way, as a fence and the end of a queue find them.

use super::worker::Worker;
use crate::commands::CompletionPermit;
use crate::permission::Authorized;
use crate::request::Request;
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;

/// A command that was allowed, and its permit.
pub(super) type Begun = (CompletionPermit, Authorized<Request>);

/// A command under way; `None` once its queue is gone.
pub(super) type Command = Option<Begun>;

impl Worker {
    /// The request is done; a fence may have waited for it.
    #[inline]
    pub(super) fn leave(&mut self, now: Time, request: &Authorized<Request>) {
        let is_current = self.rules.serial(request.slot()) == Some(request.serial());
        self.state().in_flight(request.slot()).leave(is_current);
        if self.shared.workers().is_fencing() {
            self.shared.lock().complete_fences(now);
        }
    }

    /// The queue is gone: its reads are no longer in flight, but their pages stay pinned until the
    /// transfers are answered.
    pub(super) fn orphan_commands(&mut self, name: QueueKey) {
        let is_of = |(permit, _): &mut (CompletionPermit, _)| permit.queue() == name;
        let gone: Vec<_> = self.commands().filter_map(|command| command.take_if(is_of)).collect();
        // The frames of its writes that wait for room come back at once.
        self.writes.try_again();
        for (permit, request) in gone {
            permit.forfeit();
            self.state().forfeit();
            self.leave(self.now, &request);
        }
    }

    /// The reads and writes under way.
    fn commands(&mut self) -> impl Iterator<Item = &mut Command> {
        self.reads.commands().chain(self.writes.commands())
    }

    /// Queues with a command of the volume in this slot in flight that was judged by an older entry.
    pub(super) fn older_queues(&mut self, slot: u16) -> Vec<QueueKey> {
        let current = self.rules.serial(slot);
        let commands = self.commands().filter_map(|command| command.as_ref());
        let older =
            commands.filter(|(_, request)| request.slot() == slot && Some(request.serial()) != current);
        let mut queues: Vec<QueueKey> = older.map(|(permit, _)| permit.queue()).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    /// Forfeits all permits: no command gets a completion any more.
    pub(super) fn forfeit_commands(&mut self) {
        for command in self.commands() {
            if let Some((permit, _)) = command.take() {
                permit.forfeit();
            }
        }
    }
}
