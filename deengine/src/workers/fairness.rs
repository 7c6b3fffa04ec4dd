// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which worker dispatches next while commands pend with several of them.
//!
//! Within a worker the arbiter decides ([`crate::hosts::arbiter`]); among workers, the one that has
//! dispatched least for each of its clients.

use super::WorkerSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// Each worker's number of dispatched commands, and its pending ones.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Fairness {
    /// The largest number that a worker had dispatched when it ran out of commands. A worker that gets
    /// commands while no other has any starts there.
    last: AtomicU64,
    lines: Vec<CacheLine>,
}

/// The words of these workers.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CacheLine([Word; WORDS_IN_A_LINE]);

const WORDS_IN_A_LINE: usize = 16;

/// Parts of a command. A command of a worker with n clients counts as a share of `PARTS / n`.
const PARTS: u64 = 64;

/// The commands that pend with one worker, in one word. A worker that tests whether it is next reads the
/// words of all workers, so they lie side by side.
///
/// ```text
///   63         56 55                                     0
///  +-------------+---------------------------------------+
///  |   clients   |                 taken                 |  taken: parts of a command for each client;
///  +-------------+---------------------------------------+  the worker with the least is next
/// ```
#[derive(Debug, Default)]
struct Word(AtomicU64);

const CLIENTS_SHIFT: u32 = 56;
const TAKEN: u64 = (1 << CLIENTS_SHIFT) - 1;
const MOST_CLIENTS: u64 = u64::MAX >> CLIENTS_SHIFT;

/// The fields of such a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Fields {
    /// Clients with an I/O command that this worker may dispatch.
    clients: u64,
    taken: u64,
}

impl Word {
    #[inline]
    fn get(&self) -> Fields {
        let word = self.0.load(Ordering::Relaxed);
        Fields { clients: word >> CLIENTS_SHIFT, taken: word & TAKEN }
    }

    /// Only the worker itself calls this.
    #[inline]
    fn set(&self, fields: Fields) {
        let word = fields.clients << CLIENTS_SHIFT | fields.taken & TAKEN;
        self.0.store(word, Ordering::Relaxed);
    }
}

/// A worker is overdue when another has dispatched so many more commands for each of its clients.
const OVERDUE: u64 = 32 * PARTS;

/// Whose turn it is, as one worker sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// This worker is next: no other worker with pending commands has dispatched less.
    This,
    /// Another worker is next.
    Another,
    /// The worker has come too late for many turns.
    Overdue,
}

/// A worker's own copy of its word. All workers read the cache lines of the words. So a worker writes its
/// word only when it changes, and never reads it.
#[derive(Debug)]
pub(crate) struct Place {
    worker: usize,
    fields: Fields,
    published: Fields,
}

impl Place {
    pub(crate) fn new(worker: usize) -> Self {
        Self { worker, fields: Fields::default(), published: Fields::default() }
    }

    /// The worker has taken one of its pending I/O commands. The others see this from the next
    /// [`WorkerSet::publish_pending`] on.
    #[inline]
    pub(crate) fn took(&mut self) {
        self.fields.taken += (PARTS / self.fields.clients.max(1)).max(1);
    }
}

impl Fairness {
    pub(super) fn new(workers: usize) -> Self {
        let lines = workers.div_ceil(WORDS_IN_A_LINE);
        Self { last: AtomicU64::new(0), lines: (0..lines).map(|_| CacheLine::default()).collect() }
    }

    #[inline]
    fn word(&self, worker: usize) -> &Word {
        &self.lines[worker / WORDS_IN_A_LINE].0[worker % WORDS_IN_A_LINE]
    }

    /// The words of the other workers.
    #[inline]
    fn others(&self, worker: usize) -> impl Iterator<Item = Fields> {
        let words = self.lines.iter().flat_map(|line| &line.0).enumerate();
        words.filter(move |&(other, _)| other != worker).map(|(_, word)| word.get())
    }
}

impl WorkerSet {
    /// Publishes what pends with this worker: how many clients it may dispatch for.
    #[inline]
    pub(crate) fn publish_pending(&self, place: &mut Place, clients: usize) {
        let clients = u64::try_from(clients).map_or(MOST_CLIENTS, |n| n.min(MOST_CLIENTS));
        place.fields = Fields { clients, ..place.fields };
        if place.fields == place.published {
            return;
        }
        if clients == 0 {
            self.fairness.last.fetch_max(place.fields.taken, Ordering::Relaxed);
        }
        place.published = place.fields;
        self.fairness.word(place.worker).set(place.fields);
    }

    /// The first command pends with the worker. It gets its share from now on, and none for the time
    /// before. So it is not overdue, also where a worker that does not run has dispatched far less.
    pub(crate) fn join(&self, place: &mut Place) {
        let busy = || self.fairness.others(place.worker).filter(|other| other.clients > 0);
        let most = busy().map(|other| other.taken).max().unwrap_or(0);
        let least = busy().map(|other| other.taken.max(most.saturating_sub(OVERDUE))).min();
        let since = least.unwrap_or_else(|| self.fairness.last.load(Ordering::Relaxed));
        place.fields.taken = place.fields.taken.max(since);
    }

    /// Whose turn it is.
    pub(crate) fn turn(&self, place: &Place) -> Next {
        let taken = place.fields.taken;
        let others = self.fairness.others(place.worker).filter(|other| other.clients > 0);
        let (least, most) = others
            .fold((taken, taken), |(least, most), other| (least.min(other.taken), most.max(other.taken)));
        match () {
            () if most > taken + OVERDUE => Next::Overdue,
            () if least < taken => Next::Another,
            () => Next::This,
        }
    }

    /// Whether the worker has the SSD for itself.
    pub(crate) fn is_only_one(&self) -> bool {
        self.states.len() == 1
    }

    /// Whether no other worker with pending commands has dispatched less.
    #[inline]
    pub(crate) fn is_next(&self, place: &Place) -> bool {
        let taken = place.fields.taken;
        let goes_first = |other: Fields| other.clients > 0 && other.taken < taken;
        !self.fairness.others(place.worker).any(goes_first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::deadline;

    fn join(workers: &WorkerSet, place: &mut Place) {
        workers.join(place);
        workers.publish_pending(place, 1);
    }

    #[test]
    fn a_worker_that_joins_gets_no_turns_for_the_time_before() {
        let _deadline = deadline();
        let workers = WorkerSet::new(2);
        let mut places = [Place::new(0), Place::new(1)];
        join(&workers, &mut places[0]);
        (0..1000).for_each(|_| places[0].took());
        // The data of its writes is on its way: none of its commands pends.
        workers.publish_pending(&mut places[0], 0);
        join(&workers, &mut places[1]);
        join(&workers, &mut places[0]);
        let mut took = |worker: usize| {
            let place = &mut places[worker];
            let mine = workers.is_next(place);
            if mine {
                place.took();
                workers.publish_pending(place, 1);
            }
            u32::from(mine)
        };
        let turns = (0..100).fold([0, 0], |[first, second], _| [first + took(0), second + took(1)]);
        assert!(turns[0] >= 45 && turns[1] >= 45, "{turns:?}");
    }

    #[test]
    fn a_worker_far_behind_another_is_overdue_though_a_third_is_next() {
        let _deadline = deadline();
        let workers = WorkerSet::new(3);
        let mut places = [Place::new(0), Place::new(1), Place::new(2)];
        assert_eq!(workers.turn(&places[0]), Next::This, "no other has commands");
        places.iter_mut().for_each(|place| join(&workers, place));
        let mut turns = |count: u64, worker: usize| {
            (0..count).for_each(|_| places[worker].took());
            workers.publish_pending(&mut places[worker], 1);
            [0, 1, 2].map(|worker| workers.turn(&places[worker]))
        };
        assert_eq!(turns(1, 0), [Next::Another, Next::This, Next::This]);
        assert_eq!(turns(1, 1), [Next::Another, Next::Another, Next::This]);
        assert_eq!(turns(32, 0), [Next::Another, Next::Another, Next::Overdue]);
        assert_eq!(turns(1, 0), [Next::Another, Next::Overdue, Next::Overdue]);
        assert_eq!(turns(2, 2), [Next::Another, Next::Overdue, Next::Another]);
        workers.publish_pending(&mut places[0], 0);
        assert_eq!(workers.turn(&places[1]), Next::This, "commands that pend count, and no others");
    }
}
