// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor ssd smart`: the health of an SSD of a running array, read through an admin queue of this process.
//!
//! ```text
//!   daemon: address of the SSD, client id  ->  TCP link, admin queue pair  ->  Get Log Page 02h
//! ```
//! `gnstor ssd log` reads its pages in the same way (`ssd_log`).

use crate::args::{ArrayArgs, SsdCommand, SsdPageArgs};
use crate::fleet::{self, Fleet, Ssd};
use crate::key;
use crate::ssd_log;
use gnstor_array::ArrayError;
use gnstor_console::{CliError, outln, print_json};
use gnstor_fabric::admin::{AdminChannel, ChannelError, Payload};
use gnstor_fabric::host_queue::{Credentials, HostQueue, SsdPath};
use gnstor_fabric::transport::Port;
use gnstor_proto::log_page::{self, SmartPage};
use gnstor_proto::status::Status;
use libgnstor::{RcTransport, TransportConfig, TransportThreads};
use serde::Serialize;
use std::time::Duration;
use zerocopy::{FromZeros, IntoBytes};

const DEADLINE: Duration = Duration::from_secs(5);

/// Shows a log page.
///
/// # Errors
/// [`CliError`]: no such SSD, or it cannot be reached.
pub fn run(command: &SsdCommand) -> Result<(), CliError> {
    match command {
        SsdCommand::Log(args) => ssd_log::run(args)?,
        SsdCommand::Smart(args) => {
            let mut page = SmartPage::new_zeroed();
            Pages::of_client(args)?.read(log_page::SMART, page.as_mut_bytes())?;
            let smart = Smart::of(args.index, &page);
            if args.array.json { print_json(&smart) } else { smart.print() }
        }
    }
    Ok(())
}

/// Log pages of one SSD, read through an admin queue. The queue ends before the engine does.
pub(crate) struct Pages {
    queue: HostQueue,
    ssd: Ssd,
    _engine: TransportThreads,
}

impl Pages {
    /// As a client, which sees what every host may see.
    fn of_client(args: &SsdPageArgs) -> Result<Self, CliError> {
        Self::open(args, fleet::register(&args.array, "gnstor ssd")?).map_err(Failed::into)
    }

    /// As an operator beside the daemon: the SSD keeps counters and the errors of all hosts for the daemon.
    ///
    /// # Errors
    /// [`CliError`]: no such SSD, or it cannot be reached.
    pub(crate) fn of_daemon(args: &SsdPageArgs) -> Result<Self, CliError> {
        let key = key::given(args.manager_key.as_deref())?;
        Self::open(args, Credentials::daemon(key.as_ref())).map_err(|failed| match failed {
            Failed::Connect(ChannelError::Unproven { .. }) if key.is_none() => CliError::Stopped(format!(
                "SSD {} asks for the array's key: name its file with --manager-key. `gnstor up --manager-key \
                 FILE` makes the file, and `gnstor up --data DIR` makes it in DIR",
                args.index
            )),
            failed => failed.into(),
        })
    }

    fn open(args: &SsdPageArgs, who: Credentials) -> Result<Self, Failed> {
        let fleet = Fleet::ask(&args.array)?;
        let last = fleet.ssds.len().saturating_sub(1);
        let found = fleet.ssds.into_iter().find(|ssd| ssd.info.index == args.index);
        let none =
            || CliError::Usage(format!("the array has no SSD {}; it has SSDs 0 to {last}", args.index));
        let ssd = found.ok_or_else(none)?;
        if !matches!(ssd.info.transport.as_str(), libgnstor::TCP | libgnstor::TLS) {
            let index = ssd.info.index;
            return Err(
                CliError::Stopped(format!("SSD {index} is reached in the array's process only")).into()
            );
        }
        let engine = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())])
            .map_err(|cause| CliError::Os { what: "starting the engine".into(), cause })?;
        Ok(Self { queue: connect(&engine, &ssd, &args.array, who)?, ssd, _engine: engine })
    }

    /// The first bytes of a page.
    ///
    /// # Errors
    /// [`CliError`]: the SSD refuses, or does not answer.
    pub(crate) fn read(&mut self, page: u8, data: &mut [u8]) -> Result<(), CliError> {
        get_log(&mut self.queue, &self.ssd, page, data).map_err(|e| ArrayError::from(e).into())
    }
}

/// Why there is no queue.
enum Failed {
    Other(CliError),
    /// The SSD was reached, and did not let this host in.
    Connect(ChannelError),
}

impl From<CliError> for Failed {
    fn from(error: CliError) -> Self {
        Self::Other(error)
    }
}

impl From<Failed> for CliError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Other(error) => error,
            Failed::Connect(error) => ArrayError::from(error).into(),
        }
    }
}

fn connect(
    engine: &TransportThreads,
    ssd: &Ssd,
    array: &ArrayArgs,
    who: Credentials,
) -> Result<HostQueue, Failed> {
    let failed = |cause| CliError::Os {
        what: format!("connecting to SSD {} at {}", ssd.info.index, ssd.info.address),
        cause,
    };
    let wire = libgnstor::connect_to_ssd(&ssd.info, &array.array, &array.credentials(), DEADLINE)
        .map_err(CliError::from)?;
    let handle = engine.handle();
    let soft =
        handle.call(|engine, _| engine.add_soft()).map_err(ArrayError::from).map_err(CliError::from)?;
    let remote = handle
        .call(move |engine, _| engine.add_remote(wire))
        .map_err(ArrayError::from)
        .map_err(CliError::from)?
        .map_err(failed)?;
    let index = u16::try_from(ssd.info.index)
        .map_err(|_| CliError::Stopped(format!("SSD number {}", ssd.info.index)))?;
    let port = Port::Remote { remote, ssd: index };
    let queue = HostQueue::connect(
        &SsdPath { transport: &handle, executor: soft, port, subnqn: &ssd.info.subnqn },
        who,
        Duration::ZERO,
        DEADLINE,
    );
    queue.map_err(Failed::Connect)
}

fn get_log(queue: &mut HostQueue, ssd: &Ssd, page: u8, data: &mut [u8]) -> Result<(), ChannelError> {
    let sqe = log_page::get_log(page, u32::try_from(data.len()).expect("a few KiB"));
    let cqe = queue.execute(sqe, Payload::In(data), DEADLINE)?;
    let status = Status(cqe.status_word());
    if status.is_success() {
        return Ok(());
    }
    Err(ChannelError::Refused {
        peer: ssd.info.subnqn.clone(),
        cause: format!("log page {page:02X}h: status {status}"),
    })
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
