// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes in and out of the core's loop: calls of clients, answers of SSDs, and what others hear of both.

use super::link::{Condition, News};
use crate::core::failure::Failure;
use crate::core::request::Request;
use crate::core::rights::Caller;
use crate::core::{Answer, CommandId, Reply, Stop};
use crate::port::SsdPort;
use gnstor_proto::grpc::Ssd;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// An input of the loop.
#[derive(Debug)]
pub(super) enum Input {
    /// A client asks.
    Request { caller: Arc<Caller>, request: Request, reply: oneshot::Sender<Result<Reply, Failure>> },
    /// A connection of clients closed.
    Closed { connection: u64 },
    /// A command ended.
    Completed { id: CommandId, answer: Answer },
    /// An SSD went away or came back.
    Presence { ssd: u16, news: News },
}

/// The SSDs that are away, and why.
pub(super) type Absent = Arc<BTreeMap<u16, String>>;

/// The SSDs that report that acknowledged writes may be missing there.
pub(super) type Conditions = BTreeMap<u16, Condition>;

/// The SSDs that this daemon connects to, as clients hear of them.
pub(super) type Listed = Arc<[Ssd]>;

/// The fleet map in use: its epoch and its bytes.
pub(super) type InUse = (u64, Arc<[u8]>);

/// State of the daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The daemon does not serve yet, because it waits for what this text names.
    Starting(String),
    Serving,
    Stopped(Stop),
}

/// A driver's ends for the service.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) inputs: mpsc::UnboundedSender<Input>,
    pub(super) state: watch::Receiver<State>,
    pub(super) absent: watch::Receiver<Absent>,
    pub(super) conditions: watch::Receiver<Conditions>,
    pub(super) maps: watch::Receiver<Option<InUse>>,
    pub(super) listed: watch::Receiver<Listed>,
}

/// How clients reach an SSD.
pub(super) fn describe(port: &SsdPort) -> Ssd {
    Ssd {
        index: u32::from(port.index),
        subnqn: port.subnqn.clone(),
        transport: port.transport.clone(),
        address: port.address.clone(),
        capacity_bytes: port.capacity_bytes,
        model: port.model.clone(),
    }
}
