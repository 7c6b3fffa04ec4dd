// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What SMART counts over the life of the SSD: kept in the metadata at power on, at power off, and at most
//! a minute apart in between.
//!
//! A power cut loses what was counted since, a minute's work at the most, and neither a power cycle nor an
//! unsafe shutdown.

use crate::controller::Ssd;
use crate::durable::SsdError;
use crate::smart::health::Activity;
use gnstor_base::time::{Span, Time};
use gnstor_durable::SmartCounters;
use gnstor_ftl::Origin;

/// Counts are kept this often while there is something to do.
pub(crate) const SAVE_EVERY: Span = Span::from_ms(60_000);
/// How soon counts on their way to the disk are looked at again.
const POLL: Span = Span::from_ms(1);

impl Ssd {
    /// Power is on: one cycle more, and one unsafe shutdown more where it went without a word.
    pub(crate) fn count_start(&mut self) -> Result<(), SsdError> {
        let mut smart_counters = self.volumes.metadata().contents().smart_counters;
        smart_counters.power_cycles += 1;
        smart_counters.unsafe_shutdowns +=
            u64::from(!matches!(self.boot.origin, Origin::Fresh | Origin::Clean));
        match self.boot.origin {
            Origin::NoDump(_) => smart_counters.backup_failed = self.config.preset.power_protected,
            Origin::Dump => smart_counters.backup_failed = false,
            // What became of the dump, if one was needed, is not known of these.
            Origin::Fresh | Origin::Clean | Origin::Rebuilt(_) => {}
        }
        self.volumes.metadata_mut().set_smart_counters(&smart_counters)?;
        self.smart.earlier = smart_counters;
        Ok(())
    }

    /// Keeps the counts, where it is time.
    pub(crate) fn count_on(&mut self, now: Time) {
        self.smart.seen = self.smart.seen.max(now);
        if now < self.smart.save_at {
            return;
        }
        self.smart.save_at = self.smart.seen + SAVE_EVERY;
        let smart_counters = self.smart_counters();
        if smart_counters == self.volumes.metadata().contents().smart_counters {
            return;
        }
        if let Err(error) = self.volumes.metadata_mut().start_smart_counters(&smart_counters) {
            tracing::warn!("what SMART counts cannot be kept: {error}");
        }
        self.wake_at(now);
    }

    /// Goes on with counts that are on their way to the disk; when to come back.
    pub(crate) fn poll_smart_counters(&mut self, now: Time) -> Time {
        match self.volumes.metadata_mut().poll_smart_counters() {
            Ok(false) => Time::NEVER,
            Ok(true) => now + POLL,
            Err(error) => {
                tracing::warn!("what SMART counts cannot be kept: {error}");
                Time::NEVER
            }
        }
    }

    /// Keeps the counts, and waits for the disk. Where that cannot be, older ones stand.
    pub(crate) fn save_smart_counters(&mut self) {
        self.smart.save_at = self.smart.seen + SAVE_EVERY;
        let smart_counters = self.smart_counters();
        if smart_counters == self.volumes.metadata().contents().smart_counters {
            return;
        }
        if let Err(error) = self.volumes.metadata_mut().set_smart_counters(&smart_counters) {
            tracing::warn!("what SMART counts cannot be kept: {error}");
        }
    }

    /// Everything counted, up to when the SSD last looked at the clock.
    fn smart_counters(&self) -> SmartCounters {
        let Activity { blocks_read, blocks_written, read_commands, write_commands, busy, .. } =
            self.activity();
        let since = self.smart.seen.as_ns() / 1_000_000;
        SmartCounters {
            on_ms: self.smart.earlier.on_ms.saturating_add(since),
            blocks_read,
            blocks_written,
            read_commands,
            write_commands,
            busy_ms: busy.as_ns() / 1_000_000,
            media_errors: self.smart.earlier.media_errors + self.media_errors(),
            mean_erases_milli: self.ftl.health().wear.mean_milli,
            ..self.smart.earlier
        }
    }

    /// Goes on from what was counted before power was turned on.
    pub(crate) fn resume_activity(&mut self) {
        let SmartCounters { blocks_read, blocks_written, read_commands, write_commands, busy_ms, .. } =
            self.smart.earlier;
        let busy = Span::from_ms(busy_ms);
        self.smart.activity = Activity {
            blocks_read,
            blocks_written,
            read_commands,
            write_commands,
            busy,
            ..Activity::default()
        };
    }
}
