// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is connected: queues by their connection, and the NVMe controllers that they belong to.

use gnstor_fabric::controller::QueueKey;
use gnstor_fabric::time::{Span, Time};
use gnstor_proto::fabrics::Identity;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Most entries of a queue; CAP.MQES is one less.
pub(crate) const MAX_QUEUE_ENTRIES: u16 = 1024;
/// Most I/O queues of one controller.
pub(crate) const MAX_IO_QUEUES: u16 = 1024;
/// Most entries of all queues together: what the slabs can number.
const MAX_ENTRIES: u32 = 1 << 18;
/// Controller ids are 1 to this.
const MAX_CONTROLLERS: usize = 0x4000;

/// What a queue may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Connected on the RDMA level only: the first command must be Connect.
    Fresh,
    /// A Connect command waits for its data.
    Connecting,
    /// The admin queue of this controller.
    Admin(u16),
    /// An I/O queue of this controller, whose host is this.
    Io(u16, Identity),
    /// After Disconnect.
    Ended,
}

/// One queue pair.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) qid: u16,
    pub(crate) role: Role,
    /// Entries as the RDMA connection agreed on them.
    pub(crate) entries: u16,
    /// Entries in use: Connect may ask for fewer.
    pub(crate) size: u16,
    pub(crate) sqhd: u16,
    pub(crate) outstanding: u32,
}

/// An NVMe controller: what a host made with Connect on an admin queue.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) identity: Identity,
    pub(crate) cc: u32,
    pub(crate) kato: Span,
    pub(crate) last_alive: Time,
    pub(crate) events_held: u8,
    pub(crate) queues: Vec<QueueKey>,
}

impl Host {
    /// When the host is taken for dead; never, without a keep-alive timeout.
    pub(crate) fn deadline(&self) -> Time {
        if self.kato == Span::ZERO { Time::NEVER } else { self.last_alive + self.kato }
    }
}

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

/// All connections of one SSD.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    queues: HashMap<QueueKey, Queue, BuildHasherDefault<KeyHasher>>,
    controllers: Vec<Option<Host>>,
    entries: u32,
}

impl Hosts {
    pub(crate) fn queue(&mut self, key: QueueKey) -> Option<&mut Queue> {
        self.queues.get_mut(&key)
    }

    /// Whether a queue of `entries` may be opened under this key.
    pub(crate) fn has_room(&self, key: QueueKey, entries: u16) -> bool {
        !self.queues.contains_key(&key) && self.entries + u32::from(entries) <= MAX_ENTRIES
    }

    pub(crate) fn open(&mut self, key: QueueKey, qid: u16, entries: u16) {
        self.entries += u32::from(entries);
        self.queues.insert(key, Queue { qid, role: Role::Fresh, entries, size: entries, sqhd: 0, outstanding: 0 });
    }

    /// Forgets a queue, and the controller where it was the admin queue; the controller's other queues.
    pub(crate) fn close(&mut self, key: QueueKey) -> Option<Vec<QueueKey>> {
        let queue = self.queues.remove(&key)?;
        self.entries -= u32::from(queue.entries);
        match queue.role {
            Role::Admin(cntlid) => {
                let mut others = self.controllers[index(cntlid)].take().map(|host| host.queues).unwrap_or_default();
                others.retain(|&other| other != key);
                Some(others)
            }
            Role::Io(cntlid, _) => {
                if let Some(host) = self.host(cntlid) {
                    host.queues.retain(|&other| other != key);
                }
                Some(Vec::new())
            }
            Role::Fresh | Role::Connecting | Role::Ended => Some(Vec::new()),
        }
    }

    /// Makes a controller for the admin queue `key`; its id, while there are any.
    pub(crate) fn create(&mut self, key: QueueKey, identity: Identity, kato: Span, now: Time) -> Option<u16> {
        let free = self.controllers.iter().position(Option::is_none).unwrap_or(self.controllers.len());
        if free == MAX_CONTROLLERS {
            return None;
        }
        if free == self.controllers.len() {
            self.controllers.push(None);
        }
        let queues = vec![key];
        self.controllers[free] = Some(Host { identity, cc: 0, kato, last_alive: now, events_held: 0, queues });
        u16::try_from(free + 1).ok()
    }

    pub(crate) fn host(&mut self, cntlid: u16) -> Option<&mut Host> {
        self.controllers.get_mut(index(cntlid))?.as_mut()
    }

    /// Whether a controller has a queue of this id.
    pub(crate) fn has_qid(&self, cntlid: u16, qid: u16) -> bool {
        let queues = self.controllers.get(index(cntlid)).and_then(Option::as_ref).map(|host| &host.queues);
        queues.is_some_and(|keys| keys.iter().any(|key| self.queues.get(key).is_some_and(|queue| queue.qid == qid)))
    }

    /// The keep-alive deadline that comes first, and the admin queue of its controller.
    pub(crate) fn first_deadline(&self) -> (Time, Option<QueueKey>) {
        let hosts = self.controllers.iter().flatten();
        let first = hosts.min_by_key(|host| host.deadline());
        first.map_or((Time::NEVER, None), |host| (host.deadline(), host.queues.first().copied()))
    }
}

fn index(cntlid: u16) -> usize {
    usize::from(cntlid).wrapping_sub(1)
}
