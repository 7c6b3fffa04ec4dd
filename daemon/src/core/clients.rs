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
//! An id that a daemon before this one gave is *inherited*. It waits like one whose connection closed, so
//! what a dead client had open ends after a restart, too. A caller with a right to all that it has open
//! adopts it.

mod inherited;
mod numbers;
mod quotas;

pub use quotas::Quotas;

use super::failure::Failure;
use super::rights::Caller;
use gnstor_proto::slba::{ClientId, Vid};
use gnstor_proto::status::GrpcCode::{PermissionDenied, ResourceExhausted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often the end of an id is looked at while an SSD has not taken the release of its opens.
const END_MS: u64 = 500;

#[derive(Debug)]
struct Client {
    principal: Arc<str>,
    connection: Option<u64>,
    /// Time at which the id ends or is checked again.
    ends_at: Option<u64>,
    /// Volumes opened with it. Some may have been released since: the entries decide.
    opens: BTreeSet<Vid>,
    ending: bool,
    /// An earlier daemon gave the id, and its principal is not known.
    inherited: bool,
}

/// All ids.
#[derive(Debug)]
pub(super) struct Clients {
    quotas: Quotas,
    /// Whether an id is named by an entry, or was given to a client; by id.
    seen: Vec<bool>,
    next: u32,
    given: BTreeMap<ClientId, Client>,
    by_connection: BTreeMap<u64, BTreeSet<ClientId>>,
    by_principal: BTreeMap<Arc<str>, BTreeSet<ClientId>>,
    ends: BTreeSet<(u64, ClientId)>,
    /// Registrations of this daemon.
    registrations: u32,
}

impl Clients {
    pub(super) fn new(quotas: Quotas) -> Self {
        Self {
            quotas,
            seen: vec![false; 1 << 16],
            next: ClientId::MIN.get().into(),
            given: BTreeMap::new(),
            by_connection: BTreeMap::new(),
            by_principal: BTreeMap::new(),
            ends: BTreeSet::new(),
            registrations: 0,
        }
    }

    /// The id is in use by an entry.
    pub(super) fn note(&mut self, client: ClientId) {
        self.seen[usize::from(client.get())] = true;
    }

    fn forget(&mut self, id: ClientId) {
        let Some(client) = self.given.remove(&id) else { return };
        self.seen[usize::from(id.get())] = false;
        if let Some(at) = client.ends_at {
            self.ends.remove(&(at, id));
        }
        if let Some(connection) = client.connection {
            remove(&mut self.by_connection, &connection, id);
        }
        remove(&mut self.by_principal, &client.principal, id);
    }

    /// A caller names an id. It is the caller's, and its connection keeps the id from now on.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`: another principal has registered the id, or none has.
    pub(super) fn take(&mut self, caller: &Caller, id: ClientId) -> Result<(), Failure> {
        if caller.single && self.given.get(&id).is_some_and(|client| client.inherited && !client.ending) {
            self.adopt(caller, id);
        }
        let Some(client) = self.given.get_mut(&id) else {
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
        if client.connection == Some(caller.connection) {
            return Ok(());
        }
        if let Some(at) = client.ends_at.take() {
            self.ends.remove(&(at, id));
        }
        if let Some(old) = client.connection.replace(caller.connection) {
            remove(&mut self.by_connection, &old, id);
        }
        self.by_connection.entry(caller.connection).or_default().insert(id);
        Ok(())
    }

    /// The id has no right to the volume any more. If it has no other open and its connection has closed, it
    /// waits like an id without opens.
    pub(super) fn released(&mut self, now: u64, id: ClientId, vid: Vid) {
        let Some(client) = self.given.get_mut(&id) else { return };
        client.opens.remove(&vid);
        let end = now + self.quotas.idle_ms;
        let Some(at) = client.ends_at.filter(|&at| client.opens.is_empty() && !client.ending && at > end)
        else {
            return;
        };
        client.ends_at = Some(end);
        self.ends.remove(&(at, id));
        self.ends.insert((end, id));
    }

    /// A caller opens a volume that has these readers.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: the caller's ids are so many of them that others would find no place.
    pub(super) fn read(&self, caller: &Caller, name: &str, readers: &[ClientId]) -> Result<(), Failure> {
        let is_own =
            |id: &&ClientId| self.given.get(id).is_some_and(|client| client.principal == caller.name);
        let own = readers.iter().filter(is_own).count();
        if caller.single || own < self.quotas.volume_readers {
            return Ok(());
        }
        let message = format!(
            "{:?} has volume {name} open for reading with {own} client ids, the most for one principal: \
             release an id that is not in use",
            caller.name
        );
        Err(Failure::new(ResourceExhausted, message))
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
        caller: &Caller,
        id: ClientId,
        vid: Vid,
        holds: impl Fn(ClientId, Vid) -> bool,
    ) -> Result<(), Failure> {
        let Some(client) = self.given.get(&id) else { return Ok(()) };
        if client.opens.contains(&vid) {
            return Ok(());
        }
        let (own, all) = (self.opens(Some(&caller.name)), self.opens(None));
        if self.is_full(caller, own, all) {
            for (&id, client) in &mut self.given {
                client.opens.retain(|&vid| holds(id, vid));
            }
            let (own, all) = (self.opens(Some(&caller.name)), self.opens(None));
            if self.is_full(caller, own, all) {
                let message = format!(
                    "{:?} has {own} volumes open and all clients have {all}: release volumes that are not in \
                     use",
                    caller.name
                );
                return Err(Failure::new(ResourceExhausted, message));
            }
        }
        if let Some(client) = self.given.get_mut(&id) {
            client.opens.insert(vid);
        }
        Ok(())
    }

    fn is_full(&self, caller: &Caller, own: usize, all: usize) -> bool {
        (!caller.single && own >= self.quotas.principal_opens) || all >= self.quotas.opens
    }

    fn opens(&self, principal: Option<&str>) -> usize {
        let wanted = |client: &&Client| principal.is_none_or(|name| *client.principal == *name);
        self.given.values().filter(wanted).map(|client| client.opens.len()).sum()
    }

    /// A connection closed: its ids wait.
    pub(super) fn closed(&mut self, now: u64, connection: u64) {
        for id in self.by_connection.remove(&connection).unwrap_or_default() {
            let Some(client) = self.given.get_mut(&id) else { continue };
            let wait = if client.opens.is_empty() { self.quotas.idle_ms } else { self.quotas.open_ms };
            client.connection = None;
            client.ends_at = Some(now + wait);
            self.ends.insert((now + wait, id));
        }
    }

    pub(super) fn wakes_at(&self) -> Option<u64> {
        self.ends.first().map(|&(at, _)| at)
    }

    /// Ends the ids whose time is over. Ids without opens become free. Returns the opens of the others, for
    /// the caller to release. `holds` as in [`Self::open`].
    pub(super) fn step(&mut self, now: u64, holds: impl Fn(ClientId, Vid) -> bool) -> Vec<(ClientId, Vid)> {
        let mut releases = Vec::new();
        while let Some(&(at, id)) = self.ends.first().filter(|&&(at, _)| at <= now) {
            self.ends.remove(&(at, id));
            let Some(client) = self.given.get_mut(&id) else { continue };
            client.opens.retain(|&vid| holds(id, vid));
            if client.opens.is_empty() {
                client.ends_at = None;
                self.forget(id);
                continue;
            }
            client.ending = true;
            client.ends_at = Some(now + END_MS);
            self.ends.insert((now + END_MS, id));
            releases.extend(client.opens.iter().map(|&vid| (id, vid)));
        }
        releases
    }

    /// Number of ids that clients have.
    pub(super) fn len(&self) -> usize {
        self.given.len()
    }
}

fn remove<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<ClientId>>, key: &K, id: ClientId) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(&id);
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

#[cfg(test)]
mod tests;
