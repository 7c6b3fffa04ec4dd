// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An SSD that is stopped breaks no connection. The daemon finds it silent, drops it, and the array goes on.
//! A daemon that is busy or stopped itself drops no SSD.
#![expect(clippy::disallowed_methods, reason = "processes and pauses in real time")]

use crate::fleet_daemon::{BYTES, port, write_and_read};
use gnstor_daemon::core::{CoreConfig, MapFormat};
use gnstor_daemon::{Daemon, DaemonConfig};
use gnstor_fabric::runtime::TransportThreads;
use gnstor_fabric::transport::{RcTransport, TransportConfig};
use gnstor_tests::command::{BUILD_LIMIT, Ended, SsdProcess, gnstor};
use gnstor_tests::folder::Folder;
use gnstor_tests::{Guest, assert_same, pattern, volume, within};
use libgnstor::Rights;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn show(daemon: &str, args: &[&str]) -> Ended {
    gnstor(&[&["fleet", "show", "--array", daemon], args].concat())
}

/// Output of `gnstor fleet show --json`, whatever its exit code.
fn fleet(daemon: &str) -> Value {
    let shown = show(daemon, &["--json"]);
    serde_json::from_str(&shown.stdout).unwrap_or_else(|e| panic!("{e}: {} {}", shown.stdout, shown.stderr))
}

/// The threads of a transport, and a daemon of these SSDs that uses it.
fn daemon_of(ssds: &[SsdProcess]) -> (TransportThreads, Daemon) {
    let threads = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())]);
    let threads = threads.expect("a thread");
    let engine = threads.handle();
    let soft = engine.call(|engine, _| engine.add_soft()).expect("an executor");
    let ports = (0u16..).zip(ssds).map(|(ssd, at)| port(&engine, soft, ssd, &at.address()));
    let core = CoreConfig { groups: 64, map_format: MapFormat::Three, ..CoreConfig::default() };
    let config = DaemonConfig { core, ..DaemonConfig::default() };
    let daemon = Daemon::start("127.0.0.1:0".parse().unwrap(), ports.collect(), config).expect("it serves");
    (threads, daemon)
}

/// Whether the array is healthy, and no SSD has gone or come for two seconds.
fn is_steady(daemon: &str) -> bool {
    let before = fleet(daemon);
    std::thread::sleep(Duration::from_secs(2));
    let after = fleet(daemon);
    before["epoch"] == after["epoch"] && after["state"] == "healthy"
}

/// How long it takes until SSD 3 `is` so in the daemon's eyes.
fn wait_for(daemon: &str, is: impl Fn(&Value) -> bool) -> Duration {
    let begun = Instant::now();
    loop {
        let now = fleet(daemon);
        if is(&now["ssds"][3]) {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{now}");
    }
}

fn is_said_to_be_degraded(daemon: &str) {
    let shown = show(daemon, &[]);
    eprintln!("{}", shown.stdout);
    assert_eq!(shown.code, 2, "{} {}", shown.stdout, shown.stderr);
    for word in ["DEGRADED", "have one copy", "silent for", "did not answer within"] {
        assert!(shown.stdout.contains(word), "'{word}' is missing in: {}", shown.stdout);
    }
}

#[test]
fn a_stopped_ssd_of_four_is_silent_and_dropped_and_no_call_fails() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let start = |index: u16| {
            let file = folder.path().join(format!("{index}.gns")).display().to_string();
            let number = index.to_string();
            let sizes = ["--preset", "null", "--size", "64MiB", "--data", &file, "--index", &number];
            SsdProcess::start("127.0.0.1:0", &sizes)
        };
        let ssds: Vec<_> = (0..4).map(start).collect();
        let (_threads, daemon) = daemon_of(&ssds);
        let at = daemon.local_addr().to_string();
        let endpoint = format!("http://{at}");

        let guest = Guest::connect(&endpoint, "writer");
        volume(&guest.client, "v", BYTES as u64, 2);
        let healthy = show(&at, &[]);
        healthy.worked();
        assert!(healthy.stdout.contains("healthy"), "{}", healthy.stdout);

        let file = guest.client.open("v", Rights::Write).unwrap();
        file.write_at(0, &pattern(7, BYTES)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || write_and_read(&file, &stop)
        });
        // Nothing flaps beside the load. Where other work takes the cores, an SSD may be starved for as long
        // as a silence lasts: then it is looked at once more.
        assert!((0..8).any(|_| is_steady(&at)), "{}", fleet(&at));

        ssds[3].signal("-STOP");
        let dropped = wait_for(&at, |ssd| ssd["state"] == "out");
        eprintln!("the stopped SSD was seen to be out {dropped:?} after it was stopped");
        is_said_to_be_degraded(&at);
        std::thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        let (data, rounds, longest) = writer.join().expect("no call failed");
        eprintln!("{rounds} rounds of a write and a read, of which the longest took {longest:?}");
        ssds[3].signal("-CONT");
        let answered = wait_for(&at, |ssd| ssd["down_ms"].is_null());
        eprintln!("it answered again {answered:?} after it went on");
        // The one that has the only copies now is not taken out without the word.
        let fail = gnstor(&["fleet", "fail", "9", "--array", &at]);
        fail.failed(&["SSD 9 cannot be failed", "SSDs 0 to 3"]);
        let reader = Guest::connect(&endpoint, "reader");
        let file = reader.client.open("v", Rights::Read).unwrap();
        let mut read = vec![0; BYTES];
        file.read_at(0, &mut read).unwrap();
        assert_same("after the stop", &read, &data);
        drop((file, reader, guest));
        daemon.stop().expect("it served until now");
        ssds.into_iter().for_each(|ssd| drop(ssd.end("-TERM")));
    });
}
