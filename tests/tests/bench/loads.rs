// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs of every mode and direction, and the contents of their reports.

use super::{SMALL, bench, runtime, summary};
use gnstor_tests::BLOCK;
use gnstor_tests::command::{BUILD_LIMIT, gnstor};
use gnstor_tests::folder::Folder;
use gnstor_tests::within;
use serde_json::Value;

#[test]
fn every_load_runs_and_all_of_it_is_verified() {
    within(BUILD_LIMIT, || {
        let null = ["--preset", "null", "--runtime", runtime()];
        for (rw, reads, writes) in [
            ("read", true, false),
            ("write", false, true),
            ("randread", true, false),
            ("randwrite", false, true),
            ("randrw", true, true),
        ] {
            summary(&bench(&[&null[..], &["--rw", rw]].concat()), reads, writes);
        }
        let clients = bench(
            &[&null[..], &["--rw", "randrw", "--clients", "3", "--iodepth", "5", "--bs", "12k"]].concat(),
        );
        summary(&clients, true, true);
        assert_eq!((&clients["load"]["clients"], &clients["load"]["bs"]), (&3.into(), &12_288.into()));
        // On a busy machine no such request ends within 200 ms.
        let large = ["--rw", "randrw", "--iodepth", "2", "--bs", "1m", "--size", "4MiB", "--one-grid"];
        summary(&bench(&[&["--preset", "null", "--runtime", "500ms"], &large[..]].concat()), true, true);
        let unchecked = bench(&[&null[..], &["--rw", "randrw", "--verify", "off"]].concat());
        assert_eq!(unchecked["verify"], Value::Null);
        assert!(unchecked["iops"].as_f64().is_some_and(|iops| iops > 0.0));
    });
}

#[test]
fn the_cpu_centric_baselines_run_and_all_of_it_is_verified() {
    within(BUILD_LIMIT, || {
        for mode in ["gd+deengine", "gd", "basic"] {
            let words = ["--preset", "null", "--runtime", runtime(), "--mode", mode, "--rw"];
            let report = bench(&[&words[..], &["randrw", "--clients", "2"]].concat());
            summary(&report, true, true);
            assert_eq!(report["load"]["mode"], mode);
            assert!(
                report["cpu"]["threads"]["gn-proxy"].as_f64().is_some_and(|seconds| seconds > 0.0),
                "{report}"
            );
            let logged = report["stages"]["log_records"].as_u64().expect("a number");
            let writes = report["write"]["ios"].as_u64().expect("a number");
            assert_eq!(
                logged >= writes,
                mode != "gd+deengine",
                "{mode}: {logged} records for {writes} writes"
            );
            // Requests that cross several chunks, in units that are not aligned to chunks.
            summary(
                &bench(&[&words[..], &["write", "--bs", "200k", "--iodepth", "3"]].concat()),
                false,
                true,
            );
            summary(&bench(&[&words[..], &["read", "--iodepth", "128"]].concat()), true, false);
        }
    });
}

#[test]
fn both_ways_to_copy_a_bounce_buffer_are_reported_and_verified() {
    within(BUILD_LIMIT, || {
        let words = ["--preset", "null", "--runtime", runtime(), "--mode", "basic", "--rw", "randrw"];
        for by in ["batch", "kernel"] {
            // Several chunks and several parts of a copy for each request, and requests that are a block.
            for (bs, depth) in [("68k", "7"), ("4k", "40")] {
                let report = bench(&[&words[..], &["--bounce", by, "--bs", bs, "--iodepth", depth]].concat());
                summary(&report, true, true);
                assert_eq!(report["load"]["bounce"], by);
            }
            let ended = gnstor(&[&SMALL[..], &words[..], &["--bounce", by]].concat());
            ended.worked();
            let line = if by == "batch" { "copied by the driver" } else { "copied by a kernel" };
            assert!(ended.stdout.contains(line), "{}", ended.stdout);
        }
        for (clients, by) in [("1", "batch"), ("2", "kernel")] {
            assert_eq!(
                bench(&[&words[..], &["--clients", clients]].concat())["load"]["bounce"],
                by,
                "{clients} clients"
            );
        }
        // Only mode `basic` has bounce buffers, so this run has no copier.
        let report = bench(&["--preset", "null", "--runtime", runtime(), "--mode", "gd"]);
        assert_eq!(report["load"]["bounce"], Value::Null);
    });
}

#[test]
fn the_ideal_and_both_late_shares_are_reported_and_drawn() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let plot = folder.path().join("latency.svg");
        let plot = plot.to_str().expect("a name in UTF-8");
        let report = bench(&["--runtime", "300ms", "--plot", plot]);
        assert_eq!(report["array"]["preset"], "gnstor-980pro");
        let ideal = &report["ideal"];
        let (measured, bound) =
            (report["iops"].as_f64().expect("a rate"), ideal["iops"].as_f64().expect("a rate"));
        assert!(
            bound > 0.0 && ideal["ratio"].as_f64().is_some_and(|r| (r * bound / measured - 1.0).abs() < 1e-6)
        );
        assert!(
            report["late"]["share"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)),
            "{report}"
        );
        assert!(report["cpu"]["threads"]["gn-launch"].as_f64().is_some_and(|seconds| seconds > 0.0));
        let served = report["array"]["served"].as_array().expect("SSDs");
        let sum = |field: &str| served.iter().filter_map(|ssd| ssd[field].as_u64()).sum::<u64>();
        // Two of four SSDs hold a block, and one of the two serves a read. So each SSD serves some reads, and
        // together they serve all.
        assert!(served.len() == 4 && served.iter().all(|ssd| ssd["reads"].as_u64() > Some(0)), "{report}");
        assert_eq!((Some(sum("reads")), sum("writes")), (report["verify"]["ios"].as_u64(), 0));
        assert_eq!(sum("read_bytes"), sum("reads") * BLOCK as u64);
        assert_eq!(report["array"]["state"], "fresh");
        let drawing = std::fs::read_to_string(plot).expect("a drawing");
        assert!(
            drawing.starts_with("<svg") && drawing.contains("latency, us") && drawing.contains("emulated")
        );
    });
}

#[test]
fn ssds_that_are_nearly_full_collect_and_the_report_says_so() {
    within(BUILD_LIMIT, || {
        let load = ["--rw", "randwrite", "--bs", "64k", "--iodepth", "8", "--ssds", "2", "--runtime", "1s"];
        let full = ["--preset", "null", "--size", "28MiB", "--ssd-size", "32MiB"];
        let report =
            gnstor(&[&["bench", "--device", "host", "--warmup", "0", "--json"], &load[..], &full].concat())
                .json();
        let array = &report["array"];
        assert_eq!((&array["state"], &array["fill_share"]), (&"collecting".into(), &0.875.into()), "{array}");
        let served = array["served"].as_array().expect("SSDs");
        assert!(served.iter().all(|ssd| ssd["moved_pages"].as_u64() > Some(0)), "{array}");
        // Two replicas on two SSDs: each of them has every write.
        assert_eq!((served.len(), &served[0]["written_bytes"]), (2, &served[1]["written_bytes"]));
    });
}

#[test]
fn a_table_for_people_says_what_is_emulated() {
    within(BUILD_LIMIT, || {
        let ended = gnstor(&[&SMALL[..], &["--preset", "null", "--runtime", "200ms"]].concat());
        ended.worked();
        for word in [
            "randread of 4.0 KiB",
            "IOPS",
            "p99.99",
            "verified",
            "CPU time",
            "emulated",
            "preset null",
            "not limited",
        ] {
            assert!(ended.stdout.contains(word), "'{word}' in {}", ended.stdout);
        }
    });
}

#[test]
fn requests_with_buffers_in_pieces_are_verified_and_their_operations_counted() {
    within(BUILD_LIMIT, || {
        let words = ["--preset", "null", "--runtime", "500ms", "--rw", "randrw", "--buffers", "pieces"];
        // A page is a piece up to 64 KiB, a block of 64 KiB above; a chunk's border is a cut, too. Two
        // replicas of each write.
        for (bs, depth, each) in [("4k", "7", 1.0), ("64k", "40", 16.0), ("128k", "4", 2.0)] {
            let load = [&words[..], &["--bs", bs, "--iodepth", depth, "--size", "3MiB"]].concat();
            let report = bench(&[&load[..], &["--rwmixread", "100"]].concat());
            summary(&report, true, false);
            assert_eq!(report["stages"]["rdma_per_io"].as_f64(), Some(each), "{bs}");
            let report = bench(&load);
            summary(&report, true, true);
            let taken = report["stages"]["rdma_per_io"].as_f64().expect("something was done");
            assert!(taken > each && taken < 2.0 * each, "{bs}: {taken}");
        }
        let report = bench(&["--preset", "null", "--runtime", runtime(), "--rw", "randwrite"]);
        assert_eq!(report["stages"]["rdma_per_io"].as_f64(), Some(2.0));
    });
}

#[test]
fn a_limited_rate_is_kept_in_every_mode_and_reported() {
    within(BUILD_LIMIT, || {
        for mode in ["gnstor", "gd"] {
            let words = ["--preset", "null", "--runtime", "1s", "--mode", mode, "--rw", "randrw"];
            let report = bench(
                &[&words[..], &["--rate-iops", "100,50", "--clients", "2", "--iodepth", "40"]].concat(),
            );
            summary(&report, true, true);
            assert_eq!(report["load"]["rate_iops"], serde_json::json!({"read": 100, "write": 50}));
            let number = |at: &str| report.pointer(at).and_then(Value::as_f64).expect("a number");
            assert_eq!((number("/rate/asked_iops"), number("/rate/due")), (300.0, 306.0), "{mode}");
            // bench/src/checks/starts.rs tests times and directions of starts without a clock. A loaded
            // machine may not begin the last ones in time; none begins before it is due.
            let (begun, reads, writes) = (number("/rate/begun"), number("/read/ios"), number("/write/ios"));
            assert!((150.0..=306.0).contains(&begun), "{mode}: {begun} begun");
            assert!(reads + writes <= begun && reads > 0.0 && writes > 0.0, "{mode}: {reads}, {writes}");
            // A third of each 64 starts of a client writes, in any order. The timed part begins and ends
            // within such a window, of which at most 43 are reads.
            assert!((reads - 2.0 * writes).abs() <= 2.0 * 2.0 * 43.0, "{mode}: {reads}, {writes}");
        }
        let ended =
            gnstor(&[&SMALL[..], &["--preset", "null", "--runtime", "1s", "--rate-iops", "90"]].concat());
        ended.worked();
        assert!(ended.stdout.contains("90 IOPS asked for"), "{}", ended.stdout);
    });
}
