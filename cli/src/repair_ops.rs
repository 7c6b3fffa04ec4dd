// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor scrub` and `gnstor rebuild`: an operator looks after what SSDs repair.

use crate::args::{ArrayArgs, RebuildArgs, RebuildCommand, ScrubArgs, ScrubCommand};
use crate::fleet::ask;
use gnstor_console::{CliError, human_bytes, outln, print_json, printable};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::{
    FleetSsd, RepairOrder, RepairRequest, ScrubState, ShowRequest, ShowResponse, SsdFill, SsdRepair,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Between the two looks that tell how fast a fill is.
const LOOK_MS: u64 = 1_000;

/// Runs a scrub command; the exit code: 2 where an SSD has copies that differ or could not be healed.
///
/// # Errors
/// [`CliError`] with the daemon's sentence.
pub fn scrub(args: &ScrubArgs) -> Result<u8, CliError> {
    let (array, order) = match &args.command {
        ScrubCommand::Start(array) => (array, RepairOrder::ScrubStart),
        ScrubCommand::Stop(array) => (array, RepairOrder::ScrubStop),
        ScrubCommand::Status(array) => (array, RepairOrder::Unspecified),
    };
    let ssds = repair(array, order, 0)?;
    if array.json {
        print_json(&json!({ "ssds": ssds.iter().map(scrub_json).collect::<Vec<_>>() }));
    } else {
        outln!(
            "{:<4} {:<8} {:>5} {:>8} {:>8} {:>8}  NOTE",
            "SSD",
            "SCRUB",
            "DONE",
            "ROTTEN",
            "HEALED",
            "DIFFER"
        );
        ssds.iter().for_each(|ssd| outln!("{}", scrub_line(ssd).trim_end()));
    }
    refusals(&ssds)?;
    let is_unwell = |ssd: &SsdRepair| ssd.rotten > ssd.healed || ssd.differ > 0;
    let is_asked = matches!(args.command, ScrubCommand::Status(_));
    Ok(if is_asked && ssds.iter().any(is_unwell) { 2 } else { 0 })
}

/// Runs a rebuild command; the exit code: 2 while an SSD fills.
///
/// # Errors
/// [`CliError`] with the daemon's sentence.
pub fn rebuild(args: &RebuildArgs) -> Result<u8, CliError> {
    let (array, percent) = match &args.command {
        RebuildCommand::Limit { percent, array } => (array, *percent),
        RebuildCommand::Status(array) => return rebuild_status(array),
        RebuildCommand::Pause(array) => return pause(array, true),
        RebuildCommand::Resume(array) => return pause(array, false),
    };
    let ssds = repair(array, RepairOrder::Share, percent)?;
    refusals(&ssds)?;
    if array.json {
        print_json(&json!({ "share_percent": percent }));
    } else {
        outln!(
            "repairs take at most {percent} % of each SSD that clients use, until the daemon starts again"
        );
    }
    Ok(0)
}

fn pause(array: &ArrayArgs, is_paused: bool) -> Result<u8, CliError> {
    let order = if is_paused { RepairOrder::FillPause } else { RepairOrder::FillResume };
    refusals(&repair(array, order, 0)?)?;
    if array.json {
        print_json(&json!({ "paused": is_paused }));
    } else if is_paused {
        outln!(
            "no SSD fills its places until gnstor rebuild resume, or until the daemon starts again; writes go to \
             all copies meanwhile"
        );
    } else {
        outln!("SSDs go on to fill their places (gnstor rebuild status)");
    }
    Ok(0)
}

fn repair(array: &ArrayArgs, order: RepairOrder, share_percent: u32) -> Result<Vec<SsdRepair>, CliError> {
    let request = RepairRequest { order: order.into(), share_percent };
    // Each order says how something is to be. So it may be given again.
    let answer = ask(array, |channel| async move { FleetClient::new(channel).repair(request).await })?;
    Ok(answer.into_inner().ssds)
}

fn refusals(ssds: &[SsdRepair]) -> Result<(), CliError> {
    let refused = ssds.iter().filter(|ssd| !ssd.refused.is_empty());
    let refused: Vec<String> =
        refused.map(|ssd| format!("SSD {}: {}", ssd.ssd, printable(&ssd.refused))).collect();
    if refused.is_empty() {
        return Ok(());
    }
    Err(CliError::Stopped(format!(
        "some SSDs refused, and the others took the order: {}",
        refused.join("; ")
    )))
}

fn word(ssd: &SsdRepair) -> &'static str {
    match ssd.scrub() {
        _ if !ssd.away.is_empty() => "-",
        ScrubState::Unspecified => "none",
        ScrubState::Running => "runs",
        ScrubState::Done => "done",
        ScrubState::Stopped => "stopped",
    }
}

fn percent(part: u64, all: u64) -> u64 {
    // A volume may have been deleted since, so the share is at most 100 %.
    u64::try_from(u128::from(part.min(all)) * 100 / u128::from(all.max(1))).unwrap_or(100)
}

fn scrub_line(ssd: &SsdRepair) -> String {
    let runs = ssd.scrub() == ScrubState::Running;
    let done = if runs { format!("{} %", percent(ssd.compared_blocks, ssd.blocks)) } else { "-".into() };
    let mut notes = Vec::new();
    if !ssd.away.is_empty() {
        notes.push(printable(&ssd.away));
    }
    if let Some(waits_for) = ssd.waits_for.filter(|_| runs) {
        notes.push(format!("waits for SSD {waits_for}"));
    }
    if ssd.rotten > ssd.healed {
        notes.push(format!("{} copies have no good one on another SSD", ssd.rotten - ssd.healed));
    }
    format!(
        "{:<4} {:<8} {done:>5} {:>8} {:>8} {:>8}  {}",
        ssd.ssd,
        word(ssd),
        ssd.rotten,
        ssd.healed,
        ssd.differ,
        notes.join("; ")
    )
}

fn scrub_json(ssd: &SsdRepair) -> Value {
    json!({
        "index": ssd.ssd, "why": (!ssd.away.is_empty()).then_some(&ssd.away),
        "refused": (!ssd.refused.is_empty()).then_some(&ssd.refused), "scrub": word(ssd),
        "scrubs_ended": ssd.scrubs_ended, "compared_bytes": ssd.compared_blocks * u64::from(BLOCK_BYTES),
        "bytes": ssd.blocks * u64::from(BLOCK_BYTES), "rotten_blocks": ssd.rotten,
        "healed_blocks": ssd.healed, "differing_blocks": ssd.differ, "waits_for": ssd.waits_for,
        "share_percent": ssd.share_percent,
    })
}

/// A fill between two looks.
#[derive(Debug)]
struct Pace {
    ssd: u32,
    compared_bytes: u64,
    bytes: u64,
    copied_bytes: u64,
    bytes_per_s: u64,
    /// `None`: it does not get on.
    left_s: Option<u64>,
    waits_for: Option<u32>,
    groups: u32,
}

impl Pace {
    fn of(ssd: &FleetSsd, before: Option<&SsdFill>) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES.into());
        let fill = ssd.fill.unwrap_or_default();
        let begun = before.map_or(fill.compared_blocks, |before| before.compared_blocks);
        let bytes_per_s = bytes(fill.compared_blocks.saturating_sub(begun)) * 1_000 / LOOK_MS;
        let left = bytes(fill.blocks.saturating_sub(fill.compared_blocks));
        Self {
            ssd: ssd.index,
            compared_bytes: bytes(fill.compared_blocks),
            bytes: bytes(fill.blocks),
            copied_bytes: bytes(fill.pulled_blocks),
            bytes_per_s,
            left_s: left.div_ceil(bytes_per_s.max(1)).into(),
            waits_for: fill.waits_for,
            groups: ssd.filling,
        }
        .checked()
    }

    fn checked(self) -> Self {
        let is_still = self.bytes_per_s == 0 && self.compared_bytes < self.bytes;
        Self { left_s: self.left_s.filter(|_| !is_still), ..self }
    }

    fn line(&self) -> String {
        let left = self.left_s.map_or("does not get on".into(), |left| format!("{left} s left"));
        let waits = self.waits_for.map_or(String::new(), |ssd| format!("; waits for SSD {ssd}"));
        format!(
            "SSD {}: {} of {} compared ({} %), {} copied, {}/s, {left}{waits}",
            self.ssd,
            human_bytes(self.compared_bytes),
            human_bytes(self.bytes),
            percent(self.compared_bytes, self.bytes),
            human_bytes(self.copied_bytes),
            human_bytes(self.bytes_per_s),
        )
    }

    fn json(&self) -> Value {
        json!({
            "index": self.ssd, "compared_bytes": self.compared_bytes, "bytes": self.bytes,
            "copied_bytes": self.copied_bytes, "bytes_per_s": self.bytes_per_s, "left_s": self.left_s,
            "waits_for": self.waits_for, "filling_groups": self.groups,
        })
    }
}

fn rebuild_status(array: &ArrayArgs) -> Result<u8, CliError> {
    let show = |channel| async move { FleetClient::new(channel).show(ShowRequest {}).await };
    let mut fleet = ask(array, show)?.into_inner();
    let mut before = ShowResponse::default();
    if fleet.ssds.iter().any(|ssd| ssd.filling > 0) {
        std::thread::sleep(Duration::from_millis(LOOK_MS));
        before = std::mem::replace(&mut fleet, ask(array, show)?.into_inner());
    }
    let was = |ssd: u32| before.ssds.iter().find(|was| was.index == ssd)?.fill.as_ref();
    let fills = fleet.ssds.iter().filter(|ssd| ssd.filling > 0);
    let fills: Vec<Pace> = fills.map(|ssd| Pace::of(ssd, was(ssd.index))).collect();
    let repairs = repair(array, RepairOrder::Unspecified, 0)?;
    let share = repairs.iter().filter(|ssd| ssd.away.is_empty()).map(|ssd| ssd.share_percent).max();
    if array.json {
        let fills: Vec<Value> = fills.iter().map(Pace::json).collect();
        print_json(&json!({ "ssds": fills, "share_percent": share, "paused": fleet.fills_paused }));
    } else {
        if fills.is_empty() {
            outln!("no SSD fills");
        }
        fills.iter().for_each(|fill| outln!("{}", fill.line()));
        if fleet.fills_paused {
            outln!("fills are paused: gnstor rebuild resume");
        }
        if let Some(share) = share {
            outln!("repairs take at most {share} % of an SSD that clients use (gnstor rebuild limit)");
        }
    }
    Ok(if fills.is_empty() { 0 } else { 2 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn a_fill_tells_how_fast_it_is_and_how_long_it_takes() {
        let _deadline = deadline();
        let fill = |compared_blocks| SsdFill {
            compared_blocks,
            blocks: 4096,
            pulled_blocks: 256,
            is_filled: false,
            waits_for: None,
        };
        let ssd =
            |compared| FleetSsd { index: 3, filling: 7, fill: Some(fill(compared)), ..FleetSsd::default() };
        let line = Pace::of(&ssd(1024), Some(&fill(512))).line();
        assert_eq!(line, "SSD 3: 4.0 MiB of 16.0 MiB compared (25 %), 1.0 MiB copied, 2.0 MiB/s, 6 s left");
        let still = Pace::of(&ssd(1024), Some(&fill(1024)));
        assert_eq!((still.left_s, still.bytes_per_s), (None, 0));
        assert!(still.line().ends_with("does not get on"), "{}", still.line());
        assert_eq!(Pace::of(&ssd(4096), Some(&fill(4096))).left_s, Some(0), "it is about to serve");
        assert_eq!(Pace::of(&ssd(10), Some(&fill(900))).bytes_per_s, 0, "it began anew");
    }

    #[test]
    fn a_scrub_tells_what_it_found_and_an_ssd_that_is_away_says_nothing() {
        let _deadline = deadline();
        let ssd = SsdRepair {
            ssd: 2,
            scrub: ScrubState::Running.into(),
            compared_blocks: 30,
            blocks: 40,
            rotten: 5,
            healed: 4,
            differ: 1,
            waits_for: Some(0),
            ..SsdRepair::default()
        };
        let line = scrub_line(&ssd);
        for word in ["2    runs", "75 %", "waits for SSD 0", "1 copies have no good one"] {
            assert!(line.contains(word), "{word:?} is not in {line:?}");
        }
        let away = SsdRepair { away: "it is out of the map".into(), ..SsdRepair::default() };
        assert!(scrub_line(&away).contains("-") && scrub_line(&away).ends_with("it is out of the map"));
        assert!(refusals(std::slice::from_ref(&ssd)).is_ok());
        let refused = SsdRepair { refused: "it serves nothing".into(), ..ssd };
        assert!(refusals(&[refused]).unwrap_err().to_string().contains("SSD 2: it serves nothing"));
    }
}
