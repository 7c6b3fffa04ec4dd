// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One state of the model: three SSDs that vote, two of them with a copy of one block; two daemons; a client.
//!
//! Messages that may come late or twice are sets that only grow: proposals, decided maps, writes with the
//! epochs that they were sent in. A message that never comes is an action that is never taken, so partitions,
//! one-way cuts and stopped processes need no action of their own.

use crate::bounds::Bounds;
use crate::map_ref::MapRef;
use gnstor_fleet::client::Request;
use gnstor_fleet::fill::Filling;
use gnstor_fleet::leader::{Candidate, Lead, Round};
use gnstor_fleet::lease::{Asking, Lease, LeaseAsk};
use gnstor_fleet::map::{FleetView, Map, Place, Row, Ssd as MapSsd, SsdState};
use gnstor_fleet::repair::Held;
use gnstor_fleet::serve::{Entry, Standing};
use gnstor_fleet::set::SsdSet;
use gnstor_fleet::settle::Settle;
use gnstor_fleet::voter::Voter;
use gnstor_fleet::{ArrayId, Epoch, Incarnation, SsdId, Term};
use gnstor_proto::slba::Stamp;

/// The array of the model.
pub(crate) const ARRAY: ArrayId = ArrayId([1; 16]);
/// Each clock shows this: as time passes, the times that a machine keeps move into the past.
pub(crate) const NOW: u64 = 64;
/// Replicas of the block: SSDs 0 and 1. SSD 2 only votes.
pub(crate) const REPLICAS: u16 = 2;
/// Number of copies, in the type of the map's rules.
pub(crate) const COPIES: u8 = 2;
/// SSDs, all of them voters.
pub(crate) const SSDS: u16 = 3;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ssd {
    pub(crate) voter: Voter<MapRef>,
    pub(crate) incarnation: Incarnation,
    /// The epoch of the power cut, for a planted rule that uses it.
    pub(crate) lossy_at: Option<Epoch>,
    pub(crate) lease: Lease,
    /// Ticks of true time until the lease must be over.
    pub(crate) lease_bound: u64,
    pub(crate) asking: Option<Asking>,
    /// The bound of the lease that is requested.
    pub(crate) ask_bound: u64,
    /// Voters whose yes is on its way.
    pub(crate) answers: SsdSet,
    /// Age of the clock's reading in ticks, for a planted rule that uses it.
    pub(crate) lag: u64,
    /// The block. In a place that serves it is current.
    pub(crate) block: Filling,
    pub(crate) entry: Entry,
    /// The first's state of the block, on its way here.
    pub(crate) answer: Option<Held>,
    /// The walk has compared the block.
    pub(crate) is_filled: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Role {
    Idle,
    Candidate(Candidate<MapRef>),
    Leader { lead: Lead<MapRef>, round: Option<Round<MapRef>>, settle: Option<Settle>, grant: Option<Grant> },
}

/// A write lease that the daemon announces to the members.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Grant {
    pub(crate) lease_epoch: u32,
    pub(crate) epoch: Epoch,
    pub(crate) done: SsdSet,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Daemon {
    /// The last term that it requested.
    pub(crate) term: Term,
    pub(crate) role: Role,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Client {
    pub(crate) map: MapRef,
    pub(crate) lease_epoch: u32,
    /// The client's writes in progress.
    pub(crate) requests: Vec<Request>,
}

/// A write, in every epoch that it was sent in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Sent {
    pub(crate) stamp: Stamp,
    pub(crate) is_trim: bool,
    /// Bit e: sent in epoch e.
    pub(crate) epochs: u8,
    /// For each replica: the epochs in which it said that it has the write.
    pub(crate) done: [u8; REPLICAS as usize],
}

/// Facts that no part knows. They serve to judge the state.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Ghost {
    /// The highest acknowledged stamp.
    pub(crate) acked: Stamp,
    /// The highest stamp that a reader saw, the SSD that showed it, and the epoch.
    pub(crate) seen: Option<(Stamp, SsdId, Epoch)>,
    /// The last lease epoch that every member knew.
    pub(crate) granted: u32,
    /// The lease epoch that was settled last, and what the block was then.
    pub(crate) settled: Option<(u32, Held)>,
    /// The elected daemons, term by term.
    pub(crate) owners: Vec<(Term, u64)>,
    pub(crate) stale_commit: bool,
    pub(crate) mixed_ack: bool,
    pub(crate) unequal_grant: bool,
    pub(crate) two_maps: bool,
    pub(crate) lossy: u8,
    pub(crate) restarts: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) ssds: [Ssd; SSDS as usize],
    pub(crate) daemons: [Daemon; 2],
    pub(crate) client: Client,
    pub(crate) proposals: Vec<(Term, u64, MapRef)>,
    pub(crate) decided: Vec<MapRef>,
    pub(crate) writes: Vec<Sent>,
    pub(crate) ghost: Ghost,
}

pub(crate) fn bit(epoch: Epoch) -> u8 {
    1 << epoch
}

pub(crate) fn first_map() -> MapRef {
    let ssd = MapSsd { state: SsdState::In, incarnation: 1, shrunk_at: 0 };
    let mut row = Row::default();
    row.places[0] = Place::Serving(0);
    row.places[1] = Place::Serving(1);
    let (voters, rows) = ((0..SSDS).collect(), vec![row]);
    MapRef::new(Map {
        array: ARRAY,
        term: 0,
        epoch: 1,
        width: COPIES,
        voters,
        ssds: vec![ssd; SSDS.into()],
        rows,
    })
}

impl State {
    pub(crate) fn first(bounds: &Bounds) -> Self {
        let map = first_map();
        let (lease, bound) = (bounds.timing.lease, bounds.timing.lease + bounds.timing.drift);
        let ssd = |id: u16| Ssd {
            voter: Voter::new(map.clone()),
            incarnation: 1,
            lossy_at: None,
            lease: if id < bounds.clocks { Lease { until: NOW + lease } } else { Lease::default() },
            lease_bound: if id < bounds.clocks { bound } else { 0 },
            asking: None,
            ask_bound: 0,
            answers: SsdSet::EMPTY,
            lag: 0,
            block: Filling { held: Held::Nothing, is_current: true },
            entry: Entry { lease_epoch: 1, has_writer: true, unsettled: false },
            answer: None,
            is_filled: false,
        };
        let idle = Daemon { term: 0, role: Role::Idle };
        let lead = Lead { active: map.clone(), again: None };
        let leads = Daemon { term: 1, role: Role::Leader { lead, round: None, settle: None, grant: None } };
        let mut ssds = [ssd(0), ssd(1), ssd(2)];
        if bounds.is_led {
            ssds.iter_mut().for_each(|ssd| (ssd.voter.term, ssd.voter.instance) = (1, 1));
        }
        Self {
            ssds,
            daemons: [if bounds.is_led { leads } else { idle.clone() }, idle],
            client: Client { map: map.clone(), lease_epoch: 1, requests: Vec::new() },
            proposals: Vec::new(),
            decided: vec![map],
            writes: Vec::new(),
            ghost: Ghost { granted: 1, ..Ghost::default() },
        }
    }

    pub(crate) fn ssd(&self, id: SsdId) -> &Ssd {
        &self.ssds[usize::from(id)]
    }

    /// Removes state that can have no further effect. So states with equal behaviour become one.
    pub(crate) fn tidy(&mut self, keeps_answers: bool) {
        let oldest = self.ssds[..usize::from(REPLICAS)].iter().map(|ssd| ssd.map().epoch).min().unwrap_or(0);
        let (requests, acked) = (&self.client.requests, self.ghost.acked);
        for sent in &mut self.writes {
            sent.epochs &= u8::MAX << oldest;
            let under_way = requests.iter().find(|now| now.stamp == sent.stamp);
            let counts = under_way.map_or(0, |now| if keeps_answers { u8::MAX } else { bit(now.epoch) });
            sent.done.iter_mut().for_each(|done| *done &= counts);
        }
        self.ghost.seen.take_if(|(seen, ..)| *seen <= acked);
    }

    /// The newest active map takes a place from the SSD that it still believes to have.
    pub(crate) fn is_deprived(&self, id: SsdId) -> bool {
        let own = self.ssd(id).voter.active.epoch;
        self.decided.iter().any(|map| map.shrunk_at(id).is_some_and(|shrunk| shrunk > own))
    }
}

impl Ssd {
    pub(crate) fn map(&self) -> &MapRef {
        &self.voter.active
    }

    pub(crate) fn row(&self) -> &Row {
        &self.voter.active.rows[0]
    }

    /// Whether the map gives this content its places.
    pub(crate) fn is_content_of_map(&self, id: SsdId) -> bool {
        self.map().ssd(id).is_some_and(|known| known.incarnation == self.incarnation)
    }

    pub(crate) fn is_filling(&self, id: SsdId) -> bool {
        self.row().places.contains(&Place::Filling(id)) && self.is_content_of_map(id)
    }

    pub(crate) fn ask(&self, ssd: SsdId) -> LeaseAsk {
        let epoch = self.map().epoch;
        LeaseAsk { array: ARRAY, ssd, epoch, incarnation: self.incarnation, opening: 1, uuid: [0; 16] }
    }

    pub(crate) fn standing(&self, ssd: SsdId, incarnation: Incarnation, has_lease: bool) -> Standing<'_> {
        Standing { map: self.map(), ssd, incarnation, has_lease }
    }
}
