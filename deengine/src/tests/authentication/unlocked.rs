// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A power takes milliseconds. Meanwhile other workers have the SSD's lock.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of strangers who prove something false.
const STRANGERS: u32 = 10;

#[test]
fn the_lock_of_an_ssd_is_free_while_it_computes_powers() {
    let _deadline = crate::deadline::deadline();
    // Where other programs compute, a thread may lose its core while it has the lock. Then it tries again.
    let mostly_free = || {
        let (free, tries) = free_of_looks();
        println!("the lock was free at {free} of {tries} looks");
        free * 2 > tries
    };
    assert!((0..5).any(|_| mostly_free()), "the lock is taken");
}

/// While the SSD judges false replies, another thread looks at the lock: how often it is free, and the looks.
/// Each reply costs the SSD a power. Before that it seldom needs one, as a key pair serves many proofs.
fn free_of_looks() -> (u64, u64) {
    let mut harness = asking(Group::Ffdhe3072);
    let (stop, judges) = (AtomicBool::new(false), AtomicBool::new(false));
    let other = harness.workers.pop().expect("the last worker");
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let (mut free, mut tries) = (0_u64, 0_u64);
            while !stop.load(Ordering::Relaxed) {
                if !judges.load(Ordering::Relaxed) {
                    continue;
                }
                tries += 1;
                free += u64::from(other.try_ssd().is_some());
            }
            (other, free, tries)
        });
        for nth in 0..STRANGERS {
            // All of them are of the first worker.
            let key = QueueKey(201 + nth * u32::try_from(WORKERS).unwrap());
            begin(&mut harness, key, host(7, 1));
            let secret = Secret::new([0; 32]);
            let dice = Dice::thrown(|b| b.fill(3));
            let (mut prover, negotiate) =
                Prover::begin(names(host(7, 1)), secret, &[Group::Ffdhe3072], 9, dice);
            assert_eq!(send(&mut harness, key, &negotiate), None);
            let challenge = receive(&mut harness, key);
            assert_eq!(challenge[1], id::CHALLENGE);
            let reply = prover.on_challenge(&challenge).unwrap();
            judges.store(true, Ordering::Relaxed);
            assert_eq!(send(&mut harness, key, &reply), None);
            judges.store(false, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
        let (other, free, tries) = looks.join().unwrap();
        harness.workers.push(other);
        (free, tries)
    })
}
