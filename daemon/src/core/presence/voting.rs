// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD that is back in an array whose voters decide: its promise says which map it has.

use super::Step;
use crate::core::absence::OTHER;
use crate::core::effect::WireMap;
use crate::core::{Answer, Command, CommandId, Core};
use gnstor_fleet::map::FleetView;
use gnstor_proto::placement::Rows as _;
use gnstor_proto::placement::map3::State3;
use gnstor_proto::slba::Vid;
use gnstor_proto::ssd_identity::SsdSays;
use gnstor_proto::status::Refusal;

impl Core {
    /// The steps of an array whose voters decide. Returns the answer if it is for other steps.
    pub(super) fn vote_resynced(
        &mut self,
        now: u64,
        ssd: u16,
        id: CommandId,
        answer: Answer,
    ) -> Option<Answer> {
        if self.map_of_voters().is_none() {
            return Some(answer);
        }
        let epoch = self.epoch.map()?.epoch();
        let is_coming = self.members.is_coming(ssd);
        let known = self.map_of_voters()?.ssds.get(usize::from(ssd))?.clone();
        let may_replace = is_coming || known.state == State3::Absent;
        let resync = self.members.absence_mut(ssd).and_then(|absence| absence.resync.as_mut());
        let Some(resync) = resync.filter(|resync| resync.asked == Some(id)) else {
            return Some(answer);
        };
        let next = match (resync.step, &answer) {
            (Step::Says, Answer::Says(says)) if says.is_some_and(|says| known.is(&says.uuid)) => {
                self.ask_to_end_holders(ssd);
                self.ssd_says(ssd, *says);
                self.change_step(now);
                return None;
            }
            (Step::Says, Answer::Says(says)) => {
                self.another_says(ssd, *says, may_replace);
                self.change_step(now);
                return None;
            }
            (Step::Look, Answer::Map(_)) | (Step::Newcomer, Answer::Table { .. }) if may_replace => {
                self.newcomer_answered(now, ssd, answer);
                return None;
            }
            (Step::Content, Answer::Says(says)) => {
                let says = *says;
                // A spare has never had a place: its content is that of the map.
                let least = known.incarnation.saturating_add(u32::from(known.state != State3::Spare));
                if says.is_none_or(|says| says.incarnation < least) {
                    return Some(Answer::Lost("it has not counted its content up by the map yet".into()));
                }
                self.ssd_says(ssd, says);
                Step::Table
            }
            (Step::Take, Answer::HigherTerm(_)) => return Some(Answer::Refused(Refusal::StaleTerm)),
            (Step::Take, Answer::Refused(Refusal::StaleTerm)) | (Step::Look, _) => return Some(answer),
            (Step::Take, Answer::Promise(promise)) if promise.active.epoch() > epoch => {
                if !self.changes.is_telling(promise.active.epoch()) {
                    self.depose(ssd, "knows a newer fleet map");
                    return None;
                }
                Step::Table
            }
            (Step::Take, Answer::Promise(promise)) if promise.active.epoch() == epoch => Step::Table,
            // An SSD without a map, or of another array, refuses. Its answer to the map gives the reason.
            (Step::Take, Answer::Promise(_) | Answer::Refused(_)) => Step::Map,
            // The SSD has learned a map meanwhile. The next step asks which one.
            (Step::Map, Answer::Refused(Refusal::StaleVersion)) => Step::Take,
            _ => return Some(answer),
        };
        if next == Step::Table {
            self.changes.knows(ssd, epoch);
        }
        self.go_on_to(ssd, resync_step_of(next, &answer, is_coming))
    }

    /// Handles an SSD whose identity is not the one in the map. It may take that SSD's place, or it stays
    /// out.
    fn another_says(&mut self, ssd: u16, says: Option<SsdSays>, may_replace: bool) {
        self.ssd_says(ssd, says);
        match may_replace {
            true => self.look_at_newcomer(ssd, says),
            false => self.stays_out(ssd, OTHER.into()),
        }
    }

    /// Sends the command of this step. Returns an answer if the command cannot be sent.
    fn go_on_to(&mut self, ssd: u16, step: Step) -> Option<Answer> {
        if step == Step::Table && self.may_change_its_table(ssd) {
            return Some(Answer::Lost("it has not done what it was given before".into()));
        }
        let command = match step {
            Step::Content => Command::Identify,
            Step::Table => Command::List { from: Vid::MIN },
            Step::Map => Command::Activate(WireMap::of(self.epoch.map()?, self.epoch.bytes())),
            _ => self.take_command()?,
        };
        if let Some(resync) = self.members.absence_mut(ssd).and_then(|absence| absence.resync.as_mut()) {
            resync.step = step;
        }
        self.resync_ask(ssd, command);
        None
    }

    /// TERM TAKE with this daemon's term.
    pub(in crate::core) fn take_command(&self) -> Option<Command> {
        let (term, instance) = (self.term.number(), self.config.instance);
        Some(Command::TermTake { array: self.epoch.map()?.array(), term, instance })
    }
}

/// A future guest has the map. The next step asks which content it has by then.
fn resync_step_of(next: Step, answer: &Answer, is_coming: bool) -> Step {
    let has_said = matches!(answer, Answer::Says(_));
    if next == Step::Table && is_coming && !has_said { Step::Content } else { next }
}
