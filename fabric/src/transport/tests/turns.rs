// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The times at which a transport steps its SSDs, on a clock that goes on while they work.

use super::*;

/// The time, in ns.
type Now = Arc<Mutex<u64>>;

/// A controller that is always due. A step takes 1 ms.
struct Slow {
    now: Now,
    stepped_at: Arc<Mutex<Vec<Time>>>,
}

impl Controller for Slow {
    fn open_queue(&mut self, _: Time, _: QueueKey, _: &CmRequest) -> Result<(), u16> {
        Ok(())
    }
    fn close_queue(&mut self, _: Time, _: QueueKey) {}
    fn submit(&mut self, _: Time, _: QueueKey, _: &Sqe) {}
    fn announce(&mut self, _: &[Sqe]) {}
    fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        Vec::new()
    }
    fn transferred(&mut self, _: Time, _: TransferId, _: Outcome) {}
    fn answered(&mut self, _: Time, _: AskId, _: Option<&Cqe>, _: &[u8]) {}
    fn step(&mut self, now: Time) {
        self.stepped_at.lock().expect("no panic while held").push(now);
        *self.now.lock().expect("no panic while held") += 1_000_000;
    }
    fn resumed(&mut self, _: Time) {}
    fn next_event(&self) -> Option<Time> {
        Some(Time::ZERO)
    }
    fn pop_effect(&mut self) -> Option<Effect> {
        None
    }
}

#[test]
fn each_ssd_is_stepped_at_the_time_at_which_its_turn_has_come() {
    let _deadline = deadline();
    let (now, stepped_at) = (Now::default(), Arc::default());
    let mut transport = RcTransport::new(TransportConfig::default());
    for _ in 0..3 {
        let controller = Slow { now: Arc::clone(&now), stepped_at: Arc::clone(&stepped_at) };
        transport.add_target(Box::new(controller), Vec::new());
    }
    for _ in 0..2 {
        transport.step(|| Time::from_ns(*now.lock().expect("no panic while held")));
    }
    let expected: Vec<Time> = (0..6).map(|step| Time::ZERO + Span::from_ms(step)).collect();
    assert_eq!(*stepped_at.lock().expect("no panic while held"), expected);
}
