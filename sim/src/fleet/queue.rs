// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An admin queue over the engine of an SSD, with real bytes: what daemon and SSDs send each other.
//!
//! ```text
//!   Connecting --Connect answered--> Enabling --Property Set answered--> Ready: its driver's capsules
//! ```

use crate::port::{Arrived, Memory, Port, lock, memory};
use crate::ssd::{Line, SsdActor};
use gnstor_base::time::Time;
use gnstor_fabric::admin::{AdminQueue, Capsule, ChannelError, Data, WINDOW_BYTES};
use gnstor_proto::fabrics::{
    self, CNTLID_ANY, ConnectData, ConnectFields, Identity, PropertyFields, fctype, property,
};
use gnstor_proto::nvme::{Cqe, FLAGS_SGL, KeyedSgl, Sqe};
use gnstor_proto::status::Status;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use zerocopy::IntoBytes;

/// Bytes of Connect's data, behind the window.
const CONNECT: usize = 1024;
/// Entries of the queue.
const ENTRIES: u16 = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Connecting,
    Enabling,
    Ready,
}

#[derive(Debug)]
struct Shared {
    port: Port,
    qpn: u32,
    index: u16,
    stage: Stage,
    memory: Memory,
    responses: VecDeque<Cqe>,
    broken: Option<String>,
}

/// News of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum News {
    Ready,
    Broken(String),
}

/// A host's end of an admin queue. Clones are the same queue: the driver has one, and the world another.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    shared: Arc<Mutex<Shared>>,
    line: Line,
}

impl Queue {
    /// Connects to an SSD as `identity`. The queue is ready later.
    pub(super) fn open(ssd: &mut SsdActor, now: Time, identity: Identity) -> Result<Self, ChannelError> {
        let line = ssd.dial(now, ENTRIES).map_err(|reason| broken(&format!("rejected: {reason}")))?;
        let memory = memory(WINDOW_BYTES + CONNECT);
        ssd.port.lend(line.qpn, Some(Arc::clone(&memory)));
        let fields = ConnectFields { sqsize_z: (ENTRIES - 1).into(), ..ConnectFields::default() };
        let data = ConnectData::new(identity, CNTLID_ANY, &fabrics::ssd_subnqn(ssd.index));
        lock(&memory)[WINDOW_BYTES..].copy_from_slice(data.as_bytes());
        let shared = Shared {
            port: ssd.port.clone(),
            qpn: line.qpn,
            index: 0,
            stage: Stage::Connecting,
            memory,
            responses: VecDeque::new(),
            broken: None,
        };
        let queue = Self { shared: Arc::new(Mutex::new(shared)), line };
        let dptr = KeyedSgl::keyed(WINDOW_BYTES as u64, 1024, 1);
        lock(&queue.shared).post(Sqe { dptr, ..fabrics::command(fctype::CONNECT, &fields) });
        Ok(queue)
    }

    /// A queue that never was.
    pub(super) fn never() -> Self {
        let shared = Shared {
            port: Port::default(),
            qpn: 0,
            index: 0,
            stage: Stage::Ready,
            memory: memory(0),
            responses: VecDeque::new(),
            broken: Some("not connected yet".into()),
        };
        Self { shared: Arc::new(Mutex::new(shared)), line: Line { qpn: 0, conn: None } }
    }

    /// Number of its queue pair at the SSD.
    pub(super) fn qpn(&self) -> u32 {
        self.line.qpn
    }

    /// Takes what arrived.
    pub(super) fn arrived(&self, arrived: &Arrived) -> Option<News> {
        let mut shared = lock(&self.shared);
        match arrived {
            Arrived::Response(cqe) if shared.stage == Stage::Ready => {
                shared.responses.push_back(*cqe);
                None
            }
            Arrived::Response(cqe) if !Status(cqe.status_word()).is_success() => {
                let why = format!("refused: {:#x}", cqe.dw0.get());
                Some(News::Broken(shared.broken.get_or_insert(why).clone()))
            }
            Arrived::Response(_) if shared.stage == Stage::Connecting => {
                shared.stage = Stage::Enabling;
                // CC: enabled, with the entry sizes of I/O queues.
                let value = (1 | 6 << 16 | 4 << 20).into();
                let fields =
                    PropertyFields { offset: property::CC.into(), value, ..PropertyFields::default() };
                shared.post(fabrics::command(fctype::PROPERTY_SET, &fields));
                None
            }
            Arrived::Response(_) => {
                shared.stage = Stage::Ready;
                Some(News::Ready)
            }
            Arrived::Broken => {
                let why = shared.broken.get_or_insert_with(|| "it broke".into()).clone();
                Some(News::Broken(why))
            }
            Arrived::Block { .. } | Arrived::Retired { .. } => None,
        }
    }

    /// Ends the queue at the SSD as well.
    pub(super) fn close(&self, ssd: &mut SsdActor, now: Time) {
        lock(&self.shared).broken.get_or_insert_with(|| "given up".into());
        ssd.port.lend(self.line.qpn, None);
        ssd.hang_up(now, self.line);
    }
}

fn broken(cause: &str) -> ChannelError {
    ChannelError::Broken { peer: "the SSD".into(), cause: cause.into() }
}

impl Shared {
    fn post(&mut self, sqe: Sqe) {
        self.index = self.index.wrapping_add(1);
        self.port.send(self.qpn, self.index, false, &Sqe { flags: FLAGS_SGL, ..sqe });
    }

    fn goes_on(&self) -> Result<(), ChannelError> {
        self.broken.as_ref().map_or(Ok(()), |cause| Err(broken(cause)))
    }
}

impl AdminQueue for Queue {
    fn send(&mut self, capsule: &Capsule) -> Result<(), ChannelError> {
        let mut shared = lock(&self.shared);
        shared.goes_on()?;
        let mut sqe = capsule.sqe;
        if let Data::Out(data) = &capsule.data {
            lock(&shared.memory)[capsule.at..][..data.len()].copy_from_slice(data);
        }
        let bytes = capsule.data.bytes();
        if bytes > 0 {
            sqe.dptr = KeyedSgl::keyed(capsule.at as u64, u32::try_from(bytes).expect("a window"), 1);
        }
        shared.post(sqe);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Cqe>, ChannelError> {
        let mut shared = lock(&self.shared);
        // Responses from before the queue broke count.
        match shared.responses.pop_front() {
            Some(cqe) => Ok(Some(cqe)),
            None => shared.goes_on().map(|()| None),
        }
    }

    fn read(&mut self, at: usize, data: &mut [u8]) {
        let memory = Arc::clone(&lock(&self.shared).memory);
        data.copy_from_slice(&lock(&memory)[at..][..data.len()]);
    }

    fn give_up(&mut self, error: &ChannelError) {
        lock(&self.shared).broken.get_or_insert_with(|| error.to_string());
    }
}
