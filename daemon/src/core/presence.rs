// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs that go away and come back.
//!
//! ```text
//!   present --ssd_lost--> absent --ssd_found--> look --> map --> table --> compared: present
//!                            ^                   |        |        |        '--> missing volumes: rounds
//!                            '-----ssd_lost------+--------+--------'
//! ```
//! While an SSD is absent no change that needs every SSD is begun: the core refuses it with the SSD's name.
//! The core repeats a change that had begun until the SSD has it. When an SSD comes back, the core gives it
//! the fleet map and compares its table with the daemon's. The core puts a missing or older entry on every
//! SSD again, under a new version. In the end all SSDs hold the same.
//!
//! Where voters decide ([`super::shrink`]), an SSD that the map does not name is brought up to date as well
//! when it is back. It learns the map, so it counts its content up, and says which content it is by then.
//!
//! An SSD that comes back without a fleet map was formatted or replaced. If the array has volumes, the SSD
//! stays absent: with the map it would serve the blocks that it lacks as zeros (protocol rule 1).
//!
//! This module does not say that an SSD's blocks are current. An SSD that lost acknowledged writes knows
//! that, and is filling until a newer map.

mod compare;
mod holders;
mod newcomer;
mod voting;

use super::absence::{Absence, Holders, Resync, Step, WITHOUT_A_MAP};
use super::request::VolumeName;
use super::{Answer, Command, CommandId, Core, Owner, Phase};
use gnstor_fleet::map::FleetView;
use gnstor_proto::placement::Rows as _;
use gnstor_proto::placement::map3::State3;
use gnstor_proto::slba::Vid;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::{BTreeMap, BTreeSet};

/// Changes that an SSD's substitute may take. The SSD itself gets them when it is back.
const OPENED: &str = "opened";
const SHARED: &str = "shared";

impl Core {
    /// SSD `ssd` does not answer any more. Commands to it are still answered, as lost.
    pub fn ssd_lost(&mut self, now: u64, ssd: u16, why: impl Into<String>) {
        // A writer's report from before this moment says nothing about the SSD after its return.
        self.now = self.now.max(now);
        if !matches!(self.phase, Phase::Stopped(_)) {
            let why = why.into();
            if !self.changes.is_to_give_to(ssd) {
                self.part(ssd);
            }
            if let Phase::Starting(start) = &mut self.phase {
                start.lost(ssd, self.now + self.config.retry_ms);
            }
            self.replaced.lost(ssd);
            self.fills.lost(ssd);
            self.settle_lost(ssd);
            self.members.lose(ssd, Absence::new(why.clone()));
            self.changes.lost(ssd, why, self.now);
            self.change_step(self.now);
        }
    }

    /// Ends the SSD's part as a guest: nothing waits for it any longer.
    pub(super) fn part(&mut self, ssd: u16) {
        if !self.members.part(ssd) {
            return;
        }
        self.give_up_answers(&BTreeSet::from([ssd]));
        for vid in self.volumes.keys().copied().collect::<Vec<_>>() {
            self.go_on_without(vid, ssd);
            self.end_round(self.now, vid);
        }
    }

    /// From now on these SSDs' answers count only as votes and as map acknowledgements. The SSDs may still
    /// execute earlier commands for volumes, so the daemon reads their tables only after the answers to
    /// these.
    pub(super) fn give_up_answers(&mut self, ssds: &BTreeSet<u16>) {
        self.commands.retain(|_, (ssd, owner, _)| {
            if !ssds.contains(ssd) {
                return true;
            }
            if matches!(owner, Owner::Round { .. } | Owner::Stray) {
                *owner = Owner::Unawaited;
            }
            matches!(owner, Owner::Hold | Owner::Anew | Owner::Tell | Owner::Repair(_) | Owner::Unawaited)
        });
        for id in self.replaced.give_up(ssds) {
            self.commands.remove(&id);
        }
    }

    /// Whether the SSD still owes answers to commands sent while it was a member.
    fn may_change_its_table(&self, ssd: u16) -> bool {
        self.commands.values().any(|(of, owner, _)| *of == ssd && matches!(owner, Owner::Unawaited))
    }

    /// SSD `ssd` answers again, perhaps with another state than it had.
    pub fn ssd_found(&mut self, now: u64, ssd: u16) {
        self.now = self.now.max(now);
        self.changes.found(ssd);
        match self.phase {
            Phase::Serving if self.members.contains(ssd) => self.resync(ssd),
            // `change_step` below calls `invite`, which brings the SSD up to date for the next map.
            Phase::Serving if self.map_of_voters().is_some() => {}
            // With this map the SSD refuses clients that still use an older map, in which the SSD takes part.
            Phase::Serving => drop(self.command(ssd, Owner::Unawaited, Command::MapSet(self.epoch.bytes()))),
            // A start asks every SSD anyway, again and again.
            Phase::Starting(ref mut start) => {
                start.found(ssd, self.now);
                self.members.back(ssd);
            }
            Phase::Stopped(_) => self.members.back(ssd),
        }
        self.change_step(self.now);
    }

    /// Notes that the start went on without the SSD. The core tries it again, unless its link says that it is
    /// down.
    pub(super) fn ssd_without(&mut self, ssd: u16, why: String) {
        self.members.lose(ssd, Absence::new(why));
        if self.members.contains(ssd) && !self.changes.is_down(ssd) {
            self.resync(ssd);
        }
    }

    /// Sets the addresses of the SSDs, for a fresh map of format 3.
    #[must_use]
    pub fn reached_at(mut self, addresses: Vec<String>) -> Self {
        self.addresses = addresses;
        self
    }

    /// These SSDs of the array are away, for these reasons. Substitutes answer for them: they take permission
    /// entries, and serve nothing. Volumes can be opened, but neither created nor deleted, because a missing
    /// SSD would bring them back.
    #[must_use]
    pub fn standing_in(mut self, stands_in: BTreeMap<u16, String>) -> Self {
        self.members.stand_in(stands_in);
        self
    }

    /// The capacities of these SSDs are assumed: they were not reached, and say their own later.
    #[must_use]
    pub fn assuming(mut self, ssds: &BTreeSet<u16>) -> Self {
        self.members.assume(ssds);
        self
    }

    /// The SSDs that are not there or not up to date, and why.
    pub fn absent(&self) -> BTreeMap<u16, String> {
        let mut missing = self.members.missing(false);
        if let Some(waits) = self.voters_missing() {
            missing.values_mut().for_each(|why| *why = format!("{why}; {waits}"));
        }
        let is_out = |ssd: u16| self.map_of_voters().and_then(|map| map.state(ssd)) == Some(State3::Out);
        for &ssd in self.changes.flapping().iter().filter(|&&ssd| is_out(ssd)) {
            let why = "it came back three times within ten minutes: it stays out until it is resumed";
            missing.entry(ssd).or_insert_with(|| why.into());
        }
        missing
    }

    /// Whether the SSD is absent in the map: it is away and has the only copy of some group. Such an SSD has
    /// no serving lease.
    pub(super) fn is_absent_in_map(&self, ssd: u16) -> bool {
        self.map_of_voters().and_then(|map| map.state(ssd)) == Some(State3::Absent)
    }

    /// A sentence if some SSD is away: a change needs every SSD.
    pub(super) fn needs_everyone(&self, name: &VolumeName, what: &str) -> Option<String> {
        self.needs(name, what, |_| true)
    }

    /// The same for a change that needs every SSD that may serve.
    pub(super) fn needs_serving(&self, name: &VolumeName, what: &str) -> Option<String> {
        self.needs(name, what, |ssd| !self.is_absent_in_map(ssd))
    }

    fn needs(&self, name: &VolumeName, what: &str, which: impl Fn(u16) -> bool) -> Option<String> {
        let mut missing = self.members.missing(what == OPENED || what == SHARED);
        missing.retain(|&ssd, _| which(ssd));
        let down: Vec<_> = missing.iter().map(|(ssd, why)| format!("SSD {ssd} is down ({why})")).collect();
        if down.is_empty() {
            return None;
        }
        Some(format!(
            "volume {name} cannot be {what} now: {}; a change needs every SSD, try again when all are back",
            down.join(", ")
        ))
    }

    pub(super) fn resync_wakes_at(&self) -> Option<u64> {
        self.members.absent().values().filter_map(|absence| absence.resync.as_ref()?.retry_at).min()
    }

    /// The SSDs that are being brought up to date.
    pub(super) fn returning(&self) -> impl Iterator<Item = u16> {
        self.members.absent().iter().filter(|(_, absence)| absence.resync.is_some()).map(|(&ssd, _)| ssd)
    }

    pub(super) fn resync_step(&mut self, now: u64) {
        let is_due = |a: &Absence| a.resync.as_ref().is_some_and(|r| r.retry_at.is_some_and(|at| at <= now));
        let due: Vec<u16> =
            self.members.absent().iter().filter(|(_, a)| is_due(a)).map(|(&ssd, _)| ssd).collect();
        for ssd in due {
            self.resync(ssd);
        }
    }

    /// Brings an SSD up to date. It counts as away until then.
    pub(super) fn resync(&mut self, ssd: u16) {
        // It may have been formatted while it was no member.
        self.replaced.lost(ssd);
        let (step, command) = match self.map_of_voters() {
            Some(_) => (Step::Says, Command::Identify),
            None => (Step::Look, Command::MapGet),
        };
        let asked = Some(self.command(ssd, Owner::Resync, command));
        let resync =
            Resync { asked, retry_at: None, step, table: BTreeMap::new(), holders: Holders::default() };
        self.members.lose(
            ssd,
            Absence { why: "it is back and being brought up to date".into(), resync: Some(resync) },
        );
    }

    pub(super) fn resync_answered(&mut self, now: u64, ssd: u16, id: CommandId, answer: Answer) {
        let retry_ms = self.config.retry_ms;
        // Where voters decide the map names the SSD's uuid: its volumes are of this array.
        let is_joining = self.members.is_joining(ssd) && self.map_of_voters().is_none();
        let Some(answer) = self.vote_resynced(now, ssd, id, answer) else { return };
        let Some(absence) = self.members.absence_mut(ssd) else { return };
        let Some(resync) = absence.resync.as_mut().filter(|resync| resync.asked == Some(id)) else { return };
        resync.asked = None;
        match (resync.step, answer) {
            (_, Answer::Refused(Refusal::StaleTerm)) => self.depose(ssd, "refused this daemon's term"),
            (Step::Map, Answer::Refused(Refusal::StaleVersion)) => {
                self.depose(ssd, "holds a newer fleet map")
            }
            // Nothing is tried again: putting the right SSD in its place ends this connection.
            (Step::Look, Answer::Map(None)) if !self.volumes.is_empty() && !is_joining => {
                absence.why = WITHOUT_A_MAP.into();
            }
            (Step::Look, Answer::Map(_)) => self.ask_to_end_holders(ssd),
            (Step::Map, Answer::Done) => self.has_the_map(ssd),
            (Step::Table, Answer::Table { entries, more }) => {
                let next =
                    entries.last().and_then(|e| Vid::new(e.vid.get().saturating_add(1))).filter(|_| more);
                resync.table.extend(entries.into_iter().map(|entry| (entry.vid, entry)));
                if let Some(from) = next {
                    return self.resync_ask(ssd, Command::List { from });
                }
                let table = std::mem::take(&mut resync.table);
                let is_ours = |e: &VolumeEntry| {
                    e.deleting || self.volumes.get(&e.vid).is_some_and(|v| v.entry.generation == e.generation)
                };
                // The daemon does not try again: formatting the SSD ends this connection.
                if let Some(foreign) = table.values().find(|entry| is_joining && !is_ours(entry)) {
                    absence.why = format!(
                        "it joins and holds volume {:?}, number {}, which is not the array's: format it",
                        foreign.name, foreign.vid
                    );
                    return;
                }
                self.is_back(now, ssd, &table);
            }
            (_, answer) => {
                absence.why = match answer {
                    Answer::Refused(refusal) => format!("it is back but refuses: {}", refusal.sentence()),
                    Answer::Lost(why) => why,
                    _ => "it answered another command".into(),
                };
                resync.retry_at = Some(now + retry_ms);
            }
        }
    }

    /// The SSD has taken the map. Next come its content, if the map does not name it, and its table.
    fn has_the_map(&mut self, ssd: u16) {
        let is_coming = self.members.is_coming(ssd);
        // Where voters decide, the term comes before the table. The grant proves that commands of an earlier
        // connection are over.
        let (step, command) = match self.take_command() {
            Some(take) if self.map_of_voters().is_some() => (Step::Take, take),
            _ if is_coming => (Step::Content, Command::Identify),
            _ => (Step::Table, Command::List { from: Vid::MIN }),
        };
        if let Some(resync) = self.members.absence_mut(ssd).and_then(|a| a.resync.as_mut()) {
            resync.step = step;
        }
        let epoch = self.epoch.map().map_or(0, FleetView::epoch);
        self.changes.knows(ssd, epoch);
        self.resync_ask(ssd, command);
    }

    /// The SSD's table is known: it takes part in changes again, and gets what it lacks.
    fn is_back(&mut self, now: u64, ssd: u16, table: &BTreeMap<Vid, VolumeEntry>) {
        self.members.admit(ssd);
        self.members.back(ssd);
        self.changes.admitted(ssd, now);
        self.give_orders(ssd);
        self.tell_missed(ssd);
        self.compare(now, ssd, table);
        self.change_step(now);
    }

    fn resync_ask(&mut self, ssd: u16, command: Command) {
        let id = self.command(ssd, Owner::Resync, command);
        if let Some(resync) = self.members.absence_mut(ssd).and_then(|absence| absence.resync.as_mut()) {
            resync.asked = Some(id);
        }
    }
}
