// SPDX-License-Identifier: Apache-2.0 OR MIT
//! At the end the operator asks how large a volume may be, where a volume can have a copy on each SSD. Then
//! its placement does not matter: the answer is what the volumes leave of the fullest SSD, to the block. A
//! Create of one block more is refused, and one of so many is not.

use crate::survive::stats::Path;
use crate::survive::wire::Called;
use crate::survive::world::World;
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::request::{Create, Request, VolumeName};
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::placement::{AnyMap, Rows as _, group_of};
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode;
use gnstor_proto::vendor::{Limits, VolumeEntry};
use std::collections::{BTreeMap, BTreeSet};

/// The client id of the operator: clients have lower ones.
const OPERATOR: u16 = 60_000;
const RULE: &str = "the room for volumes is not what they leave";

/// The SSDs of the map, if each of its rows has them all, and each serves.
fn in_each_row(map: &AnyMap) -> Option<BTreeSet<u16>> {
    let row = |group: u32| -> BTreeSet<u16> {
        map.row(group).flatten().filter(|place| !place.filling).map(|place| place.ssd).collect()
    };
    let has_incoming = (0..map.groups()).any(|group| map.incoming(group).is_some());
    let first = row(0);
    (!has_incoming && (1..map.groups()).all(|group| row(group) == first)).then_some(first)
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
    /// Judges the room that the daemon sees.
    pub(super) fn check_room(&mut self) {
        let Some(map) = self.newest_map() else { return };
        let Some(ssds) = in_each_row(&map) else { return };
        let replicas = ssds.len();
        let Some(Ok(Reply::Volumes(volumes))) = self.asks(Request::List) else { return };
        let Some(Ok(Reply::Room(room))) = self.asks(Request::Room) else { return };
        let Some(bytes) = room.get(replicas - 1) else { return };
        let used = reserved(&map, &volumes);
        let most = ssds.iter().map(|ssd| used.get(ssd).copied().unwrap_or(0)).max().unwrap_or(0);
        let blocks = self.shape.ssd_bytes() / u64::from(BLOCK_BYTES) - most;
        let now = self.post.now;
        if *bytes != blocks * u64::from(BLOCK_BYTES) {
            let facts = format!("{bytes} bytes with {replicas} replicas, and volumes leave {blocks} blocks");
            return self.history.broken(now, RULE, facts);
        }
        self.post.stats.path(Path::RoomAsked);
        let replicas = u8::try_from(replicas).expect("a row is short");
        let beyond = self.asks(create("beyond", blocks + 1, replicas));
        let fits = self.asks(create("fits", blocks, replicas));
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
