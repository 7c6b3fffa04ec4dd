// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the ids that give way when all are held by living connections.

use super::*;
use std::cell::Cell;

/// A client's registration, and its next call on this connection.
struct Own {
    id: ClientId,
    serial: u64,
    connection: u64,
}

impl Own {
    fn register(clients: &mut Clients, connection: u64) -> Result<Self, Failure> {
        let (id, serial) = clients.number(0, &Caller::local(connection), 1, none)?;
        Ok(Self { id, serial, connection })
    }

    fn caller(&self) -> Caller {
        Caller { client: ClientProof::Said(self.id, self.serial), ..Caller::local(self.connection) }
    }

    fn calls(&self, clients: &mut Clients) -> Result<(), Failure> {
        clients.take(&self.caller(), self.id)
    }

    fn opens(&self, clients: &mut Clients) {
        clients.open(0, &self.caller(), (self.id, Vid::MIN), |_, _| true).unwrap();
    }
}

fn with_ids(ids: u16) -> Clients {
    Clients::new(Quotas { ids: id(ids), connection_ids: 16, ..Quotas::default() })
}

/// Registers until the connection gets no further id.
fn hoards(clients: &mut Clients, connection: u64) -> Vec<Own> {
    std::iter::from_fn(|| Own::register(clients, connection).ok()).collect()
}

#[test]
fn the_connection_with_most_unused_ids_gives_the_one_that_is_unused_for_longest() {
    let _deadline = Deadline::after(LIMIT);
    let mut clients = with_ids(20);
    let honest = Own::register(&mut clients, 1).unwrap();
    let three: Vec<_> = (0..3).map(|_| Own::register(&mut clients, 2).unwrap()).collect();
    let greedy = hoards(&mut clients, 3);
    assert_eq!((greedy.len(), clients.len()), (16, 20));
    // The first is in use, and the second was named by a call.
    greedy[0].opens(&mut clients);
    greedy[1].calls(&mut clients).unwrap();

    let late = Own::register(&mut clients, 4).unwrap();
    assert_eq!((late.id, clients.len()), (greedy[2].id, 20));
    let told = greedy[2].calls(&mut clients).unwrap_err();
    assert!(told.code == PermissionDenied && told.message.contains("register again"), "{told}");
    for lives in [&late, &honest, &greedy[0], &greedy[1], &greedy[3], &three[0]] {
        lives.calls(&mut clients).unwrap();
    }
    assert!(clients.take(&Caller::local(9), late.id).is_ok(), "a caller that shows no registration");
}

#[test]
fn every_connection_has_its_share_in_the_end_and_then_calls_change_nothing() {
    let _deadline = Deadline::after(LIMIT);
    let mut clients = with_ids(20);
    let first = Own::register(&mut clients, 1).unwrap();
    let all: Vec<Own> = (2..=8).flat_map(|connection| hoards(&mut clients, connection)).collect();
    let held = |clients: &Clients| -> Vec<usize> {
        (1..=8).map(|connection| clients.by_connection.get(&connection).map_or(0, BTreeSet::len)).collect()
    };
    let shares = held(&clients);
    assert_eq!(shares.iter().sum::<usize>(), 20);
    assert!(shares[1..].iter().all(|share| [2, 3].contains(share)), "{shares:?}");
    first.calls(&mut clients).expect("the only id of a connection gives no way");
    for connection in 2..=8 {
        let refused = clients.register(&Caller::local(connection), none).unwrap_err();
        assert!(refused.code == ResourceExhausted && refused.message.contains("use those"), "{refused}");
    }
    assert_eq!(held(&clients), shares);
    let told = all.iter().filter(|own| own.calls(&mut clients).is_err()).count();
    assert_eq!(told, all.len() - 19, "each id that gave way, and no other");
}

#[test]
fn ids_with_opens_give_no_way_and_those_whose_connection_closed_give_way_first() {
    let _deadline = Deadline::after(LIMIT);
    let mut clients = with_ids(32);
    let (closed, mut held) = (hoards(&mut clients, 1), hoards(&mut clients, 2));
    held.iter().for_each(|own| own.opens(&mut clients));
    closed[0].opens(&mut clients);
    clients.closed(0, 1);
    let new: Vec<Own> = (3..18).map(|connection| Own::register(&mut clients, connection).unwrap()).collect();
    let ids = |own: &[Own]| own.iter().map(|own| own.id).collect::<BTreeSet<_>>();
    assert_eq!(ids(&new), ids(&closed[1..]), "the ids of the connection that closed");
    let refused = Own::register(&mut clients, 18).err().expect("nothing gives way");
    assert!(refused.message.contains("all 32"), "{refused}");
    held.extend(new);
    held.iter().for_each(|own| own.calls(&mut clients).expect("it is as it was"));
    // What is released may give way.
    for own in &held[3..5] {
        clients.released(0, own.id, Vid::MIN);
    }
    assert_eq!(Own::register(&mut clients, 18).unwrap().id, held[3].id);
    assert!(Own::register(&mut clients, 19).is_err(), "the last unused one of connection 2");
}

#[test]
fn the_last_opens_are_for_connections_that_have_few() {
    let _deadline = Deadline::after(LIMIT);
    let mut clients = Clients::new(Quotas { opens: 32, spared_opens: 2, ..Quotas::default() });
    let mut opens = |connection: u64, raw: u16| {
        let id = match clients.by_connection.get(&connection).and_then(BTreeSet::first) {
            Some(&id) => id,
            None => clients.register(&Caller::local(connection), none).unwrap(),
        };
        clients.open(0, &Caller::local(connection), (id, Vid::new(raw).unwrap()), |_, _| true)
    };
    let greedy = (1..=40).filter(|&raw| opens(1, raw).is_ok()).count();
    assert_eq!(greedy, 24);
    for connection in 2..=5 {
        let got = (1..=40).filter(|&raw| opens(connection, raw).is_ok()).count();
        assert_eq!(got, 2, "connection {connection}");
    }
    let refused = opens(1, 41).unwrap_err();
    assert!(refused.code == ResourceExhausted && refused.message.contains("24 of them by this"), "{refused}");
    assert_eq!(opens(1, 1), Ok(()), "one that it has");
    // The connections that the daemon takes.
    let Quotas { opens, spared_opens, .. } = Quotas::default();
    assert!(opens / 4 >= crate::DaemonConfig::default().max_connections * spared_opens);
}

/// A daemon without proofs takes all callers for one principal.
#[test]
fn the_last_readers_of_a_volume_are_of_connections_that_have_few() {
    let _deadline = Deadline::after(LIMIT);
    let quotas = Quotas { volume_readers: 12, spared_readers: 2, ..Quotas::default() };
    let (mut clients, mut readers) = (Clients::new(quotas), Vec::new());
    let mut got = |connection: u64| {
        let caller = Caller::local(connection);
        let before = readers.len();
        for _ in 0..20 {
            let id = clients.register(&caller, none).unwrap();
            match clients.read(&caller, "v", &readers) {
                Ok(()) => readers.push(id),
                Err(refused) => assert_eq!(refused.code, ResourceExhausted, "{refused}"),
            }
        }
        readers.len() - before
    };
    assert_eq!([1, 2, 3, 1].map(&mut got), [12, 2, 2, 0]);
}

#[test]
fn a_flood_of_calls_searches_the_entries_once_a_second_only() {
    let _deadline = Deadline::after(LIMIT);
    let mut clients = with_ids(65_534);
    // A daemon without proofs notes each id that a caller names.
    (1..=65_534).for_each(|raw| clients.take(&Caller::local(1), id(raw)).unwrap());
    let searches = Cell::new(0);
    let mut register = |now, connection| {
        let named = || {
            searches.set(searches.get() + 1);
            (1..=65_533).map(id).collect()
        };
        clients.number(now, &Caller::local(connection), 1, named).is_ok()
    };
    assert!(register(5_000, 0), "the one that no entry names");
    for now in 5_000..7_999 {
        assert!(!register(now, 1), "{now}");
    }
    assert_eq!(searches.get(), 3);
}

type Ids = BTreeSet<(u64, ClientId)>;

/// The ids that wait, those of each connection, and the number of opens, by a look at every client.
fn listed(clients: &Clients) -> (Ids, BTreeMap<u64, Ids>, usize) {
    let (mut waits, mut kept) = (Ids::new(), BTreeMap::<u64, Ids>::new());
    for (&id, client) in clients.given.iter().filter(|(_, client)| client.opens.is_empty() && !client.ending)
    {
        match (client.connection, client.ends_at) {
            (Some(connection), _) => _ = kept.entry(connection).or_default().insert((client.used, id)),
            (None, Some(until)) => _ = waits.insert((until, id)),
            (None, None) => {}
        }
    }
    (waits, kept, clients.given.values().map(|client| client.opens.len()).sum())
}

fn local_opens(clients: &Clients) -> usize {
    let local = clients.given.values().filter(|client| &*client.principal == "local");
    local.map(|client| client.opens.len()).sum()
}

#[test]
fn what_is_listed_is_what_a_look_at_every_client_finds() {
    let _deadline = Deadline::after(LIMIT);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut dice = |sides: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % sides
    };
    let mut clients = with_ids(40);
    let mut gave_way = 0;
    for now in (0..40_000).map(|step| step * 50) {
        let (connection, id) = (dice(12), id(u16::try_from(dice(40) + 1).unwrap()));
        let (caller, vid) =
            (Caller::local(connection), Vid::new(u16::try_from(dice(3) + 1).unwrap()).unwrap());
        match dice(16) {
            0..7 => {
                let full = clients.len() == 40 && clients.idle.waiting().is_none();
                let most = clients.idle.most();
                let fewer = clients.idle.kept_by(connection);
                let new = clients.number(now, &caller, 1, none);
                if let (true, Ok((new, _))) = (full, new) {
                    let (most, unused) = most.expect("the one that gave way");
                    assert!(new == unused && most > fewer + 1);
                    gave_way += 1;
                }
            }
            7..10 => drop(clients.take(&caller, id)),
            10..12 => drop(clients.open(0, &caller, (id, vid), |_, _| true)),
            12..14 => clients.released(now, id, vid),
            14 if dice(8) == 0 => clients.closed(now, connection),
            14 if dice(64) == 0 => clients.inherit(now, id, vid),
            _ => {
                let late = clients.step(now, |_, _| true);
                late.into_iter().for_each(|(id, vid)| clients.released(now, id, vid));
            }
        }
        let (waits, kept, opens) = listed(&clients);
        let held: usize = (0..12).map(|connection| clients.opens.kept_by(connection)).sum();
        let waits_with_opens = clients.given.values().filter(|client| client.connection.is_none());
        let waiting: usize = waits_with_opens.map(|client| client.opens.len()).sum();
        assert_eq!((clients.opens.all(), clients.opens.of("local")), (opens, local_opens(&clients)));
        assert_eq!(held + waiting, opens);
        assert_eq!(clients.idle.most().map(|(most, _)| most), kept.values().map(BTreeSet::len).max());
        assert!(clients.idle.lists(&waits, &kept), "{now}: {:?}, not {waits:?} {kept:?}", clients.idle);
        let ends: BTreeSet<_> =
            clients.given.iter().filter_map(|(&id, client)| Some((client.ends_at?, id))).collect();
        assert_eq!(clients.ends, ends);
        assert!(clients.free.iter().all(|id| !clients.given.contains_key(id)));
    }
    assert!(gave_way > 100, "{gave_way} ids gave way");
}
