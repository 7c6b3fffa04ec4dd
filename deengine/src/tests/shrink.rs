// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A long list of steps that fails becomes a short one: parts are left out, smaller and smaller, as long
//! as it still fails.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Whether this panics. The panic message is not printed.
pub(super) fn fails(run: impl FnOnce()) -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    QUIET.set(true);
    let failed = catch_unwind(AssertUnwindSafe(run)).is_err();
    QUIET.set(false);
    failed
}

/// Leaves out what the failure does not need, in at most `budget` steps of replays.
pub(super) fn shrink<T: Copy>(
    mut steps: Vec<T>,
    mut budget: usize,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut part = steps.len().div_ceil(2);
    while part > 0 {
        let (mut at, before) = (0, steps.len());
        while at < steps.len() {
            let end = (at + part).min(steps.len());
            let fewer: Vec<T> = steps[..at].iter().chain(&steps[end..]).copied().collect();
            let Some(left) = budget.checked_sub(fewer.len() + 1) else { return steps };
            budget = left;
            if fails(&fewer) {
                steps = fewer;
            } else {
                at = end;
            }
        }
        // Single steps are tried until none can be removed any more.
        if part > 1 {
            part = part.div_ceil(2).min(steps.len().max(1));
        } else if steps.len() == before {
            return steps;
        }
    }
    steps
}

#[test]
fn what_a_failure_does_not_need_is_left_out() {
    let _deadline = crate::deadline::deadline();
    let in_order = |steps: &[u32]| {
        let first = steps.iter().position(|step| *step == 317);
        first.is_some_and(|first| steps[first..].contains(&911) && steps.contains(&5))
    };
    assert_eq!(shrink((0..2_000).collect(), usize::MAX, in_order), [5, 317, 911]);
    assert_eq!(shrink((0..2_000).collect(), usize::MAX, |_| true), [0; 0]);
    assert_eq!(shrink(vec![7], usize::MAX, |steps| !steps.is_empty()), [7]);
    // Out of budget it is longer, and fails still.
    let longer = shrink((0..2_000).collect(), 5_000, in_order);
    assert!(in_order(&longer) && longer.len() < 2_000);
}

#[test]
fn a_panic_is_a_failure_and_nothing_else_is() {
    let _deadline = crate::deadline::deadline();
    assert!(fails(|| panic!("not to be seen")));
    assert!(!fails(|| {}));
}
