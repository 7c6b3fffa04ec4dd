// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many seeds, on several threads, each seed on one.

use super::{Options, Outcome, PANICKED, failed, run, said};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One seed, or all from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// The last seed, which is included.
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

/// A seed takes some seconds at most. One that takes this long has no end.
const MOST_OF_A_SEED: Duration = Duration::from_secs(120);
/// Interval of checks for seeds without an end.
const LOOK: Duration = Duration::from_millis(500);
const WITHOUT_END: &str = "the seed has no end";

/// Runs all seeds on `jobs` threads. Hands their outcomes over in the order of the seeds, until `stops` says
/// true.
pub fn run_all(
    seeds: Seeds,
    jobs: NonZeroUsize,
    options: &Options,
    stops: impl Fn() -> bool,
    each: impl FnMut(Outcome),
) {
    let options = options.clone();
    let players = Players::new(seeds, MOST_OF_A_SEED, move |seed| run(seed, &options));
    players.play_all(jobs, stops, each);
}

/// State that the threads of a campaign share.
struct Players<F> {
    play: F,
    seeds: Seeds,
    next: AtomicU64,
    ends: AtomicBool,
    /// A seed that takes longer has failed.
    most: Duration,
    /// Seeds that are being played, and since when.
    playing: Mutex<BTreeMap<u64, Instant>>,
}

impl<F: Fn(u64) -> Outcome + Send + Sync + 'static> Players<F> {
    fn new(seeds: Seeds, most: Duration, play: F) -> Arc<Self> {
        let (next, ends) = (AtomicU64::new(seeds.first), AtomicBool::new(false));
        Arc::new(Self { play, seeds, next, ends, most, playing: Mutex::default() })
    }

    fn playing(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.playing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays all seeds. A play that panics is a seed that failed, and so is one that does not end. Otherwise
    /// its outcome would be waited for, without end.
    fn play_all(
        self: Arc<Self>,
        jobs: NonZeroUsize,
        stops: impl Fn() -> bool,
        mut each: impl FnMut(Outcome),
    ) {
        let (sender, outcomes) = channel();
        (0..jobs.get()).for_each(|_| self.start(&sender));
        let mut early: BTreeMap<u64, Outcome> = BTreeMap::new();
        'seeds: for seed in self.seeds.range() {
            while !early.contains_key(&seed) {
                if let Ok(outcome) = outcomes.recv_timeout(LOOK) {
                    early.insert(outcome.seed, outcome);
                    continue;
                }
                for stuck in self.take_stuck() {
                    let facts = format!("it was played for {:?}, and its thread was left alone", self.most);
                    early.insert(stuck, failed(stuck, WITHOUT_END, facts));
                    self.start(&sender);
                }
                if stops() {
                    break 'seeds;
                }
            }
            early.remove(&seed).into_iter().for_each(&mut each);
            if stops() {
                break;
            }
        }
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Starts a thread that plays seeds. Nothing waits for its end: the play of a seed may have none.
    #[expect(
        clippy::disallowed_methods,
        reason = "here threads are started, and the machine's clock is read"
    )]
    fn start(self: &Arc<Self>, sender: &Sender<Outcome>) {
        let (players, sender) = (Arc::clone(self), sender.clone());
        std::thread::spawn(move || {
            loop {
                // Relaxed: each seed is taken once, and nothing else depends on the order.
                let seed = players.next.fetch_add(1, Ordering::Relaxed);
                if players.ends.load(Ordering::Relaxed) || !players.seeds.range().contains(&seed) {
                    break;
                }
                players.playing().insert(seed, Instant::now());
                let played = catch_unwind(AssertUnwindSafe(|| (players.play)(seed)));
                let outcome = played.unwrap_or_else(|panic| failed(seed, PANICKED, said(&*panic)));
                // Another thread is there in place of one that was given up.
                let is_given_up = players.playing().remove(&seed).is_none();
                if is_given_up || sender.send(outcome).is_err() {
                    break;
                }
            }
        });
    }

    /// Takes the seeds that have been played for too long. Their threads cannot be ended.
    fn take_stuck(&self) -> Vec<u64> {
        let mut stuck = Vec::new();
        self.playing().retain(|&seed, since| {
            let goes_on = since.elapsed() <= self.most;
            if !goes_on {
                stuck.push(seed);
            }
            goes_on
        });
        stuck
    }
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
            let seeds = Seeds { first: 1, last: 3 };
            let ends = rules(jobs, &Players::new(seeds, MOST_OF_A_SEED, play));
            assert_eq!(ends, [(1, None), (2, Some(PANICKED.into())), (3, None)], "{jobs} jobs");
        }
    }

    /// Plays all, and returns which rule each seed broke.
    fn rules<F>(jobs: usize, players: &Arc<Players<F>>) -> Vec<(u64, Option<String>)>
    where
        F: Fn(u64) -> Outcome + Send + Sync + 'static,
    {
        let mut ends = Vec::new();
        let jobs = NonZeroUsize::new(jobs).expect("some");
        Arc::clone(players).play_all(
            jobs,
            || false,
            |outcome| {
                ends.push((outcome.seed, outcome.violation.map(|violation| violation.rule)));
            },
        );
        ends
    }

    #[test]
    fn a_play_without_an_end_is_a_seed_that_failed_and_the_others_are_played() {
        let _deadline = deadline();
        let play = |seed: u64| {
            if seed == 2 {
                loop {
                    std::thread::park();
                }
            }
            Outcome { violation: None, ..failed(seed, "none", String::new()) }
        };
        for jobs in [1, 2] {
            let seeds = Seeds { first: 1, last: 4 };
            let ends = rules(jobs, &Players::new(seeds, Duration::from_millis(50), play));
            let expected = [(1, None), (2, Some(WITHOUT_END.into())), (3, None), (4, None)];
            assert_eq!(ends, expected, "{jobs} jobs");
        }
    }

    #[test]
    fn a_campaign_that_is_stopped_waits_for_no_seed() {
        let _deadline = deadline();
        let seeds = Seeds { first: 1, last: 4 };
        let players = Players::new(seeds, MOST_OF_A_SEED, |_| {
            loop {
                std::thread::park();
            }
        });
        let mut ended = 0;
        players.play_all(NonZeroUsize::MIN, || true, |_| ended += 1);
        assert_eq!(ended, 0);
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
    }
}
