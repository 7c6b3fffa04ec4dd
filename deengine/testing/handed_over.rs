// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a lock is handed over to the thread that sleeps for it (decision 38). A lock that only wakes the
//! sleeper is free until the sleeper runs, and its last holder can take it at once.
//!
//! The test modules of the crates under `deengine/` include this file by its path.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Holds `lock` until another thread sleeps for it, releases it, and tries it again at once. Returns in how
/// many of the rounds the try fails: then the sleeper has the lock already, before it runs.
pub(crate) fn rounds_handed_over<G>(
    rounds: usize,
    lock: impl Fn() -> G + Sync,
    try_lock: impl Fn() -> Option<G>,
) -> usize {
    let round = |_: &usize| {
        let (held, has_tried) = (lock(), AtomicBool::new(false));
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let (lock, has_tried) = (&lock, &has_tried);
            scope.spawn(move || {
                let name = std::fs::read_link("/proc/thread-self").expect("Linux names this thread");
                tell.send(name).expect("its spawner listens");
                let _held = lock();
                while !has_tried.load(Ordering::Acquire) {
                    thread::sleep(Duration::from_micros(50));
                }
            });
            let name = told.recv().expect("the thread tells its name");
            while !sleeps(&name.to_string_lossy()) {
                thread::sleep(Duration::from_micros(50));
            }
            // `parking_lot` hands a lock over at most once in 0.5 ms on average, and at least once in 1 ms.
            thread::sleep(Duration::from_millis(2));
            drop(held);
            let is_handed_over = try_lock().is_none();
            has_tried.store(true, Ordering::Release);
            is_handed_over
        })
    };
    (0..rounds).filter(round).count()
}

/// Whether the thread of this name below `/proc` sleeps.
fn sleeps(name: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).expect("the thread lives");
    // The state follows the program's name, which is in parentheses.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}
