// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated SSD that fills and settles. Each takes it a number of questions.

use crate::array::SimSsd;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::placement::map3::{FleetMap3, Place3, Row3};
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::repair::{FillLog, FillState, SettleData};
use gnstor_proto::scrub::{Order, RepairOrder, ScrubLog, ScrubState};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::Refusal;
use std::collections::BTreeMap;

/// A volume, its generation and its lease epoch.
pub(crate) type Lease = (Vid, u32, u32);

/// State of an SSD's fill; a restart loses it.
#[derive(Default, Debug)]
pub(crate) struct SimFill {
    /// The SSD has been filling since this epoch, with these rows.
    since: u64,
    rows: Vec<usize>,
    /// The SSD restarted in this epoch, and fills by a newer map only.
    forgotten_in: u64,
    /// Number of questions still to be answered with *filling*.
    left: u32,
    /// Length of a fill, in questions.
    pub(crate) takes: u32,
    /// The volumes that it settles, in which epoch, and how many questions each still takes.
    settles: BTreeMap<Lease, (u64, u32)>,
}

fn fills(map: &FleetMap3, index: u16) -> Vec<usize> {
    let place = Some(Place3 { ssd: index, filling: true });
    let fills = |row: &Row3| row.places.contains(&place) || row.incoming.is_some_and(|of| of.ssd == index);
    (0..map.rows.len()).filter(|&row| fills(&map.rows[row])).collect()
}

impl SimSsd {
    /// The SSD takes another map: a walk begins anew when the SSD fills other groups than before.
    pub(super) fn fill_by(&mut self, map: &FleetMap3) {
        let index = self.vote.index();
        let is_named = map.ssds[usize::from(index)].incarnation == self.vote.incarnation;
        let fills_now = is_named && map.epoch > self.fill.forgotten_in;
        let rows = if fills_now { fills(map, index) } else { Vec::new() };
        if rows != self.fill.rows {
            self.fill.left = self.fill.takes;
            (self.fill.since, self.fill.rows) = (map.epoch, rows);
        }
    }

    /// The SSD restarts with what it acknowledged. Where it filled it has forgotten which blocks were
    /// touched. So it counts up, or waits for a newer map, if it serves other groups or is to take over a
    /// place.
    pub(crate) fn restart(&mut self) {
        self.ends.clear();
        if !std::mem::take(&mut self.fill.rows).is_empty() {
            let index = self.vote.index();
            let keeps = match &self.map {
                Some(AnyMap::Three(map)) => {
                    self.fill.forgotten_in = map.epoch;
                    let place = Some(Place3 { ssd: index, filling: false });
                    let comes_in = |row: &Row3| row.incoming.is_some_and(|of| of.ssd == index);
                    map.rows.iter().any(|row| row.places.contains(&place) || comes_in(row))
                }
                _ => false,
            };
            if !keeps {
                self.lose_writes();
            }
        }
        (self.fill.since, self.fill.left) = (0, 0);
        self.fill.settles.clear();
        self.scrub = ScrubLog::default();
    }

    pub(super) fn fill_log(&mut self) -> Vec<u8> {
        let epoch = self.map.as_ref().map_or(0, Rows::epoch);
        let state = match (self.fill.rows.is_empty(), self.fill.left) {
            (true, _) => FillState::Nothing,
            (false, 0) => FillState::Filled,
            (false, _) => FillState::Filling,
        };
        self.fill.left = self.fill.left.saturating_sub(1);
        let incarnation = self.vote.incarnation;
        if state == FillState::Filled {
            self.vote.log.lock().unwrap().filled(self.vote.index(), incarnation, epoch);
        }
        let waits_for = None;
        FillLog { state, epoch, incarnation, waits_for, compared: 1, all: 2, pulled: 0, unreadable: 0 }
            .encode()
    }

    pub(super) fn take_order(&mut self, sqe: &Sqe) -> Result<u32, Refusal> {
        let of = RepairOrder::of(sqe).ok_or(Refusal::InvalidField)?;
        self.check_term(of.term)?;
        match of.order {
            Order::Share(percent) => self.scrub.share = percent,
            Order::ScrubStart => self.scrub.state = ScrubState::Running,
            Order::FillPause => self.scrub.is_fill_paused = true,
            Order::FillResume => self.scrub.is_fill_paused = false,
            Order::ScrubStop => self.scrub.state = ScrubState::Stopped,
        }
        Ok(0)
    }

    /// A settle takes it a number of questions, and begins again with another map.
    pub(super) fn settle(&mut self, data: &[u8]) -> Result<u32, Refusal> {
        let of = SettleData::decode(data).map_err(|_| Refusal::InvalidField)?;
        self.check_term(of.term)?;
        let Some(AnyMap::Three(map)) = &self.map else { return Err(Refusal::InvalidOpcode) };
        if of.array != map.array {
            return Err(Refusal::OtherArray);
        }
        let epoch = map.epoch;
        if of.epoch != epoch {
            return Err(if of.epoch < epoch { Refusal::StaleMap } else { Refusal::MapBehind });
        }
        let entry = self.table.get(&of.vid).filter(|entry| entry.generation == of.generation);
        let entry = entry.filter(|entry| !entry.deleting).ok_or(Refusal::UnknownVolume)?;
        assert!(entry.writer.is_none() && entry.unsettled, "no barrier was put before {of:?}");
        let key = (of.vid, of.generation, entry.lease_epoch);
        let takes = self.fill.takes;
        let settle = self.fill.settles.entry(key).or_insert((epoch, takes));
        if settle.0 != epoch {
            *settle = (epoch, takes);
        }
        if settle.1 > 0 {
            settle.1 -= 1;
            return Ok(1);
        }
        self.vote.log.lock().unwrap().settled(key, self.vote.index(), epoch);
        Ok(0)
    }
}
