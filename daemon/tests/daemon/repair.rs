// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated SSD that fills and settles: so many questions take it so long.

use crate::array::SimSsd;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::placement::map3::{FleetMap3, Place3};

/// Log page of the fill.
pub(crate) const FILL_LID: u8 = 0xC3;
const NOTHING: u16 = 0;
const FILLING: u16 = 1;
const FILLED: u16 = 2;

/// What an SSD knows of its fill; lost when it restarts.
#[derive(Default, Debug)]
pub(crate) struct SimFill {
    /// It fills since this epoch, and these rows.
    since: u64,
    rows: Vec<usize>,
    /// So many more questions are answered with *filling*.
    left: u32,
    /// How long a fill takes, in questions.
    pub(crate) takes: u32,
}

fn fills(map: &FleetMap3, index: u16) -> Vec<usize> {
    let place = Some(Place3 { ssd: index, filling: true });
    (0..map.rows.len()).filter(|&row| map.rows[row].places.contains(&place)).collect()
}

impl SimSsd {
    /// It has another map: a walk begins anew when it fills other groups than before.
    pub(super) fn fill_by(&mut self, map: &FleetMap3) {
        let index = self.vote.index();
        let is_named = map.ssds[usize::from(index)].incarnation == self.vote.incarnation;
        let rows = if is_named { fills(map, index) } else { Vec::new() };
        if rows != self.fill.rows {
            self.fill.left = self.fill.takes;
            (self.fill.since, self.fill.rows) = (map.epoch, rows);
        }
    }

    /// It restarts with what it acknowledged. Where it filled it has forgotten which blocks were touched, so
    /// it counts up.
    pub(crate) fn restart(&mut self) {
        if !std::mem::take(&mut self.fill.rows).is_empty() {
            self.lose_writes();
        }
        (self.fill.since, self.fill.left) = (0, 0);
    }

    pub(super) fn fill_log(&mut self) -> Vec<u8> {
        let mut data = vec![0; 64];
        let Some(AnyMap::Three(map)) = &self.map else { return data };
        let state = match (self.fill.rows.is_empty(), self.fill.left) {
            (true, _) => NOTHING,
            (false, 0) => FILLED,
            (false, _) => FILLING,
        };
        let epoch = map.epoch;
        self.fill.left = self.fill.left.saturating_sub(1);
        data[..4].copy_from_slice(b"GNVF");
        data[4] = 1;
        data[6..8].copy_from_slice(&state.to_le_bytes());
        data[8..16].copy_from_slice(&epoch.to_le_bytes());
        data[16..20].copy_from_slice(&self.vote.incarnation.to_le_bytes());
        data[20..22].copy_from_slice(&u16::MAX.to_le_bytes());
        if state == FILLED {
            let log = &self.vote.log;
            log.lock().unwrap().filled(self.vote.index(), self.vote.incarnation, epoch);
        }
        data
    }
}
