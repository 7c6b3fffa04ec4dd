// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What answers for an SSD while that is being restored.

use super::*;
use gnstor_proto::fabrics::cm_reject;
use gnstor_proto::nvme::cns;

const ADMIN: QueueKey = QueueKey(200);

#[test]
fn an_ssd_that_recovers_has_a_bound_of_queues_and_gets_them_back() {
    let _deadline = crate::deadline::deadline();
    let mut recovering = crate::Recovering::default();
    let request = CmRequest { hrqsize: 4.into(), hsqsize_z: 3.into(), ..Default::default() };
    let mut open = |key| recovering.open_queue(Time::ZERO, QueueKey(key), &request);
    assert_eq!((0..5000).find(|&key| open(key).is_err()), Some(4096));
    assert_eq!(open(5000), Err(cm_reject::NO_RESOURCES));
    (0..10).for_each(|key| recovering.close_queue(Time::ZERO, QueueKey(key)));
    let mut open = |key| recovering.open_queue(Time::ZERO, QueueKey(key), &request);
    assert_eq!((6000..7000).find(|&key| open(key).is_err()), Some(6010), "as many as have gone");
}

#[test]
fn an_ssd_that_recovers_has_every_command_come_again_later() {
    let mut recovering = crate::Recovering::default();
    let request = CmRequest { hrqsize: 4.into(), hsqsize_z: 3.into(), ..Default::default() };
    recovering.open_queue(Time::ZERO, ADMIN, &request).unwrap();
    let commands = [
        command(fctype::CONNECT, &ConnectFields::default()),
        sqe(admin::IDENTIFY),
        sqe(io::READ),
        sqe(0xFF),
        sqe(io::FLUSH),
    ];
    for (number, mut sqe) in (1u16..).zip(commands) {
        sqe.cid = number.into();
        recovering.submit(Time::from_ns(5), ADMIN, &sqe);
        let Some(Effect::Complete { queue: ADMIN, cqe, .. }) = recovering.pop_effect() else {
            panic!("no answer")
        };
        assert_eq!((cqe.cid.get(), cqe.sqhd.get()), (number, number % 4));
        assert_eq!(refusal(&cqe), Some(Refusal::NotReady));
        let status = Status(cqe.status_word());
        // Namespace Not Ready; retry delay 1; not "do not retry".
        assert_eq!((status.0 & 0x7FF, status.0 >> 11 & 3, status.do_not_retry()), (0x82, 1, false));
    }
    recovering.submit(Time::ZERO, ADMIN, &sqe(io::READ));
    recovering.close_queue(Time::ZERO, ADMIN);
    assert!(recovering.pop_effect().is_none(), "no host is left to be told");
    recovering.submit(Time::ZERO, ADMIN, &sqe(io::READ));
    assert!(recovering.pop_effect().is_none());
    // Identify Controller states the delay: 100 ms.
    let mut harness = Harness::new();
    let identify = Sqe {
        cdw10: u32::from(cns::CONTROLLER).into(),
        dptr: KeyedSgl::keyed(0, 4096, KEY),
        ..sqe(admin::IDENTIFY)
    };
    assert_eq!(harness.refused(QueueKey(80), identify), None);
    assert_eq!(harness.peek(QueueKey(80), 0)[128..134], [1, 0, 0, 0, 0, 0]);
}
