// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is next, where commands wait for the modelled firmware: under the lock, or with workers.

use super::workers::WorkerSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Whose turn it is, where commands wait under the lock and with the workers: each side gets as many as it has controllers.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Turns {
    /// What the workers may still take before the firmware's own line is next, in parts of a command.
    credit: AtomicI64,
    /// What the worker had taken that took a command last: whoever joins when no other waits begins there.
    last: AtomicU64,
    workers: Vec<InLines>,
}

/// What waits with these workers.
#[derive(Debug, Default)]
#[repr(align(128))]
struct InLines([InLine; IN_A_LINE]);

const IN_A_LINE: usize = 16;

/// Parts of a command: states are rounded to these.
const PARTS: i64 = 64;

/// The commands that wait with one worker, in one word: a worker that tests whether it is next reads the words of
/// all workers, so they lie side by side.
///
/// ```text
///   63         56  55                                    0
///  +-------------+---------------------------------------+
///  | controllers |                 taken                 |      taken: parts of a command for each controller;
///  +-------------+---------------------------------------+      the worker with the least is next
/// ```
#[derive(Debug, Default)]
struct InLine(AtomicU64);

const TAKEN_BITS: u32 = 56;
const TAKEN: u64 = (1 << TAKEN_BITS) - 1;
const MOST_CONTROLLERS: u64 = u64::MAX >> TAKEN_BITS;

/// The fields of such a word.
#[derive(Clone, Copy)]
struct Line {
    controllers: u64,
    taken: u64,
}

impl InLine {
    #[inline]
    fn get(&self) -> Line {
        let word = self.0.load(Ordering::Relaxed);
        Line { controllers: word >> TAKEN_BITS, taken: word & TAKEN }
    }

    /// Only the worker itself calls this.
    #[inline]
    fn set(&self, line: Line) {
        let word = line.controllers << TAKEN_BITS | line.taken & TAKEN;
        if self.0.load(Ordering::Relaxed) != word {
            self.0.store(word, Ordering::Relaxed);
        }
    }
}

impl Turns {
    pub(super) fn new(workers: usize) -> Self {
        let lines = workers.div_ceil(IN_A_LINE);
        let workers = (0..lines).map(|_| Default::default()).collect();
        Self { credit: AtomicI64::new(0), last: AtomicU64::new(0), workers }
    }

    #[inline]
    fn worker(&self, worker: usize) -> &InLine {
        &self.workers[worker / IN_A_LINE].0[worker % IN_A_LINE]
    }

    fn workers(&self) -> impl Iterator<Item = &InLine> {
        self.workers.iter().flat_map(|line| &line.0)
    }
}

impl WorkerSet {
    /// Says how many controllers have commands that wait with this worker.
    #[inline]
    pub(super) fn set_in_line(&self, worker: usize, controllers: usize) {
        let in_line = self.turns.worker(worker);
        let controllers = u64::try_from(controllers).map_or(MOST_CONTROLLERS, |n| n.min(MOST_CONTROLLERS));
        in_line.set(Line { controllers, ..in_line.get() });
    }

    /// Controllers whose commands wait with their workers.
    fn in_lines(&self) -> i64 {
        self.turns.workers().map(|worker| i64::try_from(worker.get().controllers).expect("8 bits")).sum()
    }

    /// The other workers with commands in line.
    #[inline]
    fn others(&self, worker: usize) -> impl Iterator<Item = Line> {
        let others = self.turns.workers().enumerate().filter(move |&(other, _)| other != worker);
        others.map(|(_, other)| other.get()).filter(|line| line.controllers > 0)
    }

    /// The least that another worker with commands in line has taken.
    #[inline]
    fn least_taken(&self, worker: usize) -> Option<u64> {
        self.others(worker).map(|line| line.taken).min()
    }

    /// The first command waits with the worker: it is served from now on, and not for the time before.
    pub(super) fn join_line(&self, worker: usize) {
        let since = self.least_taken(worker).unwrap_or_else(|| self.turns.last.load(Ordering::Relaxed));
        let line = self.turns.worker(worker).get();
        self.turns.worker(worker).set(Line { taken: line.taken.max(since), ..line });
    }

    /// Whether no other worker with commands in line has had less.
    #[inline]
    pub(super) fn is_next(&self, worker: usize) -> bool {
        let taken = self.turns.worker(worker).get().taken;
        self.others(worker).all(|other| taken <= other.taken)
    }

    /// Whether the firmware's own line is next.
    pub(crate) fn is_firmwares_turn(&self) -> bool {
        self.turns.credit.load(Ordering::Relaxed) < PARTS || self.in_lines() == 0
    }

    /// Whether a worker is next.
    pub(super) fn is_workers_turn(&self) -> bool {
        !self.is_waiting() || self.turns.credit.load(Ordering::Relaxed) >= PARTS
    }

    /// The firmware has taken a command from its own line, in which so many controllers wait.
    pub(crate) fn firmware_took(&self, controllers: usize) {
        let (mine, theirs) = (i64::try_from(controllers).unwrap_or(i64::MAX).max(1), self.in_lines());
        let credit = self.turns.credit.load(Ordering::Relaxed);
        // What nobody has claimed in time is not kept.
        let most = PARTS * theirs.max(1);
        self.turns.credit.store((credit + PARTS * theirs / mine).min(most), Ordering::Relaxed);
    }

    /// A worker has taken a command from its line.
    #[inline]
    pub(super) fn worker_took(&self, worker: usize) {
        let in_line = self.turns.worker(worker);
        let line = in_line.get();
        let taken = line.taken + PARTS.unsigned_abs() / line.controllers.max(1);
        in_line.set(Line { taken, ..line });
        if self.turns.last.load(Ordering::Relaxed) < taken {
            self.turns.last.store(taken, Ordering::Relaxed);
        }
        let credit = self.turns.credit.load(Ordering::Relaxed);
        // All workers read it.
        if credit > 0 {
            self.turns.credit.store((credit - PARTS).max(0), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_joins_an_empty_line_has_no_turns_of_the_time_before() {
        let workers = WorkerSet::new(2);
        let join = |worker| {
            workers.join_line(worker);
            workers.set_in_line(worker, 1);
        };
        join(0);
        (0..1000).for_each(|_| workers.worker_took(0));
        // The data of its writes is on its way: nothing of it waits.
        workers.set_in_line(0, 0);
        join(1);
        join(0);
        let took = |worker| {
            let mine = workers.is_next(worker);
            if mine {
                workers.worker_took(worker);
            }
            u32::from(mine)
        };
        let turns = (0..100).fold([0, 0], |[first, second], _| [first + took(0), second + took(1)]);
        assert!(turns[0] >= 45 && turns[1] >= 45, "{turns:?}");
    }
}
