// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compare: the SSD fetches the host's data, and the stored blocks must be equal.
//!
//! ```text
//!   authorised as a read --> Pull into scratch --> judged again --> page by page, perhaps loaded: == data ?
//! ```
//! The SSD looks up the blocks when the data is there, all at one moment, and pins their pages until they are
//! compared. A page that is not in memory is loaded as for a read: a slow disk holds up nothing else. Fused
//! commands do not exist here: the frame check refuses them.
//!
//! The model charges a read of the pages, with its transfer, although the bytes go the other way on the link.

use crate::commands::Accepted;
use crate::commands::CompletionPermit;
use crate::commands::scratch::Buffer;
use crate::commands::{OK, Work};
use crate::controller::Ssd;
use crate::io::state::{Commands, Load, LoadFor};
use crate::permission::Authorized;
use crate::request::{Refused, Request};
use gnstor_base::controller::QueueKey;
use gnstor_base::region::LocalRef;
use gnstor_base::time::Time;
use gnstor_flash::{Fetch, Ppa};
use gnstor_ftl::Extent;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::status::Refusal;
use gnstor_proto::{BLOCK_BYTES, BLOCK_SHIFT};

impl Ssd {
    pub(crate) fn begin_compare(
        &mut self,
        accepted: Time,
        permit: CompletionPermit,
        request: Authorized<Request>,
    ) {
        let first = *request.get();
        let vid = first.address.vid.get();
        if self.refuses_unwritten(permit.queue(), &request) {
            self.table.leave(request);
            return self.refuse(permit, vid, Refusal::Deallocated.into(), accepted);
        }
        let Some(buffer) = self.scratch_for(accepted, permit.queue(), first.blocks << BLOCK_SHIFT) else {
            self.table.leave(request);
            return self.refuse(permit, vid, Refusal::NotReady.into(), accepted);
        };
        let local = self.commands.scratch.local(&buffer);
        let id = self.start(permit, vid, accepted, Work::Compare { request, buffer, has_data: false });
        self.pull(id, first.remote, local);
    }

    /// Whether a block is unwritten and the host has asked for a refusal then (DULBE).
    fn refuses_unwritten(&self, queue: QueueKey, request: &Authorized<Request>) -> bool {
        let is_unwritten = |extent| matches!(extent, Extent::Unmapped | Extent::StaleGeneration);
        let address = request.get().address;
        self.hosts.tells_unwritten(queue)
            && (0..request.get().blocks).any(|index| {
                let extent = self.ftl().extent(address.vid, request.generation(), address.vba + index);
                if let Extent::Page(page, _) = extent {
                    self.ftl().unpin(page);
                }
                is_unwritten(extent)
            })
    }

    /// The host's data is in the buffer, or its transfer has failed.
    pub(crate) fn compare_data(
        &mut self,
        command: Accepted,
        failure: Option<Refused>,
        request: Authorized<Request>,
        buffer: Buffer,
    ) {
        let Accepted { now, at: accepted, permit } = command;
        // The first check has established that this client is the queue's identity.
        let identity = Identity::Client(request.get().address.client);
        let judged = match failure {
            Some(refused) => Err(refused),
            None => self.table.confirm(now, identity, &request),
        };
        let at = accepted.max(now);
        match judged {
            Ok(()) => self.compare_blocks(Accepted { now, at, permit }, request, buffer),
            Err(refused) => {
                self.finish_compare(Accepted { now, at, permit }, Some(refused), request, buffer);
            }
        }
    }

    /// All blocks have been compared.
    pub(crate) fn finish_compare(
        &mut self,
        command: Accepted,
        failure: Option<Refused>,
        request: Authorized<Request>,
        buffer: Buffer,
    ) {
        let Accepted { now, at: done, permit } = command;
        self.commands.scratch.give(buffer);
        let done = done.max(now);
        match self.lease_over(done).or(failure) {
            None => {
                self.count(&request);
                self.complete(permit, OK, done, 0);
            }
            Some(refused) => self.refuse(permit, request.get().address.vid.get(), refused, done),
        }
        self.leave(now, request);
    }

    /// Compares the pages that are in memory, and has the others loaded. The model reads all of them.
    fn compare_blocks(&mut self, command: Accepted, request: Authorized<Request>, buffer: Buffer) {
        let Accepted { now, at: start, permit } = command;
        let (address, generation) = (request.get().address, request.generation());
        let find = |index| self.ftl().extent(address.vid, generation, address.vba + index);
        let extents: Vec<Extent> = (0..request.get().blocks).map(find).collect();
        let (mut pages, mut zeros) = (Vec::new(), 0);
        for extent in &extents {
            match *extent {
                Extent::Page(page, _) => pages.push(page),
                Extent::Unmapped | Extent::StaleGeneration => zeros += 1,
                Extent::WrongKey => {}
            }
        }
        let done = self.ftl().read_time(start, &pages, zeros);
        // The host has sent its data. A wait of the SSD itself must not end the host's queue.
        self.commands.scratch.arrived(&buffer);
        let id =
            self.start(permit, address.vid.get(), done, Work::Compare { request, buffer, has_data: true });
        for (index, extent) in (0u32..).zip(&extents) {
            match *extent {
                Extent::Page(page, sum) => self.compare_page(id, index, page, sum),
                Extent::Unmapped | Extent::StaleGeneration => {
                    self.compare_block(id, index, &[0; BLOCK_BYTES as usize]);
                }
                Extent::WrongKey => self.fail(id, Refusal::WrongKey),
            }
        }
        if self.commands.get_mut(id).is_some_and(|command| command.is_idle()) {
            self.finish(now, id);
        }
    }

    fn compare_page(&mut self, id: u32, index: u32, page: Ppa, sum: u32) {
        match self.ftl().fetch(page) {
            Fetch::Here(local) => self.compare_stored(id, index, local, sum),
            Fetch::Loading(ticket) => {
                return self.load(id, ticket, Load { command: id, page, sum, to: LoadFor::Compare(index) });
            }
            Fetch::Unreadable => self.fail(id, Refusal::Unreadable),
        }
        self.ftl().unpin(page);
    }

    /// The page of a block is in memory.
    pub(super) fn compare_stored(&mut self, id: u32, index: u32, local: LocalRef, sum: u32) {
        let mut stored = [0; BLOCK_BYTES as usize];
        self.ftl().read_fetched(local, &mut stored);
        if block_sum(&stored) == sum {
            self.compare_block(id, index, &stored);
        } else {
            self.fail(id, Refusal::BadChecksum);
        }
    }

    fn compare_block(&mut self, id: u32, index: u32, stored: &[u8; BLOCK_BYTES as usize]) {
        let mut given = [0; BLOCK_BYTES as usize];
        let Commands { slots, scratch, .. } = &mut self.commands;
        let Some(Work::Compare { buffer, .. }) = slots.get_mut(id).map(|command| command.work()) else {
            return;
        };
        scratch.read_at(buffer, index << BLOCK_SHIFT, &mut given);
        if *stored != given {
            self.fail(id, Refusal::CompareFailed);
        }
    }
}
