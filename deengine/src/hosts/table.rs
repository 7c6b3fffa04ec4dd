// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The connected hosts: queues by their connection, and the NVMe controllers that they belong to.

use super::arbiter::{Arbiter, Class};
use super::events::Events;
use super::features::Features;
use super::host::{Host, NewHost, Queue, Role};
use super::identities::Identities;
use super::parts::{Parts, most_entries};
use super::proof::{Gate, Proof};
use crate::commands::scratch::Owner;
use crate::smart::errors::ErrorLog;
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::status::Refusal;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Most entries of a queue. CAP.MQES is one less.
pub(crate) const MAX_QUEUE_ENTRIES: u16 = 1024;
/// Most entries of an admin queue. A host has one as soon as it says its name, before it proves it, so many
/// of them must fit [`MAX_ENTRIES`].
pub(crate) const MAX_ADMIN_ENTRIES: u16 = 64;
/// Entries that count of a queue before its Connect succeeds: no more commands than that one are under way.
const FRESH_ENTRIES: u16 = 2;
/// Most I/O queues of one controller.
pub(crate) const MAX_IO_QUEUES: u16 = 1024;
/// Most entries of all queues together: as many as the slabs can number.
pub(super) const MAX_ENTRIES: u32 = 1 << 18;
/// Most controllers of a client with weighted round robin. All workers share the order of such a controller,
/// so each of them looks at those whose next command another one has.
pub(crate) const MOST_WEIGHTED: usize = 16;
/// Controller ids are 1 to this.
pub(super) const MAX_CONTROLLERS: usize = 0x4000;

/// Queue keys are small numbers that the target chose; spreading them is all the hash has to do.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = u64::from(value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(20);
    }
}

/// The part of a queue's state that its worker needs.
#[derive(Debug)]
pub(crate) struct QueueState {
    /// Entries in use.
    pub(crate) size: u16,
    /// The host of an I/O queue.
    pub(crate) reader: Option<Identity>,
    /// The host has asked to be told of blocks without content (DULBE).
    pub(crate) tells_unwritten: bool,
    /// Where its commands pend.
    pub(crate) standing: Standing,
}

/// Where the commands of a queue pend. Only those of I/O queues do.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// The queue is not connected: each command is judged when it comes.
    Unconnected,
    /// Admin commands take no time of the modelled firmware: each is carried out when it comes.
    Admin,
    /// Commands pend with the I/O queues of the controller of this client that has this arbiter.
    Io { identity: Identity, class: Class, arbiter: Arc<Arbiter> },
}

/// A controller whose own host asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known(u16);

/// All connections of one SSD.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    queues: HashMap<QueueKey, Queue, BuildHasherDefault<KeyHasher>>,
    pub(super) controllers: Vec<Option<Host>>,
    of_identity: Identities,
    pub(super) parts: Parts,
    /// Ids below the highest that no controller has.
    free: BTreeSet<u16>,
    /// Times at which controllers' deadlines are checked, with an entry for each controller that has one.
    /// Strangers can make thousands of controllers, so the SSD must not search them.
    deadlines: BTreeSet<(Time, u16)>,
    entries: u32,
    pub(super) gate: Gate,
    /// Searches for a queue's id.
    #[cfg(test)]
    searches: std::cell::Cell<u32>,
}

impl Hosts {
    pub(crate) fn queue(&self, key: QueueKey) -> Option<&Queue> {
        self.queues.get(&key)
    }

    pub(super) fn queue_mut(&mut self, key: QueueKey) -> Option<&mut Queue> {
        self.queues.get_mut(&key)
    }

    /// The identity of a controller's host.
    pub(crate) fn identity_of(&self, cntlid: u16) -> Option<Identity> {
        self.host(cntlid).map(|host| host.identity)
    }

    pub(crate) fn state(&self, key: QueueKey) -> Option<QueueState> {
        let queue = self.queues.get(&key)?;
        let (reader, tells_unwritten, standing) = (None, false, Standing::Unconnected);
        let mut state = QueueState { size: queue.size, reader, tells_unwritten, standing };
        match queue.role {
            Role::Unproven(_) | Role::Admin(_) => state.standing = Standing::Admin,
            Role::Io(controller, identity) => {
                let host = self.host(controller)?;
                state.reader = Some(identity);
                state.tells_unwritten = host.features.tells_unwritten;
                let (class, arbiter) = (queue.class, Arc::clone(&host.arbiter));
                state.standing = Standing::Io { identity, class, arbiter };
            }
            Role::Fresh | Role::Connecting | Role::Ended(_) => {}
        }
        Some(state)
    }

    /// Whether the host of this I/O queue has asked to be told of blocks without content (DULBE).
    pub(crate) fn tells_unwritten(&self, key: QueueKey) -> bool {
        let Some(Queue { role: Role::Io(controller, _), .. }) = self.queues.get(&key) else { return false };
        self.host(*controller).is_some_and(|host| host.features.tells_unwritten)
    }

    /// Whether another queue finds entries.
    pub(crate) fn has_room(&self) -> bool {
        self.entries + u32::from(FRESH_ENTRIES) <= MAX_ENTRIES
    }

    /// The admin queue of the host that gives way if a host that claims this identity needs a controller id.
    /// It is the oldest one with such a claim and without a proof.
    pub(crate) fn gives_id(&self, identity: Identity) -> Option<QueueKey> {
        self.admin_of(self.parts.oldest_claim(identity)?)
    }

    /// The same if a host needs entries.
    pub(crate) fn gives_entries(&self) -> Option<QueueKey> {
        self.admin_of(self.parts.oldest()?)
    }

    fn admin_of(&self, cntlid: u16) -> Option<QueueKey> {
        self.host(cntlid)?.queues.first().copied()
    }

    /// Whether a host that claims this identity finds a controller id.
    pub(crate) fn has_id(&self, identity: Identity) -> bool {
        self.parts.has_id(identity)
    }

    pub(crate) fn open(&mut self, key: QueueKey, qid: u16, entries: u16) {
        let counted = FRESH_ENTRIES.min(entries);
        self.entries += u32::from(counted);
        let (role, class) = (Role::Fresh, Class::Low);
        self.queues.insert(key, Queue { qid, role, entries, counted, size: entries, class });
    }

    /// Counts all entries of a queue whose Connect is about to succeed. Returns whether they fit. Clients
    /// leave the last ones to the daemon and to other SSDs.
    pub(crate) fn count_all(&mut self, key: QueueKey, identity: Identity) -> bool {
        let Some(queue) = self.queues.get_mut(&key) else { return false };
        let more = u32::from(queue.entries - queue.counted);
        let fits = self.entries + more <= most_entries(identity);
        if fits {
            self.entries += more;
            queue.counted = queue.entries;
        }
        fits
    }

    /// Removes a queue whose waiting commands have been taken. For an admin queue it removes the controller,
    /// too, and returns the controller's other queues.
    pub(crate) fn close(&mut self, key: QueueKey) -> Option<Vec<QueueKey>> {
        let queue = self.queues.remove(&key)?;
        self.entries -= u32::from(queue.counted);
        match queue.role {
            Role::Unproven(cntlid) | Role::Admin(cntlid) => {
                let mut others = self.end(cntlid);
                others.retain(|&other| other != key);
                Some(others)
            }
            Role::Io(cntlid, _) | Role::Ended(cntlid) => {
                if let Some(host) = self.host_mut(cntlid) {
                    host.queues.retain(|&other| other != key);
                }
                Some(Vec::new())
            }
            Role::Fresh | Role::Connecting => Some(Vec::new()),
        }
    }

    /// A controller ends; its queues.
    fn end(&mut self, cntlid: u16) -> Vec<QueueKey> {
        let Some(host) = self.controllers[index(cntlid)].take() else { return Vec::new() };
        self.of_identity.remove(host.identity, cntlid);
        self.parts.remove(host.identity, host.born);
        self.deadlines.remove(&(host.looked_at, cntlid));
        self.free.insert(cntlid);
        host.queues
    }

    /// The owner whose quota of scratch memory a command of this queue uses.
    pub(crate) fn owner(&self, key: QueueKey) -> Owner {
        let identity = match self.queues.get(&key).map(|queue| queue.role) {
            Some(Role::Io(_, identity)) => Some(identity),
            Some(Role::Admin(cntlid)) => self.identity_of(cntlid),
            _ => None,
        };
        match identity {
            Some(Identity::Daemon) => Owner::Daemon,
            Some(identity) => Owner::Host(identity),
            None => Owner::Stranger,
        }
    }

    /// Makes a controller for the admin queue `key`; its id, while there are any.
    pub(crate) fn create(&mut self, key: QueueKey, host: NewHost, now: Time) -> Option<u16> {
        let NewHost { identity, host_id, serial, kato, proof } = host;
        if !self.has_id(identity) {
            return None;
        }
        let cntlid = match self.free.pop_first() {
            Some(cntlid) => cntlid,
            None if self.controllers.len() == MAX_CONTROLLERS => return None,
            None => {
                self.controllers.push(None);
                u16::try_from(self.controllers.len()).expect("at most MAX_CONTROLLERS")
            }
        };
        let queues = vec![key];
        let born = self.parts.add(identity, cntlid, matches!(proof, Proof::Awaited { .. }));
        self.controllers[index(cntlid)] = Some(Host {
            identity,
            cc: 0,
            kato,
            last_alive: now,
            looked_at: Time::NEVER,
            queues,
            host_id,
            serial,
            born,
            proof,
            features: Features::default(),
            events: Events::default(),
            errors: ErrorLog::default(),
            arbiter: Arc::new(Arbiter::new(false, Features::default().arbitration)),
        });
        self.of_identity.add(identity, cntlid);
        self.look_again(cntlid);
        Some(cntlid)
    }

    /// Notes that a controller may have an earlier deadline from now on.
    pub(super) fn look_again(&mut self, cntlid: u16) {
        let Some(host) = controller(&mut self.controllers, cntlid) else { return };
        let deadline = host.deadline();
        self.deadlines.remove(&(host.looked_at, cntlid));
        host.looked_at = deadline;
        if deadline != Time::NEVER {
            self.deadlines.insert((deadline, cntlid));
        }
    }

    pub(crate) fn host(&self, cntlid: u16) -> Option<&Host> {
        self.controllers.get(index(cntlid))?.as_ref()
    }

    pub(crate) fn host_mut(&mut self, cntlid: u16) -> Option<&mut Host> {
        controller(&mut self.controllers, cntlid)
    }

    /// Ids of all controllers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u16> + use<> {
        let known: Vec<u16> =
            (1..).zip(&self.controllers).filter(|(_, host)| host.is_some()).map(|(id, _)| id).collect();
        known.into_iter()
    }

    /// The hosts with this identity.
    fn of(&self, identity: Identity) -> impl Iterator<Item = &Host> {
        self.of_identity.of(identity).filter_map(|cntlid| self.host(cntlid))
    }

    /// Whether a client may have one more controller with weighted round robin.
    pub(super) fn may_weigh(&self, identity: Identity) -> bool {
        self.of_identity.weighted(identity) < MOST_WEIGHTED
    }

    /// Sets whether a controller has weighted round robin. It has a new arbiter then.
    pub(super) fn weigh(&mut self, cntlid: u16, is_weighted: bool) {
        let Some(host) = controller(&mut self.controllers, cntlid) else { return };
        host.arbiter = Arc::new(Arbiter::new(is_weighted, host.features.arbitration));
        self.of_identity.weigh(host.identity, cntlid, is_weighted);
    }

    /// The controller of this id, if it is of the host that a Connect describes.
    pub(crate) fn known(
        &self,
        cntlid: u16,
        identity: Identity,
        host_id: [u8; 16],
        serial: u64,
    ) -> Result<Known, Refusal> {
        let host = self.host(cntlid).ok_or(Refusal::ConnectInvalid)?;
        if (host.identity, host.host_id, host.serial) != (identity, host_id, serial) {
            return Err(Refusal::ConnectRefused);
        }
        Ok(Known(cntlid))
    }

    /// Admin queues of hosts with this identity and another host identifier, or an older registration.
    pub(crate) fn of_other_hosts(&self, identity: Identity, host_id: [u8; 16], serial: u64) -> Vec<QueueKey> {
        let others = self.of(identity).filter(|host| host.host_id != host_id || host.serial < serial);
        others.filter_map(|host| host.queues.first().copied()).collect()
    }

    /// Admin queues of hosts with this identity and an older registration, proven or not.
    pub(crate) fn of_older_hosts(&self, identity: Identity, serial: u64) -> Vec<QueueKey> {
        let older = self.of(identity).filter(|host| host.serial < serial);
        older.filter_map(|host| host.queues.first().copied()).collect()
    }

    /// The queue of this id of a controller. After Disconnect a queue has its id no longer.
    pub(crate) fn queue_of(&self, cntlid: u16, qid: u16) -> Option<QueueKey> {
        #[cfg(test)]
        self.searches.set(self.searches.get() + 1);
        let host = self.host(cntlid)?;
        let has_id = |queue: &Queue| queue.qid == qid && !matches!(queue.role, Role::Ended(_));
        host.queues.iter().copied().find(|key| self.queues.get(key).is_some_and(has_id))
    }

    /// Whether a controller has a queue of this id. Only its own host may learn that, also by the time that
    /// the search takes.
    pub(crate) fn has_qid(&self, known: Known, qid: u16) -> bool {
        self.queue_of(known.0, qid).is_some()
    }

    /// The SSD was stopped until now and could hear no host, so each keep-alive timeout starts again. Leases
    /// end nevertheless.
    pub(crate) fn resumed(&mut self, now: Time) {
        for host in self.controllers.iter_mut().flatten() {
            host.last_alive = host.last_alive.max(now);
        }
    }

    /// The keep-alive deadline that comes first, and the admin queue of its controller.
    pub(crate) fn first_deadline(&mut self) -> (Time, Option<QueueKey>) {
        while let Some(&(at, cntlid)) = self.deadlines.first() {
            let Some(host) = self.host(cntlid) else {
                self.deadlines.pop_first();
                continue;
            };
            let (deadline, admin) = (host.deadline(), host.queues.first().copied());
            if deadline <= at {
                return (deadline, admin);
            }
            // The host has sent something since, so its deadline has moved.
            self.look_again(cntlid);
        }
        (Time::NEVER, None)
    }
}

fn index(cntlid: u16) -> usize {
    usize::from(cntlid).wrapping_sub(1)
}

/// A controller among all, while other parts of [`Hosts`] are borrowed.
pub(super) fn controller(controllers: &mut [Option<Host>], cntlid: u16) -> Option<&mut Host> {
    controllers.get_mut(index(cntlid))?.as_mut()
}

#[cfg(test)]
mod tests;
