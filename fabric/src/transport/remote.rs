// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client's end of the link: what the array asks for is done on the executor that owns the queue pair.
//!
//! ```text
//!   add_remote --> in use --link breaks, remove_remote, or idle since its last connection closed--> ending
//!                           nothing of its staging memory is under way --> forgotten, memory given back
//! ```

use super::conn::{Conn, To};
use super::target::Start;
use super::{ConnId, ExecutorId, Origin, RcTransport};
use crate::cm::{REFUSED_NO_PEER, Refused};
use crate::hca::Down;
use crate::hca::abi::*;
use crate::mlx5::syndrome;
use crate::tcp::{Frame, MAX_DATA, Wire, data_sum};
use gnstor_base::controller::Outcome;
use gnstor_base::region::{HostRegion, LocalRef};
use gnstor_base::time::{Span, Time};
use rustc_hash::FxHashMap as HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The owner of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Peer(ExecutorId),
    Remote(u32),
}

/// Pieces of staging memory of a link.
const SLOTS: usize = 1024;
/// Time for which a link stays open after its last connection was closed.
const LINGER: Span = Span::from_ms(1000);
/// Frames taken from one link before the others have their turn.
const BATCH: u32 = 64;

/// Host memory for data on its way between the stream and an executor.
#[derive(Debug)]
pub(super) struct Staging {
    region: Arc<HostRegion>,
    free: Vec<u64>,
}

impl Staging {
    fn new() -> std::io::Result<Self> {
        let region = HostRegion::alloc(SLOTS * MAX_DATA)?;
        Ok(Self { region, free: (0..SLOTS as u64).rev().map(|i| i * MAX_DATA as u64).collect() })
    }

    pub(super) fn region(&self) -> Arc<HostRegion> {
        Arc::clone(&self.region)
    }

    fn take(&mut self, bytes: u32) -> Option<LocalRef> {
        self.free.pop().map(|offset| self.region.slice(offset, bytes))
    }

    fn is_whole(&self) -> bool {
        self.free.len() == SLOTS
    }
}

/// A transfer that the array at the other end of a link has requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    remote: u32,
    /// The array's name for it.
    tag: u32,
    /// Staging memory of the data.
    slot: LocalRef,
    /// Whether the array wants the owner's data.
    pull: bool,
}

/// A link to an array in another process.
#[derive(Debug)]
pub(super) struct Remote {
    wire: Wire,
    staging: Staging,
    /// Connections waiting for ACCEPT.
    connecting: HashMap<u32, Sender<Result<(), Refused>>>,
    /// A frame that waits for staging memory.
    stalled: Option<Frame>,
    /// Connections that this transport has over the link.
    conns: u32,
    /// Whether it ever had a connection.
    used: bool,
    /// Time since which it has no connection.
    idle_since: Option<Time>,
    ending: bool,
}

impl Remote {
    pub(super) fn region(&self) -> Arc<HostRegion> {
        self.staging.region()
    }

    /// A connection over the link is gone.
    pub(super) fn left(&mut self) {
        self.conns = self.conns.saturating_sub(1);
    }

    /// A connection is closed here: its ACCEPT is not awaited any more.
    pub(super) fn closes(&mut self, id: ConnId) {
        self.connecting.remove(&id.0);
        self.send(&Frame::Close { conn: id.0 });
    }

    #[cfg(test)]
    pub(super) fn awaits_none(&self) -> bool {
        self.connecting.is_empty()
    }

    pub(super) fn send(&mut self, frame: &Frame) {
        self.wire.send(frame);
    }

    /// The deadlines of its stream begin anew.
    pub(super) fn wait_anew(&mut self, now: Time) {
        self.wire.wait_anew(now);
    }

    /// Checks the deadlines of its stream; whether that has ended.
    pub(super) fn tick(&mut self, now: Time) -> bool {
        self.wire.tick(now);
        self.wire.dead().is_some()
    }
}

impl RcTransport {
    /// Adds a TCP link to another process's array. It ends, and its memory is given back, when the link
    /// breaks, a while after the last of its connections was closed, or with [`Self::remove_remote`]. A name
    /// is not used again.
    ///
    /// # Errors
    /// When staging memory cannot be had.
    pub fn add_remote(&mut self, wire: Wire) -> std::io::Result<u32> {
        let staging = match self.spare_staging.pop() {
            Some(staging) => staging,
            None => {
                let staging = Staging::new()?;
                self.add_region(&staging.region);
                staging
            }
        };
        let name = loop {
            let name = self.id();
            if !self.remotes.contains_key(&name) {
                break name;
            }
        };
        let mut wire = wire;
        self.ready.add(Owner::Remote(name), &mut wire);
        let remote = Remote {
            wire,
            staging,
            connecting: HashMap::default(),
            stalled: None,
            conns: 0,
            used: false,
            idle_since: None,
            ending: false,
        };
        self.remotes.insert(name, remote);
        self.remote_order.push(name);
        Ok(name)
    }

    /// Ends a TCP link: breaks its connections, closes the stream, and frees its memory as soon as nothing
    /// moves through it. Does nothing for a link that has ended.
    pub fn remove_remote(&mut self, now: Time, remote: u32) {
        self.end_remote(now, remote);
        self.forget_ended_remotes();
    }

    /// Number of TCP links whose memory is not freed.
    pub fn remotes(&self) -> usize {
        self.remotes.len()
    }

    pub(super) fn connect_remote(
        &mut self,
        remote: u32,
        id: ConnId,
        connect: Frame,
        reply: Sender<Result<(), Refused>>,
    ) {
        match self.remotes.get_mut(&remote).filter(|r| !r.ending) {
            Some(r) => {
                r.conns += 1;
                r.used = true;
                r.connecting.insert(id.0, reply);
                r.wire.send(&connect);
            }
            None => {
                self.forget(id);
                let _ = reply.send(Err(REFUSED_NO_PEER));
            }
        }
    }

    pub(super) fn remote_capsule(&mut self, remote: u32, id: ConnId, capsule: &[u8; 64]) {
        if let Some(r) = self.remotes.get_mut(&remote) {
            r.wire.send(&Frame::Send { conn: id.0, capsule: *capsule });
        }
    }

    /// Handles frames of a link. Returns whether there was something to do, and whether its stream rests.
    pub(super) fn poll_remote(&mut self, now: Time, name: u32) -> (bool, bool) {
        let mut worked = false;
        for _ in 0..BATCH {
            let Some(r) = self.remotes.get_mut(&name).filter(|r| !r.ending) else { return (worked, true) };
            let Some(frame) = r.stalled.take().or_else(|| r.wire.poll()) else { break };
            if matches!(frame, Frame::ToOwner { .. } | Frame::FromOwner { .. }) && r.staging.free.is_empty() {
                r.stalled = Some(frame);
                break;
            }
            worked = true;
            self.on_remote_frame(now, name, frame);
        }
        let Some(r) = self.remotes.get_mut(&name) else { return (worked, true) };
        r.wire.flush();
        if r.wire.dead().is_some() && !r.ending {
            tracing::debug!(remote = name, why = r.wire.dead(), "a TCP link broke");
            self.end_remote(now, name);
            return (true, true);
        }
        (worked, r.stalled.is_none() && r.wire.rests())
    }

    /// Ends the links that are no longer used.
    pub(super) fn end_idle_remotes(&mut self, now: Time) {
        for i in 0..self.remote_order.len() {
            let name = self.remote_order[i];
            let Some(r) = self.remotes.get_mut(&name).filter(|r| r.used && !r.ending) else { continue };
            if r.conns > 0 {
                r.idle_since = None;
            } else if now.since(*r.idle_since.get_or_insert(now)) >= LINGER {
                self.end_remote(now, name);
            }
        }
    }

    fn end_remote(&mut self, now: Time, name: u32) {
        let Some(r) = self.remotes.get_mut(&name).filter(|r| !r.ending) else { return };
        r.ending = true;
        r.stalled = None;
        self.has_ended_remotes = true;
        for (_, reply) in r.connecting.drain() {
            let _ = reply.send(Err(REFUSED_NO_PEER));
        }
        let of = |c: &Conn| c.to == To::Remote(name) && !c.broken();
        let mut ids: Vec<ConnId> = self.conns.iter().filter(|(_, c)| of(c)).map(|(id, _)| id).collect();
        ids.sort_unstable();
        for id in ids {
            self.break_conn(now, id, Some(syndrome::RETRY_EXCEEDED));
        }
        if let Some(r) = self.remotes.get_mut(&name) {
            // Frames that the peer can still get; the end of the stream tells the rest.
            r.wire.flush();
        }
    }

    /// Frees the memory of ended links through which nothing moves any more.
    pub(super) fn forget_ended_remotes(&mut self) {
        let remotes = &mut self.remotes;
        let done = |name: &u32| remotes.get(name).is_none_or(|r| r.ending && r.staging.is_whole());
        let (gone, kept): (Vec<u32>, Vec<u32>) = self.remote_order.iter().partition(|name| done(name));
        self.remote_order = kept;
        for name in gone {
            let Some(remote) = self.remotes.remove(&name) else { continue };
            if let Some(token) = remote.wire.token() {
                self.ready.remove(token);
            }
            // A device keeps what it has mapped: there the memory is kept for the next link.
            if self.executors.values().any(|executor| executor.keeps_mapped()) {
                self.spare_staging.push(remote.staging);
                continue;
            }
            self.remove_region(remote.staging.region.id());
        }
        self.has_ended_remotes = self.remotes.values().any(|r| r.ending);
    }

    fn on_remote_frame(&mut self, now: Time, name: u32, frame: Frame) {
        let Some(r) = self.remotes.get_mut(&name) else { return };
        // The numbers are this transport's: an array names only the connections that lead to it.
        let is_its = |conn: u32| self.conns.get(&ConnId(conn)).is_some_and(|c| c.to == To::Remote(name));
        match frame {
            Frame::Accept { conn, refused } => self.remote_accepted(name, conn, refused),
            Frame::Ack { conn, .. } | Frame::Response { conn, .. } | Frame::Closed { conn }
                if !is_its(conn) =>
            {
                tracing::debug!("an array named connection {conn:#x}, which does not lead to it");
            }
            Frame::ToOwner { conn, tag, .. } | Frame::FromOwner { conn, tag, .. } if !is_its(conn) => {
                let data = Vec::new();
                r.wire.send(&Frame::Done { conn, tag, status: COPY_BAD_KEY, sum: 0, data });
            }
            Frame::Ack { conn, .. } => self.acknowledge_next(ConnId(conn)),
            Frame::ToOwner { conn, tag, address, key, sum, data } => {
                let bytes = u32::try_from(data.len()).expect("bounded by the decoder");
                let slot = r.staging.take(bytes).expect("checked before");
                r.staging.region.write(slot.offset, &data);
                let origin = Origin::Remote(Asked { remote: name, tag, slot, pull: false });
                let down = |qpn, tag| Down::ToOwner { qpn, local: slot, address, key, tag, sum };
                self.start(now, ConnId(conn), Start::of(origin), down);
            }
            Frame::FromOwner { conn, tag, bytes, .. } if bytes as usize > MAX_DATA => {
                let data = Vec::new();
                r.wire.send(&Frame::Done { conn, tag, status: COPY_BAD_KEY, sum: 0, data });
            }
            Frame::FromOwner { conn, tag, address, key, bytes } => {
                let slot = r.staging.take(bytes).expect("checked before");
                let origin = Origin::Remote(Asked { remote: name, tag, slot, pull: true });
                let down = |qpn, tag| Down::FromOwner { qpn, local: slot, address, key, tag };
                self.start(now, ConnId(conn), Start::of(origin), down);
            }
            Frame::Response { conn, cqe } => self.remote_response(ConnId(conn), zerocopy::transmute!(cqe)),
            Frame::Closed { conn } => self.break_conn(now, ConnId(conn), None),
            Frame::End { why } => r.wire.ended(why),
            other => tracing::warn!("an array sent a frame that only clients send: {other:?}"),
        }
    }

    /// The array at the other end of a link has accepted or refused a connection.
    fn remote_accepted(&mut self, name: u32, conn: u32, refused: Refused) {
        let Some(r) = self.remotes.get_mut(&name) else { return };
        let answer = if refused == 0 { Ok(()) } else { Err(refused) };
        if let Some(reply) = r.connecting.remove(&conn) {
            if answer.is_err() {
                self.forget(ConnId(conn));
            }
            let _ = reply.send(answer);
        }
    }

    /// A transfer that the array at the other end of a link requested has ended.
    pub(super) fn remote_transfer_done(&mut self, id: ConnId, asked: Asked, outcome: Outcome) {
        let Asked { remote, tag, slot, pull } = asked;
        let Some(r) = self.remotes.get_mut(&remote) else { return };
        let (status, mut sum) = match outcome {
            Outcome::Done { sum } => (COPY_OK, sum),
            Outcome::BadChecksum => (COPY_BAD_SUM, 0),
            Outcome::RemoteAccess | Outcome::ConnectionLost => (COPY_BAD_KEY, 0),
        };
        let mut data = Vec::new();
        if pull && status == COPY_OK {
            data.resize(slot.bytes as usize, 0);
            r.staging.region.read(slot.offset, &mut data);
            // The executor summed the block in its memory, before the data was staged here.
            if data.len() != MAX_DATA {
                sum = data_sum(&data);
            }
        }
        r.staging.free.push(slot.offset);
        r.wire.send(&Frame::Done { conn: id.0, tag, status, sum, data });
    }
}
