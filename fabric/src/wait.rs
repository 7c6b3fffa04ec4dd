// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits with a deadline. A command is judged by a time that was read after it was taken in. A deadline is
//! judged, the other way about, by a time that was read before the last look.

/// Calls `look` until it finds something; `None` at the deadline. A result counts even if this process was
/// stopped between two calls and the deadline passed meanwhile. `rest` runs between two calls.
pub(crate) fn look_until<T>(
    mut is_late: impl FnMut() -> bool,
    mut look: impl FnMut() -> Option<T>,
    mut rest: impl FnMut(),
) -> Option<T> {
    loop {
        let late = is_late();
        let found = look();
        if late || found.is_some() {
            return found;
        }
        rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const DEADLINE: u64 = 100;

    #[test]
    fn an_answer_that_came_while_the_process_was_stopped_counts() {
        let _deadline = gnstor_base::testing::deadline();
        let now = Cell::new(0);
        let mut looks = 0;
        let look = || {
            looks += 1;
            // The process is stopped after the first look, and the answer comes during the stop.
            (now.replace(10 * DEADLINE) > DEADLINE).then_some("answer")
        };
        assert_eq!(look_until(|| now.get() > DEADLINE, look, || {}), Some("answer"));
        assert_eq!(looks, 2);
    }

    #[test]
    fn without_an_answer_the_wait_ends_at_the_deadline() {
        let _deadline = gnstor_base::testing::deadline();
        let now = Cell::new(0);
        let none = look_until(|| now.get() > DEADLINE, || None::<()>, || now.set(now.get() + 1));
        assert_eq!((none, now.get()), (None, DEADLINE + 1));
    }
}
