// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The short way of most commands: a read of blocks that are in memory or nowhere. One slot, one answer, no lock.

use super::Core;
use crate::command::OK;
use crate::controller::refusal_of;
use crate::permission::Authorized;
use crate::permit::CompletionPermit;
use crate::request::{Request, Submission};
use gnstor_fabric::controller::{Effect, Outcome, PushRole, QueueKey, Reply, TransferId};
use gnstor_fabric::region::LocalRef;
use gnstor_fabric::time::{Span, Time};
use gnstor_flash::Ppa;
use gnstor_ftl::Extent;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::status::Refusal;

/// Blocks of a read that goes the short way.
const MOST_BLOCKS: u32 = 256;

/// How long the modelled firmware is left free for the core whose turn it is; after that whoever comes goes on. As a late call changes no
/// modelled time, nothing is lost by it.
const TURN: Span = Span::from_ns(2_000);

/// Most commands that a core takes at once from its line, and which part of the line that may be: where few wait, all take turns one by one.
const BURST: usize = 8;
const BURST_SHARE: usize = 4;

/// A read under way.
#[derive(Debug)]
pub(super) struct Read {
    command: Command,
    /// Pinned.
    pages: Pages,
    /// When the model has the data at the host.
    done_at: Time,
    /// Blocks that are not mapped: zeros go out.
    unmapped: u32,
}

/// What is answered when a read is done; gone once its queue is.
pub(super) type Command = Option<(CompletionPermit, Authorized<Request>)>;

/// The pages of a read: one is what most have.
#[derive(Debug)]
enum Pages {
    One(Option<Ppa>),
    Many(Box<[Ppa]>),
}

impl Pages {
    fn as_slice(&self) -> &[Ppa] {
        match self {
            Self::One(page) => page.as_slice(),
            Self::Many(pages) => pages,
        }
    }
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
        while !self.line.is_empty() && self.shared.ftl.firmware_free() <= now && self.serve_some(now) {}
        self.share().set_in_line(self.line.controllers());
    }

    /// Takes the next command, or a burst of them where many wait: the model's state and what reads look for come to this core's cache once for
    /// all of a burst. `false` where it is not this core's turn.
    fn serve_some(&mut self, now: Time) -> bool {
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
        let most = (self.line.len() / BURST_SHARE).clamp(1, BURST);
        let mut burst = std::mem::take(&mut self.burst);
        while burst.len() < most
            && self.shared.roster.is_cores_turn()
            && let Some(next) = self.line.pop(&mut self.ports)
        {
            self.shared.roster.core_took(self.index);
            burst.push(next);
        }
        if burst.len() > 1 {
            self.announce_reads(burst.iter().map(|(_, _, sqe)| sqe));
        }
        for (name, arrived, sqe) in burst.drain(..) {
            self.share().went();
            let reader = self.ports.get(name).and_then(|port| port.reader);
            let start = self.shared.ftl.firmware_free().max(arrived);
            if !reader.is_some_and(|identity| self.begin(now, start, name, identity, &sqe)) {
                self.ask(now, name, &sqe, false);
            }
        }
        self.burst = burst;
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
        if blocks > MOST_BLOCKS || !self.reads.has_room(1) {
            return false;
        }
        let Ok(request) = self.rules.authorise(now, identity, request) else { return false };
        if self.rules.is_limited(&request) {
            return false;
        }
        if !roster.enter(self.index, request.slot(), self.version) {
            return false;
        }
        let slot = request.slot();
        let Some((pages, unmapped)) = self.find_all(&request) else {
            self.share().flight(slot).leave(true);
            return false;
        };
        let done_at = self.book(start, pages.as_slice(), unmapped);
        self.share().entered();
        if let Some(port) = self.ports.get(name) {
            port.fetch();
        }
        let read =
            Read { command: Some((CompletionPermit::issue(name, sqe.cid.get()), request)), pages, done_at, unmapped };
        // The response leaves without another look at the rules: what is read is what was true while the lease held (protocol rule 2).
        if self.rules.serves(done_at.max(now)) {
            self.send(name, sqe.cid.get(), read);
        } else {
            self.refuse_read(now, read, Refusal::NotServing);
        }
        true
    }

    /// The data of all blocks, in `found`: their pages, and how many are not mapped. `None` where one is not plain to read.
    #[inline]
    fn find_all(&mut self, request: &Authorized<Request>) -> Option<(Pages, u32)> {
        let (first, blocks) = (request.get().address.vba, request.get().blocks);
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        found.extend((0..blocks).map_while(|index| self.find(request, first + index)));
        let mapped = || found.iter().filter_map(|(page, ..)| *page);
        let all = if found.len() != blocks as usize {
            mapped().for_each(|page| self.shared.ftl.unpin(page));
            None
        } else if blocks == 1 {
            let page = mapped().next();
            Some((Pages::One(page), u32::from(page.is_none())))
        } else {
            let pages: Box<[Ppa]> = mapped().collect();
            let unmapped = blocks - u32::try_from(pages.len()).expect("at most MOST_BLOCKS");
            Some((Pages::Many(pages), unmapped))
        };
        self.found = found;
        all
    }

    /// The blocks in `found` and the response go out.
    #[inline]
    fn send(&mut self, queue: QueueKey, cid: u16, read: Read) {
        let sqhd = self.ports.get(queue).map_or(0, |port| port.head()).into();
        let mut cqe = Cqe { sqhd, cid: cid.into(), ..Cqe::default() };
        cqe.set_status_word(OK.status.0);
        let reply = Reply { cqe, at: read.done_at };
        let Some((_, request)) = &read.command else { return };
        let first = *request.get();
        let transfer = TransferId(self.reads.insert(read));
        for (index, (_, local, sum)) in (0u32..).zip(self.found.drain(..)) {
            let role = if index + 1 == first.blocks { PushRole::Last(reply) } else { PushRole::Part };
            let remote = first.remote_of(index);
            self.effects.push_back(Effect::Push { transfer, queue, remote, local, sum: Some(sum), role });
        }
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

    /// The answer has ended: its host has the data and the response, or neither.
    #[inline]
    pub(super) fn end_read(&mut self, now: Time, mut read: Read, outcome: Outcome) {
        if let Some(refusal) = refusal_of(outcome) {
            return self.refuse_read(now, read, refusal);
        }
        self.refresh();
        let Some((permit, request)) = read.command.take() else { return self.let_go(&read) };
        self.let_go(&read);
        let blocks = request.get().blocks;
        self.share().count(request.slot(), blocks, read.unmapped);
        let (queue, _) = permit.spend();
        if let Some(port) = self.ports.get(queue) {
            port.count(blocks);
            port.complete();
        }
        self.leave(now, &request);
    }

    fn refuse_read(&mut self, now: Time, mut read: Read, refusal: Refusal) {
        self.refresh();
        self.let_go(&read);
        let Some((permit, request)) = read.command.take() else { return };
        let vid = request.get().address.vid.get();
        self.shared.lock().refuse_for_core(permit, vid, refusal.into(), read.done_at.max(now));
        self.leave(now, &request);
    }

    #[inline]
    fn let_go(&self, read: &Read) {
        read.pages.as_slice().iter().for_each(|page| self.shared.ftl.unpin(*page));
        self.share().left();
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
        self.reads.iter_mut().map(|read| &mut read.command).chain(self.writes.commands())
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
            if let Effect::Push { transfer, role: PushRole::Last(_), .. } = effect
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
