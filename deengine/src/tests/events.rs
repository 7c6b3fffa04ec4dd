// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asynchronous events and Abort.

use super::*;
use crate::{Event, FlashHealth};

const ADMIN: QueueKey = QueueKey(80);

fn ask(rig: &mut Rig) -> u16 {
    rig.submit(ADMIN, sqe(admin::ASYNC_EVENT_REQUEST))
}

/// DW0 of the request's completion: type, information, log page.
fn told(rig: &mut Rig, cid: u16) -> Option<[u8; 3]> {
    let cqe = rig.take(ADMIN, cid)?;
    assert_eq!(refusal(&cqe), None);
    let [kind, information, page, zero] = cqe.dw0.get().to_le_bytes();
    assert_eq!(zero, 0);
    Some([kind, information, page])
}

fn raise(rig: &mut Rig, event: Event) {
    rig.ssd().raise(rig.now, event);
    rig.pump();
}

#[test]
fn an_event_is_told_once_until_its_log_page_is_read() {
    let mut rig = Rig::new();
    let (first, second) = (ask(&mut rig), ask(&mut rig));
    raise(&mut rig, Event::SpareLow);
    assert_eq!(told(&mut rig, first), Some([1, 2, 2]));
    raise(&mut rig, Event::ReadOnly);
    assert_eq!(told(&mut rig, second), None, "masked");
    raise(&mut rig, Event::PersistentError);
    assert_eq!(told(&mut rig, second), Some([0, 3, 1]), "another kind is not");
    let third = ask(&mut rig);
    assert!(rig.log(ADMIN, 2, 0, 128, true).is_ok());
    raise(&mut rig, Event::ReliabilityDegraded);
    assert_eq!(told(&mut rig, third), None, "the host asked to keep the event");
    assert!(rig.log(ADMIN, 2, 0, 128, false).is_ok());
    assert_eq!(told(&mut rig, third), None, "the page has told it all");
    raise(&mut rig, Event::ReliabilityDegraded);
    assert_eq!(told(&mut rig, third), Some([1, 0, 2]));
}

#[test]
fn an_event_waits_for_a_request() {
    let mut rig = Rig::new();
    raise(&mut rig, Event::BackupFailed);
    raise(&mut rig, Event::PersistentError);
    let ids = [ask(&mut rig), ask(&mut rig), ask(&mut rig)];
    assert_eq!(ids.map(|cid| told(&mut rig, cid)), [Some([0, 3, 1]), Some([1, 0, 2]), None]);
}

#[test]
fn notices_are_for_hosts_that_ask_for_them() {
    let mut rig = Rig::new();
    let first = ask(&mut rig);
    raise(&mut rig, Event::NamespaceChanged);
    raise(&mut rig, Event::FirmwareStarting);
    assert_eq!(told(&mut rig, first), None);
    let want = Sqe { cdw10: 0x0B.into(), cdw11: 0x300.into(), ..sqe(admin::SET_FEATURES) };
    assert_eq!(rig.refused(ADMIN, want), None);
    raise(&mut rig, Event::NamespaceChanged);
    assert_eq!(told(&mut rig, first), Some([2, 0, 4]));
    assert_eq!(rig.log(ADMIN, 4, 0, 2, false).unwrap(), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rig.log(ADMIN, 4, 0, 2, false).unwrap(), [0; 8]);
    let second = ask(&mut rig);
    raise(&mut rig, Event::FirmwareStarting);
    assert_eq!(told(&mut rig, second), Some([2, 1, 3]));
    raise(&mut rig, Event::SpareLow);
    let third = ask(&mut rig);
    assert_eq!(told(&mut rig, third), None, "SMART warnings were switched off");
}

#[test]
fn the_flash_layers_health_raises_what_is_new() {
    let mut rig = Rig::new();
    let (first, second) = (ask(&mut rig), ask(&mut rig));
    let low = FlashHealth { available_spare: 5, ..FlashHealth::default() };
    for _ in 0..2 {
        rig.ssd().set_flash_health(rig.now, low);
        rig.pump();
    }
    assert_eq!(told(&mut rig, first), Some([1, 2, 2]));
    assert_eq!(rig.log(ADMIN, 2, 0, 128, false).unwrap()[0], 1);
    rig.ssd().set_flash_health(rig.now, FlashHealth { read_only: true, ..low });
    rig.pump();
    assert_eq!(told(&mut rig, second), Some([1, 0, 2]));
    assert_eq!(rig.log(ADMIN, 2, 0, 128, false).unwrap()[0], 9);
}

#[test]
fn a_threshold_below_the_modelled_temperature_warns_its_host_only() {
    let mut rig = Rig::new();
    let first = ask(&mut rig);
    let set = |value: u32| Sqe { cdw10: 4.into(), cdw11: value.into(), ..sqe(admin::SET_FEATURES) };
    assert_eq!(rig.refused(ADMIN, set(313)), None);
    assert_eq!(told(&mut rig, first), Some([1, 1, 2]));
    assert_eq!(rig.log(ADMIN, 2, 0, 128, false).unwrap()[0], 2);
    assert_eq!(rig.log(QueueKey(70), 2, 0, 128, false).unwrap()[0], 0);
    assert_eq!(rig.refused(ADMIN, set(314)), None);
    assert_eq!(rig.log(ADMIN, 2, 0, 128, false).unwrap()[0], 0);
}

#[test]
fn more_requests_than_the_limit_are_refused() {
    let mut rig = Rig::new();
    for _ in 0..4 {
        ask(&mut rig);
    }
    let cid = ask(&mut rig);
    assert_eq!(refusal(&rig.take(ADMIN, cid).unwrap()), Some(Refusal::EventLimit));
    raise(&mut rig, Event::PersistentError);
    let cid = ask(&mut rig);
    assert!(rig.take(ADMIN, cid).is_none(), "one of them is gone");
}

fn abort(rig: &mut Rig, admin: QueueKey, qid: u16, cid: u16) -> Cqe {
    rig.run(admin, Sqe { cdw10: (u32::from(cid) << 16 | u32::from(qid)).into(), ..sqe(admin::ABORT) })
}

#[test]
fn a_held_event_request_is_aborted() {
    let mut rig = Rig::new();
    let (first, second) = (ask(&mut rig), ask(&mut rig));
    assert_eq!(abort(&mut rig, QueueKey(70), 0, first).dw0.get(), 1, "another host's");
    assert_eq!(abort(&mut rig, ADMIN, 1, first).dw0.get(), 1, "another queue's");
    assert_eq!(abort(&mut rig, ADMIN, 0, first).dw0.get(), 0);
    assert_eq!(refusal(&rig.take(ADMIN, first).unwrap()), Some(Refusal::AbortRequested));
    raise(&mut rig, Event::PersistentError);
    assert_eq!(told(&mut rig, second), Some([0, 3, 1]));
    assert_eq!(rig.in_flight(), 0);
}

#[test]
fn a_command_that_waits_is_aborted_and_one_that_has_begun_is_not() {
    let mut rig = Rig::timed();
    rig.hold = true;
    let ids: Vec<u16> = (0..3)
        .map(|_| {
            let sqe = rig.io(io::READ, READER, 0, 1);
            rig.submit(READER, sqe)
        })
        .collect();
    let aborts = [ids[0], ids[2]]
        .map(|cid| rig.submit(ADMIN, Sqe { cdw10: (u32::from(cid) << 16 | 1).into(), ..sqe(admin::ABORT) }));
    let end = rig.now + Span::from_ms(1);
    rig.step_to(end);
    assert_eq!(aborts.map(|cid| rig.take(ADMIN, cid).unwrap().dw0.get()), [1, 0]);
    let aborted = rig.take(READER, ids[2]).unwrap();
    assert_eq!(refusal(&aborted), Some(Refusal::AbortRequested));
    // Connect, the first read, and the aborted one: its entry is free again.
    assert_eq!(aborted.sqhd.get(), 3);
    rig.release(|_| 0);
    for &cid in &ids[..2] {
        assert_eq!(refusal(&rig.take(READER, cid).unwrap()), None);
    }
    assert_eq!(rig.in_flight(), 0);
}

#[test]
fn a_change_of_rights_that_waits_for_its_fence_is_not_aborted() {
    let mut rig = Rig::new();
    rig.hold = true;
    let sqe = rig.io(io::READ, READER, 0, 1);
    rig.submit(READER, sqe);
    let chmod = rig.chmod(|entry| entry.readers.clear());
    assert_eq!(abort(&mut rig, DAEMON, 0, chmod).dw0.get(), 1);
    rig.release(|_| 0);
    assert_eq!(refusal(&rig.take(DAEMON, chmod).unwrap()), None);
}
