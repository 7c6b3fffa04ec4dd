// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD during its restore, as its hosts see it. It answers, and every command has to be repeated later
//! (protocol rule 11).

use gnstor_base::controller::{AskId, Controller, Effect, Outcome, QueueKey, TransferId};
use gnstor_base::region::HostRegion;
use gnstor_base::time::Time;
use gnstor_proto::fabrics::{CmRequest, cm_reject};
use gnstor_proto::nvme::{Cqe, Sqe};
use gnstor_proto::status::{Detail, Refusal};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Most queues at a time. A host that connects while an SSD recovers must come back later anyway.
const MAX_QUEUES: usize = 4096;

/// Answers for an SSD that is not up yet. It needs no memory of the SSD's.
#[derive(Debug, Default)]
pub struct Recovering {
    /// Entries and head of each queue.
    queues: HashMap<QueueKey, (u16, u16)>,
    effects: VecDeque<Effect>,
}

impl Controller for Recovering {
    fn open_queue(&mut self, _now: Time, queue: QueueKey, request: &CmRequest) -> Result<(), u16> {
        if request.recfmt.get() != 0 {
            return Err(cm_reject::INVALID_RECFMT);
        }
        if request.hsqsize_z.get() == 0 || request.hrqsize.get() == 0 {
            return Err(cm_reject::INVALID_HSQSIZE);
        }
        if self.queues.len() == MAX_QUEUES {
            return Err(cm_reject::NO_RESOURCES);
        }
        self.queues.insert(queue, (request.hsqsize_z.get().saturating_add(1), 0));
        Ok(())
    }

    fn close_queue(&mut self, _now: Time, queue: QueueKey) {
        self.queues.remove(&queue);
        self.effects.retain(|effect| !matches!(effect, Effect::Complete { queue: of, .. } if *of == queue));
    }

    fn submit(&mut self, now: Time, queue: QueueKey, sqe: &Sqe) {
        let Some((entries, head)) = self.queues.get_mut(&queue) else { return };
        *head = (*head + 1) % *entries;
        let mut cqe = Cqe {
            dw0: Detail::new(Refusal::NotReady, None).to_dw0().into(),
            sqhd: (*head).into(),
            cid: sqe.cid.get().into(),
            ..Cqe::default()
        };
        cqe.set_status_word(Refusal::NotReady.status().0);
        self.effects.push_back(Effect::Complete { queue, cqe, at: now, pushed_bytes: 0 });
    }

    fn announce(&mut self, _commands: &[Sqe]) {}

    fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        Vec::new()
    }

    fn transferred(&mut self, _now: Time, _transfer: TransferId, _outcome: Outcome) {}

    fn answered(&mut self, _now: Time, _ask: AskId, _answer: Option<&Cqe>, _data: &[u8]) {}

    fn step(&mut self, _now: Time) {}

    fn next_event(&self) -> Option<Time> {
        None
    }

    fn pop_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
}
