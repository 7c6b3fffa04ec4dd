// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SMART's counters over the life of the SSD. The SSD saves them in its metadata at power on, at power off,
//! and at least once a minute in between.
//!
//! A power cut loses the counts since the last save: at most one minute. It loses no power cycle and no
//! unsafe shutdown.

use super::Smart;
use super::health::Activity;
use gnstor_base::time::{Span, Time};
use gnstor_durable::SmartCounters;

/// Interval at which counters are saved while there is activity.
pub(crate) const SAVE_EVERY: Span = Span::from_ms(60_000);

impl Smart {
    /// Counters from before this power-on; the present power cycle is counted.
    pub(crate) fn earlier(&self) -> &SmartCounters {
        &self.earlier
    }

    /// Continues from the counters before this power-on.
    pub(crate) fn start_from(&mut self, earlier: SmartCounters) {
        self.earlier = earlier;
    }

    /// The firmware has seen this time.
    pub(crate) fn note_time(&mut self, now: Time) {
        self.seen = self.seen.max(now);
    }

    /// Moves the next save one period later.
    pub(crate) fn put_off_saving(&mut self) {
        self.save_at = self.seen + SAVE_EVERY;
    }

    /// Everything counted in the life of the SSD, up to when it last looked at the clock.
    pub(crate) fn life_so_far(
        &self,
        all: &Activity,
        media_errors: u64,
        mean_erases_milli: u64,
    ) -> SmartCounters {
        let Activity { blocks_read, blocks_written, read_commands, write_commands, busy, .. } = *all;
        let since = self.seen.as_ns() / 1_000_000;
        SmartCounters {
            on_ms: self.earlier.on_ms.saturating_add(since),
            blocks_read,
            blocks_written,
            read_commands,
            write_commands,
            busy_ms: busy.as_ns() / 1_000_000,
            media_errors: self.earlier.media_errors + media_errors,
            mean_erases_milli,
            ..self.earlier
        }
    }

    /// The counts of this power cycle continue those of earlier ones.
    pub(crate) fn resume_activity(&mut self) {
        let SmartCounters { blocks_read, blocks_written, read_commands, write_commands, busy_ms, .. } =
            self.earlier;
        let busy = Span::from_ms(busy_ms);
        self.activity = Activity {
            blocks_read,
            blocks_written,
            read_commands,
            write_commands,
            busy,
            ..Activity::default()
        };
    }
}
