// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads back what a load has written, each replica separately.

use crate::harness::{Harness, Outcome, Phase};
use crate::kernel::{LaneResult, ONCE, VERIFY, WHOLE};
use crate::{ONCE_LIMIT, Report, first_wrong, sum, whole};
use gnstor_console::{CliError, Steps};
use gnstor_gnor::abi::GN_NO_REPLICA;
use gnstor_proto::status::{Detail, Refusal};
use std::time::{Duration, Instant};

/// Time for which reading back may begin again. Meanwhile a running array may give SSDs their places back.
const MAP_LIMIT: Duration = Duration::from_secs(30);
/// Pause between two tries.
const REST: Duration = Duration::from_millis(200);

/// Reads every replica of every block and adds the results to the report. It does so if the load has written
/// and its reads are checked. It does not after Ctrl-C or a failed write, because the contents of blocks are
/// then unknown.
///
/// # Errors
/// [`CliError`]: reads that failed.
pub fn read_back(harness: &Harness, report: &mut Report, steps: &Steps) -> Result<(), CliError> {
    let Some(summary) = report.verify.as_mut() else { return Ok(()) };
    // A load that writes may have written in its warm-up only.
    if harness.load().read_percent == 100 || report.interrupted || !report.errors.is_empty() {
        return Ok(());
    }
    for replica in 1..=harness.load().replicas {
        let back = replica_of_every_block(harness, replica, steps)?;
        if back.interrupted {
            report.interrupted = true;
            return Ok(());
        }
        whole(harness, &back, 0, "reading back")?;
        summary.whole_blocks += sum(&back, |lane| lane.whole_blocks);
        summary.first_wrong =
            summary.first_wrong.take().or_else(|| first_wrong(harness, &back, &format!("replica {replica}")));
        summary.replicas_read_back = replica;
        if replica == 1 {
            // A unit's generation says how often it was written: the first time was the filling.
            summary.verified_ios += sum(&back, |lane| lane.generations) - sum(&back, |lane| lane.verified);
        }
    }
    steps.done(format!("read back   {} replicas of every block", harness.load().replicas));
    Ok(())
}

/// One launch reads one replica of every block. A read of one replica does not wait for another map and goes
/// to no other SSD. So all are read again if the fleet map changes.
#[expect(clippy::disallowed_methods, reason = "waits for an array in real time, with a deadline")]
fn replica_of_every_block(harness: &Harness, replica: u32, steps: &Steps) -> Result<Outcome, CliError> {
    let phase = Phase {
        what: "read back",
        flags: VERIFY | WHOLE | ONCE,
        read_percent: 100,
        warmup: Duration::ZERO,
        runtime: ONCE_LIMIT,
        replica,
        pace: None,
    };
    let begun = Instant::now();
    loop {
        let back = harness.run(&phase, steps)?;
        if back.interrupted || !is_of_another_map(&back) || begun.elapsed() > MAP_LIMIT {
            return Ok(back);
        }
        std::thread::sleep(REST);
    }
}

/// Whether reads failed, and all of them because of their map.
fn is_of_another_map(outcome: &Outcome) -> bool {
    let mut failed = outcome.lanes.iter().flatten().filter(|lane| lane.status != 0).peekable();
    failed.peek().is_some() && failed.all(has_another_map)
}

fn has_another_map(lane: &LaneResult) -> bool {
    let by_map = matches!(
        Detail::from_dw0(lane.dw0).refusal(),
        Some(Refusal::StaleMap | Refusal::MapBehind | Refusal::WrongTarget | Refusal::NotServing)
    );
    lane.status & GN_NO_REPLICA != 0 || lane.status < 1 << 16 && by_map
}
