// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP links to the SSDs of an array: one for each address, with TLS if the daemon says so.

use crate::credentials::Credentials;
use crate::error::Error;
use crate::ssds::{Fabric, SsdInfo};
use crate::unreachable::was_cut;
use gnstor_fabric::runtime::{TransportError, TransportHandle};
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::transport::Port;
use gnstor_gnor::node::NodeError;
use gnstor_gnor::session::{Connector, SsdAddress, Unreached};
use gnstor_proto::fabrics::ssd_subnqn;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The SSD is reached over TCP without TLS.
pub const TCP: &str = "tcp";
/// The SSD is reached over TCP with TLS.
pub const TLS: &str = "tls";

/// Connects to an SSD, at the first address of its name that accepts. Each step may take this time. TLS is
/// used if the daemon says so. `daemon` is the daemon's address: an SSD that listens on all addresses of its
/// machine is reached there.
///
/// # Errors
/// [`Error::Os`] of the connection or its TLS handshake; [`Error::Credentials`] if a CA is needed.
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
    let targets: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(failed)?.collect();
    let tls = if ssd.transport == TLS { Some(credentials.data_tls()?) } else { None };
    let stream = connect_to_one(&targets, within).unwrap_or_else(|| Err(none())).map_err(failed)?;
    Wire::client(stream, tls.as_ref(), host, within).map_err(failed)
}

/// Connects to the first of these addresses that accepts. The silent ones share the time. `None`: there is no
/// address.
#[expect(clippy::disallowed_methods, reason = "a blocking call with a deadline in real time")]
fn connect_to_one(targets: &[SocketAddr], within: Duration) -> Option<std::io::Result<TcpStream>> {
    let (begun, mut last) = (Instant::now(), None);
    for (nth, target) in targets.iter().enumerate() {
        let rest = u32::try_from(targets.len() - nth).unwrap_or(u32::MAX);
        // The time may be over, and a deadline of zero is an error.
        let part = (within.saturating_sub(begun.elapsed()) / rest).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(target, part) {
            Ok(stream) => return Some(Ok(stream)),
            Err(e) => last = Some(Err(e)),
        }
    }
    last
}

/// Host and port of an address; an IPv6 address without its brackets.
fn split(address: &str) -> (&str, &str) {
    let (host, port) = address.trim_end_matches('/').rsplit_once(':').unwrap_or((address, ""));
    (host.trim_matches(['[', ']']), port)
}

/// Deadline of a TCP connection.
pub(crate) const LINK_CONNECT: Duration = Duration::from_secs(5);

/// How to reach the SSDs.
#[derive(Clone, Debug)]
pub(crate) struct LinkOptions {
    pub(crate) fabric: Fabric,
    /// Address of the daemon.
    pub(crate) daemon: String,
    pub(crate) credentials: Credentials,
}

/// The SSDs of an array, as a session reaches them.
#[derive(Debug)]
pub(crate) struct ArrayConnector {
    transport: TransportHandle,
    options: LinkOptions,
    /// The SSDs, in the order of their numbers. More may join.
    ssds: Mutex<Vec<SsdInfo>>,
    /// How many SSDs there were at first, and how many there may be.
    first_ssds: (usize, usize),
    /// Why the SSD with the lowest number could not be linked.
    first: Mutex<Option<(usize, Error)>>,
}

impl ArrayConnector {
    pub(crate) fn new(
        transport: TransportHandle,
        options: LinkOptions,
        ssds: Vec<SsdInfo>,
        room: usize,
    ) -> Self {
        let first_ssds = (ssds.len(), room.max(ssds.len()));
        Self { transport, options, ssds: Mutex::new(ssds), first_ssds, first: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Vec<SsdInfo>> {
        self.ssds.lock().expect("no panic while held")
    }

    /// Adds an SSD that joins, with the next number.
    pub(crate) fn add(&self, address: &str) {
        let mut ssds = self.known();
        let Some(last) = ssds.last().cloned() else { return };
        let index = u16::try_from(ssds.len()).unwrap_or(u16::MAX);
        let subnqn = ssd_subnqn(index);
        ssds.push(SsdInfo { index: index.into(), subnqn, address: address.into(), ..last });
    }

    #[cfg(test)]
    pub(crate) fn address(&self, ssd: usize) -> String {
        self.known()[ssd].address.clone()
    }

    /// An SSD is at this address from now on. Returns whether it was dialled at another one.
    pub(crate) fn moved(&self, ssd: u16, address: &str) -> bool {
        let mut known = self.known();
        let Some(ssd) = known.get_mut(usize::from(ssd)).filter(|ssd| ssd.address != address) else {
            return false;
        };
        tracing::info!("SSD {} has moved from {} to {address}", ssd.index, ssd.address);
        ssd.address = address.into();
        true
    }

    /// Why the SSD with the lowest number could not be reached.
    pub(crate) fn first_failure(&self) -> Option<Error> {
        self.first.lock().expect("no panic while held").take().map(|(_, e)| e)
    }

    /// The port of one SSD. `remote` is the link of the previous SSDs, once there is one.
    fn to(&self, ssd: &SsdInfo, remote: &mut Option<u32>, deadline: Duration) -> Result<SsdAddress, Error> {
        let index =
            u16::try_from(ssd.index).map_err(|_| Error::Protocol(format!("SSD number {}", ssd.index)))?;
        let port = match (self.options.fabric, ssd.transport.as_str()) {
            (Fabric::InProcess, _) => Port::Local(index),
            (Fabric::Daemon, TCP | TLS) => {
                let made = match *remote {
                    Some(made) => made,
                    None => self.connect(ssd, deadline)?,
                };
                Port::Remote { remote: *remote.insert(made), ssd: index }
            }
            (Fabric::Daemon, other) => {
                return Err(Error::Protocol(format!(
                    "SSD {index} is reached by '{other}', which this client does not speak"
                )));
            }
        };
        Ok(SsdAddress { port, subnqn: ssd.subnqn.clone() })
    }

    fn connect(&self, ssd: &SsdInfo, deadline: Duration) -> Result<u32, Error> {
        let within = deadline.min(LINK_CONNECT);
        let wire = connect_to_ssd(ssd, &self.options.daemon, &self.options.credentials, within)?;
        let failed = |cause| Error::Os { what: format!("connecting to the SSDs at {}", ssd.address), cause };
        let added = self.transport.call(move |e, _| e.add_remote(wire)).map_err(NodeError::from)?;
        added.map_err(failed)
    }

    fn unreached(&self, ssd: usize, error: Error) -> Unreached {
        let for_good = matches!(error, Error::Node(NodeError::RcTransport(TransportError::Stopped)));
        let was_cut = matches!(&error, Error::Os { cause, .. } if was_cut(cause));
        let unreached = Unreached { why: error.to_string(), for_good, was_cut };
        let mut first = self.first.lock().expect("no panic while held");
        if first.as_ref().is_none_or(|(other, _)| ssd < *other) {
            *first = Some((ssd, error));
        }
        unreached
    }
}

impl Connector for ArrayConnector {
    fn ssds(&self) -> usize {
        self.first_ssds.0
    }

    fn room(&self) -> usize {
        self.first_ssds.1
    }

    fn link_of(&self, ssd: usize) -> usize {
        let ssds = self.known();
        let address = &ssds[ssd].address;
        ssds.iter().position(|other| other.address == *address).expect("it is there itself")
    }

    fn reconnects(&self) -> bool {
        self.options.fabric != Fabric::InProcess
    }

    fn link(&self, ssds: &[usize], deadline: Duration) -> Vec<Result<SsdAddress, Unreached>> {
        // Of SSDs that share a link the first one makes it, or finds out why not.
        let mut links: HashMap<usize, Result<Option<u32>, Unreached>> = HashMap::new();
        let mut one = |&ssd: &usize| {
            let link = links.entry(self.link_of(ssd)).or_insert(Ok(None));
            let remote = link.as_mut().map_err(|e| e.clone())?;
            let info = self.known()[ssd].clone();
            let address = self.to(&info, remote, deadline).map_err(|e| self.unreached(ssd, e));
            if let Err(unreached) = &address {
                *link = Err(unreached.clone());
            }
            address
        };
        ssds.iter().map(&mut one).collect()
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
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
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

    /// A name may have addresses of both kinds, and the SSD listens at one.
    #[test]
    fn every_address_of_a_name_is_tried() {
        let _deadline = crate::deadline::Deadline::after(crate::deadline::LIMIT);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let there = listener.local_addr().expect("an address");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let refuses = free.local_addr().expect("an address");
        drop(free);
        let within = Duration::from_secs(1);
        let connected = connect_to_one(&[refuses, refuses, there], within).expect("there are addresses");
        assert_eq!(connected.expect("one accepts").peer_addr().expect("a peer"), there);
        let refused = connect_to_one(&[refuses], within).expect("there is an address");
        assert_eq!(refused.expect_err("nothing listens").kind(), std::io::ErrorKind::ConnectionRefused);
        assert!(connect_to_one(&[], within).is_none());
    }
}
