// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated SSD as a voter, by the rules of crate `fleet`; and a log that judges the maps of the array.

use crate::array::{SSD_BYTES, SimSsd};
use crate::drain;
use crate::repair::Lease;
use gnstor_fleet::change::incarnation_under;
use gnstor_fleet::map::{FleetView, Map, Place};
use gnstor_fleet::set::{SsdSet, may_become};
use gnstor_fleet::voter::{Held, Voter};
use gnstor_fleet::{ArrayId, Refused};
use gnstor_proto::nvme::Sqe;
use gnstor_proto::placement::map3::{FleetMap3, Place3, State3};
use gnstor_proto::placement::{AnyMap, Rows as _};
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::ssd_identity::SsdSays;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::VolumeEntry;
use gnstor_proto::voting::{Activation, Hold, MapName, Promise, TermTake, map_digest};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

type Held3 = Held<Arc<FleetMap3>>;

/// Log of the maps that SSDs have held and activated.
#[derive(Default, Debug)]
pub(crate) struct MapLog {
    held: BTreeMap<u64, Vec<(Arc<FleetMap3>, SsdSet)>>,
    active: BTreeMap<u64, FleetMap3>,
    /// SSDs that reported that they have filled: SSD, incarnation, epoch.
    filled: BTreeSet<(u16, u32, u64)>,
    /// Settles that an SSD has done: of which lease, SSD, epoch.
    settled: BTreeSet<(Lease, u16, u64)>,
    /// Leases that ended with all writes acknowledged, as the tests say.
    pub(crate) clean: BTreeSet<Lease>,
    /// Volumes and generations that a caller was told of.
    pub(crate) told: BTreeSet<(Vid, u32)>,
    /// Daemons started.
    pub(crate) starts: u64,
    /// Serials of the client ids that daemons gave last.
    pub(crate) given: BTreeMap<ClientId, u64>,
}

impl MapLog {
    /// Checks that an SSD which gets this entry has ended the earlier holders of the ids in it. A daemon
    /// knows the serials of the ids that it gave itself.
    pub(crate) fn holders_ended(&self, entry: &VolumeEntry, ends: &BTreeMap<u16, u64>) {
        for id in entry.readers.iter().chain(&entry.writer) {
            let serial = self.given.get(id).copied().filter(|serial| serial >> 32 == entry.term).unwrap_or(0);
            let ended = ends.get(&id.get()).copied().unwrap_or(0);
            assert!(ended >= serial, "an entry names {id}, whose earlier holders have not ended");
        }
    }

    /// An array begins with this map.
    pub(crate) fn given(&mut self, map: &FleetMap3) {
        self.active.entry(map.epoch).or_insert_with(|| map.clone());
    }

    fn held(&mut self, ssd: u16, map: &Arc<FleetMap3>) {
        let maps = self.held.entry(map.epoch).or_default();
        match maps.iter_mut().find(|(known, _)| known == map) {
            Some((_, by)) => *by = by.with(ssd),
            None => maps.push((Arc::clone(map), SsdSet::EMPTY.with(ssd))),
        }
    }

    pub(crate) fn filled(&mut self, ssd: u16, incarnation: u32, epoch: u64) {
        self.filled.insert((ssd, incarnation, epoch));
    }

    pub(crate) fn settled(&mut self, lease: Lease, ssd: u16, epoch: u64) {
        self.settled.insert((lease, ssd, epoch));
    }

    /// Checks that no grant comes while replicas may differ, and that the flag is cleared only when every
    /// member has settled in one epoch. An SSD that serves no place need not have settled: its copies are
    /// filled anew.
    pub(crate) fn entry_follows(&self, ssd: u16, old: &VolumeEntry, new: &VolumeEntry) {
        let Some(map) = self.active.values().next_back() else { return };
        let mut places = map.rows.iter().flat_map(|row| row.places).flatten();
        if !places.any(|place| place.ssd == ssd && !place.filling) {
            return;
        }
        let lease = (old.vid, old.generation, old.lease_epoch);
        let is_alive = !new.deleting && new.lease_epoch != u32::MAX;
        let is_settled = || {
            self.active.values().any(|map| {
                let states = (0u16..).zip(&map.ssds);
                let mut members =
                    states.filter(|(_, s)| matches!(s.state, State3::In | State3::Absent | State3::Full));
                members.all(|(ssd, _)| self.settled.contains(&(lease, ssd, map.epoch)))
            })
        };
        if old.unsettled && !new.unsettled && is_alive {
            assert!(is_settled(), "{lease:?} was not settled on all members, epoch {}", map.epoch);
        }
        let is_grant = new.writer.is_some() && new.lease_epoch > old.lease_epoch;
        if is_grant && old.writer.is_some() {
            assert!(
                is_settled() || self.clean.contains(&lease),
                "{lease:?} ended uncleanly and was not settled"
            );
        }
        let ends = old.writer.is_some() && new.writer.is_none() && new.lease_epoch == old.lease_epoch;
        assert!(
            !ends || new.unsettled || self.clean.contains(&lease) || !is_alive,
            "{lease:?} ended uncleanly"
        );
    }

    /// A place that begins to serve has filled in the epoch before, in the incarnation that the map names.
    fn only_filled_places_serve(&self, map: &FleetMap3) {
        let Some(before) = self.active.get(&(map.epoch - 1)) else { return };
        for (group, (old, new)) in before.rows.iter().zip(&map.rows).enumerate() {
            for place in new.places.iter().flatten().filter(|place| !place.filling) {
                let is_kept = old.places.iter().flatten().any(|was| was == place);
                let incarnation = map.ssds[usize::from(place.ssd)].incarnation;
                let has_filled = self.filled.contains(&(place.ssd, incarnation, before.epoch));
                assert!(
                    is_kept || has_filled,
                    "epoch {}: SSD {} serves group {group} unfilled",
                    map.epoch,
                    place.ssd
                );
            }
        }
        // Places that stay have the same content. A place that was called lost and fills may have a later
        // one.
        for (ssd, (old, new)) in before.ssds.iter().zip(&map.ssds).enumerate() {
            let may_change = |place: &Place3| place.filling && old.state == State3::Absent;
            let stays = |place: &Place3| usize::from(place.ssd) == ssd && !may_change(place);
            let is_given = before.rows.iter().flat_map(|row| row.places.iter().flatten()).any(stays);
            assert!(
                !is_given || old.incarnation == new.incarnation || new.shrunk_at == map.epoch,
                "epoch {}: SSD {ssd} has places with another content",
                map.epoch
            );
        }
    }

    /// Checks that an epoch has one active map, and that a majority of the previous map's voters has held it.
    /// Voters change one at a time, and no uuid occurs twice.
    fn activated(&mut self, map: &FleetMap3) {
        if let Some(known) = self.active.get(&map.epoch) {
            assert_eq!(known, map, "epoch {} has two maps", map.epoch);
            return;
        }
        let by = self.held.get(&map.epoch).and_then(|maps| maps.iter().find(|(known, _)| **known == *map));
        let by = by.map_or(SsdSet::EMPTY, |(_, by)| *by);
        let voters = self.active.get(&(map.epoch - 1)).map_or(map.voters(), FleetView::voters);
        assert!(by.is_majority_of(voters), "epoch {} is active and held by {by:?} of {voters:?}", map.epoch);
        assert!(may_become(voters, map.voters()), "epoch {}: {voters:?} to {:?}", map.epoch, map.voters());
        let uuids: BTreeSet<[u8; 16]> = map.ssds.iter().map(|ssd| ssd.uuid).collect();
        assert_eq!(uuids.len(), map.ssds.len(), "epoch {}", map.epoch);
        self.only_filled_places_serve(map);
        if let Some(before) = self.active.get(&(map.epoch - 1)) {
            drain::takes_no_copy(before, map);
        }
        self.active.insert(map.epoch, map.clone());
    }

    /// Active maps from this epoch on, in order.
    pub(crate) fn active_from(&self, epoch: u64) -> impl Iterator<Item = &FleetMap3> {
        self.active.range(epoch..).map(|(_, map)| map)
    }

    /// The newest active epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.active.keys().next_back().copied().unwrap_or(0)
    }
}

/// Checks that no map leaves a group without a copy that had one for volumes of this number of replicas. The
/// exception is a copy of these SSDs, which the operator has called lost: it fills then.
pub(crate) fn keeps_copies<'a>(
    maps: impl Iterator<Item = &'a FleetMap3>,
    replicas: u8,
    given_up: &BTreeSet<u16>,
) {
    let maps: Vec<Map> = maps.filter_map(Map::of).collect();
    for pair in maps.windows(2) {
        for (group, (old, new)) in pair[0].rows.iter().zip(&pair[1].rows).enumerate() {
            let (had, has) = (old.copies(replicas), new.copies(replicas));
            let is_called_lost = |(was, is): (&Place, &Place)| match (was, is) {
                (Place::Serving(was), Place::Filling(is)) => was == is && given_up.contains(is),
                _ => false,
            };
            if old.places.iter().zip(&new.places).any(is_called_lost) {
                continue;
            }
            assert!(
                had.is_empty() || !has.is_empty(),
                "epoch {} drops the last of group {group}",
                pair[1].epoch
            );
        }
    }
}

/// Identity of an SSD, and its grants.
#[derive(Default, Debug)]
pub(crate) struct SimVote {
    index: u16,
    pub(crate) uuid: [u8; 16],
    pub(crate) incarnation: u32,
    /// Term and instance of the last TERM TAKE or MAP HOLD.
    granted: (u64, u64),
    held: Option<Held3>,
    /// SSDs that have said goodbye.
    pub(crate) gone: SsdSet,
    pub(crate) log: Arc<Mutex<MapLog>>,
}

impl SimVote {
    pub(crate) fn new(index: u16, log: Arc<Mutex<MapLog>>) -> Self {
        let uuid = [u8::try_from(index + 1).unwrap(); 16];
        Self { index, uuid, incarnation: 1, log, ..Self::default() }
    }

    pub(super) fn index(&self) -> u16 {
        self.index
    }

    /// The SSD after a format.
    pub(crate) fn formatted(&self) -> Self {
        // A uuid that it never had before, however often it is formatted.
        let uuid = u128::from_le_bytes(self.uuid).wrapping_add(1 << 64 | 64).to_le_bytes();
        Self { uuid, ..Self::new(self.index, Arc::clone(&self.log)) }
    }
}

fn refusal(refused: Refused) -> Refusal {
    match refused {
        Refused::OtherArray => Refusal::OtherArray,
        Refused::StaleTerm => Refusal::StaleTerm,
        Refused::StaleVersion => Refusal::StaleVersion,
        other => panic!("a voter does not say {other:?} to a daemon"),
    }
}

impl SimSsd {
    pub(super) fn identify(&self) -> Vec<u8> {
        let mut data = [0; 4096];
        let SimVote { uuid, incarnation, .. } = self.vote;
        let (takes_map3, is_lossy) = (true, self.filling);
        let capacity_bytes = SSD_BYTES - self.lacks_bytes;
        SsdSays { uuid, incarnation, takes_map3, is_lossy, capacity_bytes }.put(&mut data);
        data.to_vec()
    }

    /// The SSD loses writes, and reports that by a new incarnation.
    pub(crate) fn lose_writes(&mut self) {
        self.vote.incarnation += 1;
    }

    /// Low half of the highest term that it knows.
    pub(super) fn highest_term(&self) -> u32 {
        u32::try_from(self.term.max(self.vote.granted.0) & u64::from(u32::MAX)).unwrap()
    }

    pub(super) fn held(&self) -> Option<AnyMap> {
        self.vote.held.as_ref().map(|held| (*held.map).clone().into())
    }

    fn voter(&self) -> Result<Voter<Arc<FleetMap3>>, Refusal> {
        let Some(AnyMap::Three(map)) = &self.map else { return Err(Refusal::OtherArray) };
        if !map.ssds[usize::from(self.vote.index)].is(&self.vote.uuid) {
            return Err(Refusal::NotReady);
        }
        let (term, instance) = self.vote.granted;
        Ok(Voter { term, instance, active: Arc::new(map.clone()), held: self.vote.held.clone() })
    }

    fn keep(&mut self, voter: Voter<Arc<FleetMap3>>) {
        self.vote.granted = (voter.term, voter.instance);
        self.term = self.term.max(voter.term);
        self.vote.held = voter.held;
    }

    pub(super) fn take_term(&mut self, sqe: &Sqe, data: &mut Vec<u8>) -> Result<u32, Refusal> {
        let take = TermTake::of(sqe);
        let mut voter = self.voter()?;
        if take.term < self.term {
            return Err(Refusal::StaleTerm);
        }
        let array = Some(voter.active.array).filter(|array| array[..8] == take.array).unwrap_or_default();
        let promise = voter.take_term(ArrayId(array), take.term, take.instance).map_err(refusal)?;
        self.keep(voter);
        let name = |map: &FleetMap3| MapName { epoch: map.epoch, digest: map_digest(&map.encode().unwrap()) };
        let held = promise.held.map(|held| (held.term, name(&held.map)));
        *data =
            Promise { term: take.term, array: promise.array.0, active: name(&promise.active), held }.encode();
        Ok(0)
    }

    pub(super) fn hold(&mut self, data: &[u8]) -> Result<u32, Refusal> {
        let (head, map) = Hold::decode(data).map_err(|_| Refusal::InvalidField)?;
        let map = Arc::new(FleetMap3::decode(map).map_err(|_| Refusal::InvalidField)?);
        assert_eq!((head.array, head.epoch, head.base), (map.array, map.epoch, 0));
        if head.term < self.term {
            return Err(Refusal::StaleTerm);
        }
        let mut voter = self.voter()?;
        voter.hold(head.term, head.instance, Arc::clone(&map)).map_err(refusal)?;
        self.keep(voter);
        self.vote.log.lock().unwrap().held(self.vote.index, &map);
        Ok(self.vote.gone.common(map.deprived()).words()[0])
    }

    pub(super) fn activate(&mut self, data: &[u8]) -> Result<u32, Refusal> {
        let (head, bytes) = Activation::decode(data).map_err(|_| Refusal::InvalidField)?;
        let bytes = bytes.expect("the daemon sends the whole map");
        let map = FleetMap3::decode(bytes).map_err(|_| Refusal::InvalidField)?;
        let name = MapName { epoch: map.epoch, digest: map_digest(&map.encode().unwrap()) };
        assert_eq!((head.array, head.map, head.base), (map.array, name, 0));
        match &self.map {
            Some(AnyMap::Three(known)) if known.ssds[usize::from(self.vote.index)].is(&self.vote.uuid) => {
                let mut voter = self.voter()?;
                voter.activate(Arc::new(map.clone())).map_err(refusal)?;
                self.keep(voter);
            }
            Some(known) if known.epoch() >= map.epoch => return Err(Refusal::StaleVersion),
            _ => {}
        }
        self.vote.log.lock().unwrap().activated(&map);
        let rules = Map::of(&map).expect("a small array");
        if map.ssds[usize::from(self.vote.index)].is(&self.vote.uuid) {
            self.vote.incarnation = incarnation_under(&rules, self.vote.index, self.vote.incarnation);
        }
        self.fill_by(&map);
        self.map = Some(map.into());
        Ok(0)
    }
}
