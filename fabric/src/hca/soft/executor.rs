// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The software executor as the transport drives it.

use super::*;

impl QpExecutor for SoftExecutor {
    /// The owner of an admin queue wakes the transport's thread (`HostQp`).
    fn must_be_polled(&self) -> bool {
        false
    }

    /// Host queues carry administration: to look at all their doorbells in every step would cost more than
    /// the I/O does.
    fn poll_interval(&self) -> u32 {
        16
    }

    fn poll_ahead(&self) -> usize {
        1
    }

    fn add_region(&mut self, region: &Arc<HostRegion>) {
        self.regions.insert(region.id(), Arc::clone(region));
    }

    fn remove_region(&mut self, id: RegionId) {
        self.regions.remove(&id);
    }

    fn keeps_mapped(&self) -> bool {
        false
    }

    fn poll(&mut self) -> Option<Up> {
        self.poll_entry().and_then(|entry| entry.decode())
    }

    fn push(&mut self, message: Down) {
        match message {
            Down::ToOwner { qpn, local, address, key, tag, sum } => {
                let keyed = Keyed { key, address, bytes: local.bytes };
                self.copy(Transfer { qpn, tag, local, keyed, to_owner: true, want: sum });
            }
            Down::FromOwner { qpn, local, address, key, tag } => {
                let keyed = Keyed { key, address, bytes: local.bytes };
                self.copy(Transfer { qpn, tag, local, keyed, to_owner: false, want: None });
            }
            Down::Send { qpn, bytes, .. } => self.deliver(qpn, bytes),
            Down::Cqe { qpn, opcode, syndrome, counter } => {
                if let Some(i) = self.find(qpn).filter(|&i| !self.overruns(i)) {
                    self.write_cqe(i, (opcode, syndrome), counter, 0);
                }
            }
            Down::QpError { qpn } => {
                if let Some(i) = self.find(qpn) {
                    let (posted, head) = (self.posted_receives(i), self.qps[i].rq_head);
                    self.qps[i].error = true;
                    self.qps[i].rq_head = posted;
                    let (index, status) = (head.into(), posted.into());
                    self.up.push_back(UpEntry {
                        kind: UP_RQ_FLUSH,
                        qpn,
                        index,
                        status,
                        ..UpEntry::default()
                    });
                }
            }
            Down::QpAnew { qpn, tag } => {
                self.begin_anew(qpn);
                self.up.push_back(UpEntry { kind: UP_QP_ANEW, qpn, index: tag, ..UpEntry::default() });
            }
            Down::Ping { tag } => {
                self.up.push_back(UpEntry { kind: UP_PONG, index: tag, ..UpEntry::default() })
            }
        }
    }

    /// A copy is over when `push` returns.
    fn take_back(&mut self, _qpn: u32) -> bool {
        true
    }
}
