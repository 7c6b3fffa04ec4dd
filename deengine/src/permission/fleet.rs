// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fleet map from the view of one SSD: its place in each placement group.

use crate::request::Refused;
use gnstor_durable::SsdIdentity;
use gnstor_fleet::change::min_copies;
use gnstor_fleet::known::Known;
use gnstor_proto::placement::map3::{FleetMap3, State3};
use gnstor_proto::placement::{AnyMap, Member, Rows, group_of};
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::{MAX_REPLICAS, VolumeEntry};
use std::sync::Arc;

/// The metadata has this instead of the epoch of a map that is lost: no map is newer.
pub(crate) const UNKNOWN_EPOCH: u64 = u64::MAX - 1;

/// Marks the place of an incoming SSD, which takes over another SSD's place.
const INCOMING: usize = usize::MAX;

/// The map an SSD holds, and its own row in it.
#[derive(Debug)]
pub struct Fleet {
    known: Known,
    /// As MAP GET delivers it: hosts may ask often, and a map is up to a MiB.
    bytes: Arc<[u8]>,
    own: Option<u16>,
    /// The map gives places to this content: it names this SSD and incarnation, and says that it takes part.
    serves: bool,
    /// Whether the map has absent SSDs, by which groups are judged.
    has_absent: bool,
    has_full: bool,
    /// The copies of some group merge (rule 17).
    has_merge: bool,
    /// By the map this SSD is absent with last copies, and its content is a later one (rule 17).
    needs_salvage: bool,
    /// This SSD has lost writes. So it takes part as a filling one, even if the map says otherwise.
    filling: bool,
    /// Places that this SSD fills.
    fills: Vec<FilledPlace>,
    /// This SSD restarted under this map, and has forgotten what clients changed in places that it fills.
    has_forgotten: bool,
    /// This SSD replaces one that cannot be used, and refuses writes, too.
    stands_in: bool,
}

/// A place that this SSD fills: the group, the index in its row ([`INCOMING`]: a place that it takes over),
/// and bits. Bit N: the copies of volumes with N replicas merge in this group.
pub(crate) type FilledPlace = (u32, usize, u8);

/// An SSD's part in the replicas of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The block does not belong to this SSD.
    Absent,
    /// The SSD takes writes and does not serve reads yet.
    Filling,
    /// The SSD serves.
    Serving {
        /// Whether the SSD is the group's first, which serves readers beside a writer (protocol rule 7).
        first: bool,
    },
}

impl Fleet {
    /// The map as SSD number `id` sees it.
    pub fn new(map: AnyMap, id: u16, identity: SsdIdentity, filling: bool) -> Self {
        let count = u16::try_from(map.count()).unwrap_or(u16::MAX);
        let own = (0..count).find(|&ssd| map.id(ssd) == Some(id));
        let has = |state| (0..count).any(|ssd| map.state(ssd) == Some(state));
        let (has_absent, has_full) = (has(State3::Absent), has(State3::Full));
        let serves = match &map {
            AnyMap::Two(_) => true,
            AnyMap::Three(map) => own.is_some_and(|own| gives_places(map, own, identity)),
        };
        let (has_merge, needs_salvage) = match &map {
            AnyMap::Two(_) => (false, false),
            AnyMap::Three(map) => {
                let merges = |group| (2..=MAX_REPLICAS).any(|replicas| merges(map, group, replicas));
                let is_lossy = own.is_some_and(|own| has_lossy_copies(map, own, identity));
                ((0..map.groups()).any(merges), is_lossy)
            }
        };
        let fills = match &map {
            AnyMap::Three(map) if serves => filling_places(map, own),
            _ => Vec::new(),
        };
        // A map that was decoded can be encoded.
        let bytes = map.encode().unwrap_or_default().into();
        let known = Known::new(map);
        Self {
            known,
            bytes,
            own,
            serves,
            has_absent,
            has_full,
            has_merge,
            needs_salvage,
            filling,
            fills,
            has_forgotten: false,
            stands_in: false,
        }
    }

    /// Sets whether this SSD replaces one that cannot be used.
    #[must_use]
    pub(crate) fn standing_in(self, stands_in: bool) -> Self {
        Self { stands_in, ..self }
    }

    /// Sets whether this SSD has forgotten its fill of this map.
    #[must_use]
    pub(crate) fn having_forgotten(self, has_forgotten: bool) -> Self {
        Self { has_forgotten, ..self }
    }

    /// Whether the SSD has forgotten its fill. Then its filling places take no writes and do not fill until
    /// there is a newer map (rule 13).
    pub(crate) fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// Whether this SSD serves a place.
    pub(crate) fn serves_a_place(&self) -> bool {
        let AnyMap::Three(map) = self.map() else { return true };
        let is_own = |member: Member| Some(member.ssd) == self.own && !member.filling;
        self.serves && (0..map.groups()).any(|group| map.row(group).flatten().any(is_own))
    }

    /// Whether this SSD is to take over a place that another one serves.
    pub(crate) fn comes_in(&self) -> bool {
        self.fills.iter().any(|filled| filled.1 == INCOMING)
    }

    pub(crate) fn stands_in(&self) -> bool {
        self.stands_in
    }

    /// Whether the map gives its places to this SSD's content. A map of format 2 gives them to any content.
    pub(crate) fn serves(&self) -> bool {
        self.serves || self.stands_in
    }

    /// Whether any SSD is full.
    pub(crate) fn has_full(&self) -> bool {
        self.has_full
    }

    /// Whether this SSD has copies of which no other one serves, and has lost writes (rule 17).
    pub(crate) fn needs_salvage(&self) -> bool {
        self.needs_salvage
    }

    /// Whether the copies of the block's group merge (rule 17).
    pub(crate) fn merges(&self, entry: &VolumeEntry, vba: u32) -> bool {
        let AnyMap::Three(map) = self.map() else { return false };
        self.has_merge && merges(map, group_in(map, entry, vba), entry.replicas)
    }

    /// Whether the block's group can be used: no member is absent, and enough are left for a write (rules 1b
    /// and 1c). Where copies merge nothing is written (rule 17). Format 2 has none of these rules.
    pub(crate) fn check_group(&self, entry: &VolumeEntry, vba: u32, writes: bool) -> Result<(), Refused> {
        let AnyMap::Three(map) = self.map() else { return Ok(()) };
        if !(self.has_absent || self.has_merge || writes && entry.replicas > 2) {
            return Ok(());
        }
        let members = || map.replicas(group_in(map, entry, vba), entry.replicas);
        let waits = self.has_absent && members().any(|member| map.state(member.ssd) == Some(State3::Absent));
        let has_few = || members().count() < min_copies(entry.replicas.into()) as usize;
        if waits || self.merges(entry, vba) || writes && has_few() {
            return Err(Refused::at(Refusal::GroupWaits, self.map().wire_epoch()));
        }
        Ok(())
    }

    /// Whether an SSD of the block's group is full, so that only mapped blocks may be written (rule 15). A
    /// place that fills does not know which blocks are mapped, so it takes all writes.
    pub(crate) fn only_mapped(&self, entry: &VolumeEntry, vba: u32) -> bool {
        let AnyMap::Three(map) = self.map() else { return false };
        let is_full = |member: Member| map.state(member.ssd) == Some(State3::Full);
        map.replicas(group_in(map, entry, vba), entry.replicas).any(is_full)
            && matches!(self.place(entry, vba), Place::Serving { .. })
    }

    /// The places that this SSD fills (rule 13). Only maps of format 3 have the rule.
    pub(crate) fn fills(&self) -> &[FilledPlace] {
        &self.fills
    }

    /// Whether this SSD fills its place of a block.
    pub(crate) fn fills_block(&self, entry: &VolumeEntry, vba: u32) -> bool {
        !self.fills.is_empty() && self.place(entry, vba) == Place::Filling
    }

    /// Index of the SSD whose copy of a block is right: the group's first. If the first is not among the
    /// volume's places, any serving one of these is right: they all have what was acknowledged.
    pub(crate) fn source(&self, entry: &VolumeEntry, vba: u32) -> Option<u16> {
        let AnyMap::Three(map) = self.map() else { return None };
        let group = group_in(map, entry, vba);
        let serving = || map.replicas(group, entry.replicas).find(|member| !member.filling);
        map.first(group, entry.replicas).or_else(|| serving().map(|member| member.ssd))
    }

    /// The SSDs whose copies this SSD's is compared with: the one whose copy is right, or where copies merge
    /// each other one.
    pub(crate) fn sources(&self, entry: &VolumeEntry, vba: u32) -> Vec<u16> {
        let AnyMap::Three(map) = self.map() else { return Vec::new() };
        let mut sources: Vec<u16> = match self.merges(entry, vba) {
            false => self.source(entry, vba).into_iter().collect(),
            true => map.replicas(group_in(map, entry, vba), entry.replicas).map(|at| at.ssd).collect(),
        };
        sources.retain(|ssd| Some(*ssd) != self.own);
        sources
    }

    /// The SSDs that serve a block, without this one. The one whose copy is right comes first.
    pub(crate) fn serving_peers(&self, entry: &VolumeEntry, vba: u32) -> Vec<u16> {
        let AnyMap::Three(map) = self.map() else { return Vec::new() };
        let members = map.replicas(group_in(map, entry, vba), entry.replicas);
        let serving = members.filter(|member| !member.filling).map(|member| member.ssd);
        let mut peers: Vec<u16> = serving.filter(|ssd| Some(*ssd) != self.own).collect();
        let first = self.source(entry, vba);
        peers.sort_by_key(|ssd| Some(*ssd) != first);
        peers
    }

    /// The SSD that serves a block at the place that this SSD takes over, if it takes one over.
    pub(crate) fn taken_over(&self, entry: &VolumeEntry, vba: u32) -> Option<u16> {
        let AnyMap::Three(map) = self.map() else { return None };
        let group = group_in(map, entry, vba);
        let incoming = map.incoming(group).filter(|incoming| Some(incoming.ssd) == self.own)?;
        let place = (incoming.place < entry.replicas).then_some(incoming.place)?;
        map.place(group, place.into()).filter(|member| !member.filling).map(|member| member.ssd)
    }

    /// Whether an SSD has a place for a block.
    pub(crate) fn has_member(&self, entry: &VolumeEntry, vba: u32, ssd: u16) -> bool {
        let AnyMap::Three(map) = self.map() else { return false };
        map.replicas(group_in(map, entry, vba), entry.replicas).any(|member| member.ssd == ssd)
    }

    /// Whether an offered map may follow this one. A map of format 3 names its array, and only maps of that
    /// array may follow it. A map of format 2 names none.
    pub(crate) fn check_array(&self, offered: &AnyMap) -> Result<(), Refused> {
        let is_ours = match (self.map(), offered) {
            (AnyMap::Two(_), _) => true,
            (AnyMap::Three(_), AnyMap::Two(_)) => false,
            (AnyMap::Three(ours), AnyMap::Three(offered)) => offered.array == ours.array,
        };
        if is_ours { Ok(()) } else { Err(Refusal::InvalidField.into()) }
    }

    /// The map.
    pub fn map(&self) -> &AnyMap {
        self.known.map()
    }

    /// The map, in the view that voters use.
    pub(crate) fn known(&self) -> &Known {
        &self.known
    }

    /// Whether SSDs vote on changes of the map.
    pub(crate) fn has_voters(&self) -> bool {
        self.known.voted().is_some()
    }

    /// Index of this SSD in the map; `None`: the map does not name it.
    pub(crate) fn own(&self) -> Option<u16> {
        self.own
    }

    /// The encoded map.
    pub(crate) fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Compares the epoch that a command was placed by; both have 32 bits and may wrap.
    pub(crate) fn check_epoch(&self, epoch: u32) -> Result<(), Refused> {
        let ours = self.map().wire_epoch();
        if epoch == ours {
            return Ok(());
        }
        let ahead = epoch.wrapping_sub(ours) < 1 << 31;
        Err(Refused::at(if ahead { Refusal::MapBehind } else { Refusal::StaleMap }, ours))
    }

    /// This SSD's place among the replicas of a block.
    pub fn place(&self, entry: &VolumeEntry, vba: u32) -> Place {
        match self.map() {
            AnyMap::Two(map) => self.place_in(map, entry, vba),
            AnyMap::Three(map) => self.place_in(map, entry, vba),
        }
    }

    #[inline]
    fn place_in(&self, map: &impl Rows, entry: &VolumeEntry, vba: u32) -> Place {
        let group = group_in(map, entry, vba);
        let is_own = |member: &Member| Some(member.ssd) == self.own;
        match map.replicas(group, entry.replicas).find(is_own) {
            None => Place::Absent,
            Some(member) if member.filling || self.filling => Place::Filling,
            Some(_) => Place::Serving { first: map.first(group, entry.replicas) == self.own },
        }
    }
}

fn group_in(map: &impl Rows, entry: &VolumeEntry, vba: u32) -> u32 {
    group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups())
}

fn filling_places(map: &FleetMap3, own: Option<u16>) -> Vec<FilledPlace> {
    let Some(own) = own else { return Vec::new() };
    let mut fills = Vec::new();
    for group in 0..map.groups() {
        let fills_it = |member: Option<Member>| member == Some(Member { ssd: own, filling: true });
        let place = map.row(group).position(fills_it);
        let incoming = map.incoming(group).filter(|incoming| incoming.ssd == own).map(|_| INCOMING);
        let places = place.into_iter().chain(incoming);
        fills.extend(places.map(|place| {
            let merging = (2..=MAX_REPLICAS).filter(|replicas| merges(map, group, *replicas));
            (group, place, merging.fold(0, |bits, replicas| bits | 1 << replicas))
        }));
    }
    fills
}

/// Whether copies of a group merge: none serves, and several fill (rule 17, `Row::merging` of the rules).
fn merges(map: &FleetMap3, group: u32, replicas: u8) -> bool {
    let members = || map.replicas(group, replicas);
    members().all(|member| member.filling) && members().count() > 1
}

fn has_lossy_copies(map: &FleetMap3, own: u16, identity: SsdIdentity) -> bool {
    let is_own = |member: Member| member.ssd == own && !member.filling;
    map.ssds.get(usize::from(own)).is_some_and(|ssd| {
        ssd.state == State3::Absent && ssd.is(&identity.uuid) && ssd.incarnation < identity.incarnation
    }) && (0..map.groups()).any(|group| map.row(group).flatten().any(is_own))
}

fn gives_places(map: &FleetMap3, own: u16, identity: SsdIdentity) -> bool {
    let takes_part = |state| matches!(state, State3::In | State3::Full);
    map.ssds.get(usize::from(own)).is_some_and(|ssd| {
        takes_part(ssd.state) && ssd.is(&identity.uuid) && ssd.incarnation == identity.incarnation
    })
}
