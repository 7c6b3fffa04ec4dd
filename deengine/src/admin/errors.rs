// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A command that did not succeed is noted in the error logs of its host and of the SSD.

use crate::commands::{Answer, CompletionPermit};
use crate::controller::Ssd;
use crate::hosts::Role;
use crate::smart::errors::ErrorEntry;
use gnstor_proto::fabrics::Identity;

impl Ssd {
    pub(crate) fn log_error(&mut self, permit: &CompletionPermit, vid: u16, answer: &Answer) {
        let Some(queue) = self.hosts.queue(permit.queue()) else { return };
        let (qid, role) = (queue.qid(), queue.role());
        let Answer { status, dw0, dw1, .. } = *answer;
        let entry = ErrorEntry { qid, cid: permit.cid(), status, vid, dw0, dw1 };
        self.smart_mut().log_error(entry);
        let (Role::Admin(cntlid) | Role::Io(cntlid, _)) = role else { return };
        if let Some(host) = self.hosts.host_mut(cntlid) {
            host.log_error(entry);
        }
        if let Role::Io(_, Identity::Client(client)) = role {
            self.table.count_refusal(vid, client);
        }
    }
}
