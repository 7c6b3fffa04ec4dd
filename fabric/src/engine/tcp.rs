// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link between processes: the messages of RC connections as frames over one TCP stream. Nothing is modelled on it.
//!
//! ```text
//!   frame = u32 length of the rest | u8 type | u32 connection | fields, little-endian | data
//! ```
//! At the array's end a [`PeerHalf`] stands for the client's HCA; at the client's end the engine carries the array's requests
//! out on the half that owns the queue pair, with data staged in host memory.

use super::conn::To;
use super::{ConnId, Engine, Origin, Refused, low16};
use crate::controller::Outcome;
use crate::hca::abi::*;
use crate::hca::{Down, Half};
use crate::region::{HostRegion, LocalRef, RegionId};
use crate::time::Time;
use gnstor_proto::fabrics::CmRequest;
use rustc_hash::FxHashMap as HashMap;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// An up entry that asks to connect; only a [`PeerHalf`] makes it.
pub const UP_CONNECT: u32 = 100;
/// An up entry that ends a connection.
pub const UP_CLOSE: u32 = 101;

/// Most data in one frame.
pub const MAX_DATA: usize = 4096;
const MAX_FRAME: usize = MAX_DATA + 64;
const SLOTS: u64 = 1024;

/// A message of the link.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named as in the Down and UpEntry they stand for")]
pub enum Frame {
    Connect { conn: u32, ssd: u16, request: CmRequest },
    Accept { conn: u32, refused: Refused },
    Send { conn: u32, capsule: [u8; 64] },
    Ack { conn: u32, count: u32 },
    ToOwner { conn: u32, tag: u32, address: u64, key: u32, sum: Option<u32>, data: Vec<u8> },
    FromOwner { conn: u32, tag: u32, address: u64, key: u32, bytes: u32 },
    Done { conn: u32, tag: u32, status: u32, sum: u32, data: Vec<u8> },
    Response { conn: u32, cqe: [u8; 16] },
    Close { conn: u32 },
    Closed { conn: u32 },
}

impl Frame {
    fn encode(&self, out: &mut VecDeque<u8>) {
        let mut b = Vec::with_capacity(64);
        let mut start = |kind: u8, conn: u32| {
            b.push(kind);
            b.extend_from_slice(&conn.to_le_bytes());
        };
        match self {
            Self::Connect { conn, ssd, request } => {
                start(1, *conn);
                b.extend_from_slice(&ssd.to_le_bytes());
                b.extend_from_slice(request.as_bytes());
            }
            Self::Accept { conn, refused } => {
                start(2, *conn);
                b.extend_from_slice(&refused.to_le_bytes());
            }
            Self::Send { conn, capsule } => {
                start(3, *conn);
                b.extend_from_slice(capsule);
            }
            Self::Ack { conn, count } => {
                start(4, *conn);
                b.extend_from_slice(&count.to_le_bytes());
            }
            Self::ToOwner { conn, tag, address, key, sum, data } => {
                start(5, *conn);
                b.extend_from_slice(&tag.to_le_bytes());
                b.extend_from_slice(&address.to_le_bytes());
                b.extend_from_slice(&key.to_le_bytes());
                b.push(u8::from(sum.is_some()));
                b.extend_from_slice(&sum.unwrap_or(0).to_le_bytes());
                b.extend_from_slice(data);
            }
            Self::FromOwner { conn, tag, address, key, bytes } => {
                start(6, *conn);
                b.extend_from_slice(&tag.to_le_bytes());
                b.extend_from_slice(&address.to_le_bytes());
                b.extend_from_slice(&key.to_le_bytes());
                b.extend_from_slice(&bytes.to_le_bytes());
            }
            Self::Done { conn, tag, status, sum, data } => {
                start(7, *conn);
                b.extend_from_slice(&tag.to_le_bytes());
                b.extend_from_slice(&status.to_le_bytes());
                b.extend_from_slice(&sum.to_le_bytes());
                b.extend_from_slice(data);
            }
            Self::Response { conn, cqe } => {
                start(8, *conn);
                b.extend_from_slice(cqe);
            }
            Self::Close { conn } => start(9, *conn),
            Self::Closed { conn } => start(10, *conn),
        }
        debug_assert!(b.len() <= MAX_FRAME);
        let length = u32::try_from(b.len()).expect("frames are small");
        out.extend(length.to_le_bytes());
        out.extend(b);
    }

    /// Decodes the body of a frame; `None` for bytes that are not one.
    fn decode(body: &[u8]) -> Option<Self> {
        let mut at = Cursor(body);
        let kind = at.u8()?;
        let conn = at.u32()?;
        Some(match kind {
            1 => Self::Connect { conn, ssd: at.u16()?, request: CmRequest::read_from_bytes(at.take(32)?).ok()? },
            2 => Self::Accept { conn, refused: at.u16()? },
            3 => Self::Send { conn, capsule: at.take(64)?.try_into().ok()? },
            4 => Self::Ack { conn, count: at.u32()? },
            5 => {
                let (tag, address, key, has, sum) = (at.u32()?, at.u64()?, at.u32()?, at.u8()?, at.u32()?);
                Self::ToOwner { conn, tag, address, key, sum: (has == 1).then_some(sum), data: at.rest()? }
            }
            6 => Self::FromOwner { conn, tag: at.u32()?, address: at.u64()?, key: at.u32()?, bytes: at.u32()? },
            7 => Self::Done { conn, tag: at.u32()?, status: at.u32()?, sum: at.u32()?, data: at.rest()? },
            8 => Self::Response { conn, cqe: at.take(16)?.try_into().ok()? },
            9 => Self::Close { conn },
            10 => Self::Closed { conn },
            _ => return None,
        })
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }
    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
    fn rest(&mut self) -> Option<Vec<u8>> {
        let data = std::mem::take(&mut self.0);
        (data.len() <= MAX_DATA).then(|| data.to_vec())
    }
}

/// A TCP stream that never blocks.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    inbox: Vec<u8>,
    taken: usize,
    outbox: VecDeque<u8>,
    dead: Option<String>,
}

impl Wire {
    /// Takes over a connected stream.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn new(stream: TcpStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, inbox: Vec::new(), taken: 0, outbox: VecDeque::new(), dead: None })
    }

    /// Why the stream is of no more use.
    pub fn dead(&self) -> Option<&str> {
        self.dead.as_deref()
    }

    /// Queues a frame; [`Wire::flush`] and [`Wire::poll`] send it.
    pub fn send(&mut self, frame: &Frame) {
        if self.dead.is_none() {
            frame.encode(&mut self.outbox);
        }
    }

    /// Sends what the stream takes.
    pub fn flush(&mut self) {
        while self.dead.is_none() && !self.outbox.is_empty() {
            match self.stream.write(self.outbox.as_slices().0) {
                Ok(0) => self.dead = Some("the stream takes no more bytes".into()),
                Ok(n) => drop(self.outbox.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => self.dead = Some(e.to_string()),
            }
        }
    }

    /// The next frame, if one has arrived whole.
    pub fn poll(&mut self) -> Option<Frame> {
        self.flush();
        loop {
            if let Some(frame) = self.parse() {
                return Some(frame);
            }
            if self.dead.is_some() {
                return None;
            }
            self.inbox.drain(..self.taken);
            self.taken = 0;
            let old = self.inbox.len();
            self.inbox.resize(old + (64 << 10), 0);
            let got = self.stream.read(&mut self.inbox[old..]);
            self.inbox.truncate(old + got.as_ref().map_or(0, |n| *n));
            match got {
                Ok(0) => self.dead = Some("the peer closed the stream".into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return None,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => self.dead = Some(e.to_string()),
            }
        }
    }

    fn parse(&mut self) -> Option<Frame> {
        let unread = &self.inbox[self.taken..];
        let length = u32::from_le_bytes(*unread.first_chunk()?) as usize;
        if length > MAX_FRAME {
            self.dead = Some(format!("a frame of {length} bytes is longer than any"));
            return None;
        }
        let body = unread.get(4..4 + length)?;
        let frame = Frame::decode(body);
        self.taken += 4 + length;
        if frame.is_none() {
            self.dead = Some("bytes that are not a frame".into());
        }
        frame
    }
}

/// Host memory for data on its way between the stream and a half.
#[derive(Debug)]
pub(super) struct Staging {
    region: Arc<HostRegion>,
    free: Vec<u64>,
}

impl Staging {
    pub(super) fn new() -> std::io::Result<Self> {
        let region = HostRegion::alloc(usize::try_from(SLOTS).expect("small") * MAX_DATA)?;
        Ok(Self { region, free: (0..SLOTS).rev().map(|i| i * MAX_DATA as u64).collect() })
    }

    pub(super) fn region(&self) -> Arc<HostRegion> {
        Arc::clone(&self.region)
    }

    fn take(&mut self, bytes: u32) -> Option<LocalRef> {
        self.free.pop().map(|offset| self.region.slice(offset, bytes))
    }
}

/// A client behind a TCP stream, as the array's engine sees it: its queue pairs are numbered by its own connection ids.
#[derive(Debug)]
pub struct PeerHalf {
    wire: Wire,
    regions: HashMap<RegionId, Arc<HostRegion>>,
    pulls: HashMap<u32, LocalRef>,
    up: VecDeque<UpEntry>,
}

impl PeerHalf {
    /// A client that has just connected.
    pub fn new(wire: Wire) -> Self {
        Self { wire, regions: HashMap::default(), pulls: HashMap::default(), up: VecDeque::new() }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.wire.dead().is_some() && self.up.is_empty()
    }

    pub(super) fn add_region(&mut self, region: Arc<HostRegion>) {
        self.regions.insert(region.id(), region);
    }

    pub(super) fn answer_connect(&mut self, conn: u32, refused: Refused) {
        self.wire.send(&Frame::Accept { conn, refused });
    }

    fn on_frame(&mut self, frame: Frame) -> Option<UpEntry> {
        let entry = |kind, qpn| UpEntry { kind, qpn, ..UpEntry::default() };
        match frame {
            Frame::Connect { conn, ssd, request } => {
                let mut e = entry(UP_CONNECT, conn);
                e.index = ssd.into();
                e.payload[..32].copy_from_slice(request.as_bytes());
                Some(e)
            }
            Frame::Send { conn, capsule } => {
                self.wire.send(&Frame::Ack { conn, count: 1 });
                Some(UpEntry { bytes: 64, payload: capsule, ..entry(UP_SEND, conn) })
            }
            Frame::Done { conn, tag, status, sum, data } => {
                let mut e = UpEntry { index: tag, status, sum, ..entry(UP_DONE, conn) };
                if let Some(local) = self.pulls.remove(&tag) {
                    if status == COPY_OK && data.len() == local.bytes as usize {
                        self.regions[&local.region].write(local.offset, &data);
                        // The array does not take a client's word for what it holds.
                        if data.len() == gnstor_proto::BLOCK_BYTES as usize {
                            e.sum = gnstor_proto::checksum::block_sum(&data);
                        }
                    } else {
                        e.status = COPY_BAD_KEY;
                    }
                }
                Some(e)
            }
            Frame::Close { conn } => Some(entry(UP_CLOSE, conn)),
            other => {
                tracing::warn!("a client sent a frame that only arrays send: {other:?}");
                None
            }
        }
    }
}

/// The request in an [`UP_CONNECT`] entry, and the SSD it names.
pub(super) fn connect_of(e: &UpEntry) -> (CmRequest, u16) {
    let request = CmRequest::read_from_bytes(&e.payload[..32]).expect("32 bytes");
    (request, low16(e.index))
}

impl Half for PeerHalf {
    fn poll(&mut self) -> Option<UpEntry> {
        loop {
            if let Some(e) = self.up.pop_front() {
                return Some(e);
            }
            let frame = self.wire.poll()?;
            if let Some(e) = self.on_frame(frame) {
                self.up.push_back(e);
            }
        }
    }

    fn push(&mut self, message: Down) {
        match message {
            Down::ToOwner { qpn, local, address, key, tag, sum } => {
                let mut data = vec![0; local.bytes as usize];
                self.regions[&local.region].read(local.offset, &mut data);
                if data.len() > MAX_DATA {
                    self.up.push_back(UpEntry {
                        kind: UP_DONE,
                        qpn,
                        index: tag,
                        status: COPY_BAD_KEY,
                        ..UpEntry::default()
                    });
                } else {
                    self.wire.send(&Frame::ToOwner { conn: qpn, tag, address, key, sum, data });
                }
            }
            Down::FromOwner { qpn, local, address, key, tag } => {
                self.pulls.insert(tag, local);
                self.wire.send(&Frame::FromOwner { conn: qpn, tag, address, key, bytes: local.bytes });
            }
            Down::Send { qpn, bytes, .. } => self.wire.send(&Frame::Response { conn: qpn, cqe: bytes }),
            Down::QpError { qpn } => self.wire.send(&Frame::Closed { conn: qpn }),
            Down::Cqe { .. } | Down::Ping { .. } => {}
        }
    }
}

impl Engine {
    pub(super) fn remote_capsule(&mut self, remote: u32, id: ConnId, _psn: u64, e: &UpEntry) {
        self.remotes[remote as usize].wire.send(&Frame::Send { conn: id.0, capsule: e.payload });
    }

    pub(super) fn poll_remotes(&mut self, now: Time) -> bool {
        let mut worked = false;
        for i in 0..self.remotes.len() {
            let index = u32::try_from(i).expect("few remotes");
            for _ in 0..64 {
                let r = &mut self.remotes[i];
                let Some(frame) = r.stalled.take().or_else(|| r.wire.poll()) else { break };
                if matches!(frame, Frame::ToOwner { .. } | Frame::FromOwner { .. }) && r.staging.free.is_empty() {
                    r.stalled = Some(frame);
                    break;
                }
                worked = true;
                self.on_remote_frame(now, index, frame);
            }
            self.remotes[i].wire.flush();
            if self.remotes[i].wire.dead().is_some() {
                worked |= self.remote_is_dead(now, index);
            }
        }
        worked
    }

    fn remote_is_dead(&mut self, now: Time, index: u32) -> bool {
        for (_, reply) in self.remotes[index as usize].connecting.drain() {
            let _ = reply.send(Err(super::REFUSED_NO_PEER));
        }
        let of = |c: &super::Conn| c.to == To::Remote(index) && !c.broken();
        let mut ids: Vec<ConnId> = self.conns.iter().filter(|(_, c)| of(c)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        for id in &ids {
            self.break_conn(now, *id, Some(crate::mlx5::syndrome::RETRY_EXCEEDED));
        }
        !ids.is_empty()
    }

    fn on_remote_frame(&mut self, now: Time, index: u32, frame: Frame) {
        match frame {
            Frame::Accept { conn, refused } => {
                let answer = if refused == 0 { Ok(()) } else { Err(refused) };
                if answer.is_err() {
                    self.forget(ConnId(conn));
                }
                if let Some(reply) = self.remotes[index as usize].connecting.remove(&conn) {
                    let _ = reply.send(answer);
                }
            }
            Frame::Ack { conn, .. } => self.acknowledge_next(ConnId(conn)),
            Frame::ToOwner { conn, tag, address, key, sum, data } => {
                let staging = &mut self.remotes[index as usize].staging;
                let bytes = u32::try_from(data.len()).expect("bounded by the decoder");
                let slot = staging.take(bytes).expect("checked before");
                staging.region.write(slot.offset, &data);
                let origin = Origin::Remote { remote: index, tag, slot, pull: false };
                self.start(now, ConnId(conn), origin, Time::ZERO, |qpn, tag| Down::ToOwner {
                    qpn,
                    local: slot,
                    address,
                    key,
                    tag,
                    sum,
                });
            }
            Frame::FromOwner { conn, tag, address, key, bytes } => {
                if bytes as usize > MAX_DATA {
                    let refused = Frame::Done { conn, tag, status: COPY_BAD_KEY, sum: 0, data: Vec::new() };
                    return self.remotes[index as usize].wire.send(&refused);
                }
                let slot = self.remotes[index as usize].staging.take(bytes).expect("checked before");
                let origin = Origin::Remote { remote: index, tag, slot, pull: true };
                self.start(now, ConnId(conn), origin, Time::ZERO, |qpn, tag| Down::FromOwner {
                    qpn,
                    local: slot,
                    address,
                    key,
                    tag,
                });
            }
            Frame::Response { conn, cqe } => self.remote_response(now, ConnId(conn), zerocopy::transmute!(cqe)),
            Frame::Closed { conn } => self.break_conn(now, ConnId(conn), None),
            other => tracing::warn!("an array sent a frame that only clients send: {other:?}"),
        }
    }

    pub(super) fn remote_transfer_done(
        &mut self,
        remote: u32,
        id: ConnId,
        tag: u32,
        slot: LocalRef,
        pull: bool,
        outcome: Outcome,
    ) {
        let r = &mut self.remotes[remote as usize];
        let (status, sum) = match outcome {
            Outcome::Done { sum } => (COPY_OK, sum),
            Outcome::BadChecksum => (COPY_BAD_SUM, 0),
            Outcome::RemoteAccess | Outcome::ConnectionLost => (COPY_BAD_KEY, 0),
        };
        let mut data = Vec::new();
        if pull && status == COPY_OK {
            data.resize(slot.bytes as usize, 0);
            r.staging.region.read(slot.offset, &mut data);
        }
        r.staging.free.push(slot.offset);
        r.wire.send(&Frame::Done { conn: id.0, tag, status, sum, data });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::TcpListener;

    fn pair() -> (Wire, Wire) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        (Wire::new(client).unwrap(), Wire::new(server).unwrap())
    }

    fn next(wire: &mut Wire) -> Frame {
        for _ in 0..1_000_000 {
            if let Some(frame) = wire.poll() {
                return frame;
            }
            assert!(wire.dead().is_none(), "{:?}", wire.dead());
        }
        panic!("no frame arrived");
    }

    #[test]
    fn frames_cross_a_socket_whole() {
        let (mut client, mut server) = pair();
        let frames = [
            Frame::Connect { conn: 1, ssd: 3, request: CmRequest { qid: 1.into(), ..CmRequest::default() } },
            Frame::Send { conn: 1, capsule: [7; 64] },
            Frame::ToOwner { conn: 2, tag: 3, address: u64::MAX, key: 9, sum: Some(5), data: vec![1; MAX_DATA] },
            Frame::FromOwner { conn: 2, tag: 4, address: 1, key: 9, bytes: 4096 },
            Frame::Done { conn: 2, tag: 4, status: 1, sum: 2, data: vec![] },
            Frame::Response { conn: 1, cqe: [3; 16] },
            Frame::Close { conn: 1 },
        ];
        for frame in &frames {
            client.send(frame);
        }
        client.flush();
        for frame in &frames {
            assert_eq!(&next(&mut server), frame);
        }
    }

    #[test]
    fn a_closed_stream_and_a_long_frame_are_seen() {
        let (client, mut server) = pair();
        drop(client);
        while server.dead().is_none() {
            assert_eq!(server.poll(), None);
        }
        let (mut client, mut server) = pair();
        client.outbox.extend(u32::MAX.to_le_bytes());
        client.flush();
        while server.dead().is_none() {
            assert_eq!(server.poll(), None);
        }
        assert!(server.dead().unwrap().contains("longer"));
    }

    proptest! {
        #[test]
        fn any_body_decodes_without_panic(body in proptest::collection::vec(any::<u8>(), 0..MAX_FRAME)) {
            let _ = Frame::decode(&body);
        }
    }
}
