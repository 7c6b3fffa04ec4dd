// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an array has left after many clients have come and gone at the port of its SSDs.

use crate::{LIMIT, guest, number};
use gnstor_tests::command::{Up, until};
use gnstor_tests::folder::Folder;
use gnstor_tests::{BLOCK, long, volume, within};
use libgnstor::Rights;
use std::time::Duration;

/// Clients at a time. Half of them end without a goodbye to the SSDs, as their engines stop first.
const AT_ONCE: usize = 8;

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count()
}

/// Resident memory of the array, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("KiB")
}

/// Clients that prove who they are, connect to all SSDs, read a block, and go.
fn come_and_go(up: &Up, clients: usize) {
    for first in (0..clients).step_by(AT_ONCE) {
        std::thread::scope(|scope| {
            for nth in first..clients.min(first + AT_ONCE) {
                scope.spawn(move || {
                    let one = guest(&up.daemon, "one of many");
                    let file = one.client.open("v", Rights::Read).expect("it is opened");
                    file.read_at(0, &mut [0; BLOCK]).expect("it is read");
                    if nth % 2 == 0 {
                        let crate::Guest { client, _engine: engine } = one;
                        drop((file, engine));
                        drop(client);
                    }
                });
            }
        });
    }
}

#[test]
fn clients_that_come_and_go_at_the_ssds_leave_nothing_behind() {
    let times = number("GNSTOR_HOSTILE_COME", if long() { 10_000 } else { 400 });
    let times = usize::try_from(times).expect("some");
    let folder = Folder::new();
    let key = folder.path().join("manager.key").display().to_string();
    within(LIMIT + Duration::from_millis(100) * u32::try_from(times).expect("some"), move || {
        let up = Up::start(&["--ssds", "2", "--manager-key", &key]);
        let honest = guest(&up.daemon, "honest");
        volume(&honest.client, "v", 1 << 20, 2);
        let file = honest.client.open("v", Rights::Read).expect("it is opened");
        // Buffers that stay are touched.
        come_and_go(&up, 100 + times / 4);
        let (before, files) = (resident(up.pid()), descriptors(up.pid()));
        come_and_go(&up, times);
        until("the descriptors are given back", || descriptors(up.pid()) <= files);
        let after = resident(up.pid());
        println!("{times} clients that came and went: {before} KiB, then {after} KiB");
        assert!(after as f64 <= before as f64 * 1.05, "memory grows: {before} KiB, then {after} KiB");
        file.read_at(0, &mut [0; BLOCK]).expect("the client that stayed is served");
        drop((file, honest));
        up.end("-TERM");
    });
}
