// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lock of the layer, as threads that wait for it meet it.

use super::handed_over::rounds_handed_over;
use super::{Harness, deadline};

#[test]
fn the_lock_of_the_layer_is_handed_over_to_a_thread_that_sleeps_for_it() {
    const ROUNDS: usize = 20;
    let _deadline = deadline();
    let harness = Harness::new(400, false, 1);
    let ftl = harness.ftl();
    let handed_over = rounds_handed_over(ROUNDS, || ftl.lock(), || ftl.try_lock());
    assert!(handed_over * 4 >= ROUNDS * 3, "in {handed_over} of {ROUNDS} rounds");
}

#[test]
fn a_lock_of_the_standard_library_is_not_handed_over_and_the_test_above_would_find_it() {
    const ROUNDS: usize = 20;
    let _deadline = deadline();
    let mutex = std::sync::Mutex::new(());
    let handed_over = || rounds_handed_over(ROUNDS, || mutex.lock().unwrap(), || mutex.try_lock().ok());
    // Which thread gets it is up to the scheduler: some tries may look as if it were handed over.
    let tries: Vec<usize> = (0..10).map(|_| handed_over()).collect();
    assert!(tries.iter().any(|handed_over| handed_over * 4 < ROUNDS * 3), "{tries:?} of {ROUNDS} rounds");
}
