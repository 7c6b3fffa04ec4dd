// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD in a process of its own, as the daemon reaches it: by a TCP link and an admin queue. Both are
//! made anew when they break.

use gnstor_fabric::admin::ChannelError;
use gnstor_fabric::host_queue::{Credentials, HostQueue, SsdPath};
use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::tcp::{ClientTls, Wire};
use gnstor_fabric::transport::{ExecutorId, Port};
use gnstor_proto::fabrics::ssd_subnqn;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Longest wait for one step of a connection.
const STEP: Duration = Duration::from_secs(1);
/// The SSD closes the queue of a daemon that sends nothing for so long. The daemon sends a keep-alive twice
/// a second.
const KATO: Duration = Duration::from_secs(15);
/// How long the array waits at its start for an SSD that does not answer, unless it is told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long the places of a lost SSD are kept for it by default, before other SSDs take them.
pub const OUT_AFTER: Duration = Duration::from_secs(30);
/// The same for SSDs that answer "not ready", while less than a majority is there.
pub(crate) const RECOVERY: Duration = Duration::from_secs(600);

/// The connection to one SSD. Dropping it ends its link.
#[derive(Debug)]
pub(crate) struct RemoteSsd {
    engine: TransportHandle,
    soft: ExecutorId,
    index: u16,
    address: String,
    daemon: Credentials,
    tls: Option<ClientTls>,
    link: Option<u32>,
}

impl RemoteSsd {
    pub(crate) fn new(
        engine: TransportHandle,
        soft: ExecutorId,
        index: u16,
        address: String,
        daemon: Credentials,
    ) -> Self {
        Self { engine, soft, index, address, daemon, tls: None, link: None }
    }

    /// Number of the SSD.
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// From here on uses TLS, if `tls` is given.
    pub(crate) fn use_tls(&mut self, tls: Option<&ClientTls>) {
        self.tls = tls.cloned();
    }

    /// Connects, and ends the previous link.
    pub(crate) fn connect(&mut self) -> Result<HostQueue, ChannelError> {
        self.try_connect().map_err(|why| self.error(why))
    }

    /// Connects with an SSD that may be on its way up.
    ///
    /// # Errors
    /// Why it is not there.
    pub(crate) fn look(&mut self) -> Result<HostQueue, NotThere> {
        self.try_connect().map_err(|why| match why {
            Why::Absent(cause) => NotThere::Absent(cause),
            Why::Recovering => NotThere::Recovering,
            why => NotThere::Refused(self.error(why)),
        })
    }

    /// Number and address, for people.
    pub(crate) fn name(&self) -> String {
        format!("SSD {} at {}", self.index, self.address)
    }

    fn try_connect(&mut self) -> Result<HostQueue, Why> {
        self.end();
        let link = self.open_link().map_err(|cause| match cause.kind() {
            // The certificate is not valid, and another try would find the same.
            ErrorKind::InvalidData => Why::Untrusted(cause.to_string()),
            _ => Why::Absent(cause.to_string()),
        })?;
        self.link = Some(link);
        let port = Port::Remote { remote: link, ssd: self.index };
        let subnqn = ssd_subnqn(self.index);
        let queue = HostQueue::connect(
            &SsdPath { transport: &self.engine, executor: self.soft, port, subnqn: &subnqn },
            self.daemon.clone(),
            KATO,
            STEP,
        );
        queue.map_err(|error| {
            self.end();
            match error {
                ChannelError::Unproven { .. } => Why::Unproven(error),
                ChannelError::Absent { .. } => Why::Other,
                // By an SSD on its way up, for example.
                ChannelError::Refused { cause, .. } => Why::Absent(cause),
                ChannelError::NotReady { .. } => Why::Recovering,
                // Also `Full`: an array does not end because strangers hold an SSD's queues.
                other => Why::Absent(other.to_string()),
            }
        })
    }

    fn error(&self, why: Why) -> ChannelError {
        let index = self.index;
        let cause = match why {
            Why::Absent(cause) | Why::Untrusted(cause) => cause,
            Why::Recovering => {
                return ChannelError::NotReady { peer: self.name() };
            }
            Why::Unproven(error) => return error,
            Why::Other => format!(
                "another SSD answers there, not SSD {index}; start SSD {index} with --index {index}, or name \
                 the SSDs in the order of their numbers"
            ),
        };
        ChannelError::Refused { peer: self.name(), cause }
    }

    fn open_link(&self) -> std::io::Result<u32> {
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        let stream = self.dial()?;
        let wire = Wire::client(stream, self.tls.as_ref(), host, STEP)?;
        self.engine.call(move |engine, _| engine.add_remote(wire)).map_err(std::io::Error::other)?
    }

    /// A name may have several addresses, such as one of IPv6 at which no process listens.
    fn dial(&self) -> std::io::Result<TcpStream> {
        let mut last = std::io::Error::other("the address has no meaning");
        for target in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&target, STEP) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn end(&mut self) {
        if let Some(link) = self.link.take() {
            self.engine.cast(move |engine, now| engine.remove_remote(now, link));
        }
    }
}

/// Why an array that starts does not have an SSD.
#[derive(Debug)]
pub(crate) enum NotThere {
    /// No process answers at the address, or none yet.
    Absent(String),
    /// The SSD is being restored, and answers "not ready".
    Recovering,
    /// Another try would find the same.
    Refused(ChannelError),
}

/// Why an SSD is not reached.
enum Why {
    /// No process answers at the address, yet.
    Absent(String),
    /// No TLS connection is possible: a certificate is not good.
    Untrusted(String),
    /// The SSD is being restored, and answers "not ready".
    Recovering,
    /// The SSD answers, and one of the two ends has not proven its identity.
    Unproven(ChannelError),
    /// Another SSD answers.
    Other,
}

impl Drop for RemoteSsd {
    fn drop(&mut self) {
        self.end();
    }
}
