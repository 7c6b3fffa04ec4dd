// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The promises of the daemon's replies so far.

use crate::bench::{Bench, Outcome};
use gnstor_daemon::core::request::Request;
use gnstor_daemon::core::{Rename, Reply, Ticket};
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::VolumeEntry;
use std::collections::BTreeMap;

/// A volume and its generation.
type Incarnation = (u16, u32);

/// How long a writer of an array with voters may say nothing without losing its lease.
const SPEAKS_MS: u64 = 5_000;

/// Until when a holder that speaks now for the last time keeps its lease.
fn promised_until(votes: bool, now: u64, lease_ms: u32) -> u64 {
    let lease_ms = u64::from(lease_ms);
    now + if votes { lease_ms.min(SPEAKS_MS) } else { lease_ms }
}

/// Whether a grant that the request names may be over.
fn ends_grants(request: &Request, outcome: &Outcome) -> bool {
    match (request, outcome) {
        // The volume is open, and keeps its name.
        (Request::Rename(_), Err(failure)) => failure.code != GrpcCode::FailedPrecondition,
        (_, Err(_)) => true,
        (request, Ok(_)) => matches!(
            request,
            Request::Release { .. }
                | Request::Publish(_)
                | Request::RevokeLease { .. }
                | Request::Rename(_)
                | Request::Delete { force: true, .. }
        ),
    }
}

/// The promises of the replies.
#[derive(Default)]
pub(super) struct Model {
    pub(super) asked: BTreeMap<Ticket, Request>,
    /// The last grant of each volume: name, holder, and until when it was promised.
    pub(super) grants: BTreeMap<Incarnation, (String, ClientId, u64)>,
    /// The array has voters. Then a writer that says nothing for [`SPEAKS_MS`] may lose its lease, as an SSD
    /// is to get places or to leave.
    pub(super) votes: bool,
    /// Lease epochs seen in grants.
    pub(super) epochs: BTreeMap<Incarnation, u32>,
}

impl Model {
    /// The client asked for something that ended its own grant, or may have.
    pub(super) fn give_up(&mut self, request: &Request) {
        if let Request::Release { name, client, .. }
        | Request::Open { name, client, .. }
        | Request::RevokeLease { name, client } = request
        {
            self.grants.retain(|_, (volume, holder, _)| volume != name.as_str() || holder != client);
        }
        // The volume goes, with the lease of its writer, or has another name.
        if let Request::Delete { name, force: true, .. } | Request::Rename(Rename { name, .. }) = request {
            self.grants.retain(|_, (volume, ..)| volume != name.as_str());
        }
        // The published volume loses its writer, and the volume that had the name its life.
        if let Request::Publish(publish) = request {
            let (key, name) = ((publish.vid.get(), publish.generation), publish.name.as_str());
            self.grants.retain(|grant, (volume, _, _)| *grant != key && volume != name);
        }
    }

    pub(super) fn hear(&mut self, bench: &Bench, ticket: Ticket, outcome: &Outcome) {
        let Some(request) = self.asked.remove(&ticket) else { return };
        if let (Request::Rename(Rename { name, .. }), Ok(_)) = (&request, outcome) {
            let held =
                self.grants.values().find(|(volume, _, until)| volume == name.as_str() && *until > bench.now);
            assert_eq!(held, None, "a volume that a client writes to keeps its name");
        }
        if ends_grants(&request, outcome) {
            self.give_up(&request);
        }
        match (&request, outcome) {
            (Request::Open { client, .. }, Ok(Reply::Opened { volume, lease_ms })) if *lease_ms > 0 => {
                self.granted(bench, volume, *client, *lease_ms);
            }
            (Request::Renew { name, client, lease_epoch, .. }, Ok(Reply::Renewed { lease_ms })) => {
                for (key, (volume, holder, until)) in &mut self.grants {
                    let vid = Vid::new(key.0).unwrap();
                    let lives = bench
                        .array
                        .ssd(0)
                        .table
                        .get(&vid)
                        .is_some_and(|e| e.generation == key.1 && !e.deleting);
                    if lives && volume == name.as_str() {
                        assert_eq!(
                            (*holder, self.epochs[key]),
                            (*client, *lease_epoch),
                            "only the holder renews"
                        );
                        *until = promised_until(self.votes, bench.now, *lease_ms);
                    }
                }
            }
            (_, Err(failure)) => {
                assert!(!failure.message.is_empty() && failure.code != GrpcCode::Internal, "{failure}")
            }
            _ => {}
        }
    }

    fn granted(&mut self, bench: &Bench, volume: &VolumeEntry, client: ClientId, lease_ms: u32) {
        let key = (volume.vid.get(), volume.generation);
        for ssd in (0..bench.array.len()).filter(|&ssd| !bench.array.is_out(ssd)) {
            let held = bench.array.ssd(ssd).table[&volume.vid].clone();
            assert_eq!(
                (held.writer, held.lease_epoch),
                (Some(client), volume.lease_epoch),
                "SSD {ssd} at the grant"
            );
        }
        let grant = (volume.name.clone(), client, promised_until(self.votes, bench.now, lease_ms));
        if let Some((_, holder, until)) = self.grants.insert(key, grant) {
            assert!(holder == client || bench.now >= until, "client {holder} was promised until {until}");
        }
        let before = self.epochs.insert(key, volume.lease_epoch);
        assert!(before.is_none_or(|before| before < volume.lease_epoch), "an epoch was granted twice");
    }
}
