// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Health of the SSD: the firmware asks the flash layer, counts over power cycles, and reports news to hosts.

use crate::controller::Ssd;
use crate::error::SsdError;
use crate::permission::Authorized;
use crate::request::Request;
use crate::smart::health::FlashHealth;
use gnstor_base::time::{Span, Time};
use gnstor_durable::SmartCounters;
use gnstor_ftl::Origin;
use gnstor_proto::status::Refusal;

/// Rated erase cycles of a block. This is modelled; some 3,000 are usual for TLC flash.
const RATED_CYCLES: u64 = 3000;
/// Time between two polls of counters that are being written.
const POLL: Span = Span::from_ms(1);

impl Ssd {
    /// An authorised request has succeeded.
    pub(crate) fn count(&mut self, request: &Authorized<Request>) {
        let Request { verb, blocks, .. } = *request.get();
        self.smart_mut().count(verb, blocks);
        self.table.count(request);
    }

    /// Asks the flash layer for its health, and reports news to hosts.
    pub(crate) fn look_at_flash(&mut self, now: Time) {
        let found = self.found_health();
        if self.smart_mut().take_found(now, found) {
            self.set_flash_health(now, found);
        }
    }

    /// As [`Self::look_at_flash`], but at most at a useful rate.
    pub(crate) fn watch_flash(&mut self, now: Time) {
        if now >= self.smart().look_at() {
            self.look_at_flash(now);
        }
    }

    /// Pages that could not be read back in this power cycle, when they were to be moved and when a host
    /// asked for them.
    pub(crate) fn media_errors(&self) -> u64 {
        let unreadable = [Refusal::BadChecksum, Refusal::WrongKey, Refusal::Unreadable];
        self.ftl().stats().lost_pages
            + unreadable.map(|refusal| self.smart().stats().refusals(refusal)).iter().sum::<u64>()
    }

    fn found_health(&self) -> FlashHealth {
        let (health, stats, earlier) = (self.ftl().health(), self.ftl().stats(), self.smart().earlier());
        let used = health.wear.mean_milli / (RATED_CYCLES * 10);
        FlashHealth {
            available_spare: health.spare_percent,
            percentage_used: u8::try_from(used).unwrap_or(u8::MAX),
            media_errors: earlier.media_errors + self.media_errors(),
            earlier_power_cycles: earlier.power_cycles.saturating_sub(1),
            earlier_minutes: earlier.on_ms / 60_000,
            unsafe_shutdowns: earlier.unsafe_shutdowns,
            backup_failed: earlier.backup_failed,
            reliability_degraded: self.admin.volumes.is_filling()
                || !self.admin.volumes.metadata().lost().is_empty()
                || stats.lost_pages > 0,
            read_only: health.worn_out,
            ..FlashHealth::default()
        }
    }

    /// Counts a start: one power cycle, and one unsafe shutdown if the last one was not announced.
    pub(crate) fn count_start(&mut self) -> Result<(), SsdError> {
        let mut smart_counters = self.admin.volumes.metadata().contents().smart_counters;
        smart_counters.power_cycles += 1;
        smart_counters.unsafe_shutdowns +=
            u64::from(!matches!(self.boot().origin, Origin::Fresh | Origin::Clean));
        match self.boot().origin {
            Origin::NoDump(_) => smart_counters.backup_failed = self.config().preset.power_protected,
            Origin::Dump => smart_counters.backup_failed = false,
            // After these starts the result of the dump is not known, if one was needed.
            Origin::Fresh | Origin::Clean | Origin::Rebuilt(_) => {}
        }
        self.admin.volumes.metadata_mut().set_smart_counters(&smart_counters)?;
        self.smart_mut().start_from(smart_counters);
        Ok(())
    }

    /// Starts saving the counters, if it is time.
    pub(crate) fn count_on(&mut self, now: Time) {
        self.smart_mut().note_time(now);
        if now < self.smart().save_at() {
            return;
        }
        let Some(smart_counters) = self.counters_to_save() else { return };
        if let Err(error) = self.admin.volumes.metadata_mut().start_smart_counters(&smart_counters) {
            tracing::warn!("what SMART counts cannot be kept: {error}");
        }
        self.wake_at(now);
    }

    /// Continues writing counters. Returns the time of the next call.
    pub(crate) fn poll_smart_counters(&mut self, now: Time) -> Time {
        match self.admin.volumes.metadata_mut().poll_smart_counters() {
            Ok(false) => Time::NEVER,
            Ok(true) => now + POLL,
            Err(error) => {
                tracing::warn!("what SMART counts cannot be kept: {error}");
                Time::NEVER
            }
        }
    }

    /// Saves the counters, and waits for the disk. If that fails, the disk has older counters.
    pub(crate) fn save_smart_counters(&mut self) {
        let Some(smart_counters) = self.counters_to_save() else { return };
        if let Err(error) = self.admin.volumes.metadata_mut().set_smart_counters(&smart_counters) {
            tracing::warn!("what SMART counts cannot be kept: {error}");
        }
    }

    /// All counters; `None` if the metadata has them already. The next save is one period later.
    fn counters_to_save(&mut self) -> Option<SmartCounters> {
        let wear = self.ftl().health().wear.mean_milli;
        let counters = self.smart().life_so_far(&self.activity(), self.media_errors(), wear);
        self.smart_mut().put_off_saving();
        Some(counters).filter(|counters| *counters != self.admin.volumes.metadata().contents().smart_counters)
    }
}
