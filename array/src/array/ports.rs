// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The daemon's ports: an admin queue to each SSD, with the SSD's model and capacity.

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
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const ADMIN_DEADLINE: Duration = Duration::from_secs(5);

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

/// Checks that a reconnected SSD is not smaller than before, as the map relies on its capacity.
fn not_smaller(index: u16, was: u64, is: u64) -> Result<(), ChannelError> {
    if is >= was {
        return Ok(());
    }
    let cause = format!(
        "it has {is} bytes for blocks, and the SSD that had its place has {was}: put one there that is as large"
    );
    Err(ChannelError::Refused { peer: format!("SSD {index}"), cause })
}

/// An admin queue to an SSD of another process, its model, and its bytes for blocks.
type There = (Box<dyn AdminQueue>, String, u64);

/// Connects with an SSD. `Ok(Err)`: it is not there, and may come later.
fn look_for(
    remote: &mut RemoteSsd,
    start: Instant,
    patience: Duration,
) -> Result<Result<There, AbsentQueue>, ChannelError> {
    loop {
        let queue = match remote.connect_patiently(start, patience)? {
            Ok(queue) => queue,
            Err(absent) => return Ok(Err(absent)),
        };
        match ask(queue) {
            // An SSD on its way up may end a connection that it has just taken.
            Err(ChannelError::Broken { peer, cause }) if start.elapsed() < patience => {
                tracing::debug!(peer, cause, "the connection broke at once; the daemon dials again");
            }
            answer => return answer.map(Ok),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Asks an SSD for its model and its capacity.
fn ask(mut queue: HostQueue) -> Result<There, ChannelError> {
    let model = queue.identify(ADMIN_DEADLINE)?.model;
    let capacity_bytes = queue.capacity_bytes(ADMIN_DEADLINE)?;
    Ok((Box::new(queue), model, capacity_bytes))
}

/// Connects with an SSD again and again.
fn reconnect(mut remote: RemoteSsd, capacity_bytes: u64) -> Reconnect {
    Box::new(move || {
        let mut queue = remote.connect()?;
        not_smaller(remote.index(), capacity_bytes, queue.capacity_bytes(ADMIN_DEADLINE)?)?;
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
            reconnect: Some(reconnect(self.remote(index, address), bytes)),
        }
    }
}

/// Makes admin queues to SSDs of other processes. An SSD that is not there counts as large as the smallest
/// that is: an array whose SSDs vote starts without it.
#[expect(clippy::disallowed_methods, reason = "a bounded wait in real time for other processes")]
pub(super) fn elsewhere(
    engine: &TransportHandle,
    soft: ExecutorId,
    (addresses, patience): (&[String], Duration),
    daemon: &Credentials,
    tls: Option<&ClientTls>,
) -> Result<(Vec<SsdPort>, Vec<SsdSummary>), ArrayError> {
    let mut found = Vec::new();
    let start = Instant::now();
    for (index, address) in (0u16..).zip(addresses) {
        let mut remote = RemoteSsd::new(engine.clone(), soft, index, address.clone(), daemon.clone());
        remote.use_tls(tls);
        let there = look_for(&mut remote, start, patience)?;
        found.push((index, address, remote, there));
    }
    let least = found.iter().filter_map(|(.., there)| there.as_ref().ok()).map(|(.., bytes)| *bytes).min();
    let mut ports = Vec::new();
    let mut summary = Vec::new();
    for (index, address, remote, there) in found {
        let (queue, model, capacity_bytes) = match (there, least) {
            (Ok(there), _) => there,
            // The array may start without the SSD. Its capacity is known when it connects.
            (Err(absent), Some(least)) => {
                tracing::warn!("SSD {index} at {address} is not there: {}", absent.cause);
                let model = format!("not there: {}", absent.cause);
                (Box::new(absent) as Box<dyn AdminQueue>, model, least)
            }
            (Err(AbsentQueue { peer, cause }), None) => {
                return Err(ChannelError::Refused { peer, cause }.into());
            }
        };
        summary.push(SsdSummary {
            index,
            bytes: capacity_bytes,
            model: model.clone(),
            address: address.clone(),
            here: None,
        });
        let reconnect = reconnect(remote, capacity_bytes);
        ports.push(SsdPort {
            index,
            subnqn: ssd_subnqn(index),
            transport: tcp(tls.is_some()),
            address: address.clone(),
            capacity_bytes,
            model,
            queue,
            reconnect: Some(reconnect),
        });
    }
    Ok((ports, summary))
}
