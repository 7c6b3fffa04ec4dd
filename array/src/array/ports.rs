// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's ports: an admin queue to each SSD, with the SSD's model and capacity.

use super::search::{ADMIN_DEADLINE, search};
use super::{ArrayError, SsdSummary};
use crate::absent::AbsentQueue;
use crate::media::About;
use crate::remote_ssd::RemoteSsd;
use gnstor_daemon::{Connector, Reconnect, SsdPort};
use gnstor_fabric::admin::{AdminChannel, AdminQueue, ChannelError, Payload};
use gnstor_fabric::host_queue::{Credentials, HostQueue, SsdPath};
use gnstor_fabric::runtime::TransportHandle;
use gnstor_fabric::tcp::ClientTls;
use gnstor_fabric::transport::{ExecutorId, Port};
use gnstor_proto::fabrics::ssd_subnqn;
use gnstor_proto::nvme::{Cqe, Sqe};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// How other processes reach this process's SSDs.
#[derive(Clone, Copy)]
pub(super) struct TransportAddress {
    pub(super) address: Option<SocketAddr>,
    pub(super) is_tls: bool,
}

/// The name of TCP with TLS or without, as the daemon's clients hear it.
fn tcp(is_tls: bool) -> String {
    if is_tls { "tls" } else { "tcp" }.into()
}

/// Admin queues to SSDs of this process.
pub(super) fn embedded(
    engine: &TransportHandle,
    soft: ExecutorId,
    at: TransportAddress,
    abouts: Vec<About>,
    daemon: &Credentials,
) -> Result<(Vec<SsdPort>, Vec<SsdSummary>), ArrayError> {
    let mut ports = Vec::new();
    let mut summary = Vec::new();
    for (index, about) in (0u16..).zip(abouts) {
        let subnqn = ssd_subnqn(index);
        let port = Port::Local(index);
        let mut queue = HostQueue::connect(
            &SsdPath { transport: engine, executor: soft, port, subnqn: &subnqn },
            daemon.clone(),
            Duration::ZERO,
            ADMIN_DEADLINE,
        )?;
        let model = queue.identify(ADMIN_DEADLINE)?.model;
        let address = at.address.map(|a| a.to_string()).unwrap_or_default();
        let bytes = about.bytes;
        summary.push(SsdSummary {
            index,
            bytes,
            model: model.clone(),
            address: address.clone(),
            here: Some(about),
        });
        ports.push(SsdPort {
            index,
            subnqn,
            transport: if at.address.is_some() { tcp(at.is_tls) } else { "inproc".into() },
            address,
            capacity_bytes: bytes,
            model,
            queue: Box::new(queue),
            reconnect: None,
        });
    }
    Ok((ports, summary))
}

/// Checks that a reconnected SSD is not smaller than when it was reached before: the map relies on that.
fn not_smaller(index: u16, was: u64, is: u64) -> Result<(), ChannelError> {
    if is >= was {
        return Ok(());
    }
    let cause = format!(
        "it has {is} bytes for blocks, and the SSD that had its place has {was}: put one there that is as large"
    );
    Err(ChannelError::Refused { peer: format!("SSD {index}"), cause })
}

/// Connects with an SSD again and again. `None`: its capacity is not known. Another SSD may answer first, so
/// the daemon judges the capacity together with the identity.
fn reconnect(mut remote: RemoteSsd, capacity_bytes: Option<u64>) -> Reconnect {
    Box::new(move || {
        let mut queue = remote.connect()?;
        let bytes = queue.capacity_bytes(ADMIN_DEADLINE)?;
        not_smaller(remote.index(), capacity_bytes.unwrap_or(0), bytes)?;
        Ok(Box::new(queue) as Box<dyn AdminQueue>)
    })
}

/// The daemon's way to SSDs that join while it runs.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) engine: TransportHandle,
    pub(super) soft: ExecutorId,
    pub(super) daemon: Credentials,
    pub(super) tls: Option<ClientTls>,
}

impl Joining {
    fn remote(&self, index: u16, address: &str) -> RemoteSsd {
        let (engine, daemon) = (self.engine.clone(), self.daemon.clone());
        let mut remote = RemoteSsd::new(engine, self.soft, index, address.into(), daemon);
        remote.use_tls(self.tls.as_ref());
        remote
    }
}

/// A queue, and the link that it needs.
struct Looking {
    queue: HostQueue,
    _remote: RemoteSsd,
}

impl AdminChannel for Looking {
    fn execute(&mut self, sqe: Sqe, payload: Payload<'_>, deadline: Duration) -> Result<Cqe, ChannelError> {
        self.queue.execute(sqe, payload, deadline)
    }
}

impl Connector for Joining {
    fn connect(&self, index: u16, address: &str) -> Result<Box<dyn AdminChannel>, ChannelError> {
        let mut remote = self.remote(index, address);
        Ok(Box::new(Looking { queue: remote.connect()?, _remote: remote }))
    }

    fn port(&self, index: u16, address: &str, bytes: u64) -> SsdPort {
        let cause = "it is being connected".to_owned();
        let peer = format!("SSD {index} at {address}");
        SsdPort {
            index,
            subnqn: ssd_subnqn(index),
            transport: tcp(self.tls.is_some()),
            address: address.into(),
            capacity_bytes: bytes,
            model: "joined later".into(),
            queue: Box::new(AbsentQueue { peer, cause }),
            reconnect: Some(reconnect(self.remote(index, address), Some(bytes))),
        }
    }
}

/// Admin queues to SSDs of other processes.
#[derive(Default)]
pub(super) struct Elsewhere {
    pub(super) ports: Vec<SsdPort>,
    pub(super) ssds: Vec<SsdSummary>,
    /// The SSDs that were not reached, so their capacities are assumed.
    pub(super) assumed: BTreeSet<u16>,
}

/// Makes admin queues to SSDs of other processes. An array whose SSDs vote starts without one that is not
/// there. Until that SSD says its capacity, it counts as large as the smallest one that is there and holds
/// blocks.
pub(super) fn elsewhere(
    joining: &Joining,
    addresses: &[String],
    patience: Duration,
    has_witness: bool,
) -> Result<Elsewhere, ArrayError> {
    let remotes = (0u16..).zip(addresses).map(|(index, address)| joining.remote(index, address));
    let found = search(remotes.collect(), patience)?;
    let data = addresses.len() - usize::from(has_witness);
    let sizes = found.iter().take(data).filter_map(|(_, found)| found.as_ref().ok().map(|there| there.bytes));
    let least = sizes.min().unwrap_or(0);
    let mut all = Elsewhere::default();
    for ((index, address), (remote, found)) in (0u16..).zip(addresses).zip(found) {
        let (queue, model, capacity_bytes, known): (Box<dyn AdminQueue>, _, _, _) = match found {
            Ok(there) => (Box::new(there.queue), there.model, there.bytes, Some(there.bytes)),
            Err(absent) => {
                tracing::warn!("SSD {index} at {address} is not there: {}", absent.cause);
                all.assumed.insert(index);
                let model = format!("not there: {}", absent.cause);
                (Box::new(absent), model, least, None)
            }
        };
        all.ssds.push(SsdSummary {
            index,
            bytes: capacity_bytes,
            model: model.clone(),
            address: address.clone(),
            here: None,
        });
        all.ports.push(SsdPort {
            index,
            subnqn: ssd_subnqn(index),
            transport: tcp(joining.tls.is_some()),
            address: address.clone(),
            capacity_bytes,
            model,
            queue,
            reconnect: Some(reconnect(remote, known)),
        });
    }
    Ok(all)
}
