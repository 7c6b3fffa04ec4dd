// SPDX-License-Identifier: Apache-2.0 OR MIT
//! REPAIR: the daemon's orders to this SSD's repairs. Also the log page of the scrub.

use crate::commands::CompletionPermit;
use crate::commands::OK;
use crate::controller::Ssd;
use crate::request::Refused;
use gnstor_base::time::Time;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::scrub::{Order, RepairOrder};
use gnstor_proto::status::Refusal;

impl Ssd {
    /// An order of the daemon. It has no data.
    pub(crate) fn take_order(&mut self, now: Time, permit: CompletionPermit, sqe: &Sqe) {
        match self.follow_order(now, sqe) {
            Ok(()) => self.complete(permit, OK, now, 0),
            Err(refused) => self.refuse(permit, 0, refused, now),
        }
    }

    fn follow_order(&mut self, now: Time, sqe: &Sqe) -> Result<(), Refused> {
        let RepairOrder { term, order } = RepairOrder::of(sqe).ok_or(Refusal::InvalidField)?;
        if term < self.table.term() {
            return Err(Refusal::StaleTerm.into());
        }
        match order {
            Order::Share(percent) => self.repair.pace.share = percent,
            Order::ScrubStop => self.stop_scrub(),
            Order::ScrubStart => self.start_scrub(now)?,
            Order::FillPause => self.repair.paused_in = Some(term),
            Order::FillResume => {
                self.repair.paused_in = None;
                self.wake_at(now);
            }
        }
        Ok(())
    }
}
