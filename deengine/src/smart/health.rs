// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Health of the SSD: the flash layer's report, and the SMART / Health page made from it.

use gnstor_base::time::{Span, Time};
use gnstor_ftl::{Health, LayerStats};
use gnstor_proto::log_page::{FLASH_MAGIC, FORMAT, FlashPage, SmartPage};
use zerocopy::IntoBytes;

/// Temperature that the model reports, always: 40 C in kelvin. Nothing here gets warm.
pub(crate) const MODELLED_KELVIN: u16 = 313;
/// Identify WCTEMP, and the default of the over-temperature threshold: 70 C.
pub(crate) const WARNING_KELVIN: u16 = 343;
/// Identify CCTEMP: 80 C.
pub(crate) const CRITICAL_KELVIN: u16 = 353;

/// Bits of the critical warning.
pub(crate) mod warning {
    pub(crate) const SPARE: u8 = 1 << 0;
    pub(crate) const TEMPERATURE: u8 = 1 << 1;
    pub(crate) const RELIABILITY: u8 = 1 << 2;
    pub(crate) const READ_ONLY: u8 = 1 << 3;
    pub(crate) const BACKUP: u8 = 1 << 4;
}

/// The flash layer's report of its health. [`crate::Ssd`] asks for it from time to time, and before it
/// answers a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashHealth {
    /// Spare blocks left, percent of the original number.
    pub available_spare: u8,
    /// Percentage of spare below which the host is warned.
    pub spare_threshold: u8,
    /// Wear: erase cycles used of those the flash is made for, percent; may go beyond 100, at most 255.
    pub percentage_used: u8,
    /// Pages that could not be read back, or held something else.
    pub media_errors: u64,
    /// Power cycles before this one.
    pub earlier_power_cycles: u64,
    /// Minutes of operation before this power cycle.
    pub earlier_minutes: u64,
    /// Times that power went away without a shutdown.
    pub unsafe_shutdowns: u64,
    /// Data was lost that had been acknowledged, or may be.
    pub reliability_degraded: bool,
    /// Writes are no longer possible.
    pub read_only: bool,
    /// The power-failure dump does not work, so acknowledged writes are not safe.
    pub backup_failed: bool,
}

impl Default for FlashHealth {
    fn default() -> Self {
        Self {
            available_spare: 100,
            spare_threshold: 10,
            percentage_used: 0,
            media_errors: 0,
            earlier_power_cycles: 0,
            earlier_minutes: 0,
            unsafe_shutdowns: 0,
            reliability_degraded: false,
            read_only: false,
            backup_failed: false,
        }
    }
}

impl FlashHealth {
    /// The bits of the critical warning that follow from this report, so without the temperature.
    pub(crate) fn warnings(&self) -> u8 {
        let mut warnings = 0;
        for (is_set, bit) in [
            (self.available_spare < self.spare_threshold, warning::SPARE),
            (self.reliability_degraded, warning::RELIABILITY),
            (self.read_only, warning::READ_ONLY),
            (self.backup_failed, warning::BACKUP),
        ] {
            warnings |= if is_set { bit } else { 0 };
        }
        warnings
    }
}

/// The part of the page that the controller adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Activity {
    pub(crate) blocks_read: u64,
    pub(crate) blocks_written: u64,
    pub(crate) read_commands: u64,
    pub(crate) write_commands: u64,
    pub(crate) busy: Span,
    pub(crate) error_entries: u64,
}

/// The SMART / Health page.
pub(crate) fn smart_page(now: Time, warnings: u8, flash: &FlashHealth, activity: &Activity) -> Vec<u8> {
    const MINUTE_NS: u64 = 60_000_000_000;
    let minutes = flash.earlier_minutes.saturating_add(now.as_ns() / MINUTE_NS);
    let page = SmartPage {
        critical_warning: warnings,
        kelvin: MODELLED_KELVIN.into(),
        available_spare: flash.available_spare,
        spare_threshold: flash.spare_threshold,
        percentage_used: flash.percentage_used,
        data_units_read: data_units(activity.blocks_read).into(),
        data_units_written: data_units(activity.blocks_written).into(),
        read_commands: activity.read_commands.into(),
        write_commands: activity.write_commands.into(),
        busy_minutes: (activity.busy.as_ns() / MINUTE_NS).into(),
        power_cycles: flash.earlier_power_cycles.saturating_add(1).into(),
        power_on_hours: (minutes / 60).into(),
        unsafe_shutdowns: flash.unsafe_shutdowns.into(),
        media_errors: flash.media_errors.into(),
        error_entries: activity.error_entries.into(),
        ..SmartPage::default()
    };
    page.as_bytes().to_vec()
}

/// Interval at which the flash layer's health is read while there is activity.
pub(super) const LOOK_EVERY: Span = Span::from_ms(100);

/// The vendor page of the flash.
pub(crate) fn flash_page(health: &Health, stats: &LayerStats, flags: u16) -> Vec<u8> {
    let page = FlashPage {
        magic: FLASH_MAGIC,
        format: FORMAT.into(),
        flags: flags.into(),
        least_erases: u64::from(health.wear.least).into(),
        most_erases: u64::from(health.wear.most).into(),
        mean_milli_erases: health.wear.mean_milli.into(),
        host_pages: stats.host_pages.into(),
        flash_pages: stats.flash_pages.into(),
        moved_pages: stats.moved_pages.into(),
        padded_pages: stats.padded_pages.into(),
        erases: stats.erases.into(),
        stalls: stats.stalls.into(),
        checkpoints: stats.checkpoints.into(),
        failed_programs: stats.program_failures.into(),
        bad_blocks: stats.bad_blocks.into(),
        lost_pages: stats.lost_pages.into(),
        free_superblocks: u64::from(health.free_superblocks).into(),
        spare_percent: u64::from(health.spare_percent).into(),
    };
    page.as_bytes().to_vec()
}

/// Thousands of 512 bytes, rounded up.
fn data_units(blocks: u64) -> u64 {
    blocks.saturating_mul(8).div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_follow_the_flash() {
        let _deadline = crate::deadline::deadline();
        let new = FlashHealth::default();
        assert_eq!(new.warnings(), 0);
        assert_eq!(
            FlashHealth { available_spare: 10, ..new }.warnings(),
            0,
            "at the threshold is not below it"
        );
        assert_eq!(FlashHealth { available_spare: 9, ..new }.warnings(), warning::SPARE);
        let worst = FlashHealth { read_only: true, backup_failed: true, reliability_degraded: true, ..new };
        assert_eq!(worst.warnings(), 0x1C);
    }

    #[test]
    fn data_units_are_thousands_of_sectors_rounded_up() {
        let _deadline = crate::deadline::deadline();
        assert_eq!([0, 1, 125, 126].map(data_units), [0, 1, 1, 2]);
    }
}
