// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that has no file descriptor left, because of a limit that the test sets.
#![expect(clippy::disallowed_methods, reason = "the end of a process is timed")]

use gnstor_tests::command::{BUILD_LIMIT, Up};
use gnstor_tests::{BLOCK, Guest, assert_same, pattern, volume, within};
use libgnstor::Rights;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the test observes the process.
const LOOK: Duration = Duration::from_secs(2);

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count()
}

/// Limits the process to `most` descriptors from now on.
fn limit(pid: u32, most: usize) {
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &pid.to_string(), &format!("--nofile={most}:{most}")]);
    assert!(prlimit.status().expect("prlimit runs").success());
}

/// Processor time that the idle array takes.
fn taken(up: &Up) -> f64 {
    let before = up.cpu_seconds();
    std::thread::sleep(LOOK);
    up.cpu_seconds() - before
}

/// Connections that the kernel accepts. The array would accept them, too, at both of its ports.
fn connections(up: &Up) -> Vec<TcpStream> {
    let fabric = up.serving["fabric"].as_str().expect("an address");
    [fabric, up.daemon.trim_start_matches("http://")]
        .iter()
        .flat_map(|at| (0..32).map(move |_| TcpStream::connect(at).expect("the kernel takes it")))
        .collect()
}

#[test]
#[ignore = ".ci/run runs it: it waits for most of its time"]
fn a_process_without_descriptors_ends_when_it_is_told_to() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        limit(up.pid(), descriptors(up.pid()) + 6);
        let held = connections(&up);
        // By then the waits between two tries are long.
        std::thread::sleep(Duration::from_secs(4));
        let begun = Instant::now();
        up.end("-TERM");
        assert!(begun.elapsed() < Duration::from_secs(10), "TERM took {:?}", begun.elapsed());
        drop(held);
    });
}

#[test]
fn a_process_without_descriptors_spins_on_no_core_goes_on_and_lets_clients_in_again() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "2"]);
        let guest = Guest::connect(&up.daemon, "first");
        volume(&guest.client, "v", 1 << 20, 2);
        let file = guest.client.open("v", Rights::Write).unwrap();
        let data = pattern(1, 16 * BLOCK);
        file.write_at(0, &data).unwrap();
        let (idle, most) = (taken(&up), descriptors(up.pid()) + 6);
        limit(up.pid(), most);
        let held = connections(&up);
        std::thread::sleep(Duration::from_millis(200));
        assert!(descriptors(up.pid()) >= most, "none is left");
        let busy = taken(&up);
        println!("{idle:.2} s of {LOOK:?} with descriptors, {busy:.2} s without");
        assert!(busy < idle + 0.25 * LOOK.as_secs_f64(), "{busy:.2} s, {idle:.2} s before");
        let mut back = vec![0; data.len()];
        file.write_at(0, &data).expect("the client that is there goes on");
        file.read_at(0, &mut back).expect("the client that is there goes on");
        assert_same("without descriptors", &back, &data);
        drop(held);
        let other = Guest::connect(&up.daemon, "second");
        other.client.open("v", Rights::Read).unwrap().read_at(0, &mut back).unwrap();
        assert_same("after that", &back, &data);
        drop((file, guest, other));
        up.end("-TERM");
    });
}
