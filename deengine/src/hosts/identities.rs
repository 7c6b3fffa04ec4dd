// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The controllers of each identity. The daemon ends the hosts of thousands of client ids, most of which have
//! no controller here. No such command may search all controllers.

use gnstor_proto::fabrics::Identity;
use std::collections::{BTreeSet, HashMap};

/// Ids of controllers by identity.
#[derive(Debug, Default)]
pub(super) struct Identities(HashMap<Identity, BTreeSet<u16>>);

impl Identities {
    pub(super) fn add(&mut self, identity: Identity, cntlid: u16) {
        self.0.entry(identity).or_default().insert(cntlid);
    }

    pub(super) fn remove(&mut self, identity: Identity, cntlid: u16) {
        let Some(ids) = self.0.get_mut(&identity) else { return };
        ids.remove(&cntlid);
        if ids.is_empty() {
            self.0.remove(&identity);
        }
    }

    pub(super) fn of(&self, identity: Identity) -> impl Iterator<Item = u16> {
        self.0.get(&identity).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::host::{NewHost, Role};
    use crate::hosts::proof::Proof;
    use crate::hosts::table::Hosts;
    use gnstor_base::controller::QueueKey;
    use gnstor_base::time::{Span, Time};
    use gnstor_proto::slba::ClientId;

    #[test]
    fn the_hosts_of_an_identity_are_found_among_thousands_without_a_search_of_all() {
        let _deadline = crate::deadline::deadline();
        let count = 0x4000_u16;
        let identity = |raw| Identity::Client(ClientId::new(raw).expect("an id"));
        let mut hosts = Hosts::default();
        for raw in 1..=count {
            hosts.open(QueueKey(raw.into()), 0, 2);
            let (identity, kato) = (identity(raw % 8192 + 1), Span::from_ms(0));
            let new =
                NewHost { identity, host_id: [0; 16], serial: raw.into(), kato, proof: Proof::NotAsked };
            let cntlid = hosts.create(QueueKey(raw.into()), new, Time::ZERO).expect("an id is free");
            hosts.queue(QueueKey(raw.into())).expect("it is open").role = Role::Admin(cntlid);
        }
        assert_eq!(hosts.of_older_hosts(identity(9), u64::MAX), [QueueKey(8), QueueKey(8200)]);
        assert_eq!(hosts.of_older_hosts(identity(9), 9), [QueueKey(8)]);
        assert!(hosts.of_other_hosts(identity(9), [1; 16], 0).len() == 2 && hosts.may_weigh(identity(9)));
        // A search of all controllers would take hours.
        for nth in 0..2_000_000_u32 {
            let raw = u16::try_from(20_000 + nth % 20_000).expect("an id");
            assert!(hosts.of_older_hosts(identity(raw), u64::MAX).is_empty());
        }
        (1..=count).for_each(|raw| _ = hosts.close(QueueKey(raw.into())));
        assert!(hosts.of_older_hosts(identity(9), u64::MAX).is_empty());
    }
}
