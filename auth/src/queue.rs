// SPDX-License-Identifier: Apache-2.0 OR MIT
//! I/O queues of an authenticated controller.
//!
//! An I/O queue's Connect carries a proof made with the session key of its controller's admin queue. A proof
//! costs no round trip, and a kernel sends it as bytes that the host has prepared.
//!
//! ```text
//!   proof = HMAC(session key, "GNStor I/O queue" | controller id | queue id | number)
//! ```
//! Numbers of a controller's proofs only rise: a proof that was heard on the wire opens no second queue.

use crate::key::{KEY_BYTES, is_mac, mac};
use std::fmt;
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Key of one authenticated admin queue. Dropping it erases it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SessionKey([u8; KEY_BYTES]);

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

/// The part of an I/O queue's Connect data that proves its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QueueProof {
    /// Number of the proof, 1 or more; 0 in a Connect without a proof.
    pub number: U64,
    /// The proof.
    pub tag: [u8; KEY_BYTES],
}
const _: () = assert!(size_of::<QueueProof>() == 40);

impl SessionKey {
    pub(crate) fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The proof for I/O queue `qid` of controller `cntlid`; `number` is higher than in all proofs before.
    pub fn prove(&self, cntlid: u16, qid: u16, number: u64) -> QueueProof {
        let tag = with_parts(cntlid, qid, number, |parts| mac(&self.0, parts));
        QueueProof { number: number.into(), tag }
    }

    /// Whether the proof is one for this queue, in constant time. The caller refuses numbers that are not
    /// higher than the last.
    pub fn accepts(&self, cntlid: u16, qid: u16, proof: &QueueProof) -> bool {
        with_parts(cntlid, qid, proof.number.get(), |parts| is_mac(&self.0, parts, &proof.tag))
    }
}

fn with_parts<R>(cntlid: u16, qid: u16, number: u64, f: impl FnOnce(&[&[u8]]) -> R) -> R {
    f(&[b"GNStor I/O queue", &cntlid.to_le_bytes(), &qid.to_le_bytes(), &number.to_le_bytes()])
}
