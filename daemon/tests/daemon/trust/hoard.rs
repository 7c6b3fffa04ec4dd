// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Callers that hold ids and use none, at a daemon without proofs. The quota of a principal bounds nothing
//! there.

use super::rights::{Party, held};
use super::*;
use crate::bench::{Bench, read};
use gnstor_auth::{CLIENT_PROOF, ShownClient};
use gnstor_daemon::core::rights::Caller;
use gnstor_proto::slba::ClientId;

/// Connections and the ids of each. Together they are more than there are.
struct Hoard {
    connections: usize,
    of_each: usize,
}

impl Hoard {
    /// With `GNSTOR_LONG` the bounds are the daemon's own.
    fn with(config: &mut DaemonConfig) -> Self {
        if std::env::var_os("GNSTOR_LONG").is_some_and(|value| !value.is_empty()) {
            return Self { connections: 1_100, of_each: config.core.quotas.connection_ids };
        }
        config.core.quotas =
            Quotas { ids: ClientId::new(1_000).unwrap(), connection_ids: 16, ..config.core.quotas };
        Self { connections: 70, of_each: 16 }
    }

    /// Registers until each connection has as many ids as it gets.
    async fn fill(&self, daemon: &Daemon) -> Vec<Greedy> {
        let mut calls = Vec::new();
        for _ in 0..self.connections {
            let mut client = Client::connect(daemon, None).await;
            let most = self.of_each;
            calls.push(tokio::spawn(async move {
                let mut ids = Vec::new();
                while let Ok(own) = Own::register(&mut client).await {
                    ids.push(own);
                    assert!(ids.len() <= most, "the quota of a connection");
                }
                Greedy { client, ids }
            }));
        }
        let mut held = Vec::new();
        for call in calls {
            held.push(call.await.unwrap());
        }
        held
    }
}

/// A connection that holds ids.
struct Greedy {
    client: Client,
    ids: Vec<Own>,
}

/// An id, and the number of its registration.
#[derive(Clone, Copy)]
struct Own {
    id: u32,
    serial: u64,
}

impl Own {
    async fn register(client: &mut Client) -> Result<Self, Status> {
        let reply = client.fleet.register(client.sign(RegisterRequest { name: "x".into() })).await?;
        let reply = reply.into_inner();
        Ok(Self { id: reply.client_id, serial: reply.registration })
    }

    /// Names the id, and shows the registration.
    async fn keep(self, client: &mut Client) -> Result<(), Status> {
        let mut request = client.sign(KeepRequest { client_id: self.id });
        let shown = ShownClient::without_secret(u16::try_from(self.id).unwrap(), self.serial);
        request.metadata_mut().insert(CLIENT_PROOF, shown.to_text().parse().unwrap());
        client.fleet.keep(request).await.map(drop)
    }
}

/// Names all ids. Returns how many have given way.
async fn told(held: &mut Vec<Greedy>) -> usize {
    let calls = held.drain(..).map(|Greedy { mut client, ids }| async move {
        let (mut kept, mut told) = (Vec::new(), 0);
        for own in ids {
            match own.keep(&mut client).await {
                Ok(()) => kept.push(own),
                Err(status) => {
                    refused(Err::<(), _>(status), Code::PermissionDenied, "register again");
                    told += 1;
                }
            }
        }
        (Greedy { client, ids: kept }, told)
    });
    let calls: Vec<_> = calls.map(tokio::spawn).collect();
    let mut all = 0;
    for call in calls {
        let (greedy, told) = call.await.unwrap();
        held.push(greedy);
        all += told;
    }
    all
}

/// What a client does from its registration on.
async fn works(client: &mut Client, name: &str) -> u32 {
    let id = client.register().await.expect("an id gives way to it");
    client.create(name, id).await.unwrap();
    client.open(name, id, Rights::Write).await.unwrap();
    client.open(name, id, Rights::Read).await.unwrap();
    client.renew(name, id).await.unwrap();
    id
}

/// Files are written and read meanwhile in `tests/tests/hoard.rs`.
#[test]
fn connections_that_hold_all_ids_and_use_none_keep_no_client_out() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = config();
    let hoard = Hoard::with(&mut config);
    let all = usize::from(config.core.quotas.ids.get());
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut early = Client::connect(&daemon, None).await;
        let idle = Own::register(&mut early).await.unwrap();
        let mut opener = Client::connect(&daemon, None).await;
        let opened = works(&mut opener, "of-opener").await;

        let mut held = hoard.fill(&daemon).await;
        let registered: usize = held.iter().map(|greedy| greedy.ids.len()).sum();
        let gave_way = told(&mut held).await;
        assert_eq!(registered - gave_way, all - 2, "all ids are held, and each call has named them");
        let mut honest = Vec::new();
        for round in 0..20 {
            let mut client = Client::connect(&daemon, None).await;
            let id = works(&mut client, &format!("v{round}")).await;
            honest.push((client, id));
        }
        assert_eq!(told(&mut held).await, 20, "one for each, and its client is told");
        for (round, (client, id)) in honest.iter_mut().enumerate() {
            client.renew(&format!("v{round}"), *id).await.unwrap();
        }
        // The one that was idle all the time has its id, which no other client has.
        idle.keep(&mut early).await.unwrap();
        early.create("of-early", idle.id).await.unwrap();
        early.open("of-early", idle.id, Rights::Write).await.unwrap();
        opener.renew("of-opener", opened).await.expect("an id with opens gives no way");
    });
}

/// Otherwise the id, and what the call opened, would be held for as long as the daemon runs.
#[test]
fn a_call_that_is_served_after_its_connection_closed_keeps_no_id() {
    let _deadline = Deadline::after(LIMIT);
    let array = SimArray::new(2);
    let mut bench = Bench::start(&array, 0);
    let (anna, ben) = (Party::of(&mut bench, Caller::local(1)), Party::of(&mut bench, Caller::local(2)));
    anna.make(&mut bench, "v");
    anna.send(&mut bench, read("v", anna.id.get()));
    let waits = ben.send(&mut bench, read("v", ben.id.get()));
    assert!(!bench.replies.contains_key(&waits), "it waits for the change before it");
    bench.core.closed(bench.now, 2);
    bench.run_until_quiet();
    assert_eq!(held(&bench, 0).1, [anna.id, ben.id]);
    bench.run_for(61_000);
    assert_eq!(held(&bench, 0).1, [anna.id]);
    assert_eq!(bench.core.clients(), 1);
}

/// Clients of earlier versions do not show their registration.
#[test]
fn a_caller_that_does_not_show_its_registration_is_not_told_that_its_id_gave_way() {
    let _deadline = Deadline::after(LIMIT);
    let mut config = config();
    config.core.quotas = Quotas { ids: ClientId::new(3).unwrap(), ..config.core.quotas };
    let daemon = Daemon::start(ANY, SimArray::new(2).ports(), config).unwrap();
    run(async {
        let mut client = Client::connect(&daemon, None).await;
        let first = Own::register(&mut client).await.unwrap();
        for _ in 0..2 {
            Own::register(&mut client).await.unwrap();
        }
        let mut other = Client::connect(&daemon, None).await;
        let own = Own::register(&mut other).await.expect("an id gives way to it");
        assert_eq!(own.id, first.id, "the one that is unused for longest");
        let silent = client.sign(KeepRequest { client_id: first.id });
        client.fleet.keep(silent).await.expect("it cannot be told from the present holder");
        refused(first.keep(&mut client).await, Code::PermissionDenied, "register again");
    });
}
