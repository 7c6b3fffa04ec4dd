// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Quotas of client ids and opens, for a connection and a principal.

use super::*;
use gnstor_daemon::core::Quotas;
use gnstor_proto::slba::ClientId;

#[test]
fn ids_are_bounded_for_a_connection_and_come_back_with_it() {
    let _deadline = Deadline::after(LIMIT);
    let quotas =
        Quotas { connection_ids: 8, principal_ids: 12, idle_ms: 100, open_ms: 300, ..Quotas::default() };
    let array = SimArray::new(2);
    let mut config = with_tokens();
    config.core.quotas = quotas;
    let daemon = Daemon::start(ANY, array.ports(), config).unwrap();
    run(async {
        let mut anna = Client::connect(&daemon, Some("anna")).await;
        let a = anna.register().await.unwrap();
        anna.create("v", a).await.unwrap();
        anna.share("v", "ben", Right::Write).await.unwrap();

        let mut greedy = Client::connect(&daemon, Some("ben")).await;
        let mut ids = Vec::new();
        for _ in 0..8 {
            ids.push(greedy.register().await.unwrap());
        }
        refused(greedy.register().await, Code::ResourceExhausted, "this connection");
        let mut second = Client::connect(&daemon, Some("ben")).await;
        for _ in 0..4 {
            second.register().await.unwrap();
        }
        refused(second.register().await, Code::ResourceExhausted, "one principal");
        anna.register().await.expect("another principal has its own");

        greedy.open("v", ids[0], Rights::Read).await.unwrap();
        greedy.open("v", ids[1], Rights::Write).await.unwrap();
        assert_eq!(anna.get("v").await.unwrap().readers, [ids[0]]);
        drop(greedy);
        // The opens of a killed client end with its ids.
        loop {
            let volume = anna.get("v").await.unwrap();
            if (volume.readers.len(), volume.writer) == (0, 0) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for _ in 0..4 {
            second.register().await.expect("the ids came back");
        }
        drop(second);
        let mut third = Client::connect(&daemon, Some("ben")).await;
        // Ids that wait give way, once the daemon has seen that their connection ended.
        for _ in 0..8 {
            while third.register().await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
}

#[test]
fn a_call_on_another_connection_keeps_an_id() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = with_tokens();
    config.core.quotas = Quotas { idle_ms: 400, open_ms: 400, ..Quotas::default() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut first = Client::connect(&daemon, Some("anna")).await;
        let a = first.register().await.unwrap();
        first.create("v", a).await.unwrap();
        first.open("v", a, Rights::Read).await.unwrap();
        drop(first);
        let mut second = Client::connect(&daemon, Some("anna")).await;
        let keep = second.sign(KeepRequest { client_id: a });
        second.fleet.keep(keep).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert_eq!(second.get("v").await.unwrap().readers, [a]);
    });
}

#[test]
fn opens_are_bounded_for_a_principal() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = with_tokens();
    config.core.quotas = Quotas { principal_opens: 2, ..Quotas::default() };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut anna = Client::connect(&daemon, Some("anna")).await;
        let a = anna.register().await.unwrap();
        for name in ["u", "v", "w"] {
            anna.create(name, a).await.unwrap();
        }
        anna.open("u", a, Rights::Read).await.unwrap();
        anna.open("v", a, Rights::Write).await.unwrap();
        refused(anna.open("w", a, Rights::Read).await, Code::ResourceExhausted, "2 volumes open");
        anna.release("u", a).await.unwrap();
        anna.open("w", a, Rights::Read).await.unwrap();
    });
}

/// Otherwise a principal that may only read a shared volume fills its list of readers, and no other
/// principal with the right can open it.
#[test]
fn one_principal_leaves_places_among_the_readers_of_a_volume_to_others() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = with_tokens();
    config.core.quotas = Quotas { volume_readers: 3, ..Quotas::default() };
    assert!(Quotas::default().volume_readers < gnstor_proto::vendor::MAX_READERS);
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut anna = Client::connect(&daemon, Some("anna")).await;
        let a = anna.register().await.unwrap();
        anna.create("v", a).await.unwrap();
        anna.share("v", "ben", Right::Read).await.unwrap();
        let mut ben = Client::connect(&daemon, Some("ben")).await;
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(ben.register().await.unwrap());
        }
        for &id in &ids[..3] {
            ben.open("v", id, Rights::Read).await.unwrap();
        }
        refused(ben.open("v", ids[3], Rights::Read).await, Code::ResourceExhausted, "3 client ids");
        ben.open("v", ids[0], Rights::Read).await.expect("one that is a reader already");
        anna.open("v", a, Rights::Read).await.expect("others find a place");
        ben.release("v", ids[0]).await.unwrap();
        ben.open("v", ids[3], Rights::Read).await.expect("a place came back");
    });
}

/// Connections come one after the other. Each takes what it may of a volume and closes. Returns how many ids
/// hold it then.
async fn hold_all(daemon: &Daemon, name: Option<&'static str>) -> usize {
    let mut held = 0;
    loop {
        let (mut next, before) = (Client::connect(daemon, name).await, held);
        while let Ok(id) = next.register().await {
            if next.open("v", id, Rights::Read).await.is_err() {
                break;
            }
            held += 1;
        }
        if held == before {
            return held;
        }
    }
}

/// What connections that closed had open stays for a minute, so a chain of them takes more than one may.
#[test]
fn a_chain_of_connections_may_hold_all_ids_or_all_opens_of_a_daemon_without_proof() {
    let _deadline = Deadline::after(LIMIT);
    let small = Quotas { connection_ids: 3, spared_opens: 2, idle_ms: 1, ..Quotas::default() };
    let all_ids = Quotas { ids: ClientId::new(12).unwrap(), ..small };
    for (quotas, word) in [(all_ids, "client ids"), (Quotas { opens: 12, ..small }, "volumes open")] {
        let mut config = config();
        config.core.quotas = quotas;
        let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
        run(async {
            let mut first = Client::connect(&daemon, None).await;
            let id = first.register().await.unwrap();
            first.create("v", id).await.unwrap();
            drop(first);
            assert_eq!(hold_all(&daemon, None).await, 12, "{word}");
            let mut other = Client::connect(&daemon, None).await;
            let late = match other.register().await {
                Ok(id) => other.open("v", id, Rights::Read).await,
                Err(status) => Err(status),
            };
            refused(late, Code::ResourceExhausted, word);
            assert_eq!(other.get("v").await.unwrap().readers.len(), 12, "none has given way");
        });
    }
}

/// With proofs one principal cannot: four take all opens by their quotas together, and sixteen all ids.
#[test]
fn four_principals_together_may_hold_all_opens_and_sixteen_all_ids() {
    let _deadline = Deadline::after(LIMIT);
    let own = Quotas::default();
    assert_eq!(4 * own.principal_opens, own.opens);
    assert!((15 * own.principal_ids..=16 * own.principal_ids).contains(&own.ids.get().into()));
    // The same with two principals.
    let mut config = with_tokens();
    config.core.quotas = Quotas { principal_opens: 6, opens: 12, spared_opens: 2, ..own };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut root = Client::connect(&daemon, Some("root")).await;
        let id = root.register().await.unwrap();
        root.create("v", id).await.unwrap();
        for name in ["anna", "ben"] {
            root.share("v", name, Right::Read).await.unwrap();
        }
        assert_eq!(hold_all(&daemon, Some("anna")).await, 6);
        root.open("v", id, Rights::Read).await.expect("one principal leaves opens to others");
        root.release("v", id).await.unwrap();
        assert_eq!(hold_all(&daemon, Some("ben")).await, 6);
        refused(root.open("v", id, Rights::Read).await, Code::ResourceExhausted, "volumes open");
    });
}
