// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On a GPU without ordered writes to its memory, a completion does not show that the data has arrived. A
//! client must first execute a DUMP.

use gnstor_tests::command::{BUILD_LIMIT, Ended, gnstor_with};
use gnstor_tests::folder::Folder;
use gnstor_tests::{pattern, within};

/// Runs the demo with this environment.
fn demo(environment: &[(&str, &str)]) -> Ended {
    let folder = Folder::new();
    let path = folder.path().join("input");
    std::fs::write(&path, pattern(1, 300_001)).expect("a file can be written");
    let input = path.to_str().expect("a plain path");
    gnstor_with(&["demo", "--device", "host", "--preset", "null", "--json", "--input", input], environment)
}

fn bench(mode: &str, environment: &[(&str, &str)]) -> Ended {
    let load = "bench --device host --preset null --runtime 300ms --warmup 100ms --size 1MiB --iodepth 16 \
        --rw randrw --json --mode";
    gnstor_with(&load.split(' ').chain([mode]).collect::<Vec<_>>(), environment)
}

#[test]
fn a_client_without_dumps_reads_old_bytes_and_the_demo_says_so() {
    within(BUILD_LIMIT, || {
        let ended = demo(&[("GNSTOR_UNORDERED", "1"), ("GNSTOR_DUMPS", "0")]);
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{}", ended.stderr);
        for words in ["reads may bring old bytes", "74 of 74 blocks are not what was written"] {
            assert!(ended.stderr.contains(words), "'{words}' is missing in: {}", ended.stderr);
        }
    });
}

#[test]
fn behind_dumps_the_demo_and_a_load_verify() {
    within(BUILD_LIMIT, || {
        for (unordered, dumps) in [("1", ""), ("all", ""), ("0", "1")] {
            let environment = [("GNSTOR_UNORDERED", unordered), ("GNSTOR_DUMPS", dumps)];
            assert_eq!(demo(&environment).json()["verified"], true, "{environment:?}");
            let report = bench("gnstor", &environment).json();
            let verify = &report["verify"];
            assert!(
                verify["ios"].as_u64() > Some(0) && verify["ios"] == verify["verified_ios"],
                "{environment:?}: {report}"
            );
        }
    });
}

#[test]
fn queues_of_the_cpu_refuse_what_is_not_ordered() {
    within(BUILD_LIMIT, || {
        for mode in ["gd", "basic"] {
            bench(mode, &[("GNSTOR_UNORDERED", "1")])
                .failed(&["this HCA's writes to the device are not ordered"]);
        }
    });
}

#[test]
fn a_switch_that_means_nothing_is_an_error() {
    within(BUILD_LIMIT, || {
        demo(&[("GNSTOR_UNORDERED", "yes")]).failed(&["GNSTOR_UNORDERED=yes: it may be 0, 1 or all"]);
        demo(&[("GNSTOR_DUMPS", "off")]).failed(&["GNSTOR_DUMPS=off: it may be 0 or 1"]);
    });
}
