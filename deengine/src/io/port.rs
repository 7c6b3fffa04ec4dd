// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue as its worker keeps it, and the names of queues within an SSD.
//!
//! ```text
//!   31      24 23      16 15              0
//!  +----------+----------+-----------------+
//!  |   worker   |   age    |      port       |       age: so that what is left of a queue does not meet the next one
//!  +----------+----------+-----------------+
//! ```

use super::pending::Waiting;
use crate::controller::Ssd;
use crate::smart::counters::QueueCounters;
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_proto::fabrics::Identity;
use std::collections::VecDeque;
use std::sync::Arc;

/// Most workers of one SSD.
pub(super) const MAX_WORKERS: usize = 1 << 8;
const MAX_PORTS: usize = 1 << 16;

/// A queue that is not open.
pub(super) const NO_QUEUE: QueueKey = QueueKey(u32::MAX);

/// Which worker a queue is on.
pub(super) fn worker_of(name: QueueKey) -> usize {
    (name.0 >> 24) as usize
}

/// One queue. Like all that a worker writes for each read, apart from what others write.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Port {
    /// Its name within the SSD.
    pub(super) name: QueueKey,
    /// As the engine calls it.
    pub(super) key: QueueKey,
    /// Whose reads may go the short way.
    pub(super) reader: Option<Identity>,
    /// The controller, where reads may wait in the worker's own line.
    pub(super) in_turn: Option<u16>,
    /// A Fabrics command of the queue waits for the firmware: what comes behind it waits with it.
    pub(super) is_ending: bool,
    /// Commands that wait there, and when they arrived.
    pub(super) waiting: VecDeque<(Time, Waiting)>,
    size: u32,
    /// Commands of it that have not been answered.
    outstanding: u32,
    /// Commands fetched by the worker, and by the firmware as far as its completions tell; modulo `size`.
    fetched: u32,
    fetched_there: u32,
    /// What the worker has done for it, and whether the firmware counts that as the host's.
    done: Arc<QueueCounters>,
    is_watched: bool,
}

impl Port {
    /// Looks what the firmware has made of the queue.
    pub(super) fn look(&mut self, ssd: &mut Ssd) {
        let Some(state) = ssd.hosts.state(self.name) else { return };
        self.is_ending &= state.waits;
        (self.reader, self.in_turn, self.size) = (state.reader, state.in_turn, state.size.into());
        if let Some(Identity::Client(client)) = self.reader
            && !self.is_watched
        {
            self.is_watched = true;
            ssd.table.watch(self.name, client, Arc::clone(&self.done));
        }
    }

    /// A command arrives; `false` where the host has more under way than the queue has entries.
    #[inline]
    pub(super) fn arrive(&mut self) -> bool {
        self.outstanding += 1;
        self.outstanding <= self.size
    }

    /// The worker takes a command.
    #[inline]
    pub(super) fn fetch(&mut self) {
        self.fetched = next(self.fetched, self.size);
    }

    /// A completion has gone out.
    #[inline]
    pub(super) fn complete(&mut self) {
        self.outstanding -= 1;
    }

    /// SQHD: what has been fetched.
    #[inline]
    pub(super) fn head(&self) -> u16 {
        let sum = self.fetched + self.fetched_there;
        u16::try_from(if sum < self.size { sum } else { sum - self.size })
            .expect("below the size of the queue")
    }

    /// A completion of the firmware's goes out, which has fetched up to `sqhd` of its own; the SQHD that the host is told.
    pub(super) fn complete_there(&mut self, sqhd: u16) -> u16 {
        self.fetched_there = sqhd.into();
        self.complete();
        self.head()
    }

    #[inline]
    pub(super) fn count(&self, blocks: u32) {
        self.done.0.reads.count(blocks);
    }

    #[inline]
    pub(super) fn count_write(&self, blocks: u32) {
        self.done.0.writes.count(blocks);
    }
}

#[inline]
fn next(head: u32, size: u32) -> u32 {
    if head + 1 < size { head + 1 } else { 0 }
}

/// The queues of one worker.
#[derive(Debug, Default)]
pub(super) struct Ports {
    worker: u32,
    slots: Vec<(u8, Option<Port>)>,
    by_key: rustc_hash::FxHashMap<QueueKey, u16>,
}

impl Ports {
    pub(super) fn new(worker: usize) -> Self {
        Self { worker: u32::try_from(worker).expect("below MAX_WORKERS"), ..Self::default() }
    }

    /// A name for a queue that the engine calls `key`; `None` where there is one of that key, or too many.
    pub(super) fn open(&mut self, key: QueueKey, entries: u16) -> Option<&Port> {
        if self.by_key.contains_key(&key) {
            return None;
        }
        let index = self.slots.iter().position(|(_, port)| port.is_none()).unwrap_or(self.slots.len());
        let short = u16::try_from(index).ok().filter(|_| index < MAX_PORTS)?;
        if index == self.slots.len() {
            self.slots.push((0, None));
        }
        let (age, slot) = &mut self.slots[index];
        *age = age.wrapping_add(1);
        let name = QueueKey(self.worker << 24 | u32::from(*age) << 16 | u32::from(short));
        let port = Port {
            name,
            key,
            reader: None,
            in_turn: None,
            is_ending: false,
            waiting: VecDeque::new(),
            size: entries.into(),
            outstanding: 0,
            fetched: 0,
            fetched_there: 0,
            done: Arc::default(),
            is_watched: false,
        };
        self.by_key.insert(key, short);
        Some(slot.insert(port))
    }

    pub(super) fn close(&mut self, name: QueueKey) {
        if let Some(port) = self.get(name) {
            let key = port.key;
            self.by_key.remove(&key);
            self.slots[index_of(name)].1 = None;
        }
    }

    /// The queue that the engine calls so.
    #[inline]
    pub(super) fn called(&mut self, key: QueueKey) -> Option<&mut Port> {
        let &index = self.by_key.get(&key)?;
        self.slots[usize::from(index)].1.as_mut()
    }

    #[inline]
    pub(super) fn get(&mut self, name: QueueKey) -> Option<&mut Port> {
        self.slots.get_mut(index_of(name))?.1.as_mut().filter(|port| port.name == name)
    }

    #[inline]
    pub(super) fn look_at(&self, name: QueueKey) -> Option<&Port> {
        self.slots.get(index_of(name))?.1.as_ref().filter(|port| port.name == name)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Port> {
        self.slots.iter_mut().filter_map(|(_, port)| port.as_mut())
    }
}

fn index_of(name: QueueKey) -> usize {
    (name.0 & 0xFFFF) as usize
}
