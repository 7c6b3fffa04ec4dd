// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of repair: how far a fill and a scrub are, orders, and SETTLE.

use super::Talk;
use crate::core::{Answer, Command, FillReport, SettleOf, SettleReport};
use gnstor_fabric::admin::{Ask, Data, Reply};
use gnstor_proto::nvme::{Sqe, admin};
use gnstor_proto::repair::{FILL_LID, FillLog, FillState, REPAIR_BYTES, SettleData};
use gnstor_proto::scrub::{SCRUB_LID, ScrubLog};
use gnstor_proto::vendor::opcode;

const DWORDS: u32 = 16;
const _: () = assert!(DWORDS as usize * 4 == REPAIR_BYTES);

impl Talk {
    /// The next capsule, if the core's command is one of repair.
    pub(super) fn ask_of_repair(&self) -> Option<Ask> {
        match &self.command {
            Command::FillLog => Some(log_page(FILL_LID)),
            Command::ScrubLog => Some(log_page(SCRUB_LID)),
            Command::Repair(order) => Some(Ask { sqe: order.command(), data: Data::None }),
            Command::Settle(SettleOf { epoch, array, term, vid, generation }) => {
                let (array, generation) = (array.0, *generation);
                let data = SettleData { term: *term, epoch: *epoch, array, vid: *vid, generation };
                let sqe =
                    Sqe { opcode: opcode::SETTLE, nsid: 1.into(), cdw10: DWORDS.into(), ..Sqe::default() };
                Some(Ask { sqe, data: Data::Out(data.encode()) })
            }
            _ => None,
        }
    }
}

fn log_page(lid: u8) -> Ask {
    let cdw10 = (u32::from(lid) | (DWORDS - 1) << 16).into();
    Ask { sqe: Sqe { opcode: admin::GET_LOG_PAGE, cdw10, ..Sqe::default() }, data: Data::In(REPAIR_BYTES) }
}

/// The answer from the scrub's log page.
pub(super) fn scrub(reply: &Reply) -> Answer {
    match ScrubLog::decode(&reply.data) {
        Ok(log) => Answer::Scrub(log),
        Err(error) => Answer::Lost(format!("its log page of the scrub: {error}")),
    }
}

/// The answer to SETTLE.
pub(super) fn settled(dw0: u32, reply: &Reply) -> Answer {
    Answer::Settled(match dw0 {
        0 => SettleReport::Done,
        2 => SettleReport::WaitsFor(reply.cqe.dw1.get()),
        _ => SettleReport::UnderWay(reply.cqe.dw1.get()),
    })
}

/// The answer from the fill's log page.
pub(super) fn fill(reply: &Reply) -> Answer {
    match FillLog::decode(&reply.data) {
        Ok(log) => Answer::Fill(FillReport {
            epoch: log.epoch,
            incarnation: log.incarnation,
            is_filled: log.state == FillState::Filled,
            is_nothing: log.state == FillState::Nothing,
            waits_for: log.waits_for,
            compared: log.compared,
            all: log.all,
            pulled: log.pulled,
        }),
        Err(error) => Answer::Lost(format!("its log page of the fill: {error}")),
    }
}
