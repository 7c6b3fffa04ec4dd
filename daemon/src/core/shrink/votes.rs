// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An empty SSD takes the place of one that is lost, and voters change, one in each epoch (rule 3a).
//!
//! ```text
//!   SSD 2 votes, and is out                      the empty SSD is seen: `newcomer`
//!   n + 1   SSD 2 is the new one, no voter       decided without it, as it has forgotten what it promised
//!           learns the map, counts up, fills     like an SSD that is back: `grow`
//!   n + 2   an SSD that takes part votes         the number of voters is odd again
//! ```
//! **Every member has the map first.** An SSD asks the voters of its own map for its lease. After two changes
//! of voters, a majority of its old voters may contain no voter that holds the newest map. So voters change
//! only when each SSD that takes part has the map before.
//!
//! **The term anew.** A majority of the voters before has granted the term. After one more change of voters
//! that majority need not have an SSD in common with a majority of the present voters. So the daemon has a
//! majority of the new voters grant the term (TERM TAKE) before it proposes the next map. A map that one of
//! them holds is proposed first.

use super::LEAVES;
use crate::core::effect::Answer;
use crate::core::epoch::Known;
use crate::core::report::{Refusal as Sentence, SsdView, describe};
use crate::core::{CommandId, Core, Owner};
use gnstor_fleet::change::Unchanged;
use gnstor_fleet::leader::Candidate;
use gnstor_fleet::map::{FleetView, Map};
use gnstor_fleet::set::{MAX_SSDS, MAX_VOTERS, SsdSet, may_rest};
use gnstor_fleet::wire;
use gnstor_proto::placement::Rows as _;
use gnstor_proto::placement::map3::{FleetMap3, Ssd3, State3, Vote};
use gnstor_proto::ssd_identity::SsdSays;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::MAX_REPLICAS;
use std::collections::BTreeMap;

/// The voters are new, and are asked for the term.
#[derive(Debug)]
pub(super) struct Anew {
    candidate: Candidate<Known>,
    asked: BTreeMap<u16, CommandId>,
    retry_at: BTreeMap<u16, u64>,
}

impl Anew {
    /// The SSD is asked again when it is back.
    pub(super) fn lost(&mut self, ssd: u16) {
        self.asked.remove(&ssd);
        self.retry_at.remove(&ssd);
    }
}

/// An SSD that answers at the address of another one.
#[derive(Debug)]
pub(in crate::core) struct Newcomer {
    says: SsdSays,
    /// The newcomer has neither a map nor volumes.
    pub(in crate::core) is_empty: bool,
    /// The operator gives it the place.
    is_wanted: bool,
    /// The newcomer may have the place even if the previous SSD had last copies. Their blocks begin empty.
    loses_data: bool,
}

impl Newcomer {
    pub(in crate::core) fn new(says: SsdSays) -> Self {
        Self { says, is_empty: false, is_wanted: false, loses_data: false }
    }

    /// Whether the newcomer states the same identity as before.
    pub(in crate::core) fn is(&self, says: &SsdSays) -> bool {
        self.says == *says
    }
}

impl Core {
    /// Gives the place of an SSD that is out, or of a lost spare, to the empty SSD that answers there. With
    /// `lose_data` also the place of an absent one, whose last copies are lost then.
    pub(in crate::core) fn replace_ssd(
        &mut self,
        now: u64,
        view: &SsdView,
        lose_data: bool,
    ) -> Result<(), Sentence> {
        let ssd = view.index;
        let cannot = |why: String| Err(format!("SSD {ssd} cannot be replaced: {why}"));
        let is_repeated = self.changes.replaced.get(&ssd) == Some(&view.uuid);
        if is_repeated && !self.changes.newcomers.contains_key(&ssd) {
            return Ok(());
        }
        let lost = if view.state == State3::Absent { self.only_on(ssd) } else { Vec::new() };
        if !lost.is_empty() && !lose_data {
            return cannot(format!(
                "it has the last copy of {}{}; start it again, or give these blocks up: with --lose-data they \
                 are empty then",
                describe(&lost),
                self.others_with_copies(ssd)
            ));
        }
        if view.taken_out {
            return cannot(format!(
                "it was taken out; gnstor fleet resume {ssd} first, then look for its note"
            ));
        }
        if let Some(why) = self.members.substitute(ssd) {
            return cannot(format!(
                "{why}; an empty SSD in memory only stands in for it. If the file is lost for good, move it \
                 away, and start the array with --begin-anew {ssd}: this command takes the empty SSD then"
            ));
        }
        let is_only_voter = view.votes && self.epoch.map().is_some_and(|map| map.voters().len() < 2);
        match self.changes.newcomers.get_mut(&ssd) {
            _ if !matches!(view.state, State3::Out | State3::Absent | State3::Spare) => cannot(
                "the map has not dropped it; wait until it has, or take it out (gnstor fleet fail)".into(),
            ),
            _ if is_only_voter => cannot("no other SSD votes".into()),
            Some(newcomer) if newcomer.is_empty => {
                (newcomer.is_wanted, newcomer.loses_data) = (true, view.state == State3::Absent);
                self.changes.given_up.insert(ssd, lost);
                self.change_step(now);
                Ok(())
            }
            _ => {
                let why = view.away.as_deref().unwrap_or("the SSD that the map names is there");
                cannot(format!("{why}; start an SSD with an empty file there (gnstor ssd --index {ssd})"))
            }
        }
    }

    /// Whether the SSD votes and holds no blocks, or is to do so. A witness that was replaced has no vote for
    /// a while.
    pub(in crate::core) fn is_witness(&self, ssd: u16, known: &Ssd3) -> bool {
        // SSDs that join later come behind it.
        let is_last = usize::from(ssd) + 1 == self.members.given();
        known.vote == Vote::Witness || self.config.has_witness && is_last
    }

    /// Number of SSDs that may hold blocks.
    pub(in crate::core) fn with_blocks(&self) -> usize {
        let Some(map) = self.map_of_voters() else { return self.members.connected() };
        (0..).zip(&map.ssds).filter(|(ssd, known)| !self.is_witness(*ssd, known)).count()
    }

    /// The most replicas that a volume can have. An SSD that joins makes no row longer.
    pub(in crate::core) fn most_replicas(&self) -> u8 {
        let width = self.epoch.map().map_or(MAX_REPLICAS.into(), |map| map.map().width());
        u8::try_from(self.with_blocks().min(width)).unwrap_or(u8::MAX).min(MAX_REPLICAS)
    }

    /// The next map, if an SSD takes another one's place or a voter is added.
    pub(super) fn next_voters(&self, map: &FleetMap3) -> Option<FleetMap3> {
        let takes_part = |ssd: &Ssd3| matches!(ssd.state, State3::In | State3::Full);
        let ssds = || (0..MAX_SSDS).zip(&map.ssds);
        let has = |ssd: u16| self.changes.has(ssd, map.epoch);
        let has: SsdSet = (0..MAX_SSDS).filter(|&ssd| has(ssd)).collect();
        let is_known = ssds().filter(|(_, ssd)| takes_part(ssd)).all(|(ssd, _)| has.contains(ssd));
        if !is_known || !has.is_majority_of(map.voters()) {
            return None;
        }
        let term = self.term.number();
        let newcomer = |ssd: u16| self.changes.newcomers.get(&ssd).filter(|newcomer| newcomer.is_wanted);
        let replaced = ssds().filter(|(ssd, known)| match known.state {
            // A spare has no blocks: what the lost one knew is of no use.
            State3::Out | State3::Spare => true,
            // The SSD may have become absent since the operator's call.
            State3::Absent => {
                newcomer(*ssd).is_some_and(|newcomer| newcomer.loses_data) && self.loses_what_was_said(*ssd)
            }
            _ => false,
        });
        if let Some((ssd, newcomer)) = replaced.filter_map(|(ssd, _)| Some((ssd, newcomer(ssd)?))).next() {
            let incarnation = newcomer.says.incarnation;
            let is_absent = map.state(ssd) == Some(State3::Absent);
            let next = |map: &Map| {
                let again = || Ok::<_, Unchanged>(map.again(term));
                let mut next = if is_absent { map.call_lost(ssd, incarnation, term)? } else { again()? };
                if map.voters.contains(ssd) {
                    next.voters = map.with_vote(ssd, false, term)?.voters;
                }
                Ok(next)
            };
            let mut next = wire::change(map, next).ok()?;
            let known = next.ssds.get_mut(usize::from(ssd))?;
            (known.uuid, known.incarnation) = (newcomer.says.uuid, newcomer.says.incarnation);
            return Some(next);
        }
        self.moved_vote(map, has)
    }

    /// The next map, if a vote moves. One more SSD votes first, so that at no moment fewer do. A majority of
    /// the next voters is among the SSDs that have this map: others may be gone, or have forgotten what they
    /// promised.
    fn moved_vote(&self, map: &FleetMap3, has: SsdSet) -> Option<FleetMap3> {
        let (term, voters) = (self.term.number(), map.voters());
        let ssds = || (0..MAX_SSDS).zip(&map.ssds);
        let takes_part = |known: &Ssd3| matches!(known.state, State3::In | State3::Full);
        let is_to_go = |ssd: u16, known: &Ssd3| {
            known.weight <= LEAVES
                && (self.changes.leaves(ssd, known) || self.changes.is_taken_out(ssd, known))
        };
        let leave = ssds().filter(|&(ssd, known)| known.vote == Vote::Voter && is_to_go(ssd, known));
        let leave: SsdSet = leave.map(|(ssd, _)| ssd).collect();
        let leaves = leave.iter().min_by_key(|&ssd| has.contains(ssd));
        let voting: Vec<u16> = map.ssds.iter().filter(|s| s.vote != Vote::None).map(|s| s.node).collect();
        let may = |(ssd, known): &(u16, &Ssd3)| {
            // The incarnation of a witness does not matter: it has no blocks.
            let may_vote = match self.is_witness(*ssd, known) {
                true => self.has_said_who_it_is(*ssd),
                false => takes_part(known) && !self.is_other_content(*ssd),
            };
            known.vote == Vote::None
                && may_vote
                && !is_to_go(*ssd, known)
                && !self.is_silent(*ssd)
                // Nothing is known yet of an SSD that came in by a map of an earlier daemon.
                && self.changes.says(*ssd).is_none_or(|says| says.takes_map3)
        };
        // Voters that were taken out and are resumed vote again: two at a time, so that the number stays odd.
        let ever =
            ssds().filter(|&(ssd, known)| known.weight > LEAVES || self.is_witness(ssd, known)).count();
        let wanted = u32::try_from(ever).map_or(MAX_VOTERS, |ever| ever.min(MAX_VOTERS));
        let lacks_two = voters.len() + 2 <= wanted && ssds().filter(may).count() > 1;
        if may_rest(voters) && leaves.is_none() && !lacks_two {
            return None;
        }
        // Prefer an SSD of a node without a voter.
        let next = ssds().filter(may).min_by_key(|(_, known)| voting.contains(&known.node));
        // Each SSD that may vote does, and their number is even: a drain was called off.
        let may_ever = |(_, known): (u16, &Ssd3)| known.vote == Vote::None && known.weight > LEAVES;
        let is_one_too_many = voters.len() > 2 && !ssds().any(may_ever);
        let last = ssds().rfind(|(_, known)| known.vote == Vote::Voter).map(|(ssd, _)| ssd);
        let (ssd, votes) = match (may_rest(voters), next, leaves) {
            (true, Some(_), Some(leaves)) if voters.len() == MAX_VOTERS => (leaves, false),
            // Without others two votes go, so that the number is odd again.
            (true, None, Some(leaves)) if leave.len() > 1 => (leaves, false),
            (false, Some((ssd, _)), Some(_)) if voters.len() < 3 => (ssd, true),
            (false, _, Some(leaves)) => (leaves, false),
            (_, Some((ssd, _)), _) => (ssd, true),
            (false, None, None) if is_one_too_many => (last?, false),
            (_, None, _) => return None,
        };
        let is_witness =
            votes && map.ssds.get(usize::from(ssd)).is_some_and(|known| self.is_witness(ssd, known));
        let vote = |map: &Map| match is_witness {
            true => map.with_witness(ssd, term),
            false => map.with_vote(ssd, votes, term),
        };
        let mut next = wire::change(map, vote).ok()?;
        if is_witness {
            next.ssds[usize::from(ssd)].vote = Vote::Witness;
        }
        let may_be_decided = has.is_majority_of(next.voters());
        may_be_decided.then_some(next)
    }

    /// The map in use has other voters than the previous one, or names another SSD.
    pub(super) fn follow_voters(&mut self, before: &FleetMap3) {
        let Some(known) = self.epoch.map() else { return };
        let Some(map) = self.map_of_voters() else { return };
        let is_new =
            |(ssd, (was, is)): (u16, (&Ssd3, &Ssd3))| (was.uuid != is.uuid).then_some((ssd, is.uuid));
        let named = (0..).zip(before.ssds.iter().zip(&map.ssds)).filter_map(is_new).collect::<Vec<_>>();
        let (array, term) = (known.array(), self.term.number());
        let mut candidate = Candidate::new(array, term, self.config.instance);
        candidate.active = Some(known.clone());
        if before.voters() != map.voters() {
            let (asked, retry_at) = (BTreeMap::new(), BTreeMap::new());
            self.changes.anew = Some(Anew { candidate, asked, retry_at });
        }
        for (ssd, uuid) in named {
            self.changes.newcomers.remove(&ssd);
            self.changes.replaced.insert(ssd, uuid);
        }
    }

    /// The voters that a change waits for, and why; `None`: none.
    pub(in crate::core) fn voters_missing(&self) -> Option<String> {
        let voters = self.epoch.map()?.voters();
        let round = self.changes.round.as_ref().filter(|round| round.round.decided_at.is_none())?;
        let missing: Vec<String> = voters
            .iter()
            .filter(|&ssd| !round.round.held_by.contains(ssd))
            .map(|ssd| {
                let why = self
                    .changes
                    .why_down(ssd)
                    .or_else(|| round.trouble(ssd))
                    .unwrap_or("it has not answered");
                format!("SSD {ssd} ({why})")
            })
            .collect();
        Some(format!(
            "the fleet map of epoch {} waits for a majority of {} voters; missing: {}",
            round.round.map.epoch(),
            voters.len(),
            missing.join(", ")
        ))
    }

    /// Sends TERM TAKE to new voters.
    pub(super) fn ask_voters_anew(&mut self, now: u64) {
        let Some(voters) = self.epoch.map().map(FleetView::voters) else { return };
        let Some(anew) = &self.changes.anew else { return };
        let is_open = |ssd: &u16| {
            !self.changes.is_disconnected(*ssd)
                && !anew.asked.contains_key(ssd)
                && !anew.candidate.granted.contains(*ssd)
                && anew.retry_at.get(ssd).is_none_or(|&at| at <= now)
        };
        for ssd in voters.iter().filter(is_open).collect::<Vec<_>>() {
            let Some(command) = self.take_command() else { return };
            let id = self.command(ssd, Owner::Anew, command);
            if let Some(anew) = &mut self.changes.anew {
                anew.retry_at.remove(&ssd);
                anew.asked.insert(ssd, id);
            }
        }
    }

    pub(in crate::core) fn anew_answered(&mut self, now: u64, ssd: u16, id: CommandId, answer: Answer) {
        let retry_at = now + self.config.retry_ms;
        let Some((epoch, voters)) = self.epoch.map().map(|map| (map.epoch(), map.voters())) else { return };
        // A vote is that of the SSD which the map names.
        let is_named = !self.is_stranger(ssd);
        let Some(anew) = self.changes.anew.as_mut().filter(|anew| anew.asked.get(&ssd) == Some(&id)) else {
            return;
        };
        anew.asked.remove(&ssd);
        match answer {
            Answer::Promise(promise) if promise.active.epoch() > epoch => {
                return self.depose(ssd, "knows a newer fleet map");
            }
            Answer::Promise(promise) if is_named => anew.candidate.promised(ssd, promise.known()),
            Answer::HigherTerm(_) | Answer::Refused(Refusal::StaleTerm) => {
                return self.depose(ssd, "refused this daemon's term");
            }
            // The SSD does not know yet that it votes.
            _ => drop(anew.retry_at.insert(ssd, retry_at)),
        }
        if anew.candidate.granted.is_majority_of(voters) {
            let held = anew.candidate.held.take().map(|held| held.map);
            self.changes.anew = None;
            if let Some(held) = held.filter(|held| held.epoch() > epoch)
                && let Err(stop) = self.propose_again(&held)
            {
                return self.stop(stop);
            }
        }
        self.change_step(now);
    }

    pub(super) fn anew_wakes_at(&self) -> Option<u64> {
        let anew = self.changes.anew.as_ref()?;
        anew.retry_at.iter().filter(|(ssd, _)| !self.changes.is_disconnected(**ssd)).map(|(_, &at)| at).min()
    }
}
