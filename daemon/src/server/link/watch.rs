// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells a silent SSD from a thread that was not run (rule 2b of the fleet).
//!
//! An SSD is silent when a keep-alive has been out for longer than the link's patience, and no completion
//! came meanwhile. The patience is [`PATIENCE_MS`] for an SSD that answers at once. An SSD whose answers take
//! long, as on a machine with more threads than cores, has [`SLOWER`] times the longest that it took lately.
//! To drop such an SSD costs copies, and a later real loss may then take the last one. A new connection has
//! no history, so its SSD counts as a slow one at first.
//!
//! The link counts only time in which it was running. Between two checks that is at most [`STEP_MS`], or
//! [`LONG_STEP_MS`] for an SSD that is not watched closely. So a daemon that is stopped, or is on a busy
//! machine, does not take its own pause for the SSD's. After a longer pause the answer may still be on its
//! way through other threads of this process. They get [`AFTER_PAUSE_MS`] for it.

/// Interval of probes of a closely watched connection.
pub(super) const ALIVE_MS: u64 = 100;
/// An SSD that answers at once, and then has not answered for so long, is silent.
const SILENT_MS: u64 = 250;
/// Longest time without an answer to a keep-alive: at least, and at most.
const PATIENCE_MS: u64 = SILENT_MS - ALIVE_MS;
const PATIENCE_MAX_MS: u64 = 1_000;
/// Factor between the longest recent answer and the patience for the next one.
const SLOWER: u64 = 4;
/// Assumed longest answer of a new connection, and how long it counts.
const FIRST_MS: u64 = 125;
const NEW_MS: u64 = 3_000;
/// An answer counts as one of late for once to twice this time.
const LATELY_MS: u64 = 5_000;
/// While an answer is awaited, a running thread checks every millisecond.
pub(super) const STEP_MS: u64 = 20;
/// The thread was stopped, or the whole machine: no load delays it so long.
pub(super) const LONG_STEP_MS: u64 = 1_000;
/// A pause of this thread in which other threads may not have been run either.
const PAUSE_MS: u64 = 100;
/// Least patience that is left after a pause.
const AFTER_PAUSE_MS: u64 = 100;
const _: () = assert!(AFTER_PAUSE_MS < PATIENCE_MS && STEP_MS < PAUSE_MS);

/// The time that a link has watched its SSD.
#[derive(Debug)]
pub(super) struct Watch {
    /// The last look.
    looked_at: u64,
    /// An answer was awaited since then.
    awaited: bool,
    /// Time in which the link did not run.
    missed_ms: u64,
    /// When the oldest unanswered keep-alive was sent, in time in which the link ran.
    asked_at: Option<u64>,
    /// The longest answers of this span of [`LATELY_MS`], and of the span before it.
    longest: [u64; 2],
    /// End of this period, in seen time.
    span_ends: u64,
}

impl Watch {
    pub(super) fn new(now: u64) -> Self {
        Self {
            looked_at: now,
            awaited: false,
            missed_ms: 0,
            asked_at: None,
            longest: [0, FIRST_MS],
            span_ends: now + NEW_MS,
        }
    }

    /// Notes a check. Returns the time in which the link has run: at most `step_ms` more than at the last
    /// check.
    pub(super) fn look(&mut self, now: u64, step_ms: u64) -> u64 {
        let gap = now.saturating_sub(self.looked_at);
        self.looked_at = now;
        // While no answer is awaited the thread sleeps, and it misses nothing.
        if self.awaited {
            self.missed_ms += gap.saturating_sub(step_ms);
        }
        let (seen, patience) = (self.seen(now), self.patience());
        if gap > PAUSE_MS
            && let Some(asked_at) = &mut self.asked_at
        {
            *asked_at = (*asked_at).max((seen + AFTER_PAUSE_MS).saturating_sub(patience));
        }
        seen
    }

    fn seen(&self, now: u64) -> u64 {
        now.saturating_sub(self.missed_ms)
    }

    /// Converts time in which the link ran to the clock's time, if no check comes late.
    pub(super) fn clock(&self, seen: u64) -> u64 {
        seen.saturating_add(self.missed_ms)
    }

    /// Whether an answer is awaited until the next look.
    pub(super) fn awaits(&mut self, awaits: bool) {
        self.awaited = awaits;
    }

    /// Notes that a completion came.
    pub(super) fn heard(&mut self, seen: u64) {
        let took = self.asked_at.take().map_or(0, |at| seen.saturating_sub(at));
        if seen >= self.span_ends {
            self.longest = [0, self.longest[0]];
            self.span_ends = seen + LATELY_MS;
        }
        self.longest[0] = self.longest[0].max(took);
    }

    /// The longest time without an answer to a keep-alive.
    fn patience(&self) -> u64 {
        let longest = self.longest[0].max(self.longest[1]);
        (SLOWER * longest).clamp(PATIENCE_MS, PATIENCE_MAX_MS)
    }

    /// The time without an answer after which an SSD is silent.
    pub(super) fn silent_ms(&self) -> u64 {
        self.patience() + ALIVE_MS
    }

    /// Notes that a keep-alive was sent.
    pub(super) fn asked(&mut self, seen: u64) {
        self.asked_at.get_or_insert(seen);
    }

    pub(super) fn is_silent(&self, seen: u64) -> bool {
        self.asked_at.is_some_and(|at| at + self.patience() <= seen)
    }
}
