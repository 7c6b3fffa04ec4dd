// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's end of a queue: opening and Connect, its memory, and the admin queue that the daemon's link and
//! others drive.
//!
//! ```text
//!   Opening --Opened--> Connecting --admin--> Enabling --> Ready
//!                            '------- I/O ----------------> Ready
//! ```

use crate::survive::wire::{Body, Host, Post, Way};
use gnstor_base::controller::Outcome;
use gnstor_fabric::admin::{AdminQueue, Capsule, ChannelError, Data};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::fabrics::{
    self, CNTLID_ANY, CmRequest, ConnectData, ConnectFields, Identity, PropertyFields, fctype, property,
};
use gnstor_proto::nvme::{Cqe, FLAGS_SGL, KeyedSgl, Sqe};
use gnstor_proto::status::Status;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerocopy::IntoBytes;

/// The remote key of all memory.
pub(super) const KEY: u32 = 0xC0DE;
/// Bytes of Connect's data.
const CONNECT: usize = 1024;
/// Bytes of an admin queue's window; Connect's data is behind it.
const WINDOW: usize = gnstor_fabric::admin::WINDOW_BYTES;
/// Entries of a queue.
pub(super) const ENTRIES: u16 = 64;

/// Memory of a host. Queues may share it.
pub(super) type Memory = Arc<Mutex<Vec<u8>>>;

pub(super) fn memory(bytes: usize) -> Memory {
    Arc::new(Mutex::new(vec![0; bytes]))
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Opening,
    Connecting,
    Enabling,
    Ready,
}

/// The owner of a queue, and its SSD.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub(super) host: Host,
    pub(super) identity: Identity,
    pub(super) ssd: u16,
    /// The SSD closes the queue if it hears nothing for so long; 0: never.
    pub(super) kato_ms: u32,
}

/// The part of a queue that its driver and the world share.
#[derive(Debug, Default)]
struct Shared {
    out: Vec<Body>,
    responses: VecDeque<Cqe>,
    broken: Option<String>,
}

/// A queue's end.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) conn: u32,
    who: Who,
    /// The controller, for an I/O queue.
    cntlid: Option<u16>,
    stage: Stage,
    memory: Memory,
    /// Where Connect's data lies.
    connect_at: usize,
    shared: Arc<Mutex<Shared>>,
}

/// News of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// The queue is ready; the id of its controller.
    Ready(u16),
    Broken(String),
    Response,
}

impl Queue {
    /// Opens an admin queue.
    pub(super) fn admin(post: &mut Post, who: Who) -> Self {
        Self::open(post, who, None, (memory(WINDOW + CONNECT), WINDOW))
    }

    /// Opens an I/O queue of a controller, with a memory and a place in it for Connect's data.
    pub(super) fn io(post: &mut Post, who: Who, cntlid: u16, memory: (Memory, usize)) -> Self {
        Self::open(post, who, Some(cntlid), memory)
    }

    fn open(post: &mut Post, who: Who, cntlid: Option<u16>, (memory, connect_at): (Memory, usize)) -> Self {
        let conn = post.connect(who.host, who.ssd);
        let request = CmRequest {
            qid: u16::from(cntlid.is_some()).into(),
            cntlid: cntlid.unwrap_or(0).into(),
            hrqsize: ENTRIES.into(),
            hsqsize_z: (ENTRIES - 1).into(),
            ..CmRequest::default()
        };
        post.send(conn, Way::Up, Body::Open(request));
        Self { conn, who, cntlid, stage: Stage::Opening, memory, connect_at, shared: Arc::default() }
    }

    /// The admin queue for a driver.
    pub(super) fn port(&self) -> Port {
        Port { memory: Arc::clone(&self.memory), shared: Arc::clone(&self.shared) }
    }

    /// Takes what arrived. [`Self::flush`] sends the answers.
    pub(super) fn arrived(&mut self, body: Body) -> Option<News> {
        match body {
            Body::Opened(Ok(())) => {
                self.connect();
                None
            }
            Body::Opened(Err(reason)) => Some(self.broke(&format!("rejected: {reason}"))),
            Body::Closed => Some(self.broke("it closed")),
            Body::Pull { transfer, remote, local } => {
                let at = usize::try_from(remote.address).unwrap_or(usize::MAX);
                let memory = lock(&self.memory);
                let data = memory.get(at..at.saturating_add(local.bytes as usize));
                let data = data.filter(|_| remote.key == KEY).map(<[u8]>::to_vec);
                let outcome = data.as_deref().map_or(Outcome::RemoteAccess, done);
                let data = data.unwrap_or_default();
                lock(&self.shared).out.push(Body::Moved { transfer, local: Some(local), data, outcome });
                None
            }
            Body::Push { transfer, remote, data } => {
                let at = usize::try_from(remote.address).unwrap_or(usize::MAX);
                let mut memory = lock(&self.memory);
                let room = memory.get_mut(at..at.saturating_add(data.len())).filter(|_| remote.key == KEY);
                let outcome = room.map_or(Outcome::RemoteAccess, |room| {
                    room.copy_from_slice(&data);
                    done(&data)
                });
                if let Some(transfer) = transfer {
                    let moved = Body::Moved { transfer, local: None, data: Vec::new(), outcome };
                    lock(&self.shared).out.push(moved);
                }
                None
            }
            Body::Response(cqe) => self.responded(cqe),
            Body::Open(_) | Body::Capsule(_) | Body::Moved { .. } => None,
        }
    }

    fn broke(&self, why: &str) -> News {
        let why = lock(&self.shared).broken.get_or_insert_with(|| why.into()).clone();
        News::Broken(why)
    }

    fn connect(&mut self) {
        let qid = u16::from(self.cntlid.is_some());
        let kato_ms = if self.cntlid.is_some() { 0 } else { self.who.kato_ms };
        let fields = ConnectFields {
            qid: qid.into(),
            sqsize_z: (ENTRIES - 1).into(),
            kato_ms: kato_ms.into(),
            ..ConnectFields::default()
        };
        let cntlid = self.cntlid.unwrap_or(CNTLID_ANY);
        let data = ConnectData::new(self.who.identity, cntlid, &fabrics::ssd_subnqn(self.who.ssd));
        lock(&self.memory)[self.connect_at..][..CONNECT].copy_from_slice(data.as_bytes());
        self.stage = Stage::Connecting;
        let dptr = KeyedSgl::keyed(self.connect_at as u64, 1024, KEY);
        self.command(Sqe { dptr, ..fabrics::command(fctype::CONNECT, &fields) });
    }

    /// Sends a command.
    pub(super) fn command(&self, sqe: Sqe) {
        lock(&self.shared).out.push(Body::Capsule(Box::new(Sqe { flags: FLAGS_SGL, ..sqe })));
    }

    fn responded(&mut self, cqe: Cqe) -> Option<News> {
        if self.stage == Stage::Ready {
            lock(&self.shared).responses.push_back(cqe);
            return Some(News::Response);
        }
        if !Status(cqe.status_word()).is_success() {
            return Some(self.broke(&format!("refused: {:#x}", cqe.dw0.get())));
        }
        if self.stage == Stage::Connecting {
            let id = u16::try_from(cqe.dw0.get() & 0xFFFF).expect("16 bits");
            if self.cntlid.replace(id).is_none() {
                self.stage = Stage::Enabling;
                // CC: enabled, with the entry sizes of I/O queues.
                let value = (1 | 6 << 16 | 4 << 20).into();
                let fields =
                    PropertyFields { offset: property::CC.into(), value, ..PropertyFields::default() };
                self.command(fabrics::command(fctype::PROPERTY_SET, &fields));
                return None;
            }
        }
        self.stage = Stage::Ready;
        Some(News::Ready(self.cntlid.unwrap_or(0)))
    }

    /// The next response.
    pub(super) fn response(&self) -> Option<Cqe> {
        lock(&self.shared).responses.pop_front()
    }

    /// Sends what the driver and the transfers left to send.
    pub(super) fn flush(&self, post: &mut Post) {
        let out = std::mem::take(&mut lock(&self.shared).out);
        for body in out {
            match body {
                Body::Closed => post.close(self.conn, Way::Up),
                body => post.send(self.conn, Way::Up, body),
            }
        }
    }

    /// Gives the queue up.
    pub(super) fn give_up(&self, post: &mut Post) {
        lock(&self.shared).broken.get_or_insert_with(|| "given up".into());
        post.close(self.conn, Way::Up);
    }
}

fn done(data: &[u8]) -> Outcome {
    Outcome::Done { sum: if data.len() == BLOCK_BYTES as usize { block_sum(data) } else { 0 } }
}

/// The driver's side of an admin queue.
#[derive(Debug)]
pub(crate) struct Port {
    memory: Memory,
    shared: Arc<Mutex<Shared>>,
}

impl Port {
    /// A queue that never was.
    pub(super) fn broken(why: &str) -> Self {
        let shared = Shared { broken: Some(why.into()), ..Shared::default() };
        Self { memory: memory(0), shared: Arc::new(Mutex::new(shared)) }
    }

    fn goes_on(&self) -> Result<(), ChannelError> {
        match &lock(&self.shared).broken {
            Some(cause) => Err(ChannelError::Broken { peer: "the SSD".into(), cause: cause.clone() }),
            None => Ok(()),
        }
    }
}

impl AdminQueue for Port {
    fn send(&mut self, capsule: &Capsule) -> Result<(), ChannelError> {
        self.goes_on()?;
        let mut sqe = Sqe { flags: FLAGS_SGL, ..capsule.sqe };
        if let Data::Out(data) = &capsule.data {
            lock(&self.memory)[capsule.at..][..data.len()].copy_from_slice(data);
        }
        let bytes = capsule.data.bytes();
        if bytes > 0 {
            sqe.dptr = KeyedSgl::keyed(capsule.at as u64, u32::try_from(bytes).expect("a window"), KEY);
        }
        lock(&self.shared).out.push(Body::Capsule(Box::new(sqe)));
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Cqe>, ChannelError> {
        // Responses from before the queue broke count.
        if let Some(cqe) = lock(&self.shared).responses.pop_front() {
            return Ok(Some(cqe));
        }
        self.goes_on().map(|()| None)
    }

    fn read(&mut self, at: usize, data: &mut [u8]) {
        data.copy_from_slice(&lock(&self.memory)[at..][..data.len()]);
    }

    fn give_up(&mut self, error: &ChannelError) {
        let mut shared = lock(&self.shared);
        if shared.broken.is_none() {
            shared.broken = Some(error.to_string());
            shared.out.push(Body::Closed);
        }
    }
}
