// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The short way of most commands: a read of one block that is in memory or nowhere. One slot, one transfer, no lock.

use super::Core;
use crate::command::OK;
use crate::controller::refusal_of;
use crate::permission::Authorized;
use crate::permit::CompletionPermit;
use crate::request::{Refused, Request, Submission};
use gnstor_fabric::controller::{Effect, Outcome, QueueKey, TransferId};
use gnstor_fabric::region::LocalRef;
use gnstor_fabric::time::Time;
use gnstor_flash::Ppa;
use gnstor_ftl::Extent;
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::status::Refusal;

/// A read under way.
#[derive(Debug)]
pub(super) struct Read {
    /// Gone once the queue is.
    command: Option<(CompletionPermit, Authorized<Request>)>,
    /// Pinned; `None` where the block is not mapped and zeros go out.
    page: Option<Ppa>,
    /// When the model has the data at the host.
    done_at: Time,
}

/// It is moved twice, in and out of its slot.
const _: () = assert!(size_of::<Option<Read>>() <= 120);

/// The data of a block: its page, where it is, its sum.
type Found = (Option<Ppa>, LocalRef, u32);

impl Core {
    /// Begins the read if it is one of those; otherwise nothing has happened.
    #[inline]
    pub(super) fn begin_read(&mut self, now: Time, name: QueueKey, identity: Identity, sqe: &Sqe) -> bool {
        let (roster, ftl) = (&self.shared.roster, &self.shared.ftl);
        if !ftl.is_in_memory() || self.rules.is_recovering() || !self.reads.has_room(1) {
            return false;
        }
        // Whoever comes while the firmware is busy stands in line, behind those who wait.
        if !ftl.is_timeless() && (roster.is_waiting() || ftl.firmware_free() > now) {
            return false;
        }
        let Ok(request) = Request::parse(&Submission { identity, sqe }) else { return false };
        if request.blocks != 1 {
            return false;
        }
        let Ok(request) = self.rules.authorise(now, identity, request) else { return false };
        if self.rules.is_limited(&request) {
            return false;
        }
        if !roster.enter(self.index, request.slot(), self.version) {
            return false;
        }
        let share = roster.share(self.index);
        let Some((page, local, sum)) = self.find(&request) else {
            share.flight(request.slot()).leave(true);
            return false;
        };
        share.entered();
        let done_at = if ftl.is_timeless() {
            now
        } else {
            let accepted = ftl.accept_read(now);
            share.work(ftl.firmware_free().since(now));
            ftl.read_time(accepted, page.as_slice(), u32::from(page.is_none()))
        };
        if let Some(port) = self.ports.get(name) {
            port.fetch();
        }
        let remote = request.get().remote;
        let permit = CompletionPermit::issue(name, sqe.cid.get());
        let id = self.reads.insert(Read { command: Some((permit, request)), page, done_at });
        self.effects.push_back(Effect::Push { transfer: TransferId(id), queue: name, remote, local, sum: Some(sum) });
        true
    }

    /// The data of a block; `None` for what is not plain: an unreadable page, one of another life or of another block.
    #[inline]
    fn find(&self, request: &Authorized<Request>) -> Option<Found> {
        let (ftl, address) = (&self.shared.ftl, request.get().address);
        match ftl.extent(address.vid, request.generation(), address.vba) {
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

    /// Its transfer has ended.
    #[inline]
    pub(super) fn finish_read(&mut self, now: Time, read: Read, outcome: Outcome) {
        if let Some(page) = read.page {
            self.shared.ftl.unpin(page);
        }
        self.share().left();
        let Some((permit, request)) = read.command else { return };
        self.refresh();
        let failure: Option<Refused> = refusal_of(outcome).map(Into::into);
        // The lease may have ended in the meantime (protocol rule 2).
        let over = !self.rules.serves(read.done_at.max(now));
        let failure = failure.or_else(|| over.then(|| Refusal::NotServing.into()));
        match failure {
            Some(refused) => {
                let vid = request.get().address.vid.get();
                self.shared.lock().refuse_for_core(permit, vid, refused, read.done_at.max(now));
            }
            None => {
                self.share().count(request.slot(), read.page.is_some());
                let (queue, cid) = permit.spend();
                if let Some(port) = self.ports.get(queue) {
                    port.count();
                    let sqhd = port.complete().into();
                    let mut cqe = Cqe { sqhd, cid: cid.into(), ..Cqe::default() };
                    cqe.set_status_word(OK.status.0);
                    let (at, pushed_bytes) = (read.done_at, BLOCK_BYTES);
                    self.effects.push_back(Effect::Complete { queue, cqe, at, pushed_bytes });
                }
            }
        }
        self.leave(now, &request);
    }

    /// The request is done; a fence may have waited for it.
    #[inline]
    fn leave(&mut self, now: Time, request: &Authorized<Request>) {
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
        let gone: Vec<_> = self.reads.iter_mut().filter_map(|read| read.command.take_if(is_of)).collect();
        for (permit, request) in gone {
            permit.forfeit();
            self.share().forfeit();
            self.leave(self.now, &request);
        }
    }

    /// Queues with a read of the volume in this slot in flight that was judged by an older entry.
    pub(super) fn older_queues(&self, slot: u16) -> Vec<QueueKey> {
        let current = self.rules.serial(slot);
        let commands = self.reads.iter().filter_map(|(_, read)| read.command.as_ref());
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
            if let Effect::Push { transfer, .. } = effect
                && let Some(read) = self.reads.remove(transfer.0)
            {
                self.finish_read(self.now, read, Outcome::ConnectionLost);
            }
        }
    }

    /// Nobody is left to be answered.
    pub(super) fn forfeit_reads(&mut self) {
        for read in self.reads.iter_mut() {
            if let Some((permit, _)) = read.command.take() {
                permit.forfeit();
            }
        }
    }
}
