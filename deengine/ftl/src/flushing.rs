// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the journal is flushed, and for how long the medium has not taken what it was given.

use crate::types::NotDurable;
use gnstor_base::time::{Span, Time};
use gnstor_durable::{DurableError, Seq};

/// Pause before a program or a load that the medium has not finished is polled again.
pub(crate) const MEDIUM_PAUSE: Span = Span::from_ns(5_000);
/// Writes that find no room are refused when the disk has been full for so long.
const REFUSED_AFTER: Span = Span::from_ms(2_000);
/// A flush is polled again after this share of the time that it has taken so far.
const FLUSH_SHARE: u64 = 8;
/// Longest pause before a flush is polled again.
const LONGEST_PAUSE: Span = Span::from_ms(1);
/// Pause before a journal that could not be written is tried again.
const RETRY_PAUSE: Span = Span::from_ms(1);

/// Flushes of the journal, and their failures.
#[derive(Debug, Default)]
pub(crate) struct Flushing {
    /// A caller waits for this transaction to be durable.
    wanted: Seq,
    /// When the flush on its way began.
    since: Time,
    /// A flush has begun, and neither failed nor made a transaction durable.
    is_running: bool,
    /// The journal could not be written: when it is tried again.
    retry_at: Option<Time>,
    /// Since when no journal page could be written.
    failing_since: Option<Time>,
    /// Since when no checkpoint could be written.
    unwritten_since: Option<Time>,
    /// Since when pages of a failed program wait for another place.
    stranded_since: Option<Time>,
    /// Since when a program waits for room on the disk.
    held_since: Option<Time>,
}

/// Pause before a medium is asked again that has taken so long. It does not notify.
pub fn medium_pause(taken: Span) -> Span {
    let share = taken.as_ns() / FLUSH_SHARE;
    Span::from_ns(share.clamp(MEDIUM_PAUSE.as_ns(), LONGEST_PAUSE.as_ns()))
}

impl Flushing {
    /// A caller waits for this transaction to be durable.
    pub(crate) fn want(&mut self, seq: Seq) {
        self.wanted = self.wanted.max(seq);
    }

    /// The newest transaction that a caller waits for.
    pub(crate) fn wanted(&self) -> Seq {
        self.wanted
    }

    /// Whether a flush may begin. Time zero is that of a restore, which has no clock.
    pub(crate) fn may_begin(&self, now: Time) -> bool {
        !self.retry_at.is_some_and(|retry| now < retry && now > Time::ZERO)
    }

    pub(crate) fn begins(&mut self, now: Time) {
        (self.since, self.is_running) = (now, true);
    }

    /// No flush is on its way: there was nothing to write, or all of it ended at once.
    pub(crate) fn ends(&mut self) {
        self.is_running = false;
    }

    /// Pause before the flush on its way is polled again.
    pub(crate) fn pause(&self, now: Time) -> Span {
        medium_pause(now.since(self.since))
    }

    /// Notes how a flush got on: whether transactions became durable, and whether it failed. After an error
    /// it is tried again, and callers go on waiting.
    pub(crate) fn note(&mut self, now: Time, got_on: bool, result: Result<(), DurableError>) {
        if got_on {
            (self.retry_at, self.failing_since, self.is_running) = (None, None, false);
        }
        if let Err(error) = result {
            self.is_running = false;
            self.failing_since = self.failing_since.or(Some(now));
            if self.retry_at.is_none() {
                tracing::error!("the journal cannot be written: {error}");
            }
            self.retry_at = Some(now + RETRY_PAUSE);
        }
    }

    /// Notes whether programs wait for room on a full disk.
    pub(crate) fn note_held(&mut self, now: Time, is_held: bool) {
        self.held_since = if is_held { self.held_since.or(Some(now)) } else { None };
    }

    /// Notes whether pages of a failed program wait for another place. Nothing behind them is durable.
    pub(crate) fn note_stranded(&mut self, now: Time, is_stranded: bool) {
        self.stranded_since = if is_stranded { self.stranded_since.or(Some(now)) } else { None };
    }

    /// Notes whether the last checkpoint could not be written. Without one the journal has no room again.
    pub(crate) fn note_checkpoint(&mut self, now: Time, has_failed: bool) {
        self.unwritten_since = if has_failed { self.unwritten_since.or(Some(now)) } else { None };
    }

    /// Whether a program waits for room on the disk.
    pub(crate) fn is_held(&self) -> bool {
        self.held_since.is_some()
    }

    /// Whether a program has waited for room so long that writes are refused.
    pub(crate) fn is_held_long(&self, now: Time) -> bool {
        is_long(self.held_since, now)
    }

    /// Why a caller waits in vain for room.
    pub(crate) fn has_no_room(&self, now: Time) -> Option<NotDurable> {
        let of_checkpoint = || is_long(self.unwritten_since, now).then_some(NotDurable::Failing);
        self.gives_up(now).or_else(of_checkpoint)
    }

    /// Why a caller waits in vain for durability.
    pub(crate) fn gives_up(&self, now: Time) -> Option<NotDurable> {
        // A flush on its way may still succeed, however slow the disk is.
        let judged_at = if self.is_running { self.since } else { now };
        let is_failing = is_long(self.failing_since, judged_at) || is_long(self.stranded_since, now);
        match (self.is_held_long(now), is_failing) {
            (true, _) => Some(NotDurable::Full),
            (false, true) => Some(NotDurable::Failing),
            (false, false) => None,
        }
    }
}

fn is_long(since: Option<Time>, now: Time) -> bool {
    since.is_some_and(|since| now.since(since) >= REFUSED_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(1 + ms)
    }

    fn failed() -> Result<(), DurableError> {
        Err(DurableError::RingFull { pages: 1 })
    }

    #[test]
    fn a_slow_flush_after_a_failed_one_is_waited_for() {
        let _deadline = crate::tests::deadline();
        let mut flushing = Flushing::default();
        flushing.begins(at(0));
        flushing.note(at(0), false, failed());
        flushing.begins(at(1));
        flushing.note(at(1), false, Ok(()));
        assert!(flushing.gives_up(at(5000)).is_none(), "the disk may be slow, not broken");
        flushing.note(at(5001), true, Ok(()));
        assert!(flushing.gives_up(at(9000)).is_none());
        // Each flush takes a second, and each fails.
        for second in 10..13 {
            flushing.begins(at(second * 1000));
            assert!(flushing.gives_up(at(second * 1000 + 500)).is_none(), "second {second}");
            flushing.note(at(second * 1000 + 999), false, failed());
        }
        assert!(matches!(flushing.gives_up(at(13_000)), Some(NotDurable::Failing)));
    }
}
