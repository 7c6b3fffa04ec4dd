// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rounds: one command to every member, and the next step when all have answered.
//!
//! ```text
//!   Create --all took--> active                        Change --all took--> committed, reply
//!     | some failed                                      | some failed
//!     v                                                  v
//!   Undo (DELETE where it may have arrived)            Reconcile: undone, or repeated if it cannot be undone
//!     v                                                  v
//!   failure, or the next volume id                     failure; repeated while an SSD is behind
//! ```
//! Every round has a version above all versions sent before. An SSD whose answer was lost takes it, whether
//! or not it took the round before. In the end all SSDs hold the same bytes.

use super::failure::{Failure, Trouble, blame, code_of};
use super::holder::Holder;
use super::volume::{Action, Change, Purpose, Retry, Round, Stage, Then, Volume};
use super::{Answer, Command, Core, Owner, Reply, Stop};
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An SSD's answer to a command of a round.
pub(super) struct Answered {
    pub(super) ssd: u16,
    /// The command was VOLUME ADD.
    pub(super) adding: bool,
    pub(super) answer: Answer,
}

impl Core {
    /// Puts `entry` on every SSD under the next version.
    pub(super) fn put(&mut self, vid: Vid, mut entry: VolumeEntry, purpose: Purpose) {
        let volume = self.volumes.get_mut(&vid).expect("a round belongs to a volume");
        volume.last_version += 1;
        entry.version = volume.last_version;
        entry.term = self.term.number();
        volume.writers.extend(entry.writer);
        self.mark_unsettled(&mut entry, &purpose);
        let members = self.members.all().clone();
        self.begin(vid, Action::Put(Arc::new(entry)), purpose, members);
    }

    /// Another SSD in the place of one that the map names gets no entry: with one it would not count as
    /// empty. The right one is brought up to date when it is back.
    pub(super) fn begin(&mut self, vid: Vid, action: Action, purpose: Purpose, targets: BTreeSet<u16>) {
        let named: BTreeSet<u16> = targets.iter().copied().filter(|ssd| !self.is_stranger(*ssd)).collect();
        let targets = if named.is_empty() { targets } else { named };
        let volume = self.volumes.get_mut(&vid).expect("a round belongs to a volume");
        assert!(volume.round.is_none() && !targets.is_empty(), "changes of a volume are serialised");
        let (adding, command) = command_of(volume, &action, self.term.number());
        volume.round = Some(Round::new(purpose, action, targets.clone()));
        for ssd in targets {
            self.command(ssd, Owner::Round { vid, adding }, command.clone());
        }
    }

    /// An SSD is a member from now on: the round under way needs its answer, too.
    pub(super) fn extend_round(&mut self, vid: Vid, ssd: u16) {
        let term = self.term.number();
        let Some(volume) = self.volumes.get_mut(&vid) else { return };
        let Some(round) = &mut volume.round else { return };
        round.add_ssd(ssd);
        let (adding, command) = command_of(volume, &volume.round.as_ref().expect("it is there").action, term);
        self.command(ssd, Owner::Round { vid, adding }, command);
    }

    pub(super) fn round_answered(&mut self, now: u64, vid: Vid, answered: Answered) {
        let Answered { ssd, adding, answer } = answered;
        // The core does not know yet which entries an SSD has that is being brought up to date, or has
        // another identity.
        let is_unknown = self.map_of_voters().is_some() && self.is_silent(ssd);
        use Refusal::{Deleting, StaleTerm, StaleVersion, UnknownVolume, VolumeAbsent, VolumeExists};
        let volume = self.volumes.get_mut(&vid).expect("a round belongs to a volume");
        let round = volume.round.as_mut().expect("a command belongs to a round");
        let outcome = match (&round.action, answer) {
            (_, Answer::Refused(StaleTerm)) => return self.depose(ssd, "refused this daemon's term"),
            (_, Answer::Refused(refusal @ (StaleVersion | VolumeExists)))
                if is_unknown && (!adding || refusal == VolumeExists) =>
            {
                Err(Trouble::Lost("is being brought up to date".into()))
            }
            // Two daemons may have the same term. A newer version or an unknown volume id reveals the other
            // daemon. Each change needs all SSDs, so only one of the daemons succeeds.
            (Action::Put(_) | Action::Delete(_), Answer::Refused(StaleVersion)) if !adding => {
                return self.depose(ssd, "holds a newer version of a volume than this daemon wrote");
            }
            (Action::Add(_), Answer::Refused(VolumeExists)) => {
                return self.depose(ssd, "holds a volume that this daemon did not make");
            }
            // An SSD that does not have the volume needs no mark to delete it.
            (Action::Put(_), Answer::Refused(VolumeAbsent | UnknownVolume | Deleting))
                if matches!(round.purpose, Purpose::Mark { .. }) =>
            {
                Ok(())
            }
            // An SSD that has swept the volume does not know it any more, so the deletion is done there.
            (Action::Delete(_), Answer::Done | Answer::Refused(VolumeAbsent | UnknownVolume | Deleting)) => {
                Ok(())
            }
            (Action::Put(entry), Answer::Refused(VolumeAbsent | UnknownVolume | Deleting)) if !adding => {
                let command = Command::Add(entry.clone());
                self.command(ssd, Owner::Round { vid, adding: true }, command);
                return;
            }
            (Action::Add(_) | Action::Put(_), Answer::Done) => Ok(()),
            (_, Answer::Refused(refusal)) => Err(Trouble::Refused(refusal)),
            (_, Answer::Lost(why)) => Err(Trouble::Lost(why)),
            (
                _,
                Answer::Table { .. }
                | Answer::Gone { .. }
                | Answer::Map(_)
                | Answer::Says(_)
                | Answer::Fill(_)
                | Answer::Scrub(_)
                | Answer::Settled(_)
                | Answer::Promise(_)
                | Answer::Held(_)
                | Answer::HigherTerm(_),
            ) => Err(Trouble::Lost("answered another command".into())),
        };
        round.answered(ssd, outcome);
        self.end_round(now, vid);
    }

    /// Continues after the present round, if it is over.
    pub(super) fn end_round(&mut self, now: u64, vid: Vid) {
        let Some(volume) = self.volumes.get_mut(&vid) else { return };
        if let Some(round) = volume.round.take_if(|round| round.is_over()) {
            self.round_ended(now, vid, round);
            self.repeat(now, vid);
            self.settle_after_round(now, vid);
            self.serve_queue(now, vid);
            self.start_reconciled();
            self.salvage_on(now);
        }
    }

    fn round_ended(&mut self, now: u64, vid: Vid, mut round: Round) {
        let entry = match &round.action {
            Action::Add(entry) | Action::Put(entry) => Some(entry.clone()),
            Action::Delete(_) => None,
        };
        let purpose = std::mem::replace(&mut round.purpose, Purpose::Reconcile { reply: None });
        match (purpose, entry) {
            (Purpose::Create(creation), Some(entry)) => self.created(now, &entry, round, creation),
            (Purpose::Undo(undo), None) => self.undone(now, vid, round, undo),
            (Purpose::Change(change), Some(entry)) => self.changed(now, &entry, round, change),
            (Purpose::Reconcile { reply }, Some(entry)) => {
                let (drift_ms, is_known) = (self.config.drift_ms, self.is_known(&round));
                let volume = self.volumes.get_mut(&vid).expect("the round's volume");
                volume.commit(now, &entry, false, drift_ms);
                volume.forget_writers(is_known);
                self.complete_name(vid, round.failed.is_empty());
                // VOLUME ADD was refused because the generation died there. A failed Create left the
                // volume, and a restart cut its undoing off; a volume that a client deleted would have the
                // mark. It is undone now.
                let died = |t: &Trouble| *t == Trouble::Refused(Refusal::StaleVersion);
                let finish_undo = round.failed.values().any(died);
                self.note_behind(now, vid, round.failed);
                if let Some((ticket, failure)) = reply {
                    self.reply(ticket, Err(failure));
                }
                if finish_undo {
                    self.mark(vid, None, None);
                }
            }
            (Purpose::Mark { ticket }, Some(entry)) => self.marked(now, &entry, round, ticket),
            (Purpose::Delete { ticket }, None) => self.deleted(now, vid, round, ticket),
            (
                Purpose::Create(_) | Purpose::Change(_) | Purpose::Reconcile { .. } | Purpose::Mark { .. },
                None,
            )
            | (Purpose::Undo(_) | Purpose::Delete { .. }, Some(_)) => {
                self.stop(Stop::Array(
                    "internal error: a round carried another command than its purpose".into(),
                ));
            }
        }
    }

    /// A client's change ended. Commits it, or brings the SSDs back to one state and names the SSDs that
    /// failed.
    fn changed(&mut self, now: u64, entry: &VolumeEntry, round: Round, change: Change) {
        let Change { ticket, then } = change;
        let drift_ms = self.config.drift_ms;
        // SSDs that are away get the entry when they are back.
        let is_on_all_others = || round.failed.keys().all(|&ssd| self.members.is_away(ssd));
        let is_enough = || round.some_took() && is_on_all_others();
        let is_known = self.is_known(&round);
        let may_lack_some = match then {
            Then::OpenedRead { everywhere } => is_known || !everywhere,
            // Where SSDs vote, one that is away need not know of a lease that goes on: its clock ends none
            // (rule 8a). Otherwise no lease would be renewed beside an SSD that stays absent.
            Then::Renewed => self.map_of_voters().is_some(),
            _ => false,
        };
        let suffices = round.failed.is_empty() || may_lack_some && is_enough();
        let volume = self.volumes.get_mut(&entry.vid).expect("the round's volume");
        if suffices {
            let granted = matches!(then, Then::OpenedWrite | Then::Renewed);
            let gone = if then.may_end_opens() { no_longer_named(&volume.entry, entry) } else { Vec::new() };
            volume.commit(now, entry, granted, drift_ms);
            volume.forget_writers(is_known);
            let (view, ended) = (volume.view(now), std::mem::take(&mut volume.ended));
            gone.into_iter().for_each(|id| self.clients.released(now, id, entry.vid));
            // If every SSD has the entry, it has the volume's name, too, even if an earlier round that set it
            // failed.
            let everywhere = round.failed.is_empty();
            self.note_behind(now, entry.vid, round.failed);
            self.complete_name(entry.vid, everywhere);
            let reply = answer_of(then, view, entry.lease_ms, ended);
            return self.reply(ticket, Ok(reply));
        }
        let (target, fate) = match then {
            Then::OpenedRead { .. } | Then::Shared | Then::Labelled => {
                (volume.basis(now, self.term.number()), "was undone")
            }
            // Epochs only grow: the epoch of the failed grant is spent, and no client writes until the next
            // grant.
            Then::OpenedWrite => (
                VolumeEntry {
                    writer: None,
                    lease_ms: 0,
                    lease_epoch: entry.lease_epoch,
                    unsettled: self.epoch.map().is_some_and(|map| map.voted().is_some()),
                    ..volume.basis(now, self.term.number())
                },
                "was undone, and no client holds the write lease",
            ),
            // A longer lease or a released right is harmless on the SSDs that took it. After a restart a name
            // that one SSD has counts as given. So these changes are repeated, and not undone.
            Then::Renewed
            | Then::Released { .. }
            | Then::Revoked
            | Then::Published
            | Then::Renamed
            | Then::Resized
            | Then::LeaseRevoked => (entry.clone(), "is repeated until it is on every SSD"),
        };
        let failure = Failure::new(
            code_of(&round.failed),
            format!(
                "the change of volume {:?} failed on {} and {fate}: try again when the array is complete",
                entry.name,
                blame(&round.failed)
            ),
        );
        self.put(entry.vid, target, Purpose::Reconcile { reply: Some((ticket, failure)) });
    }

    /// Each SSD that may serve took the round's entry. An absent one serves nothing until an epoch takes it
    /// back, and has the entry before that.
    fn is_known(&self, round: &Round) -> bool {
        self.members.all().iter().all(|&ssd| round.has_taken(ssd) || self.is_absent_in_map(ssd))
    }

    /// Remembers which SSDs may lack the volume's newest state, and when to try again.
    pub(super) fn note_behind(&mut self, now: u64, vid: Vid, failed: BTreeMap<u16, Trouble>) {
        let volume = self.volumes.get_mut(&vid).expect("the round's volume");
        volume.retry = if failed.is_empty() {
            None
        } else {
            let longest = self.config.retry_max_ms;
            let wait_ms = volume.retry.map_or(self.config.retry_ms, |r| (r.wait_ms * 2).min(longest));
            Some(Retry { at: now + wait_ms, wait_ms })
        };
        volume.behind = failed;
    }

    /// Repeats the change that some SSD did not take.
    pub(super) fn retry(&mut self, now: u64, vid: Vid) {
        let volume = self.volumes.get_mut(&vid).expect("the volume to retry");
        match volume.stage {
            Stage::Creating => {}
            Stage::Active => {
                let mut entry = volume.basis(now, self.term.number());
                // An SSD takes no lower lease epoch than it has. So a grant ends here that no client knows
                // of, or that some SSD did not take. So does the lease of a writer before it.
                if entry.lease_epoch < volume.spent {
                    (entry.writer, entry.lease_ms, entry.lease_epoch) = (None, 0, volume.spent);
                    entry.unsettled = self.epoch.map().is_some_and(|map| map.voted().is_some());
                    let gone = no_longer_named(&volume.entry, &entry);
                    gone.into_iter().for_each(|id| self.clients.released_early(now, id, vid));
                }
                self.put(vid, entry, Purpose::Reconcile { reply: None });
            }
            // The end of its successor's round marks it.
            Stage::Marked if volume.successor.is_some_and(|by| !by.everywhere) => volume.retry = None,
            Stage::Marked => self.mark(vid, None, None),
            Stage::Deleting(_) => self.delete_everywhere(now, vid, None),
        }
    }

    /// Serves the requests that waited for the round that ended.
    fn serve_queue(&mut self, now: u64, vid: Vid) {
        while let Some(volume) = self.volumes.get_mut(&vid).filter(|v| v.round.is_none()) {
            let Some((ticket, request)) = volume.queue.pop_front() else { return };
            // A request that was already answered as late is not carried out.
            if self.tickets.contains_key(&ticket) {
                self.dispatch(now, ticket, request);
            }
        }
    }

    /// The volume is gone. The requests that waited for it are served anew: they find its name free.
    pub(super) fn vanish(&mut self, now: u64, vid: Vid, rest_ms: u64) {
        let volume = self.volumes.remove(&vid).expect("the volume that goes");
        assert!(volume.round.is_none(), "a volume does not go while it changes");
        // A volume that was replaced has lost its name.
        if self.names.get(&volume.entry.name) == Some(&vid) {
            self.names.remove(&volume.entry.name);
        }
        if let Some(capacity) = &mut self.capacity {
            capacity.release(vid);
        }
        self.past.retire(&volume.entry, volume.last_version, now + rest_ms);
        let waiting = volume.settle.map(|settle| settle.waiting).unwrap_or_default();
        for (ticket, request) in volume.queue.into_iter().chain(waiting) {
            if self.tickets.contains_key(&ticket) {
                self.dispatch(now, ticket, request);
            }
        }
    }
}

/// The answer to a change that is on the SSDs.
fn answer_of(then: Then, volume: VolumeEntry, lease_ms: u32, ended: Vec<Holder>) -> Reply {
    match then {
        Then::OpenedRead { .. } => Reply::Opened { volume, lease_ms: 0 },
        Then::OpenedWrite => Reply::Opened { volume, lease_ms },
        Then::Renewed => Reply::Renewed { lease_ms },
        Then::Released { .. } => Reply::Done,
        Then::LeaseRevoked => Reply::Ended(ended),
        Then::Shared | Then::Revoked | Then::Published | Then::Renamed | Then::Resized | Then::Labelled => {
            Reply::Volume(volume)
        }
    }
}

/// The command of a round, and whether it is VOLUME ADD.
fn command_of(volume: &Volume, action: &Action, term: u64) -> (bool, Command) {
    match action {
        Action::Add(entry) => (true, Command::Add(entry.clone())),
        Action::Put(entry) => (false, Command::Chmod(entry.clone())),
        Action::Delete(version) => {
            let (vid, generation) = (volume.entry.vid, volume.entry.generation);
            (false, Command::Delete { vid, generation, version: *version, term })
        }
    }
}

/// The clients that had a right by the old entry, and have none by the new one.
fn no_longer_named(old: &VolumeEntry, new: &VolumeEntry) -> Vec<ClientId> {
    let named: BTreeSet<_> = new.readers.iter().chain(&new.writer).collect();
    old.readers.iter().chain(&old.writer).filter(|id| !named.contains(id)).copied().collect()
}
