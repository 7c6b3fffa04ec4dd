// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Client ids that are given again. An SSD ends the earlier holders of an id before it gets an entry that
//! names the id (rule 16 of the fleet).
//!
//! ```text
//!   VOLUME CHMOD names id 7, and the SSD has not heard of its registration
//!     --> CLIENT END 7 --done--> VOLUME CHMOD
//!                      '-lost, refused--> the VOLUME CHMOD counts as lost, or refused, too
//! ```
//! So an SSD that is away holds up a change for no longer than it would anyway, and gets neither of the two.
//! An SSD that comes back has forgotten all of this. It ends the earlier holders of all ids that entries name
//! before it gets the fleet map ([`super::presence`]).
//!
//! SSDs hear of the end of an id, too, if its caller has proven its name. A daemon that starts does not know
//! the serials of ids that an earlier one gave. It tells each as soon as a call proves it. Each SSD hears of
//! a few such ends at a time, of each id the newest one. No request waits for them. An SSD that is away hears
//! of them when it is back. If one is lost or refused, the SSD hears of it again after a while.

use super::{Answer, Command, CommandId, Core, Effect, Owner};
use gnstor_proto::client_end::ClientEnd;
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Most ends of ids that are under way at an SSD at a time, beside those for which entries wait. They leave
/// room in its admin queue.
const MOST_ENDS: usize = 8;

/// What SSDs have heard of the holders of client ids.
#[derive(Default, Debug)]
pub(super) struct Replaced {
    heard: BTreeMap<ClientId, Heard>,
    /// CLIENT ENDs under way, and the commands that wait for each.
    asked: BTreeMap<End, Vec<CommandId>>,
    held: BTreeMap<CommandId, Held>,
    /// What each SSD is told without a command that waits for it.
    ends: BTreeMap<u16, Ends>,
}

/// The ends of ids that an SSD is told.
#[derive(Default, Debug)]
struct Ends {
    /// The highest serial of each id.
    to_tell: BTreeMap<ClientId, u64>,
    telling: BTreeSet<(ClientId, u64)>,
    /// The id of the last end that was taken. Ids take turns.
    last: Option<ClientId>,
    /// After one that was lost or refused: when to go on.
    again_at: u64,
}

impl Ends {
    fn add(&mut self, client: ClientId, serial: u64) {
        let highest = self.to_tell.entry(client).or_default();
        *highest = serial.max(*highest);
    }

    /// Takes the next end, if one more may be under way.
    fn take(&mut self, now: u64) -> Option<(ClientId, u64)> {
        if self.telling.len() >= MOST_ENDS || now < self.again_at {
            return None;
        }
        let behind = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.to_tell.range((behind, Bound::Unbounded)).next();
        let (&client, &serial) = next.or_else(|| self.to_tell.first_key_value())?;
        self.to_tell.remove(&client);
        self.last = Some(client);
        Some((client, serial))
    }
}

/// An SSD is to end all holders of the id with lower serials.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct End {
    ssd: u16,
    client: ClientId,
    serial: u64,
}

/// The SSDs that have ended all holders of an id below this serial.
#[derive(Default, Debug)]
struct Heard {
    serial: u64,
    ssds: BTreeSet<u16>,
}

/// A command that an SSD gets later.
#[derive(Debug)]
struct Held {
    ssd: u16,
    command: Command,
    /// Number of CLIENT ENDs that it waits for.
    waits_for: usize,
}

impl Replaced {
    fn has_heard(&self, ssd: u16, client: ClientId, serial: u64) -> bool {
        self.heard.get(&client).is_some_and(|heard| heard.serial >= serial && heard.ssds.contains(&ssd))
    }

    fn hears(&mut self, End { ssd, client, serial }: End) {
        let heard = self.heard.entry(client).or_default();
        if heard.serial < serial {
            *heard = Heard { serial, ssds: BTreeSet::new() };
        }
        if heard.serial == serial {
            heard.ssds.insert(ssd);
        }
    }

    /// The SSD is away, and may have forgotten all when it is back.
    pub(super) fn lost(&mut self, ssd: u16) {
        self.heard.values_mut().for_each(|heard| _ = heard.ssds.remove(&ssd));
    }

    /// Answers of these SSDs no longer count. Returns the commands that they will not be given.
    pub(super) fn give_up(&mut self, ssds: &BTreeSet<u16>) -> Vec<CommandId> {
        self.asked.retain(|end, _| !ssds.contains(&end.ssd));
        for (_, ends) in self.ends.iter_mut().filter(|(ssd, _)| ssds.contains(ssd)) {
            std::mem::take(&mut ends.telling)
                .into_iter()
                .for_each(|(client, serial)| ends.add(client, serial));
        }
        let ids = self.held.iter().filter(|(_, held)| ssds.contains(&held.ssd)).map(|(&id, _)| id);
        let ids: Vec<CommandId> = ids.collect();
        ids.iter().for_each(|id| _ = self.held.remove(id));
        ids
    }

    /// Nothing is under way any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The next end that an SSD is told.
    fn next_to_tell(&mut self, ssd: u16, now: u64) -> Option<End> {
        loop {
            let (client, serial) = self.ends.get_mut(&ssd)?.take(now)?;
            if !self.has_heard(ssd, client, serial) {
                self.ends.get_mut(&ssd)?.telling.insert((client, serial));
                return Some(End { ssd, client, serial });
            }
        }
    }
}

impl Core {
    /// Gives an SSD a command, at once or when it has ended the earlier holders of the ids in its entry.
    pub(super) fn send(&mut self, id: CommandId, ssd: u16, command: Command) {
        let unheard = match &command {
            Command::Add(entry) | Command::Chmod(entry) => self.unheard(ssd, named(entry)),
            _ => BTreeMap::new(),
        };
        if unheard.is_empty() {
            return self.effects.push_back(Effect::Command { id, ssd, command });
        }
        self.replaced.held.insert(id, Held { ssd, command, waits_for: unheard.len() });
        for (client, serial) in unheard {
            self.end_holders(ssd, (client, serial), Some(id));
        }
    }

    /// The ids of which the SSD does not know that they have a new holder, and the holders' serials.
    fn unheard(&self, ssd: u16, ids: impl Iterator<Item = ClientId>) -> BTreeMap<ClientId, u64> {
        let held = ids.filter_map(|id| Some((id, self.clients.serial(id)?)));
        held.filter(|&(id, serial)| !self.replaced.has_heard(ssd, id, serial)).collect()
    }

    /// An SSD is to end the holders of an id. `waits` is given to it afterwards.
    pub(super) fn end_holders(&mut self, ssd: u16, of: (ClientId, u64), waits: Option<CommandId>) {
        let end = End { ssd, client: of.0, serial: of.1 };
        if let Some(waiting) = self.replaced.asked.get_mut(&end) {
            return waiting.extend(waits);
        }
        self.replaced.asked.insert(end, waits.into_iter().collect());
        self.give_end(end);
    }

    fn give_end(&mut self, End { ssd, client, serial }: End) {
        let end = ClientEnd { client, serial, term: self.term.number() };
        self.command(ssd, Owner::ClientEnd { client, serial }, Command::ClientEnd(end));
    }

    /// The ids that entries name, with earlier holders that the SSD has not ended, and their serials.
    pub(super) fn unended_holders(&self, ssd: u16) -> BTreeMap<ClientId, u64> {
        self.unheard(ssd, self.volumes.values().flat_map(|volume| named(&volume.entry)))
    }

    /// The SSD is up to date. It hears which other ids have ended while it was away.
    pub(super) fn tell_missed(&mut self, ssd: u16) {
        if let Some(ends) = self.replaced.ends.get_mut(&ssd) {
            ends.again_at = 0;
        }
        self.tell_ends();
    }

    /// An SSD has answered a CLIENT END.
    pub(super) fn client_end_answered(&mut self, now: u64, ssd: u16, of: (ClientId, u64), answer: Answer) {
        let end = End { ssd, client: of.0, serial: of.1 };
        let waiting = self.replaced.asked.remove(&end).unwrap_or_default();
        let mut ends = self.replaced.ends.get_mut(&ssd);
        let was_told = ends.as_mut().is_some_and(|ends| ends.telling.remove(&of));
        let answer = match answer {
            // An SSD of a version without this command does what it can.
            Answer::Refused(Refusal::InvalidOpcode) => Answer::Done,
            answer => answer,
        };
        // An SSD that is no part of the array any more may have the term of another one.
        let is_ours = self.members.contains(ssd) || self.members.is_coming(ssd);
        match &answer {
            Answer::Refused(Refusal::StaleTerm) if is_ours => {
                return self.depose(ssd, "refused this daemon's term");
            }
            Answer::Done => self.replaced.hears(end),
            _ => {
                if let Some(ends) = ends.filter(|_| was_told) {
                    ends.add(end.client, end.serial);
                    ends.again_at = now + self.config.retry_ms;
                }
            }
        }
        for id in waiting {
            self.go_on(now, id, &answer);
        }
        self.holders_ended(now, ssd, of, &answer);
        self.tell_ends();
    }

    /// A command that waited goes to its SSD, or has the same answer.
    fn go_on(&mut self, now: u64, id: CommandId, answer: &Answer) {
        let Some(held) = self.replaced.held.get_mut(&id) else { return };
        held.waits_for -= 1;
        if held.waits_for > 0 && *answer == Answer::Done {
            return;
        }
        let Some(Held { ssd, command, .. }) = self.replaced.held.remove(&id) else { return };
        match answer {
            Answer::Done => self.effects.push_back(Effect::Command { id, ssd, command }),
            _ => self.completed(now, id, answer.clone()),
        }
    }

    /// The earlier holders of ids end on each SSD: their secrets and queues.
    pub(super) fn end_clients(&mut self) {
        let ssds = u16::try_from(self.members.connected()).unwrap_or(u16::MAX);
        for (client, serial) in self.clients.take_ended() {
            for ssd in 0..ssds {
                self.replaced.ends.entry(ssd).or_default().add(client, serial);
            }
        }
        self.tell_ends();
    }

    fn tell_ends(&mut self) {
        for ssd in self.replaced.ends.keys().copied().collect::<Vec<_>>() {
            while self.is_told_ends(ssd)
                && let Some(end) = self.replaced.next_to_tell(ssd, self.now)
            {
                self.end_holders(ssd, (end.client, end.serial), None);
            }
        }
    }

    fn is_told_ends(&self, ssd: u16) -> bool {
        self.members.contains(ssd) && !self.members.is_away(ssd)
    }

    /// When an SSD hears again of an end that was lost or refused.
    pub(super) fn ends_wake_at(&self) -> Option<u64> {
        let waits = |ends: &Ends| !ends.to_tell.is_empty() && ends.again_at > self.now;
        let waiting = self.replaced.ends.iter().filter(|(ssd, ends)| waits(ends) && self.is_told_ends(**ssd));
        waiting.map(|(_, ends)| ends.again_at).min()
    }
}

/// The ids that have a right by this entry.
fn named(entry: &VolumeEntry) -> impl Iterator<Item = ClientId> {
    entry.readers.iter().chain(&entry.writer).copied()
}
