// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor status` and `gnstor df`: a running array on one screen.

use crate::args::ArrayArgs;
use crate::fleet::{Fleet, Ssd, taken_bytes};
use crate::fleet_ops;
use crate::fleet_show::{Health, health};
use crate::key::MAY_ALL;
use gnstor_console::{CliError, human_bytes, outln, print_json, printable};
use gnstor_proto::placement::{AnyMap, Rows};
use libgnstor::VolumeInfo;
use serde::Serialize;
use serde_json::json;

/// A problem of an array, and what an operator can do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Problem {
    pub(crate) what: String,
    pub(crate) action: String,
}

/// The state that an operator hears of when it changes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub(crate) struct Condition {
    pub(crate) problems: Vec<Problem>,
    /// Some blocks wait for an SSD.
    #[serde(skip)]
    is_unavailable: bool,
    /// Volumes whose copies may differ and are being made equal.
    pub(crate) settling: Vec<String>,
}

impl Condition {
    /// The state of an array with this information.
    pub(crate) fn of(fleet: &Fleet) -> Self {
        let settling = if changes_itself(fleet) { unsettled(fleet).collect() } else { Vec::new() };
        let settling = settling.into_iter().map(|v| v.name.clone()).collect();
        let is_unavailable = fleet.ssds.iter().any(|ssd| ssd.is_absent);
        Self { problems: problems(fleet), is_unavailable, settling }
    }

    /// Adds what the fleet's numbers of copies say: `gnstor fleet show` and `gnstor status` agree.
    fn with(mut self, health: &Health) -> Self {
        let is_new = match health {
            Health::Healthy => false,
            Health::Degraded(_) => self.problems.is_empty(),
            Health::Unavailable(_) => !self.is_unavailable,
        };
        self.is_unavailable |= matches!(health, Health::Unavailable(_));
        if let Some(why) = health.why().filter(|_| is_new) {
            let (what, action) = why.rsplit_once("; ").unwrap_or((why, "gnstor fleet show says more"));
            self.problems.insert(0, Problem { what: what.into(), action: action.into() });
        }
        self
    }

    /// 0 online, 2 degraded, 3 unavailable.
    fn exit_code(&self) -> u8 {
        match self.state() {
            "online" => 0,
            "unavailable" => 3,
            _ => 2,
        }
    }

    /// A word for a person and for scripts.
    pub(crate) fn state(&self) -> &'static str {
        match self.problems.is_empty() {
            true => "online",
            false if self.is_unavailable => "unavailable",
            false => "degraded",
        }
    }
}

/// Shows the state of an array; the exit code, which is that of `gnstor fleet show`.
///
/// # Errors
/// [`CliError`]: the daemon cannot be reached or does not answer.
pub fn status(args: &ArrayArgs) -> Result<u8, CliError> {
    let (mut fleet, shown) = (Fleet::ask(args)?, fleet_ops::ask(args)?);
    fleet.why_away(&shown.ssds);
    let condition = Condition::of(&fleet).with(&health(&shown));
    show(args, &fleet, &condition);
    Ok(condition.exit_code())
}

fn show(args: &ArrayArgs, fleet: &Fleet, condition: &Condition) {
    let (state, problems) = (condition.state(), &condition.problems);
    if args.json {
        let ssd = |s: &Ssd| {
            json!({ "index": s.info.index, "state": s.state(), "why": s.down,
                    "serves_reads": !s.serves_nothing(), "capacity_bytes": s.info.capacity_bytes,
                    "model": s.info.model, "address": s.info.address, "filling_places": s.filling })
        };
        let volume = |v: &VolumeInfo| {
            let left = fleet.copies_left(v.replicas);
            json!({ "name": v.name, "replicas": v.replicas, "copies_left": left, "redundant": left > 1,
                    "replicas_may_differ": fleet.may_differ(v) })
        };
        print_json(&json!({
            "array": args.array, "state": state, "map_epoch": fleet.map.epoch(),
            "authentication": !fleet.no_auth,
            "ssds": fleet.ssds.iter().map(ssd).collect::<Vec<_>>(),
            "volumes": fleet.volumes.iter().map(volume).collect::<Vec<_>>(),
            "capacity_bytes": fleet.capacity_bytes(), "taken_bytes": fleet.taken_bytes(),
            "problems": problems,
        }));
        return;
    }
    outln!("array       {} (fleet map epoch {})", args.array, fleet.map.epoch());
    outln!("state       {state}");
    for Problem { what, action } in problems {
        outln!("problem     {what}");
        outln!("action      {action}");
    }
    if fleet.no_auth {
        outln!("no-auth     each host that reaches an SSD may {MAY_ALL}");
    }
    print_ssds(&fleet.ssds);
    outln!();
    outln!("volumes     {}", volumes_line(&fleet.volumes));
    if let Some(line) = degraded_line(fleet) {
        outln!("degraded    {line}");
    }
    if !condition.settling.is_empty() {
        outln!("settling    {}", settling_line(&condition.settling));
    }
    let (taken, capacity) = (fleet.taken_bytes(), fleet.capacity_bytes());
    outln!("capacity    {} of {} taken", human_bytes(taken), human_bytes(capacity));
    outln!(
        "errors      {}",
        if problems.is_empty() { "no known problems" } else { "see the problems above" }
    );
}

fn print_ssds(ssds: &[Ssd]) {
    outln!();
    outln!("{:>4}  {:<8} {:>10}  {:<22} MODEL", "SSD", "STATE", "SIZE", "ADDRESS");
    for ssd in ssds {
        let (state, size) = (ssd.state(), human_bytes(ssd.info.capacity_bytes));
        let address = if ssd.info.address.is_empty() { "in the daemon" } else { &ssd.info.address };
        outln!(
            "{:>4}  {state:<8} {size:>10}  {:<22} {}",
            ssd.info.index,
            printable(address),
            printable(ssd.info.model.trim())
        );
    }
}

/// The redundancy that the volumes have lost.
fn degraded_line(fleet: &Fleet) -> Option<String> {
    let left = fleet.volumes.iter().map(|v| (fleet.copies_left(v.replicas), v.replicas));
    let (mut none, mut fewer) = (0, 0);
    for (left, replicas) in left {
        none += u32::from(left == 0);
        fewer += u32::from(left > 0 && left < replicas);
    }
    let volumes = |count| if count == 1 { "1 volume has".into() } else { format!("{count} volumes have") };
    let without = (none > 0).then(|| format!("{} blocks without a copy that is served", volumes(none)));
    let with_fewer =
        (fewer > 0).then(|| format!("{} blocks with fewer copies than replicas", volumes(fewer)));
    let lines: Vec<String> = without.into_iter().chain(with_fewer).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

fn volumes_line(volumes: &[VolumeInfo]) -> String {
    let single: Vec<&str> = volumes.iter().filter(|v| v.replicas < 2).map(|v| v.name.as_str()).collect();
    let shown = single.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = if single.len() > 5 { ", ..." } else { "" };
    match (volumes.len(), single.len()) {
        (0, _) => "none".into(),
        (all, 0) => format!("{all}, each made with two or more replicas"),
        (all, some) => {
            format!("{all}; {some} with a single copy, which a failed SSD would lose: {shown}{more}")
        }
    }
}

pub(crate) fn settling_line(volumes: &[String]) -> String {
    let noun = if volumes.len() == 1 { "volume" } else { "volumes" };
    format!("{} {noun}: copies may differ, and are made the same", volumes.len())
}

/// Whether SSDs vote on the map. Then it changes, and copies are made equal, without an operator.
fn changes_itself(fleet: &Fleet) -> bool {
    matches!(fleet.map, AnyMap::Three(_))
}

/// Problems by SSD, the worst of each first.
fn problems(fleet: &Fleet) -> Vec<Problem> {
    let of_ssds = fleet.ssds.iter().flat_map(|ssd| problems_of(fleet, ssd));
    of_ssds.chain(differing(fleet)).collect()
}

/// Copies that stay different. If SSDs vote, they make them equal by themselves.
fn differing(fleet: &Fleet) -> Option<Problem> {
    let names: Vec<String> = unsettled(fleet).map(|v| printable(&v.name)).collect();
    (!names.is_empty() && !changes_itself(fleet)).then(|| Problem {
        what: format!("copies of {} may differ: a write there failed", names.join(", ")),
        action:
            "write again what failed, or copy the volume into a new one (gnstor cp): this array does not \
                 make copies the same by itself"
                .into(),
    })
}

/// The volumes of which a write is not known to be on all copies.
fn unsettled(fleet: &Fleet) -> impl Iterator<Item = &VolumeInfo> {
    fleet.volumes.iter().filter(|v| v.unsettled && v.replicas > 1)
}

fn problems_of(fleet: &Fleet, ssd: &Ssd) -> Vec<Problem> {
    let index = ssd.info.index;
    // One that is out is missed only where copies are.
    let is_missed = !ssd.is_out || !fleet.has_all_places();
    let down = ssd.down.as_deref().filter(|_| is_missed).map(|why| is_down(fleet, ssd, why));
    let absent = ssd.is_absent.then(|| Problem {
        what: format!(
            "SSD {index} is absent: it has the last copy of some blocks, which can be neither read nor \
             written"
        ),
        // As it is, it may lack what other copies have.
        action: match ssd.is_lossy {
            true => "gnstor fleet salvage --dry-run says what can be merged with the other copies".into(),
            false => format!(
                "start it again if it is down, or gnstor fleet resume {index}; gnstor fleet show says more"
            ),
        },
    });
    let lossy = (ssd.is_lossy && ssd.down.is_none() && !ssd.is_absent).then(|| Problem {
        what: format!("SSD {index} lost acknowledged writes: it takes writes and serves no reads at all"),
        action: if changes_itself(fleet) {
            "keep the other SSDs running: they fill it again by themselves (gnstor fleet show)".into()
        } else {
            "keep the other SSDs running, and copy the volumes into a new array (gnstor cp): this array \
             fills no SSD again; blocks whose copies are all on such SSDs cannot be read"
                .into()
        },
    });
    let damaged = ssd.is_damaged.then(|| Problem {
        what: format!(
            "SSD {index} could not read all of its permission metadata when it started: its file or \
             disk is damaged, and volumes or changes of them may be missing there"
        ),
        action: "keep the other SSDs running, and copy the volumes into a new array (gnstor cp)".into(),
    });
    let filling = (ssd.filling > 0).then(|| Problem {
        what: format!("SSD {index} takes writes but serves no reads yet in {} placement groups", ssd.filling),
        action: "keep the other SSDs running: they serve these reads".into(),
    });
    let out = (ssd.is_out && ssd.down.is_none() && is_missed).then(|| Problem {
        what: format!("SSD {index} is out of the fleet map: it holds no block"),
        action: "gnstor fleet show says how many copies are left, and what to do; where the map does not \
                 change by itself, copy the volumes into a new array (gnstor cp)"
            .into(),
    });
    [absent, down, lossy, damaged, filling, out].into_iter().flatten().collect()
}

fn is_down(fleet: &Fleet, ssd: &Ssd, why: &str) -> Problem {
    let (index, address) = (ssd.info.index, &ssd.info.address);
    // SSDs of one process share its address.
    let is_shared = fleet.ssds.iter().filter(|other| other.info.address == *address).count() > 1;
    Problem {
        what: format!(
            "SSD {index} is down: {}; {}",
            printable(why),
            if ssd.is_witness {
                "it is the witness, without which the loss of one more SSD stops all changes"
            } else if changes_itself(fleet) {
                "the others serve its blocks, where they have copies"
            } else {
                "changes of volumes are refused, and so are writes of blocks that have a copy there"
            }
        ),
        action: if address.is_empty() || is_shared {
            "put its file right, then start gnstor up again; its output and log (--log info) say more".into()
        } else {
            format!(
                "start it again: gnstor ssd --data FILE --index {index} --listen {} {}",
                printable(address),
                if fleet.no_auth { "--no-auth" } else { "--manager-key FILE" }
            )
        },
    }
}

/// Shows how much of an array is taken.
///
/// # Errors
/// As [`status`].
pub fn df(args: &ArrayArgs) -> Result<(), CliError> {
    let fleet = Fleet::ask(args)?;
    let (capacity, taken) = (fleet.capacity_bytes(), fleet.taken_bytes());
    let free = capacity.saturating_sub(taken);
    if args.json {
        let volume = |v: &VolumeInfo| {
            json!({ "name": v.name, "capacity_bytes": v.capacity_bytes, "replicas": v.replicas,
                    "taken_bytes": taken_bytes(v) })
        };
        print_json(&json!({
            "array": args.array, "capacity_bytes": capacity, "taken_bytes": taken, "free_bytes": free,
            "largest_volume_bytes": fleet.largest,
            "not_counted": fleet.not_counted().map(|ssd| ssd.info.index).collect::<Vec<_>>(),
            "volumes": fleet.volumes.iter().map(volume).collect::<Vec<_>>(),
        }));
        return Ok(());
    }
    outln!("{:<24} {:>10} {:>8} {:>10} {:>6}", "NAME", "SIZE", "REPLICAS", "TAKEN", "USE%");
    for v in &fleet.volumes {
        let (size, taken) = (human_bytes(v.capacity_bytes), taken_bytes(v));
        let percent = percent(taken, capacity);
        outln!("{:<24} {size:>10} {:>8} {:>10} {percent:>6}", v.name, v.replicas, human_bytes(taken));
    }
    let whole = human_bytes(capacity);
    outln!(
        "{:<24} {whole:>10} {:>8} {:>10} {:>6}",
        "(array)",
        "",
        human_bytes(taken),
        percent(taken, capacity)
    );
    outln!();
    outln!("free        {}", human_bytes(free));
    outln!("largest     new volume: {}", largest_line(&fleet.largest));
    if let Some(line) = not_counted_line(&fleet) {
        outln!("not counted {line}");
    }
    Ok(())
}

/// The SSDs that are not part of the capacity, and why.
fn not_counted_line(fleet: &Fleet) -> Option<String> {
    let of = |ssd: &Ssd| format!("SSD {} ({})", ssd.info.index, ssd.state());
    let ssds: Vec<String> = fleet.not_counted().map(of).collect();
    (!ssds.is_empty()).then(|| ssds.join(", "))
}

/// The largest new volume with one replica, two, and so on. Sizes of a MiB and more are rounded down to MiB,
/// so that a volume of the printed size fits. The JSON has the bytes.
fn largest_line(largest: &[u64]) -> String {
    const MIB: u64 = 1 << 20;
    let size = |bytes: u64| human_bytes(if bytes < MIB { bytes } else { bytes / MIB * MIB });
    let of = |(copies, &bytes): (u32, &u64)| match copies {
        1 => format!("{} with 1 replica", size(bytes)),
        _ => format!("{} with {copies}", size(bytes)),
    };
    let sizes: Vec<String> = (1..).zip(largest).map(of).collect();
    if sizes.is_empty() { "none".into() } else { sizes.join(", ") }
}

fn percent(part: u64, whole: u64) -> String {
    let percent = (u128::from(part) * 100).checked_div(whole.into()).unwrap_or(0);
    format!("{percent} %")
}

#[cfg(test)]
mod tests;
