// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue as its worker keeps it.

use super::pending::Waiting;
use crate::hosts::{QueueState, Standing};
use crate::smart::counters::QueueCounters;
use crate::workers::queue_name;
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_proto::fabrics::Identity;
use std::collections::VecDeque;
use std::sync::Arc;

const MAX_PORTS: usize = 1 << 16;

/// One queue. A worker writes it for each command, so it has cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Port {
    /// Its name within the SSD.
    pub(super) name: QueueKey,
    /// The queue's key at the engine.
    pub(super) key: QueueKey,
    /// Identity of the host whose reads and writes the worker may execute alone.
    pub(super) reader: Option<Identity>,
    /// Where its commands pend.
    pub(super) standing: Standing,
    /// Commands that pend, and when they arrived.
    pub(super) waiting: VecDeque<(Time, Waiting)>,
    /// A Fabrics command pends, which may end the queue: no write behind it is begun early.
    pub(super) may_end: bool,
    size: u32,
    /// Commands that have not been completed.
    outstanding: u32,
    /// SQHD: commands fetched, modulo `size`.
    head: u32,
    /// What the worker has done for the queue, and whether the firmware counts that as the host's.
    done: Arc<QueueCounters>,
    is_watched: bool,
}

impl Port {
    /// Takes over the firmware's state of the queue. Returns counters to watch when the host becomes known.
    pub(super) fn refresh(&mut self, state: QueueState) -> Option<(Identity, Arc<QueueCounters>)> {
        (self.reader, self.standing, self.size) = (state.reader, state.standing, state.size.into());
        self.head %= self.size;
        let identity =
            self.reader.filter(|_| !std::mem::replace(&mut self.is_watched, self.reader.is_some()))?;
        Some((identity, Arc::clone(&self.done)))
    }

    #[inline]
    pub(super) fn is_connected(&self) -> bool {
        !matches!(self.standing, Standing::Unconnected)
    }

    /// Whether its commands may pend.
    #[inline]
    pub(super) fn is_io(&self) -> bool {
        matches!(self.standing, Standing::Io { .. })
    }

    /// A command arrives. `false`: the host has more commands under way than the queue has entries.
    #[inline]
    pub(super) fn arrive(&mut self) -> bool {
        self.outstanding += 1;
        self.outstanding <= self.size
    }

    /// A command is fetched.
    #[inline]
    pub(super) fn fetch(&mut self) {
        self.head = if self.head + 1 < self.size { self.head + 1 } else { 0 };
    }

    /// Counts a completion. Returns the SQHD for the host.
    #[inline]
    pub(super) fn complete(&mut self) -> u16 {
        self.outstanding -= 1;
        self.head()
    }

    /// SQHD: the number of fetched commands.
    #[inline]
    pub(super) fn head(&self) -> u16 {
        u16::try_from(self.head).expect("below the size of the queue")
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

    /// Opens a queue that the engine calls `key`. `None`: one of that key exists, or there are too many.
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
        let port = Port {
            name: queue_name(self.worker, *age, short),
            key,
            reader: None,
            standing: Standing::Unconnected,
            waiting: VecDeque::new(),
            may_end: false,
            size: entries.into(),
            outstanding: 0,
            head: 0,
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

    /// The queue that has this key at the engine.
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
