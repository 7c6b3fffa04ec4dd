// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A write that failed: copies of its blocks may differ, and an operator sees that.

use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor, until};
use gnstor_tests::{BLOCK, Guest, volume, within};
use libgnstor::Rights;
use serde_json::Value;
use std::time::Duration;

/// Whether `gnstor ARGS --json` reports that the replicas of this volume may differ.
fn may_differ(shown: &Value, name: &str) -> bool {
    let all = shown.as_array().or_else(|| shown["volumes"].as_array()).expect("volumes");
    let volume = all.iter().find(|v| v["name"] == name).expect("it is listed");
    volume["replicas_may_differ"].as_bool().expect("a word of it")
}

/// Two SSDs, whose map keeps its places: the array makes nothing the same by itself.
#[test]
fn after_a_write_that_failed_each_command_says_which_copies_may_differ() {
    within(BUILD_LIMIT, || {
        let start = |index: &str| {
            SsdProcess::start("127.0.0.1:0", &["--preset", "null", "--size", "64MiB", "--index", index])
        };
        let ssds = [start("0"), start("1")];
        let addresses: Vec<_> = ssds.iter().map(SsdProcess::address).collect();
        let up = Up::start_as(&["--ssd-at", &addresses.join(",")]);
        let guest = Guest::connect_for(&up.daemon, "writer", Duration::from_secs(2));
        let files = ["whole", "doubtful"].map(|name| {
            volume(&guest.client, name, 1 << 20, 2);
            guest.client.open(name, Rights::Write).unwrap()
        });
        let data = vec![7; 16 * BLOCK];
        files.iter().for_each(|file| file.write_at(0, &data).unwrap());
        let ask = |what: &[&str]| gnstor(&[what, &["--array", &up.daemon]].concat());
        assert!(!may_differ(&ask(&["volume", "list", "--json"]).json(), "doubtful"));

        ssds[1].signal("-STOP");
        let wrote = files[1].write_at(0, &data);
        // First of all: what a failed test drops waits for this SSD.
        ssds[1].signal("-CONT");
        assert!(wrote.is_err(), "one SSD does not answer");
        until("all SSDs are there", || {
            let shown = ask(&["status", "--json"]).state();
            shown["ssds"].as_array().is_some_and(|ssds| ssds.iter().all(|ssd| ssd["state"] == "online"))
        });
        until("the daemon is told", || may_differ(&ask(&["volume", "list", "--json"]).json(), "doubtful"));
        let status = ask(&["status", "--json"]).state();
        assert!(may_differ(&status, "doubtful") && status["state"] == "degraded", "{status:#}");
        let problem = status["problems"][0]["what"].as_str().expect("a problem");
        assert!(problem.contains("copies of doubtful may differ"), "{problem}");
        up.until_it_says(|problems| matches!(problems, [one] if *one == problem));
        for shown in [ask(&["volume", "list", "--json"]).json(), status] {
            assert!(!may_differ(&shown, "whole"), "{shown:#}");
        }
        let list = ask(&["volume", "list"]).stdout;
        let line = |name: &str| list.lines().find(|line| line.starts_with(name)).expect("a line").to_owned();
        assert!(line("doubtful").contains("copies may differ"), "{list}");
        assert!(!line("whole").contains("differ"), "{list}");
        let show = ask(&["volume", "show", "doubtful"]).stdout;
        assert!(show.contains("copies      may differ"), "{show}");
        drop(files);
        drop(guest);
        up.end("-TERM");
    });
}
