// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which id a caller gets, and the serial of its registration.

use super::{Client, Clients, SEARCH_MS};
use crate::core::failure::Failure;
use crate::core::rights::{Caller, HUNG_UP};
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode::ResourceExhausted;
use std::collections::BTreeSet;

/// Distance between the first ids of daemons of successive terms. A restarted SSD believes an older secret of
/// an id until it hears of the newer one. So an id that an earlier daemon gave rests. It is used again after
/// some 64 starts of a daemon, or when all ids have been used once.
const TERM_IDS: u64 = 1024;

impl Clients {
    /// Sets the first id of a daemon of this term.
    fn begin(&mut self, term: u64) {
        let (min, max) = (u64::from(ClientId::MIN.get()), u64::from(ClientId::MAX.get()));
        let ahead = (term.saturating_sub(1) % (max - min + 1) * TERM_IDS) % (max - min + 1);
        self.next = u32::try_from(min + ahead).expect("an id");
    }

    /// The number of a registration. A daemon's term is above that of every earlier one, and so are its
    /// numbers.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`: there is no higher number. With equal ones an SSD would not end earlier holders.
    fn next_serial(&self, term: u64) -> Result<u64, Failure> {
        let of_term = u32::try_from(term).ok().map(|term| u64::from(term) << 32);
        let serial = of_term.zip(self.registrations.checked_add(1)).map(|(base, nth)| base + u64::from(nth));
        serial.ok_or_else(|| {
            let message = format!(
                "the daemon of term {term} has given {} client ids, and has no serial for another one: start \
                 the daemon again; a term from 2^32 on has none at all",
                self.registrations
            );
            Failure::new(ResourceExhausted, message)
        })
    }

    /// Chooses an id for a caller, and its serial. `named` returns the ids in entries; it is called when no
    /// other id is left, at most once in [`SEARCH_MS`].
    pub(in crate::core) fn number(
        &mut self,
        now: u64,
        caller: &Caller,
        term: u64,
        named: impl Fn() -> BTreeSet<ClientId>,
    ) -> Result<(ClientId, u64), Failure> {
        if self.registrations == 0 {
            self.begin(term);
        }
        let serial = self.next_serial(term)?;
        let id = self.choose(now, caller, named)?;
        self.registrations += 1;
        self.give(caller, id, Some(serial));
        self.serials.insert(id, serial);
        Ok((id, serial))
    }

    /// The serial of the id's last registration, also if the id is forgotten. `None`: this daemon did not
    /// give the id, and no call has proven the serial.
    pub(in crate::core) fn serial(&self, id: ClientId) -> Option<u64> {
        let proven = self.given.get(&id).and_then(|client| client.serial);
        self.serials.get(&id).copied().max(proven)
    }

    /// Takes the ids whose earlier holders end, and the lowest serial that may be of the present one or of a
    /// later one.
    pub(in crate::core) fn take_ended(&mut self) -> Vec<(ClientId, u64)> {
        std::mem::take(&mut self.ended)
    }

    /// The id is the caller's, and kept by its connection.
    fn give(&mut self, caller: &Caller, id: ClientId, serial: Option<u64>) {
        self.uses += 1;
        let client = Client {
            principal: caller.name.clone(),
            serial,
            is_ours: serial.is_some(),
            connection: None,
            used: self.uses,
            ends_at: None,
            opens: BTreeSet::new(),
            ending: false,
            is_proven: !caller.single,
            named_early: BTreeSet::new(),
            inherited: false,
        };
        self.given.insert(id, client);
        self.change(id, |client| client.connection = Some(caller.connection));
        self.by_connection.entry(caller.connection).or_default().insert(id);
        self.by_principal.entry(caller.name.clone()).or_default().insert(id);
    }

    /// A caller opens a volume with an id that this daemon has not given, or has forgotten. What it opens
    /// ends some time after its connection, as for other ids.
    pub(super) fn meet(&mut self, now: u64, caller: &Caller, id: ClientId) {
        self.note(id);
        self.give(caller, id, None);
        self.learn(caller, id);
        if caller.connection == HUNG_UP {
            self.closed(now, HUNG_UP);
            let ends_at = Some(now + self.quotas.open_ms);
            self.change(id, |client| client.ends_at = ends_at);
        }
    }

    /// The connection may keep one id more.
    pub(super) fn has_room(&self, caller: &Caller) -> Result<(), Failure> {
        let kept = self.by_connection.get(&caller.connection).map_or(0, BTreeSet::len);
        if caller.connection == HUNG_UP || kept < self.quotas.connection_ids {
            return Ok(());
        }
        Err(Failure::new(
            ResourceExhausted,
            format!("this connection has {kept} client ids, the most for one: use those"),
        ))
    }

    fn choose(
        &mut self,
        now: u64,
        caller: &Caller,
        named: impl Fn() -> BTreeSet<ClientId>,
    ) -> Result<ClientId, Failure> {
        let quotas = self.quotas;
        self.has_room(caller)?;
        if !caller.single
            && self.by_principal.get(&caller.name).map_or(0, BTreeSet::len) >= quotas.principal_ids
        {
            // An id that waits for its client makes room for a new one.
            let Some(oldest) = self.idle.waiting_of(&caller.name) else {
                let message = format!(
                    "{:?} has registered {} client ids, the most for one principal: end clients that are not \
                     in use. Ids that an SSD which is away may still name count, too",
                    caller.name, quotas.principal_ids
                );
                return Err(Failure::new(ResourceExhausted, message));
            };
            self.forget(oldest);
        }
        if let Some(id) = self.allocate() {
            return Ok(id);
        }
        if let Some(oldest) = self.idle.waiting() {
            self.forget(oldest);
        } else if !self.search(now, named) {
            let unused = self.gives_way(caller)?;
            self.forget(unused);
        }
        self.allocate().ok_or_else(|| all_in_use(quotas.ids))
    }

    /// The next id that is not in use, round and round: an id that was used rests for as long as can be.
    fn allocate(&mut self) -> Option<ClientId> {
        let next = u16::try_from(self.next).ok().and_then(ClientId::new).unwrap_or(ClientId::MIN);
        let id = self.free.range(next..).next().or_else(|| self.free.first()).copied()?;
        self.free.remove(&id);
        self.next = u32::from(id.get()) + 1;
        Some(id)
    }

    /// Finds the ids that no entry names any more, and no client has. False: there is none, or it is too
    /// early to search again. A search takes a time that grows with the number of volumes, and callers can
    /// cause it.
    fn search(&mut self, now: u64, named: impl Fn() -> BTreeSet<ClientId>) -> bool {
        let all = usize::from(self.quotas.ids.get());
        if self.free.len() + self.resting.len() + self.given.len() >= all || now < self.next_search {
            return false;
        }
        self.next_search = now + SEARCH_MS;
        let named = named();
        let is_out = |id: &ClientId| {
            self.given.contains_key(id) || self.resting.contains_key(id) || named.contains(id)
        };
        self.free = self.quotas.all().filter(|id| !is_out(id)).collect();
        !self.free.is_empty()
    }

    /// The id of a living connection that the caller may have instead. Its connection keeps more unused ids
    /// than the caller's will then. So each connection has its share after some calls, and further calls
    /// change nothing.
    fn gives_way(&self, caller: &Caller) -> Result<ClientId, Failure> {
        let own = self.idle.kept_by(caller.connection);
        match self.idle.most() {
            Some((most, unused)) if most > own + 1 => Ok(unused),
            Some(_) if own > 0 => {
                let message = format!(
                    "all client ids are in use, and this connection has {own} with nothing open: use those"
                );
                Err(Failure::new(ResourceExhausted, message))
            }
            _ => Err(all_in_use(self.quotas.ids)),
        }
    }
}

fn all_in_use(ids: ClientId) -> Failure {
    let message = format!("all {ids} client ids are in use: end clients that are not in use");
    Failure::new(ResourceExhausted, message)
}
