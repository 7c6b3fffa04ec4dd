// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor demo`.

use super::*;

#[test]
fn the_demo_runs_its_whole_example_and_reports_it_in_json() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let input = file(&folder, "input", &pattern(1, 300_001));
        let report =
            gnstor(&["demo", "--device", "host", "--preset", "null", "--json", "--input", &input]).json();
        assert_eq!(report["device"], "host");
        assert_eq!(report["ssds"], 4);
        assert_eq!(report["ios"], 74);
        assert_eq!(report["bytes"], 74 * 4096);
        assert_eq!(report["verified"], true);
        assert_eq!(report["replicas_checked"], 2);
        assert_eq!(report["refused_write_status"], 0x4182);
        assert_eq!(report["refused_read_status"], 0x4286);
        for field in ["gbps", "p50_us", "p99_us"] {
            assert!(report[field].as_f64().is_some_and(|f| f > 0.0), "{field}: {}", report[field]);
        }
        assert!(report["late_share"].is_null(), "no time is modelled: {}", report["late_share"]);
        assert!(report["p50_us"].as_f64() <= report["p99_us"].as_f64());
    });
}

#[test]
fn the_demo_for_a_person_names_what_was_emulated_and_which_rules_refused() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let input = file(&folder, "input", &pattern(1, 5000));
        let demo = gnstor(&["demo", "--device", "host", "--ssd-size", "64MiB", "--input", &input]);
        assert_eq!(demo.code, 0, "{}", demo.stderr);
        for word in
            ["verified", "throughput", "p99", "late", "4182h", "4286h", "access: writer", "emulated", "HCA"]
        {
            assert!(demo.stdout.contains(word), "'{word}' is missing in: {}", demo.stdout);
        }
    });
}

#[test]
fn the_demo_refuses_impossible_arguments_in_a_sentence() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let empty = file(&folder, "empty", &[]);
        let small = file(&folder, "small", &pattern(1, 5000));
        let big = file(&folder, "big", &vec![1; 6 << 20]);
        let missing = folder.path().join("missing").display().to_string();
        let this = folder.path().display().to_string();
        let demo = |extra: &[&str]| gnstor(&[&["demo", "--device", "host", "--json"], extra].concat());
        demo(&["--input", &empty]).failed(&["empty", "the file is empty"]);
        demo(&["--input", &missing]).failed(&["missing", "No such file"]);
        demo(&["--input", &this]).failed(&["directory"]);
        demo(&["--input", &small, "--preset", "floppy"]).failed(&["'floppy'", "gnstor-980pro", "null"]);
        demo(&["--input", &small, "--ssds", "0"]).failed(&["--ssds", "1 to 64"]);
        demo(&["--input", &small, "--ssds", "65"]).failed(&["--ssds", "1 to 64"]);
        demo(&["--input", &small, "--ssds", "2", "--replicas", "3"])
            .failed(&["3 replicas", "the array has 2"]);
        demo(&["--input", &small, "--threads", "100"]).failed(&["multiple of 32"]);
        demo(&["--input", &small, "--ssd-size", "0"]).failed(&[]);
        demo(&["--input", &big, "--ssd-size", "4MiB", "--ssds", "2"]).failed(&[
            "6.0 MiB",
            "do not fit",
            "--ssd-size",
        ]);
        demo(&["--input", &small, "--ssd-size", "3 parsec"]).not_understood(&["parsec"]);
        demo(&["--input", &small, "--blocks", "0"]).not_understood(&["--blocks"]);
    });
}

#[test]
#[expect(unsafe_code, reason = "looks for the driver as the command does")]
fn without_a_gpu_the_demo_for_cuda_says_why_it_cannot_run() {
    within(BUILD_LIMIT, || {
        // SAFETY: a library name with its NUL; the handle is not used.
        let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
        if !driver.is_null() {
            eprintln!("a CUDA driver is here: nothing to refuse");
            return;
        }
        let folder = folder();
        let input = file(&folder, "input", &pattern(1, 5000));
        gnstor(&["demo", "--device", "cuda", "--input", &input]).failed(&["CUDA"]);
        let auto =
            gnstor(&["demo", "--device", "auto", "--preset", "null", "--json", "--input", &input]).json();
        assert_eq!(auto["device"], "host");
        assert!(
            auto["device_why"].as_str().is_some_and(|why| why.contains("CUDA")),
            "{}",
            auto["device_why"]
        );
    });
}

#[test]
fn the_demo_runs_on_one_ssd_and_says_what_replicas_need() {
    within(BUILD_LIMIT, || {
        let folder = folder();
        let input = file(&folder, "input", &pattern(1, 5000));
        let demo = ["demo", "--device", "host", "--preset", "null", "--ssds", "1", "--input", &input];
        let report = gnstor(&[&demo[..], &["--json"]].concat()).json();
        assert_eq!((&report["verified"], &report["replicas_checked"]), (&true.into(), &1.into()));
        let two = gnstor(&[&demo[..], &["--replicas", "2"]].concat());
        two.failed(&["2 replicas", "the array has 1", "--replicas 1", "--ssds"]);
        assert_eq!(two.code, 2);
    });
}
