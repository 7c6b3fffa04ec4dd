// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads that the firmware serves, under its lock: blocks that are on flash.

use crate::commands::{Accepted, OK, TransferKind, Work};
use crate::controller::{Push, Ssd};
use crate::io::state::{Load, LoadFor};
use crate::permission::Authorized;
use crate::request::{Refused, Request};
use gnstor_base::controller::QueueKey;
use gnstor_flash::Fetch;
use gnstor_ftl::Extent;
use gnstor_proto::status::Refusal;

impl Ssd {
    /// Whether a read must be refused because a block is unwritten and the host has asked for that (DULBE).
    pub(super) fn refuses_unwritten(&self, queue: QueueKey, request: &Authorized<Request>) -> bool {
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

    pub(super) fn begin_read(&mut self, command: Accepted, request: Authorized<Request>) {
        let Accepted { now, at: accepted, permit } = command;
        let first = *request.get();
        let vid = first.address.vid;
        let mut extents = std::mem::take(&mut self.commands.lists.extents);
        extents.clear();
        let generation = request.generation();
        extents.extend(
            (0..first.blocks).map(|index| self.ftl().extent(vid, generation, first.address.vba + index)),
        );
        self.commands.lists.touched.clear();
        let (mut zeros, mut wrong) = (0, false);
        for extent in &extents {
            match *extent {
                Extent::Page(page, _) => self.commands.lists.touched.push(page),
                Extent::Unmapped => zeros += 1,
                Extent::WrongKey => wrong = true,
                Extent::StaleGeneration => {
                    zeros += 1;
                    self.smart_mut().count_stale_generation();
                }
            }
        }
        if wrong {
            self.commands.lists.touched.iter().for_each(|page| self.ftl().unpin(*page));
            self.commands.lists.extents = extents;
            self.leave(now, request);
            return self.refuse(permit, vid.get(), Refusal::WrongKey.into(), accepted);
        }
        self.smart_mut().count_unmapped(zeros);
        let done_at = self.ftl().read_time(accepted, &self.commands.lists.touched, zeros);
        let id = self.start(permit, vid.get(), done_at, Work::Read(request));
        for (index, extent) in (0u32..).zip(&extents) {
            let remote = first.remote_of(index);
            let Extent::Page(page, sum) = *extent else {
                let local = self.ftl().zero_page();
                let sum = Some(self.commands.lists.zero_sum);
                self.push(id, Push { kind: TransferKind::Other, remote, local, sum });
                continue;
            };
            match self.ftl().fetch(page) {
                Fetch::Here(local) => {
                    self.push(id, Push { kind: TransferKind::FromPage(page), remote, local, sum: Some(sum) });
                }
                Fetch::Loading(ticket) => {
                    self.load(id, ticket, Load { command: id, page, sum, to: LoadFor::Host(remote) });
                }
                Fetch::Unreadable => {
                    self.ftl().unpin(page);
                    self.fail(id, Refusal::Unreadable);
                }
            }
        }
        self.commands.lists.extents = extents;
        if self.commands.get_mut(id).is_some_and(|command| command.is_idle()) {
            self.finish(now, id);
        }
    }

    pub(crate) fn finish_read(
        &mut self,
        command: Accepted,
        failure: Option<Refused>,
        pushed_bytes: u32,
        request: Authorized<Request>,
    ) {
        let Accepted { now, at: done_at, permit } = command;
        let Request { blocks, address, .. } = *request.get();
        let failure = failure.or_else(|| self.lease_over(done_at.max(now)));
        if let Some(refused) = failure {
            self.refuse(permit, address.vid.get(), refused, done_at.max(now));
        } else {
            self.count(&request);
            self.smart_mut().count_read(blocks);
            self.complete(permit, OK, done_at, pushed_bytes);
        }
        self.leave(now, request);
    }
}
