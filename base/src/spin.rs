// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits for a lock that is held for microseconds. A thread tries the lock some times before it sleeps,
//! since to wake a thread takes longer.

/// How long a thread tries a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Tries before the thread sleeps.
    pub tries: u32,
    /// Pauses between two tries: each try takes the lock's cache line from its holder.
    pub pauses: u32,
}

impl Patience {
    /// Takes a lock by `try_lock`, or by `lock`, which sleeps, once the patience is at its end.
    #[inline]
    pub fn lock<G>(self, mut try_lock: impl FnMut() -> Option<G>, lock: impl FnOnce() -> G) -> G {
        for _ in 0..self.tries {
            if let Some(guard) = try_lock() {
                return guard;
            }
            (0..self.pauses).for_each(|_| core::hint::spin_loop());
        }
        lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::deadline;

    #[test]
    fn a_lock_is_tried_as_often_as_patience_says_and_then_slept_for() {
        let _deadline = deadline();
        let patience = Patience { tries: 3, pauses: 2 };
        for (free_at, expected) in [(1, (1, "tried")), (3, (3, "tried")), (4, (3, "slept"))] {
            let mut tries = 0;
            let how = patience.lock(
                || {
                    tries += 1;
                    (tries == free_at).then_some("tried")
                },
                || "slept",
            );
            assert_eq!((tries, how), expected);
        }
    }
}
