// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counters of the events in worlds. They show which faults and paths a campaign has met.

mod paths;

use gnstor_proto::status::Refusal;
pub use paths::Path;
use std::collections::BTreeMap;

/// Number of seeds in which each counter should count.
pub const ENOUGH: u64 = 1_000;

/// The refusals that clients of these worlds get. Others need what is not here: full SSDs, authentication,
/// operators' commands. Some are too rare to be asked for.
const REFUSED: [Refusal; 11] = [
    Refusal::UnknownVolume,
    Refusal::NotAReader,
    Refusal::LeaseExpired,
    Refusal::StaleMap,
    Refusal::MapBehind,
    Refusal::NotHereYet,
    Refusal::AskTheFirst,
    Refusal::NotServing,
    Refusal::BadChecksum,
    Refusal::Deleting,
    Refusal::GroupWaits,
];

/// A fault that happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "`name` says what each is")]
pub enum Fault {
    Late,
    Reset,
    Closed,
    Still,
    Killed,
    PowerCut,
    CutInWrite,
    LinkCut,
    Media,
    DaemonKilled,
    ClientKilled,
    Stalled,
    Apart,
    Storm,
    Torn,
    LateData,
    HandedOn,
    Overtaken,
    LastLost,
    Drift,
    Rot,
    Repeated,
    Leapt,
    LeapInWait,
    RotBeside,
    RotRecord,
    Stopped,
    SlowDie,
    KilledBehindDelete,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 29] = [
        Self::Late,
        Self::Reset,
        Self::Closed,
        Self::Still,
        Self::Killed,
        Self::PowerCut,
        Self::CutInWrite,
        Self::LinkCut,
        Self::Media,
        Self::DaemonKilled,
        Self::ClientKilled,
        Self::Stalled,
        Self::Apart,
        Self::Storm,
        Self::Torn,
        Self::LateData,
        Self::HandedOn,
        Self::Overtaken,
        Self::LastLost,
        Self::Drift,
        Self::Rot,
        Self::Repeated,
        Self::Leapt,
        Self::LeapInWait,
        Self::RotBeside,
        Self::RotRecord,
        Self::Stopped,
        Self::SlowDie,
        Self::KilledBehindDelete,
    ];

    /// What it is, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Late => "a message was late",
            Self::Reset => "a connection was reset",
            Self::Closed => "an SSD closed a queue",
            Self::Still => "an SSD stood still",
            Self::Killed => "an SSD was killed",
            Self::PowerCut => "an SSD lost its power between two steps",
            Self::CutInWrite => "an SSD lost its power inside a write",
            Self::LinkCut => "a link was cut in one direction",
            Self::Media => "media had errors",
            Self::DaemonKilled => "the daemon was killed",
            Self::ClientKilled => "a client was killed",
            Self::Stalled => "a client's kernel stood still",
            Self::Apart => "an SSD and clients were cut off from the others",
            Self::Storm => "all SSDs were killed one after another",
            Self::Torn => "voters and the daemon died when a map was active",
            Self::LateData => "data of a write was late while maps changed",
            Self::HandedOn => "a writer died, and others opened its volume",
            Self::Overtaken => "an SSD was to fill while a kernel stood still",
            Self::LastLost => "the last copy of groups lost its power",
            Self::Drift => "a daemon's clock ran off",
            Self::Rot => "a bit of a stored block flipped",
            Self::Repeated => "a call was sent twice with one request id",
            Self::Leapt => "a clock leapt ahead",
            Self::LeapInWait => "a daemon's clock leapt when a map was held",
            Self::RotBeside => "a bit of a stored block flipped beside load",
            Self::RotRecord => "a bit of the record beside a stored block flipped",
            Self::Stopped => "an SSD was stopped in order",
            Self::SlowDie => "a die was slow",
            Self::KilledBehindDelete => "the daemon was killed when it had carried a Delete out",
        }
    }
}

/// A kind of change from one map to the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "`name` says what each is")]
pub enum Change {
    PlaceLost,
    PlaceFills,
    PlaceServes,
    FillLost,
    PlaceMoved,
    First,
    SsdOut,
    SsdAbsent,
    SsdBack,
    AbsentOut,
    SsdIn,
    Voters,
    Leaves,
    ComesIn,
}

impl Change {
    /// All kinds.
    pub const ALL: [Self; 14] = [
        Self::PlaceLost,
        Self::PlaceFills,
        Self::PlaceServes,
        Self::FillLost,
        Self::PlaceMoved,
        Self::First,
        Self::SsdOut,
        Self::SsdAbsent,
        Self::SsdBack,
        Self::AbsentOut,
        Self::SsdIn,
        Self::Voters,
        Self::Leaves,
        Self::ComesIn,
    ];

    /// What it is, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::PlaceLost => "a map took a place that served",
            Self::PlaceFills => "a map gave a hole to an SSD",
            Self::PlaceServes => "a place that had filled served",
            Self::FillLost => "a map took a place that filled",
            Self::PlaceMoved => "a map gave a place to another SSD",
            Self::First => "a group had another first",
            Self::SsdOut => "a map dropped an SSD",
            Self::SsdAbsent => "a map called an SSD absent",
            Self::SsdBack => "a map took an absent SSD back",
            Self::AbsentOut => "a map dropped an absent SSD",
            Self::SsdIn => "a map took in an SSD that was out",
            Self::Voters => "other SSDs voted",
            Self::Leaves => "a map said that an SSD leaves",
            Self::ComesIn => "an SSD came in for one that leaves",
        }
    }
}

/// Counters.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    faults: BTreeMap<Fault, u64>,
    paths: BTreeMap<Path, u64>,
    refusals: BTreeMap<u8, u64>,
    changes: BTreeMap<Change, u64>,
}

impl Stats {
    pub(crate) fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(crate) fn path(&mut self, path: Path) {
        *self.paths.entry(path).or_default() += 1;
    }

    pub(crate) fn change(&mut self, change: Change) {
        *self.changes.entry(change).or_default() += 1;
    }

    pub(crate) fn refusal(&mut self, refusal: Refusal) {
        *self.refusals.entry(refusal as u8).or_default() += 1;
    }

    /// How often this fault happened.
    pub fn of_fault(&self, fault: Fault) -> u64 {
        self.faults.get(&fault).copied().unwrap_or(0)
    }

    /// How often this path was taken.
    pub fn of_path(&self, path: Path) -> u64 {
        self.paths.get(&path).copied().unwrap_or(0)
    }

    /// How often a client's command was refused so.
    pub fn of_refusal(&self, refusal: Refusal) -> u64 {
        self.refusals.get(&(refusal as u8)).copied().unwrap_or(0)
    }

    /// How often a map made such a change.
    pub fn of_change(&self, change: Change) -> u64 {
        self.changes.get(&change).copied().unwrap_or(0)
    }

    /// Adds the counters of another world.
    pub fn add(&mut self, other: &Self) {
        other.faults.iter().for_each(|(key, n)| *self.faults.entry(*key).or_default() += n);
        other.paths.iter().for_each(|(key, n)| *self.paths.entry(*key).or_default() += n);
        other.changes.iter().for_each(|(key, n)| *self.changes.entry(*key).or_default() += n);
        other.refusals.iter().for_each(|(key, n)| *self.refusals.entry(*key).or_default() += n);
    }

    /// Names of the counters that should not be zero, and are.
    pub fn never(&self) -> Vec<&'static str> {
        let refusals = Refusal::ALL.iter().filter(|refusal| !REFUSED.contains(refusal));
        let others = refusals.map(|refusal| refusal.sentence());
        let rare: Vec<&str> = others.collect();
        let never = self.rows().into_iter().filter(|(_, name, count)| *count == 0 && !rare.contains(name));
        never.map(|(_, name, _)| name).collect()
    }

    /// All counters in a fixed order: a group, what it counts, how often.
    pub fn rows(&self) -> Vec<(&'static str, &'static str, u64)> {
        let faults = Fault::ALL.iter().map(|&fault| ("fault", fault.name(), self.of_fault(fault)));
        let paths = Path::ALL.iter().map(|&path| ("path", path.name(), self.of_path(path)));
        let refusals =
            Refusal::ALL.iter().map(|&refusal| ("refusal", refusal.sentence(), self.of_refusal(refusal)));
        let changes = Change::ALL.iter().map(|&change| ("map", change.name(), self.of_change(change)));
        faults.chain(paths).chain(changes).chain(refusals).collect()
    }
}

#[cfg(test)]
mod tests;
