// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fused responses through an executor that copies part by part: the transport sends the response when all
//! parts are there.

use super::*;
use gnstor_base::controller::Reply;
use gnstor_base::testing::deadline;
use gnstor_proto::checksum::block_sum;
use gnstor_proto::nvme::Cqe;

/// A client with one queue pair in the array's own process.
struct One {
    transport: RcTransport,
    puppet: Puppet,
    memory: Arc<HostRegion>,
    flash: Arc<HostRegion>,
    now: Time,
}

impl One {
    fn new() -> Self {
        let mut transport = RcTransport::new(TransportConfig::default());
        let (puppet, flash) = (Puppet::default(), HostRegion::alloc(1 << 16).unwrap());
        transport.add_target(Box::new(puppet.clone()), vec![Arc::clone(&flash)]);
        let executor = transport.add_soft();
        let memory = HostRegion::alloc(1 << 17).unwrap();
        transport.soft(executor).unwrap().create_qp(soft_qp(&memory));
        let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE;
        let mr = SoftMr { memory: Arc::clone(&memory), range: (0, 1 << 17), key: KEY, access, pd: 1 };
        transport.soft(executor).unwrap().register(mr);
        let (reply, answer) = mpsc::channel();
        transport.connect(Time::ZERO, to(executor, QPN, Port::Local(0)), reply);
        assert_eq!(answer.recv(), Ok(Ok(())));
        // One receive.
        let seg =
            DataSeg { byte_count: 16.into(), lkey: KEY.into(), address: (memory.address() + 0x6000).into() };
        memory.write(0x1000, seg.as_bytes());
        memory.word32(DBR).store(1u32.to_be(), Ordering::Release);
        Self { transport, puppet, memory, flash, now: Time::ZERO }
    }

    /// What the SSD wants done for the next command: two blocks and their response.
    fn two_blocks(&self, sums: [u32; 2]) -> Vec<Effect> {
        let queue = self.puppet.seen().opened[0];
        let reply = Reply { cqe: Cqe { cid: 5.into(), ..Cqe::default() }, at: Time::from_ns(50_000) };
        let roles = [PushRole::Part, PushRole::Last(reply)];
        (0..2u32)
            .zip(roles)
            .map(|(i, role)| {
                let remote = Memory { address: self.memory.address() + DATA + u64::from(i) * 4096, key: KEY };
                let local = self.flash.slice(u64::from(i) * 4096, 4096);
                Effect::Push {
                    transfer: TransferId(3),
                    queue,
                    remote,
                    local,
                    sum: Some(sums[i as usize]),
                    role,
                }
            })
            .collect()
    }

    fn run(&mut self, ns: u64) {
        for _ in 0..ns / 100 {
            self.now = self.now + Span::from_ns(100);
            self.transport.step(self.now);
        }
    }

    fn has_response(&self) -> bool {
        let mut cid = [0; 2];
        self.memory.read(0x6000 + 12, &mut cid);
        cid == [5, 0]
    }
}

#[test]
fn the_response_comes_when_it_is_due_and_the_data_before_it() {
    let _deadline = deadline();
    let mut one = One::new();
    one.flash.fill(0, 8192, 0xCD);
    let sum = block_sum(&[0xCD; 4096]);
    let effects = one.two_blocks([sum; 2]);
    one.puppet.seen().on_submit = effects;
    send_a_command(&one.memory);
    one.run(40_000);
    assert!(!one.has_response(), "it is not due");
    one.run(20_000);
    assert!(one.has_response());
    assert_eq!(one.puppet.seen().ended, [Outcome::Done { sum: 0 }], "once for both parts");
    let mut data = [0; 8192];
    one.memory.read(DATA, &mut data);
    assert!(data.iter().all(|byte| *byte == 0xCD));
    assert!(!one.transport.busy());
}

#[test]
fn a_part_that_is_damaged_keeps_the_response_back() {
    let _deadline = deadline();
    let mut one = One::new();
    let good = block_sum(&[0; 4096]);
    for sums in [[good ^ 1, good], [good, good ^ 1]] {
        let mut one = One::new();
        let effects = one.two_blocks(sums);
        one.puppet.seen().on_submit = effects;
        send_a_command(&one.memory);
        one.run(100_000);
        assert_eq!(one.puppet.seen().ended, [Outcome::BadChecksum]);
        assert!(!one.has_response());
    }
    // A response whose queue was closed before its last part came.
    let mut effects = one.two_blocks([good; 2]);
    effects.pop();
    let queue = one.puppet.seen().opened[0];
    effects.push(Effect::Close { queue });
    one.puppet.seen().on_submit = effects;
    send_a_command(&one.memory);
    one.run(100_000);
    assert!(one.puppet.seen().ended.is_empty(), "nothing was begun");
    assert!(!one.transport.busy());
}

#[test]
fn an_answer_whose_connection_ends_before_it_is_due_is_lost() {
    let _deadline = deadline();
    let mut one = One::new();
    let good = block_sum(&[0; 4096]);
    let effects = one.two_blocks([good; 2]);
    one.puppet.seen().on_submit = effects;
    send_a_command(&one.memory);
    one.run(3_000);
    let (conn, _) = one.transport.conns.iter().next().unwrap();
    one.transport.close(one.now, conn);
    one.run(100_000);
    assert_eq!(one.puppet.seen().ended.len(), 1);
    assert!(!one.has_response());
    assert!(!one.transport.busy());
}

#[test]
fn a_response_is_ended_by_no_executor_that_was_not_asked_and_by_no_other_number() {
    let _deadline = deadline();
    let mut one = One::new();
    let good = block_sum(&[0; 4096]);
    let effects = one.two_blocks([good; 2]);
    one.puppet.seen().on_submit = effects;
    send_a_command(&one.memory);
    one.run(3_000);
    // This executor copies part by part: nothing fused was handed to it.
    let executor = one.transport.conns.iter().next().unwrap().1.executor;
    for number in [0, 1, 1 << 31, u32::MAX] {
        one.transport.fused_done(one.now, executor, number, 0);
    }
    assert!(one.puppet.seen().ended.is_empty() && !one.has_response());
    one.run(100_000);
    assert_eq!(one.puppet.seen().ended, [Outcome::Done { sum: 0 }]);
    assert!(one.has_response() && !one.transport.busy());
}
