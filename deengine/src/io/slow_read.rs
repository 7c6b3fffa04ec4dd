// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads with a block that is not in memory, or that a fault may meet.
//!
//! ```text
//!   send_parts --> fetch of each block --> in memory --------------------> push --> end_push --> the last:
//!                                     `--> loading --> take_loads -------> push ---^             end_read
//! ```
//! The blocks are sent one by one, and give back their frames. Two reads that kept theirs until the last
//! block comes could wait for each other.

use super::judged::Found;
use super::read::Read;
use super::worker::Worker;
use crate::controller::refusal_of;
use crate::io::state::slab::Slab;
use gnstor_base::controller::{Effect, Outcome, PushRole, QueueKey, Remote, TransferId};
use gnstor_base::region::LocalRef;
use gnstor_base::time::Time;
use gnstor_flash::{Fetch, Loaded, Ppa, Ticket};
use gnstor_ftl::medium_pause;
use gnstor_proto::status::Refusal;
use std::collections::HashMap;

/// The blocks of a slow read.
#[derive(Debug)]
pub(super) struct Parts {
    pages: Box<[Ppa]>,
    /// Blocks that are still to be loaded or sent.
    pending: u32,
    failure: Option<Refusal>,
}

impl Parts {
    pub(super) fn pages(&self) -> &[Ppa] {
        &self.pages
    }
}

/// A block of a slow read.
#[derive(Debug)]
struct Part {
    read: u32,
    queue: QueueKey,
    remote: Remote,
    sum: u32,
    /// The load that brought the block.
    ticket: Option<Ticket>,
}

/// The blocks of one worker's slow reads.
#[derive(Debug)]
pub(super) struct SlowReads {
    loads: HashMap<Ticket, Part>,
    pushes: Slab<Part>,
    /// When to ask the medium, which does not notify.
    at: Time,
    /// When loads began, or one ended.
    since: Time,
}

impl Default for SlowReads {
    fn default() -> Self {
        Self { loads: HashMap::new(), pushes: Slab::marked_twice(), at: Time::NEVER, since: Time::ZERO }
    }
}

impl SlowReads {
    #[inline]
    pub(super) fn at(&self) -> Time {
        self.at
    }

    /// The parts of a read with these pages.
    pub(super) fn parts_of(&self, pages: Box<[Ppa]>, blocks: u32) -> Result<Box<Parts>, Refusal> {
        let loads = u32::try_from(self.loads.len()).unwrap_or(u32::MAX);
        if self.pushes.has_room(loads.saturating_add(blocks)) {
            Ok(Box::new(Parts { pages, pending: blocks, failure: None }))
        } else {
            Err(Refusal::NotReady)
        }
    }
}

impl Worker {
    /// Sends the blocks that are in memory, and has the others loaded.
    pub(super) fn send_parts(&mut self, now: Time, read: Read, blocks: &mut impl Iterator<Item = Found>) {
        let Some((permit, request)) = read.command() else { return };
        let (queue, first) = (permit.queue(), *request.get());
        let id = self.reads.begin(read);
        for (index, (page, zeros, sum)) in (0..first.blocks).zip(blocks) {
            let part = Part { read: id, queue, remote: first.remote_of(index), sum, ticket: None };
            match page.map_or(Fetch::Here(zeros), |page| self.shared.ftl().fetch(page)) {
                Fetch::Here(local) => self.push_part(part, local),
                Fetch::Loading(ticket) => {
                    let slow = self.reads.slow();
                    if slow.loads.is_empty() {
                        slow.since = now;
                    }
                    slow.loads.insert(ticket, part);
                    slow.at = now;
                }
                Fetch::Unreadable => self.end_part(now, id, Some(Refusal::Unreadable)),
            }
        }
    }

    fn push_part(&mut self, part: Part, local: LocalRef) {
        let Part { queue, remote, sum, .. } = part;
        let transfer = TransferId(self.reads.slow().pushes.insert(part));
        self.outbox.push(Effect::Push {
            transfer,
            queue,
            remote,
            local,
            sum: Some(sum),
            role: PushRole::Alone,
        });
    }

    /// Sends the blocks that the medium has loaded.
    #[inline]
    pub(super) fn take_loads(&mut self, now: Time) {
        if now >= self.reads.wants() {
            self.send_loaded(now);
        }
    }

    fn send_loaded(&mut self, now: Time) {
        while let Some((part, Loaded { ticket, result })) =
            self.shared.workers().loads().take(self.shared.ftl(), &mut self.reads.slow().loads)
        {
            self.reads.slow().since = now;
            // The name of a queue that is gone may be another one's by now.
            let is_gone = self.reads.get_mut(part.read).is_none_or(|read| read.command().is_none());
            match result {
                Ok(_) if is_gone => {
                    self.shared.ftl().release(ticket);
                    self.end_part(now, part.read, Some(Refusal::NotReady));
                }
                Ok(local) => self.push_part(Part { ticket: Some(ticket), ..part }, local),
                Err(_) => self.end_part(now, part.read, Some(Refusal::Unreadable)),
            }
        }
        let slow = self.reads.slow();
        slow.at = if slow.loads.is_empty() { Time::NEVER } else { now + medium_pause(now.since(slow.since)) };
    }

    /// The transfer of a block has ended.
    pub(super) fn end_push(&mut self, now: Time, transfer: TransferId, outcome: Outcome) {
        let Some(part) = self.reads.slow().pushes.remove(transfer.0) else {
            return self.shared.lock().smart_mut().count_unknown_transfer();
        };
        if let Some(ticket) = part.ticket {
            self.shared.ftl().release(ticket);
        }
        self.end_part(now, part.read, refusal_of(outcome));
    }

    /// A block has been sent, or cannot be. The last one ends the read. The serving lease may have ended
    /// meanwhile (protocol rule 2).
    fn end_part(&mut self, now: Time, id: u32, failure: Option<Refusal>) {
        let Some(read) = self.reads.get_mut(id) else { return };
        let done_at = read.done_at();
        let Some(parts) = read.parts() else { return };
        parts.failure = parts.failure.or(failure);
        parts.pending -= 1;
        if parts.pending > 0 {
            return;
        }
        let failure = parts.failure.or((!self.serves(done_at.max(now))).then_some(Refusal::NotServing));
        if let Some(read) = self.reads.end(id) {
            self.end_read(now, read, failure);
        }
    }
}
