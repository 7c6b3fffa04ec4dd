// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames built by hand: `u32 length of the rest | u8 type | u32 connection | fields`.

use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::fabrics::CmRequest;
use zerocopy::IntoBytes;

/// Types of frames.
pub mod kind {
    #![expect(missing_docs, reason = "names of the format")]
    pub const CONNECT: u8 = 1;
    pub const ACCEPT: u8 = 2;
    pub const SEND: u8 = 3;
    pub const TO_OWNER: u8 = 5;
    pub const FROM_OWNER: u8 = 6;
    pub const DONE: u8 = 7;
    pub const RESPONSE: u8 = 8;
    pub const CLOSE: u8 = 9;
    pub const CLOSED: u8 = 10;
    pub const END: u8 = 11;
}

/// A frame from the array.
#[derive(Clone, Debug)]
pub struct Got {
    /// Type.
    pub kind: u8,
    /// Connection.
    pub conn: u32,
    /// The fields of the frame.
    pub fields: Vec<u8>,
}

impl Got {
    /// 16 bits of the fields at offset `at`; `None` if the fields are shorter.
    pub fn half(&self, at: usize) -> Option<u16> {
        self.fields.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
    }

    /// 32 bits of the fields at offset `at`; 0 if the fields are shorter.
    pub fn word(&self, at: usize) -> u32 {
        let bytes = self.fields.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }
}

/// A frame with its length.
pub fn frame(kind: u8, conn: u32, fields: &[&[u8]]) -> Vec<u8> {
    let fields = fields.concat();
    let length = u32::try_from(5 + fields.len()).expect("frames are small");
    [&length.to_le_bytes()[..], &[kind], &conn.to_le_bytes(), &fields].concat()
}

/// A Connect frame for SSD `ssd`.
pub fn connect(conn: u32, ssd: u16, request: &CmRequest) -> Vec<u8> {
    frame(kind::CONNECT, conn, &[&ssd.to_le_bytes(), request.as_bytes()])
}

/// A capsule.
pub fn send(conn: u32, capsule: &[u8; 64]) -> Vec<u8> {
    frame(kind::SEND, conn, &[capsule])
}

/// The end of a transfer, with the right sum of its data.
pub fn done(conn: u32, tag: u32, status: u32, data: &[u8]) -> Vec<u8> {
    done_with(conn, tag, status, sum_of(data), data)
}

/// As [`done`], with any sum.
pub fn done_with(conn: u32, tag: u32, status: u32, sum: u32, data: &[u8]) -> Vec<u8> {
    frame(kind::DONE, conn, &[&tag.to_le_bytes(), &status.to_le_bytes(), &sum.to_le_bytes(), data])
}

/// The end of a connection.
pub fn close(conn: u32) -> Vec<u8> {
    frame(kind::CLOSE, conn, &[])
}

/// The block sum of data that is padded with zeros.
pub fn sum_of(data: &[u8]) -> u32 {
    let mut block = [0; BLOCK_BYTES as usize];
    let bytes = data.len().min(block.len());
    block[..bytes].copy_from_slice(&data[..bytes]);
    block_sum(&block)
}
