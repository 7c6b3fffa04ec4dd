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
