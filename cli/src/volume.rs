// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor volume`: management calls to a running array. No device is needed.

use crate::args::{ArrayArgs, DeleteArgs, ListArgs, RightArg, SortKey, VolumeArgs, VolumeCommand};
use crate::fleet::{self, Fleet, Ssd};
use crate::lease;
use crate::limits;
use gnstor_console::{CliError, human_bytes, outln, print_json, printable};
use gnstor_daemon::core::rights::OWNER_PREFIX;
use gnstor_proto::placement::AnyMap;
use libgnstor::labels::PARTIAL;
use libgnstor::{CreateOptions, Right, VolumeInfo};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Runs a volume command.
///
/// # Errors
/// [`CliError`] with the daemon's sentence.
pub fn run(args: &VolumeArgs) -> Result<(), CliError> {
    match &args.command {
        VolumeCommand::Create { name, size, replicas, chunk, labels, max_iops, max_bandwidth, array } => {
            let options = CreateOptions {
                capacity_bytes: *size,
                replicas: replicas.unwrap_or(0),
                chunk_bytes: chunk.unwrap_or(0),
                labels: parse_labels(labels, "--label")?,
                max_iops: max_iops.unwrap_or(0),
                max_bytes_per_s: max_bandwidth.unwrap_or(0),
            };
            limits::new_volume(name, &options)?;
            let volume = array.manager()?.create(name, &options)?;
            if array.json { print_json(&to_json(&volume)) } else { print(&volume) }
        }
        VolumeCommand::List(args) => list(args)?,
        VolumeCommand::Show { name, array } => {
            limits::volume_name(name)?;
            let volume = array.manager()?.get(name)?;
            if array.json { print_json(&to_json(&volume)) } else { print(&volume) }
        }
        VolumeCommand::Share { name, principal, right, array } => {
            limits::volume_name(name)?;
            limits::new_principal(principal)?;
            let right = match right {
                RightArg::Read => Right::Read,
                RightArg::Write => Right::Write,
                RightArg::Admin => Right::Admin,
            };
            let volume = array.manager()?.share(name, principal, right)?;
            if !array.is_proven() {
                eprintln!(
                    "gnstor: this daemon asks no caller for a name, so {principal} gets the right when it does \
                     (gnstor up --tokens or --client-ca)"
                );
            }
            if array.json { print_json(&to_json(&volume)) } else { print(&volume) }
        }
        VolumeCommand::Revoke { name, principal, array } => {
            limits::volume_name(name)?;
            limits::principal(principal)?;
            let manager = array.manager()?;
            let had = has_right(&manager.get(name)?, principal);
            let volume = manager.revoke(name, principal)?;
            match array.json {
                true => print_json(&to_json(&volume)),
                false if had => print(&volume),
                false => outln!("{principal} had no right to volume {name}: nothing to do"),
            }
        }
        VolumeCommand::Rename { name, new_name, array } => rename(array, name, new_name)?,
        VolumeCommand::Label { name, labels, remove, array } => label(array, name, labels, remove)?,
        VolumeCommand::Resize { name, size, array } => {
            limits::volume_name(name)?;
            let volume = array.manager()?.resize(name, *size)?;
            if array.json { print_json(&to_json(&volume)) } else { print(&volume) }
        }
        VolumeCommand::Delete(args) => delete(args)?,
    }
    Ok(())
}

fn rename(array: &ArrayArgs, name: &str, new_name: &str) -> Result<(), CliError> {
    limits::volume_name(name)?;
    limits::volume_name(new_name)?;
    let volume = array.manager()?.rename(name, new_name)?;
    if array.json {
        print_json(&to_json(&volume))
    } else {
        outln!("volume {name} is now {new_name}")
    }
    Ok(())
}

fn label(array: &ArrayArgs, name: &str, labels: &[String], remove: &[String]) -> Result<(), CliError> {
    limits::volume_name(name)?;
    let set = parse_labels(labels, "label")?;
    limits::labels(name, &set, remove)?;
    let volume = array.manager()?.label(name, set, remove.to_vec())?;
    if array.json {
        print_json(&to_json(&volume))
    } else {
        print(&volume)
    }
    Ok(())
}

/// Lists volumes.
///
/// # Errors
/// [`CliError`] with the daemon's sentence.
pub fn list(args: &ListArgs) -> Result<(), CliError> {
    let array = &args.array;
    let all = array.manager()?.list()?;
    let is_empty = all.is_empty();
    let volumes = selected(all, args);
    let fleet = fleet::known(array);
    let ssds = fleet.as_ref().map_or(&[][..], |fleet| &fleet.ssds);
    if array.json {
        let of = |is_so: &dyn Fn(&Ssd) -> bool| {
            json!(ssds.iter().filter(|ssd| is_so(ssd)).map(|ssd| ssd.info.index).collect::<Vec<_>>())
        };
        let with_ssds = |v: &VolumeInfo| {
            let mut value = to_json(v);
            value["ssds_down"] = of(&|ssd| ssd.down.is_some());
            value["ssds_lossy"] = of(&|ssd| ssd.is_lossy);
            value["ssds_degraded"] = of(&|ssd| ssd.is_damaged);
            value["ssds_filling"] = of(&|ssd| ssd.filling > 0);
            let left = fleet.as_ref().map_or(v.replicas, |fleet| fleet.copies_left(v.replicas));
            value["copies_left"] = json!(left);
            value["redundant"] = json!(left > 1);
            value["replicas_may_differ"] = json!(fleet.as_ref().is_some_and(|fleet| fleet.may_differ(v)));
            value
        };
        print_json(&volumes.iter().map(with_ssds).collect::<Vec<_>>());
    } else if is_empty {
        outln!("no volumes; make one with: gnstor volume create NAME --size SIZE");
    } else if volumes.is_empty() {
        outln!("no volume matches the filters");
    } else {
        print_table(&volumes, fleet.as_ref());
    }
    // On standard error, so that a script that reads the list sees volumes only.
    ssds.iter().filter_map(complaint).for_each(|line| eprintln!("gnstor: {line}"));
    Ok(())
}

/// An SSD's problem for the volumes, in words; `gnstor status` says what to do.
fn complaint(ssd: &Ssd) -> Option<String> {
    let index = ssd.info.index;
    match (ssd.state(), &ssd.down) {
        ("down", why) => {
            let why = printable(why.as_deref().unwrap_or_default());
            Some(format!("SSD {index} is down ({why}): changes are refused until it is back"))
        }
        ("lossy", _) => Some(format!("SSD {index} lost acknowledged writes and serves no reads")),
        ("degraded", _) => Some(format!("SSD {index} could not read all of its permission metadata")),
        ("filling", _) => Some(format!("SSD {index} takes writes and serves some reads not yet")),
        ("out", _) => Some(format!("SSD {index} is out of the fleet map: it holds no block")),
        _ => None,
    }
}

/// The volumes that match all filters, sorted. Equal ones stay in the order of their ids.
fn selected(mut volumes: Vec<VolumeInfo>, args: &ListArgs) -> Vec<VolumeInfo> {
    volumes.retain(|volume| args.filters.iter().all(|filter| filter.matches(volume)));
    match args.sort {
        SortKey::Name => volumes.sort_by(|a, b| a.name.cmp(&b.name)),
        SortKey::Vid => volumes.sort_by_key(|v| v.vid),
        SortKey::Size => volumes.sort_by_key(|v| v.capacity_bytes),
        SortKey::Replicas => volumes.sort_by_key(|v| v.replicas),
    }
    if args.reverse {
        volumes.reverse();
    }
    volumes
}

fn print_table(volumes: &[VolumeInfo], fleet: Option<&Fleet>) {
    outln!("{:<24} {:>6} {:>10} {:>8} {:>8} {:>7}", "NAME", "VID", "SIZE", "REPLICAS", "READERS", "WRITER");
    for v in volumes {
        let readers = if v.any_reader { "any".into() } else { v.readers.len().to_string() };
        let writer = v.writer.map_or("-".into(), |w| w.to_string());
        let size = human_bytes(v.capacity_bytes);
        let row =
            format!("{:<24} {:>6} {size:>10} {:>8} {readers:>8} {writer:>7}", v.name, v.vid, v.replicas);
        match v.labels.get(PARTIAL) {
            Some(whole) => outln!("{row}  partial: a copy into {} that is not whole", printable(whole)),
            None => outln!("{row}{}", fleet.map(|fleet| lost_redundancy(v, fleet)).unwrap_or_default()),
        }
    }
}

/// The redundancy that a volume has lost, in words.
fn lost_redundancy(volume: &VolumeInfo, fleet: &Fleet) -> String {
    match fleet.copies_left(volume.replicas) {
        0 => "  degraded: some blocks have no copy that is served".into(),
        left if left < volume.replicas => {
            format!("  degraded: some blocks have {left} of {} copies", volume.replicas)
        }
        _ if !fleet.may_differ(volume) => String::new(),
        _ if matches!(fleet.map, AnyMap::Three(_)) => "  settling: its copies are being made the same".into(),
        _ => "  copies may differ: a write failed".into(),
    }
}

/// Deletes volumes one after the other. A failure does not prevent the others.
///
/// # Errors
/// The last failure; standard error has the others.
pub fn delete(args: &DeleteArgs) -> Result<(), CliError> {
    args.names.iter().try_for_each(|name| limits::volume_name(name))?;
    let manager = args.array.manager()?;
    let mut failed: Option<CliError> = None;
    let mut ends = Vec::new();
    // A name that stands there twice is one volume.
    let mut seen = BTreeSet::new();
    for name in args.names.iter().filter(|name| seen.insert(*name)) {
        match manager.delete_ending(name, args.force) {
            Ok(ended) => {
                ends.push(json!({
                    "deleted": name, "ended": ended.iter().map(lease::to_json).collect::<Vec<_>>()
                }));
                if !args.array.json {
                    outln!("deleted {name}");
                    // On standard error, so that a script reads the names of volumes only.
                    ended.iter().for_each(|lease| eprintln!("gnstor: ended: {}", lease::words(lease)));
                }
            }
            Err(error) => {
                ends.push(json!({ "failed": name, "why": error.to_string() }));
                if let Some(earlier) = failed.replace(error.into()) {
                    eprintln!("gnstor: {earlier}");
                }
            }
        }
    }
    match (args.array.json, args.names.len()) {
        (false, _) => {}
        (true, 1) => ends.iter().filter(|_| failed.is_none()).for_each(print_json),
        (true, _) => print_json(&ends),
    }
    failed.map_or(Ok(()), Err)
}

/// Labels of the command line, where they stand behind this word.
fn parse_labels(labels: &[String], word: &str) -> Result<BTreeMap<String, String>, CliError> {
    let split = |label: &String| {
        let wrong = || CliError::Usage(format!("{word} '{label}' is not a label; write it as KEY=VALUE"));
        label.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).ok_or_else(wrong)
    };
    labels.iter().map(split).collect()
}

fn to_json(v: &VolumeInfo) -> Value {
    json!({
        "name": v.name, "vid": v.vid, "generation": v.generation, "capacity_bytes": v.capacity_bytes,
        "replicas": v.replicas,
        "chunk_bytes": v.chunk_bytes, "owner": v.owner, "readers": v.readers, "any_reader": v.any_reader,
        "writer": v.writer, "lease_epoch": v.lease_epoch, "labels": v.labels,
        "max_iops": v.max_iops, "max_bytes_per_s": v.max_bytes_per_s, "unsettled": v.unsettled,
        "salvaged_s": v.salvaged_s,
    })
}

fn print(v: &VolumeInfo) {
    outln!("name        {}", v.name);
    outln!("vid         {} (generation {}: tells the volumes apart that had this VID)", v.vid, v.generation);
    outln!("capacity    {} ({} bytes)", human_bytes(v.capacity_bytes), v.capacity_bytes);
    outln!("replicas    {}", v.replicas);
    outln!("chunk       {}", human_bytes(v.chunk_bytes.into()));
    outln!("readers     {}", readers(v));
    outln!(
        "writer      {}",
        v.writer.map_or("none".into(), |w| format!("client {w} (lease epoch {})", v.lease_epoch))
    );
    if v.unsettled {
        outln!("copies      may differ: a write of the last writer is not known to be on all of them");
    }
    if let Some(at) = v.salvaged_s {
        outln!("salvaged    {at} s after 1970 began: blocks may be older than what was acknowledged before");
    }
    if v.max_iops != 0 {
        outln!("limit       {} commands a second and SSD", v.max_iops);
    }
    if v.max_bytes_per_s != 0 {
        outln!("limit       {} a second and SSD", human_bytes(v.max_bytes_per_s));
    }
    for (key, value) in &v.labels {
        match key.strip_prefix(OWNER_PREFIX) {
            Some("") => outln!("owner       {}", printable(value)),
            Some(right) => value.split(',').for_each(|name| {
                outln!("right       {}: {}", printable(name), printable(right.trim_start_matches('.')));
            }),
            None => outln!("label       {}={}", printable(key), printable(value)),
        }
    }
}

/// The clients that have the volume open to read it.
fn readers(v: &VolumeInfo) -> String {
    match (v.any_reader, &*v.readers) {
        (true, _) => "any client".into(),
        (false, []) => "none".into(),
        (false, [one]) => format!("client {one}"),
        (false, many) => {
            format!("clients {}", many.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Whether the volume is shared with this principal.
fn has_right(v: &VolumeInfo, principal: &str) -> bool {
    let rights =
        v.labels.iter().filter(|(key, _)| key.len() > OWNER_PREFIX.len() && key.starts_with(OWNER_PREFIX));
    rights.flat_map(|(_, names)| names.split(',')).any(|name| name == principal)
}
