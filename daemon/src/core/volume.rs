// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One volume as the daemon holds it: the entry, its lease in time, and the one change under way.

mod round;
mod settle;

use crate::core::Ticket;
use crate::core::failure::{Failure, Trouble};
use crate::core::holder::Holder;
use crate::core::request::{Create, Request};
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::vendor::{VolumeEntry, WRITE_LEASE_MS};
pub(super) use round::Round;
pub(super) use settle::Settle;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The lease epoch that is never granted. An entry with it is marked for deletion.
///
/// The mark is on every SSD before the first of them starts to sweep. A restarted daemon may find the volume
/// on one SSD only, because the others are done. The mark then says that the volume must be deleted there,
/// too.
pub(super) const DELETE_MARK: u32 = u32::MAX;

/// Stage of a volume's life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// VOLUME ADD is under way; no client knows of the volume yet.
    Creating,
    /// In use.
    Active,
    /// Deletion is decided. Some SSD has the mark, perhaps not all.
    Marked,
    /// These SSDs have still to delete the volume.
    Deleting(BTreeSet<u16>),
}

/// A volume that took the name of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Successor {
    pub(super) vid: Vid,
    /// Every SSD has its entry with the name, so the other volume may get its mark.
    pub(super) everywhere: bool,
}

/// A write lease in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    /// End of the right that the holder was promised, ms.
    pub(super) promised_until: u64,
    /// After this time the lease has ended on every SSD's clock, so another client may take it.
    pub(super) free_at: u64,
}

/// The kind of a client's change. It determines the reply once every SSD has the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    /// `everywhere`: an SSD that does not hear of it may take the client for the writer.
    OpenedRead {
        everywhere: bool,
    },
    OpenedWrite,
    Renewed,
    Released {
        all_acknowledged: bool,
    },
    Shared,
    Revoked,
    Published,
    Renamed,
    Labelled,
    Resized,
    /// The opens of a client end, although it did not ask for that.
    LeaseRevoked,
}

impl Then {
    /// Whether clients may lose what they had open.
    pub(super) fn may_end_opens(self) -> bool {
        matches!(self, Self::Released { .. } | Self::Revoked | Self::Published | Self::LeaseRevoked)
    }
}

/// A Create under way.
#[derive(Debug)]
pub(super) struct Creation {
    pub(super) ticket: Ticket,
    pub(super) request: Create,
    /// Number of volume ids tried, this one included.
    pub(super) attempt: u32,
}

/// The end of a failed Create.
#[derive(Debug)]
pub(super) struct Undo {
    pub(super) ticket: Ticket,
    pub(super) failure: Failure,
    /// The Create with the next volume id, if another is tried.
    pub(super) again: Option<Creation>,
}

/// A client's change of rights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) ticket: Ticket,
    pub(super) then: Then,
}

/// The purpose of the round under way.
#[derive(Debug)]
pub(super) enum Purpose {
    /// VOLUME ADD of a new volume.
    Create(Creation),
    /// Deletes a failed Create's volume; then the Create fails, or tries another volume id.
    Undo(Undo),
    /// A client's change of rights.
    Change(Change),
    /// Brings every SSD to one state, after a failed change or at the start. Then the client, if any, gets
    /// its failure.
    Reconcile { reply: Option<(Ticket, Failure)> },
    /// First half of a deletion: the mark.
    Mark { ticket: Option<Ticket> },
    /// Second half of a deletion.
    Delete { ticket: Option<Ticket> },
}

/// The command of a round.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// VOLUME ADD.
    Add(Arc<VolumeEntry>),
    /// VOLUME CHMOD, or VOLUME ADD if the SSD does not have the volume.
    Put(Arc<VolumeEntry>),
    /// VOLUME DELETE with this version.
    Delete(u64),
}

/// When to repeat a change that some SSD did not take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    pub(super) at: u64,
    pub(super) wait_ms: u64,
}

/// A volume.
#[derive(Debug)]
pub(super) struct Volume {
    /// The state that was last put on the SSDs.
    pub(super) entry: VolumeEntry,
    /// The highest version sent to any SSD. The next one is above it, so an SSD whose answer was lost takes
    /// it, too.
    pub(super) last_version: u64,
    pub(super) stage: Stage,
    /// The volume that took this one's name, until this one's mark is on every SSD. The stage is
    /// [`Stage::Marked`].
    pub(super) successor: Option<Successor>,
    pub(super) lease: Option<Lease>,
    /// The change in progress. A volume has at most one.
    pub(super) round: Option<Round>,
    /// Requests that wait for it.
    pub(super) queue: VecDeque<(Ticket, Request)>,
    /// The highest lease epoch that an SSD has from a grant of an earlier daemon to no other SSD.
    pub(super) spent: u32,
    /// The most blocks that an SSD may have for the volume: after a Resize that is not on all of them.
    pub(super) most_blocks: u64,
    /// SSDs that may not have `entry`. While there are any, the change is repeated.
    pub(super) behind: BTreeMap<u16, Trouble>,
    pub(super) retry: Option<Retry>,
    /// An SSD came back during the round under way: the round is repeated, whether or not that SSD had
    /// taken it before it went.
    pub(super) again: bool,
    /// Clients that some SSD may take for the writer: an SSD that has missed a change goes by an older entry.
    pub(super) writers: BTreeSet<ClientId>,
    /// The SSDs that the writer said it reaches, bit N = SSD N, and when it did.
    pub(super) reaches: Option<(u64, u64)>,
    /// When the writer got its lease, ms; 0 if another daemon granted it.
    pub(super) held_since: u64,
    /// The writer said that it follows a map in which an SSD comes in for another one.
    pub(super) follows: bool,
    /// The client that opens the volume for writing said so.
    pub(super) opens_and_follows: bool,
    /// The writer said that a write failed. Replicas may differ until the volume is settled; where no voters
    /// are, no one settles it.
    pub(super) in_doubt: bool,
    /// A place filled while the lease ran, as far as this daemon knows: the place may have kept a block that
    /// the others have trimmed.
    pub(super) has_filled: bool,
    /// The volume's replicas may differ, or an Open for writing waits for the end of a lease.
    pub(super) settle: Option<Settle>,
    /// Opens of other clients that the deletion or change under way ends.
    pub(super) ended: Vec<Holder>,
    /// The name before the last one, which SSDs that are behind may still have.
    pub(super) former: Option<String>,
}

impl Volume {
    pub(super) fn new(entry: VolumeEntry, stage: Stage) -> Self {
        Self {
            last_version: entry.version,
            writers: entry.writer.into_iter().collect(),
            most_blocks: entry.capacity_blocks,
            entry,
            stage,
            successor: None,
            lease: None,
            round: None,
            queue: VecDeque::new(),
            spent: 0,
            behind: BTreeMap::new(),
            retry: None,
            again: false,
            reaches: None,
            held_since: 0,
            follows: false,
            opens_and_follows: false,
            in_doubt: false,
            has_filled: true,
            settle: None,
            ended: Vec::new(),
            former: None,
        }
    }

    /// The client that holds the write lease now.
    pub(super) fn writer(&self, now: u64) -> Option<ClientId> {
        self.entry.writer.filter(|_| self.lease.is_some_and(|lease| now < lease.free_at))
    }

    /// An earlier name that some SSD may still have.
    pub(super) fn former_name(&self) -> Option<&str> {
        let may_have = self.round.is_some() || !self.behind.is_empty();
        self.former.as_deref().filter(|_| may_have)
    }

    /// Whether some SSD may let this client read any replica, as it takes the client for the writer, though
    /// the client is none (rule 7a).
    pub(super) fn may_seem_writer(&self, now: u64, client: ClientId) -> bool {
        self.writer(now) != Some(client) && self.writers.contains(&client)
    }

    /// If each SSD knows the entry, none takes a former writer for the writer.
    pub(super) fn forget_writers(&mut self, is_known: bool) {
        if is_known {
            self.writers = self.entry.writer.into_iter().collect();
        }
    }

    /// The entry as a client is shown it: after its lease has run out a volume has no writer.
    pub(super) fn view(&self, now: u64) -> VolumeEntry {
        VolumeEntry { writer: self.writer(now), ..self.entry.clone() }
    }

    /// The same, but the flag that replicas may differ is also set if only the writer has reported it.
    pub(super) fn shown(&self, now: u64) -> VolumeEntry {
        VolumeEntry { unsettled: self.may_differ(), ..self.view(now) }
    }

    /// Replicas may differ in what was written.
    pub(super) fn may_differ(&self) -> bool {
        self.entry.unsettled || self.in_doubt
    }

    /// The entry from which a change starts. An SSD counts the lease from the moment at which it takes an
    /// entry. So a change that is no renewal carries only the rest of the lease, and does not lengthen it. A
    /// rest that is too short for an SSD ends here, and so does a lease that has run out.
    pub(super) fn basis(&self, now: u64, term: u64) -> VolumeEntry {
        let mut entry = VolumeEntry { term, ..self.grown(self.view(now)) };
        entry.lease_ms = match (entry.writer, self.lease) {
            (Some(_), Some(lease)) => {
                u32::try_from(lease.promised_until.saturating_sub(now)).unwrap_or(u32::MAX)
            }
            _ => 0,
        };
        VolumeEntry { lease_ms: rest_of_lease(entry.lease_ms), ..entry }
    }

    /// The entry with all blocks that some SSD may have for the volume. No SSD takes an entry with fewer.
    pub(super) fn grown(&self, entry: VolumeEntry) -> VolumeEntry {
        VolumeEntry { capacity_blocks: entry.capacity_blocks.max(self.most_blocks), ..entry }
    }

    /// Makes an entry that was put on the SSDs the volume's state. `granted` says that its lease is a new
    /// promise.
    pub(super) fn commit(&mut self, now: u64, entry: &VolumeEntry, granted: bool, drift_ms: u64) {
        // An SSD took the entry before its answer came. So its clock is at most the drift behind `now +
        // lease`.
        let end = now + u64::from(entry.lease_ms);
        let fresh = Lease { promised_until: end, free_at: end + drift_ms };
        self.lease = entry.writer.map(|_| match self.lease {
            // The change carried no rest. So it is free when it was, however many such changes come.
            Some(old) if !granted && entry.lease_ms == 0 => old,
            Some(old) if !granted => Lease { free_at: old.free_at.max(fresh.free_at), ..old },
            _ => fresh,
        });
        if entry.lease_epoch != self.entry.lease_epoch {
            self.reaches = None;
            self.held_since = now;
            self.follows = std::mem::take(&mut self.opens_and_follows);
            self.has_filled = false;
        }
        if self.entry.unsettled && !entry.unsettled {
            self.in_doubt = false;
        }
        self.entry = entry.clone();
    }
}

/// The lease that an SSD gets for a rest of `ms` milliseconds.
pub(super) fn rest_of_lease(ms: u32) -> u32 {
    if ms < *WRITE_LEASE_MS.start() { 0 } else { ms.min(*WRITE_LEASE_MS.end()) }
}
