// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notes between workers.

use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

#[test]
fn a_note_wakes_the_worker_it_is_left_for_and_no_other() {
    let _deadline = crate::deadline::deadline();
    let workers = Arc::new(WorkerSet::new(2));
    let rung: [Arc<AtomicUsize>; 2] = Default::default();
    for (worker, rung) in rung.iter().enumerate() {
        let (set, rung) = (Arc::downgrade(&workers), Arc::clone(rung));
        workers.state(worker).wake_by(move || {
            // The worker's thread finds the note.
            assert!(set.upgrade().expect("it is there").state(worker).has_mail());
            rung.fetch_add(1, Ordering::Relaxed);
        });
    }
    let queue = queue_name(1, 0, 3);
    workers.take_back(queue, 5, 6);
    workers.post(0, &mut VecDeque::from([Effect::Close { queue }]));
    let rung = || rung.each_ref().map(|rung| rung.load(Ordering::Relaxed));
    assert_eq!(rung(), [0, 2]);
    // A worker that leaves itself a note is awake, and finds it before it sleeps.
    workers.post(1, &mut VecDeque::from([Effect::Close { queue }]));
    assert_eq!(rung(), [0, 2]);
    assert!(workers.state(1).has_mail());
}

#[test]
fn an_alarm_wakes_the_worker_that_set_it_and_others_only_if_that_one_is_late() {
    let _deadline = crate::deadline::deadline();
    let workers = WorkerSet::new(3);
    let at = |ms| Time::ZERO + Span::from_ms(ms);
    let publish = |by, ms| workers.publish(by, (at(ms), Time::NEVER), false, false);
    let next = || [0, 1, 2].map(|worker| workers.next(worker));
    publish(1, 500);
    assert_eq!(next(), [510, 500, 510].map(at));
    // Worker 0 was there and leaves the alarm as it is: worker 1 still comes.
    publish(0, 500);
    assert_eq!(next(), [510, 500, 510].map(at));
    publish(0, 200);
    assert_eq!(next(), [200, 210, 210].map(at));
    publish(2, 900);
    assert_eq!(next(), [910, 910, 900].map(at));
}
