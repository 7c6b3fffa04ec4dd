// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MAP HOLD: the voters decide the next map, and say which SSDs that lose a place have said goodbye.

use super::state::Proposed;
use super::wait::History;
use super::{Answer, Command, CommandId, Core, FleetView, OTHER, Owner, Refusal};
use crate::core::report::MapChange;
use gnstor_fleet::lease::Timing;
use gnstor_fleet::set::SsdSet;

impl Proposed {
    /// Makes the map active if a majority of these voters holds it and the leases that it ends are over.
    pub(super) fn look(&mut self, now: u64, voters: SsdSet, history: &mut History) {
        if self.is_active {
            return;
        }
        let seen = self.round.decided_at.map_or(now, |at| self.wait.look(now, at));
        let gone = self.round.gone(voters);
        self.is_active = self.round.may_activate(seen, Timing::DEFAULT_MS, gone);
        if self.is_active {
            let map = &self.round.map;
            let (epoch, deprived) = (map.epoch(), map.deprived());
            let stopped = deprived.iter().filter(|ssd| gone.contains(*ssd)).collect();
            let waited_ms = self.round.decided_at.map_or(0, |at| now.saturating_sub(at));
            tracing::info!(epoch, ?deprived, ?stopped, waited_ms, "the fleet map is made");
            history.push(MapChange { epoch, deprived, stopped, waited_ms });
        }
    }
}

impl Core {
    /// Sends MAP HOLD to each voter that is connected and has not been asked. A start may have gone on
    /// without one that answers since. Without its vote the map of that start might never be decided.
    pub(super) fn ask_to_hold(&mut self, now: u64) {
        let (term, instance) = (self.term.number(), self.config.instance);
        let Some(voters) = self.epoch.map().map(FleetView::voters) else { return };
        let Some(proposed) = self.changes.round.as_ref().filter(|round| !round.is_active) else { return };
        let map = proposed.wire();
        let is_open = |ssd: &u16| !self.changes.is_disconnected(*ssd) && proposed.is_to_be_asked(*ssd, now);
        let open: Vec<u16> = voters.iter().filter(is_open).collect();
        for ssd in open {
            let id = self.command(ssd, Owner::Hold, Command::MapHold { term, instance, map: map.clone() });
            if let Some(proposed) = &mut self.changes.round {
                proposed.asked(ssd, id);
            }
        }
    }

    pub(in crate::core) fn hold_answered(&mut self, now: u64, ssd: u16, id: CommandId, answer: Answer) {
        let Some(voters) = self.epoch.map().map(FleetView::voters) else { return };
        let retry_at = now + self.config.retry_ms;
        // Only the SSD that the map names has a vote.
        let is_named = !self.is_stranger(ssd);
        let Some(proposed) = self.changes.round.as_mut() else { return };
        if !proposed.was_asked(ssd, id) {
            return;
        }
        match answer {
            Answer::Held(gone) if is_named => {
                proposed.round.heard_goodbyes(ssd, gone);
                proposed.round.held(ssd, voters, now);
            }
            Answer::Held(_) => proposed.failed(ssd, OTHER.into(), retry_at),
            Answer::Refused(Refusal::StaleTerm) => return self.depose(ssd, "refused this daemon's term"),
            Answer::Refused(Refusal::StaleVersion) if !proposed.is_active => {
                return self.depose(ssd, "knows a newer fleet map");
            }
            Answer::Refused(refusal) => proposed.failed(ssd, refusal.sentence().into(), retry_at),
            Answer::Lost(why) => proposed.failed(ssd, why, retry_at),
            _ => proposed.failed(ssd, "it answered another command".into(), retry_at),
        }
        self.change_step(now);
    }
}
