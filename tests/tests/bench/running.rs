// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads on an array that already runs, from a job file, and with the rate printed while they run.

use super::{SHORT, bench, summary};
use gnstor_tests::command::{BUILD_LIMIT, Up, gnstor};
use gnstor_tests::folder::Folder;
use gnstor_tests::{pattern, within};

/// A short load on the running array.
const RUNNING: [&str; 9] =
    ["bench", "--device", "host", "--size", "2MiB", "--warmup", "0", "--runtime", "200ms"];

#[test]
fn a_running_array_is_measured_and_its_volumes_stay_as_they_were() {
    within(BUILD_LIMIT, || {
        let up = Up::start(&["--ssds", "3"]);
        let on = |volume: &str, extra: &[&str]| {
            gnstor(&[&RUNNING[..], &["--array", &up.daemon, "--volume", volume], extra].concat())
        };
        let report = on("load", &["--rw", "randrw", "--clients", "2", "--json"]).json();
        let verify = &report["verify"];
        assert!(verify["ios"].as_u64() > Some(0) && verify["ios"] == verify["verified_ios"], "{verify}");
        assert_eq!((&verify["replicas_read_back"], &report["load"]["replicas"]), (&2.into(), &2.into()));
        assert_eq!(
            (&report["array"]["ssds"], &report["array"]["running"]),
            (&3.into(), &(*up.daemon).into())
        );
        assert!(report["late"]["share"].is_null() && report["ideal"].is_null());
        assert_eq!(up.volume(&["list", "--json"]).json(), serde_json::json!([]), "its volumes are deleted");
        // The command overwrites a volume with data only if asked to, and does not delete it.
        let folder = Folder::new();
        let input = folder.path().join("input");
        std::fs::write(&input, pattern(1, 4 << 20)).expect("a file can be written");
        up.cp(&[input.to_str().expect("a plain path"), "gn://kept"]).worked();
        on("kept", &["--rw", "randread", "--json"]).failed(&["volume kept exists", "--overwrite"]);
        up.volume(&["create", "tiny", "--size", "1MiB"]).worked();
        on("tiny", &["--overwrite", "--json"]).failed(&["tiny has 1048576 bytes", "--size"]);
        up.volume(&["delete", "tiny"]).worked();
        on("kept", &["--overwrite", "--rw", "randwrite"]).worked();
        let names = up.volume(&["list", "--json"]).json();
        assert_eq!((names.as_array().map(Vec::len), &names[0]["name"]), (Some(1), &"kept".into()));
        on("load", &["--mode", "gd"]).failed(&["--array needs --mode gnstor"]);
        on("load", &["--preset", "null"]).not_understood(&["--preset"]);
        up.end("-TERM");
    });
}

#[test]
fn fio_s_other_words_are_understood() {
    within(BUILD_LIMIT, || {
        for words in [["--rw", "rw"], ["--readwrite", "readwrite"]] {
            let report =
                bench(&[&["--preset", "null", "--runtime", "200ms", "--numjobs", "2"], &words[..]].concat());
            summary(&report, true, true);
            assert_eq!((&report["load"]["rw"], &report["load"]["clients"]), (&"rw".into(), &2.into()));
        }
        let words = ["--runtime", "900ms", "--status-interval", "200ms"];
        let short: Vec<&str> = SHORT.iter().take(SHORT.len() - 2).copied().collect();
        let ended = gnstor(&[&short[..], &words].concat());
        ended.worked();
        let lines =
            ended.stderr.lines().filter(|line| line.contains("status ") && line.contains("I/Os per s"));
        assert!(lines.count() >= 2, "{}", ended.stderr);
        gnstor(&["bench", "--status-interval", "1ms"]).failed(&["--status-interval", "200ms"]);
    });
}

#[test]
fn a_job_file_runs_its_sections_one_after_another() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let path = folder.path().join("jobs.fio");
        let job = path.to_str().expect("a plain path");
        let text = "[global]\ndevice=host\npreset=null\nsize=2MiB\nwarmup=0\nruntime=50ms\nioengine=libaio\n\n\
                    [first]\nrw=randread\n[second]\nrw=randwrite\nbs=8k\n";
        std::fs::write(&path, text).expect("a file can be written");
        let ended = gnstor(&["bench", "--job", job]);
        ended.worked();
        for word in ["job         first", "randread of 4.0 KiB", "job         second", "randwrite of 8.0 KiB"]
        {
            assert!(ended.stdout.contains(word), "'{word}' in: {}", ended.stdout);
        }
        assert!(
            ended.stderr.contains("jobs.fio: ignored") && ended.stderr.contains("ioengine"),
            "{}",
            ended.stderr
        );
        std::fs::write(&path, "[only]\nzonemode=zbd\n").expect("a file can be written");
        let wrong = gnstor(&["bench", "--job", job]);
        wrong.failed(&["jobs.fio", "'only' (line 1)", "--zonemode"]);
        assert_eq!(wrong.code, 2);
    });
}
