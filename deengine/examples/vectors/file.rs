// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Vector files: a script with the answers of the Rust firmware.

use crate::op::{In, Op, Out};
use crate::play::Player;

const MAGIC: &[u8; 4] = b"GNVS";
const VERSION: u16 = 1;
const HEAD: usize = 16;

/// A named script.
pub(crate) struct Script {
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) ops: Vec<Op>,
}

fn short(value: usize) -> u32 {
    u32::try_from(value).expect("a short script")
}

impl Script {
    /// The file: every operation with what the firmware answers today.
    pub(crate) fn file_bytes(&self) -> Vec<u8> {
        let mut body = Out::default();
        body.u16(u16::try_from(self.name.len()).expect("a short name")).bytes(self.name.as_bytes());
        let mut player = Player::default();
        for op in &self.ops {
            let (bytes, answer) = (op.encode(), player.play(op));
            body.u32(short(bytes.len())).bytes(&bytes).u32(short(answer.len())).bytes(&answer);
        }
        let mut out = Out::default();
        out.bytes(MAGIC).u16(VERSION).u16(0).u32(short(body.0.len())).u32(crc32c::crc32c(&body.0));
        out.bytes(&body.0);
        out.0
    }

    /// The script in a file; `None` for a file that is damaged.
    pub(crate) fn read(file: &str, bytes: &[u8]) -> Option<Self> {
        let (head, body) = bytes.split_at_checked(HEAD)?;
        let mut fields = In(&head[6..]);
        let is_whole = head.starts_with(MAGIC)
            && head[4..6] == VERSION.to_le_bytes()
            && fields.u16()? == 0
            && fields.u32()? as usize == body.len()
            && fields.u32()? == crc32c::crc32c(body);
        if !is_whole {
            return None;
        }
        let mut from = In(body);
        let length = from.u16()?;
        let name = String::from_utf8(from.take(length.into())?.to_vec()).ok()?;
        let mut ops = Vec::new();
        while !from.0.is_empty() {
            let length = from.u32()? as usize;
            ops.push(Op::decode(from.take(length)?)?);
            let length = from.u32()? as usize;
            from.take(length)?;
        }
        Some(Self { file: file.into(), name, ops })
    }
}
