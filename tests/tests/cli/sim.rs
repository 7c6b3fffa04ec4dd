// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor sim`: one seed, the same bytes; what cannot be simulated is refused with a sentence.

use super::*;

const SMALL: [&str; 12] = [
    "sim",
    "scale",
    "--ssds",
    "2..3",
    "--clients",
    "2",
    "--size",
    "1MiB",
    "--runtime",
    "1ms",
    "--warmup",
    "1ms",
];

#[test]
fn the_same_arguments_print_the_same_bytes_and_files() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let run = |name: &str| {
            let at = folder.path().join(name);
            let (csv, plot) = (at.with_extension("csv"), at.with_extension("plots"));
            let files = ["--csv", csv.to_str().unwrap(), "--plot", plot.to_str().unwrap(), "--json"];
            let ended = gnstor(&[&SMALL[..], &files].concat());
            ended.worked();
            let drawn = std::fs::read_to_string(plot.join("throughput.svg")).unwrap();
            (ended.stdout, std::fs::read_to_string(csv).unwrap(), drawn)
        };
        let (json, csv, drawn) = run("first");
        assert_eq!((json.clone(), csv.clone(), drawn.clone()), run("second"));
        assert_eq!(csv.lines().count(), 3, "a line of names, and two points: {csv}");
        assert!(drawn.contains("<polyline"), "{drawn}");
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&report["schema"], &report["rows"][1]["ssds"]), (&1.into(), &3.into()));
        assert!(report["modelled"].as_str().unwrap().contains("a token a block"), "{json}");
    });
}

#[test]
fn what_cannot_be_simulated_is_refused_with_a_sentence() {
    within(BUILD_LIMIT, || {
        for (words, said) in [
            (&["--ssds", "2", "--replicas", "3"][..], "--replicas 3 is not possible with 2 SSDs"),
            (&["--ssds", "8..2"], "--ssds 8..2 ends before it begins: use 2..8"),
            (&["--memory", "1MiB"], "MiB of memory, and --memory is 1 MiB"),
            (&["--preset", "floppy"], "there is no preset 'floppy'"),
            (&["--clients", "many"], "'many' is no number"),
            (&["--zipf", "-1"], "--zipf"),
            (&["--zipf", "0.99", "--rw", "read"], "needs --rw randread or randwrite"),
        ] {
            let ended = gnstor(&[&["sim", "scale"], words].concat());
            assert_eq!(ended.code, 2, "{}", ended.stderr);
            assert!(ended.stderr.contains(said), "{}", ended.stderr);
        }
    });
}

#[test]
fn seeds_with_faults_print_one_digest_whatever_the_jobs() {
    within(BUILD_LIMIT, || {
        let run = |jobs: &str| gnstor(&["sim", "survive", "--seeds", "14..17", "--jobs", jobs, "--json"]);
        let (one, two) = (run("1"), run("2"));
        one.worked();
        assert_eq!(one.stdout, two.stdout);
        let report: serde_json::Value = serde_json::from_str(&one.stdout).unwrap();
        assert_eq!((&report["schema"], &report["played"]), (&1.into(), &4.into()));
        assert_eq!(report["failed"], serde_json::Value::Array(Vec::new()));
        let traced = gnstor(&["sim", "survive", "--seed", "15", "--trace", "--stats"]);
        traced.worked();
        assert!(traced.stdout.contains("daemon 1 starts"), "{}", traced.stdout);
        assert!(traced.stdout.contains("NEVER") && traced.stdout.contains("1 seeds, 0 failed"));
    });
}

#[test]
fn seeds_that_make_no_sense_are_refused_with_a_sentence() {
    within(BUILD_LIMIT, || {
        for (words, said) in [
            (&["--seeds", "9..3"][..], "use 3..9"),
            (&["--seeds", "all"], "is no seed"),
            (&["--seed", "1", "--seeds", "1..2"], "cannot be used with"),
            (&["--trace"], "--seed"),
            (&["--jobs", "0"], "--jobs"),
            (&["--seed", "1", "--without", "x"], "is no fault's number"),
            (&["--planted", "last-copy"], "scripts/planted-survive last-copy"),
        ] {
            let ended = gnstor(&[&["sim", "survive"], words].concat());
            assert_eq!(ended.code, 2, "{}", ended.stderr);
            assert!(ended.stderr.contains(said), "{}", ended.stderr);
        }
    });
}
