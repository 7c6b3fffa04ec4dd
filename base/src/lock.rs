// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks that threads hold for microseconds: a thread spins for one, and sleeps only after that.

use parking_lot::{Mutex, MutexGuard};

/// Takes `mutex`. The thread tries `tries` times before it sleeps, since waking a thread takes tens of
/// microseconds. `parking_lot` hands a lock to the thread that has slept longest. So a thread that sleeps
/// gets the lock within about a millisecond, even if other threads try it without a pause. Between two tries
/// the thread pauses `pauses` times, since each try takes the lock's cache line from its holder.
pub fn spin_then_sleep<T>(mutex: &Mutex<T>, tries: u32, pauses: u32) -> MutexGuard<'_, T> {
    for _ in 0..tries {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        (0..pauses).for_each(|_| std::hint::spin_loop());
    }
    mutex.lock()
}
