// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ids that a daemon before this one gave.

use super::{Client, Clients};
use crate::core::rights::Caller;
use gnstor_proto::slba::{ClientId, Vid};
use std::collections::BTreeSet;

impl Clients {
    /// An id that entries name and that this daemon has not given out: a daemon before this one gave it.
    pub(in crate::core) fn is_inherited(&self, id: ClientId) -> bool {
        self.given.get(&id).map_or(self.seen[usize::from(id.get())], |client| client.inherited)
    }

    /// An entry that a daemon before this one made names the id as reader or writer: its client is to be
    /// heard of soon.
    pub(in crate::core) fn inherit(&mut self, now: u64, id: ClientId, vid: Vid) {
        self.note(id);
        let ends_at = now + self.quotas.open_ms;
        let client = self.given.entry(id).or_insert_with(|| Client {
            principal: "".into(),
            connection: None,
            ends_at: Some(ends_at),
            opens: BTreeSet::new(),
            ending: false,
            inherited: true,
        });
        client.opens.insert(vid);
        if client.inherited {
            self.ends.insert((ends_at, id));
        }
    }

    /// What an inherited id has open.
    pub(in crate::core) fn inherited_opens(&self, id: ClientId) -> impl Iterator<Item = Vid> {
        self.given.get(&id).into_iter().flat_map(|client| client.opens.iter().copied())
    }

    /// An inherited id is the caller's from now on, and kept by its connection.
    pub(in crate::core) fn adopt(&mut self, caller: &Caller, id: ClientId) {
        self.heard(id);
        let Some(client) = self.given.get_mut(&id).filter(|client| client.inherited) else { return };
        client.inherited = false;
        client.principal = caller.name.clone();
        client.connection = Some(caller.connection);
        self.by_connection.entry(caller.connection).or_default().insert(id);
        self.by_principal.entry(caller.name.clone()).or_default().insert(id);
    }

    /// An inherited id's client is there.
    pub(in crate::core) fn heard(&mut self, id: ClientId) {
        let client = self.given.get_mut(&id).filter(|client| client.inherited && !client.ending);
        if let Some(at) = client.and_then(|client| client.ends_at.take()) {
            self.ends.remove(&(at, id));
        }
    }
}
