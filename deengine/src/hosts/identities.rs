// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The controllers of each identity. The daemon ends the hosts of thousands of client ids, most of which have
//! no controller here. No such command may search all controllers.

use gnstor_base::peer_map::PeerMap;
use gnstor_proto::fabrics::Identity;
use std::collections::BTreeSet;

/// Ids of controllers by identity.
#[derive(Debug, Default)]
pub(super) struct Identities(PeerMap<Identity, Ids>);

#[derive(Debug, Default)]
struct Ids {
    all: BTreeSet<u16>,
    /// Controllers with weighted round robin among them.
    weighted: BTreeSet<u16>,
}

impl Identities {
    pub(super) fn add(&mut self, identity: Identity, cntlid: u16) {
        self.0.get_or_insert(identity, Ids::default).all.insert(cntlid);
    }

    pub(super) fn remove(&mut self, identity: Identity, cntlid: u16) {
        let Some(ids) = self.0.get_mut(&identity) else { return };
        ids.all.remove(&cntlid);
        ids.weighted.remove(&cntlid);
        if ids.all.is_empty() {
            self.0.remove(&identity);
        }
    }

    pub(super) fn of(&self, identity: Identity) -> impl Iterator<Item = u16> {
        self.0.get(&identity).into_iter().flat_map(|ids| &ids.all).copied()
    }

    /// Sets whether a controller of this identity has weighted round robin.
    pub(super) fn weigh(&mut self, identity: Identity, cntlid: u16, is_weighted: bool) {
        let Some(ids) = self.0.get_mut(&identity) else { return };
        if is_weighted {
            ids.weighted.insert(cntlid);
        } else {
            ids.weighted.remove(&cntlid);
        }
    }

    /// Number of controllers of this identity with weighted round robin.
    pub(super) fn weighted(&self, identity: Identity) -> usize {
        self.0.get(&identity).map_or(0, |ids| ids.weighted.len())
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
        let count = 0x3C00_u16;
        let identity = |raw| Identity::Client(ClientId::new(raw).expect("an id"));
        let mut hosts = Hosts::default();
        for raw in 1..=count {
            hosts.open(QueueKey(raw.into()), 0, 2);
            let (identity, kato) = (identity(raw % 4096 + 1), Span::from_ms(0));
            let new =
                NewHost { identity, host_id: [0; 16], serial: raw.into(), kato, proof: Proof::NotAsked };
            let cntlid = hosts.create(QueueKey(raw.into()), new, Time::ZERO).expect("an id is free");
            hosts.queue_mut(QueueKey(raw.into())).expect("it is open").role = Role::Admin(cntlid);
        }
        assert_eq!(
            hosts.of_older_hosts(identity(9), u64::MAX),
            [QueueKey(8), QueueKey(4104), QueueKey(8200), QueueKey(12296)]
        );
        assert_eq!(hosts.of_older_hosts(identity(9), 9), [QueueKey(8)]);
        assert!(hosts.of_other_hosts(identity(9), [1; 16], 0).len() == 4 && hosts.may_weigh(identity(9)));
        // A search of all controllers would take hours.
        for nth in 0..2_000_000_u32 {
            let raw = u16::try_from(20_000 + nth % 20_000).expect("an id");
            assert!(hosts.of_older_hosts(identity(raw), u64::MAX).is_empty());
        }
        (1..=count).for_each(|raw| _ = hosts.close(QueueKey(raw.into())));
        assert!(hosts.of_older_hosts(identity(9), u64::MAX).is_empty());
    }

    /// A client may have thousands of controllers, and ask for weighted round robin on each of them.
    #[test]
    fn whether_a_client_may_weigh_takes_no_look_at_its_controllers() {
        let _deadline = crate::deadline::deadline();
        let (mut ids, who) = (Identities::default(), Identity::Client(ClientId::new(9).expect("an id")));
        (1..=12_288).for_each(|cntlid| ids.add(who, cntlid));
        (1..=16).for_each(|cntlid| ids.weigh(who, cntlid, true));
        // With a look at each controller this would take minutes.
        assert_eq!((0..10_000_000).map(|_| std::hint::black_box(&ids).weighted(who)).min(), Some(16));
        ids.weigh(who, 3, false);
        ids.remove(who, 7);
        ids.weigh(who, 8, true);
        assert_eq!(ids.weighted(who), 14);
        (1..=12_288).for_each(|cntlid| ids.remove(who, cntlid));
        assert_eq!((ids.weighted(who), ids.0.len()), (0, 0));
    }
}
