// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Repair: an operator's order to the repairs of the SSDs, and what they say.

use crate::core::RepairView;
use crate::core::failure::Failure;
use crate::core::request::Request;
use gnstor_proto::grpc::{self, RepairOrder, RepairRequest, SsdRepair};
use gnstor_proto::scrub::{Order, ScrubLog, ScrubState};
use gnstor_proto::status::GrpcCode::InvalidArgument;

/// The request, with an order that an SSD can carry out.
pub(super) fn request(message: RepairRequest) -> Result<Request, Failure> {
    let invalid = |why: String| Err(Failure::new(InvalidArgument, why));
    let share = message.share_percent;
    let order = match RepairOrder::try_from(message.order) {
        Ok(RepairOrder::Unspecified) => None,
        Ok(RepairOrder::ScrubStart) => Some(Order::ScrubStart),
        Ok(RepairOrder::ScrubStop) => Some(Order::ScrubStop),
        Ok(RepairOrder::FillPause) => Some(Order::FillPause),
        Ok(RepairOrder::FillResume) => Some(Order::FillResume),
        Ok(RepairOrder::Share) => match u8::try_from(share) {
            Ok(percent @ 1..=100) => Some(Order::Share(percent)),
            _ => return invalid(format!("{share} percent is no share of an SSD: use 1 to 100")),
        },
        Err(_) => {
            return invalid(format!(
                "this daemon knows no order {} to repairs: use one of its version",
                message.order
            ));
        }
    };
    if share != 0 && !matches!(order, Some(Order::Share(_))) {
        return invalid(format!("a share of {share} percent has no meaning with this order: leave it out"));
    }
    Ok(Request::Repair { order })
}

/// The report of an SSD's repairs as a message.
pub(super) fn shown(view: RepairView) -> SsdRepair {
    let (log, away) = match view.says {
        Ok(log) => (log, String::new()),
        Err(why) => (ScrubLog::default(), why),
    };
    let scrub = match log.state {
        ScrubState::Never => grpc::ScrubState::Unspecified,
        ScrubState::Running => grpc::ScrubState::Running,
        ScrubState::Done => grpc::ScrubState::Done,
        ScrubState::Stopped => grpc::ScrubState::Stopped,
    };
    SsdRepair {
        ssd: view.ssd.into(),
        away,
        refused: view.refused.unwrap_or_default(),
        scrub: scrub.into(),
        scrubs_ended: log.ended,
        compared_blocks: log.compared,
        blocks: log.all,
        rotten: log.rotten,
        healed: log.healed,
        differ: log.differ,
        waits_for: log.waits_for.map(u32::from),
        share_percent: log.share.into(),
        fill_paused: log.is_fill_paused,
    }
}
