// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an array has besides SSDs and clients where an SSD fails. That is its daemon, the questions of SSDs
//! to each other, and the hosts of clients, which follow maps.
//!
//! ```text
//!   Daemon (real core and links) --admin queues--> SSDs <--MAP GET-- Host x clients --> Client::follow
//!   SSD --lease, blocks: questions--> Peer --admin queue--> another SSD
//! ```
//! All of it is one actor of the world. An SSD that fails is cut off: nothing reaches it, nothing leaves it.

mod daemon;
mod host;
mod peers;
mod queue;

use crate::client::Client;
use crate::initiator::Volume;
use crate::port::Arrived;
use crate::ssd::{SsdActor, WorldError, is_control};
use daemon::Daemon;
use gnstor_base::time::{Span, Time};
use gnstor_daemon::core::request::{Create, Request, Rights, VolumeName};
use gnstor_daemon::core::{Reply, Ticket};
use gnstor_fabric::admin;
use gnstor_fabric::transport::PeerAsk;
use gnstor_proto::BLOCK_BYTES;
use gnstor_proto::placement::{AnyMap, Rows as _};
use gnstor_proto::pull::{Kind, PeerRead, Row, Wanted};
use gnstor_proto::slba::ClientId;
use gnstor_proto::vendor::{Limits, VolumeEntry};
use host::Host;
use peers::Peer;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Placement groups of an array.
pub(crate) const GROUPS: u32 = 4096;
/// The lease of each client. It is longer than any run.
const LEASE_MS: u32 = 3_600_000;

/// An SSD that fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fail {
    /// Its number in the world.
    pub ssd: usize,
    /// When it fails, after the begin of the measured time.
    pub at: Span,
    /// How long its places are kept for it before other SSDs fill them.
    pub out_after: Span,
}

/// What followed from a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Course {
    /// When the SSD failed.
    pub(crate) failed: Option<Time>,
    /// When the last client followed a map without it.
    pub(crate) dropped: Option<Time>,
    /// When all places served again.
    pub(crate) whole: Option<Time>,
    /// Bytes of the blocks that SSDs got from other SSDs.
    pub(crate) rebuilt_bytes: u64,
    /// Epochs of the map since the failure.
    pub(crate) epochs: u64,
}

/// The fleet of one array.
pub(crate) struct Fleet {
    daemon: Daemon,
    peers: BTreeMap<(u16, u16), Peer>,
    asked: VecDeque<(u16, PeerAsk)>,
    hosts: Vec<Host>,
    /// The SSD that fails, and when.
    fails: Option<(u16, Time)>,
    /// The newest map that a client follows; how many places that volumes use serve in the first one.
    map: Option<Arc<AnyMap>>,
    full: usize,
    replicas: usize,
    pub(crate) course: Course,
}

/// SSDs and clients of the array.
pub(crate) struct Array<'a> {
    pub(crate) ssds: &'a mut [SsdActor],
    pub(crate) clients: &'a mut [Client],
}

impl Fleet {
    pub(crate) fn new(now: Time, shape: (u16, u64), seed: u64, out_after: Span) -> Self {
        Self {
            daemon: Daemon::new(now, shape, seed, out_after),
            peers: BTreeMap::new(),
            asked: VecDeque::new(),
            hosts: Vec::new(),
            fails: None,
            map: None,
            full: 0,
            replicas: 0,
            course: Course::default(),
        }
    }

    pub(crate) fn serves(&self) -> bool {
        self.daemon.serves()
    }

    /// Asks the daemon to make the volume of a client, or to open it.
    pub(crate) fn ask(&mut self, now: Time, request: Request) -> Ticket {
        self.daemon.ask(now, request)
    }

    /// The answer of the daemon, if it is there.
    ///
    /// # Errors
    /// The daemon refused.
    pub(crate) fn answer(&mut self, ticket: Ticket) -> Result<Option<Reply>, WorldError> {
        match self.daemon.answer(ticket) {
            None => Ok(None),
            Some(Ok(reply)) => Ok(Some(reply)),
            Some(Err(failure)) => Err(WorldError::Daemon(failure.message)),
        }
    }

    /// Clients follow maps from now on; this is the one that they have.
    pub(crate) fn begin(&mut self, map: Arc<AnyMap>, replicas: usize, clients: impl Iterator<Item = u32>) {
        (self.replicas, self.full) = (replicas, serving(&map, replicas));
        self.map = Some(map);
        self.hosts = clients.map(Host::new).collect();
    }

    /// The SSD with this index fails at `at`.
    pub(crate) fn fail(&mut self, ssd: u16, at: Time) {
        self.fails = Some((ssd, at));
    }

    /// The questions of an SSD.
    pub(crate) fn asks(&mut self, ssd: u16, asked: Vec<PeerAsk>) {
        self.asked.extend(asked.into_iter().map(|asked| (ssd, asked)));
    }

    /// Takes what arrived from an SSD for a queue pair that is no client's I/O queue.
    pub(crate) fn arrived(&mut self, array: &mut Array<'_>, now: Time, of: (u16, u32, Arrived)) {
        let (index, qpn, arrived) = of;
        let ssd = &mut array.ssds[usize::from(index)];
        if !is_control(qpn) {
            return self.map_arrived(array, now, of);
        }
        let peer = self.peers.iter_mut().find(|((_, to), peer)| *to == index && peer.qpn() == Some(qpn));
        match peer {
            Some((_, peer)) => peer.arrived(ssd, now, &arrived),
            None => self.daemon.arrived(ssd, now, (qpn, &arrived)),
        }
    }

    fn map_arrived(&mut self, array: &mut Array<'_>, now: Time, (index, qpn, arrived): (u16, u32, Arrived)) {
        let Arrived::Response(cqe) = arrived else { return };
        let first = self.hosts.first().map_or(0, Host::client);
        let Some(at) = ((qpn / 2).checked_sub(first + 1)).map(|at| at as usize) else { return };
        let (Some(host), Some(client)) = (self.hosts.get_mut(at), array.clients.get_mut(at)) else { return };
        let Some(map) = host.answered(&array.ssds[usize::from(index)], &cqe, client.epoch()) else { return };
        let shared = self.map.as_ref().filter(|known| known.epoch() >= map.epoch());
        let map = match shared {
            Some(known) => Arc::clone(known),
            None => Arc::new(map),
        };
        if self.map.as_ref().is_none_or(|known| known.epoch() < map.epoch()) {
            self.note(now, &map);
            self.map = Some(Arc::clone(&map));
        }
        let members = members(&map);
        client.follow(map, &members);
        let renewal = renewal(client);
        self.daemon.tell(now, renewal);
        let is_dropped = |ssd: u16| array.clients.iter().all(|client| client.is_without(ssd.into()));
        if let Some((ssd, _)) = self.fails
            && self.course.dropped.is_none()
            && is_dropped(ssd)
        {
            self.course.dropped = Some(now);
        }
    }

    /// A newer map.
    fn note(&mut self, now: Time, map: &AnyMap) {
        if self.course.failed.is_none() {
            return;
        }
        self.course.epochs += 1;
        let is_used = |place: u8| usize::from(place) < self.replicas;
        let comes_in = (0..map.groups())
            .any(|group| map.incoming(group).is_some_and(|incoming| is_used(incoming.place)));
        let lost = self.fails.is_some_and(|(ssd, _)| !members(map).contains(&ssd));
        if self.course.whole.is_none() && lost && !comes_in && serving(map, self.replicas) == self.full {
            self.course.whole = Some(now);
        }
    }

    /// Does all that is due. Returns the time of the next step.
    ///
    /// # Errors
    /// If the daemon stopped.
    pub(crate) fn step(&mut self, array: &mut Array<'_>, now: Time) -> Result<Time, WorldError> {
        let mut next = Time::NEVER;
        match self.fails {
            Some((ssd, at)) if self.course.failed.is_none() && at <= now => {
                array.ssds[usize::from(ssd)].cut_off();
                self.course.failed = Some(now);
            }
            Some((_, at)) if self.course.failed.is_none() => next = at,
            _ => {}
        }
        next = next.min(self.daemon.step(array.ssds, now));
        if let Some(stop) = &self.daemon.stopped {
            return Err(WorldError::Daemon(stop.to_string()));
        }
        next = next.min(self.carry(array, now));
        for (host, client) in self.hosts.iter_mut().zip(array.clients.iter_mut()) {
            next = next.min(host.step(now, client, array.ssds));
        }
        Ok(next.max(now + Span::from_ns(1_000)))
    }

    /// The questions between SSDs.
    fn carry(&mut self, array: &mut Array<'_>, now: Time) -> Time {
        while let Some((own, asked)) = self.asked.pop_front() {
            let to = asked.peer;
            let Some(peer) = array.ssds.get_mut(usize::from(to)) else {
                array.ssds[usize::from(own)].answer(now, &asked, None);
                continue;
            };
            self.peers.entry((own, to)).or_insert_with(|| Peer::new(own)).give(peer, now, asked);
        }
        let mut next = Time::NEVER;
        for ((own, to), peer) in &mut self.peers {
            let at = peer.attend(&mut array.ssds[usize::from(*to)], now);
            let soonest = now.as_ns() / 1_000_000 + 1;
            next = next.min(at.map_or(Time::NEVER, |at| Time::from_ns(at.max(soonest) * 1_000_000)));
            for (asked, answer) in peer.answers.drain(..) {
                let answer: Option<admin::Reply> = answer;
                self.course.rebuilt_bytes += answer.as_ref().map_or(0, |answer| blocks_of(&asked, answer));
                let answer = answer.as_ref().map(|reply| (&reply.cqe, &reply.data[..]));
                array.ssds[usize::from(*own)].answer(now, &asked, answer);
            }
        }
        next
    }
}

/// Bytes of the blocks in an answer.
fn blocks_of(asked: &PeerAsk, reply: &admin::Reply) -> u64 {
    let read = PeerRead::of(&asked.question.sqe).filter(|_| reply.cqe.status_word() == 0);
    let Some(PeerRead { wanted: Wanted::Blocks(_), .. }) = read else { return 0 };
    let rows = Row::decode_all(&reply.data, reply.cqe.dw0.get() as usize).unwrap_or_default();
    let blocks = rows.iter().filter(|row| matches!(row.kind, Kind::Block { .. })).count();
    blocks as u64 * u64::from(BLOCK_BYTES)
}

/// Number of places that serve, and which volumes with so many replicas use.
fn serving(map: &AnyMap, replicas: usize) -> usize {
    let of = |group| map.row(group).take(replicas).flatten().filter(|place| !place.filling).count();
    (0..map.groups()).map(of).sum()
}

/// The SSDs that have places, or are to have some.
pub(crate) fn members(map: &AnyMap) -> BTreeSet<u16> {
    let places = |group| map.row(group).flatten().map(|place| place.ssd).chain(incoming(map, group));
    (0..map.groups()).flat_map(places).collect()
}

fn incoming(map: &AnyMap, group: u32) -> Option<u16> {
    map.incoming(group).map(|incoming| incoming.ssd)
}

fn name(client: ClientId) -> VolumeName {
    VolumeName::new(&format!("sim-{}", client.get())).expect("letters and digits")
}

/// The request that makes a client's volume.
pub(crate) fn create(client: ClientId, blocks: u32, replicas: u8, chunk_shift: u8) -> Request {
    let capacity_blocks = blocks.into();
    let limits = Limits::default();
    let (name, labels, request_id) = (name(client), String::new(), None);
    Request::Create(Create {
        name,
        capacity_blocks,
        replicas,
        chunk_shift,
        client,
        labels,
        request_id,
        limits,
    })
}

/// The request that opens it for its writer.
pub(crate) fn open(client: ClientId) -> Request {
    let rights = Rights::Write { lease_ms: LEASE_MS };
    Request::Open { name: name(client), client, rights, follows_drains: true }
}

/// The request that renews its lease, and says which SSDs it reaches. A writer sends it when it follows a
/// map.
fn renewal(client: &Client) -> Request {
    let Volume { client: id, lease_epoch, .. } = *client.volume();
    Request::Renew {
        name: name(id),
        client: id,
        lease_epoch,
        lease_ms: LEASE_MS,
        reaches: Some(client.reaches()),
        in_doubt: false,
        follows_drains: true,
    }
}

/// A volume as the daemon made it.
pub(crate) fn volume_of(entry: &VolumeEntry, client: ClientId, map: &Arc<AnyMap>) -> Volume {
    Volume {
        vid: entry.vid,
        client,
        factor: entry.factor,
        replicas: entry.replicas,
        chunk_shift: entry.chunk_shift,
        lease_epoch: entry.lease_epoch,
        blocks: u32::try_from(entry.capacity_blocks).expect("at most 4 GiB"),
        map: Arc::clone(map),
    }
}
