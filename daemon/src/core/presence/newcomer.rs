// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks whether an SSD that answers in the place of another one is empty.
//!
//! ```text
//!   Identify: another uuid --> MAP GET: none -----------------------------> it may take the place
//!                                 |-- this array's --> VOLUME LIST: none ----------^
//!                                 '-- another array's      '-- volumes --> it stays out; its note says why
//! ```
//! It gets the place only on the operator's order (`gnstor fleet replace`). Otherwise a wrong file, started
//! by mistake, would replace an SSD that could come back.

use crate::core::absence::{OTHER, Step};
use crate::core::report::counted;
use crate::core::shrink::{LEAVES, Newcomer, WHOLE_WEIGHT};
use crate::core::{Answer, Command, Core};
use gnstor_proto::placement::AnyMap;
use gnstor_proto::slba::Vid;
use gnstor_proto::ssd_identity::SsdSays;

impl Core {
    /// The SSD stays out, and is checked again only with the next map.
    pub(super) fn stays_out(&mut self, ssd: u16, why: String) {
        let Some(absence) = self.members.absence_mut(ssd) else { return };
        absence.why = why;
        if let Some(resync) = &mut absence.resync {
            (resync.asked, resync.retry_at) = (None, None);
        }
    }

    /// Handles an SSD whose identity is not the one in the map.
    pub(super) fn look_at_newcomer(&mut self, ssd: u16, says: Option<SsdSays>) {
        // A substitute keeps no block, so it must never get the place.
        if let Some(why) = self.members.substitute(ssd).map(str::to_owned) {
            self.changes.newcomers.remove(&ssd);
            return self.stays_out(ssd, why);
        }
        let Some(says) = says.filter(|says| says.takes_map3) else {
            let why = "it is another SSD than the map names, and of a version without votes: put the right one \
                       back, or an empty one of this version";
            return self.stays_out(ssd, why.into());
        };
        let named = self.map_of_voters().and_then(|map| map.ssds.iter().position(|s| s.uuid == says.uuid));
        if let Some(named) = named {
            let why =
                format!("it is SSD {named} of this array, in the place of another one: start it in its own");
            return self.stays_out(ssd, why);
        }
        let known = self.map_of_voters().and_then(|map| map.ssds.get(usize::from(ssd)));
        let is_witness = known.is_some_and(|known| self.is_witness(ssd, known));
        // A daemon that started with the newcomer there does not know how large the SSD before was.
        let weight = known.map(|known| known.weight).filter(|&weight| weight > LEAVES);
        let share = u128::from(self.whole_bytes_beside(ssd)) * u128::from(weight.unwrap_or(WHOLE_WEIGHT));
        let share = u64::try_from(share / u128::from(WHOLE_WEIGHT)).unwrap_or(u64::MAX);
        let needs = self.members.bytes(ssd).max(share);
        let (has, needs) = (says.capacity_bytes, if is_witness { 0 } else { needs });
        if has < needs {
            let says = if has == 0 { "does not say how large it is" } else { "is smaller" };
            let why = format!(
                "{OTHER}, and {says}: it has room for {has} bytes, and needs {needs}, as the SSD before it or \
                 the smallest other one has; put one there that is at least as large"
            );
            self.changes.newcomers.remove(&ssd);
            return self.stays_out(ssd, why);
        }
        // The check may have been done under an earlier map.
        if !self.changes.newcomers.get(&ssd).is_some_and(|known| known.is(&says)) {
            self.changes.newcomers.insert(ssd, Newcomer::new(says));
        }
        if let Some(resync) = self.members.absence_mut(ssd).and_then(|absence| absence.resync.as_mut()) {
            resync.step = Step::Look;
        }
        self.resync_ask(ssd, Command::MapGet);
    }

    /// The array's map may have been given to it at a start. Without volumes it is as good as empty.
    fn is_ours(&self, map: &AnyMap) -> bool {
        let array = self.map_of_voters().map(|map| map.array);
        matches!(map, AnyMap::Three(map) if Some(map.array) == array)
    }

    /// Takes an answer about the SSD's contents.
    pub(super) fn newcomer_answered(&mut self, now: u64, ssd: u16, answer: Answer) {
        match answer {
            // The SSD never got a map, so no client has written to it. If it has an entry, a round gave it
            // that before its identity was known.
            Answer::Map(None) => self.is_empty_newcomer(now, ssd),
            Answer::Map(Some(map)) if self.is_ours(&map) => {
                if let Some(resync) = self.members.absence_mut(ssd).and_then(|a| a.resync.as_mut()) {
                    resync.step = Step::Newcomer;
                }
                self.resync_ask(ssd, Command::List { from: Vid::MIN });
            }
            Answer::Map(_) => {
                let why =
                    format!("{OTHER}, and is part of another array: put the right one back, or format it");
                self.stays_out(ssd, why);
            }
            Answer::Table { entries, .. } if !entries.is_empty() => {
                let name = &entries[0].name;
                let why =
                    format!("{OTHER}, and has data (volume {name:?}): put the right one back, or format it");
                self.stays_out(ssd, why);
            }
            _ => self.is_empty_newcomer(now, ssd),
        }
    }

    fn is_empty_newcomer(&mut self, now: u64, ssd: u16) {
        if let Some(newcomer) = self.changes.newcomers.get_mut(&ssd) {
            newcomer.is_empty = true;
        }
        let lost = self.only_on(ssd);
        let why = match lost.is_empty() {
            true => format!(
                "{OTHER}, and is empty: gnstor fleet replace {ssd} gives it the place; or put the right one back"
            ),
            false => format!(
                "{OTHER}, and is empty: put the right one back, which has the only copy of {}; or give these \
                 blocks up (gnstor fleet replace {ssd} --lose-data)",
                counted(&lost)
            ),
        };
        self.stays_out(ssd, why);
        self.change_step(now);
    }
}
