// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The array's end of the link: an executor that stands for a client's HCA in another process.
//!
//! ```text
//!   push --> (held back: outbox full, or TRANSFERS on the wire) --> frame, entry in `transfers`
//!   Done --> entry of this tag and this connection? taken out --> data checked, written --> Up::Copied
//! ```
//! A frame carries one block at most. A longer transfer, such as a fleet map's, goes in pieces with tags of
//! their own, and its own tag is never on the wire. It has ended when all pieces have.

use super::frame::{Frame, MAX_DATA, data_sum};
use super::limits::{
    ANSWER, End, HANDSHAKE, IDLE, OUTBOX_BYTES, PENDING, PENDING_CONNECTS, QUEUE_PAIRS, TRANSFERS,
};
use super::places::Host;
use super::wire::Wire;
use crate::cm::{REFUSED_NO_PEER, Refused};
use crate::hca::abi::{COPY_BAD_KEY, COPY_BAD_SUM, COPY_OK};
use crate::hca::{Copied, Down, Operation, QpExecutor, Up, WorkRequest};
use gnstor_base::region::{HostRegion, LocalRef, RegionId};
use gnstor_base::time::Time;
use gnstor_proto::fabrics::{CmRequest, cm_reject};
use rustc_hash::FxHashMap as HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// The bit that the tags of pieces have and the transport's have not.
const PIECE: u32 = 1 << 31;
#[expect(clippy::cast_possible_truncation, reason = "a constant of 4096")]
const PIECE_BYTES: u32 = MAX_DATA as u32;

/// What the frames of one turn may cost; then the other streams have theirs. It doubles with each response
/// that says success and halves with each other one, and with each frame of no use: a client whose commands
/// are refused gets the least, however many it sends.
const LEAST_TURN: u32 = 4;
const MOST_TURN: u32 = 128;
/// Cost of a frame that reports something, of a Connect, and of a frame that is refused or dropped.
const USEFUL_FRAME: u32 = 1;
const CONNECT_FRAME: u32 = 4;
const IDLE_FRAME: u32 = 8;

/// The memory that transfers refer to. The executors of a transport share the table.
pub(crate) type Regions = Arc<HashMap<RegionId, Arc<HostRegion>>>;

/// A client behind a TCP stream, as the array's transport sees it: its queue pairs are numbered by its own
/// connection ids.
#[derive(Debug)]
pub struct PeerExecutor {
    wire: Wire,
    regions: Regions,
    queues: Queues,
    /// Transfers that the client has been asked for, by the tags in their frames.
    transfers: HashMap<u32, Transfer>,
    /// Transfers that it has not been asked for yet.
    held: VecDeque<(u32, Transfer, Memory)>,
    /// Transfers in pieces.
    wholes: HashMap<u32, Whole>,
    /// Since when transfers are under way and none has ended.
    waits_since: Option<Time>,
    /// Damaged data has been logged.
    has_warned: bool,
    next_piece: u32,
    /// What its frames have cost since its turn began.
    spent: u32,
    /// What they may cost.
    turn: u32,
    up: VecDeque<Up>,
}

/// The client's queue pairs, by its numbers of their connections.
#[derive(Debug, Default)]
struct Queues {
    open: HashMap<u32, Pair>,
    pending: usize,
    /// What all connections of the client's host hold.
    host: Option<Arc<Host>>,
    has_connected: bool,
    /// Since when there is none.
    empty_since: Option<Time>,
}

/// A queue pair of a client.
#[derive(Debug)]
struct Pair {
    /// Since when it waits for its first response; `None`: it has had one.
    pending_since: Option<Time>,
    ssd: u16,
    entries: u32,
}

/// A transfer of one frame.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    conn: u32,
    local: LocalRef,
    is_pull: bool,
    /// The transfer that it is a piece of.
    whole: Option<u32>,
}

/// A transfer in pieces.
#[derive(Debug)]
struct Whole {
    conn: u32,
    pieces_left: u32,
    /// How the pieces have ended so far.
    status: u32,
}

/// Memory of a client, and the sum that data for it has.
#[derive(Clone, Copy, Debug)]
struct Memory {
    address: u64,
    key: u32,
    sum: Option<u32>,
}

impl PeerExecutor {
    /// A client that has just connected, and the memory that its transfers may refer to.
    pub(crate) fn new(mut wire: Wire, regions: Regions) -> Self {
        wire.limit_outbox(OUTBOX_BYTES);
        let mut queues = Queues::default();
        queues.host = wire.host();
        Self {
            wire,
            regions,
            queues,
            transfers: HashMap::default(),
            held: VecDeque::new(),
            wholes: HashMap::default(),
            waits_since: None,
            has_warned: false,
            next_piece: 0,
            spent: 0,
            turn: LEAST_TURN,
            up: VecDeque::new(),
        }
    }

    /// The memory that its transfers may refer to from here on.
    pub(crate) fn set_regions(&mut self, regions: &Regions) {
        self.regions = Arc::clone(regions);
    }

    /// The stream.
    pub(crate) fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Ends waits that are over their deadline. Call this now and then.
    pub(crate) fn tick(&mut self, now: Time) {
        self.wire.tick(now);
        if self.wire.dead().is_some() {
            return;
        }
        self.waits_since = (!self.transfers.is_empty()).then(|| self.waits_since.unwrap_or(now));
        let is_late = self.waits_since.is_some_and(|since| now.since(since) >= ANSWER);
        let unanswered = is_late.then_some(End::Unanswered);
        if let Some(end) = unanswered.or_else(|| self.queues.overdue(now)) {
            return self.wire.end(end);
        }
        for conn in self.queues.late_connects(now) {
            tracing::warn!("queue pair {conn} of a client is closed: its Connect takes too long");
            self.queues.close(conn);
            self.wire.send(&Frame::Closed { conn });
            self.up.push_back(Up::Close { qpn: conn });
        }
    }

    /// Lengthens or shortens the turns of the client.
    fn judge(&mut self, is_good: bool) {
        let turn = if is_good { self.turn * 2 } else { self.turn / 2 };
        self.turn = turn.clamp(LEAST_TURN, MOST_TURN);
    }

    /// Whether it has no queue pair: no wait for a command makes it worth to poll its stream again at once.
    pub(crate) fn is_unconnected(&self) -> bool {
        self.queues.open.is_empty()
    }

    /// Whether it has something to say, such as that it is dead, without any byte from the client.
    pub(crate) fn has_reports(&self) -> bool {
        !self.up.is_empty() || self.wire.dead().is_some()
    }

    fn on_frame(&mut self, frame: Frame) -> Option<Up> {
        match frame {
            Frame::Connect { conn, ssd, request } => match self.queues.open(conn, ssd, &request) {
                Ok(()) => Some(Up::Connect { qpn: conn, ssd, request }),
                Err(refused) => {
                    self.wire.send(&Frame::Accept { conn, refused });
                    None
                }
            },
            Frame::Send { conn, capsule } => {
                self.wire.send(&Frame::Ack { conn, count: 1 });
                let operation = Operation::Send { bytes: 64, capsule };
                // The frame itself is the acknowledged request: the client completes it, by its own index.
                let request = WorkRequest {
                    stamp_ns: 0,
                    client_stamp: 0,
                    qpn: conn,
                    index: 0,
                    signalled: false,
                    operation,
                };
                Some(Up::Request(request))
            }
            Frame::Done { conn, tag, status, sum, data } => {
                self.on_done(Copied { qpn: conn, tag, status, sum }, &data).map(Up::Copied)
            }
            Frame::Close { conn } => {
                self.queues.close(conn);
                Some(Up::Close { qpn: conn })
            }
            other => {
                tracing::debug!("a client sent a frame that only arrays send: {other:?}");
                None
            }
        }
    }

    /// The client says that a transfer has ended. What it names must be under way for that connection.
    fn on_done(&mut self, done: Copied, data: &[u8]) -> Option<Copied> {
        let is_its = |transfer: &Transfer| transfer.conn == done.qpn;
        let Some(transfer) = self.transfers.get(&done.tag).copied().filter(is_its) else {
            // A transfer of a connection that was closed meanwhile ends so, too.
            tracing::debug!("a client ended transfer {:#x}, which its connection has not", done.tag);
            return None;
        };
        self.transfers.remove(&done.tag);
        self.waits_since = None;
        let (status, sum) = self.take_data(&transfer, &done, data);
        // Once for each connection: a client could fill the log.
        if status == COPY_BAD_SUM && !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!("data of a client arrived with another sum than it was sent with");
        }
        match transfer.whole {
            None => Some(Copied { status, sum, ..done }),
            Some(whole) => self.piece_done(whole, status),
        }
    }

    /// Writes the data of a pull. Returns how the transfer has ended, and the block sum of its data.
    fn take_data(&self, transfer: &Transfer, done: &Copied, data: &[u8]) -> (u32, u32) {
        let Transfer { local, is_pull, .. } = *transfer;
        if done.status != COPY_OK || !is_pull {
            // Nothing was asked for that these bytes could be.
            return (if data.is_empty() { done.status } else { COPY_BAD_KEY }, 0);
        }
        let Some(region) = self.regions.get(&local.region).filter(|_| data.len() == local.bytes as usize)
        else {
            return (COPY_BAD_KEY, 0);
        };
        let sum = data_sum(data);
        if sum != done.sum {
            return (COPY_BAD_SUM, 0);
        }
        region.write(local.offset, data);
        (COPY_OK, if data.len() == MAX_DATA { sum } else { 0 })
    }

    /// A piece has ended; the report of its transfer, where it was the last.
    fn piece_done(&mut self, tag: u32, status: u32) -> Option<Copied> {
        let whole = self.wholes.get_mut(&tag)?;
        whole.pieces_left -= 1;
        if whole.status == COPY_OK {
            whole.status = status;
        }
        if whole.pieces_left > 0 {
            return None;
        }
        let Whole { conn, status, .. } = self.wholes.remove(&tag)?;
        Some(Copied { qpn: conn, tag, status, sum: 0 })
    }

    /// Begins a transfer, in pieces where it is longer than a frame's data.
    fn begin(&mut self, tag: u32, transfer: Transfer, memory: Memory) {
        let Transfer { conn, local, .. } = transfer;
        if local.bytes <= PIECE_BYTES {
            return self.hold(tag, transfer, memory);
        }
        let pieces_left = local.bytes.div_ceil(PIECE_BYTES);
        self.wholes.insert(tag, Whole { conn, pieces_left, status: COPY_OK });
        for at in (0..local.bytes).step_by(MAX_DATA) {
            let bytes = (local.bytes - at).min(PIECE_BYTES);
            let local = LocalRef { offset: local.offset + u64::from(at), bytes, ..local };
            // Only a block has a sum.
            let memory = Memory { address: memory.address.wrapping_add(at.into()), sum: None, ..memory };
            let piece = self.free_piece();
            self.hold(piece, Transfer { local, whole: Some(tag), ..transfer }, memory);
        }
    }

    /// A tag for a piece that no transfer on the wire has. One that is held back gets another tag then,
    /// should its own be taken (`ask`).
    fn free_piece(&mut self) -> u32 {
        loop {
            self.next_piece = self.next_piece.wrapping_add(1) | PIECE;
            if !self.transfers.contains_key(&self.next_piece) {
                return self.next_piece;
            }
        }
    }

    fn hold(&mut self, tag: u32, transfer: Transfer, memory: Memory) {
        if self.held.is_empty() && self.has_room() {
            self.ask(tag, transfer, memory);
        } else {
            self.held.push_back((tag, transfer, memory));
        }
    }

    fn has_room(&self) -> bool {
        self.transfers.len() < TRANSFERS && self.wire.has_room()
    }

    /// Asks the client for what was held back, as far as there is room.
    fn ask_held(&mut self) {
        while !self.held.is_empty() && self.has_room() {
            let Some((tag, transfer, memory)) = self.held.pop_front() else { return };
            self.ask(tag, transfer, memory);
        }
    }

    fn ask(&mut self, tag: u32, transfer: Transfer, memory: Memory) {
        let Transfer { conn, local, is_pull, .. } = transfer;
        let Memory { address, key, sum } = memory;
        let is_taken = transfer.whole.is_some() && self.transfers.contains_key(&tag);
        let tag = if is_taken { self.free_piece() } else { tag };
        self.transfers.insert(tag, transfer);
        if is_pull {
            self.wire.send(&Frame::FromOwner { conn, tag, address, key, bytes: local.bytes });
            return;
        }
        let mut data = vec![0; local.bytes as usize];
        self.regions[&local.region].read(local.offset, &mut data);
        self.wire.send(&Frame::ToOwner { conn, tag, address, key, sum, data });
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }
}

impl Queues {
    /// The client asks for another queue pair.
    fn open(&mut self, conn: u32, ssd: u16, request: &CmRequest) -> Result<(), Refused> {
        // A number names one connection: a second one of the same number would make the first unreachable.
        if self.open.contains_key(&conn) {
            return Err(REFUSED_NO_PEER);
        }
        let entries = u32::from(request.hsqsize_z.get()) + 1;
        let is_over = self.open.len() >= QUEUE_PAIRS || self.pending >= PENDING_CONNECTS;
        if is_over || self.host.as_ref().is_some_and(|host| !host.open(ssd, entries)) {
            return Err(cm_reject::NO_RESOURCES);
        }
        // The next tick sets the time.
        self.open.insert(conn, Pair { pending_since: Some(Time::NEVER), ssd, entries });
        self.pending += 1;
        self.has_connected = true;
        self.empty_since = None;
        Ok(())
    }

    fn close(&mut self, conn: u32) {
        if let Some(Pair { pending_since, ssd, entries }) = self.open.remove(&conn) {
            self.pending -= usize::from(pending_since.is_some());
            if let Some(host) = &self.host {
                host.close(ssd, entries, pending_since.is_some());
            }
        }
    }

    /// A response goes to the client.
    fn answered(&mut self, conn: u32) {
        if self.pending > 0
            && let Some(pair) = self.open.get_mut(&conn)
            && pair.pending_since.take().is_some()
        {
            self.pending -= 1;
            if let Some(host) = &self.host {
                host.answered(pair.ssd);
            }
        }
    }

    /// Why the client is to go.
    fn overdue(&mut self, now: Time) -> Option<End> {
        if !self.open.is_empty() {
            return None;
        }
        let idle = now.since(*self.empty_since.get_or_insert(now));
        match self.has_connected {
            false if idle >= HANDSHAKE => Some(End::NoHandshake),
            true if idle >= IDLE => Some(End::Idle),
            _ => None,
        }
    }

    fn late_connects(&mut self, now: Time) -> Vec<u32> {
        if self.pending == 0 {
            return Vec::new();
        }
        let late = |(conn, pair): (&u32, &mut Pair)| {
            let since = pair.pending_since.as_mut()?;
            *since = (*since).min(now);
            (now.since(*since) >= PENDING).then_some(*conn)
        };
        self.open.iter_mut().filter_map(late).collect()
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        let conns: Vec<u32> = self.open.keys().copied().collect();
        conns.into_iter().for_each(|conn| self.close(conn));
    }
}

impl QpExecutor for PeerExecutor {
    /// A client's first frame after a pause waits until the nap of the transport's thread ends.
    fn must_be_polled(&self) -> bool {
        false
    }

    /// The end of a transfer writes its data when it is taken: what came before it must have been handled.
    fn poll_ahead(&self) -> usize {
        1
    }

    fn is_dead(&self) -> bool {
        self.wire.dead().is_some() && self.up.is_empty()
    }

    fn keeps_mapped(&self) -> bool {
        false
    }

    fn reply_connect(&mut self, qpn: u32, refused: Refused) {
        if refused != 0 {
            self.queues.close(qpn);
        }
        self.wire.send(&Frame::Accept { conn: qpn, refused });
    }

    fn poll(&mut self) -> Option<Up> {
        loop {
            if let Some(e) = self.up.pop_front() {
                return Some(e);
            }
            if self.spent >= self.turn {
                self.spent = 0;
                return None;
            }
            self.ask_held();
            let Some(frame) = self.wire.poll() else {
                self.spent = 0;
                return None;
            };
            let report = self.on_frame(frame);
            // Frames of no use take the others' time, too, and there may be any number of them.
            self.spent += match &report {
                Some(Up::Connect { .. }) => CONNECT_FRAME,
                Some(_) => USEFUL_FRAME,
                None => IDLE_FRAME,
            };
            if report.is_none() {
                self.judge(false);
            }
            self.up.extend(report);
        }
    }

    fn push(&mut self, message: Down) {
        match message {
            Down::ToOwner { qpn, local, address, key, tag, sum } => {
                let transfer = Transfer { conn: qpn, local, is_pull: false, whole: None };
                self.begin(tag, transfer, Memory { address, key, sum });
            }
            Down::FromOwner { qpn, local, address, key, tag } => {
                let transfer = Transfer { conn: qpn, local, is_pull: true, whole: None };
                self.begin(tag, transfer, Memory { address, key, sum: None });
            }
            Down::Send { qpn, bytes, .. } => {
                self.queues.answered(qpn);
                // The status without its phase tag (NVMe base specification, figure of the completion entry).
                self.judge(bytes[14] & 0xFE == 0 && bytes[15] == 0);
                self.wire.send(&Frame::Response { conn: qpn, cqe: bytes });
            }
            Down::QpError { qpn } => self.wire.send(&Frame::Closed { conn: qpn }),
            Down::Cqe { .. } | Down::Ping { .. } => {}
        }
    }

    /// Data for the client has been read already. Data that it sends late is dropped.
    fn take_back(&mut self, conn: u32) -> bool {
        self.transfers.retain(|_, transfer| transfer.conn != conn);
        self.held.retain(|(_, transfer, _)| transfer.conn != conn);
        self.wholes.retain(|_, whole| whole.conn != conn);
        true
    }
}
