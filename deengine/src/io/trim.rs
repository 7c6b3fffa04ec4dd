// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Write Zeroes and Dataset Management: blocks that are unmapped.

use super::waiting::without_room;
use super::write::target;
use crate::commands::Accepted;
use crate::commands::CompletionPermit;
use crate::commands::{OK, Work};
use crate::controller::Ssd;
use crate::permission::Authorized;
use crate::request::{
    RANGE_BYTES, RANGE_SHIFT, Request, Submission, check_frame, check_namespace, data_pointer,
};
use gnstor_base::time::Time;
use gnstor_ftl::{CommitError, Target};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::nvme::Sqe;
use gnstor_proto::slba::Vid;
use gnstor_proto::status::Refusal;

/// Dataset Management, CDW11: attribute "deallocate". The other attributes are hints.
const DSM_DEALLOCATE: u32 = 1 << 2;

impl Ssd {
    pub(super) fn begin_deallocate(
        &mut self,
        accepted: Time,
        permit: CompletionPermit,
        Submission { identity, sqe }: Submission<'_>,
    ) {
        let ranges = (sqe.cdw10.get() & 0xFF) + 1;
        let bytes = ranges << RANGE_SHIFT;
        let checked =
            check_frame(sqe).and_then(|()| check_namespace(sqe)).and_then(|()| data_pointer(sqe, bytes));
        let remote = match checked {
            Ok(remote) => remote,
            Err(refused) => return self.refuse(permit, 0, refused, accepted),
        };
        let Some(buffer) = self.scratch_for(accepted, permit.queue(), bytes) else {
            return self.refuse(permit, 0, Refusal::NotReady.into(), accepted);
        };
        let local = self.commands.scratch.local(&buffer);
        let id = self.start(permit, 0, accepted, Work::Deallocate { sqe: Box::new(*sqe), identity, buffer });
        self.pull(id, remote, local);
    }

    /// Every range is judged before any is applied, so a refused command has done nothing.
    pub(crate) fn finish_deallocate(
        &mut self,
        command: Accepted,
        sqe: &Sqe,
        identity: Identity,
        data: &[u8],
    ) {
        let Accepted { now, at: accepted, permit } = command;
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
            return self.trim(Accepted { now, at, permit }, requests);
        }
        requests.into_iter().for_each(|request| self.table.leave(request));
        self.complete_fences(now);
        self.smart_mut().count_trim();
        self.complete(permit, OK, at, 0);
    }

    /// Unmaps the blocks of authorised requests, and completes.
    pub(crate) fn trim(&mut self, command: Accepted, mut requests: Vec<Authorized<Request>>) {
        let Accepted { now, at: accepted, permit } = command;
        let mut fua = !self.write_cache_enabled();
        let vid = requests.first().map_or(0, |request| request.get().address.vid.get());
        while let Some(request) = requests.last() {
            let Request { address, blocks, .. } = *request.get();
            fua |= request.get().fua;
            let Some(left) = self.commands.trim_left.checked_sub(blocks) else {
                let id = self.start(permit, address.vid.get(), accepted, Work::Trim(requests));
                return self.wait(now, id);
            };
            self.commands.trim_left = left;
            let target = Target { fills: self.table.rules().fills(request), ..target(request) };
            let trimmed = match self.ftl().trim(now, &target, blocks) {
                Ok(trimmed) => trimmed,
                Err(CommitError::Stalled) => {
                    let id = self.start(permit, address.vid.get(), accepted, Work::Trim(requests));
                    return self.wait(now, id);
                }
                Err(error) => {
                    let vid = address.vid.get();
                    requests.into_iter().for_each(|request| self.leave(now, request));
                    return self.refuse(permit, vid, without_room(error).into(), accepted.max(now));
                }
            };
            self.smart_mut().count_trimmed(trimmed.mapped.into(), trimmed.overtaken);
            let done = requests.pop().expect("just looked at");
            self.count(&done);
            self.leave(now, done);
        }
        self.smart_mut().count_trim();
        if fua {
            self.make_durable(now, permit, vid, accepted);
        } else {
            self.acknowledge(permit, vid, accepted.max(now));
        }
    }
}
