// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the SSDs to a serving daemon. The array is its own database: nothing is read from anywhere else.
//!
//! ```text
//!   Maps --all have one--------------> Publish --> Tables --> Reconcile --> serving
//!     |                                   ^  |        |
//!     +--some have none--> Survey --empty-+  +--------+-- another daemon was faster: Maps again
//!     '--its map names voters--> Says --> Elect --> Again --> Tables --> Losses --> Reconcile
//! ```
//! * **Maps**: MAP GET everywhere. The newest (epoch, then term) wins; this daemon's term is above every
//!   term seen. Once a map is found, its members must have answered, and no other SSD ([`super::epoch`]).
//! * **Survey**: an SSD without a map is either part of a fresh array, or was replaced. If there are
//!   volumes, it was replaced: the daemon would lose data if it served the absent copies as zeros, so it
//!   refuses to start. It reads the maps again before that, because another daemon may have made array and
//!   volumes meanwhile.
//! * **Publish**: MAP SET with the new term everywhere, and each member must take it. From here on no member
//!   takes a change from an older daemon, so
//! * **Tables**, read only now, cannot change behind our back.
//! * **Says**, **Elect**, **Again**, **Losses**: [`elect`].
//! * Where no SSDs vote the start goes on without members that are not there: [`degraded`].
//! * **Reconcile**: the highest version of each entry wins. Where SSDs differ, the daemon puts it on all of
//!   them again under a version above all seen. It finishes deletions.

mod degraded;
mod elect;
mod fresh;
mod gone;
mod reconcile;
mod voters;
mod waits;

use super::{Answer, Command, CommandId, Core, GoneVolume, Owner, Phase, Stop};
use elect::next_vid;
use fresh::without_a_map;
use gnstor_proto::placement::{AnyMap, Rows};
use gnstor_proto::slba::Vid;
use gnstor_proto::ssd_identity::SsdSays;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::BTreeSet;
use voters::voters_of;

/// Number of times that a daemon whose term is refused tries the next one at once.
const TRIES_AT_ONCE: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Maps,
    Survey,
    Says,
    Publish,
    Elect,
    Again,
    Tables,
    Losses,
    Reconcile,
}

/// Whether the daemon reaches an SSD.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Reach {
    #[default]
    Unknown,
    /// The SSD has answered since this daemon started.
    Answers,
    /// The SSD has not answered since this daemon started, and its link says that it is not there.
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Progress {
    #[default]
    ToAsk,
    /// The SSD was asked by this command. The answer to an earlier one does not count.
    Asked(CommandId),
    Answered,
}

/// State of the start for one SSD.
#[derive(Clone, Default, Debug)]
struct Probe {
    progress: Progress,
    trouble: Option<String>,
    map: Option<AnyMap>,
    says: Option<SsdSays>,
    /// The epoch that it knew when it granted the term.
    promised: Option<u64>,
    table: Vec<VolumeEntry>,
    /// Whether the SSD's table is read to the end.
    is_listed: bool,
    /// The volumes that are gone.
    gone: Vec<GoneVolume>,
    /// The SSD's identity when its table was read; None if its link had broken after it stated that.
    read_of: Option<SsdSays>,
    reach: Reach,
}

/// A start under way.
#[derive(Debug)]
pub(super) struct Start {
    step: Step,
    probes: Vec<Probe>,
    retry_at: Option<u64>,
    /// Whether another daemon published a newer map meanwhile, so that the start must read everything again.
    again: bool,
    /// A survey found volumes: an SSD that has no map now, when the maps are read after it, is not part of
    /// a fresh array.
    found_volumes: bool,
    /// Time of the step's first answer.
    began: Option<u64>,
    /// The start goes on without these SSDs.
    without: BTreeSet<u16>,
    /// SSDs that are in the places of others. They are not asked to grant the term: a vote is that of the SSD
    /// which the map names.
    strangers: BTreeSet<u16>,
    /// SSDs without a fleet map in an array of format 2 that has volumes. They are told nothing: with the map
    /// they would serve the blocks that they lack as zeros.
    mapless: BTreeSet<u16>,
    /// Number of times that this daemon's term was refused.
    refusals: u32,
    /// Number of times that all was read anew, as links broke.
    reads: u32,
    /// SSDs that the map calls out, and that are there. Their tables tell of deletions that had begun.
    beside: BTreeSet<u16>,
    /// The SSD that is to be the witness.
    witness: Option<u16>,
    /// SSDs of whose tables each tells of all volumes, or all together do. A map may drop them after that.
    known_by: BTreeSet<u16>,
    /// The tables that were read are not enough: what is missing, and what to do.
    lacks: Option<String>,
}

impl Start {
    pub(super) fn new(ssds: usize, has_witness: bool) -> Self {
        let probes = vec![Probe::default(); ssds];
        let last = u16::try_from(ssds.saturating_sub(1)).ok();
        Self {
            step: Step::Maps,
            probes,
            retry_at: None,
            again: false,
            found_volumes: false,
            began: None,
            without: BTreeSet::new(),
            strangers: BTreeSet::new(),
            mapless: BTreeSet::new(),
            refusals: 0,
            reads: 0,
            beside: BTreeSet::new(),
            known_by: BTreeSet::new(),
            witness: last.filter(|_| has_witness),
            lacks: None,
        }
    }

    /// The probes of these SSDs.
    fn of<'a>(&'a self, ssds: &'a BTreeSet<u16>) -> impl Iterator<Item = &'a Probe> {
        ssds.iter().filter_map(|&ssd| self.probes.get(usize::from(ssd)))
    }

    fn enter(&mut self, step: Step) {
        self.step = step;
        self.again = false;
        self.began = None;
        for probe in &mut self.probes {
            probe.progress = Progress::ToAsk;
            probe.trouble = None;
            if matches!(step, Step::Survey | Step::Tables) {
                probe.table.clear();
                probe.gone.clear();
                probe.is_listed = false;
                probe.read_of = None;
            }
        }
    }
}

impl Core {
    pub(super) fn start_wakes_at(&self) -> Option<u64> {
        match &self.phase {
            Phase::Starting(start) => start.retry_at,
            Phase::Serving | Phase::Stopped(_) => None,
        }
    }

    pub(super) fn start_step(&mut self, now: u64) {
        let Phase::Starting(start) = &mut self.phase else { return };
        if start.retry_at.is_some_and(|at| at <= now) {
            start.retry_at = None;
            if start.again {
                start.without.clear();
                start.mapless.clear();
                start.enter(Step::Maps);
            }
            self.ask();
            self.start_check(now);
        }
    }

    /// Gives every SSD that has nothing to do the command of the step.
    pub(super) fn ask(&mut self) {
        let Phase::Starting(start) = &self.phase else { return };
        let mut commands = Vec::new();
        for (ssd, probe) in (0u16..).zip(&start.probes).filter(|(_, p)| p.progress == Progress::ToAsk) {
            let command = match start.step {
                Step::Maps => Command::MapGet,
                Step::Publish | Step::Tables | Step::Reconcile if start.mapless.contains(&ssd) => continue,
                Step::Publish if start.has_newest(ssd) => continue,
                Step::Publish => Command::MapSet(self.epoch.bytes()),
                Step::Says => Command::Identify,
                Step::Elect if start.strangers.contains(&ssd) => continue,
                Step::Elect => match self.elect_command() {
                    Some(command) => command,
                    None => continue,
                },
                Step::Again | Step::Losses => continue,
                Step::Tables | Step::Reconcile
                    if !self.members.contains(ssd) && !start.beside.contains(&ssd) =>
                {
                    continue;
                }
                Step::Tables if probe.is_listed => probe.lists_gone(),
                Step::Survey | Step::Tables | Step::Reconcile => {
                    Command::List { from: next_vid(&probe.table) }
                }
            };
            commands.push((ssd, command));
        }
        for (ssd, command) in commands {
            let id = self.command(ssd, Owner::Start, command);
            if let Phase::Starting(start) = &mut self.phase {
                start.probes[usize::from(ssd)].progress = Progress::Asked(id);
            }
        }
    }

    pub(super) fn start_answered(&mut self, now: u64, ssd: u16, id: CommandId, answer: Answer) {
        let is_member = self.members.contains(ssd);
        let Phase::Starting(start) = &mut self.phase else { return };
        let probe = &mut start.probes[usize::from(ssd)];
        if probe.progress != Progress::Asked(id) {
            return;
        }
        probe.trouble = None;
        probe.progress = Progress::Answered;
        probe.reach = if matches!(answer, Answer::Lost(_)) { probe.reach } else { Reach::Answers };
        match (start.step, answer) {
            (Step::Maps, Answer::Map(map)) => probe.map = map,
            (Step::Says, Answer::Says(says)) => probe.says = says,
            (Step::Elect, Answer::Promise(promise)) => {
                probe.promised = Some(promise.active.epoch());
                self.term.promised(ssd, promise.array, self.config.instance, promise.known());
            }
            (Step::Elect, answer @ (Answer::Refused(Refusal::StaleTerm) | Answer::HigherTerm(_))) => {
                probe.trouble = Some(Refusal::StaleTerm.sentence().into());
                start.again = true;
                self.term.refused(if let Answer::HigherTerm(low) = answer { Some(low) } else { None });
            }
            (Step::Publish, Answer::Done) => {
                if let Some(map) = self.epoch.map() {
                    self.term.granted(ssd, map);
                }
            }
            (Step::Publish, Answer::Refused(refusal @ (Refusal::StaleTerm | Refusal::StaleVersion))) => {
                probe.trouble = Some(refusal.sentence().into());
                start.again |= is_member;
            }
            (Step::Survey | Step::Tables, Answer::Table { entries, more }) => {
                let last = entries.last().map(|e| e.vid);
                probe.table.extend(entries);
                if more && last.is_some_and(|vid| vid < Vid::MAX) {
                    probe.progress = Progress::ToAsk;
                    return self.ask();
                }
                if start.step == Step::Tables {
                    (probe.is_listed, probe.progress) = (true, Progress::ToAsk);
                    return self.ask();
                }
                probe.read_of = probe.says;
            }
            (Step::Tables, Answer::Gone { gone, more }) => {
                if probe.takes_gone(gone, more) {
                    return self.ask();
                }
            }
            (_, answer) => {
                probe.progress = Progress::ToAsk;
                probe.trouble = Some(match answer {
                    Answer::Refused(refusal) => refusal.sentence().into(),
                    Answer::Lost(why) => why,
                    _ => "answered another command".into(),
                });
            }
        }
        self.start_check(now);
    }

    /// Goes on if the step has all answers, or enough of them.
    fn start_check(&mut self, now: u64) {
        // The newest map may name voters that this daemon was not given. Without them no majority answers.
        if self.is_given_more() {
            return self.ask();
        }
        let Phase::Starting(start) = &mut self.phase else { return };
        let began = *start.began.get_or_insert(now);
        let awaits = start.awaits(&self.members);
        let is_open = start.of(&awaits).any(|p| p.progress != Progress::Answered);
        if is_open && !start.again && start.has_enough(&self.term) {
            let over = began + start.patience_ms(&awaits);
            if now >= over {
                start.go_on_without(&awaits);
                return self.start_next(now);
            }
            start.wakes_by(over);
        }
        if start.of(&awaits).any(|p| matches!(p.progress, Progress::Asked(_))) {
            return;
        }
        if start.again || start.of(&awaits).any(|p| p.progress == Progress::ToAsk) {
            start.retry_at = Some(now + self.config.retry_ms);
            if start.again && start.step == Step::Elect {
                start.refusals += 1;
                // Two daemons that start together do not try at the same moments for ever.
                let (retry_ms, instance) = (self.config.retry_ms, self.config.instance);
                let rests = start.refusals > TRIES_AT_ONCE;
                start.retry_at = Some(if rests { now + retry_ms + instance % retry_ms.max(1) } else { now });
            }
            return;
        }
        self.start_next(now);
    }

    fn start_next(&mut self, now: u64) {
        let of_voters = self.map_of_voters().is_some();
        let has_voters = self.config.map_format.has_voters(self.members.connected());
        let Phase::Starting(start) = &mut self.phase else { return };
        if start.step == Step::Maps && start.found_volumes && start.go_on_without_mapless() {
            return self.publish();
        }
        let awaits = start.awaits(&self.members);
        let probes = || start.of(&awaits);
        match start.step {
            Step::Maps if start.newest().is_some_and(|map| !voters_of(map).is_empty()) => {
                start.enter(Step::Says);
            }
            Step::Says if start.is_published() => return self.elect(),
            Step::Says => return self.publish(),
            Step::Elect => return self.elected(now),
            Step::Tables if of_voters => return self.tables_read(now),
            Step::Maps if probes().all(|p| p.map.is_some()) => {
                let is_old = matches!(start.newest(), Some(AnyMap::Two(_)));
                if !is_old || !has_voters || start.is_degraded() {
                    return self.publish();
                }
                // A map of format 3 needs the identities of the SSDs.
                start.enter(Step::Says);
            }
            Step::Maps if start.found_volumes => {
                let without = awaits.iter().zip(probes()).filter(|(_, p)| p.map.is_none());
                let why = without_a_map(without.map(|(ssd, _)| *ssd));
                return self.stop(Stop::Array(why));
            }
            Step::Maps => start.enter(Step::Survey),
            Step::Survey if probes().any(|p| p.table.iter().any(|e| !e.deleting)) => {
                start.found_volumes = true;
                start.enter(Step::Maps);
            }
            Step::Survey if has_voters => start.enter(Step::Says),
            Step::Survey => return self.publish(),
            // The first map is on the SSDs. Now its voters elect.
            Step::Publish if of_voters => start.enter(Step::Maps),
            Step::Publish if self.term.is_elected() || start.is_degraded() => start.enter(Step::Tables),
            Step::Publish => {
                start.again = true;
                start.retry_at = Some(now + self.config.retry_ms);
                return;
            }
            Step::Tables => {
                let newer = probes().flat_map(|p| &p.table).any(|e| e.term > self.term.number());
                if newer {
                    start.again = true;
                    start.retry_at = Some(now + self.config.retry_ms);
                    return;
                }
                start.step = Step::Reconcile;
                return self.reconcile(now);
            }
            Step::Again | Step::Losses | Step::Reconcile => return,
        }
        self.ask();
    }
}
