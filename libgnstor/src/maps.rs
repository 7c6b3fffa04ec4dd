// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fleet map that a client uses, on the CPU, and in device memory for kernels. Kernels may run while the
//! next map comes (docs/decisions/0056).
//!
//! ```text
//!   places   | table 0: groups x width | table 1 |      the word of each open volume: epoch | its table
//!            | who comes in: groups    | table 1 |
//!
//!   take:  fill the table that no word names --> store the word of each volume --> the map is in use
//! ```
//! A kernel's write notices when the table that it reads is filled anew: it looks at the word again behind
//! that. Host calls work on copies of their volume, which no store reaches. So a table is not filled while a
//! call runs that began when that table was in use.

use crate::error::Error;
use crate::link::ArrayConnector;
use crate::rpc::Rpc;
use gnstor_fabric::device::{Device, DeviceMem};
use gnstor_gnor::abi::{MAX_SSDS, VolumeAbi, map_word};
use gnstor_gnor::session::{Connector as _, Follower, Taken};
use gnstor_proto::grpc;
use gnstor_proto::placement::map3::{Incoming3, State3, Vote};
use gnstor_proto::placement::{AnyMap, FILLING, NO_SSD, Rows};
use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use zerocopy::IntoBytes;

/// Longest wait for the daemon's map.
const DAEMON: Duration = Duration::from_secs(2);

/// The map in use, and its users.
#[derive(Debug)]
pub(crate) struct Maps {
    rpc: Arc<Rpc>,
    /// Two tables.
    places: DeviceMem,
    rooms: Rooms,
    inner: Mutex<Inner>,
}

/// The numbers of the channel's queue pairs. More SSDs than it has room for may join: these share its last
/// queue pair, which leads to none. So requests to them wait or fail as to an SSD that is down, and a write
/// counts none of them as done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms {
    /// Where SSDs that join or move are made known.
    connector: Option<Arc<ArrayConnector>>,
    /// Queue pairs of the channel.
    room: u16,
    /// There are more of them than SSDs when the client connects, so that SSDs may join.
    may_grow: bool,
}

/// SSDs that may join while a client runs.
const MAY_JOIN: usize = 4;

/// Queue pairs of a channel to the SSDs of this map: with room for SSDs that join, if any can.
pub(crate) fn room_for(map: &AnyMap) -> usize {
    match map {
        AnyMap::Three(three) if three.ssds.iter().any(|ssd| ssd.vote != Vote::None) => {
            // One more queue pair leads to no SSD.
            (map.count() + MAY_JOIN + 1).min(MAX_SSDS)
        }
        _ => map.count(),
    }
}

impl Rooms {
    /// A channel of so many queue pairs, to the SSDs that `connector` knows now.
    pub(crate) fn new(connector: Arc<ArrayConnector>, room: usize) -> Self {
        let may_grow = room > connector.ssds();
        Self { connector: Some(connector), room: u16::try_from(room).unwrap_or(u16::MAX), may_grow }
    }

    /// The number of an SSD's queue pair.
    fn of(&self, ssd: u16) -> u16 {
        let last = self.room.saturating_sub(1);
        if !self.may_grow || usize::from(self.room) == MAX_SSDS { ssd } else { ssd.min(last) }
    }

    /// Whether the SSD has a queue pair of its own.
    fn has(&self, ssd: u16) -> bool {
        let last = self.room.saturating_sub(1);
        !self.may_grow || ssd < last || usize::from(self.room) == MAX_SSDS
    }
}

#[derive(Debug)]
struct Inner {
    map: Arc<AnyMap>,
    /// The table in use.
    table: bool,
    /// The volumes of open files, by address.
    volumes: BTreeMap<u64, Arc<DeviceMem>>,
    /// Host calls that began when each table was in use.
    calls: [u32; 2],
    /// SSDs that maps have left out, for the session.
    dropped: Vec<usize>,
    /// SSDs that maps have added, for the session.
    added: Vec<usize>,
    /// SSDs to which maps have given another address, for the session.
    moved: Vec<usize>,
}

/// A host call runs: no table that it may read is filled.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    maps: &'a Maps,
    table: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.maps.lock().calls[usize::from(self.table)] -= 1;
    }
}

impl Maps {
    pub(crate) fn new(rpc: Arc<Rpc>, device: &Arc<Device>, map: AnyMap, rooms: Rooms) -> Result<Self, Error> {
        let (table, comers) = (bytes_of(&map, &rooms), comers_of(&map, &rooms));
        let places = device.alloc(2 * (table.len() + comers.len()))?;
        write_table(&places, false, &table, &comers)?;
        let inner = Inner {
            map: Arc::new(map),
            table: false,
            volumes: BTreeMap::new(),
            calls: [0; 2],
            dropped: Vec::new(),
            added: Vec::new(),
            moved: Vec::new(),
        };
        Ok(Self { rpc, places, rooms, inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while held")
    }

    /// The map in use.
    pub(crate) fn current(&self) -> Arc<AnyMap> {
        Arc::clone(&self.lock().map)
    }

    /// The SSDs to which a Flush goes: all that have a place, or may get one back.
    pub(crate) fn flushed(&self) -> Vec<u32> {
        let map = self.current();
        let members = ssds(&map).filter(|&ssd| !is_out(&map, ssd));
        let mut all: Vec<u32> = members.map(|ssd| self.rooms.of(ssd).into()).collect();
        all.dedup();
        all
    }

    /// Puts a volume into device memory, with the map in use. It follows the map until it is closed.
    pub(crate) fn open(&self, volume: VolumeAbi) -> Result<Arc<DeviceMem>, Error> {
        let memory = Arc::new(self.places.device().alloc(size_of::<VolumeAbi>())?);
        let mut inner = self.lock();
        let volume = VolumeAbi {
            places_addr: self.places.address(),
            map: map_word(inner.map.wire_epoch(), inner.table, has_comers(&inner.map)),
            groups: inner.map.groups(),
            width: u32::try_from(inner.map.width()).expect("at most four"),
            ..volume
        };
        memory.write(0, volume.as_bytes())?;
        inner.volumes.insert(memory.address(), Arc::clone(&memory));
        Ok(memory)
    }

    /// Closes a volume that no request uses any more. A volume that is not closed stays as long as the
    /// client.
    pub(crate) fn close(&self, volume: &DeviceMem) {
        self.lock().volumes.remove(&volume.address());
    }

    /// Marks that a host call's kernel runs, until the returned value is dropped.
    pub(crate) fn call(&self) -> Call<'_> {
        let mut inner = self.lock();
        let table = inner.table;
        inner.calls[usize::from(table)] += 1;
        Call { maps: self, table }
    }

    /// Makes SSDs known that have joined. Returns the SSDs that the channel has room for.
    fn make_known(&self, map: &AnyMap, new: &[u16]) -> Vec<usize> {
        let (AnyMap::Three(map), Some(connector)) = (map, &self.rooms.connector) else { return Vec::new() };
        let (fit, others): (Vec<u16>, Vec<u16>) = new.iter().copied().partition(|&ssd| self.rooms.has(ssd));
        for &ssd in &fit {
            connector.add(&map.ssds[usize::from(ssd)].address);
        }
        if !others.is_empty() {
            tracing::warn!(
                "SSDs {others:?} have joined, and this client has no room for them: it reads from others, and loses \
                 its write leases if its volumes move there; connect anew"
            );
        }
        fit.into_iter().map(usize::from).collect()
    }

    /// Makes other addresses known that SSDs of the channel have. Returns these SSDs.
    fn make_moves_known(&self, known: &AnyMap, next: &AnyMap) -> Vec<usize> {
        let (AnyMap::Three(known), AnyMap::Three(next)) = (known, next) else { return Vec::new() };
        let connector = self.rooms.connector.as_ref().filter(|connector| connector.reconnects());
        let Some(connector) = connector else { return Vec::new() };
        let both = known.ssds.iter().zip(&next.ssds);
        let moved = both.filter(|(old, new)| old.address != new.address && self.rooms.has(new.id));
        let moved = moved.filter(|(_, new)| connector.moved(new.id, &new.address));
        moved.map(|(_, new)| usize::from(new.id)).collect()
    }

    /// Uses this map from now on, if it is newer.
    fn go_by(&self, map: AnyMap) -> Result<Taken, Error> {
        let mut inner = self.lock();
        if map.epoch() <= inner.map.epoch() {
            return Ok(Taken::Epoch(inner.map.epoch()));
        }
        check_next(&inner.map, &map, self.rooms.may_grow)?;
        let next = !inner.table;
        if inner.calls[usize::from(next)] > 0 {
            return Ok(Taken::Nothing);
        }
        // This write must come after the stores by which words left this table, and before the stores that
        // lead to it.
        write_table(&self.places, next, &bytes_of(&map, &self.rooms), &comers_of(&map, &self.rooms))?;
        let word = map_word(map.wire_epoch(), next, has_comers(&map));
        for volume in inner.volumes.values() {
            volume.publish(offset_of!(VolumeAbi, map), word)?;
        }
        tracing::info!("the fleet map of epoch {} is in use", map.epoch());
        let dropped = ssds(&map).filter(|&ssd| is_out(&map, ssd) && !is_out(&inner.map, ssd));
        inner.dropped = dropped.filter(|&ssd| self.rooms.has(ssd)).map(usize::from).collect();
        let new: Vec<u16> = ssds(&map).skip(inner.map.count()).collect();
        inner.added.extend(self.make_known(&map, &new));
        let moved = self.make_moves_known(&inner.map, &map);
        inner.moved.extend(moved);
        (inner.map, inner.table) = (Arc::new(map), next);
        Ok(Taken::Epoch(inner.map.epoch()))
    }
}

impl Follower for Maps {
    fn take(&self, map: &[u8]) -> Taken {
        let Ok(map) = AnyMap::decode(map) else { return Taken::Nothing };
        let epoch = map.epoch();
        self.go_by(map).unwrap_or_else(|e| {
            tracing::warn!("this client cannot follow the fleet map of epoch {epoch}: {e}");
            Taken::Unfit(epoch)
        })
    }

    fn take_dropped(&self) -> Vec<usize> {
        std::mem::take(&mut self.lock().dropped)
    }

    fn take_added(&self) -> Vec<usize> {
        std::mem::take(&mut self.lock().added)
    }

    fn take_moved(&self) -> Vec<usize> {
        std::mem::take(&mut self.lock().moved)
    }

    fn ask_daemon(&self) -> Option<Vec<u8>> {
        let mut fleet = self.rpc.fleet();
        self.rpc
            .within(DAEMON, async move { fleet.get_map(grpc::GetMapRequest {}).await })
            .map(|answer| answer.map.into())
    }
}

fn ssds(map: &AnyMap) -> std::ops::Range<u16> {
    0..u16::try_from(map.count()).unwrap_or(u16::MAX)
}

/// Whether the SSD has no place, and gets none back.
fn is_out(map: &AnyMap, ssd: u16) -> bool {
    matches!(map.state(ssd), None | Some(State3::Out | State3::Spare))
}

fn bytes_of(map: &AnyMap, rooms: &Rooms) -> Vec<u8> {
    let of = |place: u16| match place {
        NO_SSD => NO_SSD,
        place => rooms.of(place & !FILLING) | place & FILLING,
    };
    map.table().into_iter().flat_map(|place| of(place).to_le_bytes()).collect()
}

/// Checks that the next map differs only in things that a running client can follow.
fn check_next(known: &AnyMap, next: &AnyMap, may_grow: bool) -> Result<(), Error> {
    let wrong = |what: &str| Err(Error::Protocol(format!("{what}: connect anew")));
    match (known, next) {
        (AnyMap::Three(known), AnyMap::Three(next)) if known.array != next.array => {
            return wrong("it is another array's");
        }
        (AnyMap::Three(_), AnyMap::Two(_)) => return wrong("it names no array"),
        _ => {}
    }
    if (known.groups(), known.width()) != (next.groups(), next.width()) {
        return wrong("it has other placement groups");
    }
    if known.count() > next.count() || known.count() < next.count() && !may_grow {
        return wrong(&format!("it has {} SSDs, and the map before {}", next.count(), known.count()));
    }
    Ok(())
}

/// Some SSD comes in for another one: each part of a write goes to one SSD more, where its group has one.
fn has_comers(map: &AnyMap) -> bool {
    (0..map.groups()).any(|group| map.incoming(group).is_some())
}

/// The SSD that comes in for a place of each group, as device code reads it.
fn comers_of(map: &AnyMap, rooms: &Rooms) -> Vec<u8> {
    let word = |incoming: Option<Incoming3>| match incoming {
        Some(incoming) => rooms.of(incoming.ssd) | u16::from(incoming.place) << 8,
        None => u16::MAX,
    };
    (0..map.groups()).flat_map(|group| word(map.incoming(group)).to_le_bytes()).collect()
}

/// Fills one of the two tables.
fn write_table(places: &DeviceMem, second: bool, table: &[u8], comers: &[u8]) -> Result<(), Error> {
    let at = |bytes: &[u8]| if second { bytes.len() } else { 0 };
    places.write(at(table), table)?;
    places.write(2 * table.len() + at(comers), comers)?;
    Ok(())
}

#[cfg(test)]
mod tests;
