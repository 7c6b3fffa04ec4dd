// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP links to the SSDs of an array: one for each address.

use crate::client::{Fabric, SsdInfo};
use crate::error::Error;
use gnstor_fabric::tcp::Wire;
use gnstor_fabric::transport::Port;
use gnstor_gnor::node::{Node, NodeError};
use gnstor_gnor::session::SsdAddress;
use std::collections::HashMap;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Deadline of a TCP connection.
pub(crate) const LINK_CONNECT: Duration = Duration::from_secs(5);

/// Links that are made as they are needed.
pub(crate) struct Links<'a> {
    node: &'a Node,
    fabric: Fabric,
    deadline: Duration,
    by_address: HashMap<&'a str, u32>,
}

impl<'a> Links<'a> {
    /// None yet; each is to be there within `deadline`.
    pub(crate) fn new(node: &'a Node, fabric: Fabric, deadline: Duration) -> Self {
        Self { node, fabric, deadline: deadline.min(LINK_CONNECT), by_address: HashMap::new() }
    }

    /// The ports of the SSDs on the node's engine.
    pub(crate) fn all(&mut self, ssds: &'a [SsdInfo]) -> Result<Vec<SsdAddress>, Error> {
        ssds.iter().map(|ssd| self.to(ssd)).collect()
    }

    /// The port of one SSD.
    pub(crate) fn to(&mut self, ssd: &'a SsdInfo) -> Result<SsdAddress, Error> {
        let index =
            u16::try_from(ssd.index).map_err(|_| Error::Protocol(format!("SSD number {}", ssd.index)))?;
        let port = match (self.fabric, ssd.transport.as_str()) {
            (Fabric::InProcess, _) => Port::Local(index),
            (Fabric::Daemon, "tcp") => {
                let remote = match self.by_address.get(ssd.address.as_str()) {
                    Some(&remote) => remote,
                    None => {
                        let remote = self.link(&ssd.address)?;
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

    fn link(&self, address: &str) -> Result<u32, Error> {
        let failed = |cause| Error::Os { what: format!("connecting to the SSDs at {address}"), cause };
        let none = || std::io::Error::other("the address has no meaning");
        let target = address.to_socket_addrs().map_err(failed)?.next().ok_or_else(none).map_err(failed)?;
        let stream = TcpStream::connect_timeout(&target, self.deadline).map_err(failed)?;
        let wire = Wire::new(stream).map_err(failed)?;
        let added = self.node.transport().call(move |e, _| e.add_remote(wire)).map_err(NodeError::from)?;
        added.map_err(failed)
    }
}
