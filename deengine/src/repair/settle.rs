// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SETTLE: starts the settle of a volume, or tells how far it is.

use super::state::{Name, Walk};
use crate::commands::CompletionPermit;
use crate::commands::{Answer, OK};
use crate::controller::Ssd;
use crate::request::Refused;
use gnstor_base::time::Time;
use gnstor_fleet::map::FleetView;
use gnstor_proto::repair::SettleData;
use gnstor_proto::status::Refusal;

/// DW0 of the answer.
const DONE: u32 = 0;
const UNDER_WAY: u32 = 1;
const WAITS: u32 = 2;

impl Ssd {
    /// Executes a SETTLE whose data has arrived.
    pub(crate) fn finish_settle(&mut self, now: Time, permit: CompletionPermit, data: &[u8]) {
        let Ok(data) = SettleData::decode(data) else {
            return self.refuse(permit, 0, Refusal::InvalidField.into(), now);
        };
        match self.settle(now, &data) {
            Ok((dw0, dw1)) => self.complete(permit, Answer { dw0, dw1, ..OK }, now, 0),
            Err(refused) => self.refuse(permit, data.vid.get(), refused, now),
        }
    }

    fn settle(&mut self, now: Time, data: &SettleData) -> Result<(u32, u32), Refused> {
        let fleet = self.table.fleet().ok_or(Refusal::NotServing)?;
        if fleet.known().array().0 != data.array {
            return Err(Refusal::OtherArray.into());
        }
        if data.term < self.table.term() {
            return Err(Refusal::StaleTerm.into());
        }
        #[expect(clippy::cast_possible_truncation, reason = "commands carry the low half")]
        fleet.check_epoch(data.epoch as u32)?;
        if !fleet.serves() {
            return Err(Refusal::NotServing.into());
        }
        let volume = self.table.volume(data.vid).ok_or(Refusal::UnknownVolume)?;
        if volume.entry().generation != data.generation {
            return Err(Refusal::UnknownVolume.into());
        }
        if volume.entry().deleting {
            return Err(Refusal::Deleting.into());
        }
        // The volume has a writer, or is settled: a settle must not touch its copies.
        if !volume.entry().unsettled {
            return Err(Refusal::StaleVersion.into());
        }
        let (name, serial) = (Name::Settle(data.vid), volume.serial());
        if self.repair.walks.get(&name).is_none_or(|walk| walk.serial != serial) {
            self.repair.walks.insert(name, Walk::from(name, data.vid, serial));
            // An answer to a fill from before the barrier may be older than what a TRIM has left since.
            if let Some(fill) = self.repair.walks.get_mut(&Name::Fill) {
                fill.restart_windows(Some(data.vid));
            }
            let next = self.repair_on(now);
            self.wake_at(next);
        }
        let Some(walk) = self.repair.walks.get(&name) else { return Ok((UNDER_WAY, 0)) };
        Ok(match walk.waits_for() {
            _ if walk.is_over() => (DONE, u32::try_from(walk.pulled).unwrap_or(u32::MAX)),
            Some(peer) => (WAITS, peer.into()),
            None => (UNDER_WAY, u32::try_from(walk.pulled).unwrap_or(u32::MAX)),
        })
    }
}
