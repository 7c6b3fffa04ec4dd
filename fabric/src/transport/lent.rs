// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A controller that comes back when its transport ends: the owner of the SSD turns its power off.
//!
//! ```text
//!   lend(ssd) --Lent--> RcTransport::add_target ... transport ends: Lent is dropped --> Receiver: the SSD
//! ```

use gnstor_base::controller::{AskId, Controller, Effect, Outcome, QueueKey, TransferId};
use gnstor_base::region::HostRegion;
use gnstor_base::time::Time;
use gnstor_proto::fabrics::CmRequest;
use gnstor_proto::nvme::{Cqe, Sqe};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A controller lent to a transport. When it is dropped the controller goes back. After a panic the state
/// of the controller cannot be trusted, and it is dropped.
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
            // If the receiver is gone, the controller is dropped here.
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

    fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        self.get().own_memory()
    }

    fn transferred(&mut self, now: Time, transfer: TransferId, outcome: Outcome) {
        self.get_mut().transferred(now, transfer, outcome);
    }

    fn answered(&mut self, now: Time, ask: AskId, answer: Option<&Cqe>, data: &[u8]) {
        self.get_mut().answered(now, ask, answer, data);
    }

    fn step(&mut self, now: Time) {
        self.get_mut().step(now);
    }

    fn resumed(&mut self, now: Time) {
        self.get_mut().resumed(now);
    }

    fn leave(&mut self, now: Time) -> bool {
        self.get_mut().leave(now)
    }

    fn next_event(&self) -> Option<Time> {
        self.get().next_event()
    }

    fn pop_effect(&mut self) -> Option<Effect> {
        self.get_mut().pop_effect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{RcTransport, TransportConfig};
    use gnstor_base::testing::deadline;
    use std::sync::Mutex;

    /// A controller with memory of its own, which logs the name of each method that is called.
    struct Logs(Arc<HostRegion>, Arc<Mutex<Vec<&'static str>>>);

    impl Logs {
        fn log(&self, method: &'static str) {
            self.1.lock().expect("no panic while held").push(method);
        }
    }

    impl Controller for Logs {
        fn open_queue(&mut self, _: Time, _: QueueKey, _: &CmRequest) -> Result<(), u16> {
            self.log("open_queue");
            Ok(())
        }
        fn close_queue(&mut self, _: Time, _: QueueKey) {
            self.log("close_queue");
        }
        fn submit(&mut self, _: Time, _: QueueKey, _: &Sqe) {
            self.log("submit");
        }
        fn announce(&mut self, _: &[Sqe]) {
            self.log("announce");
        }
        fn own_memory(&self) -> Vec<Arc<HostRegion>> {
            vec![Arc::clone(&self.0)]
        }
        fn transferred(&mut self, _: Time, _: TransferId, _: Outcome) {
            self.log("transferred");
        }
        fn answered(&mut self, _: Time, _: AskId, _: Option<&Cqe>, _: &[u8]) {
            self.log("answered");
        }
        fn step(&mut self, _: Time) {
            self.log("step");
        }
        fn resumed(&mut self, _: Time) {
            self.log("resumed");
        }
        fn next_event(&self) -> Option<Time> {
            Some(Time::from_ns(7))
        }
        fn pop_effect(&mut self) -> Option<Effect> {
            self.log("pop_effect");
            None
        }
    }

    #[test]
    fn the_memory_of_a_lent_controller_is_known_to_its_transport() {
        let _deadline = deadline();
        let region = HostRegion::alloc(4096).unwrap();
        let (lent, _back) = lend(Logs(Arc::clone(&region), Arc::default()));
        let mut transport = RcTransport::new(TransportConfig::default());
        transport.add_target(Box::new(lent), Vec::new());
        let known: Vec<_> = transport.own_memory().iter().map(|region| region.id()).collect();
        assert_eq!(known, [region.id()]);
    }

    #[test]
    fn every_call_reaches_the_lent_controller() {
        let _deadline = deadline();
        let (region, log) = (HostRegion::alloc(4096).unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let (mut lent, back) = lend(Logs(region, Arc::clone(&log)));
        lent.open_queue(Time::ZERO, QueueKey(1), &CmRequest::default()).unwrap();
        lent.announce(&[Sqe::default()]);
        lent.submit(Time::ZERO, QueueKey(1), &Sqe::default());
        lent.transferred(Time::ZERO, TransferId(1), Outcome::ConnectionLost);
        lent.answered(Time::ZERO, AskId(1), None, &[]);
        lent.step(Time::ZERO);
        lent.resumed(Time::ZERO);
        assert!(lent.pop_effect().is_none() && lent.next_event() == Some(Time::from_ns(7)));
        lent.close_queue(Time::ZERO, QueueKey(1));
        assert_eq!(lent.own_memory().len(), 1);
        let called = "open_queue announce submit transferred answered step resumed pop_effect close_queue";
        assert_eq!(log.lock().unwrap().join(" "), called);
        drop(lent);
        assert!(back.try_recv().is_ok(), "the owner gets the controller back");
    }
}
