// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Client ids: which principal has each, the connection that keeps it, and the volumes opened with it.
//!
//! ```text
//!   Register --> kept by a connection --closed--> waits --time is over--> ends: its opens are released
//!                    ^                              |                        '--> free for another client
//!                    '--a call that names the id----'
//! ```
//! An id whose connection closed waits: a client that lost its connection comes back with a call. An id
//! without opens waits a short time, and gives way at once when ids run out.
//!
//! If ids run out, and none waits, an id without opens gives way though its connection lives. It is one of
//! the connection that keeps most of them. So an id with opens never gives way, nor does the only one of its
//! connection. A client that shows its registration is told on its next call.
//!
//! An id that a daemon before this one gave is *inherited*. It waits like one whose connection closed, so
//! what a dead client had open ends after a restart, too. A caller with a right to all that it has open
//! adopts it.

mod idle;
mod inherited;
mod numbers;
mod quotas;
mod rest;

use idle::{Idle, Opens};
pub use quotas::Quotas;
use rest::Resting;

use super::failure::Failure;
use super::rights::{Caller, HUNG_UP};
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::status::GrpcCode::{PermissionDenied, ResourceExhausted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often the end of an id is looked at while an SSD has not taken the release of its opens.
const END_MS: u64 = 500;
/// Shortest time between two searches of everything. Callers can cause them.
const SEARCH_MS: u64 = 1_000;

#[derive(Debug)]
struct Client {
    principal: Arc<str>,
    /// Number of its registration. It is not known of an inherited id, until a call proves it.
    serial: Option<u64>,
    /// This daemon gave the id, so it knows the serial.
    is_ours: bool,
    connection: Option<u64>,
    /// When a caller last named it: later calls have higher numbers.
    used: u64,
    /// Time at which the id ends or is checked again.
    ends_at: Option<u64>,
    /// Volumes opened with it. Some may have been released since: the entries decide.
    opens: BTreeSet<Vid>,
    ending: bool,
    /// The name of the id's caller is proven, so what this caller may read others may not.
    is_proven: bool,
    /// Volumes whose entries name it no more, which some SSD may not have heard yet.
    named_early: BTreeSet<Vid>,
    /// An earlier daemon gave the id, and its principal is not known.
    inherited: bool,
}

/// All ids.
#[derive(Debug)]
pub(super) struct Clients {
    quotas: Quotas,
    /// Ids that no entry names, and no client has.
    free: BTreeSet<ClientId>,
    /// Ids that no client has any more, and that an SSD may still name. Another client with such an id could
    /// do there what the former one could.
    resting: BTreeMap<ClientId, Resting>,
    /// Ids of clients that some SSD may still name in an entry. They give no way.
    early: BTreeSet<ClientId>,
    /// When the SSDs are looked at next.
    next_rest: u64,
    /// Where the search for a free id begins.
    next: u32,
    /// Earliest time at which all entries are searched again for ids that none names any more.
    next_search: u64,
    /// Earliest time at which all clients are searched again for opens that have ended.
    next_count: u64,
    given: BTreeMap<ClientId, Client>,
    by_connection: BTreeMap<u64, BTreeSet<ClientId>>,
    by_principal: BTreeMap<Arc<str>, BTreeSet<ClientId>>,
    ends: BTreeSet<(u64, ClientId)>,
    idle: Idle,
    opens: Opens,
    /// Calls that named an id of a client.
    uses: u64,
    /// Registrations of this daemon.
    registrations: u32,
    /// Serials of the last registrations, also of ids that are forgotten: their clients may come back.
    serials: BTreeMap<ClientId, u64>,
    /// Ids whose earlier holders SSDs are to end since the last look, and the lowest serials that may be of
    /// later ones.
    ended: Vec<(ClientId, u64)>,
}

impl Clients {
    pub(super) fn new(quotas: Quotas) -> Self {
        Self {
            quotas,
            free: quotas.all().collect(),
            resting: BTreeMap::new(),
            early: BTreeSet::new(),
            next_rest: 0,
            next: ClientId::MIN.get().into(),
            next_search: 0,
            next_count: 0,
            given: BTreeMap::new(),
            by_connection: BTreeMap::new(),
            by_principal: BTreeMap::new(),
            ends: BTreeSet::new(),
            idle: Idle::default(),
            opens: Opens::default(),
            uses: 0,
            registrations: 0,
            serials: BTreeMap::new(),
            ended: Vec::new(),
        }
    }

    /// The id is in use by an entry.
    pub(super) fn note(&mut self, client: ClientId) {
        self.free.remove(&client);
        self.end_rest(client);
    }

    /// Changes a client, and where its id is listed.
    fn change<T>(&mut self, id: ClientId, change: impl FnOnce(&mut Client) -> T) -> Option<T> {
        let client = self.given.get_mut(&id)?;
        let (place, ends_at) = (client.place(), client.ends_at);
        self.opens.take(client);
        let result = change(client);
        self.opens.add(client);
        self.idle.moves(id, place, client.place());
        if client.ends_at != ends_at {
            ends_at.map(|at| self.ends.remove(&(at, id)));
            client.ends_at.map(|at| self.ends.insert((at, id)));
        }
        Some(result)
    }

    fn forget(&mut self, id: ClientId) {
        let kept = self.change(id, |client| {
            (client.ends_at, client.ending) = (None, true);
            client.opens.clear();
            client.connection.take()
        });
        let (Some(kept), Some(client)) = (kept, self.given.remove(&id)) else { return };
        self.early.remove(&id);
        // A caller without a name of its own may come back with a forgotten id ([`Self::take`]).
        if let Some(serial) = client.serial.filter(|_| client.is_proven) {
            self.ended.push((id, serial.saturating_add(1)));
        }
        if let Some(connection) = kept {
            remove(&mut self.by_connection, &connection, &id);
        }
        if client.named_early.is_empty() {
            remove(&mut self.by_principal, &client.principal, &id);
            self.set_free(id);
        } else {
            self.resting.insert(id, Resting { principal: client.principal, named: client.named_early });
        }
    }

    fn set_free(&mut self, id: ClientId) {
        if id <= self.quotas.ids {
            self.free.insert(id);
        }
    }

    /// A caller names an id. It is the caller's, and its connection keeps the id as long as it lives.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`: another principal has registered the id, or another client, or none has.
    pub(super) fn take(&mut self, caller: &Caller, id: ClientId) -> Result<(), Failure> {
        if caller.single && self.given.get(&id).is_some_and(|client| client.inherited && !client.ending) {
            self.adopt(caller, id);
        }
        let Some(client) = self.given.get(&id) else {
            if caller.single {
                // An earlier daemon may have given it, so no other client gets it.
                self.note(id);
                return Ok(());
            }
            return Err(foreign(caller, id));
        };
        let is_own = caller.single || client.principal == caller.name;
        if !is_own || client.inherited || client.ending {
            return Err(foreign(caller, id));
        }
        let shown = caller.client.registration(id);
        let is_other = |serial| shown.is_some_and(|shown| shown < serial || client.is_ours && shown > serial);
        if client.serial.is_some_and(is_other) {
            return Err(gone(id));
        }
        self.learn(caller, id);
        if caller.connection == HUNG_UP {
            return Ok(());
        }
        self.uses += 1;
        let (used, connection) = (self.uses, caller.connection);
        let keep = |client: &mut Client| {
            (client.ends_at, client.used) = (None, used);
            client.connection.replace(connection)
        };
        if let Some(old) = self.change(id, keep).flatten().filter(|&old| old != connection) {
            remove(&mut self.by_connection, &old, &id);
        }
        self.by_connection.entry(connection).or_default().insert(id);
        Ok(())
    }

    /// A caller opens a volume that has these readers.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: the caller's ids are so many of them that others would find no place.
    pub(super) fn read(&self, caller: &Caller, name: &str, readers: &[ClientId]) -> Result<(), Failure> {
        let Quotas { volume_readers: most, spared_readers, .. } = self.quotas;
        let clients = || readers.iter().filter_map(|id| self.given.get(id));
        let own = clients().filter(|client| client.principal == caller.name).count();
        let here = clients().filter(|client| client.connection == Some(caller.connection)).count();
        let message = if !caller.single && own >= most {
            format!(
                "{:?} has volume {name} open for reading with {own} client ids, the most for one principal: \
                 release an id that is not in use",
                caller.name
            )
        } else if readers.len() >= most && here >= spared_readers {
            format!(
                "volume {name} has {} readers, {here} of them client ids of this connection. Its last places are \
                 for connections with fewer than {spared_readers}: release an id that is not in use",
                readers.len()
            )
        } else {
            return Ok(());
        };
        Err(Failure::new(ResourceExhausted, message))
    }

    /// The principal of an id; `None` if callers prove no names, or while it is known by an earlier daemon
    /// only.
    pub(super) fn principal(&self, id: ClientId) -> Option<Arc<str>> {
        let client = self.given.get(&id).filter(|client| client.is_proven && !client.inherited)?;
        Some(client.principal.clone())
    }

    /// The ids of a principal.
    pub(super) fn of(&self, principal: &str) -> BTreeSet<ClientId> {
        self.by_principal.get(principal).cloned().unwrap_or_default()
    }

    /// A caller opens a volume. `holds` says whether an id still has a right to a volume.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: too many opens.
    pub(super) fn open(
        &mut self,
        now: u64,
        caller: &Caller,
        (id, vid): (ClientId, Vid),
        holds: impl Fn(ClientId, Vid) -> bool,
    ) -> Result<(), Failure> {
        if !self.given.contains_key(&id) {
            self.has_room(caller)?;
            self.meet(now, caller, id);
        }
        if self.given.get(&id).is_some_and(|client| client.opens.contains(&vid)) {
            return Ok(());
        }
        if self.is_full(caller).is_some() && now >= self.next_count {
            self.next_count = now + SEARCH_MS;
            for id in self.given.keys().copied().collect::<Vec<_>>() {
                self.change(id, |client| client.opens.retain(|&vid| holds(id, vid)));
            }
        }
        if let Some(message) = self.is_full(caller) {
            return Err(Failure::new(ResourceExhausted, message));
        }
        self.change(id, |client| client.opens.insert(vid));
        Ok(())
    }

    /// A sentence if the caller can open no further volume.
    fn is_full(&self, caller: &Caller) -> Option<String> {
        let Quotas { principal_opens, opens, spared_opens, .. } = self.quotas;
        let (own, all) = (self.opens.of(&caller.name), self.opens.all());
        let here = self.opens.kept_by(caller.connection);
        let is_full = (!caller.single && own >= principal_opens)
            || all >= opens
            || (all >= opens / 4 * 3 && here >= spared_opens);
        is_full.then(|| {
            format!(
                "{:?} has {own} volumes open, {here} of them by this connection, and all clients have {all}: \
                 release volumes that are not in use",
                caller.name
            )
        })
    }

    /// A connection closed: its ids wait.
    pub(super) fn closed(&mut self, now: u64, connection: u64) {
        for id in self.by_connection.remove(&connection).unwrap_or_default() {
            let quotas = self.quotas;
            self.change(id, |client| {
                let wait = if client.opens.is_empty() { quotas.idle_ms } else { quotas.open_ms };
                client.connection = None;
                client.ends_at = Some(now + wait);
            });
        }
    }

    pub(super) fn wakes_at(&self) -> Option<u64> {
        let rests = !self.resting.is_empty() || !self.early.is_empty();
        let rest = rests.then_some(self.next_rest);
        self.ends.first().map(|&(at, _)| at).into_iter().chain(rest).min()
    }

    /// Ends the ids whose time is over. Ids without opens become free. Returns the opens of the others, for
    /// the caller to release. `holds` as in [`Self::open`].
    pub(super) fn step(&mut self, now: u64, holds: impl Fn(ClientId, Vid) -> bool) -> Vec<(ClientId, Vid)> {
        let mut releases = Vec::new();
        while let Some(&(at, id)) = self.ends.first().filter(|&&(at, _)| at <= now) {
            let opens = self.change(id, |client| {
                client.opens.retain(|&vid| holds(id, vid));
                client.ending |= !client.opens.is_empty();
                client.ends_at = Some(now + END_MS);
                client.opens.iter().map(|&vid| (id, vid)).collect::<Vec<_>>()
            });
            match opens {
                None => _ = self.ends.remove(&(at, id)),
                Some(opens) if opens.is_empty() => self.forget(id),
                Some(opens) => releases.extend(opens),
            }
        }
        releases
    }

    /// The time of the id is over, and what it has open is being released.
    pub(super) fn is_ending(&self, id: ClientId) -> bool {
        self.given.get(&id).is_some_and(|client| client.ending)
    }

    /// Number of ids that clients have.
    pub(super) fn len(&self) -> usize {
        self.given.len()
    }
}

fn remove<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

fn foreign(caller: &Caller, id: ClientId) -> Failure {
    Failure::new(
        PermissionDenied,
        format!(
            "client id {id} is not one of {:?}: use the id that Register gave, or register again",
            caller.name
        ),
    )
}

/// What the client of an earlier registration is told.
fn gone(id: ClientId) -> Failure {
    Failure::new(
        PermissionDenied,
        format!(
            "client id {id} is of another client now: it had nothing open, and gave way when ids ran out; \
             register again"
        ),
    )
}

#[cfg(test)]
mod tests;
