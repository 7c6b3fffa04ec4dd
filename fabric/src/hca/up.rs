// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports of an executor to the transport.
//!
//! Device code writes a [`UpEntry`]: a kind and fields whose meaning depends on it. Each executor decodes it
//! once, when the transport polls, so that the transport matches on variants and reads no field twice.

use super::abi::*;
use gnstor_proto::fabrics::CmRequest;

/// A report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Up {
    /// The executor has taken a work request from a send queue.
    Request(WorkRequest),
    /// A [`super::Down::ToOwner`] or [`super::Down::FromOwner`] has ended.
    Copied(Copied),
    /// A fused response has ended: all its parts are copied and the response is delivered, or neither is.
    FusedDone {
        /// Name of the response.
        tag: u32,
        /// `COPY_*`.
        status: u32,
    },
    /// A SEND found no receive; it was not delivered.
    NoReceive {
        /// Queue pair.
        qpn: u32,
        /// The message.
        bytes: [u8; 16],
    },
    /// A SEND found a receive that cannot take it. The queue pair is in error.
    ReceiveFailed {
        /// Queue pair.
        qpn: u32,
        /// Index of the receive.
        index: u16,
        /// Syndrome.
        syndrome: u8,
    },
    /// A queue pair has gone into error: receives `first..end`, which may wrap, are to be flushed.
    FlushReceives {
        /// Queue pair.
        qpn: u32,
        /// First receive.
        first: u16,
        /// Index after the last receive.
        end: u16,
    },
    /// A completion queue has overrun. The queue pair is in error.
    CqOverrun {
        /// Queue pair.
        qpn: u32,
    },
    /// The reply to a [`super::Down::Ping`].
    Pong {
        /// Name of the ping.
        tag: u32,
        /// Time at which the executor saw it, on its own clock, ns.
        stamp_ns: u64,
    },
    /// A [`super::Down::QpAnew`] was carried out.
    QpAnew {
        /// Queue pair.
        qpn: u32,
        /// Tag of the message.
        tag: u32,
    },
    /// A client of another process asks to connect; the executor takes the reply by
    /// [`super::QpExecutor::reply_connect`].
    Connect {
        /// The client's number of the connection.
        qpn: u32,
        /// Number of the SSD.
        ssd: u16,
        /// The request.
        request: CmRequest,
    },
    /// A client of another process closes a connection.
    Close {
        /// The client's number of the connection.
        qpn: u32,
    },
}

/// A work request that an executor has taken from a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkRequest {
    /// When the executor took it, on its own clock, ns; 0 where the executor has no clock.
    pub stamp_ns: u64,
    /// For a SEND, the low half of the owner's clock when the owner wrote it; 0 if the owner gives none.
    pub client_stamp: u32,
    /// Queue pair.
    pub qpn: u32,
    /// Index of its first block.
    pub index: u16,
    /// Whether its owner wants a completion.
    pub signalled: bool,
    /// The operation of the request.
    pub operation: Operation,
}

/// The operation of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// SEND.
    Send {
        /// Length of the message.
        bytes: u32,
        /// The message, padded with zeros.
        capsule: [u8; 64],
    },
    /// RDMA WRITE, RDMA READ, or SEND with invalidation: it needs memory or a key of the peer's.
    Remote,
    /// NOP.
    Nop,
    /// DUMP; the executor has read its bytes.
    Dump,
    /// LOCAL_INVAL; the executor has closed the key.
    LocalInval,
    /// Any request with an error of its own. The queue pair is in error.
    Failed {
        /// Syndrome.
        syndrome: u8,
    },
    /// A request that was queued after one with an error.
    Flushed,
}

/// The end of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// Queue pair.
    pub qpn: u32,
    /// Name of the transfer.
    pub tag: u32,
    /// `COPY_*`.
    pub status: u32,
    /// Block sum of the copied data, if it was a block; otherwise 0.
    pub sum: u32,
}

// The transport keeps a batch of reports: a report is no larger than the entry that it comes from.
const _: () = assert!(size_of::<Up>() <= 96);

/// The low half of a word that carries a 16-bit counter.
#[expect(clippy::cast_possible_truncation, reason = "16-bit counters travel in 32-bit words")]
fn low16(word: u32) -> u16 {
    word as u16
}

#[expect(clippy::cast_possible_truncation, reason = "a syndrome is a byte")]
fn syndrome_of(e: &UpEntry) -> u8 {
    e.status as u8
}

impl UpEntry {
    /// The report in this entry; `None` for a kind that no executor writes.
    #[inline]
    pub fn decode(&self) -> Option<Up> {
        let (qpn, tag, status) = (self.qpn, self.index, self.status);
        let request = |operation| {
            Up::Request(WorkRequest {
                stamp_ns: self.stamp_ns,
                client_stamp: self.client_stamp(),
                qpn,
                index: low16(self.index),
                signalled: self.flags & UP_SIGNALLED != 0,
                operation,
            })
        };
        Some(match self.kind {
            UP_SEND => request(Operation::Send { bytes: self.bytes, capsule: self.payload }),
            UP_WRITE | UP_READ | UP_SEND_INVAL => request(Operation::Remote),
            UP_NOP => request(Operation::Nop),
            UP_DUMP => request(Operation::Dump),
            UP_LOCAL_INVAL => request(Operation::LocalInval),
            UP_WQE_ERROR => request(Operation::Failed { syndrome: syndrome_of(self) }),
            UP_WQE_FLUSH => request(Operation::Flushed),
            UP_DONE => Up::Copied(Copied { qpn, tag, status, sum: self.sum }),
            UP_FUSED_DONE => Up::FusedDone { tag, status },
            UP_QP_ANEW => Up::QpAnew { qpn, tag },
            UP_RNR => Up::NoReceive { qpn, bytes: zerocopy::transmute!(self.arg) },
            UP_RECV_ERROR => Up::ReceiveFailed { qpn, index: low16(self.index), syndrome: syndrome_of(self) },
            UP_RQ_FLUSH => Up::FlushReceives { qpn, first: low16(self.index), end: low16(self.status) },
            UP_CQ_ERROR => Up::CqOverrun { qpn },
            UP_PONG => Up::Pong { tag, stamp_ns: self.stamp_ns },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn every_kind_of_the_wire_is_a_report_and_others_are_none() {
        let _deadline = deadline();
        for kind in UP_SEND..=UP_QP_ANEW {
            assert!(UpEntry { kind, ..UpEntry::default() }.decode().is_some(), "kind {kind}");
        }
        for kind in [0, UP_QP_ANEW + 1, 100, u32::MAX] {
            assert_eq!(UpEntry { kind, ..UpEntry::default() }.decode(), None, "kind {kind}");
        }
    }

    #[test]
    fn a_report_has_the_fields_of_its_kind() {
        let _deadline = deadline();
        let entry = UpEntry {
            kind: UP_SEND,
            qpn: 3,
            stamp_ns: 5,
            index: 0x1_0007,
            flags: UP_SIGNALLED | UP_IMMEDIATE,
            status: 0x205,
            bytes: 64,
            sum: 9,
            arg: [11, 13],
            payload: [17; 64],
        };
        let request = |operation| {
            Some(Up::Request(WorkRequest {
                stamp_ns: 5,
                client_stamp: 0,
                qpn: 3,
                index: 7,
                signalled: true,
                operation,
            }))
        };
        let of = |kind| UpEntry { kind, ..entry }.decode();
        assert_eq!(entry.decode(), request(Operation::Send { bytes: 64, capsule: [17; 64] }));
        assert_eq!(of(UP_WQE_ERROR), request(Operation::Failed { syndrome: 5 }));
        for (kind, operation) in [
            (UP_WRITE, Operation::Remote),
            (UP_READ, Operation::Remote),
            (UP_SEND_INVAL, Operation::Remote),
            (UP_NOP, Operation::Nop),
            (UP_DUMP, Operation::Dump),
            (UP_LOCAL_INVAL, Operation::LocalInval),
            (UP_WQE_FLUSH, Operation::Flushed),
        ] {
            assert_eq!(of(kind), request(operation));
        }
        let tag = 0x1_0007;
        assert_eq!(of(UP_DONE), Some(Up::Copied(Copied { qpn: 3, tag, status: 0x205, sum: 9 })));
        assert_eq!(of(UP_FUSED_DONE), Some(Up::FusedDone { tag, status: 0x205 }));
        let bytes = zerocopy::transmute!([11u64, 13]);
        assert_eq!(of(UP_RNR), Some(Up::NoReceive { qpn: 3, bytes }));
        assert_eq!(of(UP_RECV_ERROR), Some(Up::ReceiveFailed { qpn: 3, index: 7, syndrome: 5 }));
        assert_eq!(of(UP_RQ_FLUSH), Some(Up::FlushReceives { qpn: 3, first: 7, end: 0x205 }));
        assert_eq!(of(UP_CQ_ERROR), Some(Up::CqOverrun { qpn: 3 }));
        assert_eq!(of(UP_QP_ANEW), Some(Up::QpAnew { qpn: 3, tag }));
        assert_eq!(of(UP_PONG), Some(Up::Pong { tag, stamp_ns: 5 }));
    }
}
