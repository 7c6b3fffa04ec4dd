// SPDX-License-Identifier: Apache-2.0 OR MIT
//! At the end the operator asks how large a volume may be, where a volume can have a copy on each SSD. Then
//! its placement does not matter: the answer is what the volumes leave of the fullest SSD, to the block. A
//! Create of one block more is refused, and one of so many is not.

use crate::survive::stats::Path;
use crate::survive::wire::Called;
use crate::survive::world::World;
use gnstor_base::time::Span;
use gnstor_daemon::core::Page;
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::request::{Create, Request, VolumeName};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::placement::{AnyMap, Member, Rows as _, group_of};
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::{Limits, VolumeEntry};
use std::collections::{BTreeMap, BTreeSet};

/// The client id of the operator: clients have lower ones.
pub(super) const OPERATOR: u16 = 60_000;
/// A deletion has ended on each SSD within this time, and interval of looks.
const DELETES: Span = Span::from_ms(15_000);
const LOOK: Span = Span::from_ms(250);
const RULE: &str = "the room for volumes is not what they leave";

/// The SSDs of the map, if each row has them all in its first places, and each serves. A hole before the last
/// of them is a copy that a volume lacks there, and so the volume takes no room for it.
fn in_each_row(map: &AnyMap) -> Option<BTreeSet<u16>> {
    let serves = |place: Option<Member>| place.filter(|member| !member.filling).map(|member| member.ssd);
    let first: BTreeSet<u16> = map.row(0).filter_map(serves).collect();
    let has_all = |group: u32| {
        let row: Option<BTreeSet<u16>> = map.row(group).take(first.len()).map(serves).collect();
        row.as_ref() == Some(&first)
    };
    let has_incoming = (0..map.groups()).any(|group| map.incoming(group).is_some());
    (!has_incoming && (0..map.groups()).all(has_all)).then_some(first)
}

/// The blocks that volumes reserve of each SSD.
fn reserved(map: &AnyMap, volumes: &[VolumeEntry]) -> BTreeMap<u16, u64> {
    let mut all = BTreeMap::new();
    for entry in volumes {
        for vba in 0..u32::try_from(entry.capacity_blocks).expect("small") {
            let group = group_of(entry.vid, vba, entry.chunk_shift, entry.factor, map.groups());
            map.replicas(group, entry.replicas).for_each(|place| *all.entry(place.ssd).or_default() += 1);
        }
    }
    all
}

fn create(name: &str, capacity_blocks: u64, replicas: u8) -> Request {
    Request::Create(Create {
        name: VolumeName::new(name).expect("letters"),
        capacity_blocks,
        replicas,
        chunk_shift: 0,
        client: ClientId::new(OPERATOR).expect("in range"),
        labels: String::new(),
        request_id: None,
        limits: Limits::default(),
    })
}

impl World {
    fn listed(&mut self) -> Option<Vec<VolumeEntry>> {
        match self.asks(Request::List(Page::ALL)) {
            Some(Ok(Reply::Volumes { volumes, .. })) => Some(volumes),
            _ => None,
        }
    }

    /// Room in blocks, with these SSDs in each row: by the daemon's answer, and by the sizes of the volumes,
    /// which are the third answer. A volume that is being deleted has room until each SSD has deleted it, and
    /// is in no list.
    fn room(&mut self, map: &AnyMap, ssds: &BTreeSet<u16>) -> Option<(u64, u64, Vec<VolumeEntry>)> {
        let most = self.post.now + DELETES;
        loop {
            let volumes = self.listed()?;
            let Some(Ok(Reply::Room(room))) = self.asks(Request::Room) else { return None };
            let used = reserved(map, &volumes);
            let used = ssds.iter().map(|ssd| used.get(ssd).copied().unwrap_or(0)).max().unwrap_or(0);
            let left = self.shape.ssd_bytes() / u64::from(BLOCK_BYTES) - used;
            let said = room.get(ssds.len() - 1)? / u64::from(BLOCK_BYTES);
            if said >= left || self.post.now >= most {
                return Some((said, left, volumes));
            }
            self.run(self.post.now + LOOK);
        }
    }

    /// Whether each of these volumes still exists: a client may have deleted one since they were listed.
    fn has_all(&mut self, volumes: &[VolumeEntry]) -> bool {
        let after = self.listed().unwrap_or_default();
        let is_there = |of: &VolumeEntry| {
            after.iter().any(|entry| (entry.vid, entry.generation) == (of.vid, of.generation))
        };
        volumes.iter().all(is_there)
    }

    /// Judges the room that the daemon sees.
    pub(super) fn check_room(&mut self) {
        let Some(map) = self.newest_map() else { return };
        let Some(ssds) = in_each_row(&map) else { return };
        let replicas = ssds.len();
        let Some((said, blocks, volumes)) = self.room(&map, &ssds) else { return };
        if said != blocks && self.has_all(&volumes) {
            let facts = format!("{said} blocks with {replicas} replicas, and volumes leave {blocks}");
            return self.history.broken(self.post.now, RULE, facts);
        }
        let replicas = u8::try_from(replicas).expect("a row is short");
        let beyond = self.asks(create("beyond", blocks + 1, replicas));
        let fits = self.asks(create("fits", blocks, replicas));
        if !self.has_all(&volumes) {
            return;
        }
        self.post.stats.path(Path::RoomAsked);
        let is_refused =
            |of: &Called| of.as_ref().err().map(|failure| failure.code) == Some(GrpcCode::ResourceExhausted);
        let now = self.post.now;
        if beyond.as_ref().is_some_and(Result::is_ok) {
            let facts = format!("a volume of {blocks} blocks and one more was made");
            self.history.broken(now, RULE, facts);
        } else if blocks > 0 && fits.as_ref().is_some_and(is_refused) {
            let facts = format!("a volume of {blocks} blocks was refused: {fits:?}");
            self.history.broken(now, RULE, facts);
        }
    }
}
