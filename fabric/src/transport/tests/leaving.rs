// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory is freed when its mover has stopped, not when its connection ends. The executor here moves as
//! slowly as the test says.

use super::*;
use gnstor_base::testing::deadline;

/// The requests that an executor got, and the reports that it will make.
#[derive(Default)]
struct Asked {
    tags: Vec<u32>,
    up: VecDeque<UpEntry>,
    stopped: bool,
}

#[derive(Clone, Default)]
struct Mover(Arc<Mutex<Asked>>);

impl Mover {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().expect("no panic while held")
    }

    fn answers(&self, tag: u32) {
        self.asked().up.push_back(UpEntry { kind: UP_DONE, qpn: QPN, index: tag, ..UpEntry::default() });
    }
}

impl QpExecutor for Mover {
    fn poll(&mut self) -> Option<Up> {
        self.asked().up.pop_front().and_then(|entry| entry.decode())
    }
    fn push(&mut self, message: Down) {
        if let Down::ToOwner { tag, .. } | Down::FromOwner { tag, .. } = message {
            self.asked().tags.push(tag);
        }
    }
    fn take_back(&mut self, qpn: u32) -> bool {
        assert_eq!(qpn, QPN);
        self.asked().stopped
    }
}

/// A transport whose SSD has asked an executor for a pull and a push.
struct Moving {
    transport: RcTransport,
    puppet: Puppet,
    mover: Mover,
    executor: ExecutorId,
    conn: ConnId,
    tags: [u32; 2],
    now: Time,
}

impl Moving {
    fn new() -> Self {
        let config = TransportConfig { link: LinkConfig::UNLIMITED, ..TransportConfig::default() };
        let (mut transport, puppet, mover) = (RcTransport::new(config), Puppet::default(), Mover::default());
        let flash = HostRegion::alloc(1 << 13).unwrap();
        let target = transport.add_target(Box::new(puppet.clone()), vec![Arc::clone(&flash)]);
        let executor = transport.add_other(Box::new(mover.clone()));
        let (reply, _answer) = mpsc::channel();
        let conn = transport.connect(Time::ZERO, to(executor, QPN, Port::Local(target)), reply);
        let (queue, remote) = (puppet.seen().opened[0], Memory { address: 0, key: 0 });
        puppet.seen().on_submit = vec![
            Effect::Pull { transfer: TransferId(1), queue, cid: 0, remote, local: flash.slice(0, 4096) },
            Effect::Push {
                transfer: TransferId(2),
                queue,
                remote,
                local: flash.slice(4096, 4096),
                sum: None,
                role: PushRole::Alone,
            },
        ];
        mover.asked().up.push_back(UpEntry { kind: UP_SEND, qpn: QPN, bytes: 64, ..UpEntry::default() });
        let mut moving = Self { transport, puppet, mover, executor, conn, tags: [0; 2], now: Time::ZERO };
        moving.steps();
        moving.tags = moving.mover.asked().tags[..].try_into().expect("a pull and a push");
        moving
    }

    /// Longer than any timeout of the transport.
    fn steps(&mut self) {
        for _ in 0..1000 {
            self.now = self.now + Span::from_ms(1);
            self.transport.step(self.now);
        }
    }

    fn ended(&mut self) -> Vec<Outcome> {
        self.steps();
        self.puppet.seen().ended.clone()
    }

    fn connects(&mut self) -> Result<(), Refused> {
        let (reply, answer) = mpsc::channel();
        self.transport.connect(self.now, to(self.executor, QPN, Port::Local(0)), reply);
        answer.try_recv().expect("a local SSD answers at once")
    }
}

const DONE: Outcome = Outcome::Done { sum: 0 };

#[test]
fn what_a_removed_executor_moves_stays_taken_until_it_has_stopped() {
    let _deadline = deadline();
    let mut moving = Moving::new();
    let (executor, [pull, push]) = (moving.executor, moving.tags);
    moving.transport.remove_executor(moving.now, executor);
    assert_eq!(moving.puppet.seen().closed.len(), 1, "the SSD knows at once");
    assert_eq!(moving.ended(), [], "it may still write");
    moving.mover.answers(push);
    assert_eq!(moving.ended(), [DONE]);
    assert!(moving.transport.transfers.contains_key(&pull), "the other copy may still write");
    moving.mover.asked().stopped = true;
    assert_eq!(moving.ended(), [DONE, Outcome::ConnectionLost]);
    assert!(moving.transport.transfers.is_empty());
    assert_eq!(Arc::strong_count(&moving.mover.0), 1, "the executor is dropped");
    moving.mover.answers(pull);
    assert_eq!(moving.ended().len(), 2, "a transfer ends once");
}

#[test]
fn a_removed_executor_that_answers_everything_is_dropped() {
    let _deadline = deadline();
    let mut moving = Moving::new();
    moving.transport.remove_executor(moving.now, moving.executor);
    moving.tags.iter().for_each(|&tag| moving.mover.answers(tag));
    assert_eq!(moving.ended(), [DONE, DONE]);
    assert_eq!(Arc::strong_count(&moving.mover.0), 1);
}

#[test]
fn what_a_closed_connection_moves_stays_taken_until_it_has_stopped() {
    let _deadline = deadline();
    let mut moving = Moving::new();
    moving.transport.close(moving.now, moving.conn);
    moving.mover.answers(moving.tags[0]);
    assert_eq!(moving.ended(), [DONE]);
    assert_eq!(moving.connects(), Err(REFUSED_NO_PEER), "its copies would be taken for the old ones");
    moving.mover.asked().stopped = true;
    assert_eq!(moving.ended(), [DONE, Outcome::ConnectionLost]);
    assert_eq!(moving.connects(), Ok(()));
}

#[test]
fn only_its_own_executor_ends_what_a_closed_connection_moves() {
    let _deadline = deadline();
    let mut moving = Moving::new();
    let stranger = Mover::default();
    moving.transport.add_other(Box::new(stranger.clone()));
    moving.transport.close(moving.now, moving.conn);
    moving.tags.iter().for_each(|&tag| stranger.answers(tag));
    assert_eq!(moving.ended(), []);
    moving.tags.iter().for_each(|&tag| moving.mover.answers(tag));
    assert_eq!(moving.ended(), [DONE, DONE]);
}
