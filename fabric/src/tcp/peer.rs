// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The array's end of the link: an executor that stands for a client's HCA in another process.
//!
//! ```text
//!   push --> (held back: outbox full, or TRANSFERS on the wire) --> frame, entry in `transfers`
//!   Done --> entry of this tag and this connection? taken out --> data checked, written --> Up::Copied
//! ```
//! A frame carries one block at most. A longer transfer, such as a fleet map's, goes in pieces with tags of
//! their own, and its own tag is never on the wire. It has ended when all pieces have.

mod queues;
mod transfers;

use queues::Queues;
use transfers::{Memory, Transfer, Whole};

use super::engine_load::StreamSlot;
use super::frame::Frame;
use super::limits::{ANSWER, End, FEW_BYTES, OUTBOX_BYTES};
use super::wire::Wire;
use crate::cm::Refused;
use crate::hca::{Copied, Down, Operation, QpExecutor, Up, WorkRequest};
use gnstor_base::region::{HostRegion, RegionId};
use gnstor_base::time::Time;
use gnstor_proto::fabrics::Identity;
use rustc_hash::FxHashMap as HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// Limit of the cost of a turn's frames: at first, and at most. After that the other streams have their turn.
/// The limit doubles with each successful response. It halves with each other response, and with each useless
/// frame. So a client whose commands are refused gets the least, however many it sends.
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
    /// Transfers that the client has not been asked for yet.
    held: VecDeque<(u32, Transfer, Memory)>,
    /// Transfers in pieces.
    wholes: HashMap<u32, Whole>,
    /// Since when transfers are under way and none has ended.
    waits_since: Option<Time>,
    /// Number of the present period of [`ANSWER`], and its start. At its end all transfers of earlier periods
    /// are late, even if others have ended meanwhile.
    span: u32,
    span_began: Option<Time>,
    /// Damaged data has been logged.
    has_warned: bool,
    next_piece: u32,
    /// Cost of its frames since its turn began.
    spent: u32,
    /// The cost that its frames may have in a turn.
    turn: u32,
    up: VecDeque<Up>,
    /// The stream's place at its engine, if it has one.
    slot: Option<StreamSlot>,
}

impl PeerExecutor {
    /// A client that has just connected, and the memory that its transfers may refer to.
    pub(crate) fn new(mut wire: Wire, regions: Regions) -> Self {
        wire.limit_outbox(FEW_BYTES);
        Self {
            wire,
            regions,
            queues: Queues::default(),
            transfers: HashMap::default(),
            held: VecDeque::new(),
            wholes: HashMap::default(),
            waits_since: None,
            span: 0,
            span_began: None,
            has_warned: false,
            next_piece: 0,
            spent: 0,
            turn: LEAST_TURN,
            up: VecDeque::new(),
            slot: None,
        }
    }

    /// The same with a place at its engine.
    pub(crate) fn on(mut self, slot: StreamSlot) -> Self {
        self.slot = Some(slot);
        self
    }

    /// Sets the memory to which its transfers may refer from here on.
    pub(crate) fn set_regions(&mut self, regions: &Regions) {
        self.regions = Arc::clone(regions);
    }

    /// Ends the stream's turn early. The next turn starts with the full cost.
    pub(crate) fn end_turn(&mut self) {
        self.spent = 0;
    }

    /// The stream.
    pub(crate) fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Ends waits that are over their deadline. Call this now and then.
    pub(crate) fn tick(&mut self, now: Time) {
        self.wire.tick(now);
        // The stream's notice wakes it, but not if that came while the connection was handed over.
        self.give_way();
        if self.wire.dead().is_some() {
            return;
        }
        self.waits_since = (!self.transfers.is_empty()).then(|| self.waits_since.unwrap_or(now));
        let is_late = self.waits_since.is_some_and(|since| now.since(since) >= ANSWER);
        let unanswered = (is_late || self.has_forgotten_one(now)).then_some(End::Unanswered);
        if let Some(end) = unanswered.or_else(|| self.queues.overdue(now)) {
            return self.wire.end(end);
        }
        for conn in self.queues.late_connects(now) {
            tracing::debug!("queue pair {conn} of a client is closed: its Connect takes too long");
            self.close(conn);
        }
    }

    /// Closes a queue pair, whatever its client wants.
    fn close(&mut self, conn: u32) {
        self.queues.close(conn, self.wire.place());
        self.wire.send(&Frame::Closed { conn });
        self.up.push_back(Up::Close { qpn: conn });
    }

    /// Closes queue pairs whose places other clients of the host need.
    fn give_way(&mut self) {
        let Some(place) = self.wire.place() else { return };
        if place.must_end() {
            return self.wire.end(End::GaveWay);
        }
        for conn in place.notice().take() {
            tracing::debug!("queue pair {conn} of a client gives way to another one of its host");
            if self.queues.open.contains_key(&conn) {
                self.judge(false);
                self.close(conn);
            }
        }
    }

    /// Whether a transfer has been in flight for longer than [`ANSWER`]; at the latest after twice that time.
    /// Otherwise a client that ends one now and then could keep the others for ever.
    fn has_forgotten_one(&mut self, now: Time) -> bool {
        if now.since(*self.span_began.get_or_insert(now)) < ANSWER {
            return false;
        }
        self.span_began = Some(now);
        self.span = self.span.wrapping_add(1);
        let present = self.span;
        self.transfers.values().any(|transfer| present.wrapping_sub(transfer.span) > 1)
    }

    /// Restarts all its deadlines, because the array did not run.
    pub(crate) fn wait_anew(&mut self, now: Time) {
        self.wire.wait_anew(now);
        self.waits_since = self.waits_since.map(|since| since.max(now));
        self.span_began = self.span_began.map(|since| since.max(now));
        self.queues.wait_anew(now);
    }

    /// Lengthens or shortens the turns of the client.
    fn judge(&mut self, is_good: bool) {
        let turn = if is_good { self.turn * 2 } else { self.turn / 2 };
        self.turn = turn.clamp(LEAST_TURN, MOST_TURN);
    }

    /// Whether the client has no queue pair. Then no command is about to come, and the stream need not be
    /// polled again at once.
    pub(crate) fn is_unconnected(&self) -> bool {
        self.queues.open.is_empty()
    }

    /// Whether the executor has a report, for example of its end, without any byte from the client.
    pub(crate) fn has_reports(&self) -> bool {
        !self.up.is_empty() || self.wire.dead().is_some()
    }

    fn on_frame(&mut self, frame: Frame) -> Option<Up> {
        match frame {
            Frame::Connect { conn, ssd, request } => {
                match self.queues.open(conn, ssd, &request, self.wire.place()) {
                    Ok(()) => Some(Up::Connect { qpn: conn, ssd, request }),
                    Err(refused) => {
                        self.wire.send(&Frame::Accept { conn, refused });
                        None
                    }
                }
            }
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
                self.queues.close(conn, self.wire.place());
                Some(Up::Close { qpn: conn })
            }
            other => {
                tracing::debug!("a client sent a frame that only arrays send: {other:?}");
                None
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }
}

impl QpExecutor for PeerExecutor {
    /// The bytes of a frame end the sleep of the transport's thread.
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
            self.queues.close(qpn, self.wire.place());
        }
        self.wire.send(&Frame::Accept { conn: qpn, refused });
    }

    fn admitted(&mut self, qpn: u32, who: Identity) {
        self.slot.iter_mut().for_each(StreamSlot::set_admitted);
        self.wire.limit_outbox(OUTBOX_BYTES);
        if !self.queues.admitted(qpn, who, self.wire.place()) {
            tracing::warn!("queue pair {qpn} of {who:?} is closed: it or its host has as many as it may");
            self.close(qpn);
        }
    }

    fn poll(&mut self) -> Option<Up> {
        self.slot.iter_mut().for_each(StreamSlot::arrived);
        self.give_way();
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
            // Useless frames take time from other streams, too, and a peer may send any number of them.
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
                let transfer = Transfer { conn: qpn, local, is_pull: false, whole: None, span: 0 };
                self.begin(tag, transfer, Memory { address, key, sum });
            }
            Down::FromOwner { qpn, local, address, key, tag } => {
                let transfer = Transfer { conn: qpn, local, is_pull: true, whole: None, span: 0 };
                self.begin(tag, transfer, Memory { address, key, sum: None });
            }
            Down::Send { qpn, bytes, .. } => {
                // The status without its phase tag (NVMe base specification, figure of the completion entry).
                self.judge(bytes[14] & 0xFE == 0 && bytes[15] == 0);
                self.wire.send(&Frame::Response { conn: qpn, cqe: bytes });
            }
            // The queue pair counts for its host until it is closed here, too: a client need not say that it
            // closes it.
            Down::QpError { qpn } => self.close(qpn),
            Down::Cqe { .. } | Down::QpAnew { .. } | Down::Ping { .. } => {}
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

impl Drop for PeerExecutor {
    fn drop(&mut self) {
        self.queues.close_all(self.wire.place());
    }
}
