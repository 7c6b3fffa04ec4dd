// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operator has copies merged that have all lost writes: `gnstor fleet salvage` (rule 17).
//!
//! ```text
//!   absent SSDs with last copies    one is missing, or lost nothing: refused
//!        | all are back lossy
//!        v
//!   each volume gets its note --on every SSD--> map in which they fill --merged--> `serve_all`, as any fill
//! ```
//! The rules are in `gnstor_fleet::change::salvage`. The order is in this daemon's memory only. A daemon that
//! starts finds the map before the salvage or the one after it. If it finds the former, the operator repeats
//! the call.

use super::lost::{blocks_in, serves_some};
use crate::core::failure::Failure;
use crate::core::report::{LostBlocks, Salvageable};
use crate::core::volume::{Purpose, Stage, Volume};
use crate::core::{Core, Reply, Ticket};
use gnstor_fleet::map::{Map, Row};
use gnstor_fleet::wire;
use gnstor_proto::placement::map3::{FleetMap3, Row3, State3};
use gnstor_proto::placement::{AnyMap, Rows as _};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::GrpcCode::FailedPrecondition;
use gnstor_proto::vendor::{MAX_REPLICAS, VolumeEntry};
use std::collections::BTreeSet;

/// What the operator wants merged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::core) struct Salvage {
    /// The SSDs whose copies are merged.
    of: BTreeSet<u16>,
    /// Time of the call, in seconds since 1970: the volumes' note.
    at_s: u32,
}

impl Salvage {
    pub(super) fn has(&self, ssd: u16) -> bool {
        self.of.contains(&ssd)
    }

    /// Whether the salvage is over: by this map the SSDs are no longer absent.
    pub(super) fn is_over(&self, map: &AnyMap) -> bool {
        self.of.iter().all(|&ssd| map.state(ssd) != Some(State3::Absent))
    }
}

/// Whether each copy of volumes with this number of replicas is on an absent SSD.
fn is_dark(map: &FleetMap3, row: &Row3, replicas: u8) -> bool {
    let mut copies = row.places.iter().take(replicas.into()).flatten().filter(|place| !place.filling);
    let first = copies.next();
    first.into_iter().chain(copies).all(|place| map.state(place.ssd) == Some(State3::Absent))
        && first.is_some()
}

fn absent_with_copies(map: &FleetMap3) -> BTreeSet<u16> {
    let is_absent = |ssd: &u16| map.state(*ssd) == Some(State3::Absent) && serves_some(map, *ssd);
    (0..u16::try_from(map.ssds.len()).unwrap_or(u16::MAX)).filter(is_absent).collect()
}

/// The SSDs whose copies of some group merge.
fn merging(map: &FleetMap3) -> BTreeSet<u16> {
    let merging = |row: &Row| (2..=MAX_REPLICAS).flat_map(|replicas| row.merging(replicas).iter()).collect();
    let rows = Map::of(map).map(|map| map.rows).unwrap_or_default();
    rows.iter().flat_map(|row| -> Vec<u16> { merging(row) }).collect()
}

fn listed(ssds: &BTreeSet<u16>) -> String {
    ssds.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

impl Core {
    /// Merges the copies of groups that are all lossy, or says what would be merged.
    pub(in crate::core) fn salvage(&mut self, now: u64, ticket: Ticket, dry_run: bool, at_s: u32) {
        let result = self.salvageable().map_err(|why| Failure::new(FailedPrecondition, why));
        if let Ok(salvage) = result.clone()
            && !dry_run
        {
            tracing::warn!(ssds = ?salvage.ssds, volumes = ?salvage.volumes, "an operator has copies merged");
            self.changes.salvage = Some(Salvage { of: salvage.ssds.into_iter().collect(), at_s });
            self.change_step(now);
        }
        self.reply(ticket, result.map(Reply::Salvage));
    }

    /// # Errors
    /// A sentence with the reason, and what to do.
    fn salvageable(&self) -> Result<Salvageable, String> {
        let Some(map) = self.map_of_voters().filter(|_| self.is_serving()) else {
            return Err(
                "nothing can be salvaged: the array's map names no voters, or the daemon does not serve \
                        yet; an array without voters is copied into a new one (gnstor cp)"
                    .into(),
            );
        };
        let absent = absent_with_copies(map);
        let (lossy, others): (BTreeSet<u16>, BTreeSet<u16>) =
            absent.iter().copied().partition(|&ssd| self.is_back_lossy(ssd));
        let missing: Vec<String> = others.iter().map(|&ssd| self.why_not_salvaged(ssd)).collect();
        let merging = merging(map);
        if lossy.is_empty() {
            let more = match (missing.is_empty(), merging.is_empty()) {
                (false, _) => format!("; {}", missing.join("; ")),
                (true, false) => {
                    format!("; the copies of SSD {} are being merged (gnstor fleet show)", listed(&merging))
                }
                (true, true) => String::new(),
            };
            return Err(format!(
                "there is nothing to salvage: no SSD that has lost writes is needed for a block{more}"
            ));
        }
        if !missing.is_empty() {
            return Err(format!(
                "the copies of SSD {} cannot be merged: {}",
                listed(&lossy),
                missing.join("; ")
            ));
        }
        let is_taken_out = |ssd: &&u16| map.ssds[usize::from(**ssd)].weight == 0;
        if let Some(ssd) = lossy.iter().find(is_taken_out) {
            return Err(format!(
                "the copies of SSD {} cannot be merged: SSD {ssd} was taken out; gnstor fleet resume \
                 {ssd} first",
                listed(&lossy)
            ));
        }
        Ok(Salvageable { ssds: lossy.into_iter().collect(), volumes: self.dark_volumes(map) })
    }

    /// Why an absent SSD is no part of a salvage.
    fn why_not_salvaged(&self, ssd: u16) -> String {
        let why = self.changes.why_down(ssd);
        let why = why.or_else(|| self.members.absent().get(&ssd).map(|absence| absence.why()));
        match why {
            Some(why) => format!(
                "SSD {ssd} is missing ({why}), and may have what the others lost: start it again; if its \
                 data is gone for good, give it up first (gnstor fleet replace {ssd} --lose-data)"
            ),
            None => format!("SSD {ssd} is there with all that it had: it serves soon (gnstor fleet show)"),
        }
    }

    /// The volumes of which blocks have copies on absent SSDs only.
    fn dark_volumes(&self, map: &FleetMap3) -> Vec<LostBlocks> {
        let dark =
            |replicas: u8| -> Vec<bool> { map.rows.iter().map(|row| is_dark(map, row, replicas)).collect() };
        let by_replicas: Vec<Vec<bool>> = (0..=MAX_REPLICAS).map(dark).collect();
        let blocks = |entry: &VolumeEntry| {
            let groups = by_replicas.get(usize::from(entry.replicas)).map_or(&[][..], Vec::as_slice);
            LostBlocks { volume: entry.name.clone(), blocks: blocks_in(map, entry, groups) }
        };
        let volumes = self.volumes.values().filter(|volume| volume.stage == Stage::Active);
        volumes.map(|volume| blocks(&volume.entry)).filter(|volume| volume.blocks > 0).collect()
    }

    /// The next map, if the operator takes back what lost writes.
    pub(super) fn consented(&mut self, now: u64) -> Option<FleetMap3> {
        let next = self.accepted(self.map_of_voters()?);
        next.or_else(|| self.salvaged(now))
    }

    /// The next map, if copies are to be merged, each volume has its note, and each SSD has all entries.
    fn salvaged(&mut self, now: u64) -> Option<FleetMap3> {
        let salvage = self.changes.salvage.clone()?;
        let map = self.map_of_voters()?;
        let is_complete = absent_with_copies(map) == salvage.of
            && salvage.of.iter().all(|&ssd| self.is_back_lossy(ssd) && !self.members.is_away(ssd));
        if !is_complete || !self.is_serving() {
            // An SSD is lost again, or became absent. So the list that the operator saw is out of date.
            tracing::warn!("the copies are not merged: another SSD is missing by now");
            self.changes.salvage = None;
            return None;
        }
        if !self.has_notes(now, salvage.at_s) || !salvage.of.iter().all(|&ssd| self.has_all(ssd)) {
            return None;
        }
        let term = self.term.number();
        let map = self.map_of_voters()?;
        let content = |&ssd: &u16| Some((ssd, self.changes.says(ssd)?.incarnation));
        let lossy: Vec<(u16, u32)> = salvage.of.iter().filter_map(content).collect();
        wire::change(map, |map: &Map| map.salvage(&lossy, term)).ok()
    }

    /// Gives each volume its note that has none yet. Returns whether all have it, on every SSD.
    fn has_notes(&mut self, now: u64, at_s: u32) -> bool {
        let Some(map) = self.map_of_voters() else { return false };
        let names: BTreeSet<String> = self.dark_volumes(map).into_iter().map(|lost| lost.volume).collect();
        let lacks = |volume: &Volume| {
            names.contains(&volume.entry.name)
                && (volume.entry.salvaged_s < at_s || volume.round.is_some() || !volume.behind.is_empty())
        };
        let lack: Vec<Vid> =
            self.volumes.iter().filter(|(_, volume)| lacks(volume)).map(|(&vid, _)| vid).collect();
        let term = self.term.number();
        for &vid in &lack {
            let volume = self.volumes.get(&vid).filter(|volume| volume.round.is_none());
            let volume = volume.filter(|v| v.stage == Stage::Active && v.entry.salvaged_s < at_s);
            if let Some(volume) = volume {
                let entry = VolumeEntry { salvaged_s: at_s, ..volume.basis(now, term) };
                self.put(vid, entry, Purpose::Reconcile { reply: None });
            }
        }
        lack.is_empty()
    }

    /// A round of a volume is over: a salvage may wait for it.
    pub(in crate::core) fn salvage_on(&mut self, now: u64) {
        if self.changes.salvage.is_some() {
            self.change_step(now);
        }
    }
}
