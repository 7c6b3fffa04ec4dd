// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and writes that the firmware has allowed: the worker of their queue takes them over.
//!
//! ```text
//!   Ssd      rate limit, newer rules -> begin ------------> grant --> note --> take_over --> read, write
//!            frames are free -------> admit_write, frames --^                      | judged again
//!   counted in flight by             the table ------------------------------------'--> the worker
//! ```
//! A grant that its worker has not taken yet is in flight for a fence, since the table counts it. The count
//! moves under the SSD's lock. The worker looks whether the queue still exists: it may have gone meanwhile.

use super::under_way::Begun;
use super::worker::Worker;
use crate::commands::CompletionPermit;
use crate::io::state::Grant;
use crate::permission::Authorized;
use crate::request::{Refused, Request, Verb};
use gnstor_base::time::Time;
use gnstor_flash::Frame;
use gnstor_proto::fabrics::Identity;
use gnstor_proto::slba::ClientId;

impl Worker {
    /// Takes over a command that the firmware has allowed.
    pub(super) fn begin_granted(&mut self, now: Time, grant: Grant) {
        let Grant { queue, cid, at, request, frames } = grant;
        let Request { address, verb, .. } = *request.get();
        let is_gone = self.ports.get(queue).is_none();
        self.state().entered();
        match self.take_over(now, request) {
            Ok(request) if is_gone => self.leave(now, &request),
            Ok(request) => {
                let begun: Begun = (CompletionPermit::issue(queue, cid), request);
                return match verb {
                    Verb::Write => self.begin_granted_write(now, at, begun, &frames),
                    _ => self.begin_granted_read(now, at, begun),
                };
            }
            Err(_) if is_gone => {}
            Err(refused) => {
                let permit = CompletionPermit::issue(queue, cid);
                self.shared.lock().refuse(permit, address.vid.get(), refused, at.max(now));
            }
        }
        self.give_granted(address.client, frames);
        if is_gone {
            self.state().forfeit();
        }
        self.state().left();
    }

    /// Counts a command that the table has counted until now, if the rules of now allow it.
    fn take_over(
        &mut self,
        now: Time,
        mut request: Authorized<Request>,
    ) -> Result<Authorized<Request>, Refused> {
        let mut ssd = self.shared.lock();
        let workers = self.shared.workers();
        if workers.version() != self.rules.version() {
            self.rules.fetch(&mut ssd, &self.shared, &mut self.ports);
            self.writes.try_again();
        }
        let identity = Identity::Client(request.get().address.client);
        let judged = self.rules.confirm(now, workers.lease_end(), identity, &request);
        ssd.table.release(&request);
        if judged.is_ok() {
            if let Some(serial) = self.rules.serial(request.slot()) {
                request.confirmed_by(serial);
            }
            let is_counted = workers.enter(self.shared.index(), request.slot(), self.rules.version());
            assert!(is_counted, "the rules do not change while the SSD's lock is held");
        }
        ssd.complete_fences(now);
        judged.map(|()| request)
    }

    /// Gives back the frames of a granted write that does not begin.
    fn give_granted(&mut self, client: ClientId, frames: Vec<Frame>) {
        if !frames.is_empty() {
            let count = u32::try_from(frames.len()).expect("blocks of a command");
            self.shared.ftl().give_frames(frames.into_iter());
            self.shared.lock().commands.shares.give(client, count);
        }
    }
}
