// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SSDs that demand a Diffie-Hellman group of each host: `--dh-group`. And what proofs add to a connect.
#![expect(clippy::disallowed_methods, reason = "the time of a connection is measured")]

use gnstor_array::{Array, ArrayConfig, Group, Secret, Ssds};
use gnstor_tests::command::{BUILD_LIMIT, SsdProcess, Up, gnstor};
use gnstor_tests::folder::Folder;
use gnstor_tests::{any_port, assert_same, node, options, pattern, small_config, within};
use libgnstor::{Client, ConnectOptions, Fabric, RcTransport, TransportConfig, TransportThreads};
use std::time::{Duration, Instant};

/// Time that a proof may add to a connect. The goal is 2 ms without a group, and `GNSTOR_CONNECTS` asks for
/// it. Otherwise the machine may be loaded, so this fails only if the code waits for a timer. A group takes
/// sixteen powers of numbers with 2,048 or 3,072 bits for four SSDs.
fn may_add(group: Option<Group>) -> Duration {
    let most = if group == Some(Group::Null) { goal_or(100) } else { 500 };
    Duration::from_millis(most)
}

/// The time in ms that a proof without a group may add: the goal if `GNSTOR_CONNECTS` is set.
pub(crate) fn goal_or(loaded_ms: u64) -> u64 {
    if std::env::var_os("GNSTOR_CONNECTS").is_some() { 2 } else { loaded_ms }
}

#[test]
fn ssds_that_demand_a_group_serve_the_daemon_and_clients_that_take_part_in_it() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (key, data) = (path("array.key"), pattern(1, 100_000));
        std::fs::write(path("in"), &data).expect("a file");
        for group in ["2048", "3072"] {
            let size = ["--preset", "null", "--size", "64MiB", "--manager-key", &key, "--dh-group", group];
            let ssd = SsdProcess::start("127.0.0.1:0", &size);
            let up = Up::start_as(&["--ssd-at", &ssd.address(), "--manager-key", &key]);
            up.cp(&[&path("in"), "gn://v"]).worked();
            up.cp(&["gn://v", &path("out")]).worked();
            assert_same(group, &std::fs::read(path("out")).expect("it is there"), &data);
            up.end("-TERM");
            ssd.end("-TERM");
        }
        let up = Up::start(&["--ssds", "2", "--dh-group", "2048"]);
        up.cp(&[&path("in"), "gn://v"]).worked();
        up.end("-TERM");
        gnstor(&["ssd", "--dh-group", "1024", "--manager-key", &key])
            .not_understood(&["null", "2048", "3072"]);
        gnstor(&["ssd", "--dh-group", "2048", "--no-auth"]).not_understood(&["--no-auth"]);
        let at = ["--ssd-at", "127.0.0.1:9", "--manager-key", &key];
        gnstor(&[&["up", "--dh-group", "2048"], &at[..]].concat()).not_understood(&["--ssd-at"]);
    });
}

/// An array of four SSDs whose hosts prove themselves in this group, or need no proof.
fn array_of(group: Option<Group>) -> Array {
    let mut config = ArrayConfig { fabric_listen: Some(any_port()), ..small_config(4) };
    if let (Some(dh_group), Ssds::Here(plans)) = (group, &mut config.ssds) {
        config.manager_key = Some(Secret::random());
        plans.iter_mut().for_each(|plan| plan.dh_group = dh_group);
    }
    Array::start(&config).expect("an array starts")
}

/// The median, the 99th percentile and the longest.
fn spread(took: &mut [Duration]) -> [Duration; 3] {
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() * percent).div_ceil(100).max(1) - 1];
    [at(50), at(99), at(100)]
}

/// A client connects over TCP, in turn with an array that asks for no proof and with one of each group.
/// `GNSTOR_CONNECTS=100` gives the figures of the documents, and fails beyond the goal.
#[test]
fn a_client_over_tcp_that_proves_itself_to_four_ssds_waits_for_nothing() {
    within(BUILD_LIMIT, || {
        let groups = [None, Some(Group::Null), Some(Group::Ffdhe2048), Some(Group::Ffdhe3072)];
        let arrays = groups.map(array_of);
        let engine = TransportThreads::start(vec![RcTransport::new(TransportConfig::default())])
            .expect("an engine starts");
        let node = node(engine.handle());
        let count = std::env::var("GNSTOR_CONNECTS").ok().and_then(|count| count.parse().ok()).unwrap_or(10);
        let connects = || {
            let mut took = groups.map(|_| Vec::new());
            for number in 0..count {
                for (array, took) in arrays.iter().zip(&mut took) {
                    let options =
                        ConnectOptions { fabric: Fabric::Daemon, ..options(array, &format!("c{number}")) };
                    let start = Instant::now();
                    let client = Client::connect(&node, &options).expect("it connects");
                    took.push(start.elapsed());
                    drop(client);
                }
            }
            let mut medians = Vec::new();
            for (group, took) in groups.iter().zip(&mut took) {
                let [p50, p99, max] = spread(took);
                let what = group.map_or("no proof".to_owned(), |group| format!("a proof in group {group:?}"));
                println!(
                    "{count} connects to four SSDs, {what}: p50 {p50:.2?}, p99 {p99:.2?}, max {max:.2?}"
                );
                medians.push(p50);
            }
            let slow: Vec<_> = groups
                .into_iter()
                .zip(medians.iter().copied())
                .filter(|&(group, median)| group.is_some() && median >= medians[0] + may_add(group))
                .collect();
            (slow, medians[0])
        };
        // A busy machine may be slow once. A wait for a timer comes each time.
        let (slow, without) =
            (0..4).map(|_| connects()).find(|(slow, _)| slow.is_empty()).unwrap_or_else(connects);
        assert!(slow.is_empty(), "{slow:?}, {without:?} without");
        drop(node);
        drop(engine);
        for array in arrays {
            array.stop().expect("it stops");
        }
    });
}
