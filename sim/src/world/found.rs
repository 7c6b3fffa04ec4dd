// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The array of a world in which an SSD fails: how its daemon sets it up, and the steps of its fleet.

use super::{Cell, World, index, volume_client};
use crate::agenda::Agenda;
use crate::client::{CHUNK_SHIFT, Client};
use crate::fleet::{self, Array, Course, Fail, Fleet};
use crate::initiator::Volume;
use crate::port::Arrived;
use crate::ssd::{SsdActor, WorldError};
use crate::world::Plan;
use gnstor_base::time::{Span, Time};
use gnstor_daemon::core::Reply;
use gnstor_daemon::core::request::Request;
use gnstor_proto::placement::AnyMap;
use std::sync::Arc;

/// Longest virtual time that a daemon may take to begin, or to answer.
const FLEET_LIMIT: Span = Span::from_ms(10_000);
/// SSDs that have a map connect to the voters, and have got their leases after this time.
const LEASES_BEGIN: Span = Span::from_ms(500);
impl World {
    /// The daemon begins to serve, makes a volume for each client, and opens it for that client.
    pub(super) fn found_fleet(&mut self, plan: &Plan, cell: usize) -> Result<Vec<Volume>, WorldError> {
        let clients = self.cells[cell].first_client..self.cells[cell + 1].first_client;
        self.wait_for("serve", |fleet, _| Ok(fleet.serves().then_some(())))?;
        self.wake_fleet();
        self.advance(self.now + LEASES_BEGIN, |_| ())?;
        let ids = |client: usize| volume_client(client);
        let blocks = plan.units * plan.unit_blocks;
        let mut entries = Vec::new();
        for client in clients.clone() {
            self.ask(fleet::create(ids(client), blocks, plan.replicas, CHUNK_SHIFT))?;
            match self.ask(fleet::open(ids(client)))? {
                Reply::Opened { volume, .. } => entries.push(volume),
                _ => return Err(WorldError::Daemon("an Open has another answer".into())),
            }
        }
        let Reply::Map(bytes) = self.ask(Request::GetMap)? else {
            return Err(WorldError::Daemon("it has no map".into()));
        };
        let map = AnyMap::decode(&bytes).map_err(|cause| WorldError::Daemon(format!("its map: {cause}")))?;
        let map = Arc::new(map);
        if let Some((_, fleet)) = &mut self.fleet {
            fleet.begin(Arc::clone(&map), plan.replicas.into(), clients.clone().map(index));
        }
        Ok(clients.zip(&entries).map(|(client, entry)| fleet::volume_of(entry, ids(client), &map)).collect())
    }

    /// Asks the daemon, and waits for its answer.
    fn ask(&mut self, request: Request) -> Result<Reply, WorldError> {
        let now = self.now;
        let Some((_, fleet)) = &mut self.fleet else { return Err(WorldError::Late("answer")) };
        let ticket = fleet.ask(now, request);
        self.wait_for("answer", |fleet, _| fleet.answer(ticket))
    }

    fn wait_for<T>(
        &mut self,
        what: &'static str,
        mut done: impl FnMut(&mut Fleet, Time) -> Result<Option<T>, WorldError>,
    ) -> Result<T, WorldError> {
        let limit = self.now + FLEET_LIMIT;
        while self.now < limit {
            self.wake_fleet();
            self.advance(self.now + Span::from_ms(1), |_| ())?;
            if let Some((_, fleet)) = &mut self.fleet
                && let Some(got) = done(fleet, self.now)?
            {
                return Ok(got);
            }
        }
        Err(WorldError::Late(what))
    }

    /// The SSD that is to fail does so at this time.
    pub(crate) fn fail_at(&mut self, fail: Fail, at: Time) {
        let now = self.now;
        if let Some((cell, fleet)) = &mut self.fleet {
            let first = self.cells[*cell].first_ssd;
            fleet.fail(u16::try_from(fail.ssd - first).expect("at most 64"), at);
            self.clients.iter_mut().for_each(|client| client.begin(now));
        }
        self.wake_fleet();
    }

    /// What followed from the failure, and the longest pause of a client.
    pub(crate) fn course(&self) -> Option<(Course, Span)> {
        let pause = self.clients.iter().map(|client| client.longest_pause(self.now)).max();
        self.fleet.as_ref().map(|(_, fleet)| (fleet.course, pause.unwrap_or(Span::ZERO)))
    }

    /// The actor's number of the fleet.
    pub(super) fn fleet_actor(&self) -> u32 {
        index(self.ssds.len() + self.cells.last().map_or(0, |end| end.first_client))
    }

    pub(super) fn wake_fleet(&mut self) {
        if self.fleet.is_some() {
            self.agenda.wake(self.fleet_actor(), self.now);
        }
    }

    pub(super) fn step_fleet(&mut self, now: Time) -> Result<(), WorldError> {
        let (actor, first) = (self.fleet_actor(), self.ssds.len());
        let Self { fleet: Some((cell, fleet)), cells, ssds, clients, agenda, .. } = self else {
            return Ok(());
        };
        let mut array = array_of(cells, *cell, ssds, clients);
        let next = fleet.step(&mut array, now)?;
        wake_array(agenda, cells[*cell], &mut array, (now, first));
        agenda.wake(actor, next);
        Ok(())
    }

    /// Hands the fleet what is no answer to a client's request.
    pub(super) fn give_fleet(&mut self, now: Time, position: u16, (qpn, arrived): (u32, Arrived)) {
        let (actor, first) = (self.fleet_actor(), self.ssds.len());
        let Self { fleet: Some((cell, fleet)), cells, ssds, clients, agenda, .. } = self else { return };
        let mut array = array_of(cells, *cell, ssds, clients);
        fleet.arrived(&mut array, now, (position, qpn, arrived));
        wake_array(agenda, cells[*cell], &mut array, (now, first));
        agenda.wake(actor, now);
    }
}

fn array_of<'a>(
    cells: &[Cell],
    cell: usize,
    ssds: &'a mut [SsdActor],
    clients: &'a mut [Client],
) -> Array<'a> {
    let (at, end) = (cells[cell], cells[cell + 1]);
    let clients = clients.get_mut(at.first_client..end.first_client).unwrap_or_default();
    Array { ssds: &mut ssds[at.first_ssd..end.first_ssd], clients }
}

/// Wakes what the fleet gave something to do. Clients have the numbers from `first` on.
fn wake_array(agenda: &mut Agenda, at: Cell, array: &mut Array<'_>, (now, first): (Time, usize)) {
    for ssd in array.ssds.iter_mut() {
        if ssd.take_touch() {
            agenda.wake(index(ssd.number), now);
        }
    }
    for (number, client) in (first + at.first_client..).zip(array.clients.iter_mut()) {
        if client.take_news() {
            agenda.wake(index(number), now);
        }
    }
}
