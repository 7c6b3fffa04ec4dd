// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The short way of most commands: a read of one block whose data is in memory. One slot, one transfer, no list.

use crate::command::{Single, Transfer};
use crate::controller::{Ssd, refusal_of};
use crate::permission::Authorized;
use crate::permit::CompletionPermit;
use crate::request::Request;
use gnstor_fabric::controller::{Effect, Outcome, QueueKey, TransferId};
use gnstor_fabric::time::Time;
use gnstor_flash::Fetch;
use gnstor_ftl::Extent;
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::status::Refusal;

impl Ssd {
    /// Begins the read if it is one of those; otherwise nothing has happened.
    #[inline]
    pub(crate) fn begin_single(
        &mut self,
        now: Time,
        accepted: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        request: Authorized<Request>,
    ) -> Result<(), (CompletionPermit, Authorized<Request>)> {
        let &Request { address, blocks, remote, .. } = request.get();
        if blocks != 1 || !self.ftl.is_in_memory() {
            return Err((permit, request));
        }
        let Extent::Page(page, sum) = self.ftl.extent(address.vid, request.generation(), address.vba) else {
            return Err((permit, request));
        };
        let Fetch::Here(local) = self.ftl.fetch(page) else {
            self.ftl.unpin(page);
            self.leave(now, request);
            self.refuse(permit, address.vid.get(), Refusal::Unreadable.into(), accepted);
            return Ok(());
        };
        let done_at = if self.ftl.is_timeless() { accepted } else { self.ftl.read_time(accepted, &[page], 0) };
        let single = Single { command: Some((permit, request)), page, done_at };
        self.singles += 1;
        let transfer = TransferId(self.transfers.insert(Transfer::Single(single)));
        self.effects.push_back(Effect::Push { transfer, queue, remote, local, sum: Some(sum) });
        Ok(())
    }

    /// Its transfer has ended.
    #[inline]
    pub(crate) fn finish_single(&mut self, now: Time, single: Single, outcome: Outcome) {
        self.singles -= 1;
        self.ftl.unpin(single.page);
        let Some((permit, request)) = single.command else { return };
        let failure = refusal_of(outcome).map(Into::into);
        self.finish_read(now, permit, failure, single.done_at, BLOCK_BYTES, request);
    }

    /// The queue is gone: its reads are no longer in flight, but their pages stay pinned until the transfers are
    /// answered.
    pub(crate) fn orphan_singles(&mut self, key: QueueKey) {
        if self.singles == 0 {
            return;
        }
        for transfer in self.transfers.iter_mut() {
            let Transfer::Single(Single { command, .. }) = transfer else { continue };
            let Some((permit, request)) = command.take_if(|(permit, _)| permit.queue() == key) else { continue };
            permit.forfeit();
            self.stats.permits_forfeited += 1;
            self.table.leave(request);
        }
    }

    /// Queue and request of each read of this kind that is in flight.
    pub(crate) fn singles(&self) -> impl Iterator<Item = (QueueKey, &Authorized<Request>)> {
        self.transfers.iter().filter_map(|(_, transfer)| match transfer {
            Transfer::Single(Single { command: Some((permit, request)), .. }) => Some((permit.queue(), request)),
            Transfer::Single(_) | Transfer::Part { .. } => None,
        })
    }
}
