// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The workers of a harness on threads of their own, beside the daemon's.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the threads that watch this word, also if the test that holds it has failed.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` on a thread for each worker except the daemon's, with the one of `keys` on this worker, and
/// `daemon` beside them. When `daemon` returns, `stop` tells the others to end. Returns their results.
pub(super) fn beside<T: Send>(
    harness: &mut Harness,
    keys: &[QueueKey],
    stop: &AtomicBool,
    work: impl Fn(&mut Worker, QueueKey) -> T + Sync,
    daemon: impl FnOnce(&mut Harness, &mut Worker),
) -> Vec<T> {
    let mut workers = std::mem::take(&mut harness.workers);
    let mut own = workers.remove(worker_of(DAEMON));
    let numbers = (0..WORKERS).filter(|&at| at != worker_of(DAEMON));
    let seen = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = numbers
            .zip(&mut workers)
            .map(|(at, worker)| {
                let key = keys.iter().copied().find(|&key| worker_of(key) == at).unwrap();
                scope.spawn(move || work(worker, key))
            })
            .collect();
        let stopper = Stopper(stop);
        daemon(harness, &mut own);
        drop(stopper);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    workers.insert(worker_of(DAEMON), own);
    harness.workers = workers;
    seen
}

/// Carries out a command of the daemon's on its worker until it completes.
pub(super) fn complete(harness: &Harness, worker: &mut Worker, sqe: &Sqe, data: &[u8]) {
    let mut now = Time::from_ns(2000);
    worker.submit(now, DAEMON, sqe);
    loop {
        match worker.pop_effect() {
            Some(Effect::Pull { transfer, local, .. }) => {
                let region = harness.regions.iter().find(|region| region.id() == local.region).unwrap();
                region.write(local.offset, data);
                worker.transferred(now, transfer, Outcome::Done { sum: 0 });
            }
            Some(Effect::Complete { cqe, .. }) => {
                assert_eq!(refusal(&cqe), None);
                return;
            }
            Some(effect) => panic!("{effect:?}"),
            None => {
                // Far below the fence's deadline, because the others run.
                now = (now + Span::from_ns(1000)).min(Time::from_ns(500_000_000));
                worker.step(now);
                std::thread::yield_now();
            }
        }
    }
}

/// The daemon changes [`VOLUME`], and waits until that is complete.
pub(super) fn change(harness: &mut Harness, worker: &mut Worker, change: impl FnOnce(&mut VolumeEntry)) {
    let mut next = worker.ssd().table.volume(vid(VOLUME)).unwrap().entry().clone();
    next.version += 1;
    change(&mut next);
    let data = next.encode();
    let sqe = harness.daemon_sqe(opcode::VOLUME_CHMOD, data.as_bytes());
    complete(harness, worker, &sqe, data.as_bytes());
}
