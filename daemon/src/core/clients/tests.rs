// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the registered clients: ids, quotas, and when both end.

use super::*;
use crate::core::rights::ClientProof;
use crate::deadline::{Deadline, LIMIT};

mod hoard;

fn id(raw: u16) -> ClientId {
    ClientId::new(raw).unwrap()
}

fn caller(name: &str, connection: u64) -> Caller {
    Caller {
        name: name.into(),
        admin: false,
        creator: true,
        single: false,
        connection,
        client: ClientProof::NotAsked,
    }
}

fn none() -> BTreeSet<ClientId> {
    BTreeSet::new()
}

impl Clients {
    fn register(
        &mut self,
        caller: &Caller,
        named: impl Fn() -> BTreeSet<ClientId>,
    ) -> Result<ClientId, Failure> {
        self.number(0, caller, 1, named).map(|(id, _)| id)
    }
}

#[test]
fn client_ids_are_unique_until_none_is_left() {
    let _deadline = Deadline::after(LIMIT);
    let mut clients = Clients::new(Quotas { opens: 1 << 20, ..Quotas::default() });
    clients.note(id(65_000));
    let mut given = BTreeSet::new();
    let named = || BTreeSet::from([id(65_000)]);
    let mut connection = 0;
    while given.len() < 65_533 {
        connection += 1;
        for _ in 0..Quotas::default().connection_ids.min(65_533 - given.len()) {
            let caller = Caller::local(connection);
            let new = clients.register(&caller, named).unwrap();
            assert!(given.insert(new) && new.get() != 65_000);
            clients.open(0, &caller, (new, Vid::MIN), |_, _| true).unwrap();
        }
    }
    let refused = clients.register(&Caller::local(0), named).unwrap_err();
    assert_eq!(refused.code, ResourceExhausted);
    clients.closed(0, 1);
    assert!(clients.register(&Caller::local(0), named).is_err(), "an id with opens gives no way");
    let one = *given.first().unwrap();
    clients.released(0, one, Vid::MIN);
    assert_eq!(clients.register(&Caller::local(0), named), Ok(one), "an id that waits gives way");
}

#[test]
fn a_daemon_gives_other_ids_than_the_daemons_of_the_last_terms() {
    let _deadline = Deadline::after(LIMIT);
    let mut given = BTreeSet::new();
    for term in 1..=63 {
        let mut clients = Clients::new(Quotas::default());
        clients.note(id(1));
        for connection in 0..16 {
            for _ in 0..60 {
                let caller = Caller::local(connection);
                let (new, serial) = clients.number(0, &caller, term, none).unwrap();
                assert!(given.insert(new) && new != id(1), "term {term}: {new} was given before");
                assert_eq!(serial >> 32, term);
            }
        }
    }
    for term in [0, 65_534, u64::from(u32::MAX)] {
        assert!(Clients::new(Quotas::default()).number(0, &Caller::local(0), term, none).is_ok());
    }
}

#[test]
fn each_registration_has_a_higher_serial_or_there_is_none() {
    let _deadline = Deadline::after(LIMIT);
    for term in [1 << 32, u64::MAX] {
        let refused = Clients::new(Quotas::default()).number(0, &Caller::local(0), term, none);
        assert_eq!(refused.unwrap_err().code, ResourceExhausted, "term {term}");
    }
    let mut clients = Clients::new(Quotas::default());
    let (_, first) = clients.number(0, &Caller::local(0), 5, none).unwrap();
    clients.registrations = u32::MAX - 1;
    let (_, last) = clients.number(0, &Caller::local(0), 5, none).unwrap();
    assert!(first < last && last < 6 << 32, "{first:x} {last:x}");
    for _ in 0..2 {
        let refused = clients.number(0, &Caller::local(0), 5, none).unwrap_err();
        assert!(refused.code == ResourceExhausted && refused.message.contains("start"), "{refused}");
    }
    assert_eq!(clients.len(), 2);
}

#[test]
fn ids_that_no_entry_names_any_more_are_found_when_the_others_are_gone() {
    let _deadline = Deadline::after(LIMIT);
    let mut clients = Clients::new(Quotas::default());
    (1..=65_534).for_each(|raw| clients.note(id(raw)));
    let named = || (1..=65_534).filter(|&raw| raw != 99).map(id).collect();
    assert_eq!(clients.register(&Caller::local(0), named), Ok(id(99)));
    assert!(clients.register(&Caller::local(1), named).is_err());
}

#[test]
fn an_id_is_its_principals_alone() {
    let _deadline = Deadline::after(LIMIT);
    let mut clients = Clients::new(Quotas::default());
    let own = clients.register(&caller("anna", 1), none).unwrap();
    assert_eq!(clients.take(&caller("anna", 2), own), Ok(()));
    assert_eq!(clients.take(&caller("ben", 1), own).unwrap_err().code, PermissionDenied);
    assert_eq!(clients.take(&caller("anna", 1), id(77)).unwrap_err().code, PermissionDenied);
    clients.closed(0, 1);
    assert_eq!(clients.wakes_at(), None, "the second connection keeps it");
    clients.closed(10, 2);
    assert_eq!(clients.wakes_at(), Some(30_010));
    assert_eq!(clients.take(&caller("anna", 3), own), Ok(()));
    assert_eq!(clients.wakes_at(), None);
}

#[test]
fn the_ids_of_a_principal_come_back_when_their_time_is_over() {
    let _deadline = Deadline::after(LIMIT);
    let mut clients = Clients::new(Quotas { principal_ids: 2, ..Quotas::default() });
    for round in 0..3 {
        let now = round * 100_000;
        for connection in [2 * round, 2 * round + 1] {
            assert!(clients.register(&caller("anna", connection), none).is_ok(), "round {round}");
            clients.closed(now, connection);
        }
        assert_eq!(clients.step(now + 60_000, |_, _| true), []);
        assert!(clients.len() == 0 && clients.of("anna").is_empty(), "round {round}");
    }
}

#[test]
fn an_id_that_has_released_all_gives_way_at_once_when_its_connection_closes() {
    let _deadline = Deadline::after(LIMIT);
    let mut clients = Clients::new(Quotas { principal_ids: 2, ..Quotas::default() });
    let vid = Vid::new(1).unwrap();
    let visits = |clients: &mut Clients, connection: u64, releases: bool| {
        let own = clients.register(&caller("anna", connection), none);
        if let Ok(own) = own {
            clients.open(0, &caller("anna", connection), (own, vid), |_, _| true).unwrap();
            if releases {
                clients.released(0, own, vid);
            }
        }
        clients.closed(0, connection);
        own
    };
    for connection in 0..100 {
        assert!(visits(&mut clients, connection, true).is_ok(), "connection {connection}");
    }
    // What is open is kept, until the client comes back or its time is over.
    assert!(visits(&mut clients, 100, false).is_ok());
    assert!(visits(&mut clients, 101, false).is_ok());
    assert!(visits(&mut clients, 102, true).is_err());
    let late: Vec<_> = clients.step(60_000, |_, _| true);
    assert_eq!(late.len(), 2);
    // A release that is done after the connection closed counts, too.
    let mut clients = Clients::new(Quotas { principal_ids: 1, ..Quotas::default() });
    let own = visits(&mut clients, 1, false).unwrap();
    assert!(visits(&mut clients, 2, true).is_err());
    clients.released(10, own, vid);
    assert_eq!(clients.wakes_at(), Some(30_010));
    assert!(visits(&mut clients, 3, true).is_ok());
}

#[test]
fn an_id_that_an_ssd_may_still_name_gives_no_way_and_counts_until_each_ssd_has_heard() {
    let _deadline = Deadline::after(LIMIT);
    let (anna, vid) = (caller("anna", 1), Vid::new(1).unwrap());
    let mut clients = Clients::new(Quotas { principal_ids: 1, ids: id(9), ..Quotas::default() });
    let own = clients.register(&anna, none).unwrap();
    clients.open(0, &anna, (own, vid), |_, _| true).unwrap();
    clients.released_early(0, own, vid);
    clients.closed(0, 1);
    assert!(clients.register(&caller("anna", 2), none).is_err(), "an SSD may name it");
    clients.rest_step(1_000, |_| false);
    assert!(clients.step(30_000, |_, _| false).is_empty() && !clients.given.contains_key(&own));
    for now in [30_000, 60_000] {
        clients.rest_step(now, |_| false);
        assert!(clients.register(&caller("anna", 2), none).is_err() && !clients.free.contains(&own));
    }
    clients.rest_step(61_000, |_| true);
    assert!(clients.free.contains(&own) && clients.wakes_at().is_none());
    assert!(clients.register(&caller("anna", 2), none).is_ok());
    // While its client lives, too.
    let ben = caller("ben", 3);
    let own = clients.register(&ben, none).unwrap();
    clients.open(0, &ben, (own, vid), |_, _| true).unwrap();
    clients.released_early(0, own, vid);
    clients.closed(0, 3);
    clients.rest_step(62_000, |_| true);
    assert!(clients.register(&caller("ben", 4), none).is_ok(), "it gives way again");
}

#[test]
fn an_inherited_id_ends_unless_its_client_is_heard_of() {
    let _deadline = Deadline::after(LIMIT);
    let mut clients = Clients::new(Quotas::default());
    let (vid, other) = (Vid::new(1).unwrap(), Vid::new(2).unwrap());
    for raw in [5, 6, 7] {
        clients.inherit(100, id(raw), vid);
        clients.inherit(100, id(raw), other);
        assert!(clients.is_inherited(id(raw)));
        assert!(clients.take(&caller("anna", 1), id(raw)).is_err(), "it is not proven to be the caller's");
    }
    clients.heard(id(5));
    clients.adopt(&caller("anna", 1), id(6));
    assert!(!clients.is_inherited(id(6)) && clients.take(&caller("anna", 1), id(6)).is_ok());
    assert!(clients.take(&caller("ben", 2), id(6)).is_err());
    assert_eq!(clients.step(60_100, |_, _| true), [(id(7), vid), (id(7), other)]);
    clients.released(60_200, id(7), vid);
    clients.released(60_200, id(7), other);
    assert!(clients.step(60_700, |_, _| true).is_empty());
    assert!(!clients.given.contains_key(&id(7)));
    assert_eq!(clients.wakes_at(), None);
    // A daemon without proofs has one principal, so naming the id is enough.
    clients.inherit(0, id(9), vid);
    assert!(clients.take(&Caller::local(4), id(9)).is_ok() && clients.wakes_at().is_none());
}

#[test]
fn quotas_are_for_each_and_are_given_back() {
    let _deadline = Deadline::after(LIMIT);
    let quotas =
        Quotas { connection_ids: 3, principal_ids: 4, principal_opens: 2, opens: 3, ..Quotas::default() };
    let mut clients = Clients::new(quotas);
    let own: Vec<_> = (0..3).map(|_| clients.register(&caller("anna", 1), none).unwrap()).collect();
    let refused = clients.register(&caller("anna", 1), none).unwrap_err();
    assert!(refused.code == ResourceExhausted && refused.message.contains("connection"), "{refused}");
    clients.register(&caller("anna", 2), none).unwrap();
    let refused = clients.register(&caller("anna", 2), none).unwrap_err();
    assert!(refused.message.contains("one principal"), "{refused}");
    let other = clients.register(&caller("ben", 3), none).unwrap();

    let vid = |raw| Vid::new(raw).unwrap();
    clients.open(0, &caller("anna", 1), (own[0], vid(1)), |_, _| true).unwrap();
    clients.open(0, &caller("anna", 1), (own[1], vid(1)), |_, _| true).unwrap();
    clients.open(0, &caller("anna", 1), (own[1], vid(1)), |_, _| true).unwrap();
    let refused = clients.open(0, &caller("anna", 1), (own[1], vid(2)), |_, _| true).unwrap_err();
    assert_eq!(refused.code, ResourceExhausted);
    clients.open(0, &caller("ben", 3), (other, vid(1)), |_, _| true).unwrap();
    assert!(clients.open(0, &caller("ben", 3), (other, vid(2)), |_, _| true).is_err(), "in all");
    let ended = |id, _| id != own[0];
    assert!(
        clients.open(999, &caller("anna", 1), (own[1], vid(2)), ended).is_err(),
        "too early to look again"
    );
    clients.open(1_000, &caller("anna", 1), (own[1], vid(2)), ended).unwrap();

    clients.closed(0, 1);
    assert!(clients.step(29_999, |_, _| true).is_empty() && clients.len() == 5);
    assert!(clients.step(30_000, |_, _| true).is_empty());
    assert_eq!(clients.len(), 3, "the ids without opens have ended");
    assert_eq!(clients.step(60_000, |_, _| true), [(own[1], vid(1)), (own[1], vid(2))]);
    assert!(clients.take(&caller("anna", 9), own[1]).is_err(), "it ends");
    assert_eq!(clients.step(60_500, |_, _| true).len(), 2, "an SSD has not taken the release");
    assert!(clients.step(61_000, |_, _| false).is_empty());
    assert_eq!(clients.len(), 2);
}
