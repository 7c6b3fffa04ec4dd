// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a client has open.

use gnstor_proto::slba::ClientId;
use std::sync::Arc;

/// Number of clients that a message names.
const NAMED: usize = 8;

/// The write lease of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteLease {
    /// Its epoch.
    pub epoch: u32,
    /// Time until it ends on every SSD's clock, unless it is renewed.
    pub left_ms: u64,
}

/// A client's open of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Name of the volume.
    pub volume: String,
    /// The client.
    pub client: ClientId,
    /// The client's principal, if it is known.
    pub principal: Option<Arc<str>>,
    /// The write lease; without one the client reads.
    pub lease: Option<WriteLease>,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "client {}", self.client)?;
        if let Some(principal) = &self.principal {
            write!(f, " ({principal:?})")?;
        }
        match self.lease {
            Some(lease) => {
                write!(f, " holds the write lease for at most another {} s", lease.left_ms.div_ceil(1000))
            }
            None => write!(f, " reads"),
        }
    }
}

/// The clients and what each has open, for a message.
pub(super) fn words(holders: &[Holder]) -> String {
    let mut named: Vec<String> = holders.iter().take(NAMED).map(Holder::to_string).collect();
    if holders.len() > NAMED {
        named.push(format!("{} more read", holders.len() - NAMED));
    }
    named.join(", ")
}
