// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD joins a running array (`gnstor fleet add`).
//!
//! ```text
//!   add ADDRESS --> its number --> the shell looks at the SSD: who it is, what it has --> it may join?
//!                                                                                            |
//!   its places <-- `spread` <-- guest <-- invited, as one that is back <-- a map names it, out
//! ```
//! The map that names it takes nothing from any SSD, so no lease has to end. From then on the SSD is like one
//! that is out and back. A spare stays one until an SSD is lost or leaves.
//!
//! A daemon that starts may find a map with more SSDs than it was given. It connects to the others at the
//! addresses in the map ([`Core::connect_named`]).

use super::{LEAVES, WHOLE_WEIGHT};
use crate::core::effect::Reply;
use crate::core::failure::Failure;
use crate::core::request::{Add, Found};
use crate::core::{Core, Effect, Phase, Ticket};
use gnstor_fleet::map::FleetView as _;
use gnstor_fleet::set::{MAX_SSDS, SsdSet};
use gnstor_proto::BLOCK_SHIFT;
use gnstor_proto::placement::AnyMap;
use gnstor_proto::placement::map3::{ADDRESS_BYTES, FleetMap3, Ssd3, State3, Vote};
use gnstor_proto::ssd_identity::SsdSays;
use gnstor_proto::status::GrpcCode::{AlreadyExists, FailedPrecondition, InvalidArgument, Unavailable};
use gnstor_proto::voting::HELD_MAP_BYTES;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Bytes of an SSD in an encoded map.
const RECORD_BYTES: usize = 112;
/// Least and largest weight of an SSD that joins: a hundredth, and a hundredfold.
const WEIGHTS: std::ops::RangeInclusive<u32> = WHOLE_WEIGHT / 100..=WHOLE_WEIGHT * 100;

/// How long others wait for an SSD that was just added, as it has not answered yet.
const ANSWERS_MS: u64 = 5_000;

/// The SSDs that join.
#[derive(Default, Debug)]
pub(in crate::core) struct Joins {
    /// A connected SSD that the next map will add.
    next: Option<Ssd3>,
    /// The addresses of the SSDs that have joined since this daemon serves, for a call that is repeated.
    done: BTreeMap<u16, String>,
    /// SSDs that were added, and until when others wait for them.
    awaited: BTreeMap<u16, u64>,
}

impl Joins {
    /// The SSD that the next map adds to a map of `named` SSDs.
    pub(super) fn next(&self, named: usize) -> Option<&Ssd3> {
        self.next.as_ref().filter(|next| usize::from(next.id) == named)
    }

    /// Notes that the map in use names `count` SSDs.
    pub(super) fn named(&mut self, count: usize) {
        if let Some(next) = self.next.take_if(|next| usize::from(next.id) < count) {
            self.done.insert(next.id, next.address);
        }
    }

    /// Whether the SSD was added a moment ago, so that it may not have answered yet.
    pub(super) fn is_awaited(&self, ssd: u16, now: u64) -> bool {
        self.awaited.get(&ssd).is_some_and(|&until| now < until)
    }

    /// When the next wait for such an SSD ends.
    pub(super) fn wakes_at(&self, now: u64) -> Option<u64> {
        self.awaited.values().copied().filter(|&until| until > now).min()
    }
}

impl Core {
    /// Says which number the SSD would have, or takes it.
    pub(in crate::core) fn add(&mut self, now: u64, ticket: Ticket, add: &Add) {
        let added = self.added(add);
        let result = added.map(|(ssd, is_done)| {
            if let Some(found) = add.found.as_ref().filter(|_| !is_done) {
                tracing::warn!(ssd, address = add.address, spare = add.spare, "an operator adds an SSD");
                self.join(ssd, add, found);
            }
            Reply::Joins { ssd, is_done: is_done || add.found.is_some() }
        });
        self.reply(ticket, result);
        self.change_step(now);
    }

    /// The number of the SSD, and whether it has joined already.
    fn added(&self, add: &Add) -> Result<(u16, bool), Failure> {
        let cannot = |code, why: String| {
            Failure::new(code, format!("the SSD at {} cannot be added: {why}", add.address))
        };
        let map = self.may_grow_at_all().map_err(|(code, why)| cannot(code, why))?;
        let joins = &self.changes.joins;
        let same = |(_, address): &(&u16, &String)| **address == add.address;
        if let Some((&ssd, _)) = joins.done.iter().find(same) {
            return Ok((ssd, true));
        }
        if let Some(next) = &joins.next {
            if next.address == add.address {
                return Ok((next.id, true));
            }
            let why = format!(
                "SSD {} at {} is being added; wait until it is named by the map (gnstor fleet show)",
                next.id, next.address
            );
            return Err(cannot(Unavailable, why));
        }
        may_be(add, map).map_err(|why| cannot(InvalidArgument, why))?;
        if let Some(at) = map.ssds.iter().position(|known| known.address == add.address) {
            let why = format!("SSD {at} of this array is there (gnstor fleet show)");
            return Err(cannot(AlreadyExists, why));
        }
        let ssd = u16::try_from(map.ssds.len()).unwrap_or(u16::MAX);
        if ssd >= MAX_SSDS {
            let why = format!("the array has {ssd} SSDs, and {MAX_SSDS} is the most");
            return Err(cannot(FailedPrecondition, why));
        }
        if usize::from(ssd) < self.members.connected() {
            let why = "this daemon is connected to an SSD of that number, which an earlier one was adding; start \
                       the daemon again first";
            return Err(cannot(FailedPrecondition, why.into()));
        }
        let bytes = self.epoch.bytes().len() + RECORD_BYTES;
        if bytes > HELD_MAP_BYTES {
            let why = format!(
                "the fleet map would take {bytes} bytes, and an SSD has room for {HELD_MAP_BYTES}; copy the volumes \
                 into an array of fewer placement groups (gnstor cp)"
            );
            return Err(cannot(FailedPrecondition, why));
        }
        if let Some(found) = &add.found {
            self.may_join(map, ssd, add, found).map_err(|why| cannot(FailedPrecondition, why))?;
        }
        Ok((ssd, false))
    }

    /// The map, if this array takes SSDs while it runs.
    fn may_grow_at_all(&self) -> Result<&FleetMap3, (gnstor_proto::status::GrpcCode, String)> {
        let format = match self.epoch.map().map(|map| map.map()) {
            None => return Err((Unavailable, "there is no fleet map yet: try again later".into())),
            Some(AnyMap::Two(_)) => 2,
            Some(AnyMap::Three(_)) => 3,
        };
        let map = self.map_of_voters().ok_or_else(|| {
            let why = format!(
                "this array does not change its map by itself (its map of format {format} names no voters); copy \
                 the volumes into a new array (gnstor cp)"
            );
            (FailedPrecondition, why)
        })?;
        if !self.config.names_addresses {
            let why = "the array's SSDs run in the daemon's process, and do not reach others; copy the volumes into \
                       an array of SSD processes (gnstor up --ssd-at, gnstor cp)";
            return Err((FailedPrecondition, why.into()));
        }
        Ok(map)
    }

    /// Whether the SSD that was found may be this one of the array.
    fn may_join(&self, map: &FleetMap3, ssd: u16, add: &Add, found: &Found) -> Result<(), String> {
        let Some(says) = found.says.filter(|says| says.takes_map3) else {
            return Err("it is of a version without votes; start one of this version".into());
        };
        if let Some(named) = map.ssds.iter().position(|known| known.uuid == says.uuid) {
            return Err(format!("it is SSD {named} of this array already, at another address"));
        }
        if found.array.is_some_and(|array| array != map.array) {
            return Err("it is part of another array; format it if that array is not needed (gnstor ssd \
                        --format, which deletes its data)"
                .into());
        }
        if let Some(volume) = &found.volume {
            return Err(format!(
                "it has data (volume {volume:?}); format it if they are not needed (gnstor ssd --format)"
            ));
        }
        if found.ssd != ssd {
            return Err("another SSD was added meanwhile; try again".into());
        }
        let least = self.whole_bytes_beside(ssd);
        let needs = u64::try_from(u128::from(least) * u128::from(add.weight) / u128::from(WHOLE_WEIGHT));
        let (has, needs) = (says.capacity_bytes, needs.unwrap_or(u64::MAX));
        if has >= needs {
            return Ok(());
        }
        let hundredths = u128::from(has) * 100 / u128::from(least.max(1));
        let lower = if hundredths > 0 {
            format!(", or give it less: --weight {}.{:02}", hundredths / 100, hundredths % 100)
        } else {
            String::new()
        };
        Err(format!(
            "it has room for {has} bytes, and needs {needs}, as the smallest of the array has {least} and it would \
             have a share of that; start a larger one{lower}"
        ))
    }

    /// Connects to the SSD, and has the next map name it.
    fn join(&mut self, ssd: u16, add: &Add, found: &Found) {
        let (Some(map), Some(says)) = (self.map_of_voters(), found.says) else { return };
        let is_free = |node: &u16| map.ssds.iter().all(|known| known.node != *node);
        let node = add.node.or_else(|| (ssd..=u16::MAX).find(is_free)).unwrap_or(ssd);
        let record = Ssd3 {
            uuid: says.uuid,
            shrunk_at: 0,
            incarnation: says.incarnation,
            weight: add.weight,
            id: ssd,
            node,
            rack: add.rack,
            state: if add.spare { State3::Spare } else { State3::Out },
            vote: Vote::None,
            address: add.address.clone(),
        };
        self.changes.joins.next = Some(record);
        self.changes.joins.awaited.insert(ssd, self.now + ANSWERS_MS);
        self.connect(ssd, add.address.clone(), says.capacity_bytes);
    }

    /// Connects to an SSD of the next number. Until it answers it is down.
    fn connect(&mut self, ssd: u16, address: String, bytes: u64) {
        self.members.connect(bytes);
        self.addresses.resize(usize::from(ssd), String::new());
        self.addresses.push(address.clone());
        self.changes.lost(ssd, format!("it is being connected at {address}"), self.now);
        self.effects.push_back(Effect::Connect { ssd, address, bytes });
    }

    /// An SSD that this daemon did not reach at its start says how large it is. An empty SSD in the place of
    /// a lost one says nothing about the lost one.
    pub(super) fn is_so_large(&mut self, ssd: u16, says: Option<SsdSays>) {
        let Some(says) = says.filter(|_| self.members.is_assumed(ssd)) else { return };
        let known = self.map_of_voters().and_then(|map| map.ssds.get(usize::from(ssd)));
        let is_another = known.is_some_and(|known| known.uuid != [0; 16] && known.uuid != says.uuid);
        if is_another || !self.members.is_so_large(ssd, says.capacity_bytes) {
            return;
        }
        // What did not fit may fit now.
        self.changes.found_no_hole = None;
        if let Some(map) = self.epoch.map().filter(|_| self.capacity.is_some()) {
            self.capacity = Some(self.capacity_under(map.map().clone()));
        }
    }

    /// The SSDs that this daemon did not reach at its start, and their capacities in bytes. 0: not known yet.
    pub fn sizes_of_others(&self) -> impl Iterator<Item = (u16, u64)> {
        let of = |(ssd, &blocks): (u16, &u64)| (ssd, blocks << BLOCK_SHIFT);
        (0..).zip(self.members.blocks()).map(of).filter(|(ssd, _)| self.members.is_assumed(*ssd))
    }

    /// Connects to further SSDs that a map names. They have no room until they say how large they are.
    /// Returns whether there are such SSDs.
    pub(in crate::core) fn connect_named(&mut self, map: &AnyMap) -> bool {
        let AnyMap::Three(map) = map else { return false };
        let connected = self.members.connected();
        let new = || map.ssds.iter().skip(connected);
        if !self.config.names_addresses
            || map.voters().is_empty()
            || new().next().is_none()
            || new().any(|known| known.address.is_empty())
        {
            return false;
        }
        let named: Vec<(u16, String)> = new().map(|known| (known.id, known.address.clone())).collect();
        for (ssd, address) in named {
            tracing::info!(ssd, address, "the fleet map names an SSD that this daemon was not given");
            self.connect(ssd, address, 0);
            if let Phase::Starting(start) = &mut self.phase {
                start.and_another();
            }
        }
        true
    }

    /// Whether the SSD waits to be used, as a spare.
    pub(super) fn is_spare(&self, ssd: u16, map: &FleetMap3) -> bool {
        let known = map.ssds.get(usize::from(ssd));
        known.is_some_and(|known| known.state == State3::Spare && known.weight > LEAVES)
    }

    /// Whether a spare was added a moment ago, and has taken no place yet.
    pub(super) fn awaits_a_spare(&self, now: u64) -> bool {
        let Some(map) = self.map_of_voters() else { return false };
        let mut added = self.changes.joins.awaited.keys();
        added.any(|&ssd| self.changes.joins.is_awaited(ssd, now) && self.is_spare(ssd, map))
    }
}

impl Core {
    /// The bytes that an SSD with a whole share needs: the fewest that another member has, by its weight.
    pub(in crate::core) fn whole_bytes_beside(&self, ssd: u16) -> u64 {
        let whole = |other: u16| {
            let known = self.map_of_voters().and_then(|map| map.ssds.get(usize::from(other)));
            let weight = known.map_or(WHOLE_WEIGHT, |known| known.weight);
            let bytes = u128::from(self.members.bytes(other)) * u128::from(WHOLE_WEIGHT);
            (weight > LEAVES).then(|| u64::try_from(bytes / u128::from(weight)).unwrap_or(u64::MAX))
        };
        self.members.others(ssd).filter_map(whole).min().unwrap_or(0)
    }

    /// The weight of an SSD that takes part again: a whole share, or what it has room for.
    pub(super) fn weight_of_size(&self, ssd: u16) -> u32 {
        let (has, whole) = (self.members.bytes(ssd), self.whole_bytes_beside(ssd));
        if has >= whole {
            return WHOLE_WEIGHT;
        }
        let share = u128::from(has) * u128::from(WHOLE_WEIGHT) / u128::from(whole);
        u32::try_from(share).unwrap_or(WHOLE_WEIGHT).max(LEAVES + 1)
    }

    /// A spare for a place, of a node that has no other place of the row. Spares come before other SSDs.
    pub(super) fn spare_for(
        &self,
        map: &FleetMap3,
        (row, place): (usize, usize),
        open: SsdSet,
    ) -> Option<u16> {
        let now = self.map_of_voters()?;
        let node = |ssd: u16| now.ssds.get(usize::from(ssd)).map(|known| known.node);
        let others = map.rows.get(row)?.places.iter().enumerate().filter(|(at, _)| *at != place);
        let nodes: Vec<Option<u16>> = others.filter_map(|(_, at)| Some(node((*at)?.ssd))).collect();
        let spares = open.iter().filter(|&ssd| self.is_spare(ssd, now) && !nodes.contains(&node(ssd)));
        let spares: Vec<u16> = spares.collect();
        spares.get(row % spares.len().max(1)).copied()
    }
}

/// Whether the requested address and weight are valid.
fn may_be(add: &Add, map: &FleetMap3) -> Result<(), String> {
    let (length, port) = (add.address.len(), add.address.rsplit_once(':').map(|(_, port)| port));
    if length > ADDRESS_BYTES {
        return Err(format!("its address has {length} bytes, and {ADDRESS_BYTES} is the most"));
    }
    if port.and_then(|port| port.parse::<u16>().ok()).is_none_or(|port| port == 0) {
        return Err("its address is not HOST:PORT".into());
    }
    let own = |address: &str| {
        let host = address.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
        let ip = host.parse::<IpAddr>().ok();
        (
            host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()),
            ip.is_some_and(|ip| ip.is_unspecified()),
        )
    };
    let (is_own, is_any) = own(&add.address);
    let named = map.ssds.iter().map(|known| known.address.as_str()).filter(|address| !address.is_empty());
    if let Some(other) = named.into_iter().find(|other| own(other).0 != is_own).filter(|_| !is_any) {
        return Err(format!(
            "clients and SSDs of other machines connect by the address that you name, and one of it and {other} \
             (of this array) is reached from its own machine only"
        ));
    }
    if is_any {
        return Err("its address is that of any machine: name the one that clients connect to".into());
    }
    if !WEIGHTS.contains(&add.weight) {
        let weight = f64::from(add.weight) / f64::from(WHOLE_WEIGHT);
        return Err(format!(
            "a weight of {weight} is not possible; use 0.01 to 100 (1: a share as the others)"
        ));
    }
    Ok(())
}
