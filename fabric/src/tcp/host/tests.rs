// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::super::limits::{CLIENT_QUEUE_PAIRS, CLIENTS_QUEUE_PAIRS, FEW_ENTRIES, HOLDERS_QUEUE_PAIRS};
use super::*;
use gnstor_base::testing::deadline;
use gnstor_proto::slba::ClientId;

fn notice() -> Arc<Notice> {
    Arc::default()
}

fn client(id: u16) -> Identity {
    Identity::Client(ClientId::new(id).expect("an id"))
}

/// A stranger asks for a queue pair.
fn open(host: &Host, entries: u32, conn: u32, notice: &Arc<Notice>) -> Option<Entry> {
    host.open(&Asked { ssd: 0, entries, conn, notice, who: None })
}

fn admitted(host: &Host, ssd: u16, entries: u32, id: u16) -> Option<Entry> {
    let mut entry = host.open(&Asked { ssd, entries, conn: 0, notice: &notice(), who: None })?;
    if host.admit(&mut entry, client(id)) {
        return Some(entry);
    }
    host.close(&entry);
    None
}

/// Queue pairs of clients that take what they may, from client 1 on, until the host has its part.
fn all_of_host(host: &Host, entries: u32) -> Vec<Entry> {
    let mut all = Vec::new();
    for id in 1..4096 {
        all.extend(std::iter::from_fn(|| admitted(host, 0, entries, id)));
    }
    all
}

#[test]
fn the_oldest_queue_pair_that_waits_gives_way_and_admitted_ones_stay() {
    let _deadline = deadline();
    let (host, first, other) = (Host::default(), notice(), notice());
    let mut admitted = open(&host, 2, 1, &first).expect("room");
    assert!(host.admit(&mut admitted, client(1)));
    let all: Vec<_> =
        (0..HOST_PENDING_CONNECTS).map(|conn| open(&host, 2, 100 + conn, &first).unwrap()).collect();
    assert!(first.take().is_empty());
    let mut newest = open(&host, 2, 7, &other).expect("another gives way");
    assert_eq!((first.take(), other.take()), (vec![100], vec![]));
    assert_eq!(first.take(), [], "it is told once");
    // The new one is through before the others have asked for as many again.
    assert!(host.admit(&mut newest, client(1)));
    let more = open(&host, 2, 8, &other).expect("the place of the one that was admitted");
    assert_eq!(first.take(), []);
    all.iter().chain([&admitted, &newest, &more]).for_each(|entry| host.close(entry));
    assert!(lock(&host.account).of_ssd.is_empty());
}

#[test]
fn no_more_give_way_than_have_not_left_yet() {
    let _deadline = deadline();
    let (host, notice) = (Host::default(), notice());
    let most = HOST_PENDING_CONNECTS + HOST_LEAVING;
    let mut all: Vec<_> = (0..most).map(|conn| open(&host, 2, conn, &notice).expect("room")).collect();
    assert!(open(&host, 2, most, &notice).is_none(), "so many were told to close and are still there");
    assert_eq!(notice.take(), (0..HOST_LEAVING).collect::<Vec<_>>());
    host.close(&all.remove(0));
    assert!(open(&host, 2, most, &notice).is_some());
    // A queue pair that was told to close does so even if it is admitted meanwhile.
    assert!(host.admit(&mut all[0], client(1)) && all[0].client.is_none());
}

#[test]
fn one_host_leaves_queue_pairs_of_an_ssd_to_others_and_gets_its_own_back() {
    let _deadline = deadline();
    let host = Host::default();
    let mut all = all_of_host(&host, 2);
    assert_eq!(all.len(), CLIENTS_QUEUE_PAIRS as usize);
    assert!(admitted(&host, 0, 2, 5000).is_none(), "so many queue pairs");
    let elsewhere = admitted(&host, 1, 1024, 1).expect("another SSD");
    host.close(&all.pop().expect("some"));
    all.push(admitted(&host, 0, 2, 5000).expect("its own again"));
    all.iter().chain([&elsewhere]).for_each(|entry| host.close(entry));
    assert!(lock(&host.account).of_ssd.is_empty());
}

/// An engine has 65,536 names of connections for all its SSDs.
#[test]
fn one_host_leaves_names_of_an_engine_to_others_however_many_ssds_that_has() {
    let _deadline = deadline();
    let host = Host::default();
    let of_ssd = |ssd| (1..=4096).flat_map(move |id| (0..3).map(move |_| (ssd, id)));
    let all: Vec<_> = (0..8).flat_map(of_ssd).filter_map(|(ssd, id)| admitted(&host, ssd, 2, id)).collect();
    assert_eq!(all.len(), CLIENTS_NAMES as usize);
    assert!(admitted(&host, 9, 2, 5000).is_none(), "an SSD at which it has none");
    host.close(&all[0]);
    let again = admitted(&host, 9, 2, 5000).expect("its own again");
    all[1..].iter().chain([&again]).for_each(|entry| host.close(entry));
    assert_eq!(lock(&host.account).queue_pairs, 0);
}

#[test]
fn one_host_leaves_entries_of_an_ssd_to_others() {
    let _deadline = deadline();
    let host = Host::default();
    // All but the last quarter in deep queue pairs, and the last in shallow ones.
    let deep = all_of_host(&host, 1024);
    let shallow = all_of_host(&host, 64);
    assert!(deep.len() > 100 && shallow.len() > 100, "{} {}", deep.len(), shallow.len());
    assert!(admitted(&host, 0, 1, 5000).is_none(), "so many entries");
    shallow[..8].iter().for_each(|entry| host.close(entry));
    // What was closed counts no more.
    for _ in 0..HOST_ENTRIES / 16 {
        host.close(&open(&host, 16, 0, &notice()).expect("room"));
    }
    // A queue pair that waits counts little, and all its entries must fit when it is admitted.
    let mut waiting: Vec<_> = (0..2).map(|_| open(&host, 512, 0, &notice()).expect("room")).collect();
    assert!(host.admit(&mut waiting[0], client(5000)));
    assert!(!host.admit(&mut waiting[1], client(5001)));
    assert!(admitted(&host, 0, 1, 5000).is_none());
}

#[test]
fn peers_that_prove_nothing_leave_entries_to_clients_of_their_host() {
    let _deadline = deadline();
    let host = Host::default();
    let deep: Vec<_> = (1..=2)
        .flat_map(|id| std::iter::from_fn(|| admitted(&host, 0, 1024, id)).collect::<Vec<_>>())
        .collect();
    let unproven: Vec<_> =
        (0..HOST_PENDING_CONNECTS).map(|conn| open(&host, 1024, conn, &notice()).expect("room")).collect();
    let few: Vec<_> = (100..150).filter_map(|id| admitted(&host, 0, FEW_ENTRIES, id)).collect();
    assert_eq!(few.len(), 50, "beside {} deep ones", deep.len());
    deep.iter().chain(&unproven).chain(&few).for_each(|entry| host.close(entry));
    assert!(lock(&host.account).of_ssd.is_empty());
}

/// On loopback all clients are of one host.
#[test]
fn one_client_leaves_queue_pairs_of_its_host_to_other_clients_and_gets_its_own_back() {
    let _deadline = deadline();
    let (host, notice) = (Host::default(), notice());
    let mut greedy: Vec<_> = std::iter::from_fn(|| admitted(&host, 0, 2, 1)).collect();
    assert_eq!(greedy.len(), CLIENT_QUEUE_PAIRS as usize);
    let known = Asked { ssd: 0, entries: 2, conn: 1, notice: &notice, who: Some(client(1)) };
    assert!(host.open(&known).is_none(), "it is refused before its Connect");
    let other = admitted(&host, 0, 2, 2).expect("another client");
    host.close(&greedy.pop().expect("some"));
    greedy.push(admitted(&host, 0, 2, 1).expect("its own again"));
    greedy.iter().chain([&other]).for_each(|entry| host.close(entry));
    assert!(lock(&host.account).of_ssd.is_empty());
}

fn proves(host: &Host, ssd: u16, who: Identity) -> Option<Entry> {
    let mut entry = host.open(&Asked { ssd, entries: 64, conn: 0, notice: &notice(), who: None })?;
    host.admit(&mut entry, who).then_some(entry)
}

/// On loopback the clients, the daemon and other SSDs are of one host.
#[test]
fn clients_that_hold_all_that_they_may_leave_queue_pairs_to_the_daemon_and_to_ssds() {
    let _deadline = deadline();
    for entries in [2, 64, 1024] {
        let (host, idle) = (Host::default(), notice());
        let mut all = all_of_host(&host, entries);
        all.extend(all_of_host(&host, 2));
        // Strangers hold all that may wait, too. So the one in the middle is told to close.
        let most = HOST_PENDING_CONNECTS + 1;
        all.extend((0..most).map(|conn| open(&host, 1024, conn, &idle).expect("room")));
        assert!(admitted(&host, 0, 64, 5000).is_none(), "clients have all that they may");
        let holders = (0..32).map(|ssd| if ssd == 0 { Identity::Daemon } else { Identity::Peer(ssd) });
        all.extend(holders.map(|who| proves(&host, 0, who).expect("a part of its own")));
        // A reserve is no way around the bounds: a host that claims to be the daemon has it only.
        let more = std::iter::from_fn(|| proves(&host, 0, Identity::Daemon)).take(5000);
        assert_eq!(more.count(), HOLDERS_QUEUE_PAIRS as usize - 32);
    }
}

#[test]
fn clients_that_hold_all_names_of_an_engine_leave_some_to_the_daemon_and_to_ssds() {
    let _deadline = deadline();
    let host = Host::default();
    let of_ssd = |ssd| (1..=4096).flat_map(move |id| (0..3).map(move |_| (ssd, id)));
    let mut all: Vec<_> =
        (0..8).flat_map(of_ssd).filter_map(|(ssd, id)| admitted(&host, ssd, 2, id)).collect();
    assert_eq!(all.len(), CLIENTS_NAMES as usize);
    let idle = notice();
    for ssd in 0..9 {
        all.extend(
            (0..HOST_PENDING_CONNECTS)
                .filter_map(|conn| host.open(&Asked { ssd, entries: 2, conn, notice: &idle, who: None })),
        );
    }
    for ssd in 0..9 {
        all.push(proves(&host, ssd, Identity::Daemon).expect("an unproven one gives way"));
    }
    all.iter().for_each(|entry| host.close(entry));
    let held = lock(&host.account);
    assert_eq!((held.queue_pairs, held.clients_pairs, held.leaving_pairs), (0, 0, 0));
}
