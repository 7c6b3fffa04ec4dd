// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transfers that the array requests of a client: begun, held back, in pieces, ended.

use super::PeerExecutor;
use crate::hca::Copied;
use crate::hca::abi::{COPY_BAD_KEY, COPY_BAD_SUM, COPY_OK};
use crate::tcp::frame::{Frame, MAX_DATA, data_sum};
use crate::tcp::limits::TRANSFERS;
use gnstor_base::region::LocalRef;

/// The bit that the tags of pieces have and the transport's have not.
const PIECE: u32 = 1 << 31;
#[expect(clippy::cast_possible_truncation, reason = "a constant of 4096")]
const PIECE_BYTES: u32 = MAX_DATA as u32;

/// A transfer of one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) conn: u32,
    pub(super) local: LocalRef,
    pub(super) is_pull: bool,
    /// The transfer that it is a piece of.
    pub(super) whole: Option<u32>,
    /// The period in which the client was asked for it.
    pub(super) span: u32,
}

/// A transfer in pieces.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) conn: u32,
    pub(super) pieces_left: u32,
    /// Status of the pieces so far.
    pub(super) status: u32,
}

/// Memory of a client, and the sum that data for it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) sum: Option<u32>,
}

impl PeerExecutor {
    /// Handles the client's report that a transfer has ended. The report must name a transfer that is under
    /// way for that connection.
    pub(super) fn on_done(&mut self, done: Copied, data: &[u8]) -> Option<Copied> {
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
            // No transfer is waiting for these bytes.
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
    pub(super) fn begin(&mut self, tag: u32, transfer: Transfer, memory: Memory) {
        let Transfer { conn, local, .. } = transfer;
        if local.bytes <= PIECE_BYTES {
            return self.hold(tag, transfer, memory);
        }
        let pieces_left = local.bytes.div_ceil(PIECE_BYTES);
        self.wholes.insert(tag, Whole { conn, pieces_left, status: COPY_OK });
        for at in (0..local.bytes).step_by(MAX_DATA) {
            let bytes = (local.bytes - at).min(PIECE_BYTES);
            let local = LocalRef { offset: local.offset + u64::from(at), bytes, ..local };
            // Only whole blocks have a sum.
            let memory = Memory { address: memory.address.wrapping_add(at.into()), sum: None, ..memory };
            let piece = self.free_piece();
            self.hold(piece, Transfer { local, whole: Some(tag), ..transfer }, memory);
        }
    }

    /// A tag for a piece that no transfer on the wire has. If a transfer is held back and its tag is taken
    /// later, it gets another tag (`ask`).
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

    pub(super) fn has_room(&self) -> bool {
        self.transfers.len() < TRANSFERS && self.wire.has_room()
    }

    /// Requests the transfers that were held back, as far as there is room.
    pub(super) fn ask_held(&mut self) {
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
        self.transfers.insert(tag, Transfer { span: self.span, ..transfer });
        if is_pull {
            self.wire.send(&Frame::FromOwner { conn, tag, address, key, bytes: local.bytes });
            return;
        }
        let mut data = vec![0; local.bytes as usize];
        self.regions[&local.region].read(local.offset, &mut data);
        self.wire.send(&Frame::ToOwner { conn, tag, address, key, sum, data });
    }
}
