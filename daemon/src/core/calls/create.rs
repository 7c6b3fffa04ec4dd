// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Create: the checks, and the entry of the new volume.

use super::Core;
use crate::core::capacity::Layout;
use crate::core::failure::Failure;
use crate::core::request::{Create, VolumeName};
use crate::core::volume::{Action, Creation, Purpose, Stage, Volume};
use crate::core::{Reply, Ticket};
use gnstor_proto::BLOCK_SHIFT;
use gnstor_proto::placement::map3::Row3;
use gnstor_proto::placement::{DEFAULT_CHUNK_SHIFT, mix64};
use gnstor_proto::slba::Vid;
use gnstor_proto::status::GrpcCode::{AlreadyExists, InvalidArgument, ResourceExhausted, Unavailable};
use gnstor_proto::vendor::{MAX_REPLICAS, VolumeEntry};
use std::sync::Arc;

/// Copies of a volume whose creator does not say how many: the paper's default.
const DEFAULT_REPLICAS: u8 = 2;
/// Number of times that one daemon may use a volume id again before its generations could meet the next
/// daemon's.
const GENERATIONS_PER_TERM: u32 = 4096;

impl Core {
    pub(in crate::core) fn create(&mut self, now: u64, creation: Creation) {
        let Creation { ticket, request, .. } = &creation;
        if let Some(outcome) = self.earlier_create(now, *ticket, request) {
            return self.reply(*ticket, outcome);
        }
        let entry = match self.new_entry(now, request) {
            Ok(entry) => entry,
            Err(failure) => return self.reply(*ticket, Err(failure)),
        };
        self.clients.note(request.client);
        self.names.insert(entry.name.clone(), entry.vid);
        if let Some(capacity) = &mut self.capacity {
            capacity.reserve(&entry);
        }
        self.volumes.insert(entry.vid, Volume::new(entry.clone(), Stage::Creating));
        let (vid, members) = (entry.vid, self.members.all().clone());
        self.begin(vid, Action::Add(Arc::new(entry)), Purpose::Create(creation), members);
    }

    /// The result of an earlier request with the same id, if there was one.
    fn earlier_create(
        &mut self,
        now: u64,
        ticket: Ticket,
        request: &Create,
    ) -> Option<Result<Reply, Failure>> {
        let id = request.request_id?;
        let alive = self.active().find(|v| v.entry.request_ids.contains(&id)).map(|v| v.view(now));
        let Some(entry) = alive.or_else(|| self.tombstones.find(now, id).cloned()) else {
            // An earlier daemon created the volume, which was deleted later. SSDs remember only the request's
            // id.
            let (vid, generation) = self.tombstones.gone_before(now, id)?;
            let replicas = self.replicas(request);
            let entry = replicas.map(|replicas| self.entry(request, (vid, generation), replicas));
            return Some(entry.map(Reply::Volume));
        };
        let own = self.callers.get(&ticket).is_some_and(|caller| caller.right(&entry.labels).is_some());
        if entry.name == request.name.as_str() && own {
            return Some(Ok(Reply::Volume(entry)));
        }
        let other = if own { format!("volume {:?}", entry.name) } else { "another volume".into() };
        let message = format!(
            "the request id of this Create of volume {} was used for {other}: use a new one for each request",
            request.name
        );
        Some(Err(Failure::new(InvalidArgument, message)))
    }

    /// The entry of a new volume, after every check.
    fn new_entry(&self, now: u64, request: &Create) -> Result<VolumeEntry, Failure> {
        let name = &request.name;
        self.name_is_free(name)?;
        if let Some(message) = self.needs_everyone(name, "created") {
            return Err(Failure::new(Unavailable, message));
        }
        let replicas = self.replicas(request)?;
        if let Some(message) =
            self.lacks_copies(name, replicas, "be created").or_else(|| self.is_beyond_drain(name, replicas))
        {
            return Err(Failure::new(Unavailable, message));
        }
        let Some((vid, past)) = self.past.lowest_free(now, |vid| self.volumes.contains_key(&vid)) else {
            let message = format!(
                "volume {name} cannot be created: no volume id is free, each of the 65,534 is in use or \
                 still being swept; delete volumes, or try again later"
            );
            return Err(Failure::new(ResourceExhausted, message));
        };
        let generation = self.generation(past.generation);
        let entry = self.entry(request, (vid, generation), replicas);
        let VolumeEntry { chunk_shift, factor, .. } = entry;
        let layout = Layout { vid, factor, chunk_shift, replicas };
        if let Some(message) = self.lacks_room(name, layout, request.capacity_blocks) {
            return Err(Failure::new(ResourceExhausted, message));
        }
        Ok(VolumeEntry { version: past.version + 1, ..entry })
    }

    /// The first entry of the volume with this id and generation.
    fn entry(&self, request: &Create, (vid, generation): (Vid, u32), replicas: u8) -> VolumeEntry {
        VolumeEntry {
            vid,
            generation,
            version: 1,
            term: self.term.number(),
            deleting: false,
            name: request.name.as_str().into(),
            labels: request.labels.clone(),
            capacity_blocks: request.capacity_blocks,
            replicas,
            chunk_shift: request.chunk_shift,
            factor: self.factor(vid, generation),
            owner: request.client,
            any_reader: false,
            readers: Vec::new(),
            writer: None,
            unsettled: false,
            lease_epoch: 0,
            lease_ms: 0,
            request_ids: request.request_id.into_iter().collect(),
            limits: request.limits,
            salvaged_s: 0,
        }
    }

    /// A sentence if some group has no serving copy yet for a volume of this number of replicas. A write to a
    /// place that fills would be lost with its SSD.
    pub(in crate::core) fn lacks_copies(
        &self,
        name: &VolumeName,
        replicas: u8,
        what: &str,
    ) -> Option<String> {
        let map = self.map_of_voters()?;
        let serves =
            |row: &Row3| row.places.iter().take(replicas.into()).flatten().any(|place| !place.filling);
        let lacking = map.rows.iter().filter(|row| !serves(row)).count();
        (lacking > 0).then(|| {
            format!(
                "volume {name} with {replicas} replicas cannot {what} now: {lacking} of {} placement \
                 groups have no copy that serves it; wait until SSDs have filled, or use more replicas",
                map.rows.len()
            )
        })
    }

    /// A sentence if the volume would use a place that an SSD may give up during a drain. It is also returned
    /// until the map says that the draining SSD stays: an earlier map may still be decided.
    fn is_beyond_drain(&self, name: &VolumeName, replicas: u8) -> Option<String> {
        let map = self.map_of_voters()?;
        let (ssd, most) = (self.may_be_leaving(map).iter().next()?, self.most(map));
        (replicas > most).then(|| {
            format!(
                "volume {name} with {replicas} replicas cannot be created now: SSD {ssd} is being drained, for \
                 volumes of up to {most} replicas; use at most {most}, or wait until it is out (gnstor fleet show)"
            )
        })
    }

    fn name_is_free(&self, name: &VolumeName) -> Result<(), Failure> {
        let Some(&vid) = self.names.get(name.as_str()) else {
            let why = self.is_still_named(name);
            let refused = |why| format!("volume {name} cannot be created yet: {why}");
            return why.map_or(Ok(()), |why| Err(Failure::new(Unavailable, refused(why))));
        };
        let volume = &self.volumes[&vid];
        Err(match volume.stage {
            Stage::Creating | Stage::Active => Failure::new(
                AlreadyExists,
                format!(
                    "volume {name} cannot be created: there is one of that name, number {vid}; use another \
                     name"
                ),
            ),
            Stage::Marked | Stage::Deleting(_) => Failure::new(
                Unavailable,
                format!(
                    "volume {name} cannot be created yet: one of that name is still being deleted{}; try \
                     again later",
                    volume.behind_note()
                ),
            ),
        })
    }

    pub(in crate::core) fn replicas(&self, request: &Create) -> Result<u8, Failure> {
        let most = self.most_replicas();
        let replicas = if request.replicas == 0 { DEFAULT_REPLICAS.min(most) } else { request.replicas };
        if replicas <= most {
            return Ok(replicas);
        }
        let message = format!(
            "volume {} cannot have {replicas} replicas: each is on an SSD of its own and the array {}; use 1 to \
             {most}",
            request.name,
            if self.with_blocks() > usize::from(most) && most < MAX_REPLICAS {
                format!("was made of {most}")
            } else {
                format!("has {}", self.with_blocks())
            }
        );
        Err(Failure::new(InvalidArgument, message))
    }

    /// For each number of replicas, from one on: the size in bytes of the largest volume that a Create with
    /// the default chunk accepts now. The answer holds until a volume is created or deleted.
    pub(super) fn room(&self, now: u64) -> Vec<u64> {
        let Some(capacity) = &self.capacity else { return Vec::new() };
        // The next volume gets the lowest free id. An id that is not reusable yet may be free by then.
        let next = |now| self.past.lowest_free(now, |vid| self.volumes.contains_key(&vid));
        let ids: Vec<_> = [now, u64::MAX].into_iter().filter_map(next).collect();
        let most = self.most_replicas();
        let largest = |replicas| {
            let layouts = ids.iter().map(|&(vid, past)| {
                let factor = self.factor(vid, self.generation(past.generation));
                Layout { vid, factor, chunk_shift: DEFAULT_CHUNK_SHIFT, replicas }
            });
            layouts.map(|layout| capacity.largest(layout)).min().unwrap_or(0) << BLOCK_SHIFT
        };
        (1..=most).map(largest).collect()
    }

    /// A sentence if a volume cannot be written whole. Every block of every volume is reserved: there is no
    /// thin provisioning.
    fn lacks_room(&self, name: &VolumeName, layout: Layout, blocks: u64) -> Option<String> {
        let capacity = self.capacity.as_ref()?;
        let replicas = layout.replicas;
        if capacity.has_holes(replicas) {
            return Some(format!(
                "volume {name} cannot be created: with {replicas} replicas some of its blocks have no SSD, \
                 because the fleet map has lost SSDs; use more replicas"
            ));
        }
        if capacity.fits(layout, blocks) {
            return None;
        }
        let largest = capacity.largest(layout) << BLOCK_SHIFT;
        Some(format!(
            "volume {name} of {} bytes with {replicas} replicas does not fit: at most {largest} bytes fit \
             now; use a smaller capacity, fewer replicas, or delete volumes",
            blocks << BLOCK_SHIFT
        ))
    }

    /// The generation after `last`, which is 0 if none is known. Once its sweep is done, an SSD may have
    /// forgotten a volume. But the volume's pages stay on flash until they are collected, and a map rebuilt
    /// from flash must not assign them to the next volume. So every term has generations of its own.
    fn generation(&self, last: u32) -> u32 {
        let floor =
            u32::try_from(self.term.number()).ok().and_then(|term| term.checked_mul(GENERATIONS_PER_TERM));
        (last + 1).max(floor.unwrap_or(0))
    }

    /// The hash factor spreads volumes that are written alike; it needs to differ, not to be secret.
    fn factor(&self, vid: Vid, generation: u32) -> u64 {
        mix64(
            self.config.seed
                ^ mix64(u64::from(vid.get()) << 32 | u64::from(generation))
                ^ mix64(!self.term.number()),
        )
    }
}
