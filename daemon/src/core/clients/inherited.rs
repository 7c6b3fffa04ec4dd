// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inherited ids: an earlier daemon gave them.

use super::{Client, Clients};
use crate::core::rights::{Caller, ClientProof, HUNG_UP};
use gnstor_proto::slba::{ClientId, Vid};
use std::collections::BTreeSet;

impl Clients {
    /// Whether the id is inherited: entries name it, and this daemon has not given it to a client.
    pub(in crate::core) fn is_inherited(&self, id: ClientId) -> bool {
        self.given.get(&id).map_or(!self.free.contains(&id), |client| client.inherited)
    }

    /// An entry that an earlier daemon made names the id as reader or writer. Its client must call soon.
    pub(in crate::core) fn inherit(&mut self, now: u64, id: ClientId, vid: Vid) {
        self.note(id);
        let ends_at = now + self.quotas.open_ms;
        self.given.entry(id).or_insert_with(|| Client {
            principal: "".into(),
            serial: None,
            is_ours: false,
            connection: None,
            used: 0,
            ends_at: None,
            opens: BTreeSet::new(),
            ending: false,
            is_proven: true,
            named_early: BTreeSet::new(),
            inherited: true,
        });
        self.change(id, |client| {
            client.opens.insert(vid);
            if client.inherited {
                client.ends_at = Some(ends_at);
            }
        });
    }

    /// The volumes that an inherited id has open.
    pub(in crate::core) fn inherited_opens(&self, id: ClientId) -> impl Iterator<Item = Vid> {
        self.given.get(&id).into_iter().flat_map(|client| client.opens.iter().copied())
    }

    /// An inherited id is the caller's from now on, and kept by its connection.
    pub(in crate::core) fn adopt(&mut self, caller: &Caller, id: ClientId) {
        if caller.connection == HUNG_UP {
            return;
        }
        self.heard(id);
        let adopted = self.change(id, |client| {
            let adopted = std::mem::take(&mut client.inherited);
            if adopted {
                client.principal = caller.name.clone();
                client.connection = Some(caller.connection);
            }
            adopted
        });
        if adopted == Some(true) {
            self.by_connection.entry(caller.connection).or_default().insert(id);
            self.by_principal.entry(caller.name.clone()).or_default().insert(id);
        }
    }

    /// A call may prove the serial of an id that this daemon did not give. An earlier holder may call first,
    /// so the highest serial counts. The SSDs are to end lower ones.
    pub(in crate::core) fn learn(&mut self, caller: &Caller, id: ClientId) {
        let ClientProof::Of(shown, serial) = caller.client else { return };
        let Some(client) = self.given.get_mut(&id).filter(|client| shown == id && !client.is_ours) else {
            return;
        };
        if client.serial.unwrap_or_default() < serial {
            client.serial = Some(serial);
            client.is_proven &= !caller.single;
            self.ended.push((id, serial));
        }
    }

    /// The caller shows an older registration of the id than another call has proven.
    pub(in crate::core) fn is_outdated(&self, caller: &Caller, id: ClientId) -> bool {
        caller.client.registration(id).is_some_and(|shown| Some(shown) < self.serial(id))
    }

    /// The client of an inherited id has called.
    pub(in crate::core) fn heard(&mut self, id: ClientId) {
        self.change(id, |client| {
            if client.inherited && !client.ending {
                client.ends_at = None;
            }
        });
    }
}
