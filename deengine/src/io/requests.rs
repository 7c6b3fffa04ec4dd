// SPDX-License-Identifier: Apache-2.0 OR MIT
//! I/O commands: from an authorised request to its extents, transfers and completion.

use crate::controller::Ssd;
use crate::io::command::{OK, TransferKind, Work};
use crate::io::permit::CompletionPermit;
use crate::io::waiting::Load;
use crate::permission::Authorized;
use crate::request::{
    RANGE_BYTES, RANGE_SHIFT, Refused, Request, Verb, check_any_namespace, check_frame, check_namespace,
    data_pointer,
};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_flash::Fetch;
use gnstor_ftl::Extent;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::{Sqe, io};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::Refusal;

/// Dataset Management, CDW11: attribute "deallocate". The other attributes are hints.
const DSM_DEALLOCATE: u32 = 1 << 2;

impl Ssd {
    pub(crate) fn submit_io(
        &mut self,
        now: Time,
        start: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        identity: Identity,
        sqe: &Sqe,
    ) {
        // The firmware's time is spent on refused commands too.
        let accepted =
            if sqe.opcode == io::READ { self.ftl.accept_read(start) } else { self.ftl.accept_write(start) };
        match sqe.opcode {
            io::FLUSH => match check_frame(sqe).and_then(|()| check_any_namespace(sqe)) {
                Ok(()) => self.make_durable(now, permit, queue, 0, accepted),
                Err(refused) => self.refuse(permit, 0, refused, accepted),
            },
            io::READ | io::WRITE | io::WRITE_ZEROES | io::COMPARE => {
                self.submit_request(now, accepted, permit, queue, identity, sqe);
            }
            io::DATASET_MANAGEMENT => self.begin_deallocate(accepted, permit, queue, identity, sqe),
            _ => self.refuse(permit, 0, Refusal::InvalidOpcode.into(), accepted),
        }
    }

    /// Begins what the permission table has allowed.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        accepted: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        identity: Identity,
        request: Authorized<Request>,
    ) {
        match request.get().verb {
            Verb::Read | Verb::Compare if self.refuses_unwritten(&request) => {
                let vid = request.get().address.vid.get();
                self.leave(now, request);
                self.refuse(permit, vid, Refusal::Deallocated.into(), accepted);
            }
            Verb::Read => self.begin_read(now, accepted, permit, queue, request),
            Verb::Write => self.begin_write(now, accepted, permit, queue, identity, request),
            Verb::Compare => self.begin_compare(accepted, permit, queue, identity, request),
            Verb::Trim => self.trim(now, accepted, permit, queue, vec![request]),
        }
    }

    /// The host has asked to be told of blocks without content (DULBE), and there is one.
    fn refuses_unwritten(&self, request: &Authorized<Request>) -> bool {
        let is_unwritten = |extent| matches!(extent, Extent::Unmapped | Extent::StaleGeneration);
        let address = request.get().address;
        self.tell_unwritten
            && (0..request.get().blocks).any(|index| {
                let extent = self.ftl.extent(address.vid, request.generation(), address.vba + index);
                if let Extent::Page(page, _) = extent {
                    self.ftl.unpin(page);
                }
                is_unwritten(extent)
            })
    }

    fn begin_read(
        &mut self,
        now: Time,
        accepted: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        request: Authorized<Request>,
    ) {
        let first = *request.get();
        let vid = first.address.vid;
        let mut extents = std::mem::take(&mut self.extents);
        extents.clear();
        let generation = request.generation();
        extents.extend(
            (0..first.blocks).map(|index| self.ftl.extent(vid, generation, first.address.vba + index)),
        );
        self.touched.clear();
        let (mut zeros, mut wrong) = (0, false);
        for extent in &extents {
            match *extent {
                Extent::Page(page, _) => self.touched.push(page),
                Extent::Unmapped => zeros += 1,
                Extent::WrongKey => wrong = true,
                Extent::StaleGeneration => {
                    zeros += 1;
                    self.stats.stale_generation_reads += 1;
                }
            }
        }
        if wrong {
            self.touched.iter().for_each(|page| self.ftl.unpin(*page));
            self.extents = extents;
            self.leave(now, request);
            return self.refuse(permit, vid.get(), Refusal::WrongKey.into(), accepted);
        }
        self.stats.unmapped_reads += u64::from(zeros);
        let done_at = self.ftl.read_time(accepted, &self.touched, zeros);
        let id = self.start(permit, queue, vid.get(), done_at, Work::Read(request));
        for (index, extent) in (0u32..).zip(&extents) {
            let remote = first.remote_of(index);
            let Extent::Page(page, sum) = *extent else {
                let local = self.ftl.zero_page();
                self.push(id, TransferKind::Other, remote, local, Some(self.zero_sum));
                continue;
            };
            match self.ftl.fetch(page) {
                Fetch::Here(local) => self.push(id, TransferKind::FromPage(page), remote, local, Some(sum)),
                Fetch::Loading(ticket) => self.load(id, ticket, Load { command: id, page, remote, sum }),
                Fetch::Unreadable => {
                    self.ftl.unpin(page);
                    self.fail(id, Refusal::Unreadable);
                }
            }
        }
        self.extents = extents;
        if self.commands.get_mut(id).is_some_and(|command| command.pending == 0) {
            self.finish(now, id);
        }
    }

    pub(crate) fn finish_read(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        failure: Option<Refused>,
        done_at: Time,
        pushed_bytes: u32,
        request: Authorized<Request>,
    ) {
        let Request { blocks, address, .. } = *request.get();
        let failure = failure.or_else(|| self.lease_over(done_at.max(now)));
        if let Some(refused) = failure {
            self.refuse(permit, address.vid.get(), refused, done_at.max(now));
        } else {
            self.count(&request);
            self.stats.reads += 1;
            self.stats.blocks_read += u64::from(blocks);
            self.complete(permit, OK, done_at, pushed_bytes);
        }
        self.leave(now, request);
    }

    fn begin_deallocate(
        &mut self,
        accepted: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        identity: Identity,
        sqe: &Sqe,
    ) {
        let ranges = (sqe.cdw10.get() & 0xFF) + 1;
        let bytes = ranges << RANGE_SHIFT;
        let checked =
            check_frame(sqe).and_then(|()| check_namespace(sqe)).and_then(|()| data_pointer(sqe, bytes));
        let remote = match checked {
            Ok(remote) => remote,
            Err(refused) => return self.refuse(permit, 0, refused, accepted),
        };
        let Some(buffer) = self.scratch.take(bytes) else {
            return self.refuse(permit, 0, Refusal::NotReady.into(), accepted);
        };
        let local = self.scratch.local(&buffer);
        let id = self.start(
            permit,
            queue,
            0,
            accepted,
            Work::Deallocate { sqe: Box::new(*sqe), identity, buffer },
        );
        self.pull(id, TransferKind::Other, remote, local);
    }

    /// Every range is judged before any is applied, so a refused command has done nothing.
    #[expect(clippy::too_many_arguments, reason = "the command's context and its data")]
    pub(crate) fn finish_deallocate(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        queue: QueueKey,
        accepted: Time,
        sqe: &Sqe,
        identity: Identity,
        data: &[u8],
    ) {
        let at = accepted.max(now);
        let mut requests = Vec::new();
        for range in data.as_chunks::<RANGE_BYTES>().0 {
            let judged = Request::parse_range(sqe, range)
                .and_then(|request| self.table.authorise(now, identity, request));
            match judged {
                Ok(request) => requests.push(request),
                Err(refused) => {
                    requests.into_iter().for_each(|request| self.table.leave(request));
                    let vid = Vid::new(u16::from_le_bytes([range[14], range[15]])).map_or(0, Vid::get);
                    return self.refuse(permit, vid, refused, at);
                }
            }
        }
        if sqe.cdw11.get() & DSM_DEALLOCATE != 0 {
            return self.trim(now, at, permit, queue, requests);
        }
        requests.into_iter().for_each(|request| self.table.leave(request));
        self.complete_fences(now);
        self.stats.writes += 1;
        self.complete(permit, OK, at, 0);
    }

    /// The request is done; a fence may have waited for it.
    pub(crate) fn leave(&mut self, now: Time, request: Authorized<Request>) {
        self.table.leave(request);
        self.complete_fences(now);
    }
}
