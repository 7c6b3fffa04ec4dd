// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor fleet`: an operator sees the SSDs of a running array, and takes one out or back.

use crate::args::{AddSsd, ArrayArgs, FleetArgs, FleetCommand};
use crate::fleet::{self, call};
use crate::fleet_show::{chosen, health, print, to_json};
use gnstor_console::{CliError, out, outln, print_json, printable};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::{
    AddRequest, DrainRequest, FailRequest, FleetSsd, LostBlocks, RemoveRequest, ReplaceRequest,
    ResumeRequest, SalvageRequest, SalvageResponse, ShowRequest, ShowResponse, SsdState, WatchMapRequest,
};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two looks of `gnstor fleet watch` where something is under way that makes no map: an SSD that is
/// down, or fills. Also after the daemon did not answer.
const LOOK: Duration = Duration::from_millis(500);
/// The pause while all is well, since a new map is reported at once.
const REST: Duration = Duration::from_secs(2);
/// Interval of the checks for Ctrl-C.
const STEP: Duration = Duration::from_millis(100);
/// Moves to the top of a terminal and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Runs a fleet command; the exit code.
///
/// # Errors
/// [`CliError`] with the daemon's sentence.
pub fn run(args: &FleetArgs, interrupted: &AtomicBool) -> Result<u8, CliError> {
    match &args.command {
        FleetCommand::Show { ssds, array } => {
            let fleet = ask(array)?;
            let shown = chosen(&fleet.ssds, ssds);
            if array.json {
                print_json(&to_json(&fleet, &shown))
            } else {
                print(&fleet, &shown)
            }
            return Ok(health(&fleet).exit_code());
        }
        FleetCommand::Watch(array) => return watch(array, interrupted),
        FleetCommand::Resume { ssd, lose_data, array } => resume(array, *ssd, *lose_data)?,
        FleetCommand::Fail { ssd, lose_data, array } => fail(array, *ssd, *lose_data)?,
        FleetCommand::Remove { ssd, array } => {
            let is_out = before(array, *ssd).is_some_and(|ssd| ssd.taken_out);
            let request = RemoveRequest { ssd: (*ssd).into() };
            call(array, |channel| async move { FleetClient::new(channel).remove(request).await })?;
            match is_out {
                true => nothing(array, *ssd, IS_OUT),
                false => done(array, *ssd, "removed", LEFT_OUT, None),
            }
        }
        FleetCommand::Drain { ssd, array } => {
            let leaves = before(array, *ssd).is_some_and(|ssd| ssd.leaves);
            let request = DrainRequest { ssd: (*ssd).into() };
            call(array, |channel| async move { FleetClient::new(channel).drain(request).await })?;
            let more =
                "it serves until others have its copies, and is out then; gnstor fleet resume calls it off";
            match leaves {
                true => nothing(array, *ssd, "is being drained already"),
                false => done(array, *ssd, "being drained", more, None),
            }
        }
        FleetCommand::Add(wish) => add(wish)?,
        FleetCommand::Salvage { dry_run, yes: _, array } => salvage(array, *dry_run)?,
        FleetCommand::Replace { ssd, lose_data, array } => {
            let request = ReplaceRequest { ssd: (*ssd).into(), lose_data: *lose_data };
            let answer =
                call(array, |channel| async move { FleetClient::new(channel).replace(request).await })?;
            let lost = Some(answer.into_inner().lost).filter(|_| *lose_data);
            let more = "the empty SSD gets its places and fills them";
            let lost = lost.as_deref().map(|blocks| Lost { blocks, how: "are gone: they are empty now" });
            done(array, *ssd, "replaced", more, lost);
        }
    }
    Ok(0)
}

/// What follows when an SSD is taken out.
const LEFT_OUT: &str = "the next map leaves it out until gnstor fleet resume";
/// Why an order to take an SSD out changes nothing.
const IS_OUT: &str = "is taken out of the array already";

/// Takes an SSD back.
fn resume(array: &ArrayArgs, ssd: u16, lose_data: bool) -> Result<(), CliError> {
    let is_in = before(array, ssd).is_some_and(|ssd| is_in(&ssd));
    let request = ResumeRequest { ssd: ssd.into(), lose_data };
    let answer = call(array, |channel| async move { FleetClient::new(channel).resume(request).await })?;
    if is_in {
        nothing(array, ssd, "is in the array");
        return Ok(());
    }
    let lost = Some(answer.into_inner().lost).filter(|_| lose_data);
    let more = "it gets places when it is there and has what the array has";
    let lost = lost.as_deref().map(|blocks| Lost { blocks, how: "may be older than what was acknowledged" });
    done(array, ssd, "resumed", more, lost);
    Ok(())
}

/// Takes an SSD out at once.
fn fail(array: &ArrayArgs, ssd: u16, lose_data: bool) -> Result<(), CliError> {
    let is_out = before(array, ssd).is_some_and(|ssd| ssd.taken_out);
    let request = FailRequest { ssd: ssd.into(), lose_data };
    let answer = call(array, |channel| async move { FleetClient::new(channel).fail(request).await })?;
    if is_out {
        nothing(array, ssd, IS_OUT);
        return Ok(());
    }
    let lost = Some(answer.into_inner().lost).filter(|_| lose_data);
    let lost = lost.as_deref().map(|blocks| Lost { blocks, how: "cannot be read or written until then" });
    done(array, ssd, "failed", LEFT_OUT, lost);
    Ok(())
}

/// The SSD before a change. The change itself finds out whether there is one.
fn before(array: &ArrayArgs, ssd: u16) -> Option<FleetSsd> {
    ask(array).ok()?.ssds.into_iter().find(|before| before.index == u32::from(ssd))
}

/// Whether the SSD has its places, and nothing is to be called off.
fn is_in(ssd: &FleetSsd) -> bool {
    let has_places = matches!(ssd.state(), SsdState::In | SsdState::Full | SsdState::Spare);
    has_places && ssd.away.is_empty() && !(ssd.taken_out || ssd.flaps || ssd.leaves || ssd.is_lossy)
}

/// Reports that an order changes nothing.
fn nothing(array: &ArrayArgs, ssd: u16, why: &str) {
    match array.json {
        true => print_json(&json!({ "ssd": ssd, "done": "nothing", "why": why })),
        false => outln!("SSD {ssd} {why}: nothing to do (gnstor fleet show)"),
    }
}

/// Has an SSD join.
fn add(wish: &AddSsd) -> Result<(), CliError> {
    let AddSsd { address, spare, node, rack, weight, array } = wish;
    let request = AddRequest {
        address: address.clone(),
        spare: *spare,
        node: node.map(u32::from),
        rack: (*rack).into(),
        weight: *weight,
    };
    let answer = call(array, |channel| async move { FleetClient::new(channel).add(request).await })?;
    let ssd = u16::try_from(answer.into_inner().ssd).unwrap_or(u16::MAX);
    let more = match spare {
        true => "it waits until another SSD is lost or drained, and takes its places",
        false => "it takes its share of the blocks, while the others serve",
    };
    done(array, ssd, "added", more, None);
    Ok(())
}

/// Has copies merged that have all lost writes.
fn salvage(array: &ArrayArgs, dry_run: bool) -> Result<(), CliError> {
    let request = SalvageRequest { dry_run };
    let answer = call(array, |channel| async move { FleetClient::new(channel).salvage(request).await })?;
    let SalvageResponse { ssds, volumes } = answer.into_inner();
    if array.json {
        let volumes = volumes.iter().map(|v| json!({ "volume": v.volume, "blocks": v.blocks }));
        let volumes: Value = volumes.collect();
        print_json(&json!({ "dry_run": dry_run, "ssds": ssds, "volumes": volumes }));
        return Ok(());
    }
    for of in &volumes {
        let name = printable(&of.volume);
        outln!(
            "volume {name}: {} blocks of {BLOCK_BYTES} bytes have copies only that lost writes",
            of.blocks
        );
    }
    let ssds = ssds.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match dry_run {
        true => outln!(
            "the copies of SSD {ssds} would be merged: of each block the newest write wins that one of them \
             kept; nothing was changed (gnstor fleet salvage --yes)"
        ),
        false => outln!(
            "the copies of SSD {ssds} are being merged: they serve when that is done (gnstor fleet show)"
        ),
    }
    Ok(())
}

/// Blocks that the operator has given up.
#[derive(Clone, Copy)]
struct Lost<'a> {
    blocks: &'a [LostBlocks],
    /// What the blocks are now, in words.
    how: &'a str,
}

/// Reports success.
fn done(array: &ArrayArgs, ssd: u16, what: &str, more: &str, lost: Option<Lost<'_>>) {
    if array.json {
        let mut answer = json!({ "ssd": ssd, "done": what });
        if let Some(lost) = lost {
            let lost = lost.blocks.iter().map(|lost| json!({ "volume": lost.volume, "blocks": lost.blocks }));
            answer["lost"] = lost.collect();
        }
        return print_json(&answer);
    }
    outln!("SSD {ssd} is {what}: {more} (gnstor fleet show)");
    let Some(Lost { blocks, how }) = lost else { return };
    if blocks.is_empty() {
        outln!("no volume loses anything");
    }
    for lost in blocks {
        outln!("volume {}: {} blocks of {BLOCK_BYTES} bytes {how}", printable(&lost.volume), lost.blocks);
    }
}

pub(crate) fn ask(array: &ArrayArgs) -> Result<ShowResponse, CliError> {
    let show = |channel| async move { FleetClient::new(channel).show(ShowRequest {}).await };
    Ok(fleet::ask(array, show)?.into_inner())
}

/// Whether something is in progress that the map does not show.
fn is_restless(fleet: &ShowResponse) -> bool {
    let is_restless = |ssd: &FleetSsd| !ssd.away.is_empty() || ssd.filling > 0 || ssd.leaves;
    fleet.next_epoch > 0 || fleet.settling_volumes > 0 || fleet.ssds.iter().any(is_restless)
}

/// Waits until there is a newer map than that of this fleet, until it is time to look anew, or for Ctrl-C.
fn wait(array: &ArrayArgs, fleet: &ShowResponse, interrupted: &AtomicBool) -> Result<(), CliError> {
    let patience = if is_restless(fleet) { LOOK } else { REST };
    let steps = patience.as_millis() / STEP.as_millis();
    let request = WatchMapRequest { after_epoch: fleet.epoch };
    call(array, |channel| async move {
        let mut maps = FleetClient::new(channel).watch_map(request).await?.into_inner();
        for _ in 0..steps {
            if interrupted.load(Ordering::Acquire) {
                break;
            }
            match tokio::time::timeout(STEP, maps.message()).await {
                Ok(Ok(Some(_))) => break,
                Ok(Ok(None)) => tokio::time::sleep(STEP).await,
                Ok(Err(status)) => return Err(status),
                Err(_) => {}
            }
        }
        Ok(())
    })
}

/// Looks until Ctrl-C. A daemon that is away is waited for.
fn watch(array: &ArrayArgs, interrupted: &AtomicBool) -> Result<u8, CliError> {
    let redraws = !array.json && std::io::stdout().is_terminal();
    let mut fleet = ask(array)?;
    let (mut last, mut trouble) = (Value::Null, String::new());
    // A reader that has gone ends the command, too.
    while !interrupted.load(Ordering::Acquire) && out::failure().is_none() {
        let all: Vec<&FleetSsd> = fleet.ssds.iter().collect();
        let now = to_json(&fleet, &all);
        if redraws {
            gnstor_console::out!("{CLEAR}");
            print(&fleet, &all);
        } else if differs(&last, &now) {
            if array.json { outln!("{now}") } else { print(&fleet, &all) }
        }
        last = now;
        match wait(array, &fleet, interrupted).and_then(|()| ask(array)) {
            Ok(new) => {
                fleet = new;
                trouble.clear();
            }
            Err(error) => {
                std::thread::sleep(LOOK);
                let error = error.to_string();
                if error != trouble {
                    eprintln!("gnstor: {error}");
                }
                trouble = error;
            }
        }
    }
    Ok(health(&fleet).exit_code())
}

/// More than the time has changed.
fn differs(before: &Value, now: &Value) -> bool {
    let timeless = |value: &Value| {
        let mut value = value.clone();
        for ssd in value["ssds"].as_array_mut().into_iter().flatten() {
            ssd["down_ms"] = Value::Null;
        }
        value
    };
    timeless(before) != timeless(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn time_that_goes_by_is_no_change_and_an_epoch_is_one() {
        let _deadline = deadline();
        let fleet = |epoch, down_ms| json!({ "epoch": epoch, "ssds": [{ "down_ms": down_ms }] });
        assert!(!differs(&fleet(1, 5), &fleet(1, 900)));
        assert!(differs(&fleet(1, 5), &fleet(2, 5)));
        assert!(differs(&Value::Null, &fleet(1, 5)));
    }
}
