// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The array's end of the link: an executor that stands for a client's HCA in another process.
//!
//! A frame carries one block at most. A longer transfer, such as a fleet map's, goes in pieces with tags of
//! their own; it has ended when all of them have.

use super::frame::{Frame, MAX_DATA};
use super::wire::Wire;
use crate::cm::Refused;
use crate::hca::abi::{COPY_BAD_KEY, COPY_OK};
use crate::hca::{Copied, Down, Operation, QpExecutor, Up, WorkRequest};
use gnstor_base::region::{HostRegion, LocalRef, RegionId};
use rustc_hash::FxHashMap as HashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// The bit that the tags of pieces have and the transport's have not.
const PIECE: u32 = 1 << 31;
#[expect(clippy::cast_possible_truncation, reason = "a constant of 4096")]
const PIECE_BYTES: u32 = MAX_DATA as u32;

/// A client behind a TCP stream, as the array's transport sees it: its queue pairs are numbered by its own
/// connection ids.
#[derive(Debug)]
pub struct PeerExecutor {
    wire: Wire,
    regions: HashMap<RegionId, Arc<HostRegion>>,
    /// Where the data that the client was asked for goes, by tag, and for which of its connections.
    pulls: HashMap<u32, (u32, LocalRef)>,
    /// Pieces under way, by their tags: the transfer each is of.
    pieces: HashMap<u32, u32>,
    /// Transfers in pieces: the connection, how many are under way, how they ended so far.
    wholes: HashMap<u32, (u32, u32, u32)>,
    next_piece: u32,
    up: VecDeque<Up>,
}

/// Memory of a client.
#[derive(Clone, Copy)]
struct Owned {
    conn: u32,
    address: u64,
    key: u32,
}

impl PeerExecutor {
    /// A client that has just connected.
    pub fn new(wire: Wire) -> Self {
        Self {
            wire,
            regions: HashMap::default(),
            pulls: HashMap::default(),
            pieces: HashMap::default(),
            wholes: HashMap::default(),
            next_piece: 0,
            up: VecDeque::new(),
        }
    }

    fn on_frame(&mut self, frame: Frame) -> Option<Up> {
        match frame {
            Frame::Connect { conn, ssd, request } => Some(Up::Connect { qpn: conn, ssd, request }),
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
                let mut e = Copied { qpn: conn, tag, status, sum };
                if let Some((_, local)) = self.pulls.remove(&tag) {
                    if status == COPY_OK && data.len() == local.bytes as usize {
                        self.regions[&local.region].write(local.offset, &data);
                        // The array computes the sum itself: a client could name any.
                        if data.len() == gnstor_proto::BLOCK_BYTES as usize {
                            e.sum = gnstor_proto::checksum::block_sum(&data);
                        }
                    } else {
                        e.status = COPY_BAD_KEY;
                    }
                }
                let whole = if tag & PIECE == 0 { Some(e) } else { self.piece_done(&e) };
                whole.map(Up::Copied)
            }
            Frame::Close { conn } => Some(Up::Close { qpn: conn }),
            other => {
                tracing::warn!("a client sent a frame that only arrays send: {other:?}");
                None
            }
        }
    }
}

impl PeerExecutor {
    fn push_out(&mut self, tag: u32, local: LocalRef, to: Owned, sum: Option<u32>) {
        let Owned { conn, address, key } = to;
        let mut data = vec![0; local.bytes as usize];
        self.regions[&local.region].read(local.offset, &mut data);
        self.wire.send(&Frame::ToOwner { conn, tag, address, key, sum, data });
    }

    fn pull_in(&mut self, tag: u32, local: LocalRef, from: Owned) {
        let Owned { conn, address, key } = from;
        self.pulls.insert(tag, (conn, local));
        self.wire.send(&Frame::FromOwner { conn, tag, address, key, bytes: local.bytes });
    }

    /// Cuts a transfer into pieces: their tags, memory here, and offsets there. No piece names a tag that is
    /// in use.
    fn cut(&mut self, conn: u32, local: LocalRef, whole: u32) -> Vec<(u32, LocalRef, u64)> {
        let mut cut = Vec::new();
        let mut at = 0;
        while at < local.bytes {
            let bytes = (local.bytes - at).min(PIECE_BYTES);
            let tag = loop {
                self.next_piece = self.next_piece.wrapping_add(1) | PIECE;
                if !self.pieces.contains_key(&self.next_piece) {
                    break self.next_piece;
                }
            };
            self.pieces.insert(tag, whole);
            cut.push((tag, LocalRef { offset: local.offset + u64::from(at), bytes, ..local }, u64::from(at)));
            at += bytes;
        }
        self.wholes.insert(whole, (conn, u32::try_from(cut.len()).expect("few pieces"), COPY_OK));
        cut
    }

    /// A piece has ended; the report of its transfer, where it was the last.
    fn piece_done(&mut self, e: &Copied) -> Option<Copied> {
        let tag = self.pieces.remove(&e.tag)?;
        let (_, left, status) = self.wholes.get_mut(&tag)?;
        *left -= 1;
        if *status == COPY_OK {
            *status = e.status;
        }
        let (left, status) = (*left, *status);
        if left > 0 {
            return None;
        }
        self.wholes.remove(&tag);
        Some(Copied { qpn: e.qpn, tag, status, sum: 0 })
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

    fn add_region(&mut self, region: &Arc<HostRegion>) {
        self.regions.insert(region.id(), Arc::clone(region));
    }

    fn remove_region(&mut self, id: RegionId) {
        self.regions.remove(&id);
    }

    fn keeps_mapped(&self) -> bool {
        false
    }

    fn reply_connect(&mut self, qpn: u32, refused: Refused) {
        self.wire.send(&Frame::Accept { conn: qpn, refused });
    }

    fn poll(&mut self) -> Option<Up> {
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
            Down::ToOwner { qpn, local, address, key, tag, sum } if local.bytes <= PIECE_BYTES => {
                self.push_out(tag, local, Owned { conn: qpn, address, key }, sum);
            }
            // Only a block has a sum.
            Down::ToOwner { qpn, local, address, key, tag, .. } => {
                for (piece, local, offset) in self.cut(qpn, local, tag) {
                    let to = Owned { conn: qpn, address: address.wrapping_add(offset), key };
                    self.push_out(piece, local, to, None);
                }
            }
            Down::FromOwner { qpn, local, address, key, tag } if local.bytes <= PIECE_BYTES => {
                self.pull_in(tag, local, Owned { conn: qpn, address, key });
            }
            Down::FromOwner { qpn, local, address, key, tag } => {
                for (piece, local, offset) in self.cut(qpn, local, tag) {
                    let from = Owned { conn: qpn, address: address.wrapping_add(offset), key };
                    self.pull_in(piece, local, from);
                }
            }
            Down::Send { qpn, bytes, .. } => self.wire.send(&Frame::Response { conn: qpn, cqe: bytes }),
            Down::QpError { qpn } => self.wire.send(&Frame::Closed { conn: qpn }),
            Down::Cqe { .. } | Down::Ping { .. } => {}
        }
    }

    /// Data for the client has been read already. Data that it sends late is dropped.
    fn take_back(&mut self, conn: u32) -> bool {
        self.pulls.retain(|_, (of, _)| *of != conn);
        self.wholes.retain(|_, (of, _, _)| *of != conn);
        self.pieces.retain(|_, whole| self.wholes.contains_key(whole));
        true
    }
}
