// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What wakes a transport's thread. Its naps last longer than a test may, so an answer that nothing wakes the
//! thread for does not come.
#![expect(clippy::disallowed_methods, reason = "threads sleep in real time")]

use gnstor_base::controller::{AskId, Controller, Effect, Outcome, QueueKey, TransferId};
use gnstor_base::region::HostRegion;
use gnstor_base::testing::deadline;
use gnstor_base::time::{Span, Time};
use gnstor_fabric::host_queue::{Completion, HostQp, SsdPath};
use gnstor_fabric::runtime::TransportThreads;
use gnstor_fabric::transport::{Port, RcTransport, TransportConfig};
use gnstor_proto::fabrics::CmRequest;
use gnstor_proto::nvme::{Cqe, Sqe};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAP: Span = Span::from_ms(1_000_000);
const PATIENCE: Duration = Duration::from_secs(20);
/// Until then a thread without work sleeps.
const REST: Duration = Duration::from_millis(20);

/// An SSD that answers each command at once.
#[derive(Default)]
struct Prompt(VecDeque<Effect>);

impl Controller for Prompt {
    fn open_queue(&mut self, _: Time, _: QueueKey, _: &CmRequest) -> Result<(), u16> {
        Ok(())
    }
    fn close_queue(&mut self, _: Time, _: QueueKey) {}
    fn submit(&mut self, now: Time, queue: QueueKey, sqe: &Sqe) {
        let cqe = Cqe { cid: sqe.cid, ..Cqe::default() };
        self.0.push_back(Effect::Complete { queue, cqe, at: now, pushed_bytes: 0 });
    }
    fn announce(&mut self, _: &[Sqe]) {}
    fn own_memory(&self) -> Vec<Arc<HostRegion>> {
        Vec::new()
    }
    fn transferred(&mut self, _: Time, _: TransferId, _: Outcome) {}
    fn answered(&mut self, _: Time, _: AskId, _: Option<&Cqe>, _: &[u8]) {}
    fn step(&mut self, _: Time) {}
    fn next_event(&self) -> Option<Time> {
        None
    }
    fn pop_effect(&mut self) -> Option<Effect> {
        self.0.pop_front()
    }
}

#[test]
fn a_capsule_of_a_host_queue_wakes_the_thread_that_serves_it() {
    let _deadline = deadline();
    let mut transport = RcTransport::new(TransportConfig { longest_nap: NAP, ..TransportConfig::default() });
    let port = Port::Local(transport.add_target(Box::new(Prompt::default()), Vec::new()));
    let executor = transport.add_soft();
    let threads = TransportThreads::start(vec![transport]).expect("a thread");
    let handle = threads.handle();
    let path = SsdPath { transport: &handle, executor, port, subnqn: "the SSD" };
    let mut queue = HostQp::connect(&path, 0, PATIENCE).expect("a connection");
    for cid in 0..3u16 {
        std::thread::sleep(REST);
        queue.send(&Sqe { cid: cid.into(), ..Sqe::default() });
        let sent = Instant::now();
        loop {
            match queue.poll() {
                Some(Completion::Response(cqe)) if cqe.cid.get() == cid => break,
                Some(Completion::Sent) => {}
                Some(other) => panic!("{other:?}"),
                None => std::thread::sleep(Duration::from_micros(100)),
            }
            assert!(sent.elapsed() < PATIENCE, "no answer to command {cid}");
        }
    }
}
