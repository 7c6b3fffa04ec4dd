// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A world: SSDs, clients, one clock. It is set up as daemon and hosts would do it, and then it runs.
//!
//! ```text
//!   Agenda --(time, actor)--> an SSD: its engine does what is due; its arrivals go to the clients
//!                         `-> a client: it sends what it can; the SSDs that it sent to are woken
//! ```

mod found;
mod plan;

pub use plan::Plan;

use crate::agenda::Agenda;
use crate::client::{CHUNK_SHIFT, Client};
use crate::dice::Dice;
use crate::fleet::{Fleet, GROUPS};
use crate::initiator::{SLOTS, Volume};
use crate::load::Load;
use crate::port::Port;
use crate::ssd::{SsdActor, WorldError, client_of};
use crate::zipf::Zipf;
use gnstor_base::time::{Span, Time};
use gnstor_fabric::transport::{RcTransport, TransportConfig};
use gnstor_proto::fabrics::Identity;
use gnstor_proto::placement::{AnyMap, FleetMap, mix64};
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::vendor::{Limits, VolumeEntry};
use std::sync::Arc;

/// Largest number of SSDs in one array: as many as a channel reaches.
pub const CELL: usize = 64;
/// Fewest commands in flight to one SSD (`LEAST_DEPTH` in `gnor/src/layout.rs`).
const LEAST_DEPTH: usize = 32;
/// Longest virtual time that the fill may take.
const FILL_LIMIT: Span = Span::from_ms(600_000);

/// SSDs and clients.
pub struct World {
    now: Time,
    agenda: Agenda,
    ssds: Vec<SsdActor>,
    clients: Vec<Client>,
    /// First SSD and first client of each array. A last entry marks the end.
    cells: Vec<Cell>,
    /// Array of each SSD.
    cell_of: Vec<usize>,
    /// The array with the SSD that fails, and its fleet.
    fleet: Option<(usize, Fleet)>,
    trace: u64,
    steps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    first_ssd: usize,
    first_client: usize,
}

/// When a request began, and when it ended.
pub type Ended = (Time, Time);

/// Largest number of commands in flight to one SSD, in an array of `ssds` SSDs.
fn queue_depth(ssds: usize) -> u32 {
    let each = SLOTS.div_ceil(ssds.max(1)).next_power_of_two().max(LEAST_DEPTH);
    u32::try_from(each).expect("at most 128")
}

/// Number of arrays in a world: as few as possible, of about equal size, with at most [`CELL`] SSDs each.
pub(crate) fn cells_of(plan: &Plan) -> usize {
    plan.ssds.div_ceil(CELL)
}

impl World {
    /// Makes the SSDs, with their volumes and sessions. No request has been sent yet.
    ///
    /// # Errors
    /// If an SSD cannot be made, or refuses a command.
    pub fn new(plan: &Plan) -> Result<Self, WorldError> {
        let count = cells_of(plan);
        let cells: Vec<Cell> = (0..=count)
            .map(|cell| Cell {
                first_ssd: cell * plan.ssds / count,
                first_client: cell * plan.clients / count,
            })
            .collect();
        let config = TransportConfig { link: plan.link, ..TransportConfig::default() };
        let wires: Vec<RcTransport> = (0..plan.nodes).map(|_| RcTransport::new(config)).collect();
        let mut world = Self {
            now: Time::from_ns(1_000_000),
            agenda: Agenda::new(plan.ssds + plan.clients + 1, Dice::new(plan.seed, 0)),
            ssds: Vec::with_capacity(plan.ssds),
            clients: Vec::with_capacity(plan.clients),
            cell_of: Vec::with_capacity(plan.ssds),
            cells,
            fleet: None,
            trace: plan.seed,
            steps: 0,
        };
        let mut volumes = Vec::with_capacity(count);
        for cell in 0..count {
            volumes.push(world.add_cell(plan, cell, &wires)?);
        }
        for ssd in 0..plan.ssds {
            world.agenda.wake(index(ssd), world.now);
        }
        if let Some((cell, _)) = world.fleet {
            volumes[cell] = world.found_fleet(plan, cell)?;
        }
        for (cell, volumes) in volumes.into_iter().enumerate() {
            world.add_clients(plan, cell, volumes);
        }
        Ok(world)
    }

    /// Makes the SSDs of an array. Returns the volumes of its clients.
    fn add_cell(
        &mut self,
        plan: &Plan,
        cell: usize,
        wires: &[RcTransport],
    ) -> Result<Vec<Volume>, WorldError> {
        let [at, end] = [self.cells[cell], self.cells[cell + 1]];
        let ssds = end.first_ssd - at.first_ssd;
        let map = FleetMap::equal(ssds, GROUPS, mix64(plan.seed ^ cell as u64), 1).expect("1 to 64 SSDs");
        let (map, bytes) = (Arc::new(AnyMap::from(map.clone())), map.encode());
        let volumes: Vec<Volume> =
            (at.first_client..end.first_client).map(|client| volume(plan, client, &map)).collect();
        let entries: Vec<VolumeEntry> = volumes.iter().map(entry).collect();
        let queue = u16::try_from(2 * queue_depth(ssds)).expect("at most 256");
        let has_fleet = plan.fail.is_some_and(|fail| (at.first_ssd..end.first_ssd).contains(&fail.ssd));
        let mut begin = self.now;
        for number in at.first_ssd..end.first_ssd {
            let position = u16::try_from(number - at.first_ssd).expect("at most 64");
            let engine = wires[number * plan.nodes / plan.ssds].sibling();
            let mut ssd =
                SsdActor::new(number, position, engine, (plan.preset.clone(), plan.pace), plan.ssd_bytes)?;
            let mut now = Time::from_ns(1_000_000);
            if has_fleet {
                ssd.keep_asks();
                ssd.port.move_real_blocks();
            } else {
                now = ssd.found(now, position, &bytes, &entries)?;
            }
            for (client, volume) in (at.first_client..).zip(&volumes) {
                let identity = Identity::Client(volume.client);
                now = ssd.admit(now, index(client), identity, (queue, position))?;
            }
            begin = begin.max(now);
            self.ssds.push(ssd);
            self.cell_of.push(cell);
        }
        self.now = begin;
        if let Some(fail) = plan.fail.filter(|_| has_fleet) {
            let shape = (u16::try_from(ssds).expect("at most 64"), plan.ssd_bytes);
            self.fleet = Some((cell, Fleet::new(begin, shape, plan.seed, fail.out_after)));
        }
        Ok(volumes)
    }

    fn add_clients(&mut self, plan: &Plan, cell: usize, volumes: Vec<Volume>) {
        let [at, end] = [self.cells[cell], self.cells[cell + 1]];
        let ssds = &self.ssds[at.first_ssd..end.first_ssd];
        let ports: Vec<Port> = ssds.iter().map(|ssd| ssd.port.clone()).collect();
        let depth = queue_depth(ssds.len());
        let follows = self.fleet.as_ref().is_some_and(|(of, _)| *of == cell);
        let zipf = (plan.zipf_permille > 0).then(|| Arc::new(Zipf::new(plan.units, plan.zipf_permille)));
        for (client, volume) in (at.first_client..).zip(volumes) {
            let dice = Dice::new(plan.seed, 1 + client as u64);
            let load = Load::new(plan.rw, (plan.unit_blocks, plan.units), plan.depth, zipf.clone(), dice);
            let mut client = Client::new(index(client), volume, ports.clone(), depth, load);
            if follows {
                client.follow_maps();
            }
            self.clients.push(client);
        }
    }

    /// Every client writes its volume once.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn fill(&mut self) -> Result<(), WorldError> {
        self.clients.iter_mut().for_each(|client| client.load().fill());
        let limit = self.now + FILL_LIMIT;
        self.wake_clients();
        loop {
            self.advance(self.now + Span::from_ms(1), |_| ())?;
            if self.clients.iter().all(|client| client.in_flight() == 0) {
                return Ok(());
            }
            if self.now > limit {
                return Err(WorldError::FillTooLong(FILL_LIMIT.as_ns() / 1_000_000_000));
            }
        }
    }

    /// Runs the clients until `until`, and passes each request that ends to `ended`.
    ///
    /// # Errors
    /// If an SSD refuses a command, a connection breaks, or a read returns wrong data.
    pub fn run(&mut self, until: Time, ended: impl FnMut(Ended)) -> Result<(), WorldError> {
        self.clients.iter_mut().for_each(|client| client.load().run(until));
        self.wake_clients();
        self.advance(until, ended)
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Hash of every step and of the end of every request. Two runs that behave the same have the same hash.
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Number of actors' steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Number of times at which an SSD was still due after its steps. Each time its clock advanced by a
    /// microsecond.
    pub fn nudges(&self) -> u64 {
        self.ssds.iter().map(|ssd| ssd.nudges).sum()
    }

    /// Number of blocks sent to each SSD, read or written.
    pub(crate) fn sent_blocks(&self) -> Vec<u64> {
        let mut sent = vec![0; self.ssds.len()];
        for (cell, pair) in self.cells.windows(2).enumerate() {
            let clients = &self.clients[pair[0].first_client..self.cells[cell + 1].first_client];
            for blocks in clients.iter().map(Client::sent_blocks) {
                let of_cell = &mut sent[pair[0].first_ssd..];
                of_cell.iter_mut().zip(blocks).for_each(|(sum, blocks)| *sum += blocks);
            }
        }
        sent
    }

    fn wake_clients(&mut self) {
        let ssds = self.ssds.len();
        (0..self.clients.len()).for_each(|client| self.agenda.wake(index(ssds + client), self.now));
    }

    /// Steps actors in the order of their times, until none is due before `until`.
    fn advance(&mut self, until: Time, mut ended: impl FnMut(Ended)) -> Result<(), WorldError> {
        while let Some((at, actor)) = self.agenda.pop() {
            if at >= until {
                self.agenda.wake(actor, at);
                self.now = until;
                return Ok(());
            }
            self.now = at;
            self.steps += 1;
            self.note(at.as_ps() ^ u64::from(actor) << 48);
            let actor = actor as usize;
            if actor == self.fleet_actor() as usize {
                self.step_fleet(at)?;
            } else if actor < self.ssds.len() {
                self.step_ssd(at, actor)?;
            } else {
                let client = actor - self.ssds.len();
                let next = self.step_client(at, client)?;
                let mut list = std::mem::take(&mut self.clients[client].load().ended);
                for (start, end) in list.drain(..) {
                    self.note(start.as_ps());
                    ended((start, end));
                }
                self.clients[client].load().ended = list;
                if next != Time::NEVER {
                    self.agenda.wake(index(actor), next);
                }
            }
        }
        self.now = until;
        let waiting = self.clients.iter().map(|client| client.in_flight() as u64).sum();
        if waiting > 0 { Err(WorldError::Stuck(waiting)) } else { Ok(()) }
    }

    fn note(&mut self, word: u64) {
        self.trace = mix64(self.trace ^ word);
    }

    fn step_ssd(&mut self, now: Time, number: usize) -> Result<(), WorldError> {
        let ssd = &mut self.ssds[number];
        let next = ssd.step(now);
        let mut list = ssd.arrived();
        let asked = ssd.asked();
        if next != Time::NEVER {
            self.agenda.wake(index(number), next);
        }
        let cell = self.cell_of[number];
        let position = u16::try_from(number - self.cells[cell].first_ssd).expect("below 64");
        let has_fleet = self.fleet.as_ref().is_some_and(|(of, _)| *of == cell);
        if let Some((_, fleet)) = self.fleet.as_mut().filter(|_| !asked.is_empty()) {
            fleet.asks(position, asked);
            self.wake_fleet();
        }
        let actors = self.ssds.len();
        for (qpn, arrived) in list.drain(..) {
            let Some(client) = client_of(qpn) else {
                if has_fleet {
                    self.give_fleet(now, position, (qpn, arrived));
                }
                continue;
            };
            if let Some(to) = self.clients.get_mut(client as usize) {
                to.take(position, arrived)?;
                self.agenda.wake(index(actors + client as usize), now);
            }
        }
        self.ssds[number].keep(list);
        Ok(())
    }

    fn step_client(&mut self, now: Time, number: usize) -> Result<Time, WorldError> {
        let next = self.clients[number].step(now)?;
        let touched = self.clients[number].touched();
        let cell = self.cells.partition_point(|cell| cell.first_client <= number) - 1;
        for ssd in &touched {
            self.agenda.wake(index(self.cells[cell].first_ssd + usize::from(*ssd)), now);
        }
        self.clients[number].keep(touched);
        if self.clients[number].has_suspicion() {
            self.wake_fleet();
        }
        Ok(next)
    }
}

fn index(number: usize) -> u32 {
    u32::try_from(number).expect("far fewer actors than 2^32")
}

/// The id of a client.
fn volume_client(client: usize) -> ClientId {
    let raw = u16::try_from(client + 1).expect("at most 1,024 clients");
    ClientId::new(raw).expect("from 1 on")
}

fn volume(plan: &Plan, client: usize, map: &Arc<AnyMap>) -> Volume {
    let raw = u16::try_from(client + 1).expect("at most 1,024 clients");
    Volume {
        vid: Vid::new(raw).expect("from 1 on"),
        client: volume_client(client),
        factor: mix64(plan.seed ^ u64::from(raw) << 32),
        replicas: plan.replicas,
        chunk_shift: CHUNK_SHIFT,
        lease_epoch: 1,
        blocks: plan.units * plan.unit_blocks,
        map: Arc::clone(map),
    }
}

/// The entry of a volume. Its client holds the write lease for longer than any run.
fn entry(volume: &Volume) -> VolumeEntry {
    let Volume { vid, client, factor, replicas, chunk_shift, lease_epoch, blocks, .. } = *volume;
    VolumeEntry {
        vid,
        generation: 1,
        version: 1,
        term: 1,
        deleting: false,
        name: format!("sim-{}", client.get()),
        labels: String::new(),
        capacity_blocks: blocks.into(),
        replicas,
        chunk_shift,
        factor,
        owner: client,
        any_reader: false,
        readers: vec![client],
        writer: Some(client),
        unsettled: false,
        lease_epoch,
        lease_ms: 3_600_000,
        request_ids: Vec::new(),
        limits: Limits::default(),
        salvaged_s: 0,
    }
}
