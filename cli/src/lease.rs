// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor lease`: what clients have open, and how it is ended.

use crate::args::{LeaseArgs, LeaseCommand, LeaseSortKey};
use crate::limits;
use gnstor_console::{CliError, outln, print_json, printable};
use libgnstor::{LeaseInfo, Rights};
use serde_json::{Value, json};
use std::time::Duration;

/// Runs a lease command.
///
/// # Errors
/// [`CliError`] with the daemon's sentence.
pub fn run(args: &LeaseArgs) -> Result<(), CliError> {
    match &args.command {
        LeaseCommand::List { volume, sort, reverse, filters, array } => {
            volume.iter().try_for_each(|name| limits::volume_name(name))?;
            let mut leases = array.manager()?.leases(volume.as_deref())?;
            let is_any = !leases.is_empty();
            leases.retain(|lease| filters.iter().all(|filter| filter.matches(lease)));
            order(&mut leases, *sort);
            if *reverse {
                leases.reverse();
            }
            if array.json {
                print_json(&leases.iter().map(to_json).collect::<Vec<_>>());
            } else if leases.is_empty() && is_any {
                outln!("no lease matches the filters");
            } else if leases.is_empty() {
                outln!("no client has {} open", volume.as_deref().unwrap_or("a volume"));
            } else {
                print_table(&leases);
            }
        }
        LeaseCommand::Revoke { volume, client, array } => {
            limits::volume_name(volume)?;
            let ended = array.manager()?.revoke_lease(volume, *client)?;
            match (array.json, ended.is_empty()) {
                (true, _) => print_json(&ended.iter().map(to_json).collect::<Vec<_>>()),
                (false, true) => outln!("client {client} does not have volume {volume} open: nothing to do"),
                (false, false) => ended.iter().for_each(|lease| outln!("ended: {}", words(lease))),
            }
        }
    }
    Ok(())
}

/// Sorts the leases. Equal ones stay in the order of the daemon.
fn order(leases: &mut [LeaseInfo], sort: Option<LeaseSortKey>) {
    match sort {
        None => {}
        Some(LeaseSortKey::Volume) => leases.sort_by(|a, b| a.volume.cmp(&b.volume)),
        Some(LeaseSortKey::Client) => leases.sort_by_key(|lease| lease.client),
        Some(LeaseSortKey::Principal) => leases.sort_by(|a, b| a.principal.cmp(&b.principal)),
        Some(LeaseSortKey::Left) => leases.sort_by_key(|lease| lease.left.unwrap_or(Duration::MAX)),
    }
}

fn word(rights: Rights) -> &'static str {
    match rights {
        Rights::Read => "read",
        Rights::Write => "write",
    }
}

/// What a client has or had open, in words.
pub(crate) fn words(lease: &LeaseInfo) -> String {
    let who = lease.principal.as_deref().map_or(String::new(), |name| format!(" ({})", printable(name)));
    let what = match lease.rights {
        Rights::Read => "read",
        Rights::Write => "held the write lease of",
    };
    format!("client {}{who} {what} volume {}", lease.client, lease.volume)
}

pub(crate) fn to_json(lease: &LeaseInfo) -> Value {
    json!({
        "volume": lease.volume, "client": lease.client, "principal": lease.principal,
        "rights": word(lease.rights), "lease_epoch": lease.lease_epoch,
        "left_s": lease.left.map(|left| left.as_secs_f64()),
    })
}

fn print_table(leases: &[LeaseInfo]) {
    outln!("{:<24} {:>7} {:<16} {:<6} {:>8}", "VOLUME", "CLIENT", "PRINCIPAL", "RIGHTS", "LEFT");
    for lease in leases {
        let principal = lease.principal.as_deref().map_or("-".into(), printable);
        let left = lease.left.map_or("-".into(), |left| format!("{} s", left.as_secs()));
        let (volume, client, rights) = (&lease.volume, lease.client, word(lease.rights));
        outln!("{volume:<24} {client:>7} {principal:<16} {rights:<6} {left:>8}");
    }
}
