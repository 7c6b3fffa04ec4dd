// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The short way of most commands: a read of blocks that are in memory or nowhere. One slot and one transfer a block, no lock.

use super::Core;
use crate::command::OK;
use crate::controller::refusal_of;
use crate::permission::Authorized;
use crate::permit::CompletionPermit;
use crate::request::{Refused, Request, Submission};
use gnstor_fabric::controller::{Effect, Outcome, QueueKey, TransferId};
use gnstor_fabric::region::LocalRef;
use gnstor_fabric::time::{Span, Time};
use gnstor_flash::Ppa;
use gnstor_ftl::Extent;
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::status::Refusal;

/// Blocks of a read that goes the short way.
const MOST_BLOCKS: u32 = 256;

/// How long the modelled firmware is left free for the core whose turn it is; after that whoever comes goes on. As a late call changes no
/// modelled time, nothing is lost by it.
const TURN: Span = Span::from_ns(2_000);

/// A block under way.
#[derive(Debug)]
pub(super) struct Read {
    /// Of a read of one block.
    command: Command,
    /// Pinned; `None` where the block is not mapped and zeros go out.
    page: Option<Ppa>,
    /// When the model has the data at the host.
    done_at: Time,
    /// The read of several blocks that it belongs to.
    group: u32,
}

/// What is answered when a read is done; gone once its queue is.
pub(super) type Command = Option<(CompletionPermit, Authorized<Request>)>;

/// No read of several blocks: numbers of a slab are never all ones.
const ALONE: u32 = u32::MAX;

/// A read of several blocks.
#[derive(Debug)]
pub(super) struct Group {
    command: Command,
    done_at: Time,
    /// Blocks whose transfers have not ended.
    pending: u32,
    unmapped: u32,
    /// The first one that is not good.
    outcome: Outcome,
}

/// It is moved twice, in and out of its slot.
const _: () = assert!(size_of::<Option<Read>>() <= 128);

/// The data of a block: its page, where it is, its sum.
pub(super) type Found = (Option<Ppa>, LocalRef, u32);

impl Core {
    /// Whether a read that comes now has to wait: behind those that do, or for the modelled firmware.
    #[inline]
    pub(super) fn is_busy(&self, now: Time) -> bool {
        let ftl = &self.shared.ftl;
        !ftl.is_timeless() && (!self.line.is_empty() || self.shared.roster.is_waiting() || ftl.firmware_free() > now)
    }

    /// Has a read wait with the core; `false` where arbitration is the firmware's.
    pub(super) fn wait_in_line(&mut self, now: Time, name: QueueKey, sqe: &Sqe) -> bool {
        let Some(controller) = self.ports.get(name).and_then(|port| port.in_turn) else { return false };
        self.share().entered();
        if self.line.is_empty() {
            self.shared.roster.join_line(self.index);
        }
        self.line.push(&mut self.ports, name, controller, now, sqe);
        self.share().set_in_line(self.line.controllers());
        true
    }

    /// A Fabrics command has come, which may end the queue: the reads that wait go before it.
    pub(super) fn begin_end(&mut self, now: Time, name: QueueKey) {
        for (_, sqe) in self.line.remove(&mut self.ports, name) {
            self.share().went();
            self.ask(now, name, &sqe, false);
        }
        if let Some(port) = self.ports.get(name) {
            port.is_ending = true;
        }
    }

    /// The host asks for a command of this queue back.
    pub(super) fn take_back(&mut self, name: QueueKey, cid: u16, abort: u32) {
        let taken = self.line.take(&mut self.ports, name, cid);
        if taken.is_some() {
            // Its entry is free again.
            if let Some(port) = self.ports.get(name) {
                port.fetch();
            }
            self.share().left();
        }
        let mut ssd = self.shared.lock();
        if taken.is_some() {
            let permit = CompletionPermit::issue(name, cid);
            ssd.refuse_for_core(permit, 0, Refusal::AbortRequested.into(), self.now);
        }
        ssd.end_abort(self.now, abort, taken.is_some());
    }

    /// Takes waiting reads as long as the modelled firmware is free by `now`; what waits under the lock takes turns with them.
    #[inline]
    pub(super) fn serve_line(&mut self, now: Time) {
        while !self.line.is_empty() && self.shared.ftl.firmware_free() <= now && self.serve_one(now) {}
        self.share().set_in_line(self.line.controllers());
    }

    /// `false` where it is not this core's turn.
    fn serve_one(&mut self, now: Time) -> bool {
        let roster = &self.shared.roster;
        if roster.is_waiting()
            && let Some(mut ssd) = self.shared.try_lock()
        {
            ssd.arbitrate(now);
            drop(ssd);
            // An Abort among them may ask for what is next here.
            if self.share().has_mail() {
                return false;
            }
        }
        if !roster.is_cores_turn() {
            return false;
        }
        // A late call makes nobody wait longer: the read is taken as of the time at which the firmware was free.
        let free = self.shared.ftl.firmware_free();
        if free > now || now.since(free) <= TURN && !roster.is_next(self.index) {
            return false;
        }
        let Some((name, arrived, sqe)) = self.line.pop(&mut self.ports) else { return false };
        roster.core_took(self.index);
        self.share().went();
        let reader = self.ports.get(name).and_then(|port| port.reader);
        let begun = reader.is_some_and(|identity| self.begin(now, free.max(arrived), name, identity, &sqe));
        if !begun {
            self.ask(now, name, &sqe, false);
        }
        true
    }

    /// Begins the read, which the modelled firmware takes at `start`, if it is one of those; otherwise nothing has happened.
    #[inline]
    pub(super) fn begin_read(&mut self, now: Time, start: Time, name: QueueKey, identity: Identity, sqe: &Sqe) -> bool {
        let roster = &self.shared.roster;
        if !self.shared.ftl.is_in_memory() || self.rules.is_recovering() {
            return false;
        }
        let Ok(request) = Request::parse(&Submission { identity, sqe }) else { return false };
        let blocks = request.blocks;
        if blocks > MOST_BLOCKS || !self.reads.has_room(blocks) || !self.groups.has_room(1) {
            return false;
        }
        let Ok(request) = self.rules.authorise(now, identity, request) else { return false };
        if self.rules.is_limited(&request) {
            return false;
        }
        if !roster.enter(self.index, request.slot(), self.version) {
            return false;
        }
        let begun = if blocks == 1 {
            self.begin_one(start, name, sqe.cid.get(), request)
        } else {
            self.begin_several(start, name, sqe.cid.get(), request)
        };
        if let Err(slot) = begun {
            self.share().flight(slot).leave(true);
            return false;
        }
        self.share().entered();
        if let Some(port) = self.ports.get(name) {
            port.fetch();
        }
        true
    }

    /// The slot of the volume, where the block is not plain to read.
    #[inline]
    fn begin_one(&mut self, start: Time, queue: QueueKey, cid: u16, request: Authorized<Request>) -> Result<(), u16> {
        let (slot, address) = (request.slot(), request.get().address);
        let Some((page, local, sum)) = self.find(&request, address.vba) else { return Err(slot) };
        let done_at = self.book(start, page.as_slice(), u32::from(page.is_none()));
        let remote = request.get().remote;
        let permit = CompletionPermit::issue(queue, cid);
        let id = self.reads.insert(Read { command: Some((permit, request)), page, done_at, group: ALONE });
        self.effects.push_back(Effect::Push { transfer: TransferId(id), queue, remote, local, sum: Some(sum) });
        Ok(())
    }

    #[inline]
    fn begin_several(
        &mut self,
        start: Time,
        queue: QueueKey,
        cid: u16,
        request: Authorized<Request>,
    ) -> Result<(), u16> {
        let (slot, first) = (request.slot(), *request.get());
        let mut found = std::mem::take(&mut self.found);
        found.extend((0..first.blocks).map_while(|index| self.find(&request, first.address.vba + index)));
        let mut pages = [Ppa(0); MOST_BLOCKS as usize];
        let mapped = found.iter().filter_map(|(page, ..)| *page);
        let mapped = pages.iter_mut().zip(mapped).map(|(place, page)| *place = page).count();
        let pages = &pages[..mapped];
        if found.len() != first.blocks as usize {
            pages.iter().for_each(|page| self.shared.ftl.unpin(*page));
            found.clear();
            self.found = found;
            return Err(slot);
        }
        let unmapped = first.blocks - u32::try_from(mapped).expect("at most MOST_BLOCKS");
        let done_at = self.book(start, pages, unmapped);
        let permit = CompletionPermit::issue(queue, cid);
        let (command, pending, outcome) = (Some((permit, request)), first.blocks, Outcome::Done { sum: 0 });
        let group = self.groups.insert(Group { command, done_at, pending, unmapped, outcome });
        for (index, (page, local, sum)) in (0u32..).zip(found.drain(..)) {
            let id = self.reads.insert(Read { command: None, page, done_at, group });
            let (transfer, remote) = (TransferId(id), first.remote_of(index));
            self.effects.push_back(Effect::Push { transfer, queue, remote, local, sum: Some(sum) });
        }
        self.found = found;
        Ok(())
    }

    /// The modelled firmware takes a read of these pages and `zeros` blocks of zeros at `start`; when the host has the data.
    #[inline]
    fn book(&self, start: Time, pages: &[Ppa], zeros: u32) -> Time {
        let booked = self.shared.ftl.book_read(start, pages, zeros);
        self.share().work(booked.free.since(start));
        booked.done
    }

    /// The data of a block; `None` for what is not plain: an unreadable page, one of another life or of another block.
    #[inline]
    fn find(&self, request: &Authorized<Request>, vba: u32) -> Option<Found> {
        let ftl = &self.shared.ftl;
        match ftl.extent(request.get().address.vid, request.generation(), vba) {
            Extent::Page(page, sum) => {
                // Whoever is asked draws a fault, so of a read that may fail only the SSD asks.
                if let Some(local) = ftl.fetch_plainly(page) {
                    return Some((Some(page), local, sum));
                }
                ftl.unpin(page);
                None
            }
            Extent::Unmapped => Some((None, ftl.zero_page(), self.zero_sum)),
            Extent::StaleGeneration | Extent::WrongKey => None,
        }
    }

    /// The transfer of a block has ended.
    #[inline]
    pub(super) fn end_read(&mut self, now: Time, read: Read, outcome: Outcome) {
        if let Some(page) = read.page {
            self.shared.ftl.unpin(page);
        }
        if read.group == ALONE {
            self.share().left();
            let unmapped = u32::from(read.page.is_none());
            return self.finish_read(now, read.command, read.done_at, unmapped, outcome);
        }
        let Some(group) = self.groups.get_mut(read.group) else { return };
        group.pending -= 1;
        if matches!(group.outcome, Outcome::Done { .. }) {
            group.outcome = outcome;
        }
        if group.pending == 0
            && let Some(group) = self.groups.remove(read.group)
        {
            self.share().left();
            self.finish_read(now, group.command, group.done_at, group.unmapped, group.outcome);
        }
    }

    /// All of a read has ended.
    #[inline]
    fn finish_read(&mut self, now: Time, command: Command, done_at: Time, unmapped: u32, outcome: Outcome) {
        let Some((permit, request)) = command else { return };
        self.refresh();
        let failure: Option<Refused> = refusal_of(outcome).map(Into::into);
        // The lease may have ended in the meantime (protocol rule 2).
        let over = !self.rules.serves(done_at.max(now));
        let failure = failure.or_else(|| over.then(|| Refusal::NotServing.into()));
        match failure {
            Some(refused) => {
                let vid = request.get().address.vid.get();
                self.shared.lock().refuse_for_core(permit, vid, refused, done_at.max(now));
            }
            None => {
                let blocks = request.get().blocks;
                self.share().count(request.slot(), blocks, unmapped);
                let (queue, cid) = permit.spend();
                if let Some(port) = self.ports.get(queue) {
                    port.count(blocks);
                    let sqhd = port.complete().into();
                    let mut cqe = Cqe { sqhd, cid: cid.into(), ..Cqe::default() };
                    cqe.set_status_word(OK.status.0);
                    let (at, pushed_bytes) = (done_at, blocks * BLOCK_BYTES);
                    self.effects.push_back(Effect::Complete { queue, cqe, at, pushed_bytes });
                }
            }
        }
        self.leave(now, &request);
    }

    /// The request is done; a fence may have waited for it.
    #[inline]
    pub(super) fn leave(&mut self, now: Time, request: &Authorized<Request>) {
        let is_current = self.rules.serial(request.slot()) == Some(request.serial());
        self.share().flight(request.slot()).leave(is_current);
        if self.shared.roster.is_fencing() {
            self.shared.lock().settle_fences(now);
        }
    }

    /// The queue is gone: its reads are no longer in flight, but their pages stay pinned until the transfers are
    /// answered.
    pub(super) fn orphan_reads(&mut self, name: QueueKey) {
        let is_of = |(permit, _): &mut (CompletionPermit, _)| permit.queue() == name;
        let gone: Vec<_> = self.commands().filter_map(|command| command.take_if(is_of)).collect();
        for (permit, request) in gone {
            permit.forfeit();
            self.share().forfeit();
            self.leave(self.now, &request);
        }
    }

    /// What the reads under way are to answer.
    fn commands(&mut self) -> impl Iterator<Item = &mut Command> {
        let single = self.reads.iter_mut().map(|read| &mut read.command);
        let groups = self.groups.iter_mut().map(|group| &mut group.command);
        single.chain(groups).chain(self.writes.commands())
    }

    /// Queues with a read of the volume in this slot in flight that was judged by an older entry.
    pub(super) fn older_queues(&mut self, slot: u16) -> Vec<QueueKey> {
        let current = self.rules.serial(slot);
        let commands = self.commands().filter_map(|command| command.as_ref());
        let older = commands.filter(|(_, request)| request.slot() == slot && Some(request.serial()) != current);
        let mut queues: Vec<QueueKey> = older.map(|(permit, _)| permit.queue()).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    /// The next thing that the core itself wants done.
    pub(super) fn pop_own(&mut self) -> Option<Effect> {
        loop {
            let mut effect = self.effects.pop_front()?;
            let (Effect::Pull { queue, .. }
            | Effect::Push { queue, .. }
            | Effect::Complete { queue, .. }
            | Effect::Close { queue }) = &mut effect;
            if let Some(port) = self.ports.get(*queue) {
                *queue = port.key;
                return Some(effect);
            }
            // The queue went before anybody took it.
            if let Effect::Pull { transfer, .. } = effect {
                self.end_pull(self.now, transfer, Outcome::ConnectionLost);
                continue;
            }
            if let Effect::Push { transfer, .. } = effect
                && let Some(read) = self.reads.remove(transfer.0)
            {
                self.end_read(self.now, read, Outcome::ConnectionLost);
            }
        }
    }

    /// Nobody is left to be answered.
    pub(super) fn forfeit_reads(&mut self) {
        for command in self.commands() {
            if let Some((permit, _)) = command.take() {
                permit.forfeit();
            }
        }
    }
}
