// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An I/O that failed, with the status that the device or the SSD gave.

use gnstor_proto::status::{Detail, Status};

/// The SSD that failed a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedSsd {
    /// Its number in the fleet map.
    pub index: u16,
    /// `host:port`; `None`: it is in this process, or has joined since the client connected.
    pub address: Option<String>,
}

impl std::fmt::Display for FailedSsd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SSD {}", self.index)?;
        self.address.as_ref().map_or(Ok(()), |address| write!(f, " ({address})"))
    }
}

fn on(ssd: Option<&FailedSsd>) -> String {
    ssd.map_or(String::new(), |ssd| format!(" on {ssd}"))
}

/// An I/O that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} of block {vba} failed{}: {}", on(.ssd.as_ref()), gnstor_gnor::abi::describe(*.status, *.dw0))]
pub struct IoFailure {
    /// `read`, `write` or `flush`.
    pub what: &'static str,
    /// First block of the request.
    pub vba: u32,
    /// Device status; see `describe_status`.
    pub status: u32,
    /// DW0 of the completion.
    pub dw0: u32,
    /// DW1 of the completion.
    pub dw1: u32,
    /// The SSD that failed it; `None`: it is not known.
    pub ssd: Option<FailedSsd>,
}

impl IoFailure {
    /// The NVMe status, if an SSD answered.
    pub fn nvme_status(&self) -> Option<Status> {
        u16::try_from(self.status).ok().filter(|s| *s != 0).map(Status)
    }

    /// The rule, if an SSD refused by one.
    pub fn rule(&self) -> Option<&'static str> {
        Detail::from_dw0(self.dw0).refusal().map(|r| r.rule())
    }

    /// The most similar POSIX error number.
    pub fn errno(&self) -> i32 {
        match Detail::from_dw0(self.dw0).refusal() {
            Some(refusal) if self.nvme_status().is_some() => refusal.errno(),
            _ if self.status & gnstor_gnor::abi::GN_TIMED_OUT != 0 => 110,
            _ => 5,
        }
    }
}
