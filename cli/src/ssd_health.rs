// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor ssd smart`: the health of an SSD of a running array (log page 02h).

use crate::args::SsdPageArgs;
use crate::ssd_pages::Pages;
use gnstor_console::{CliError, outln, print_json};
use gnstor_proto::log_page::{self, SmartPage};
use serde::Serialize;
use zerocopy::{FromZeros, IntoBytes};

/// Shows the page.
///
/// # Errors
/// [`CliError`]: no such SSD, or it cannot be reached.
pub fn run(args: &SsdPageArgs) -> Result<(), CliError> {
    let mut page = SmartPage::new_zeroed();
    Pages::of_client(args)?.read(log_page::SMART, page.as_mut_bytes())?;
    let smart = Smart::of(args.index.into(), &page);
    if args.array.json {
        print_json(&smart)
    } else {
        smart.print()
    }
    Ok(())
}

/// The SMART / Health page (NVMe Base Specification 2.0, figure 207).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Smart {
    ssd: u32,
    critical_warning: u8,
    /// The bits of the critical warning, in words.
    warnings: Vec<&'static str>,
    temperature_celsius: i32,
    available_spare_percent: u8,
    spare_threshold_percent: u8,
    percentage_used: u8,
    /// Units of 512,000 bytes.
    data_units_read: u64,
    data_units_written: u64,
    read_commands: u64,
    write_commands: u64,
    busy_minutes: u64,
    power_cycles: u64,
    power_on_hours: u64,
    unsafe_shutdowns: u64,
    media_errors: u64,
}

const WARNINGS: [&str; 5] = [
    "spare blocks are below the threshold",
    "the temperature is beyond its limits",
    "acknowledged data was lost, or may be",
    "the SSD is read-only",
    "the power-failure dump does not work",
];

impl Smart {
    fn of(ssd: u32, page: &SmartPage) -> Self {
        let bits = (0..).zip(WARNINGS).filter(|(bit, _)| page.critical_warning >> bit & 1 == 1);
        Self {
            ssd,
            critical_warning: page.critical_warning,
            warnings: bits.map(|(_, words)| words).collect(),
            temperature_celsius: i32::from(page.kelvin.get()) - 273,
            available_spare_percent: page.available_spare,
            spare_threshold_percent: page.spare_threshold,
            percentage_used: page.percentage_used,
            data_units_read: page.data_units_read.get(),
            data_units_written: page.data_units_written.get(),
            read_commands: page.read_commands.get(),
            write_commands: page.write_commands.get(),
            busy_minutes: page.busy_minutes.get(),
            power_cycles: page.power_cycles.get(),
            power_on_hours: page.power_on_hours.get(),
            unsafe_shutdowns: page.unsafe_shutdowns.get(),
            media_errors: page.media_errors.get(),
        }
    }

    fn print(&self) {
        let health =
            if self.warnings.is_empty() { "good: no warning".into() } else { self.warnings.join("; ") };
        outln!("SSD               {}", self.ssd);
        outln!("health            {health}");
        outln!("temperature       {} C (modelled, constant)", self.temperature_celsius);
        outln!(
            "spare blocks      {} % left, warning below {} %",
            self.available_spare_percent,
            self.spare_threshold_percent
        );
        outln!("wear              {} % of the rated erase cycles", self.percentage_used);
        outln!("data read         {} in {} commands", units(self.data_units_read), self.read_commands);
        outln!("data written      {} in {} commands", units(self.data_units_written), self.write_commands);
        outln!("power             {} h on, {} min busy", self.power_on_hours, self.busy_minutes);
        outln!("power cycles      {}, of them {} unsafe shutdowns", self.power_cycles, self.unsafe_shutdowns);
        outln!("media errors      {}", self.media_errors);
    }
}

#[expect(clippy::cast_precision_loss, reason = "for display")]
fn units(units: u64) -> String {
    format!("{:.1} MB", units as f64 * 0.512)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;
    use zerocopy::FromBytes;

    #[test]
    fn the_smart_page_is_read_at_the_offsets_of_the_specification() {
        let _deadline = deadline();
        let mut page = [0; 512];
        page[..6].copy_from_slice(&[0b1001, 0x39, 0x01, 97, 10, 3]);
        for (at, value) in
            [(32, 1), (48, 2), (64, 3), (80, 4), (96, 5), (112, 6), (128, 7), (144, 8), (160, 9)]
        {
            page[at] = value;
        }
        let page = SmartPage::read_from_bytes(&page).expect("512 bytes");
        let smart = Smart::of(2, &page);
        assert_eq!(
            (smart.temperature_celsius, smart.available_spare_percent, smart.percentage_used),
            (40, 97, 3)
        );
        assert_eq!(smart.warnings, [WARNINGS[0], WARNINGS[3]]);
        assert_eq!((smart.data_units_written, smart.power_cycles, smart.media_errors), (2, 6, 9));
    }
}
