// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads. A worker serves them without a lock: it finds the blocks, and sends them with the response in one
//! answer. If a block is not in memory, [`super::slow_read`] sends the blocks.
//!
//! ```text
//!   judge_read ----> find_all --> book --> send --> one answer ---------------------> end_read
//!     | not plainly allowed        ^         `----> send_parts, of blocks to be loaded ---^
//!     `--> Ssd --> refused         |
//!           `----> begin_granted_read   allowed after all, or charged to a rate limit (`super::grants`)
//! ```

use super::effects::success;
use super::judged::Found;
use super::slow_read::{Parts, SlowReads};
use super::under_way::{Begun, Command};
use super::worker::Worker;
use crate::commands::CompletionPermit;
use crate::io::state::slab::Slab;
use crate::permission::Authorized;
use crate::request::{Request, Submission};
use gnstor_base::controller::{Effect, PushRole, QueueKey, Reply, TransferId};
use gnstor_base::time::Time;
use gnstor_flash::Ppa;
use gnstor_ftl::{Batch, Extent};
use gnstor_proto::checksum::block_sum;
use gnstor_proto::nvme::{self, ReadWrite, Sqe};
use gnstor_proto::status::Refusal;
use gnstor_proto::{BLOCK_BYTES, BLOCK_SHIFT};

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

/// The pages of a read. Most reads have one.
#[derive(Debug)]
enum Pages {
    One(Option<Ppa>),
    Many(Box<[Ppa]>),
    /// The read has a block that is not in memory, or that a fault may meet.
    Parts(Box<Parts>),
}

impl Pages {
    fn as_slice(&self) -> &[Ppa] {
        match self {
            Self::One(page) => page.as_slice(),
            Self::Many(pages) => pages,
            Self::Parts(parts) => parts.pages(),
        }
    }
}

impl Read {
    /// The command; `None` once its queue is gone.
    pub(super) fn command(&self) -> Option<&(CompletionPermit, Authorized<Request>)> {
        self.command.as_ref()
    }

    /// The blocks that are sent one by one.
    pub(super) fn parts(&mut self) -> Option<&mut Parts> {
        match &mut self.pages {
            Pages::Parts(parts) => Some(parts),
            Pages::One(_) | Pages::Many(_) => None,
        }
    }

    fn blocks(&self) -> usize {
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

/// What a worker sees of the blocks of a read.
#[derive(Debug, Default)]
struct Seen {
    /// A block is still to be fetched, from a file or with a fault to be drawn.
    is_slow: bool,
    /// Blocks of an earlier volume at the same place.
    stale: u64,
}

/// The reads of one worker.
#[derive(Debug)]
pub(super) struct Reads {
    slots: Slab<Read>,
    slow: SlowReads,
    /// Sum of a block of zeros.
    zero_sum: u32,
    batch: Batch,
}

impl Reads {
    pub(super) fn new() -> Self {
        let zero_sum = block_sum(&[0; BLOCK_BYTES as usize]);
        Self { slots: Slab::marked(), slow: SlowReads::default(), zero_sum, batch: Batch::default() }
    }

    /// When to ask the medium for loaded pages.
    #[inline]
    pub(super) fn wants(&self) -> Time {
        self.slow.at()
    }

    /// The reads that are sent in parts.
    pub(super) fn slow(&mut self) -> &mut SlowReads {
        &mut self.slow
    }

    /// Gives a read a number.
    pub(super) fn begin(&mut self, read: Read) -> u32 {
        self.slots.insert(read)
    }

    /// A read under way; `None`: no read has this number.
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Read> {
        self.slots.get_mut(id)
    }

    /// The commands of the reads in flight.
    pub(super) fn commands(&mut self) -> impl Iterator<Item = &mut Command> {
        self.slots.iter_mut().map(|read| &mut read.command)
    }

    /// Ends the transfers of a read; `None`: no read has this number.
    #[inline]
    pub(super) fn end(&mut self, id: u32) -> Option<Read> {
        self.slots.remove(id)
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
        if self.rules.is_recovering() {
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
        let Ok((pages, unmapped)) = self.find_all(queue, &request) else {
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
    /// unmapped ones. Otherwise the reason to refuse the read.
    #[inline]
    fn find_all(&mut self, queue: QueueKey, request: &Authorized<Request>) -> Result<(Pages, u32), Refusal> {
        let (first, blocks) = (request.get().address.vba, request.get().blocks);
        let (mut all, mut seen) = (self.judged.take_found(), Seen::default());
        let before = all.len();
        all.extend((0..blocks).map_while(|index| self.find(request, first + index, &mut seen)));
        let found = &all[before..];
        let mapped = || found.iter().filter_map(|(page, ..)| *page);
        let unmapped = blocks - u32::try_from(mapped().count()).expect("blocks of a command");
        let pages = if found.len() != blocks as usize {
            Err(Refusal::WrongKey)
        } else if unmapped > 0 && self.ports.look_at(queue).is_some_and(|port| port.tells_unwritten) {
            Err(Refusal::Deallocated)
        } else if seen.is_slow {
            self.reads.slow.parts_of(mapped().collect(), blocks).map(Pages::Parts)
        } else if blocks == 1 {
            Ok(Pages::One(mapped().next()))
        } else {
            Ok(Pages::Many(mapped().collect()))
        };
        let pages = pages.map(|pages| (pages, unmapped));
        if pages.is_err() {
            mapped().for_each(|page| self.shared.ftl().unpin(page));
            all.truncate(before);
        } else if seen.stale > 0 {
            self.shared.lock().smart_mut().count_stale_generations(seen.stale);
        }
        self.judged.keep_found(all);
        pages
    }

    /// Carries out a read that the firmware has allowed. The modelled firmware had taken it at `at`.
    pub(super) fn begin_granted_read(&mut self, now: Time, at: Time, command: Begun) {
        let (permit, request) = &command;
        let found = match self.reads.slots.has_room(1) {
            true => self.find_all(permit.queue(), request),
            false => Err(Refusal::NotReady),
        };
        let command = Some(command);
        let (pages, unmapped) = match found {
            Ok(found) => found,
            Err(refusal) => {
                let read = Read { command, pages: Pages::One(None), done_at: at, unmapped: 0 };
                return self.refuse_read(now, read, refusal);
            }
        };
        let done_at = self.shared.ftl().read_time(at, pages.as_slice(), unmapped);
        let mut found = self.judged.take_found();
        self.send(now, Read { command, pages, done_at, unmapped }, &mut found.drain(..));
        self.judged.keep_found(found);
    }

    /// Sends the blocks and the response. The response needs no second check of the rules: the data was
    /// current while the lease ran (protocol rule 2).
    #[inline]
    pub(super) fn send(&mut self, now: Time, read: Read, blocks: &mut impl Iterator<Item = Found>) {
        if !self.serves(read.done_at.max(now)) {
            blocks.by_ref().take(read.blocks()).for_each(drop);
            return self.refuse_read(now, read, Refusal::NotServing);
        }
        if let Pages::Parts(_) = read.pages {
            return self.send_parts(now, read, blocks);
        }
        let Some((permit, request)) = &read.command else { return };
        let (queue, cid, first) = (permit.queue(), permit.cid(), *request.get());
        let sqhd = self.ports.get(queue).map_or(0, |port| port.head());
        let reply = Reply { cqe: success(sqhd, cid), at: read.done_at };
        let transfer = TransferId(self.reads.slots.insert(read));
        for (index, (_, local, sum)) in (0..first.blocks).zip(blocks) {
            let role = if index + 1 == first.blocks { PushRole::Last(reply) } else { PushRole::Part };
            let remote = first.remote_of(index);
            self.outbox.push(Effect::Push { transfer, queue, remote, local, sum: Some(sum), role });
        }
    }

    /// The data of a block. `None`: the page belongs to another block.
    #[inline]
    fn find(&self, request: &Authorized<Request>, vba: u32, seen: &mut Seen) -> Option<Found> {
        let ftl = self.shared.ftl();
        let extent = ftl.extent(request.get().address.vid, request.generation(), vba);
        match extent {
            Extent::Page(page, sum) => {
                let local = ftl.fetch_plainly(page);
                seen.is_slow |= local.is_none();
                Some((Some(page), local.unwrap_or_else(|| ftl.zero_page()), sum))
            }
            Extent::Unmapped | Extent::StaleGeneration => {
                seen.stale += u64::from(extent == Extent::StaleGeneration);
                Some((None, ftl.zero_page(), self.reads.zero_sum))
            }
            Extent::WrongKey => None,
        }
    }

    /// The transfers have ended. The host has the data, and the response unless the read was sent in parts.
    #[inline]
    pub(super) fn end_read(&mut self, now: Time, mut read: Read, failure: Option<Refusal>) {
        if let Some(refusal) = failure {
            return self.refuse_read(now, read, refusal);
        }
        self.refresh();
        let Some((permit, request)) = read.command.take() else { return self.let_go(&read) };
        self.let_go(&read);
        let blocks = request.get().blocks;
        self.state().count(request.slot(), blocks, read.unmapped);
        let (queue, cid) = permit.spend();
        if let Some(port) = self.ports.get(queue) {
            port.count(blocks);
            let sqhd = port.complete();
            if let Pages::Parts(_) = read.pages {
                let (cqe, pushed_bytes) = (success(sqhd, cid), blocks << BLOCK_SHIFT);
                self.outbox.push(Effect::Complete { queue, cqe, at: read.done_at, pushed_bytes });
            }
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
}
