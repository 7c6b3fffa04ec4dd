// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD that is back ends the earlier holders of client ids before it gets the fleet map. With its map it
//! may serve by the entries that it has.

use super::Step;
use crate::core::{Answer, Command, Core};

impl Core {
    /// Sends the CLIENT ENDs. The SSD has the identity in the map, or the array has no voters.
    pub(super) fn ask_to_end_holders(&mut self, ssd: u16) {
        if let Some(resync) = self.members.absence_mut(ssd).and_then(|absence| absence.resync.as_mut()) {
            (resync.step, resync.asked) = (Step::Holders, None);
        }
        self.end_all_holders(ssd);
        self.give_map_when_ended(ssd);
    }

    /// An SSD has answered a CLIENT END. If it is on its way back, it may go on.
    pub(in crate::core) fn holders_ended(&mut self, now: u64, ssd: u16, answer: &Answer) {
        let retry_at = now + self.config.retry_ms;
        let Some(absence) = self.members.absence_mut(ssd) else { return };
        let waits = |resync: &&mut super::Resync| resync.step == Step::Holders && resync.retry_at.is_none();
        let Some(resync) = absence.resync.as_mut().filter(waits) else { return };
        match answer {
            Answer::Done => return self.give_map_when_ended(ssd),
            Answer::Refused(refusal) => {
                absence.why = format!("it is back but refuses: {}", refusal.sentence());
            }
            Answer::Lost(why) => absence.why.clone_from(why),
            _ => absence.why = "it answered another command".into(),
        }
        resync.retry_at = Some(retry_at);
    }

    fn give_map_when_ended(&mut self, ssd: u16) {
        if self.replaced.is_awaited(ssd) {
            return;
        }
        let (step, command) = match self.map_of_voters().and_then(|_| self.take_command()) {
            Some(take) => (Step::Take, take),
            None => (Step::Map, Command::MapSet(self.epoch.bytes())),
        };
        if let Some(resync) = self.members.absence_mut(ssd).and_then(|absence| absence.resync.as_mut()) {
            resync.step = step;
        }
        self.resync_ask(ssd, command);
    }
}
