// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Suites: a call goes on where the last call ended.

use super::LIMIT;
use gnstor_tests::command::{BUILD_LIMIT, Ended, GNSTOR, run_for};
use gnstor_tests::folder::Folder;
use gnstor_tests::within;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A suite in its shortest form.
fn suite(which: &str, folder: &Path, extra: &[&str]) -> Ended {
    let short =
        ["--device", "host", "--engines", "1", "--size", "4MiB", "--warmup", "0", "--runtime", "20ms"];
    let words =
        ["bench", "--suite", which, "--max-clients", "1", "--out", folder.to_str().expect("a name in UTF-8")];
    let mut command = Command::new(&*GNSTOR);
    command.args(words).args(short).args(extra);
    run_for(command, LIMIT)
}

/// Checks that a row of a load that ran once has the values of that run.
fn check_row(row: &Value) {
    let run = &row["kept"]["runs"][0]["load"];
    let verify = &run["verify"];
    assert!(verify["ios"].as_u64() > Some(0) && verify["ios"] == verify["verified_ios"], "{row}");
    assert_eq!((&row["iops"]["median"], &row["failed"]), (&run["iops"], &Value::Array(vec![])));
    // A row with too few cores is compared with nothing.
    assert_eq!(row["core_bound"], run["busy"]["core_bound"]);
    assert!(row["core_bound"] == false || row["ratio"].is_null(), "{row}");
    for tail in ["p50_us", "p99_us", "p99_9_us", "max_us"] {
        assert!(row[tail]["median"].as_f64() > Some(0.0), "{tail} of {row}");
    }
    let timeless = run["array"]["preset"] == "null";
    for share in ["late_share", "client_late_share"] {
        assert_eq!(row[share].is_null(), timeless, "{share} of {row}");
    }
    assert_eq!(row["state"], run["array"]["state"]);
    if row["name"].as_str().is_some_and(|name| name.starts_with("bare ")) {
        assert_eq!(run["load"]["central_engine"], false, "{row}");
    }
}

#[test]
#[ignore = ".ci/run runs it: it takes long"]
fn a_suite_goes_on_where_its_last_call_ended() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let call = |extra: &[&str]| suite("targets", folder.path(), &[extra, &["--json"]].concat()).json();
        let nothing = call(&["--budget", "1ms"]);
        assert_eq!((&nothing["done"], &nothing["complete"]), (&0.into(), &false.into()));
        let planned = nothing["planned"].as_u64().expect("a number");
        assert_eq!(planned, 3 * 30);
        let once = call(&["--runs", "1"]);
        assert_eq!((&once["done"], &once["complete"]), (&30.into(), &true.into()));
        let rows = once["rows"].as_array().expect("rows");
        assert_eq!((rows.len(), &rows[0]["name"]), (30, &"copy".into()));
        assert_eq!(rows[0]["kept"]["runs"][0]["copy"]["copies"].as_array().map(Vec::len), Some(8));
        rows[1..].iter().for_each(check_row);
        let gaps = once["gaps"].as_array().expect("gaps");
        assert_eq!(
            (gaps.len(), &gaps[0]["rw"], &gaps[1]["rw"]),
            (2, &"randread".into(), &"randwrite".into())
        );
        // A second round, with a tenth of the first one's time. The runs of the first round stay as they
        // were.
        let took: f64 = rows.iter().map(|row| row["kept"]["seconds"].as_f64().expect("a time")).sum();
        let tenth = format!("{:.0}ms", took * 100.0);
        let more = call(&["--runs", "2", "--budget", &tenth]);
        let done = more["done"].as_u64().expect("a number");
        assert!((31..60).contains(&done) && more["complete"] == false, "{done} runs");
        assert_eq!(more["rows"][0]["kept"]["runs"].as_array().map(Vec::len), Some(2));
        assert_eq!(more["rows"][0]["kept"]["runs"][0], rows[0]["kept"]["runs"][0]);
        let again = suite("targets", folder.path(), &["--runs", "1"]);
        again.worked();
        for word in [
            "suite       targets, complete",
            "bare copy",
            "scale gnstor randread 4k c1 q128 s16",
            "has no ratio",
            "p50 us    p99 us  p99.9 us    max us",
            "gd less gnstor",
            "the CPU's queues are across PCIe",
        ] {
            assert!(again.stdout.contains(word), "'{word}' in: {}", again.stdout);
        }
        let text = std::fs::read_to_string(folder.path().join("targets.txt")).expect("a transcript");
        assert_eq!(text, again.stdout);
        suite("targets", folder.path(), &["--seed", "2"]).failed(&["with other options", "another --out"]);
        suite("figures", folder.path(), &[]).failed(&["of another suite", "another --out"]);
    });
}

#[test]
fn the_figures_as_a_suite_run_shared_points_once() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let report = suite("figures", folder.path(), &["--budget", "14s", "--json"]).json();
        let done = report["done"].as_u64().expect("a number");
        assert!(done > 0 && report["complete"] == false, "{done}");
        let points = |number: usize| report["figures"][number]["points"].as_array().expect("points").clone();
        // Figures 9 and 10 have the same loads, and 13 has some of them.
        assert_eq!(points(0).len(), points(1).len());
        assert_eq!(points(0)[0]["run"], points(1)[0]["run"]);
        assert_eq!((&report["figures"][1]["unit"], &points(1)[0]["runs"]), (&"us".into(), &1.into()));
        for number in 9..=13 {
            let picture =
                std::fs::read(folder.path().join(format!("figure-{number}.png"))).expect("a picture");
            assert!(picture.starts_with(b"\x89PNG"), "figure {number}");
        }
    });
}
