// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reduces a failing seed: leaves out clients, faults and turns of clients, as long as the seed still breaks
//! the same rule.
//!
//! ```text
//!   clients, one by one --> faults --> turns of clients       halves, quarters, ... single ones of each kind
//! ```

use super::{Options, Outcome, run};
use std::collections::BTreeSet;
use std::str::FromStr;

/// Runs of a seed while parts of it are left out, at most.
const MOST_RUNS: u32 = 400;

/// Faults that are left out, by their numbers: `3,17`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Without(pub Vec<u64>);

impl FromStr for Without {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is no fault's number"));
        text.split(',').map(number).collect::<Result<_, _>>().map(Self)
    }
}

/// A turn of a client: it opens a volume, or deletes one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Turn {
    /// The client's number.
    pub client: usize,
    /// Which of its turns, from 1 on.
    pub turn: u32,
}

/// Clients that do nothing but make the volumes, and turns that are left out: `2,0.5` is client 2, and turn 5
/// of client 0.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Idle {
    /// Clients that only make the volumes.
    pub clients: BTreeSet<usize>,
    /// Turns of other clients that are left out.
    pub turns: BTreeSet<Turn>,
}

impl Idle {
    /// Whether this turn is left out.
    pub(super) fn has(&self, turn: Turn) -> bool {
        self.clients.contains(&turn.client) || self.turns.contains(&turn)
    }

    fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.turns.is_empty()
    }
}

impl FromStr for Idle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut idle = Self::default();
        for part in text.split(',') {
            let bad = || format!("'{part}' is neither a client, as 2, nor a turn of one, as 2.5");
            match part.split_once('.') {
                None => _ = idle.clients.insert(part.parse().map_err(|_| bad())?),
                Some((client, turn)) => {
                    let client = client.parse().map_err(|_| bad())?;
                    idle.turns.insert(Turn { client, turn: turn.parse().map_err(|_| bad())? });
                }
            }
        }
        Ok(idle)
    }
}

/// The parts that are left out of a seed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LeftOut {
    /// Faults.
    pub without: Without,
    /// Clients and their turns.
    pub idle: Idle,
}

impl LeftOut {
    /// The options of `gnstor sim survive` that leave this out, each with a space before it.
    pub fn arguments(&self) -> String {
        let mut said = String::new();
        if !self.without.0.is_empty() {
            let numbers: Vec<String> = self.without.0.iter().map(u64::to_string).collect();
            said += &format!(" --without {}", numbers.join(","));
        }
        if !self.idle.is_empty() {
            let clients = self.idle.clients.iter().map(usize::to_string);
            let turns = self.idle.turns.iter().map(|Turn { client, turn }| format!("{client}.{turn}"));
            said += &format!(" --idle {}", clients.chain(turns).collect::<Vec<_>>().join(","));
        }
        said
    }

    fn options(&self) -> Options {
        Options { trace: false, without: self.without.0.clone(), idle: self.idle.clone() }
    }
}

/// Leaves out parts of a seed that fails, as long as it still breaks the same rule. Returns the last outcome
/// that failed, and what it does without.
pub fn shrink(failed: &Outcome, before: &LeftOut) -> (Outcome, LeftOut) {
    shrink_by(failed, before, |left| run(failed.seed, &left.options()))
}

fn shrink_by(failed: &Outcome, before: &LeftOut, play: impl Fn(&LeftOut) -> Outcome) -> (Outcome, LeftOut) {
    let Some(violation) = &failed.violation else { return (failed.clone(), before.clone()) };
    let rule = violation.rule.clone();
    let mut search = Search { best: failed.clone(), left: before.clone(), rule, runs: 0, play };
    search.leave_out(
        |outcome| outcome.turns.iter().map(|turn| turn.client).collect::<BTreeSet<_>>().into_iter().collect(),
        |left, clients| {
            left.idle.turns.retain(|turn| !clients.contains(&turn.client));
            left.idle.clients.extend(clients);
        },
    );
    search.leave_out(
        |outcome| outcome.faults.iter().map(|(number, _)| *number).collect(),
        |left, faults| left.without.0.extend(faults),
    );
    search.leave_out(|outcome| outcome.turns.clone(), |left, turns| left.idle.turns.extend(turns));
    let Search { best, mut left, .. } = search;
    left.without.0.sort_unstable();
    left.without.0.dedup();
    (best, left)
}

/// A search for what a seed does without.
struct Search<F> {
    best: Outcome,
    left: LeftOut,
    rule: String,
    runs: u32,
    play: F,
}

impl<F: Fn(&LeftOut) -> Outcome> Search<F> {
    /// Leaves out parts of one kind: halves of what there is, then quarters, and so on.
    fn leave_out<T: Clone>(&mut self, parts: impl Fn(&Outcome) -> Vec<T>, out: impl Fn(&mut LeftOut, &[T])) {
        let mut size = parts(&self.best).len().div_ceil(2);
        while size > 0 && self.runs < MOST_RUNS {
            let mut any = false;
            // The last ones first: what happens behind the failure is not needed.
            for part in parts(&self.best).rchunks(size) {
                let mut left = self.left.clone();
                out(&mut left, part);
                self.runs += 1;
                let outcome = (self.play)(&left);
                if outcome.violation.as_ref().is_some_and(|found| found.rule == self.rule) {
                    (self.best, self.left, any) = (outcome, left, true);
                }
                if self.runs >= MOST_RUNS {
                    break;
                }
            }
            size = if any { size.min(parts(&self.best).len().div_ceil(2)) } else { size / 2 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survive::Violation;
    use crate::survive::stats::Stats;
    use gnstor_base::testing::deadline;
    use gnstor_base::time::Time;

    const FAULTS: u64 = 40;
    const TURNS: [(usize, u32); 6] = [(0, 1), (0, 2), (1, 1), (2, 1), (2, 2), (2, 3)];

    /// A world that fails if faults 7 and 30 happen, and client 2 takes its third turn.
    fn play(left: &LeftOut) -> Outcome {
        let happens = (0..FAULTS).filter(|number| !left.without.0.contains(number));
        let faults: Vec<(u64, String)> = happens.map(|number| (number, String::new())).collect();
        let turns = TURNS.map(|(client, turn)| Turn { client, turn });
        let turns: Vec<Turn> = turns.into_iter().filter(|turn| !left.idle.has(*turn)).collect();
        let has = |wanted: u64| faults.iter().any(|(number, _)| *number == wanted);
        let fails = has(7) && has(30) && turns.contains(&Turn { client: 2, turn: 3 });
        let rule = if fails { "a rule" } else { "another one" };
        let violation = Some(Violation { rule: rule.into(), facts: String::new(), at: Time::ZERO });
        let (log, stats) = (Vec::new(), Stats::default());
        Outcome { seed: 1, violation, faults, turns, digest: 0, steps: 0, stats, log }
    }

    #[test]
    fn what_a_failure_needs_is_left() {
        let _deadline = deadline();
        let before = LeftOut { without: Without(vec![3]), idle: Idle::default() };
        let (best, left) = shrink_by(&play(&before), &before, play);
        let numbers: Vec<u64> = best.faults.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [7, 30]);
        assert_eq!(best.turns, [Turn { client: 2, turn: 3 }]);
        assert!(left.without.0.contains(&3), "it was left out before");
        assert_eq!(left.idle.clients, BTreeSet::from([0, 1]));
        assert!(left.arguments().ends_with(" --idle 0,1,2.1,2.2"), "{}", left.arguments());
    }

    #[test]
    fn a_seed_that_is_clean_stays_as_it_is() {
        let _deadline = deadline();
        let clean = Outcome { violation: None, ..play(&LeftOut::default()) };
        let (best, left) = shrink_by(&clean, &LeftOut::default(), |_| panic!("it is not played"));
        assert_eq!((best.faults.len(), left), (clean.faults.len(), LeftOut::default()));
    }

    #[test]
    fn what_is_left_out_is_told_and_read_back() {
        let _deadline = deadline();
        assert_eq!("3,17".parse(), Ok(Without(vec![3, 17])));
        assert!("3,,4".parse::<Without>().is_err());
        let idle: Idle = "2,0.5,0.11".parse().unwrap();
        let left = LeftOut { without: Without(vec![3, 17]), idle };
        assert_eq!(left.arguments(), " --without 3,17 --idle 2,0.5,0.11");
        assert_eq!(LeftOut::default().arguments(), "");
        for bad in ["", "x", "2.", ".5", "2.x", "2,", "1.2.3"] {
            assert!(bad.parse::<Idle>().unwrap_err().contains("is neither a client"), "{bad}");
        }
    }
}
