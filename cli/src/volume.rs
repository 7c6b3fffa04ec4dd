// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor volume`: management calls to a running array. No device is needed.

use crate::args::{VolumeArgs, VolumeCommand};
use crate::down;
use gnstor_console::{CliError, outln};
use gnstor_console::{human_bytes, print_json};
use libgnstor::{CreateOptions, Manager, VolumeInfo};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Runs a volume command.
///
/// # Errors
/// [`CliError`] with the daemon's sentence.
pub fn run(args: &VolumeArgs) -> Result<(), CliError> {
    match &args.command {
        VolumeCommand::Create { name, size, replicas, chunk, labels, max_iops, max_bandwidth, array } => {
            let chunk_bytes =
                u32::try_from(chunk.unwrap_or(0)).map_err(|_| CliError::Usage("a chunk is at most 16 MiB".into()))?;
            let options = CreateOptions {
                capacity_bytes: *size,
                replicas: *replicas,
                chunk_bytes,
                labels: parse_labels(labels)?,
                max_iops: max_iops.unwrap_or(0),
                max_bytes_per_s: max_bandwidth.unwrap_or(0),
            };
            let volume = Manager::connect(&array.array, "gnstor volume")?.create(name, &options)?;
            if array.json { print_json(&to_json(&volume)) } else { print(&volume) }
        }
        VolumeCommand::List { array } => {
            let volumes = Manager::connect(&array.array, "gnstor volume")?.list()?;
            let down = down::ssds(&array.array);
            if array.json {
                let numbers: Vec<u16> = down.iter().map(|ssd| ssd.index).collect();
                let with_down = |v: &VolumeInfo| {
                    let mut value = to_json(v);
                    value["ssds_down"] = json!(numbers);
                    value
                };
                print_json(&volumes.iter().map(with_down).collect::<Vec<_>>());
            } else if volumes.is_empty() {
                outln!("no volumes; make one with: gnstor volume create NAME --size SIZE");
            } else {
                outln!("{:<24} {:>6} {:>10} {:>8} {:>8} {:>7}", "NAME", "VID", "SIZE", "REPLICAS", "READERS", "WRITER");
                for v in &volumes {
                    let readers = if v.any_reader { "any".into() } else { v.readers.len().to_string() };
                    let writer = v.writer.map_or("-".into(), |w| w.to_string());
                    let size = human_bytes(v.capacity_bytes);
                    outln!("{:<24} {:>6} {size:>10} {:>8} {readers:>8} {writer:>7}", v.name, v.vid, v.replicas);
                }
            }
            // Beside the list, so that a script that reads it sees volumes only.
            for ssd in &down {
                eprintln!("gnstor: SSD {} is down ({}): changes are refused until it is back", ssd.index, ssd.why);
            }
        }
        VolumeCommand::Show { name, array } => {
            let volume = Manager::connect(&array.array, "gnstor volume")?.get(name)?;
            if array.json { print_json(&to_json(&volume)) } else { print(&volume) }
        }
        VolumeCommand::Delete { name, array } => {
            Manager::connect(&array.array, "gnstor volume")?.delete(name)?;
            if array.json { print_json(&json!({ "deleted": name })) } else { outln!("deleted {name}") }
        }
    }
    Ok(())
}

fn parse_labels(labels: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let split = |label: &String| {
        let wrong = || CliError::Usage(format!("'{label}' is not a label; write it as KEY=VALUE"));
        label.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).ok_or_else(wrong)
    };
    labels.iter().map(split).collect()
}

fn to_json(v: &VolumeInfo) -> Value {
    json!({
        "name": v.name, "vid": v.vid, "generation": v.generation, "capacity_bytes": v.capacity_bytes, "replicas": v.replicas,
        "chunk_bytes": v.chunk_bytes, "owner": v.owner, "readers": v.readers, "any_reader": v.any_reader,
        "writer": v.writer, "lease_epoch": v.lease_epoch, "labels": v.labels,
        "max_iops": v.max_iops, "max_bytes_per_s": v.max_bytes_per_s,
    })
}

fn print(v: &VolumeInfo) {
    outln!("name        {}", v.name);
    outln!("vid         {} (generation {})", v.vid, v.generation);
    outln!("capacity    {} ({} bytes)", human_bytes(v.capacity_bytes), v.capacity_bytes);
    outln!("replicas    {}", v.replicas);
    outln!("chunk       {}", human_bytes(v.chunk_bytes.into()));
    outln!("readers     {}", if v.any_reader { "any".into() } else { format!("{:?}", v.readers) });
    outln!(
        "writer      {}",
        v.writer.map_or("nobody".into(), |w| format!("client {w} (lease epoch {})", v.lease_epoch))
    );
    if v.max_iops != 0 {
        outln!("limit       {} commands a second and SSD", v.max_iops);
    }
    if v.max_bytes_per_s != 0 {
        outln!("limit       {} a second and SSD", human_bytes(v.max_bytes_per_s));
    }
    for (key, value) in &v.labels {
        outln!("label       {key}={value}");
    }
}
