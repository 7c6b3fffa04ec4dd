// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State that the workers of an SSD and its firmware share without a lock:
//!
//! * counts of commands in flight ([`in_flight`]) and the end of the serving lease ([`lease_word`]);
//! * counters, writes to be committed ([`combining`]), and the notes that the firmware leaves with workers.
//!
//! Nothing here knows the firmware or a worker; both use it.
//!
//! A queue has a name within its SSD:
//!
//! ```text
//!   31      24 23      16 15              0
//!  +----------+----------+-----------------+
//!  |  worker  |   age    |      port       |       age: what is left of a queue does not meet the next one
//!  +----------+----------+-----------------+
//! ```

pub(crate) mod combining;
mod fairness;
mod in_flight;
mod lease_word;
pub(crate) mod loads;
mod note;
mod status;

pub(crate) use fairness::{Next, Place};
pub(crate) use note::Note;

mod sync {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

use crate::request::MAX_VOLUMES;
use crate::smart::counters::{Done, DoneCounter};
use combining::CombiningQueue;
use fairness::Fairness;
use gnstor_base::controller::{Effect, QueueKey};
use gnstor_base::time::{Span, Time};
use in_flight::{InFlight, Seen, Version};
use lease_word::LeaseWord;
use loads::Loads;
use note::Wake;
use status::Status;
use std::collections::VecDeque;
use std::ops::Add;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Most workers of one SSD.
pub(crate) const MAX_WORKERS: usize = 1 << 8;

/// The worker of a queue.
#[inline]
pub(crate) fn worker_of(name: QueueKey) -> usize {
    (name.0 >> 24) as usize
}

/// The name of the queue in this port of a worker.
pub(crate) fn queue_name(worker: u32, age: u8, port: u16) -> QueueKey {
    QueueKey(worker << 24 | u32::from(age) << 16 | u32::from(port))
}

/// Whether a lease that ends at `until` still runs at `at`. Every comparison of a time with the end of a
/// lease is this one.
#[inline]
pub(crate) fn runs(until: Time, at: Time) -> bool {
    at < until
}

/// State that one worker shares. Only the worker writes its counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerState {
    /// Indexed by the volume's slot.
    in_flight: Vec<InFlight>,
    volumes: Vec<DoneCounter>,
    seen: Seen,
    entered: AtomicU64,
    left: AtomicU64,
    done: DoneCounter,
    unmapped: AtomicU64,
    overtaken: AtomicU64,
    put_off: AtomicU64,
    forfeited: AtomicU64,
    busy_ps: AtomicU64,
    mail: Mutex<VecDeque<Note>>,
    has_mail: AtomicBool,
    /// Wakes the worker's thread. If it is not set, the thread polls.
    wake: OnceLock<Wake>,
    combining: CombiningQueue,
}

/// Adds to a counter that only its worker writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl WorkerState {
    fn new() -> Self {
        Self {
            in_flight: (0..MAX_VOLUMES).map(|_| InFlight::default()).collect(),
            volumes: (0..MAX_VOLUMES).map(|_| DoneCounter::default()).collect(),
            ..Self::default()
        }
    }

    /// The worker's commands in flight of the volume in this slot.
    #[inline]
    pub(crate) fn in_flight(&self, slot: u16) -> &InFlight {
        &self.in_flight[usize::from(slot)]
    }

    /// A command has begun or pends.
    #[inline]
    pub(crate) fn entered(&self) {
        add(&self.entered, 1);
    }

    /// A pending command goes to the firmware, which counts it from now on.
    pub(crate) fn handed_over(&self) {
        add(&self.entered, u64::MAX);
    }

    /// A command has ended, with or without success, or the firmware goes on with it.
    #[inline]
    pub(crate) fn left(&self) {
        add(&self.left, 1);
    }

    /// Counts a successful read; `unmapped` of its blocks are not mapped.
    #[inline]
    pub(crate) fn count(&self, slot: u16, blocks: u32, unmapped: u32) {
        self.volumes[usize::from(slot)].reads.count(blocks);
        self.done.reads.count(blocks);
        if unmapped > 0 {
            add(&self.unmapped, unmapped.into());
        }
    }

    /// Counts a successful write; `overtaken` of its blocks had a newer or the same stamp.
    #[inline]
    pub(crate) fn count_write(&self, slot: u16, blocks: u32, overtaken: u32) {
        self.volumes[usize::from(slot)].writes.count(blocks);
        self.done.writes.count(blocks);
        if overtaken > 0 {
            add(&self.overtaken, overtaken.into());
        }
    }

    #[cfg(test)]
    pub(crate) fn writes_done(&self) -> u64 {
        self.done.writes.get().commands
    }

    /// The worker's writes to be committed.
    pub(crate) fn combining(&self) -> &CombiningQueue {
        &self.combining
    }

    /// Counts that the worker found another one committing.
    pub(crate) fn put_off(&self) {
        add(&self.put_off, 1);
    }

    /// The queue of a command has gone.
    pub(crate) fn forfeit(&self) {
        add(&self.forfeited, 1);
    }

    /// The modelled firmware was busy for this span.
    pub(crate) fn add_busy(&self, span: Span) {
        add(&self.busy_ps, span.as_ps());
    }

    /// The worker judges by the rules of `version` from now on. Before, it judged the volumes in these slots
    /// by other entries.
    pub(crate) fn adopt_rules(&self, changed: impl Iterator<Item = u16>, version: u64) {
        for slot in changed {
            self.in_flight(slot).age();
        }
        self.seen.set(version);
    }

    /// Whether the firmware has left notes.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Relaxed)
    }

    /// Moves the firmware's notes into an empty list.
    pub(crate) fn take_mail(&self, into: &mut VecDeque<Note>) {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_mail.store(false, Ordering::Relaxed);
        std::mem::swap(&mut *mail, into);
    }

    fn post(&self, note: Note) {
        self.leave(note);
        if let Some(Wake(wake)) = self.wake.get() {
            wake();
        }
    }

    /// Leaves a note for a worker that is awake.
    fn leave(&self, note: Note) {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        mail.push_back(note);
        self.has_mail.store(true, Ordering::Relaxed);
    }

    /// From now on, each note that another worker leaves calls `wake`. Only the first call counts.
    pub(crate) fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        _ = self.wake.set(Wake(Box::new(wake)));
    }
}

/// Counters of all workers together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// Commands begun.
    pub(crate) entered: u64,
    /// Commands ended, well or not, or handed over.
    pub(crate) left: u64,
    /// Successful commands.
    pub(crate) done: Done,
    /// Blocks read that are not mapped.
    pub(crate) unmapped: u64,
    /// Blocks written with a stamp not above the stored one.
    pub(crate) overtaken: u64,
    /// Commits that found the lock taken.
    pub(crate) put_off: u64,
    /// Commands whose queue was closed.
    pub(crate) forfeited: u64,
    /// Time of the modelled firmware.
    pub(crate) busy: Span,
}

/// The words that every check loads.
#[derive(Debug)]
struct Judging {
    /// Version of the rules.
    version: Version,
    serving: LeaseWord,
}

impl Default for Judging {
    fn default() -> Self {
        Self { version: Version::default(), serving: LeaseWord::new(Time::NEVER.as_ps()) }
    }
}

/// The workers of an SSD. There are none before it is divided.
#[derive(Debug, Default)]
pub(crate) struct WorkerSet {
    judging: OwnLine<Judging>,
    status: Status,
    fairness: Fairness,
    loads: Loads,
    states: Vec<WorkerState>,
}

/// A value with cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

impl WorkerSet {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            states: (0..workers).map(|_| WorkerState::new()).collect(),
            fairness: Fairness::new(workers),
            ..Self::default()
        }
    }

    pub(crate) fn state(&self, worker: usize) -> &WorkerState {
        &self.states[worker]
    }

    /// The combining queues of all workers, that of worker `last` at the end. So the others can complete
    /// their writes while those of `last` are committed.
    pub(crate) fn combining_queues(&self, last: usize) -> impl Iterator<Item = &CombiningQueue> {
        let (before, from) = self.states.split_at((last + 1).min(self.states.len()));
        from.iter().chain(before).map(WorkerState::combining)
    }

    /// The rules are about to change.
    pub(crate) fn change(&self) {
        self.judging.0.version.change();
    }

    /// End of the serving lease; never, if there was none.
    #[inline]
    pub(crate) fn lease_end(&self) -> Time {
        Time::from_ps(self.judging.0.serving.get())
    }

    /// Whether the serving lease runs at this time.
    #[inline]
    pub(crate) fn serves(&self, at: Time) -> bool {
        runs(self.lease_end(), at)
    }

    /// Sets the end of the serving lease.
    pub(crate) fn end_lease_at(&self, until: Time) {
        self.judging.0.serving.set(until.as_ps(), &self.judging.0.version);
    }

    /// Counts a command in flight that was judged by the rules of version `mine`; `false` where those are
    /// old.
    #[inline]
    pub(crate) fn enter(&self, worker: usize, slot: u16, mine: u64) -> bool {
        self.state(worker).in_flight(slot).enter(&self.judging.0.version, mine)
    }

    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.judging.0.version.get()
    }

    /// Whether all commands in flight of the volume in this slot were judged by the entry of `version` or a
    /// newer one.
    pub(crate) fn is_fenced(&self, slot: u16, version: u64) -> bool {
        self.states.iter().all(|share| share.in_flight(slot).is_over(&share.seen, version))
    }

    /// Workers' counts of all volumes that have had this slot.
    pub(crate) fn done_in(&self, slot: u16) -> Done {
        let done = self.states.iter().map(|share| share.volumes[usize::from(slot)].get());
        done.fold(Done::default(), Add::add)
    }

    pub(crate) fn tally(&self) -> Tally {
        self.states.iter().fold(Tally::default(), |sum, share| {
            let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            Tally {
                entered: sum.entered + of(&share.entered),
                left: sum.left + of(&share.left),
                done: sum.done + share.done.get(),
                unmapped: sum.unmapped + of(&share.unmapped),
                overtaken: sum.overtaken + of(&share.overtaken),
                put_off: sum.put_off + of(&share.put_off),
                forfeited: sum.forfeited + of(&share.forfeited),
                busy: sum.busy + Span::from_ps(of(&share.busy_ps)),
            }
        })
    }

    /// Every worker closes the queues of its reads that hold up a fence of the volume in this slot.
    pub(crate) fn close_older(&self, slot: u16) {
        for share in &self.states {
            share.post(Note::CloseOlder(slot));
        }
    }

    /// Asks the worker of the queue to take back a waiting command, and to answer the Abort `command`.
    pub(crate) fn take_back(&self, queue: QueueKey, cid: u16, command: u32) {
        self.states[worker_of(queue)].post(Note::TakeBack { queue, cid, command });
    }

    /// Loads of pages from the medium.
    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Tells the workers of these queues that the firmware has allowed commands of them.
    pub(crate) fn post_granted(&self, by: usize, queues: impl Iterator<Item = QueueKey>) {
        for queue in queues {
            let worker = worker_of(queue);
            let (state, note) = (&self.states[worker], Note::Granted(queue));
            if worker == by { state.leave(note) } else { state.post(note) }
        }
    }

    /// Worker `by` passes effects to the workers of their queues. Its own ring no waker: its thread is awake,
    /// and looks before it sleeps ([`Controller`](gnstor_base::controller::Controller)).
    pub(crate) fn post(&self, by: usize, effects: &mut VecDeque<Effect>) {
        for effect in effects.drain(..) {
            let worker = match effect {
                Effect::Pull { queue, .. }
                | Effect::Push { queue, .. }
                | Effect::Complete { queue, .. }
                | Effect::Admitted { queue, .. }
                | Effect::Close { queue } => worker_of(queue),
                // The effect belongs to the SSD, so any worker may carry it out.
                Effect::Ask { .. } => 0,
            };
            let (state, note) = (&self.states[worker], Note::Effect(effect));
            if worker == by { state.leave(note) } else { state.post(note) }
        }
    }
}

#[cfg(test)]
mod tests;
