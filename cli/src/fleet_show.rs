// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of `gnstor fleet show`, and the health of the array.

mod chosen;

pub(crate) use chosen::chosen;
use gnstor_console::{human_bytes, outln, printable};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::grpc::{FleetSsd, MapChange, ShowResponse, SsdFill, SsdState};
use serde_json::{Value, json};

/// Health of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    /// Each group has all its copies.
    Healthy,
    /// Some groups have fewer; the sentence says which, and what to do.
    Degraded(String),
    /// Some blocks cannot be read or written.
    Unavailable(String),
}

impl Health {
    /// 0, 2 or 3.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Healthy => 0,
            Self::Degraded(_) => 2,
            Self::Unavailable(_) => 3,
        }
    }

    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded(_) => "degraded",
            Self::Unavailable(_) => "unavailable",
        }
    }

    /// The fault, and what to do.
    pub(crate) fn why(&self) -> Option<&str> {
        match self {
            Self::Healthy => None,
            Self::Degraded(why) | Self::Unavailable(why) => Some(why),
        }
    }
}

/// The map changes by itself: SSDs vote on it.
fn changes_itself(fleet: &ShowResponse) -> bool {
    !fleet.voters.is_empty()
}

fn list(ssds: impl Iterator<Item = u32>) -> String {
    ssds.map(|ssd| ssd.to_string()).collect::<Vec<_>>().join(", ")
}

/// `65536` as `65,536`.
fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn is_member(ssd: &FleetSsd) -> bool {
    matches!(ssd.state(), SsdState::In | SsdState::Full | SsdState::Absent)
}

/// The health of the array.
pub(crate) fn health(fleet: &ShowResponse) -> Health {
    let all = grouped(fleet.groups);
    let gone = || fleet.ssds.iter().filter(|ssd| is_member(ssd) && !ssd.away.is_empty());
    let is_lost = |ssd: &&FleetSsd| ssd.last_copies > 0;
    let without = fleet.groups_by_copies.first().copied().unwrap_or(0);
    let only: u32 = gone().filter(is_lost).map(|ssd| ssd.last_copies).sum();
    // A group that waits for one SSD may be the last that another one serves.
    let waits = without.saturating_add(only).min(fleet.groups);
    if waits > 0 {
        let absent = fleet.ssds.iter().filter(|ssd| ssd.state() == SsdState::Absent);
        let mut back: Vec<u32> = absent.chain(gone().filter(is_lost)).map(|ssd| ssd.index).collect();
        back.dedup();
        let is_lossy = fleet.ssds.iter().any(|ssd| ssd.is_lossy);
        let remedy = match back.is_empty() {
            _ if is_lossy => "gnstor fleet salvage --dry-run says which copies can be merged".into(),
            true => "their copies are being merged: keep all SSDs running (gnstor fleet salvage)".into(),
            false => {
                format!("bring SSD {} back (start it again, or gnstor fleet resume)", list(back.into_iter()))
            }
        };
        return Health::Unavailable(format!(
            "{} of {all} groups have no copy that serves: their blocks cannot be read or written; {remedy}",
            grouped(waits)
        ));
    }
    if let Some(away) = voters_lost(fleet) {
        return Health::Unavailable(format!(
            "SSD {} of the {} voters do not answer: without a majority the other SSDs soon serve nothing; \
             start them again",
            list(away.into_iter()),
            fleet.voters.len()
        ));
    }
    let wanted = usize::try_from(fleet.replicas).unwrap_or(0);
    let fewer = fleet.groups_by_copies.iter().enumerate().take(wanted).filter(|(_, groups)| **groups > 0);
    let fewer: Vec<String> = fewer
        .map(|(copies, groups)| {
            let copies = if copies == 1 { "one copy".into() } else { format!("{copies} copies") };
            format!("{} of {all} groups have {copies}", grouped(*groups))
        })
        .collect();
    let down = list(gone().map(|ssd| ssd.index));
    if fewer.is_empty() && down.is_empty() {
        let mut witnesses = fleet.ssds.iter().filter(|ssd| ssd.is_witness && ssd.down_ms.is_some());
        return witnesses.next().map_or(Health::Healthy, |witness| {
            Health::Degraded(format!(
                "SSD {} is down, the witness: start it again; without it the loss of another SSD stops the array",
                witness.index
            ))
        });
    }
    let what = if fewer.is_empty() { format!("SSD {down} is down") } else { fewer.join(", ") };
    Health::Degraded(format!("{what}; {}", remedy(fleet, !down.is_empty())))
}

/// The voters that do not answer, if the others are no majority.
fn voters_lost(fleet: &ShowResponse) -> Option<Vec<u32>> {
    let is_away = |voter: &&FleetSsd| fleet.voters.contains(&voter.index) && voter.down_ms.is_some();
    let away: Vec<u32> = fleet.ssds.iter().filter(is_away).map(|ssd| ssd.index).collect();
    (!away.is_empty() && away.len() * 2 >= fleet.voters.len()).then_some(away)
}

fn remedy(fleet: &ShowResponse, is_down: bool) -> String {
    let of =
        |is_so: &dyn Fn(&FleetSsd) -> bool| list(fleet.ssds.iter().filter(|s| is_so(s)).map(|s| s.index));
    let filling = of(&|ssd| ssd.filling > 0);
    if !filling.is_empty() {
        return format!("SSD {filling} fills: keep the others running");
    }
    if !changes_itself(fleet) {
        return "start it again".into();
    }
    let kept_out = of(&|ssd| ssd.taken_out || ssd.flaps);
    if !kept_out.is_empty() {
        return format!("gnstor fleet resume takes SSD {kept_out} back");
    }
    if is_down {
        return "the next map leaves it out in about half a second".into();
    }
    let has_note =
        |ssd: &&FleetSsd| ssd.state() == SsdState::Out && ssd.away.contains("gnstor fleet replace");
    if let Some(ssd) = fleet.ssds.iter().find(has_note) {
        return format!("another SSD is in the place of SSD {}: see its note", ssd.index);
    }
    let out = of(&|ssd| ssd.state() == SsdState::Out && !ssd.is_witness);
    format!("start SSD {out} again: it gets its places back and fills them")
}

fn state(ssd: &FleetSsd) -> &'static str {
    match ssd.state() {
        SsdState::Out if ssd.is_witness && ssd.down_ms.is_none() => "witness",
        SsdState::Out => "out",
        SsdState::Spare if ssd.away.is_empty() => "spare",
        SsdState::Spare => "down",
        SsdState::Absent => "absent",
        _ if !ssd.away.is_empty() => "down",
        _ if ssd.filling > 0 => "filling",
        _ if ssd.leaves => "draining",
        SsdState::Full => "full",
        SsdState::In | SsdState::Unspecified => "in",
    }
}

fn seconds(ms: u64) -> String {
    if ms < 60_000 {
        return format!("{}.{} s", ms / 1_000, ms % 1_000 / 100);
    }
    format!("{} min {} s", ms / 60_000, ms / 1_000 % 60)
}

fn fill(fill: &SsdFill) -> String {
    let bytes = |blocks: u64| human_bytes(blocks.saturating_mul(BLOCK_BYTES.into()));
    format!("{} of {}", bytes(fill.compared_blocks), bytes(fill.blocks))
}

/// The note for an SSD, and what to do.
fn note(fleet: &ShowResponse, ssd: &FleetSsd) -> String {
    let mut notes = Vec::new();
    if !ssd.away.is_empty() {
        let since = ssd.down_ms.map_or("down".into(), |ms| format!("silent for {}", seconds(ms)));
        notes.push(format!("{since}: {}", printable(&ssd.away)));
        if let Some(ms) = ssd.drawn_anew_in_ms {
            notes.push(match ms {
                0 => "other SSDs may take its places now".into(),
                ms => format!("its places are kept for {} more", seconds(ms)),
            });
        }
    }
    if ssd.flaps {
        notes.push(format!("came back three times in ten minutes: gnstor fleet resume {}", ssd.index));
    } else if ssd.taken_out {
        notes.push(format!("taken out: gnstor fleet resume {} takes it back", ssd.index));
        if ssd.votes {
            notes.push("it votes still, as no other SSD can: keep it running".into());
        }
    } else if ssd.is_witness {
        notes.push("votes, and holds no blocks".into());
    } else if ssd.state() == SsdState::Spare && ssd.away.is_empty() {
        notes.push("takes the places of the next SSD that is lost or drained".into());
    } else if ssd.state() == SsdState::Out && ssd.away.is_empty() && changes_itself(fleet) {
        notes.push("back: a later map gives it places".into());
    }
    if ssd.is_lossy {
        let only = "lost writes, and no copy serves of what it has: gnstor fleet salvage --dry-run";
        notes.push(only.into());
    }
    if let Some(fill) = ssd.fill.as_ref().filter(|_| ssd.filling > 0) {
        let percent = (u128::from(fill.compared_blocks) * 100).checked_div(fill.blocks.into()).unwrap_or(0);
        notes.push(match fill.waits_for {
            Some(peer) => format!("{percent} %, waits for SSD {peer}"),
            None => {
                format!("{percent} %, {} copied", human_bytes(fill.pulled_blocks * u64::from(BLOCK_BYTES)))
            }
        });
    }
    if ssd.leaves {
        let takers: Vec<u32> = fleet.ssds.iter().filter(|s| s.filling > 0).map(|s| s.index).collect();
        let how = match (ssd.leave_waits.as_str(), takers.is_empty()) {
            ("", true) => "others take its copies soon".into(),
            ("", false) => format!("SSD {} takes its copies", list(takers.into_iter())),
            (waits, _) => format!("waits: {}", printable(waits)),
        };
        notes.push(format!("being drained: {how}; gnstor fleet resume {} calls it off", ssd.index));
    }
    if !ssd.share_waits.is_empty() {
        notes.push(format!("is to take its share of the blocks, and waits: {}", printable(&ssd.share_waits)));
    }
    if ssd.last_copies > 0 && is_member(ssd) {
        notes.push(format!("has the only copy of {} groups", grouped(ssd.last_copies)));
    }
    notes.join("; ")
}

/// Which SSDs a map took places from, and what it waited for.
fn change_line(change: &MapChange) -> String {
    let deprived = || change.deprived.iter().copied();
    let unheard = list(deprived().filter(|ssd| !change.stopped.contains(ssd)));
    let waited = match unheard.as_str() {
        "" => "stopped in order, so there was no wait".into(),
        ssds => format!("waited {} ms until the lease of SSD {ssds} was over", change.waited_ms),
    };
    format!("last loss: epoch {} took places from SSD {}; {waited}", change.epoch, list(deprived()))
}

/// Prints the fleet, and these SSDs of it.
pub(crate) fn print(fleet: &ShowResponse, ssds: &[&FleetSsd]) {
    let health = health(fleet);
    let id: String = fleet.array_id.iter().take(3).map(|byte| format!("{byte:02x}")).collect();
    let voters = list(fleet.voters.iter().copied());
    let voters = if voters.is_empty() { "none" } else { &voters };
    let head = format!("array {id}   epoch {}   term {}   voters {voters}", fleet.epoch, fleet.term);
    match health.why() {
        None => outln!("{head}   {}", health.word()),
        Some(why) => outln!("{head}   {}: {why}", health.word().to_uppercase()),
    }
    if !changes_itself(fleet) {
        outln!(
            "This array does not change its map by itself: its map of format {} names no voters. An SSD that is \
             lost keeps its places.",
            fleet.map_format
        );
    }
    if fleet.next_epoch > 0 {
        let waits = &fleet.next_waits_for;
        let waits = if waits.is_empty() { String::new() } else { format!(": {}", printable(waits)) };
        outln!("epoch {} is being made{waits}", fleet.next_epoch);
    }
    if let Some(change) = fleet.changes.iter().rfind(|change| !change.deprived.is_empty()) {
        outln!("{}", change_line(change));
    }
    if fleet.fills_paused {
        outln!("fills are paused: no SSD gets copies back until gnstor rebuild resume");
    }
    if fleet.settling_volumes > 0 {
        outln!("{} volumes are being settled: their copies are made the same", fleet.settling_volumes);
    }
    outln!("{:<4} {:<8} {:<10} {:<22} {:>8}  NOTE", "SSD", "STATE", "NODE/RACK", "FILL", "COPIES");
    for ssd in ssds {
        let domain = format!("{}/{}", ssd.node, ssd.rack);
        let fill = ssd.fill.as_ref().filter(|_| ssd.filling > 0).map_or("-".into(), fill);
        let (copies, note) = (grouped(ssd.serving), note(fleet, ssd));
        let line = format!("{:<4} {:<8} {domain:<10} {fill:<22} {copies:>8}  {note}", ssd.index, state(ssd));
        outln!("{}", line.trim_end());
    }
}

/// The fleet for programs, with these SSDs of it.
pub(crate) fn to_json(fleet: &ShowResponse, ssds: &[&FleetSsd]) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let health = health(fleet);
    let ssd = |ssd: &FleetSsd| {
        let fill = ssd.fill.as_ref().map(|fill| {
            json!({ "compared_bytes": fill.compared_blocks * u64::from(BLOCK_BYTES),
                    "bytes": fill.blocks * u64::from(BLOCK_BYTES),
                    "copied_bytes": fill.pulled_blocks * u64::from(BLOCK_BYTES),
                    "filled": fill.is_filled, "waits_for": fill.waits_for })
        });
        json!({ "index": ssd.index, "uuid": hex(&ssd.uuid), "address": ssd.address, "node": ssd.node,
                "rack": ssd.rack, "state": state(ssd), "votes": ssd.votes, "incarnation": ssd.incarnation,
                "shrunk_at": ssd.shrunk_at, "why": (!ssd.away.is_empty()).then_some(&ssd.away),
                "down_ms": ssd.down_ms, "drawn_anew_in_ms": ssd.drawn_anew_in_ms, "flaps": ssd.flaps, "taken_out": ssd.taken_out,
                "witness": ssd.is_witness,
                "serving_groups": ssd.serving, "filling_groups": ssd.filling,
                "last_copies": ssd.last_copies, "fill": fill, "leaves": ssd.leaves,
                "lossy": ssd.is_lossy,
                "share_waits": (!ssd.share_waits.is_empty()).then_some(&ssd.share_waits),
                "leave_waits": (!ssd.leave_waits.is_empty()).then_some(&ssd.leave_waits) })
    };
    let change = |change: &MapChange| {
        json!({ "epoch": change.epoch, "deprived": change.deprived, "stopped_in_order": change.stopped,
                "waited_ms": change.waited_ms })
    };
    json!({
        "array": hex(&fleet.array_id), "state": health.word(), "why": health.why(),
        "map_format": fleet.map_format, "changes_itself": changes_itself(fleet), "epoch": fleet.epoch,
        "term": fleet.term, "voters": fleet.voters, "groups": fleet.groups, "replicas": fleet.replicas,
        "groups_by_copies": fleet.groups_by_copies,
        "next_epoch": (fleet.next_epoch > 0).then_some(fleet.next_epoch),
        "next_waits_for": (!fleet.next_waits_for.is_empty()).then_some(&fleet.next_waits_for),
        "settling_volumes": fleet.settling_volumes, "fills_paused": fleet.fills_paused,
        "changes": fleet.changes.iter().map(change).collect::<Vec<_>>(),
        "ssds": ssds.iter().copied().map(ssd).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
