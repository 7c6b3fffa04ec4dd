// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD that is back ends the earlier holders of client ids before it gets the fleet map. With its map it
//! may serve by the entries that it has.

use crate::core::absence::{Holders, Resync, Step};
use crate::core::{Answer, Command, Core};
use gnstor_proto::slba::ClientId;
use std::collections::BTreeSet;

/// Most CLIENT ENDs of an SSD that is back that are under way at a time.
const MOST_HOLDERS: usize = 64;

impl Core {
    fn resync_of(&mut self, ssd: u16) -> Option<&mut Resync> {
        self.members.absence_mut(ssd)?.resync.as_mut()
    }

    /// The SSD is the one that the map names, or is of an array without voters.
    pub(super) fn ask_to_end_holders(&mut self, ssd: u16) {
        let to_ask = self.unended_holders(ssd);
        if let Some(resync) = self.resync_of(ssd) {
            (resync.step, resync.asked) = (Step::Holders, None);
            resync.holders = Holders { to_ask, asked: BTreeSet::new() };
        }
        self.end_next_holders(ssd);
    }

    /// An SSD has answered a CLIENT END. If its return waits for it, it goes on.
    pub(in crate::core) fn holders_ended(
        &mut self,
        now: u64,
        ssd: u16,
        of: (ClientId, u64),
        answer: &Answer,
    ) {
        let retry_at = now + self.config.retry_ms;
        let Some(absence) = self.members.absence_mut(ssd) else { return };
        let Some(resync) = absence.resync.as_mut().filter(|resync| resync.step == Step::Holders) else {
            return;
        };
        if !resync.holders.asked.remove(&of) {
            return;
        }
        match answer {
            Answer::Done => return self.end_next_holders(ssd),
            Answer::Refused(refusal) => {
                absence.why = format!("it is back but refuses: {}", refusal.sentence());
            }
            Answer::Lost(why) => absence.why.clone_from(why),
            _ => absence.why = "it answered another command".into(),
        }
        resync.holders = Holders::default();
        resync.retry_at = Some(retry_at);
    }

    fn end_next_holders(&mut self, ssd: u16) {
        let Some(resync) = self.resync_of(ssd) else { return };
        let Holders { to_ask, asked } = &mut resync.holders;
        let mut next = Vec::new();
        while asked.len() < MOST_HOLDERS
            && let Some(of) = to_ask.pop_first()
        {
            asked.insert(of);
            next.push(of);
        }
        let is_over = asked.is_empty();
        next.into_iter().for_each(|of| self.end_holders(ssd, of, None));
        if is_over {
            self.give_map(ssd);
        }
    }

    fn give_map(&mut self, ssd: u16) {
        let (step, command) = match self.map_of_voters().and_then(|_| self.take_command()) {
            Some(take) => (Step::Take, take),
            None => (Step::Map, Command::MapSet(self.epoch.bytes())),
        };
        if let Some(resync) = self.resync_of(ssd) {
            resync.step = step;
        }
        self.resync_ask(ssd, command);
    }
}
