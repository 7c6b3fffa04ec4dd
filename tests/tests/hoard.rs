// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Callers of a daemon without proofs that hold all client ids and use none. Clients write and read
//! meanwhile.

use gnstor_proto::grpc::RegisterRequest;
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_tests::command::{BUILD_LIMIT, Up};
use gnstor_tests::{Guest, pattern, volume, within};
use libgnstor::{File, Rights};
use std::time::Duration;
use tonic::transport::Channel;

/// Connections, and the ids that each registers: together more than the 65,534 that there are.
const CONNECTIONS: usize = 1_100;
const OF_EACH: usize = 64;
const IDS: usize = 65_534;
/// Connections that register at once.
const TASKS: usize = 8;

/// A process may have this many descriptors from now on.
fn may_have_descriptors(pid: u32) {
    let mut prlimit = std::process::Command::new("prlimit");
    prlimit.args(["--pid", &pid.to_string(), "--nofile=4096:"]);
    assert!(prlimit.status().expect("prlimit runs").success());
}

/// Registers until the daemon refuses. Returns the number of registrations.
async fn hoards(daemon: String) -> (FleetClient<Channel>, usize) {
    let endpoint = Channel::from_shared(format!("http://{daemon}")).expect("an address");
    let mut fleet = FleetClient::new(endpoint.connect().await.expect("the daemon takes connections"));
    let mut ids = 0;
    while ids < OF_EACH && fleet.register(RegisterRequest { name: "greedy".into() }).await.is_ok() {
        ids += 1;
    }
    (fleet, ids)
}

/// The connections, which are held.
async fn hoard(daemon: &str) -> Vec<FleetClient<Channel>> {
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let daemon = daemon.to_owned();
            tokio::spawn(async move {
                let mut held = Vec::new();
                for _ in (task..CONNECTIONS).step_by(TASKS) {
                    held.push(hoards(daemon.clone()).await);
                }
                held
            })
        })
        .collect();
    let mut held = Vec::new();
    for task in tasks {
        held.extend(task.await.expect("no connection is refused"));
    }
    let registered: usize = held.iter().map(|(_, ids)| ids).sum();
    assert!(registered >= IDS - 2, "{registered} registrations: some ids are left");
    held.into_iter().map(|(fleet, _)| fleet).collect()
}

fn writes_and_reads(file: &File, seed: u64) {
    let (data, mut back) = (pattern(seed, 1 << 16), vec![0; 1 << 16]);
    file.write_at(0, &data).expect("a write is taken");
    file.read_at(0, &mut back).expect("a read is served");
    assert!(data == back, "what was written is read");
}

#[test]
fn clients_register_write_and_read_while_others_hold_all_ids_and_use_none() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        may_have_descriptors(up.pid());
        may_have_descriptors(std::process::id());
        let endpoint = format!("http://{}", up.daemon);
        let idle = Guest::connect(&endpoint, "idle");
        let early = Guest::connect(&endpoint, "early");
        volume(&early.client, "early", 1 << 20, 2);
        let file = early.client.open("early", Rights::Write).expect("it opens");
        writes_and_reads(&file, 1);

        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let held = runtime.block_on(hoard(&up.daemon));
        for number in 0..3 {
            let late = Guest::connect(&endpoint, "late");
            let name = format!("late-{number}");
            volume(&late.client, &name, 1 << 20, 2);
            let file = late.client.open(&name, Rights::Write).expect("it opens");
            writes_and_reads(&file, 2 + number);
        }
        writes_and_reads(&file, 9);
        volume(&idle.client, "idle", 1 << 20, 2);
        let file = idle.client.open("idle", Rights::Write).expect("its id is its own");
        // A client names its id every 5 s.
        std::thread::sleep(Duration::from_secs(6));
        writes_and_reads(&file, 10);
        assert_eq!(held.len(), CONNECTIONS);
        drop(file);
        runtime.block_on(async { drop(held) });
        up.end("-TERM");
    });
}
