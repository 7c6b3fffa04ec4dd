// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD that is there in the place of another one: is it empty?
//!
//! ```text
//!   Identify: another uuid --> MAP GET: none, or this array's --> VOLUME LIST: none --> it may take the place
//!                                 '-- another array's              '-- volumes --> it stays out, and its note says why
//! ```
//! It gets the place when the operator says so (`gnstor fleet replace`): a wrong file that was started by
//! mistake is not to end an SSD that could come back.

use super::Step;
use crate::core::shrink::Newcomer;
use crate::core::{Answer, Command, Core};
use gnstor_proto::placement::AnyMap;
use gnstor_proto::slba::Vid;
use gnstor_proto::ssd_identity::SsdSays;

impl Core {
    /// It is looked at again with the next map only.
    fn stays_out(&mut self, ssd: u16, why: String) {
        let Some(absence) = self.members.absence_mut(ssd) else { return };
        absence.why = why;
        if let Some(resync) = &mut absence.resync {
            (resync.asked, resync.retry_at) = (None, None);
        }
    }

    /// The SSD is not the one that the map names.
    pub(super) fn look_at_newcomer(&mut self, ssd: u16, says: Option<SsdSays>) {
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
        // It may have been looked at before this map.
        if !self.changes.newcomers.get(&ssd).is_some_and(|known| known.is(&says)) {
            self.changes.newcomers.insert(ssd, Newcomer::new(says));
        }
        if let Some(resync) = self.members.absence_mut(ssd).and_then(|absence| absence.resync.as_mut()) {
            resync.step = Step::Look;
        }
        self.resync_ask(ssd, Command::MapGet);
    }

    /// An SSD that is there and out of the map may have been told it. Without volumes it is as good as empty.
    fn is_ours(&self, map: &AnyMap) -> bool {
        let array = self.map_of_voters().map(|map| map.array);
        matches!(map, AnyMap::Three(map) if Some(map.array) == array)
    }

    /// What it has.
    pub(super) fn newcomer_answered(&mut self, now: u64, ssd: u16, answer: Answer) {
        let other = "it is another SSD than the map names";
        match answer {
            Answer::Map(map) if map.as_ref().is_none_or(|map| self.is_ours(map)) => {
                if let Some(resync) = self.members.absence_mut(ssd).and_then(|a| a.resync.as_mut()) {
                    resync.step = Step::Newcomer;
                }
                self.resync_ask(ssd, Command::List { from: Vid::MIN });
            }
            Answer::Map(_) => {
                let why =
                    format!("{other}, and is part of another array: put the right one back, or format it");
                self.stays_out(ssd, why);
            }
            Answer::Table { entries, .. } if !entries.is_empty() => {
                let name = &entries[0].name;
                let why =
                    format!("{other}, and has data (volume {name:?}): put the right one back, or format it");
                self.stays_out(ssd, why);
            }
            _ => {
                if let Some(newcomer) = self.changes.newcomers.get_mut(&ssd) {
                    newcomer.is_empty = true;
                }
                let why = format!(
                    "{other}, and is empty: gnstor fleet replace {ssd} gives it the place; or put the right one \
                     back"
                );
                self.stays_out(ssd, why);
                self.change_step(now);
            }
        }
    }
}
