// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP links to the SSDs of an array: one for each address, with TLS where the daemon says so.

use crate::client::{Fabric, SsdInfo};
use crate::credentials::Credentials;
use crate::error::Error;
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::transport::Port;
use gnstor_gnor::node::{Node, NodeError};
use gnstor_gnor::session::SsdAddress;
use std::collections::HashMap;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The SSD is reached over TCP without TLS.
pub const TCP: &str = "tcp";
/// The SSD is reached over TCP with TLS.
pub const TLS: &str = "tls";

/// Connects with an SSD within this time for each step: with TLS where the daemon says so. `daemon` is the
/// daemon's address: an SSD that listens on all addresses of its machine is reached there.
///
/// # Errors
/// [`Error::Os`] of the connection or its TLS handshake; [`Error::Credentials`] where it needs a CA.
pub fn connect_to_ssd(
    ssd: &SsdInfo,
    daemon: &str,
    credentials: &Credentials,
    within: Duration,
) -> Result<Wire, Error> {
    let (host, port) = split(&ssd.address);
    let host = match host.parse::<IpAddr>() {
        Ok(any) if any.is_unspecified() => split(daemon.rsplit("://").next().unwrap_or(daemon)).0,
        _ => host,
    };
    let failed = |cause| Error::Os { what: format!("connecting to the SSDs at {}", ssd.address), cause };
    let none = || std::io::Error::other("the address has no meaning");
    let port = port.parse::<u16>().map_err(|_| failed(none()))?;
    let target = (host, port).to_socket_addrs().map_err(failed)?.next().ok_or_else(none).map_err(failed)?;
    let tls = if ssd.transport == TLS { Some(credentials.data_tls()?) } else { None };
    let stream = TcpStream::connect_timeout(&target, within).map_err(failed)?;
    Wire::client(stream, tls.as_ref(), host, within).map_err(failed)
}

/// Host and port of an address; an IPv6 address without its brackets.
fn split(address: &str) -> (&str, &str) {
    let (host, port) = address.trim_end_matches('/').rsplit_once(':').unwrap_or((address, ""));
    (host.trim_matches(['[', ']']), port)
}

/// Deadline of a TCP connection.
pub(crate) const LINK_CONNECT: Duration = Duration::from_secs(5);

/// How SSDs are reached.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) fabric: Fabric,
    /// Address of the daemon.
    pub(crate) daemon: String,
    pub(crate) credentials: Credentials,
}

/// Links that are made as they are needed.
pub(crate) struct Links<'a> {
    node: &'a Node,
    way: &'a Way,
    deadline: Duration,
    by_address: HashMap<&'a str, u32>,
}

impl<'a> Links<'a> {
    /// None yet; each is to be there within `deadline`.
    pub(crate) fn new(node: &'a Node, way: &'a Way, deadline: Duration) -> Self {
        Self { node, way, deadline: deadline.min(LINK_CONNECT), by_address: HashMap::new() }
    }

    /// The ports of the SSDs on the node's engine.
    pub(crate) fn all(&mut self, ssds: &'a [SsdInfo]) -> Result<Vec<SsdAddress>, Error> {
        ssds.iter().map(|ssd| self.to(ssd)).collect()
    }

    /// The port of one SSD.
    pub(crate) fn to(&mut self, ssd: &'a SsdInfo) -> Result<SsdAddress, Error> {
        let index =
            u16::try_from(ssd.index).map_err(|_| Error::Protocol(format!("SSD number {}", ssd.index)))?;
        let port = match (self.way.fabric, ssd.transport.as_str()) {
            (Fabric::InProcess, _) => Port::Local(index),
            (Fabric::Daemon, TCP | TLS) => {
                let remote = match self.by_address.get(ssd.address.as_str()) {
                    Some(&remote) => remote,
                    None => {
                        let remote = self.link(ssd)?;
                        self.by_address.insert(&ssd.address, remote);
                        remote
                    }
                };
                Port::Remote { remote, ssd: index }
            }
            (Fabric::Daemon, other) => {
                return Err(Error::Protocol(format!(
                    "SSD {index} is reached by '{other}', which this client does not speak"
                )));
            }
        };
        Ok(SsdAddress { port, subnqn: ssd.subnqn.clone() })
    }

    fn link(&self, ssd: &SsdInfo) -> Result<u32, Error> {
        let wire = connect_to_ssd(ssd, &self.way.daemon, &self.way.credentials, self.deadline)?;
        let failed = |cause| Error::Os { what: format!("connecting to the SSDs at {}", ssd.address), cause };
        let added = self.node.transport().call(move |e, _| e.add_remote(wire)).map_err(NodeError::from)?;
        added.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn ssd(address: &str, transport: &str) -> SsdInfo {
        SsdInfo {
            index: 0,
            subnqn: String::new(),
            transport: transport.into(),
            address: address.into(),
            capacity_bytes: 0,
            model: String::new(),
        }
    }

    #[test]
    fn an_ssd_that_listens_everywhere_is_reached_where_the_daemon_is() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let within = Duration::from_secs(5);
        let none = Credentials::default();
        for daemon in ["127.0.0.1:7117", "https://127.0.0.1:7117/"] {
            let ssd = ssd(&format!("0.0.0.0:{port}"), TCP);
            connect_to_ssd(&ssd, daemon, &none, within).expect("it is reached");
        }
        assert_eq!(split("[::1]:7"), ("::1", "7"));
        let no_ca = connect_to_ssd(&ssd(&format!("127.0.0.1:{port}"), TLS), "x:1", &none, within);
        assert!(no_ca.expect_err("no CA").to_string().contains("--tls-ca"));
        assert!(connect_to_ssd(&ssd("127.0.0.1", TCP), "x:1", &none, within).is_err());
    }
}
