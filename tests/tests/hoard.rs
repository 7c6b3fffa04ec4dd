// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Callers of a daemon without proofs that hold all client ids and use none. Clients write and read
//! meanwhile. A client that is killed leaves its volumes.
#![expect(clippy::disallowed_methods, reason = "the time of a killed client is measured")]

use crate::fleet_daemon::port;
use gnstor_daemon::core::{CoreConfig, Quotas};
use gnstor_daemon::{Daemon, DaemonConfig};
use gnstor_fabric::runtime::TransportThreads;
use gnstor_fabric::transport::{RcTransport, TransportConfig};
use gnstor_proto::grpc::fleet_client::FleetClient;
use gnstor_proto::grpc::{KeepRequest, RegisterRequest};
use gnstor_proto::slba::ClientId;
use gnstor_tests::command::{
    BUILD_LIMIT, GNSTOR, Guard, LIMIT, SsdProcess, Up, run_for, signal, until, wait,
};
use gnstor_tests::folder::Folder;
use gnstor_tests::{Guest, pattern, volume, within};
use libgnstor::{CreateOptions, File, Manager, Rights};
use std::time::{Duration, Instant};
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

/// A daemon with these quotas, and an SSD in a process of its own.
fn daemon_with(quotas: Quotas) -> (SsdProcess, TransportThreads, Daemon) {
    let ssd = SsdProcess::start("127.0.0.1:0", &["--preset", "null", "--size", "64MiB", "--index", "0"]);
    let threads = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]);
    let threads = threads.expect("a thread");
    let engine = threads.handle();
    let soft = engine.call(|engine, _| engine.add_soft()).expect("an executor");
    let core = CoreConfig { groups: 64, quotas, ..CoreConfig::default() };
    let config = DaemonConfig { core, ..DaemonConfig::default() };
    let ports = vec![port(&engine, soft, 0, &ssd.address())];
    let daemon = Daemon::start("127.0.0.1:0".parse().unwrap(), ports, config).expect("it serves");
    (ssd, threads, daemon)
}

#[test]
fn a_client_whose_id_gave_way_is_told_to_register_again() {
    within(BUILD_LIMIT, || {
        let quotas = Quotas { ids: ClientId::new(4).expect("an id"), ..Quotas::default() };
        let (_ssd, _threads, daemon) = daemon_with(quotas);
        let at = daemon.local_addr().to_string();

        let manager = Manager::connect(&at, "idle").expect("it registers");
        let options = CreateOptions { capacity_bytes: 1 << 20, replicas: 1, ..CreateOptions::default() };
        manager.create("before", &options).expect("its id is its own");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let told = runtime.expect("a runtime").block_on(async {
            let endpoint = Channel::from_shared(format!("http://{at}")).expect("an address");
            loop {
                // Another connection takes the id and closes, as if the client's own had broken.
                let mut thief = FleetClient::new(endpoint.connect().await.expect("a connection"));
                thief.keep(KeepRequest { client_id: 1 }).await.expect("a daemon without proofs believes it");
                drop(thief);
                let (_held, ids) = hoards(at.clone()).await;
                let told = tokio::task::block_in_place(|| manager.create("after", &options));
                // Otherwise the client, which names its id every 5 s, has kept it.
                if ids == 4 {
                    break told.expect_err("the id is of another client");
                }
                tokio::task::block_in_place(|| manager.delete("after")).expect("it was made");
            }
        });
        assert_eq!(told.errno(), 13);
        let words = told.to_string();
        assert!(
            words.contains("client id 1 is of another client") && words.contains("register again"),
            "{words}"
        );
        let again = Manager::connect(&at, "again").expect("ids came back");
        again.create("again", &options).expect("its id is its own");
        daemon.stop().expect("it served until then");
    });
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

/// Bytes of a volume whose copy takes long enough to be killed.
const LARGE: usize = 24 << 20;

/// A process that reads a volume and is killed. It has told the daemon nothing.
#[test]
fn a_reader_whose_process_is_killed_leaves_its_volume() {
    within(BUILD_LIMIT, || {
        let quotas = Quotas { open_ms: 3000, ..Quotas::default() };
        let (ssd, _threads, daemon) = daemon_with(quotas);
        let at = daemon.local_addr().to_string();
        let folder = Folder::new();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("in"), pattern(1, LARGE)).expect("a file");
        let copy = |words: &[&str]| {
            let mut command = std::process::Command::new(&*GNSTOR);
            command.args(["cp", "--device", "host", "--array", &at]).args(words);
            command
        };
        let copied = run_for(copy(&[&path("in"), "gn://v", "--replicas", "1"]), LIMIT);
        assert_eq!(copied.code, 0, "{}", copied.stderr);
        let manager = Manager::connect(&at, "witness").expect("it registers");
        let readers = || manager.get("v").expect("it is there").readers;
        let mut copying = Guard(copy(&["gn://v", &path("out")]).spawn().expect("the command starts"));
        until("the copy has opened the volume", || !readers().is_empty());
        signal(&copying, "-KILL");
        assert_eq!(wait(&mut copying, LIMIT), Some(1000), "it was killed and had not ended");
        let killed = Instant::now();
        assert!(!readers().is_empty(), "its time is not over");
        until("its entry is gone", || readers().is_empty());
        let took = killed.elapsed();
        assert!(took > Duration::from_millis(2000), "{took:?}: its time was not over");
        daemon.stop().expect("it served until then");
        ssd.end("-TERM");
    });
}
