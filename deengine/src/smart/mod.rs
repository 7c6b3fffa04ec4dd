// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters and health of an SSD.

pub(crate) mod counters;
pub(crate) mod errors;
pub(crate) mod health;
pub(crate) mod smart_counters;
pub(crate) mod stats;

use crate::request::Verb;
use errors::{ErrorEntry, ErrorLog};
use gnstor_base::time::{Span, Time};
use gnstor_durable::SmartCounters;
use health::{Activity, FlashHealth, LOOK_EVERY};
use smart_counters::SAVE_EVERY;
use stats::Stats;

/// Health, counters and error log of an SSD.
#[derive(Debug)]
pub(crate) struct Smart {
    stats: Stats,
    /// Activity of the firmware itself. The workers count their own.
    activity: Activity,
    errors: ErrorLog,
    /// Health as reported to hosts.
    flash_health: FlashHealth,
    /// Health at the last read of the flash layer.
    found: FlashHealth,
    /// Time of the next read of the flash layer.
    look_at: Time,
    /// SMART counters from before this power-on; the present power cycle is counted.
    earlier: SmartCounters,
    /// Time at which the counters are saved next.
    save_at: Time,
    /// The latest time that the firmware has seen.
    seen: Time,
}

impl Default for Smart {
    fn default() -> Self {
        Self {
            stats: Stats::default(),
            activity: Activity::default(),
            errors: ErrorLog::default(),
            flash_health: FlashHealth::default(),
            found: FlashHealth::default(),
            look_at: Time::ZERO,
            earlier: SmartCounters::default(),
            save_at: Time::ZERO + SAVE_EVERY,
            seen: Time::ZERO,
        }
    }
}

impl Smart {
    /// Counters of the firmware, without the workers'.
    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Activity of the firmware, without the workers'.
    pub(crate) fn activity(&self) -> Activity {
        self.activity
    }

    /// Counts a request for this number of blocks, which the firmware executed.
    pub(crate) fn count(&mut self, verb: Verb, blocks: u32) {
        match verb {
            Verb::Read | Verb::Compare => {
                self.activity.read_commands += 1;
                self.activity.blocks_read += u64::from(blocks);
            }
            Verb::Write => {
                self.activity.write_commands += 1;
                self.activity.blocks_written += u64::from(blocks);
            }
            Verb::Trim => {}
        }
    }

    /// The modelled firmware was busy for this span.
    pub(crate) fn add_busy(&mut self, span: Span) {
        self.activity.busy = self.activity.busy + span;
    }

    pub(crate) fn log_error(&mut self, entry: ErrorEntry) {
        self.errors.add(entry);
    }

    pub(crate) fn errors(&self) -> &ErrorLog {
        &self.errors
    }

    pub(crate) fn flash_health(&self) -> &FlashHealth {
        &self.flash_health
    }

    /// Replaces the health that is reported to hosts. Returns the warnings that are new.
    pub(crate) fn replace_health(&mut self, health: FlashHealth) -> u8 {
        let new = health.warnings() & !self.flash_health.warnings();
        self.flash_health = health;
        new
    }

    /// Time of the next read of the flash layer.
    pub(crate) fn look_at(&self) -> Time {
        self.look_at
    }

    /// Takes the flash layer's health. Returns whether it has changed.
    pub(crate) fn take_found(&mut self, now: Time, found: FlashHealth) -> bool {
        self.look_at = now + LOOK_EVERY;
        std::mem::replace(&mut self.found, found) != found
    }

    pub(crate) fn save_at(&self) -> Time {
        self.save_at
    }

    pub(crate) fn set_backup_failed(&mut self, failed: bool) {
        self.earlier.backup_failed = failed;
    }
}
