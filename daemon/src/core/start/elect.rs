// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start of a daemon whose voters decide.
//!
//! ```text
//!   Says     Identify: which content does each SSD have?
//!   Elect    TERM TAKE: a majority of the voters; every other SSD learns the term, too
//!   Again    the map that a voter holds is proposed once more: it may have been decided
//!   Tables   of the members that are there
//!   Losses   the members that are not there, or have other content, are dropped
//! ```
//! A step goes on without an SSD that has not answered for 2 s, where a majority of the voters has. An SSD
//! is known not to be there if this daemon has never reached it, and a try to connect has failed. For such
//! SSDs alone the step waits 0.5 s. No later step waits for such an SSD, and it is lost. Before that the
//! tables say how many replicas the volumes have, by which a loss is judged. One table is enough, of a
//! member with the content that the map means: each change is on all members. The table of an SSD whose link
//! broke since it said who it is counts for nothing. The start reads all anew, and in the end goes on
//! without that SSD. A table counts also if its SSD is dropped as one of the losses: perhaps no other table
//! was read.

use super::voters::{other_number, voters_of};
use super::{Probe, Progress, Reach, Start, Step};
use crate::core::absence::OTHER;
use crate::core::epoch::newest;
use crate::core::members::members_of;
use crate::core::term::Term;
use crate::core::{Command, Core, Phase};
use gnstor_fleet::ArrayId;
use gnstor_fleet::set::SsdSet;
use gnstor_proto::placement::map3::Ssd3;
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::slba::Vid;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::BTreeSet;

/// How long a step waits for SSDs without which a majority of the voters can go on.
const PATIENCE_MS: u64 = 2_000;
/// The same for SSDs that are not there. They may be starting, as this daemon is.
const ABSENT_MS: u64 = 500;
/// Number of times that a start reads all anew for SSDs whose links broke. Then it goes on without them.
const READS: u32 = 3;

impl Start {
    /// One more SSD is connected.
    pub(in crate::core) fn and_another(&mut self) {
        self.probes.push(Probe::default());
    }

    /// The newest map that was found.
    pub(super) fn newest(&self) -> Option<&AnyMap> {
        newest(self.probes.iter().filter_map(|p| p.map.as_ref()))
    }

    /// Whether no daemon can be elected by this map.
    pub(super) fn is_without_voters(&self) -> bool {
        self.newest().is_some_and(|map| matches!(map, AnyMap::Three(_)) && voters_of(map).is_empty())
    }

    /// Whether the daemon may change the map, or propose a held map again.
    pub(in crate::core) fn may_change(&self) -> bool {
        matches!(self.step, Step::Again | Step::Losses)
    }

    /// Whether the volumes are known, so that the daemon can judge losses.
    pub(in crate::core) fn may_propose(&self) -> bool {
        self.step == Step::Losses
    }

    /// An SSD has learned a map of an earlier daemon since it said who it is. By such a map it may have
    /// counted its content up, and its older answer would make it look like another one.
    fn has_newer_promise(&self, awaited: &BTreeSet<u16>) -> bool {
        let known = |probe: &Probe| probe.map.as_ref().map(Rows::epoch);
        self.of(awaited).any(|probe| probe.promised.zip(known(probe)).is_some_and(|(is, was)| is > was))
    }

    /// The SSD is lost: it may have another content when it is back.
    pub(in crate::core) fn lost(&mut self, ssd: u16, retry_at: u64) {
        let Some(probe) = self.probes.get_mut(usize::from(ssd)) else { return };
        probe.says = None;
        if probe.reach != Reach::Answers {
            probe.reach = Reach::None;
            self.began.into_iter().for_each(|began| self.wakes_by(began + ABSENT_MS));
        }
        let Some(probe) = self.probes.get_mut(usize::from(ssd)) else { return };
        let is_said = self.step == Step::Says && probe.progress == Progress::Answered;
        if is_said {
            probe.progress = Progress::ToAsk;
        }
        // The operator may put the right SSD back in this place. The daemon must then ask it for its vote.
        let was_stranger = self.step == Step::Elect && self.strangers.remove(&ssd);
        self.again |= was_stranger;
        if is_said || was_stranger {
            self.wakes_by(retry_at);
        }
    }

    /// The SSD is reached, and has not answered yet. It is asked at once: the step's wait may end soon.
    pub(in crate::core) fn found(&mut self, ssd: u16, now: u64) {
        let Some(probe) = self.probes.get_mut(usize::from(ssd)) else { return };
        if probe.reach == Reach::Answers || self.again {
            return;
        }
        probe.reach = Reach::Unknown;
        self.wakes_by(now);
    }

    /// The start looks again at this time at the latest.
    pub(super) fn wakes_by(&mut self, at: u64) {
        self.retry_at = Some(self.retry_at.map_or(at, |before| before.min(at)));
    }

    /// How long the step waits for these, where a majority of the voters has answered.
    pub(super) fn patience_ms(&self, awaits: &BTreeSet<u16>) -> u64 {
        if matches!(self.newest(), Some(AnyMap::Two(_))) {
            return PATIENCE_MS;
        }
        let mut open = self.of(awaits).filter(|probe| probe.progress != Progress::Answered);
        if open.all(|probe| probe.reach == Reach::None) { ABSENT_MS } else { PATIENCE_MS }
    }

    pub(super) fn answered(&self) -> BTreeSet<u16> {
        let answered = (0u16..).zip(&self.probes).filter(|(_, p)| p.progress == Progress::Answered);
        answered.map(|(ssd, _)| ssd).collect()
    }

    /// SSDs whose tables were read after their links broke: it is not known which SSDs these are.
    fn unknown(&self) -> BTreeSet<u16> {
        let is_unknown = |probe: &Probe| probe.progress == Progress::Answered && probe.read_of.is_none();
        let unknown = (0u16..).zip(&self.probes).filter(|(_, probe)| is_unknown(probe));
        unknown.map(|(ssd, _)| ssd).collect()
    }

    /// Tables of unknown SSDs say nothing of the array.
    fn forget_tables_of(&mut self, unknown: &BTreeSet<u16>) {
        for &ssd in unknown {
            let probe = &mut self.probes[usize::from(ssd)];
            probe.table.clear();
            probe.trouble = Some("it has not said who it is since its link broke".into());
        }
    }

    /// No later step waits for those SSDs in `awaits` that have not answered.
    pub(super) fn go_on_without(&mut self, awaits: &BTreeSet<u16>) {
        let silent = awaits - &self.answered();
        self.without.extend(silent);
    }

    /// No step waits for SSDs that answer at the addresses of others: they grant nothing, and are no part of
    /// the array.
    fn go_on_without_strangers(&mut self) {
        let Some(AnyMap::Three(map)) = self.newest() else { return };
        let is_other = |(probe, known): &(&Probe, &Ssd3)| probe.says.is_some_and(|s| !known.is(&s.uuid));
        let others = (0u16..).zip(self.probes.iter().zip(&map.ssds)).filter(|(_, pair)| is_other(pair));
        self.strangers = others.map(|(ssd, _)| ssd).collect();
        for &ssd in &self.strangers {
            self.probes[usize::from(ssd)].trouble = Some(OTHER.into());
            self.without.insert(ssd);
        }
    }

    /// The step can go on without the SSDs that have not answered.
    pub(super) fn has_enough(&self, term: &Term) -> bool {
        let voters = self.newest().map_or(SsdSet::EMPTY, voters_of);
        let answered = self.answered();
        if matches!(self.newest(), Some(AnyMap::Two(_))) {
            return self.may_do_without_others(&answered);
        }
        let of_voters: SsdSet = voters.iter().filter(|ssd| answered.contains(ssd)).collect();
        match self.step {
            Step::Maps | Step::Says => !voters.is_empty() && of_voters.is_majority_of(voters),
            Step::Elect => term.lead().is_some(),
            Step::Tables => !voters.is_empty() && !answered.is_empty(),
            _ => false,
        }
    }
}

impl Core {
    /// The newest map that was found names SSDs that this daemon was not given: it connects to them, and asks
    /// them, too.
    pub(super) fn is_given_more(&mut self) -> bool {
        let Phase::Starting(start) = &self.phase else { return false };
        let newest = start.newest().filter(|_| start.step == Step::Maps).cloned();
        newest.is_some_and(|newest| self.connect_named(&newest))
    }

    /// Asks for the next term.
    pub(super) fn elect(&mut self) {
        let Phase::Starting(start) = &mut self.phase else { return };
        let terms = start.probes.iter().filter_map(|p| p.map.as_ref()).map(Rows::term);
        if let Err(stop) = self.term.choose(terms) {
            return self.stop(stop);
        }
        start.probes.iter_mut().for_each(|probe| probe.promised = None);
        let says: Vec<_> = start.probes.iter().map(|probe| probe.says).collect();
        start.enter(Step::Elect);
        start.go_on_without_strangers();
        drop(self.changes.take_presumed());
        self.changes.elected_anew();
        for (ssd, says) in (0u16..).zip(says) {
            self.ssd_says(ssd, says);
        }
        self.ask();
    }

    pub(super) fn elect_command(&self) -> Option<Command> {
        let Phase::Starting(start) = &self.phase else { return None };
        let Some(AnyMap::Three(map)) = start.newest() else { return None };
        let (term, instance) = (self.term.number(), self.config.instance);
        Some(Command::TermTake { array: ArrayId(map.array), term, instance })
    }

    /// All SSDs that answer have granted the term, or refused it.
    pub(super) fn elected(&mut self, now: u64) {
        let Phase::Starting(start) = &mut self.phase else { return };
        let Some(lead) = self.term.lead() else {
            start.again = true;
            start.retry_at = Some(now + self.config.retry_ms);
            return;
        };
        if start.has_newer_promise(&start.awaits(&self.members)) {
            start.again = true;
            start.retry_at = Some(now);
            return;
        }
        let named = lead.again.as_ref().map_or(0, |held| held.map().count()).max(lead.active.map().count());
        let count = start.probes.len();
        if named > count || named < self.members.given() {
            let largest = lead.again.as_ref().filter(|held| held.map().count() == named);
            let largest = largest.unwrap_or(&lead.active).map().clone();
            if !self.connect_named(&largest) {
                return self.stop(other_number(&largest, count));
            }
        }
        let Phase::Starting(start) = &mut self.phase else { return };
        for ssd in members_of(lead.active.map()) {
            let probe = &start.probes[usize::from(ssd)];
            match probe.promised.filter(|_| !start.without.contains(&ssd)) {
                Some(epoch) => self.changes.knows(ssd, epoch),
                None => {
                    start.without.insert(ssd);
                    let why = probe.trouble.clone().unwrap_or_else(|| "it does not answer".into());
                    self.changes.presume_down(ssd, why);
                }
            }
        }
        if self.term.rules_out_earlier_maps() {
            // No map is left that was judged by more replicas.
            self.changes.judged = Some(0);
        }
        let Phase::Starting(start) = &mut self.phase else { return };
        start.enter(Step::Again);
        if let Err(stop) = self.adopt_map(lead.active.map().clone()) {
            return self.stop(stop);
        }
        if let Some(again) = lead.again
            && let Err(stop) = self.propose_again(&again)
        {
            return self.stop(stop);
        }
        self.change_step(now);
    }

    /// The tables of the members that are there are read: losses can be judged.
    pub(super) fn tables_read(&mut self, now: u64) {
        let Phase::Starting(start) = &self.phase else { return };
        let awaited = &start.awaits(&self.members) - &start.beside;
        let unknown = start.unknown();
        let answered = &start.answered() - &unknown;
        let is_good =
            |ssd: &u16| awaited.contains(ssd) && self.is_right_table(*ssd) && !self.begins_empty(*ssd);
        let newer = start.of(&awaited).flat_map(|p| &p.table).any(|e| e.term > self.term.number());
        // Each change is on all members. So all of them together have all volumes, also where each has lost
        // writes. An SSD that is out is not needed, nor is a newcomer in its place.
        let are_all_there = start.without.is_disjoint(self.members.all()) && answered.is_superset(&awaited);
        let good: BTreeSet<u16> = answered.iter().copied().filter(is_good).collect();
        let is_known = are_all_there || !good.is_empty();
        let lacks = (!is_known).then(|| self.tables_missing(&answered));
        let silent: Vec<u16> =
            self.members.all().iter().filter(|ssd| !answered.contains(ssd)).copied().collect();
        let fewest = start.of(&awaited).flat_map(|p| &p.table).map(|entry| entry.replicas).min();
        let Phase::Starting(start) = &mut self.phase else { return };
        start.forget_tables_of(&unknown);
        let reads_anew = !unknown.is_empty() && start.reads < READS;
        if newer || !is_known || reads_anew {
            start.reads += u32::from(reads_anew);
            start.lacks = lacks;
            start.again = true;
            start.retry_at = Some(now + self.config.retry_ms);
            return;
        }
        for ssd in silent {
            let why = start.probes[usize::from(ssd)].trouble.clone();
            start.without.insert(ssd);
            self.changes.presume_down(ssd, why.unwrap_or_else(|| "it does not answer".into()));
        }
        self.changes.found_fewest = fewest;
        start.known_by = if good.is_empty() { &awaited & &answered } else { good };
        start.enter(Step::Losses);
        self.change_step(now);
    }

    /// The table was read of an SSD with the content that the map means.
    fn is_right_table(&self, ssd: u16) -> bool {
        let Phase::Starting(start) = &self.phase else { return false };
        let known = self.map_of_voters().and_then(|map| map.ssds.get(usize::from(ssd)));
        let read_of = start.probes.get(usize::from(ssd)).and_then(|probe| probe.read_of);
        known
            .zip(read_of)
            .is_some_and(|(known, of)| known.is(&of.uuid) && known.incarnation == of.incarnation)
    }

    /// Why no table of the SSDs that are there is trusted, and what to do.
    fn tables_missing(&self, answered: &BTreeSet<u16>) -> String {
        let Phase::Starting(start) = &self.phase else { return String::new() };
        let list = |ssds: &[u16]| ssds.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let is_missing = |ssd: &u16| start.without.contains(ssd) || !answered.contains(ssd);
        let missing: Vec<u16> = self.members.all().iter().copied().filter(is_missing).collect();
        let there: Vec<u16> = self.members.all().iter().copied().filter(|ssd| !is_missing(ssd)).collect();
        let has = match there.is_empty() {
            true => "no SSD that the fleet map names has answered".into(),
            false => format!("SSD {} lost writes, or began empty, and may lack volumes", list(&there)),
        };
        let is_stranger = |ssd: &&u16| self.is_stranger(**ssd);
        let strangers: Vec<u16> = missing.iter().filter(is_stranger).copied().collect();
        let why = match strangers.is_empty() {
            true => String::new(),
            false => format!(" (in the place of SSD {} is another one)", list(&strangers)),
        };
        format!("SSD {} with its volumes: {has}; start SSD {} again{why}", list(&missing), list(&missing))
    }

    /// No change of the map is under way: the start goes on.
    pub(in crate::core) fn start_changed(&mut self, now: u64) {
        let Phase::Starting(start) = &mut self.phase else { return };
        match start.step {
            Step::Again => {
                let is_out = |ssd: &u16| {
                    let probe = start.probes.get(usize::from(*ssd));
                    !self.members.contains(*ssd) && probe.is_some_and(|probe| probe.promised.is_some())
                };
                let ssds = 0..u16::try_from(start.probes.len()).unwrap_or(u16::MAX);
                start.beside = ssds.filter(is_out).collect();
                start.enter(Step::Tables);
                self.ask();
            }
            Step::Losses => {
                start.step = Step::Reconcile;
                self.reconcile(now);
            }
            _ => {}
        }
    }
}

/// The volume id from which the next page of a table begins.
pub(super) fn next_vid(table: &[VolumeEntry]) -> Vid {
    table.last().and_then(|e| Vid::new(e.vid.get().saturating_add(1))).unwrap_or(Vid::MIN)
}
