// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What Connect, Disconnect, the properties and Keep Alive change of a host.

use super::arbiter::Class;
use super::host::{AMS_ROUND_ROBIN, AMS_WEIGHTED, Role, arbitration_of, keep_alive_of};
use super::table::Hosts;
use crate::request::Refused;
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_proto::fabrics::{ConnectFields, Identity, property};
use gnstor_proto::status::Refusal;

impl Hosts {
    /// A Connect on this queue waits for its data.
    pub(crate) fn begin_connect(&mut self, key: QueueKey) {
        if let Some(queue) = self.queue_mut(key) {
            queue.role = Role::Connecting;
        }
    }

    /// The Connect has succeeded, and gives the queue this role. Returns the identity of its host.
    pub(crate) fn connect(&mut self, key: QueueKey, role: Role, connect: &ConnectFields) -> Option<Identity> {
        let (Role::Unproven(cntlid) | Role::Admin(cntlid) | Role::Io(cntlid, _)) = role else { return None };
        let host = self.host(cntlid);
        let of_io = host.filter(|_| matches!(role, Role::Io(..)));
        let class = of_io.map_or(Class::Low, |host| host.class_of(connect.cattr));
        let identity = host.map(|host| host.identity);
        if let Some(queue) = self.queue_mut(key) {
            (queue.class, queue.role, queue.size) = (class, role, connect.sqsize_z.get() + 1);
        }
        identity
    }

    /// The Connect is refused. The host may try again on the same connection.
    pub(crate) fn refuse_connect(&mut self, key: QueueKey) {
        if let Some(queue) = self.queue_mut(key) {
            (queue.class, queue.role) = (Class::Low, Role::Fresh);
        }
    }

    /// An I/O queue is one of this controller from now on. `None`: the controller is gone.
    pub(crate) fn join(&mut self, cntlid: u16, key: QueueKey) -> Option<()> {
        self.host_mut(cntlid)?.queues.push(key);
        Some(())
    }

    /// An I/O queue takes no command any more, and its id is free.
    pub(crate) fn disconnect(&mut self, key: QueueKey, cntlid: u16) {
        if let Some(queue) = self.queue_mut(key) {
            queue.role = Role::Ended(cntlid);
        }
    }

    /// Sets CC. Returns the I/O queues to close: all of the controller if it was reset.
    pub(crate) fn configure(&mut self, cntlid: u16, cc: u32) -> Result<Vec<QueueKey>, Refused> {
        let host = self.host(cntlid).ok_or(Refusal::SequenceError)?;
        let (was_enabled, enable) = (host.is_enabled(), u64::from(cc) & property::CC_ENABLE != 0);
        let known = matches!(arbitration_of(cc), AMS_ROUND_ROBIN | AMS_WEIGHTED);
        // Queues have their class from Connect on, so the mechanism changes only while there are none.
        let changed = was_enabled && arbitration_of(cc) != arbitration_of(host.cc);
        if enable && (!known || changed) {
            return Err(Refusal::InvalidField.into());
        }
        let (is_weighted, was_weighted) = (arbitration_of(cc) == AMS_WEIGHTED, host.arbiter.is_weighted());
        if is_weighted && !was_weighted && !self.may_weigh(host.identity) {
            return Err(Refusal::InvalidField.into());
        }
        if is_weighted != was_weighted {
            self.weigh(cntlid, is_weighted);
        }
        let host = self.host_mut(cntlid).ok_or(Refusal::SequenceError)?;
        host.cc = cc;
        // After a controller reset the I/O queues are gone. The admin queue, the first one, stays.
        let is_reset = was_enabled && !enable;
        Ok(if is_reset { host.queues.iter().skip(1).copied().collect() } else { Vec::new() })
    }

    /// The host asks for this keep-alive timeout, in milliseconds. Returns its new deadline.
    pub(crate) fn set_keep_alive(&mut self, now: Time, cntlid: u16, asked_ms: u32) -> Option<Time> {
        let host = self.host_mut(cntlid)?;
        (host.kato, host.last_alive) = (keep_alive_of(asked_ms), now);
        let deadline = host.deadline();
        self.look_again(cntlid);
        Some(deadline)
    }
}
