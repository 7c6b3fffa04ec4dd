// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and writes that the firmware has allowed: the worker of their queue takes them over.
//!
//! ```text
//!   Ssd      rate limit, newer rules -> begin -----------> grant --> note --> begin_granted --> read, write
//!            frames are free --------> admit_write, frames --^                  | judged again
//!   counted in flight by              the table --------------------------------'--> the worker
//! ```
//! A fence sees the command at any moment: its count moves from the table to the worker under the SSD's lock.
//! If the queue ends before that, the grant ends with it.

use super::worker::Worker;
use crate::commands::{Accepted, CompletionPermit};
use crate::controller::Ssd;
use crate::io::state::Grant;
use crate::permission::Authorized;
use crate::request::{Request, Verb};
use gnstor_base::controller::QueueKey;
use gnstor_base::time::Time;
use gnstor_flash::Frame;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::slba::ClientId;

impl Ssd {
    /// Leaves an allowed command, a write with frames for its data, for the worker of its queue.
    pub(super) fn grant(&mut self, command: Accepted, request: Authorized<Request>, frames: Vec<Frame>) {
        let (queue, cid) = command.permit.spend();
        self.commands.grant(Grant { queue, cid, at: command.at, request, frames });
    }

    /// The queue is gone: its granted commands are no longer in flight.
    pub(crate) fn drop_grants(&mut self, queue: QueueKey) {
        while let Some(Grant { request, frames, .. }) = self.commands.take_grant(queue) {
            self.end_share(request.get().address.client, frames);
            self.table.leave(request);
            self.smart_mut().count_forfeited();
        }
    }

    /// Takes back the frames of a granted write that does not begin.
    fn end_share(&mut self, client: ClientId, frames: Vec<Frame>) {
        if !frames.is_empty() {
            self.commands.shares.give(client, u32::try_from(frames.len()).expect("blocks of a command"));
            self.ftl().give_frames(frames.into_iter());
        }
    }
}

impl Worker {
    /// Takes over a command of this queue that the firmware has allowed, if the rules of now allow it, too.
    /// From here on it is as any other of this worker.
    pub(super) fn begin_granted(&mut self, now: Time, queue: QueueKey) {
        let (mut ssd, workers) = (self.shared.lock(), self.shared.workers());
        let Some(Grant { cid, at, mut request, frames, .. }) = ssd.commands.take_grant(queue) else { return };
        let permit = CompletionPermit::issue(queue, cid);
        if workers.version() != self.rules.version() {
            self.rules.fetch(&mut ssd, &self.shared, &mut self.ports);
            self.writes.try_again();
        }
        let Request { address, verb, .. } = *request.get();
        let judged = self.rules.confirm(now, workers.lease_end(), Identity::Client(address.client), &request);
        ssd.table.release(&request);
        if let Err(refused) = judged {
            ssd.end_share(address.client, frames);
            ssd.refuse(permit, address.vid.get(), refused, at.max(now));
            return ssd.complete_fences(now);
        }
        if let Some(serial) = self.rules.serial(request.slot()) {
            request.confirmed_by(serial);
        }
        let is_counted = workers.enter(self.shared.index(), request.slot(), self.rules.version());
        assert!(is_counted, "the rules do not change while the SSD's lock is held");
        ssd.smart_mut().count_granted();
        self.shared.state().entered();
        ssd.complete_fences(now);
        drop(ssd);
        match verb {
            Verb::Write => self.begin_granted_write(now, at, (permit, request), &frames),
            _ => self.begin_granted_read(now, at, (permit, request)),
        }
    }
}
