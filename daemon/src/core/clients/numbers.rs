// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which id a caller gets, and the serial of its registration.

use super::{Client, Clients};
use crate::core::failure::Failure;
use crate::core::rights::Caller;
use gnstor_proto::slba::ClientId;
use gnstor_proto::status::GrpcCode::ResourceExhausted;
use std::collections::BTreeSet;

/// Distance between the first ids of daemons of successive terms. A restarted SSD believes an older secret of
/// an id until the newer one is proven. So an id that an earlier daemon gave rests. It is used again after
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
    fn next_serial(&mut self, term: u64) -> u64 {
        self.registrations = self.registrations.saturating_add(1);
        term.saturating_mul(1 << 32).saturating_add(self.registrations.into())
    }

    /// Chooses an id for a caller, and its serial. `named` returns the ids in entries; it is called when no
    /// other id is left.
    pub(in crate::core) fn number(
        &mut self,
        caller: &Caller,
        term: u64,
        named: impl Fn() -> BTreeSet<ClientId>,
    ) -> Result<(ClientId, u64), Failure> {
        if self.registrations == 0 {
            self.begin(term);
        }
        Ok((self.register(caller, named)?, self.next_serial(term)))
    }

    pub(super) fn register(
        &mut self,
        caller: &Caller,
        named: impl Fn() -> BTreeSet<ClientId>,
    ) -> Result<ClientId, Failure> {
        let quotas = self.quotas;
        let kept = self.by_connection.get(&caller.connection).map_or(0, BTreeSet::len);
        if kept >= quotas.connection_ids {
            return Err(Failure::new(
                ResourceExhausted,
                format!("this connection has registered {kept} client ids, the most for one: use those"),
            ));
        }
        if !caller.single
            && self.by_principal.get(&caller.name).map_or(0, BTreeSet::len) >= quotas.principal_ids
        {
            // An id that waits for its client makes room for a new one.
            let waits = self.waiting(|client| client.principal == caller.name);
            let Some(oldest) = waits else {
                let message = format!(
                    "{:?} has registered {} client ids, the most for one principal: end clients that are not \
                     in use",
                    caller.name, quotas.principal_ids
                );
                return Err(Failure::new(ResourceExhausted, message));
            };
            self.forget(oldest);
        }
        let id = self.allocate().or_else(|| {
            let oldest = self.waiting(|_| true)?;
            self.forget(oldest);
            self.allocate()
        });
        let id = id.or_else(|| {
            self.seen.fill(false);
            named().into_iter().chain(self.given.keys().copied()).for_each(|id| {
                self.seen[usize::from(id.get())] = true;
            });
            self.allocate()
        });
        let Some(id) = id else {
            let message = "all 65,534 client ids are in use: end clients that are not in use";
            return Err(Failure::new(ResourceExhausted, message));
        };
        let (principal, connection) = (caller.name.clone(), Some(caller.connection));
        let client = Client {
            principal: principal.clone(),
            connection,
            ends_at: None,
            opens: BTreeSet::new(),
            ending: false,
            inherited: false,
        };
        self.given.insert(id, client);
        self.by_connection.entry(caller.connection).or_default().insert(id);
        self.by_principal.entry(principal).or_default().insert(id);
        Ok(id)
    }

    /// The next id that is not in use, round and round: an id that was used rests for as long as can be.
    fn allocate(&mut self) -> Option<ClientId> {
        let (min, max) = (u32::from(ClientId::MIN.get()), u32::from(ClientId::MAX.get()));
        let start = self.next.clamp(min, max + 1);
        let raw = (start..=max).chain(min..start).find(|&raw| !self.seen[raw as usize])?;
        self.next = raw + 1;
        self.seen[raw as usize] = true;
        u16::try_from(raw).ok().and_then(ClientId::new)
    }

    /// The id without opens and without a connection that waits longest.
    fn waiting(&self, wanted: impl Fn(&Client) -> bool) -> Option<ClientId> {
        let idle = |client: &Client| client.opens.is_empty() && wanted(client);
        self.ends.iter().map(|&(_, id)| id).find(|id| self.given.get(id).is_some_and(idle))
    }
}
