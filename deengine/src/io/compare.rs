// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compare: the SSD fetches the host's data, and the stored blocks must be equal.
//!
//! ```text
//!   authorised as a read --> Pull into scratch --> judged again --> block by block: page == data ?
//! ```
//! The SSD reads the blocks when the data is there, all at one moment, so it pins nothing. This is the only
//! command for which the firmware reads block data. Fused commands do not exist here: the frame check refuses
//! them.
//!
//! The model charges a read of the pages, with its transfer, although the bytes go the other way on the link.

use crate::commands::Accepted;
use crate::commands::CompletionPermit;
use crate::commands::scratch::Buffer;
use crate::commands::{OK, TransferKind, Work};
use crate::controller::Ssd;
use crate::permission::Authorized;
use crate::request::{Refused, Request};
use gnstor_base::time::Time;
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
        let Some(buffer) = self.scratch_for(accepted, permit.queue(), first.blocks << BLOCK_SHIFT) else {
            self.table.leave(request);
            return self.refuse(permit, vid, Refusal::NotReady.into(), accepted);
        };
        let local = self.commands.scratch.local(&buffer);
        let id = self.start(permit, vid, accepted, Work::Compare { request, buffer });
        self.pull(id, TransferKind::Other, first.remote, local);
    }

    /// The host's data is in the buffer, or its transfer has failed.
    pub(crate) fn finish_compare(
        &mut self,
        command: Accepted,
        failure: Option<Refused>,
        request: Authorized<Request>,
        buffer: Buffer,
    ) {
        let Accepted { now, at: accepted, permit } = command;
        // The first judgement found the client to be the identity of the queue.
        let identity = Identity::Client(request.get().address.client);
        let judged = match failure {
            Some(refused) => Err(refused),
            None => self.table.confirm(now, identity, &request),
        };
        let start = accepted.max(now);
        let (outcome, done) = match judged {
            Ok(()) => self.compare_blocks(start, &request, &buffer),
            Err(refused) => (Err(refused), start),
        };
        self.commands.scratch.give(buffer);
        let outcome = self.lease_over(done).map_or(outcome, Err);
        match outcome {
            Ok(()) => {
                self.count(&request);
                self.complete(permit, OK, done, 0);
            }
            Err(refused) => self.refuse(permit, request.get().address.vid.get(), refused, done),
        }
        self.leave(now, request);
    }

    /// What the comparison says, and when the model has read the pages for it.
    fn compare_blocks(
        &mut self,
        start: Time,
        request: &Authorized<Request>,
        buffer: &Buffer,
    ) -> (Result<(), Refused>, Time) {
        let address = request.get().address;
        let mut stored = [0; BLOCK_BYTES as usize];
        let mut given = [0; BLOCK_BYTES as usize];
        let mut outcome = Ok(());
        let mut zeros = 0;
        self.commands.lists.touched.clear();
        for index in 0..request.get().blocks {
            match self.ftl().extent(address.vid, request.generation(), address.vba + index) {
                Extent::Page(page, sum) => {
                    self.commands.lists.touched.push(page);
                    let read = self.ftl().read_now(page, &mut stored);
                    self.ftl().unpin(page);
                    if read.is_err() {
                        outcome = outcome.and(Err(Refusal::Unreadable));
                        continue;
                    }
                    if block_sum(&stored) != sum {
                        outcome = outcome.and(Err(Refusal::BadChecksum));
                        continue;
                    }
                }
                Extent::Unmapped | Extent::StaleGeneration => {
                    zeros += 1;
                    stored.fill(0);
                }
                Extent::WrongKey => {
                    outcome = outcome.and(Err(Refusal::WrongKey));
                    continue;
                }
            }
            self.commands.scratch.read_at(buffer, index << BLOCK_SHIFT, &mut given);
            if stored != given {
                outcome = outcome.and(Err(Refusal::CompareFailed));
            }
        }
        let done = self.ftl().read_time(start, &self.commands.lists.touched, zeros);
        (outcome.map_err(Refused::from), done)
    }
}
