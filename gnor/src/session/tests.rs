// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A session with a scripted SSD behind a real transport, in real time.
#![expect(clippy::disallowed_methods, reason = "the session's thread has a clock")]

use super::*;
use crate::map_watch::Ask;
use gnstor_base::controller::{AskId, Controller, Effect, Outcome, QueueKey, TransferId};
use gnstor_base::region::HostRegion;
use gnstor_base::testing::deadline;
use gnstor_base::time::Time;
use gnstor_fabric::device::{Choice, Device, Residency};
use gnstor_fabric::runtime::TransportThreads;
use gnstor_fabric::transport::{RcTransport, TransportConfig};
use gnstor_proto::fabrics::{self, fctype, fctype_of};
use gnstor_proto::nvme::{Cqe, Sqe};
use std::collections::VecDeque;
use std::time::Instant;

/// An SSD that only has admin queues, of one controller.
#[derive(Default)]
struct Admin {
    effects: VecDeque<Effect>,
    /// It answers no Connect.
    is_full: Arc<AtomicBool>,
}

impl Controller for Admin {
    fn open_queue(&mut self, _: Time, _: QueueKey, _: &CmRequest) -> Result<(), u16> {
        Ok(())
    }
    fn close_queue(&mut self, _: Time, _: QueueKey) {}
    fn submit(&mut self, now: Time, queue: QueueKey, sqe: &Sqe) {
        let fctype = (sqe.opcode == fabrics::OPCODE).then(|| fctype_of(sqe));
        if fctype == Some(fctype::CONNECT) && self.is_full.load(Ordering::Relaxed) {
            return;
        }
        // Both a controller id, and a status that says ready.
        let dw0 = u32::from(matches!(fctype, Some(fctype::CONNECT | fctype::PROPERTY_GET)));
        let cqe = Cqe { dw0: dw0.into(), cid: sqe.cid, ..Cqe::default() };
        self.effects.push_back(Effect::Complete { queue, cqe, at: now, pushed_bytes: 0 });
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
        self.effects.pop_front()
    }
}

/// The way to that SSD.
#[derive(Clone, Debug, Default)]
struct Way {
    is_cut: Arc<AtomicBool>,
}

impl Connector for Way {
    fn ssds(&self) -> usize {
        1
    }
    fn link_of(&self, ssd: usize) -> usize {
        ssd
    }
    fn reconnects(&self) -> bool {
        true
    }
    fn link(&self, ssds: &[usize], _: Duration) -> Vec<Result<SsdAddress, Unreached>> {
        let way = |_: &usize| match self.is_cut.load(Ordering::Relaxed) {
            true => Err(Unreached { why: "nothing listens there".into(), for_good: false, was_cut: false }),
            false => Ok(SsdAddress { port: Port::Local(0), subnqn: fabrics::ssd_subnqn(0) }),
        };
        ssds.iter().map(way).collect()
    }
}

struct Scene {
    session: Session,
    is_full: Arc<AtomicBool>,
    way: Way,
    node: Node,
    _engine: TransportThreads,
}

impl Scene {
    fn new() -> Self {
        let (mut transport, ssd) = (RcTransport::new(TransportConfig::default()), Admin::default());
        let (is_full, way) = (Arc::clone(&ssd.is_full), Way::default());
        transport.add_target(Box::new(ssd), vec![]);
        let engine = TransportThreads::start(vec![transport]).expect("a thread");
        let device = Device::open(Choice::Host).expect("the host device is always there");
        let node = Node::new(engine.handle(), &device, Residency::TwoKernels).expect("a node starts");
        let client = ClientId::new(1).expect("a client id");
        let registration = Registration { client, serial: 0, secret: None };
        let session = Session::connect(&node, registration, Arc::new(way.clone())).expect("it connects");
        Self { session, is_full, way, node, _engine: engine }
    }
}

#[test]
fn a_path_that_replaces_one_with_a_keep_alive_on_its_way_is_not_given_up() {
    let _deadline = deadline();
    let scene = Scene::new();
    let mut new = scene.session.dial_anew(&scene.node.launch_lock(), ADMIN_DEADLINE);
    assert_eq!(new.len(), 1);
    while !new.is_empty() {
        let old = scene.session.shared.change(|inner, now| {
            let is_asked = inner.in_use(0).is_some_and(|path| path.asked.is_some());
            if is_asked { inner.put_in_use(now, std::mem::take(&mut new)) } else { Vec::new() }
        });
        drop(old);
        std::thread::sleep(Duration::from_micros(100));
    }
    let begun = Instant::now();
    while begun.elapsed() < thread::PACE.silence + Duration::from_secs(1) {
        assert!(scene.session.is_up(0), "after {:?}: {:?}", begun.elapsed(), scene.session.missing());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_ssd_keeps_its_path_if_only_a_short_deadline_of_another_dial_has_passed() {
    let _deadline = deadline();
    let scene = Scene::new();
    scene.is_full.store(true, Ordering::Relaxed);
    assert!(scene.session.dial_anew(&scene.node.launch_lock(), Duration::from_millis(50)).is_empty());
    assert!(scene.session.is_up(0), "{:?}", scene.session.missing());
    scene.is_full.store(false, Ordering::Relaxed);
    // It is known soon that nothing listens there.
    scene.way.is_cut.store(true, Ordering::Relaxed);
    assert!(scene.session.dial_anew(&scene.node.launch_lock(), Duration::from_millis(50)).is_empty());
    assert!(!scene.session.is_up(0));
}

/// Its map has another address of the SSD.
#[derive(Debug)]
struct Moves;

impl Follower for Moves {
    fn take(&self, _: &[u8]) -> Taken {
        Taken::Nothing
    }
    fn take_dropped(&self) -> Vec<usize> {
        Vec::new()
    }
    fn take_moved(&self) -> Vec<usize> {
        vec![0]
    }
    fn ask_daemon(&self) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn the_path_to_an_ssd_that_moves_is_given_up_and_the_ssd_is_dialled_again() {
    let _deadline = deadline();
    let scene = Scene::new();
    scene.session.follow(Arc::new(Moves), 1);
    thread::take_map(&scene.session.shared, Ask::Daemon, Some(&[]));
    assert!(!scene.session.is_up(0));
    assert_eq!(scene.session.wait_found(ADMIN_DEADLINE), Wait::Found);
    assert!(scene.session.has_found());
}
