// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many seeds, on several threads, each seed on one. And the faults that a failing seed needs.

use super::{Options, Outcome, PANICKED, failed, run, said};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;

/// Runs of a seed while its faults are left out, at most.
const MOST_RUNS: u32 = 400;

/// One seed, or all from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// The last; it belongs to them.
    pub last: u64,
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse().map_err(|_| format!("'{text}' is no seed: use N or FIRST..LAST, as 1..100"))
        };
        let seeds = match text.split_once("..") {
            None => number(text).map(|only| Self { first: only, last: only })?,
            Some((first, last)) => Self { first: number(first)?, last: number(last)? },
        };
        if seeds.first > seeds.last {
            let Self { first, last } = seeds;
            return Err(format!("seeds {first}..{last} end before they begin: use {last}..{first}"));
        }
        Ok(seeds)
    }
}

impl Seeds {
    fn range(self) -> RangeInclusive<u64> {
        self.first..=self.last
    }
}

/// The faults that are left out, by their numbers: `3,17`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Without(pub Vec<u64>);

impl FromStr for Without {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is no fault's number"));
        text.split(',').map(number).collect::<Result<_, _>>().map(Self)
    }
}

/// Runs all seeds on `jobs` threads. Hands their outcomes over in the order of the seeds, until `each` says
/// false.
pub fn run_all(seeds: Seeds, jobs: NonZeroUsize, options: &Options, each: impl FnMut(Outcome) -> bool) {
    play_all(seeds, jobs, &|seed| run(seed, options), each);
}

/// As [`run_all`], with any play. A play that panics is a seed that failed: otherwise its outcome would be
/// waited for, without end.
fn play_all(
    seeds: Seeds,
    jobs: NonZeroUsize,
    play: &(impl Fn(u64) -> Outcome + Sync),
    mut each: impl FnMut(Outcome) -> bool,
) {
    let (next, ends) = (AtomicU64::new(seeds.first), AtomicBool::new(false));
    let (sender, outcomes) = channel();
    let sender = Mutex::new(sender);
    std::thread::scope(|scope| {
        for _ in 0..jobs.get() {
            scope.spawn(|| {
                loop {
                    // Relaxed: each seed is taken once, and nothing else depends on the order.
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if ends.load(Ordering::Relaxed) || seed > seeds.last || seed < seeds.first {
                        break;
                    }
                    let played = catch_unwind(AssertUnwindSafe(|| play(seed)));
                    let outcome = played.unwrap_or_else(|panic| failed(seed, PANICKED, said(&*panic)));
                    let sender = sender.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    if sender.send(outcome).is_err() {
                        break;
                    }
                }
            });
        }
        let mut early: BTreeMap<u64, Outcome> = BTreeMap::new();
        for seed in seeds.range() {
            while !early.contains_key(&seed) {
                let Ok(outcome) = outcomes.recv() else { return };
                early.insert(outcome.seed, outcome);
            }
            let goes_on = early.remove(&seed).is_none_or(&mut each);
            if !goes_on {
                ends.store(true, Ordering::Relaxed);
                return;
            }
        }
    });
}

/// Leaves out faults of a seed that fails, as long as it still breaks the same rule. Returns the last outcome
/// that failed, and the numbers of the faults that it does without.
pub fn shrink(failed: &Outcome, before: &Without) -> (Outcome, Without) {
    let Some(violation) = &failed.violation else { return (failed.clone(), before.clone()) };
    let rule = violation.rule.clone();
    let (mut best, mut without, mut runs) = (failed.clone(), before.0.clone(), 0);
    let mut size = best.faults.len().div_ceil(2);
    while size > 0 && runs < MOST_RUNS {
        let numbers: Vec<u64> = best.faults.iter().map(|(number, _)| *number).collect();
        let mut any = false;
        // The last ones first: what happens behind the failure is not needed.
        for part in numbers.rchunks(size) {
            let tried: Vec<u64> = without.iter().chain(part).copied().collect();
            runs += 1;
            let outcome = run(best.seed, &Options { without: tried.clone(), trace: false });
            if outcome.violation.as_ref().is_some_and(|found| found.rule == rule) {
                (best, without, any) = (outcome, tried, true);
            }
            if runs >= MOST_RUNS {
                break;
            }
        }
        if !any {
            size /= 2;
        } else {
            size = size.min(best.faults.len().div_ceil(2));
        }
    }
    without.sort_unstable();
    without.dedup();
    (best, Without(without))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn a_play_that_panics_is_a_seed_that_failed() {
        let _deadline = deadline();
        let play = |seed: u64| {
            assert_ne!(seed, 2, "of all seeds this one");
            Outcome { violation: None, ..failed(seed, "none", String::new()) }
        };
        for jobs in [1, 2] {
            let mut ends = Vec::new();
            let seeds = Seeds { first: 1, last: 3 };
            play_all(seeds, NonZeroUsize::new(jobs).unwrap(), &play, |outcome| {
                ends.push((outcome.seed, outcome.violation.map(|violation| violation.rule)));
                true
            });
            assert_eq!(ends, [(1, None), (2, Some(PANICKED.into())), (3, None)], "{jobs} jobs");
        }
    }

    #[test]
    fn seeds_are_one_or_a_range_that_goes_up() {
        let _deadline = deadline();
        assert_eq!("7".parse(), Ok(Seeds { first: 7, last: 7 }));
        assert_eq!("1..100".parse(), Ok(Seeds { first: 1, last: 100 }));
        for bad in ["", "x", "1..", "..4", "1..x", "-1", "1...3"] {
            assert!(bad.parse::<Seeds>().unwrap_err().contains("is no seed"), "{bad}");
        }
        assert!("9..3".parse::<Seeds>().unwrap_err().contains("use 3..9"));
        assert_eq!("3,17".parse(), Ok(Without(vec![3, 17])));
        assert!("3,,4".parse::<Without>().is_err());
    }
}
