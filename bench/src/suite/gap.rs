// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of the distance between `gnstor` and `gd` with one client the emulator makes.
//!
//! The emulated HCA reads a client's queues and writes its completions. The queues of `gnstor` are local to
//! the HCA's agent, and those of `gd` are across PCIe. What the run measures of the emulator is the fetch of
//! a command and the copy of its data.

use super::store::Kept;
use crate::report::{Report, word};
use crate::words::Mode;
use crate::{Better, Spread};
use serde::Serialize;
use std::fmt::Write;

/// The difference of `gd` and `gnstor`, with the same load of one client.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Gap {
    rw: String,
    /// Mean latency of an I/O, microseconds.
    gap_us: f64,
    /// Mean time from the HCA's taking of a command to the array's seeing it, microseconds.
    fetch_us: f64,
    /// Mean time of a copy, microseconds.
    copy_us: f64,
    /// Share of the gap that both explain; none where `gnstor` is not ahead, or a row is core-bound.
    explained_share: Option<f64>,
    core_bound: bool,
}

/// Medians of one row's runs.
struct Side {
    mean_us: f64,
    fetch_us: f64,
    copy_us: f64,
    core_bound: bool,
}

impl Side {
    fn of(row: &Kept) -> Option<Self> {
        let median = |figure: fn(&Report) -> Option<f64>| {
            Spread::of(row.reports().filter_map(figure), Better::Low).map(|spread| spread.median)
        };
        Some(Self {
            mean_us: median(|run| run.timed().map(|timed| timed.latency_us.mean))?,
            fetch_us: median(|run| Some(run.stages.fetch_us))?,
            copy_us: median(|run| Some(run.stages.copy_us))?,
            core_bound: row.reports().any(|run| run.busy.core_bound),
        })
    }
}

/// The gaps of the group `one`: one for each direction whose rows both ran.
pub(super) fn gaps(all: &[Kept]) -> Vec<Gap> {
    let ones = || all.iter().filter(|row| row.name.starts_with("one "));
    let load = |row: &Kept| row.reports().next().map(|run| (run.load.mode, run.load.rw));
    let gap = |row: &Kept| {
        let (_, rw) = load(row).filter(|(mode, _)| *mode == Mode::Gnstor)?;
        let other = ones().find(|other| load(other) == Some((Mode::Gd, rw)))?;
        Some(Gap::between(word(rw), &Side::of(row)?, &Side::of(other)?))
    };
    ones().filter_map(gap).collect()
}

impl Gap {
    fn between(rw: String, gnstor: &Side, gd: &Side) -> Self {
        let gap_us = gd.mean_us - gnstor.mean_us;
        let (fetch_us, copy_us) = (gd.fetch_us - gnstor.fetch_us, gd.copy_us - gnstor.copy_us);
        let core_bound = gnstor.core_bound || gd.core_bound;
        let counts = gap_us > 0.0 && !core_bound;
        let explained_share = counts.then(|| (fetch_us + copy_us) / gap_us);
        Self { rw, gap_us, fetch_us, copy_us, explained_share, core_bound }
    }

    fn line(&self) -> String {
        let Self { rw, gap_us, fetch_us, copy_us, .. } = self;
        let share = match self.explained_share {
            Some(share) => format!("{:.1} % of it", share * 100.0),
            None if self.core_bound => "core-bound, so it has no ratio".into(),
            None => "gnstor is not ahead".into(),
        };
        format!(
            "{rw}, gd less gnstor: {gap_us:+.1} us an I/O (mean); fetch {fetch_us:+.1} us, copy \
             {copy_us:+.1} us: {share}"
        )
    }
}

/// The gaps for people.
pub(super) fn write(text: &mut String, gaps: &[Gap]) {
    for gap in gaps {
        let _ = writeln!(text, "  one client  {}", gap.line());
    }
    if !gaps.is_empty() {
        let why =
            "the agent's queues are local to it, and the CPU's queues are across PCIe: the emulator's part";
        let _ = writeln!(text, "              {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{kept, report};
    use gnstor_base::testing::deadline;

    /// A row of three runs, whose middle has these figures.
    fn row(mode: &str, rw: &str, [mean_us, fetch_us, copy_us]: [f64; 3]) -> Kept {
        let run = |more: f64| {
            let mut run = report(&["--mode", mode, "--rw", rw], mean_us + more);
            (run.stages.fetch_us, run.stages.copy_us) = (fetch_us + more, copy_us + more);
            run
        };
        kept(&format!("one {mode} {rw} 4k c1 q32 s4"), [run(2.0), run(0.0), run(-1.0)])
    }

    #[test]
    fn the_stages_explain_a_share_of_the_gap() {
        let _deadline = deadline();
        let rows = [
            row("gnstor", "randread", [60.0, 5.0, 10.0]),
            row("gd+deengine", "randread", [65.0, 1.0, 1.0]),
            row("gd", "randread", [70.0, 8.0, 11.0]),
            row("gnstor", "randwrite", [50.0, 5.0, 10.0]),
            row("gd", "randwrite", [45.0, 6.0, 10.0]),
        ];
        let gaps = gaps(&rows);
        assert_eq!(gaps.len(), 2);
        assert_eq!((gaps[0].gap_us, gaps[0].fetch_us, gaps[0].copy_us), (10.0, 3.0, 1.0));
        assert_eq!(gaps[0].explained_share, Some(0.4));
        assert_eq!((gaps[1].gap_us, gaps[1].explained_share), (-5.0, None));
        let mut text = String::new();
        write(&mut text, &gaps);
        for word in [
            "randread, gd less gnstor: +10.0 us an I/O (mean); fetch +3.0 us, copy +1.0 us: 40.0 % of it",
            "randwrite, gd less gnstor: -5.0 us",
            "gnstor is not ahead",
            "the agent's queues are local to it, and the CPU's queues are across PCIe",
        ] {
            assert!(text.contains(word), "'{word}' in: {text}");
        }
    }

    #[test]
    fn a_gap_needs_both_rows_and_enough_cores() {
        let _deadline = deadline();
        let gnstor = row("gnstor", "randread", [60.0, 5.0, 10.0]);
        assert_eq!(gaps(std::slice::from_ref(&gnstor)), []);
        let mut gd = row("gd", "randread", [70.0, 8.0, 11.0]);
        gd.runs.iter_mut().for_each(|run| {
            if let super::super::store::Done::Load(run) = run {
                run.busy.core_bound = true;
            }
        });
        let gaps = gaps(&[gnstor, gd]);
        assert_eq!((gaps[0].gap_us, gaps[0].explained_share), (10.0, None));
        assert!(gaps[0].line().contains("core-bound, so it has no ratio"), "{}", gaps[0].line());
    }
}
