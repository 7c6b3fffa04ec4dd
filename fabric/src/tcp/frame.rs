// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages of the link and their bytes.

use crate::cm::Refused;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::fabrics::CmRequest;
use std::collections::VecDeque;
use zerocopy::{FromBytes, IntoBytes};

/// Largest data of one frame.
pub const MAX_DATA: usize = 4096;
pub(super) const MAX_FRAME: usize = MAX_DATA + 64;

/// A message of the link.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are named as in the Down and Up they stand for")]
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
    End { why: u16 },
}

/// The sum for the data of a [`Frame::Done`]: the block sum of the data padded with zeros.
///
/// # Panics
/// If the data is longer than a frame's.
pub fn data_sum(data: &[u8]) -> u32 {
    if data.len() == MAX_DATA {
        return block_sum(data);
    }
    let mut block = [0; MAX_DATA];
    block[..data.len()].copy_from_slice(data);
    block_sum(&block)
}

impl Frame {
    /// Appends the frame with its length.
    pub fn encode(&self, out: &mut VecDeque<u8>) {
        let mut body = Body(Vec::with_capacity(64));
        self.put(&mut body);
        debug_assert!(body.0.len() <= MAX_FRAME);
        let length = u32::try_from(body.0.len()).expect("frames are small");
        out.extend(length.to_le_bytes());
        out.extend(body.0);
    }

    /// Appends kind, connection and fields.
    #[inline]
    fn put(&self, b: &mut Body) {
        match self {
            Self::Connect { conn, ssd, request } => {
                b.head(1, *conn).bytes(&ssd.to_le_bytes()).bytes(request.as_bytes())
            }
            Self::Accept { conn, refused } => b.head(2, *conn).bytes(&refused.to_le_bytes()),
            Self::Send { conn, capsule } => b.head(3, *conn).bytes(capsule),
            Self::Ack { conn, count } => b.head(4, *conn).u32(*count),
            Self::ToOwner { conn, tag, address, key, sum, data } => b
                .head(5, *conn)
                .u32(*tag)
                .bytes(&address.to_le_bytes())
                .u32(*key)
                .bytes(&[u8::from(sum.is_some())])
                .u32(sum.unwrap_or(0))
                .bytes(data),
            Self::FromOwner { conn, tag, address, key, bytes } => {
                b.head(6, *conn).u32(*tag).bytes(&address.to_le_bytes()).u32(*key).u32(*bytes)
            }
            Self::Done { conn, tag, status, sum, data } => {
                b.head(7, *conn).u32(*tag).u32(*status).u32(*sum).bytes(data)
            }
            Self::Response { conn, cqe } => b.head(8, *conn).bytes(cqe),
            Self::Close { conn } => b.head(9, *conn),
            Self::Closed { conn } => b.head(10, *conn),
            Self::End { why } => b.head(11, 0).bytes(&why.to_le_bytes()),
        };
    }

    /// Decodes the body of a frame; `None` for bytes that are not one.
    pub fn decode(body: &[u8]) -> Option<Self> {
        let mut at = Cursor(body);
        let kind = at.u8()?;
        let conn = at.u32()?;
        Some(match kind {
            1 => Self::Connect {
                conn,
                ssd: at.u16()?,
                request: CmRequest::read_from_bytes(at.take(32)?).ok()?,
            },
            2 => Self::Accept { conn, refused: at.u16()? },
            3 => Self::Send { conn, capsule: at.take(64)?.try_into().ok()? },
            4 => Self::Ack { conn, count: at.u32()? },
            5 => {
                let (tag, address, key, has, sum) = (at.u32()?, at.u64()?, at.u32()?, at.u8()?, at.u32()?);
                Self::ToOwner { conn, tag, address, key, sum: (has == 1).then_some(sum), data: at.rest()? }
            }
            6 => {
                Self::FromOwner { conn, tag: at.u32()?, address: at.u64()?, key: at.u32()?, bytes: at.u32()? }
            }
            7 => Self::Done { conn, tag: at.u32()?, status: at.u32()?, sum: at.u32()?, data: at.rest()? },
            8 => Self::Response { conn, cqe: at.take(16)?.try_into().ok()? },
            9 => Self::Close { conn },
            10 => Self::Closed { conn },
            11 => Self::End { why: at.u16()? },
            _ => return None,
        })
    }
}

/// The bytes of a frame that is being encoded.
struct Body(Vec<u8>);

impl Body {
    fn head(&mut self, kind: u8, conn: u32) -> &mut Self {
        self.0.push(kind);
        self.u32(conn)
    }
    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
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
