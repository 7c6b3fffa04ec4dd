// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A controller that comes back when its engine ends: whoever made the SSD turns its power off.
//!
//! ```text
//!   lend(ssd) --Lent--> Engine::add_target ... engine ends: Lent is dropped --> Receiver: the SSD
//! ```

use gnstor_base::controller::{Controller, Effect, Outcome, QueueKey, TransferId};
use gnstor_base::time::Time;
use gnstor_proto::fabrics::CmRequest;
use gnstor_proto::nvme::Sqe;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A controller lent to an engine. When it is dropped the controller goes back, unless a panic is the reason: then its state is
/// not to be trusted, and it is dropped.
#[derive(Debug)]
pub struct Lent<C> {
    controller: Option<C>,
    back: Sender<C>,
}

/// Lends a controller; the receiver gets it back.
pub fn lend<C: Controller>(controller: C) -> (Lent<C>, Receiver<C>) {
    let (back, returned) = channel();
    (Lent { controller: Some(controller), back }, returned)
}

impl<C> Lent<C> {
    #[inline]
    fn get(&self) -> &C {
        self.controller.as_ref().expect("it is there until the drop")
    }

    #[inline]
    fn get_mut(&mut self) -> &mut C {
        self.controller.as_mut().expect("it is there until the drop")
    }
}

impl<C> Drop for Lent<C> {
    fn drop(&mut self) {
        if let Some(controller) = self.controller.take().filter(|_| !std::thread::panicking()) {
            // Nobody may want it: then it ends here.
            let _ = self.back.send(controller);
        }
    }
}

impl<C: Controller> Controller for Lent<C> {
    fn open_queue(&mut self, now: Time, queue: QueueKey, request: &CmRequest) -> Result<(), u16> {
        self.get_mut().open_queue(now, queue, request)
    }

    fn close_queue(&mut self, now: Time, queue: QueueKey) {
        self.get_mut().close_queue(now, queue);
    }

    fn submit(&mut self, now: Time, queue: QueueKey, sqe: &Sqe) {
        self.get_mut().submit(now, queue, sqe);
    }

    fn announce(&mut self, commands: &[Sqe]) {
        self.get_mut().announce(commands);
    }

    fn transferred(&mut self, now: Time, transfer: TransferId, outcome: Outcome) {
        self.get_mut().transferred(now, transfer, outcome);
    }

    fn step(&mut self, now: Time) {
        self.get_mut().step(now);
    }

    fn next_event(&self) -> Option<Time> {
        self.get().next_event()
    }

    fn pop_effect(&mut self) -> Option<Effect> {
        self.get_mut().pop_effect()
    }
}
