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

/// One queue. A worker writes it for each command, so it has cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Port {
    /// Name of the queue within the SSD.
    pub(super) name: QueueKey,
    /// The queue's key at the engine.
    pub(super) key: QueueKey,
    /// Identity of the host whose reads and writes the worker may execute alone.
    pub(super) reader: Option<Identity>,
    /// A read of a block without content is refused (DULBE).
    pub(super) tells_unwritten: bool,
    /// Where the queue's commands pend.
    pub(super) standing: Standing,
    /// Commands that pend, and when they arrived.
    pub(super) waiting: VecDeque<(Time, Waiting)>,
    /// Index of the queue's controller in `Pending`, while commands pend.
    pub(super) listed: Option<u32>,
    size: u32,
    /// Commands that have not been completed.
    outstanding: u32,
    /// SQHD: commands fetched, modulo `size`.
    head: u32,
    /// Counters of the worker's commands on the queue, and whether the firmware counts them for the host.
    done: Arc<QueueCounters>,
    is_watched: bool,
}

impl Port {
    /// Takes over the firmware's state of the queue. Returns counters to watch when the host becomes known.
    pub(super) fn refresh(&mut self, state: QueueState) -> Option<(Identity, Arc<QueueCounters>)> {
        (self.reader, self.standing, self.size) = (state.reader, state.standing, state.size.into());
        self.tells_unwritten = state.tells_unwritten;
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

    /// Counts an arriving command. `false`: the host has more commands under way than the queue has entries.
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
    /// Slots that are empty again, the first one first: its names are the oldest.
    free: VecDeque<u16>,
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
        let short = self.free.pop_front().or_else(|| self.fresh())?;
        let (age, slot) = &mut self.slots[usize::from(short)];
        *age = age.wrapping_add(1);
        let port = Port {
            name: queue_name(self.worker, *age, short),
            key,
            reader: None,
            tells_unwritten: false,
            standing: Standing::Unconnected,
            waiting: VecDeque::new(),
            listed: None,
            size: entries.into(),
            outstanding: 0,
            head: 0,
            done: Arc::default(),
            is_watched: false,
        };
        self.by_key.insert(key, short);
        Some(slot.insert(port))
    }

    /// A slot that was never used.
    fn fresh(&mut self) -> Option<u16> {
        let slot = u16::try_from(self.slots.len()).ok()?;
        self.slots.push((0, None));
        Some(slot)
    }

    pub(super) fn close(&mut self, name: QueueKey) {
        if let Some(port) = self.get(name) {
            let key = port.key;
            self.by_key.remove(&key);
            let slot = slot_of(name);
            self.slots[usize::from(slot)].1 = None;
            self.free.push_back(slot);
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
        self.slots.get_mut(usize::from(slot_of(name)))?.1.as_mut().filter(|port| port.name == name)
    }

    #[inline]
    pub(super) fn look_at(&self, name: QueueKey) -> Option<&Port> {
        self.slots.get(usize::from(slot_of(name)))?.1.as_ref().filter(|port| port.name == name)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Port> {
        self.slots.iter_mut().filter_map(|(_, port)| port.as_mut())
    }
}

fn slot_of(name: QueueKey) -> u16 {
    (name.0 & 0xFFFF) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::time::{Duration, Instant};

    fn open(ports: &mut Ports, next: &mut u32) -> Option<QueueKey> {
        *next += 1;
        ports.open(QueueKey(*next), 2).map(|port| port.name)
    }

    /// Time of opening and closing a hundred queues: the least of several, since a busy machine makes some
    /// longer.
    #[expect(clippy::disallowed_methods, reason = "it measures time")]
    fn time(ports: &mut Ports, next: &mut u32) -> Duration {
        let one = |_| {
            let start = Instant::now();
            for _ in 0..100 {
                let name = open(ports, next).expect("room");
                ports.close(name);
                assert!(ports.get(name).is_none());
            }
            start.elapsed()
        };
        (0..20).map(one).min().expect("some")
    }

    /// A host may open and close thousands of queues beside thousands of others, which are not searched.
    #[test]
    fn a_queue_opens_as_fast_beside_thousands_of_others_and_a_closed_ones_name_finds_nothing() {
        let _deadline = crate::deadline::deadline();
        let (mut ports, mut next) = (Ports::new(0), 0);
        let few = time(&mut ports, &mut next);
        let names: HashSet<_> =
            (0..u32::from(u16::MAX)).filter_map(|_| open(&mut ports, &mut next)).collect();
        assert_eq!(names.len(), usize::from(u16::MAX));
        let many = time(&mut ports, &mut next);
        println!("summary 100 queues open and close in {few:?}, beside 65,535 others in {many:?}");
        assert!(many < 20 * few + Duration::from_micros(100), "{few:?}, beside others {many:?}");
        assert!(open(&mut ports, &mut next).is_some() && open(&mut ports, &mut next).is_none());
    }
}
