// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of target offload that a worker passes to the SSD: queues open and close, transfers end, time
//! passes.

use super::*;

impl Ssd {
    pub(crate) fn open_queue(&mut self, now: Time, key: QueueKey, request: &CmRequest) -> Result<(), u16> {
        if request.recfmt.get() != 0 {
            return Err(cm_reject::INVALID_RECFMT);
        }
        if request.qid.get() > MAX_IO_QUEUES {
            return Err(cm_reject::INVALID_QID);
        }
        if !(1..MAX_QUEUE_ENTRIES).contains(&request.hsqsize_z.get()) {
            return Err(cm_reject::INVALID_HSQSIZE);
        }
        if request.hrqsize.get() == 0 {
            return Err(cm_reject::INVALID_HRQSIZE);
        }
        let entries = request.hsqsize_z.get() + 1;
        if request.qid.get() == 0 && entries > MAX_ADMIN_ENTRIES {
            return Err(cm_reject::INVALID_HSQSIZE);
        }
        while !self.hosts.has_room() {
            let oldest = self.hosts.gives_entries().ok_or(cm_reject::NO_RESOURCES)?;
            self.shut(now, oldest);
        }
        if self.hosts.queue(key).is_some() {
            return Err(cm_reject::NO_RESOURCES);
        }
        self.hosts.open(key, request.qid.get(), entries);
        Ok(())
    }

    pub(crate) fn close_queue(&mut self, now: Time, key: QueueKey) {
        self.tear_down(now, key);
    }

    pub(crate) fn transferred(&mut self, now: Time, transfer: TransferId, outcome: Outcome) {
        let Some(id) = self.commands.end_transfer(transfer.0) else {
            self.smart.count_unknown_transfer();
            return;
        };
        let Some(command) = self.commands.get_mut(id) else { return };
        let refusal = match outcome {
            // The data changed on its way to the SSD, so the stored data is intact.
            Outcome::BadChecksum => Some(Refusal::TransferError),
            outcome => refusal_of(outcome),
        };
        if let Some(refusal) = refusal {
            command.fail(refusal.into());
        }
        self.ended(now, id);
    }

    pub(crate) fn step(&mut self, now: Time) {
        if now < self.alarm {
            return;
        }
        self.commands.begin_step();
        let keep_alive = loop {
            match self.hosts.first_deadline() {
                (deadline, Some(admin)) if deadline <= now => self.shut(now, admin),
                (deadline, _) => break deadline,
            }
        };
        self.watch_flash(now);
        self.count_on(now);
        let delayed = self.begin_delayed(now);
        let fence = self.close_stragglers(now).min(self.watch_fences(now)).min(self.close_holders(now));
        // Work done here may set a new alarm.
        self.alarm = Time::NEVER;
        let (sweep, layer) = (self.sweep(now), self.maintain(now));
        let change = self.change_on(now).min(self.poll_smart_counters(now));
        let ask = self.ask_voters(now).min(self.repair_on(now));
        self.alarm = self
            .alarm
            .max(now + SOON)
            .min(keep_alive)
            .min(fence)
            .min(sweep)
            .min(layer)
            .min(delayed)
            .min(change)
            .min(ask)
            .min(self.smart.save_at());
    }
}

impl Drop for Ssd {
    /// An SSD may be switched off with commands in flight; their hosts see the connection break.
    fn drop(&mut self) {
        let ids: Vec<u32> = self.commands.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(permit) = self.commands.get_mut(id).and_then(Command::take_permit) {
                permit.forfeit();
            }
        }
    }
}
