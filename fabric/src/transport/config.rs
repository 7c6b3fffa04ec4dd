// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of a transport: time limits, and which queue pair to connect with which SSD.

use super::ExecutorId;
#[cfg(doc)]
use super::RcTransport;
use crate::link::LinkConfig;
use gnstor_base::time::Span;
use gnstor_proto::fabrics::CmRequest;

/// All work ends a nap, and so does the next event. This bounds what a mistake in that costs.
const LONGEST_NAP: Span = Span::from_ms(100);

/// Location of an SSD, as a transport knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Port {
    /// A controller of this transport.
    Local(u16),
    /// SSD `ssd` behind the TCP link `remote`.
    Remote {
        /// Name from [`RcTransport::add_remote`].
        remote: u32,
        /// Number of the SSD there.
        ssd: u16,
    },
}

/// Time limits, and the link.
#[derive(Clone, Copy, Debug)]
pub struct TransportConfig {
    /// The modelled link of local connections.
    pub link: LinkConfig,
    /// A SEND that is not acknowledged for this long fails (RC transport: timeout times retries).
    pub ack_timeout: Span,
    /// Wait before a SEND that found no receive is tried again.
    pub rnr_timer: Span,
    /// Tries before it fails.
    pub rnr_retries: u8,
    /// Longest sleep of the transport's thread where all work wakes it.
    pub longest_nap: Span,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            link: LinkConfig::PAPER_200GBE,
            ack_timeout: Span::from_ms(500),
            rnr_timer: Span::from_ns(100_000),
            rnr_retries: 7,
            longest_nap: longest_nap(),
        }
    }
}

/// Tests let the threads sleep for long: an answer that nothing wakes a thread for is then missed.
#[cfg(debug_assertions)]
fn longest_nap() -> Span {
    let asked = std::env::var("GNSTOR_NAP_MS").ok().and_then(|ms| ms.parse().ok());
    asked.map_or(LONGEST_NAP, Span::from_ms)
}

#[cfg(not(debug_assertions))]
fn longest_nap() -> Span {
    LONGEST_NAP
}

/// A queue pair to be connected, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// The executor of the queue pair.
    pub executor: ExecutorId,
    /// The queue pair.
    pub qpn: u32,
    /// The SSD.
    pub port: Port,
    /// The request for the RDMA connection manager.
    pub request: CmRequest,
}
