// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of repair: how far a fill is.

use super::Talk;
use crate::core::{Answer, Command, FillReport};
use gnstor_fabric::admin::{Ask, Data, Reply};
use gnstor_proto::nvme::{Sqe, admin};

/// Log page of the fill.
const FILL_LID: u32 = 0xC3;
/// Its bytes.
const FILL_BYTES: usize = 64;
/// State: all places have filled.
const FILLED: u16 = 2;

impl Talk {
    /// The next command, where the core's command is one of these.
    pub(super) fn ask_of_repair(&self) -> Option<Ask> {
        match &self.command {
            Command::FillLog => {
                let dwords = u32::try_from(FILL_BYTES / 4 - 1).ok()?;
                let cdw10 = (FILL_LID | dwords << 16).into();
                let sqe = Sqe { opcode: admin::GET_LOG_PAGE, cdw10, ..Sqe::default() };
                Some(Ask { sqe, data: Data::In(FILL_BYTES) })
            }
            _ => None,
        }
    }
}

/// What the fill's log page brought.
pub(super) fn fill(reply: &Reply) -> Answer {
    let data = &reply.data;
    if data.len() < FILL_BYTES || data[..4] != *b"GNVF" {
        return Answer::Lost("its log page of the fill is none".into());
    }
    let u64_at = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap_or_default());
    let u16_at = |at: usize| u16::from_le_bytes([data[at], data[at + 1]]);
    Answer::Fill(FillReport {
        epoch: u64_at(8),
        incarnation: u32::from(u16_at(16)) | u32::from(u16_at(18)) << 16,
        is_filled: u16_at(6) == FILLED,
        waits_for: Some(u16_at(20)).filter(|&ssd| ssd != u16::MAX),
        compared: u64_at(24),
        all: u64_at(32),
        pulled: u64_at(40),
    })
}
