// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Log pages of an SSD of a running array, read through an admin queue of this process.
//!
//! ```text
//!   daemon: address of the SSD, client id  ->  TCP link, admin queue pair  ->  Get Log Page
//! ```

use crate::args::{ArrayArgs, SsdPageArgs};
use crate::fleet::{self, Fleet, Ssd};
use crate::key;
use gnstor_array::ArrayError;
use gnstor_console::CliError;
use gnstor_fabric::admin::{AdminChannel, ChannelError, Payload};
use gnstor_fabric::host_queue::{Credentials, HostQueue, SsdPath};
use gnstor_fabric::transport::Port;
use gnstor_proto::log_page;
use gnstor_proto::status::Status;
use libgnstor::{RcTransport, TransportConfig, TransportThreads};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(5);

/// Log pages of one SSD, read through an admin queue. The queue ends before the engine does.
pub(crate) struct Pages {
    queue: HostQueue,
    ssd: Ssd,
    _engine: TransportThreads,
}

impl Pages {
    /// As a client, which sees what every host may see.
    ///
    /// # Errors
    /// [`CliError`]: no such SSD, or it cannot be reached.
    pub(crate) fn of_client(args: &SsdPageArgs) -> Result<Self, CliError> {
        Self::open(args, fleet::register(&args.array, "gnstor ssd")?).map_err(Failed::into)
    }

    /// Connects as an operator beside the daemon, because the SSD shows counters and errors of all hosts only
    /// to the daemon.
    ///
    /// # Errors
    /// [`CliError`]: there is no such SSD, or it cannot be reached.
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
        let found = fleet.ssds.into_iter().find(|ssd| ssd.info.index == u32::from(args.index));
        let none =
            || CliError::Stopped(format!("the array has no SSD {}; it has SSDs 0 to {last}", args.index));
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
    let wire = libgnstor::connect_to_ssd(&ssd.info, &array.array, &array.credentials()?, DEADLINE)
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
