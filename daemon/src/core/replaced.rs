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
//! SSDs hear of the end of an id, too, if its caller has proven its name. They hear of a few such ends at a
//! time. No request waits for them. An SSD that is away hears of them when it is back.

use super::{Answer, Command, CommandId, Core, Effect, Owner};
use gnstor_proto::client_end::ClientEnd;
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most ends of ids that are under way at a time, beside those for which entries wait.
const MOST_ENDS: usize = 64;

/// What SSDs have heard of the holders of client ids.
#[derive(Default, Debug)]
pub(super) struct Replaced {
    heard: BTreeMap<ClientId, Heard>,
    /// CLIENT ENDs under way, and the commands that wait for each.
    asked: BTreeMap<End, Vec<CommandId>>,
    held: BTreeMap<CommandId, Held>,
    /// Ends that no command waits for, and the ones of them that are under way.
    to_tell: VecDeque<End>,
    telling: BTreeSet<End>,
    /// Ends of which an SSD has not heard, because it was away.
    missed: BTreeMap<u16, BTreeMap<ClientId, u64>>,
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
        let telling = std::mem::take(&mut self.telling).into_iter();
        let (missed, telling): (Vec<End>, _) = telling.partition(|end| ssds.contains(&end.ssd));
        self.telling = telling.into_iter().collect();
        missed.into_iter().for_each(|end| self.miss(end));
        let ids = self.held.iter().filter(|(_, held)| ssds.contains(&held.ssd)).map(|(&id, _)| id);
        let ids: Vec<CommandId> = ids.collect();
        ids.iter().for_each(|id| _ = self.held.remove(id));
        ids
    }

    /// Nothing is under way any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The SSD has still to end holders of ids that entries name.
    pub(super) fn is_awaited(&self, ssd: u16) -> bool {
        let first = End { ssd, client: ClientId::MIN, serial: 0 };
        let mut of_ssd = self.asked.range(first..).map(|(end, _)| end).take_while(|end| end.ssd == ssd);
        of_ssd.any(|end| !self.telling.contains(end))
    }

    fn miss(&mut self, End { ssd, client, serial }: End) {
        let missed = self.missed.entry(ssd).or_default().entry(client).or_default();
        *missed = serial.max(*missed);
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
            self.end_holders(End { ssd, client, serial }, Some(id));
        }
    }

    /// The ids of which the SSD does not know that they have a new holder, and the holders' serials.
    fn unheard(&self, ssd: u16, ids: impl Iterator<Item = ClientId>) -> BTreeMap<ClientId, u64> {
        let held = ids.filter_map(|id| Some((id, self.clients.serial(id)?)));
        held.filter(|&(id, serial)| !self.replaced.has_heard(ssd, id, serial)).collect()
    }

    /// An SSD is to end the holders of an id. `waits` is given to it afterwards.
    fn end_holders(&mut self, end: End, waits: Option<CommandId>) {
        self.replaced.telling.remove(&end);
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

    /// An SSD that is back is to end the earlier holders of all ids that entries name.
    pub(super) fn end_all_holders(&mut self, ssd: u16) {
        let ids = self.volumes.values().flat_map(|volume| named(&volume.entry));
        for (client, serial) in self.unheard(ssd, ids) {
            self.end_holders(End { ssd, client, serial }, None);
        }
    }

    /// The SSD is up to date. It hears which other ids have ended while it was away.
    pub(super) fn tell_missed(&mut self, ssd: u16) {
        let missed = self.replaced.missed.remove(&ssd).unwrap_or_default();
        let ends = missed.into_iter().map(|(client, serial)| End { ssd, client, serial });
        self.replaced.to_tell.extend(ends);
        self.tell_ends();
    }

    /// An SSD has answered a CLIENT END.
    pub(super) fn client_end_answered(&mut self, now: u64, ssd: u16, of: (ClientId, u64), answer: Answer) {
        let end = End { ssd, client: of.0, serial: of.1 };
        let waiting = self.replaced.asked.remove(&end).unwrap_or_default();
        let was_told = self.replaced.telling.remove(&end);
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
            _ if was_told => self.replaced.miss(end),
            _ => {}
        }
        for id in waiting {
            self.go_on(now, id, &answer);
        }
        self.holders_ended(now, ssd, &answer);
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

    /// Ids have ended: their secrets and queues end on each SSD.
    pub(super) fn end_clients(&mut self) {
        for (client, serial) in self.clients.take_ended() {
            let ssds = 0..u16::try_from(self.members.connected()).unwrap_or(u16::MAX);
            self.replaced.to_tell.extend(ssds.map(|ssd| End { ssd, client, serial }));
        }
        self.tell_ends();
    }

    fn tell_ends(&mut self) {
        while self.replaced.telling.len() < MOST_ENDS
            && let Some(end) = self.replaced.to_tell.pop_front()
        {
            if !self.members.contains(end.ssd) || self.members.is_away(end.ssd) {
                self.replaced.miss(end);
            } else if let Entry::Vacant(asked) = self.replaced.asked.entry(end) {
                asked.insert(Vec::new());
                self.replaced.telling.insert(end);
                self.give_end(end);
            }
        }
    }
}

/// The ids that have a right by this entry.
fn named(entry: &VolumeEntry) -> impl Iterator<Item = ClientId> {
    entry.readers.iter().chain(&entry.writer).copied()
}
