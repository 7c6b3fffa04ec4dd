// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads. A worker alone serves blocks in memory and unmapped blocks, with one slot, one answer and no lock.
//! The firmware serves all other reads.

use super::judged::Found;
use super::worker::Worker;
use crate::commands::CompletionPermit;
use crate::commands::OK;
use crate::controller::refusal_of;
use crate::io::state::slab::Slab;
use crate::permission::Authorized;
use crate::request::{Request, Submission};
use gnstor_base::controller::{Effect, Outcome, PushRole, QueueKey, Reply, TransferId};
use gnstor_base::time::Time;
use gnstor_flash::Ppa;
use gnstor_ftl::{Batch, Extent};
use gnstor_proto::nvme::{self, Cqe, ReadWrite, Sqe};
use gnstor_proto::status::Refusal;

/// A read under way.
#[derive(Debug)]
pub(super) struct Read {
    command: Command,
    /// Pinned.
    pages: Pages,
    /// Time at which the model has the data at the host.
    done_at: Time,
    /// Blocks that are not mapped: zeros go out.
    unmapped: u32,
}

/// The permit and the request of a command; `None` once its queue is gone.
pub(super) type Command = Option<(CompletionPermit, Authorized<Request>)>;

/// The pages of a read. Most reads have one.
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

impl Read {
    pub(super) fn blocks(&self) -> usize {
        self.pages.as_slice().len() + self.unmapped as usize
    }

    pub(super) fn pages(&self) -> &[Ppa] {
        self.pages.as_slice()
    }

    pub(super) fn unmapped(&self) -> u32 {
        self.unmapped
    }

    pub(super) fn done_at(&self) -> Time {
        self.done_at
    }

    /// The model has the data at the host at `done_at`.
    pub(super) fn book(&mut self, done_at: Time) {
        self.done_at = done_at;
    }
}

/// The reads of one worker.
#[derive(Debug)]
pub(super) struct Reads {
    slots: Slab<Read>,
    /// Sum of a block of zeros.
    zero_sum: u32,
    batch: Batch,
}

impl Reads {
    pub(super) fn new(zero_sum: u32) -> Self {
        Self { slots: Slab::marked(), zero_sum, batch: Batch::default() }
    }

    /// Ends the transfers of a read. `None`: no read has this number.
    #[inline]
    pub(super) fn end(&mut self, transfer: TransferId) -> Option<Read> {
        self.slots.remove(transfer.0)
    }
}

/// A read is moved twice, in and out of its slot.
const _: () = assert!(size_of::<Option<Read>>() <= 128);

impl Worker {
    /// Adds the read to the judged commands, if the worker may serve it alone. `false`: nothing has
    /// happened.
    #[inline]
    pub(super) fn judge_read(
        &mut self,
        now: Time,
        arrived: Time,
        queue: QueueKey,
        submission: Submission<'_>,
    ) -> bool {
        let workers = self.shared.workers();
        if !self.shared.ftl().is_in_memory() || self.rules.is_recovering() {
            return false;
        }
        let Ok(request) = Request::parse(&submission) else { return false };
        if !self.reads.slots.has_room(u32::try_from(self.judged.len() + 1).expect("a burst")) {
            return false;
        }
        let Ok(request) = self.rules.authorise(now, workers.lease_end(), submission.identity, request) else {
            return false;
        };
        if self.rules.is_limited(&request) {
            return false;
        }
        if !workers.enter(self.shared.index(), request.slot(), self.rules.version()) {
            return false;
        }
        let slot = request.slot();
        let Some((pages, unmapped)) = self.find_all(&request) else {
            self.state().in_flight(slot).leave(true);
            return false;
        };
        self.state().entered();
        if let Some(port) = self.ports.get(queue) {
            port.fetch();
        }
        let command = Some((CompletionPermit::issue(queue, submission.sqe.cid.get()), request));
        // `book` sets the time.
        let read = Read { command, pages, done_at: Time::NEVER, unmapped };
        self.judged.add_read(arrived, read);
        true
    }

    /// Asks for the map's entries and the pages' records that the reads among these will look for.
    pub(super) fn announce_reads<'a>(&mut self, commands: impl Iterator<Item = &'a Sqe>) {
        let blocks = commands
            .filter(|sqe| sqe.opcode == nvme::io::READ)
            .filter_map(|sqe| ReadWrite::decode(sqe).slba.unpack());
        let mut blocks = blocks.map(|address| (address.vid, address.vba)).peekable();
        while blocks.peek().is_some() {
            self.shared.ftl().announce(blocks.by_ref(), &mut self.reads.batch);
        }
    }

    /// Finds the data of all blocks and appends it to `found`. Returns their pages, and the number of
    /// unmapped ones. `None` if a block cannot be read on this path.
    #[inline]
    fn find_all(&mut self, request: &Authorized<Request>) -> Option<(Pages, u32)> {
        let (first, blocks) = (request.get().address.vba, request.get().blocks);
        let mut all = self.judged.take_found();
        let before = all.len();
        all.extend((0..blocks).map_while(|index| self.find(request, first + index)));
        let found = &all[before..];
        let mapped = || found.iter().filter_map(|(page, ..)| *page);
        let pages = if found.len() != blocks as usize {
            mapped().for_each(|page| self.shared.ftl().unpin(page));
            None
        } else if blocks == 1 {
            let page = mapped().next();
            Some((Pages::One(page), u32::from(page.is_none())))
        } else {
            let pages: Box<[Ppa]> = mapped().collect();
            let unmapped = blocks - u32::try_from(pages.len()).expect("blocks of a command");
            Some((Pages::Many(pages), unmapped))
        };
        if pages.is_none() {
            all.truncate(before);
        }
        self.judged.keep_found(all);
        pages
    }

    /// Sends the blocks and the response.
    #[inline]
    pub(super) fn send(&mut self, read: Read, blocks: &mut impl Iterator<Item = Found>) {
        let Some((permit, request)) = &read.command else { return };
        let (queue, cid, first) = (permit.queue(), permit.cid(), *request.get());
        let sqhd = self.ports.get(queue).map_or(0, |port| port.head()).into();
        let mut cqe = Cqe { sqhd, cid: cid.into(), ..Cqe::default() };
        cqe.set_status_word(OK.status.0);
        let reply = Reply { cqe, at: read.done_at };
        let transfer = TransferId(self.reads.slots.insert(read));
        for (index, (_, local, sum)) in (0..first.blocks).zip(blocks) {
            let role = if index + 1 == first.blocks { PushRole::Last(reply) } else { PushRole::Part };
            let remote = first.remote_of(index);
            self.outbox.push(Effect::Push { transfer, queue, remote, local, sum: Some(sum), role });
        }
    }

    /// The data of a block. `None`: the page is unreadable, or belongs to an earlier volume or to another
    /// block.
    #[inline]
    fn find(&self, request: &Authorized<Request>, vba: u32) -> Option<Found> {
        let ftl = self.shared.ftl();
        match ftl.extent(request.get().address.vid, request.generation(), vba) {
            Extent::Page(page, sum) => {
                // A fetch may draw a fault, so only the SSD fetches pages that may fail.
                if let Some(local) = ftl.fetch_plainly(page) {
                    return Some((Some(page), local, sum));
                }
                ftl.unpin(page);
                None
            }
            Extent::Unmapped => Some((None, ftl.zero_page(), self.reads.zero_sum)),
            Extent::StaleGeneration | Extent::WrongKey => None,
        }
    }

    /// The transfers have ended: the host has the data and the response, or neither.
    #[inline]
    pub(super) fn end_read(&mut self, now: Time, mut read: Read, outcome: Outcome) {
        if let Some(refusal) = refusal_of(outcome) {
            return self.refuse_read(now, read, refusal);
        }
        self.refresh();
        let Some((permit, request)) = read.command.take() else { return self.let_go(&read) };
        self.let_go(&read);
        let blocks = request.get().blocks;
        self.state().count(request.slot(), blocks, read.unmapped);
        let (queue, _) = permit.spend();
        if let Some(port) = self.ports.get(queue) {
            port.count(blocks);
            port.complete();
        }
        self.leave(now, &request);
    }

    pub(super) fn refuse_read(&mut self, now: Time, mut read: Read, refusal: Refusal) {
        self.refresh();
        self.let_go(&read);
        let Some((permit, request)) = read.command.take() else { return };
        let vid = request.get().address.vid.get();
        self.shared.lock().refuse(permit, vid, refusal.into(), read.done_at.max(now));
        self.leave(now, &request);
    }

    #[inline]
    fn let_go(&self, read: &Read) {
        read.pages.as_slice().iter().for_each(|page| self.shared.ftl().unpin(*page));
        self.state().left();
    }

    /// The request is done; a fence may have waited for it.
    #[inline]
    pub(super) fn leave(&mut self, now: Time, request: &Authorized<Request>) {
        let is_current = self.rules.serial(request.slot()) == Some(request.serial());
        self.state().in_flight(request.slot()).leave(is_current);
        if self.shared.workers().is_fencing() {
            self.shared.lock().complete_fences(now);
        }
    }

    /// The queue is gone: its reads are no longer in flight, but their pages stay pinned until the
    /// transfers are answered.
    pub(super) fn orphan_commands(&mut self, name: QueueKey) {
        let is_of = |(permit, _): &mut (CompletionPermit, _)| permit.queue() == name;
        let gone: Vec<_> = self.commands().filter_map(|command| command.take_if(is_of)).collect();
        for (permit, request) in gone {
            permit.forfeit();
            self.state().forfeit();
            self.leave(self.now, &request);
        }
    }

    /// The reads and writes under way.
    fn commands(&mut self) -> impl Iterator<Item = &mut Command> {
        self.reads.slots.iter_mut().map(|read| &mut read.command).chain(self.writes.commands())
    }

    /// Queues with a read of the volume in this slot in flight that was judged by an older entry.
    pub(super) fn older_queues(&mut self, slot: u16) -> Vec<QueueKey> {
        let current = self.rules.serial(slot);
        let commands = self.commands().filter_map(|command| command.as_ref());
        let older =
            commands.filter(|(_, request)| request.slot() == slot && Some(request.serial()) != current);
        let mut queues: Vec<QueueKey> = older.map(|(permit, _)| permit.queue()).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }

    /// Forfeits all permits: no command gets a completion any more.
    pub(super) fn forfeit_commands(&mut self) {
        for command in self.commands() {
            if let Some((permit, _)) = command.take() {
                permit.forfeit();
            }
        }
    }
}
