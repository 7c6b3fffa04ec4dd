// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asynchronous events and Abort.

use super::*;
use crate::{Event, FlashHealth};

const ADMIN: QueueKey = QueueKey(80);

fn ask(harness: &mut Harness) -> u16 {
    harness.submit(ADMIN, sqe(admin::ASYNC_EVENT_REQUEST))
}

/// DW0 of the request's completion: type, information, log page.
fn told(harness: &mut Harness, cid: u16) -> Option<[u8; 3]> {
    let cqe = harness.take(ADMIN, cid)?;
    assert_eq!(refusal(&cqe), None);
    let [kind, information, page, zero] = cqe.dw0.get().to_le_bytes();
    assert_eq!(zero, 0);
    Some([kind, information, page])
}

fn raise(harness: &mut Harness, event: Event) {
    harness.ssd().raise(harness.now, event);
    harness.pump();
}

#[test]
fn an_event_is_told_once_until_its_log_page_is_read() {
    let mut harness = Harness::new();
    let (first, second) = (ask(&mut harness), ask(&mut harness));
    raise(&mut harness, Event::SpareLow);
    assert_eq!(told(&mut harness, first), Some([1, 2, 2]));
    raise(&mut harness, Event::ReadOnly);
    assert_eq!(told(&mut harness, second), None, "masked");
    raise(&mut harness, Event::PersistentError);
    assert_eq!(told(&mut harness, second), Some([0, 3, 1]), "another kind is not");
    let third = ask(&mut harness);
    assert!(harness.log(ADMIN, start_of(2, 128).retained()).is_ok());
    raise(&mut harness, Event::ReliabilityDegraded);
    assert_eq!(told(&mut harness, third), None, "the host asked to keep the event");
    assert!(harness.log(ADMIN, start_of(2, 128)).is_ok());
    assert_eq!(told(&mut harness, third), None, "the page has told it all");
    raise(&mut harness, Event::ReliabilityDegraded);
    assert_eq!(told(&mut harness, third), Some([1, 0, 2]));
}

#[test]
fn an_event_waits_for_a_request() {
    let mut harness = Harness::new();
    raise(&mut harness, Event::BackupFailed);
    raise(&mut harness, Event::PersistentError);
    let ids = [ask(&mut harness), ask(&mut harness), ask(&mut harness)];
    assert_eq!(ids.map(|cid| told(&mut harness, cid)), [Some([0, 3, 1]), Some([1, 0, 2]), None]);
}

#[test]
fn notices_are_for_hosts_that_ask_for_them() {
    let mut harness = Harness::new();
    let first = ask(&mut harness);
    raise(&mut harness, Event::NamespaceChanged);
    raise(&mut harness, Event::FirmwareStarting);
    assert_eq!(told(&mut harness, first), None);
    let want = Sqe { cdw10: 0x0B.into(), cdw11: 0x300.into(), ..sqe(admin::SET_FEATURES) };
    assert_eq!(harness.refused(ADMIN, want), None);
    raise(&mut harness, Event::NamespaceChanged);
    assert_eq!(told(&mut harness, first), Some([2, 0, 4]));
    assert_eq!(harness.log(ADMIN, start_of(4, 2)).unwrap(), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(harness.log(ADMIN, start_of(4, 2)).unwrap(), [0; 8]);
    let second = ask(&mut harness);
    raise(&mut harness, Event::FirmwareStarting);
    assert_eq!(told(&mut harness, second), Some([2, 1, 3]));
    raise(&mut harness, Event::SpareLow);
    let third = ask(&mut harness);
    assert_eq!(told(&mut harness, third), None, "SMART warnings were switched off");
}

#[test]
fn the_flash_layers_health_raises_what_is_new() {
    let mut harness = Harness::new();
    let (first, second) = (ask(&mut harness), ask(&mut harness));
    let low = FlashHealth { available_spare: 5, ..FlashHealth::default() };
    for _ in 0..2 {
        harness.ssd().set_flash_health(harness.now, low);
        harness.pump();
    }
    assert_eq!(told(&mut harness, first), Some([1, 2, 2]));
    assert_eq!(harness.log(ADMIN, start_of(2, 128)).unwrap()[0], 1);
    harness.ssd().set_flash_health(harness.now, FlashHealth { read_only: true, ..low });
    harness.pump();
    assert_eq!(told(&mut harness, second), Some([1, 0, 2]));
    assert_eq!(harness.log(ADMIN, start_of(2, 128)).unwrap()[0], 9);
}

#[test]
fn a_threshold_below_the_modelled_temperature_warns_its_host_only() {
    let mut harness = Harness::new();
    let first = ask(&mut harness);
    let set = |value: u32| Sqe { cdw10: 4.into(), cdw11: value.into(), ..sqe(admin::SET_FEATURES) };
    assert_eq!(harness.refused(ADMIN, set(313)), None);
    assert_eq!(told(&mut harness, first), Some([1, 1, 2]));
    assert_eq!(harness.log(ADMIN, start_of(2, 128)).unwrap()[0], 2);
    assert_eq!(harness.log(QueueKey(70), start_of(2, 128)).unwrap()[0], 0);
    assert_eq!(harness.refused(ADMIN, set(314)), None);
    assert_eq!(harness.log(ADMIN, start_of(2, 128)).unwrap()[0], 0);
}

#[test]
fn more_requests_than_the_limit_are_refused() {
    let mut harness = Harness::new();
    for _ in 0..4 {
        ask(&mut harness);
    }
    let cid = ask(&mut harness);
    assert_eq!(refusal(&harness.take(ADMIN, cid).unwrap()), Some(Refusal::EventLimit));
    raise(&mut harness, Event::PersistentError);
    let cid = ask(&mut harness);
    assert!(harness.take(ADMIN, cid).is_none(), "one of them is gone");
}

fn abort(harness: &mut Harness, admin: QueueKey, qid: u16, cid: u16) -> Cqe {
    harness.run(admin, Sqe { cdw10: (u32::from(cid) << 16 | u32::from(qid)).into(), ..sqe(admin::ABORT) })
}

#[test]
fn a_held_event_request_is_aborted() {
    let mut harness = Harness::new();
    let (first, second) = (ask(&mut harness), ask(&mut harness));
    assert_eq!(abort(&mut harness, QueueKey(70), 0, first).dw0.get(), 1, "another host's");
    assert_eq!(abort(&mut harness, ADMIN, 1, first).dw0.get(), 1, "another queue's");
    assert_eq!(abort(&mut harness, ADMIN, 0, first).dw0.get(), 0);
    assert_eq!(refusal(&harness.take(ADMIN, first).unwrap()), Some(Refusal::AbortRequested));
    raise(&mut harness, Event::PersistentError);
    assert_eq!(told(&mut harness, second), Some([0, 3, 1]));
    assert_eq!(harness.in_flight(), 0);
}

#[test]
fn a_command_that_waits_is_aborted_and_one_that_has_begun_is_not() {
    let mut harness = Harness::timed();
    harness.hold = true;
    let ids: Vec<u16> = (0..3)
        .map(|_| {
            let sqe = harness.io(io::READ, READER, 0, 1);
            harness.submit(READER, sqe)
        })
        .collect();
    let aborts = [ids[0], ids[2]].map(|cid| {
        harness.submit(ADMIN, Sqe { cdw10: (u32::from(cid) << 16 | 1).into(), ..sqe(admin::ABORT) })
    });
    let end = harness.now + Span::from_ms(1);
    harness.step_to(end);
    assert_eq!(aborts.map(|cid| harness.take(ADMIN, cid).unwrap().dw0.get()), [1, 0]);
    let aborted = harness.take(READER, ids[2]).unwrap();
    assert_eq!(refusal(&aborted), Some(Refusal::AbortRequested));
    // Connect, the first read, and the aborted one: its entry is free again.
    assert_eq!(aborted.sqhd.get(), 3);
    harness.release(|_| 0);
    for &cid in &ids[..2] {
        assert_eq!(refusal(&harness.take(READER, cid).unwrap()), None);
    }
    assert_eq!(harness.in_flight(), 0);
}

#[test]
fn a_change_of_rights_that_waits_for_its_fence_is_not_aborted() {
    let mut harness = Harness::new();
    harness.hold = true;
    let sqe = harness.io(io::READ, READER, 0, 1);
    harness.submit(READER, sqe);
    let chmod = harness.chmod(|entry| entry.readers.clear());
    assert_eq!(abort(&mut harness, DAEMON, 0, chmod).dw0.get(), 1);
    harness.release(|_| 0);
    assert_eq!(refusal(&harness.take(DAEMON, chmod).unwrap()), None);
}
