// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the copy command with an array whose disk is slow at every sync.
//!
//! `scripts/slow-disk MINUTES` runs it for longer.
#![expect(clippy::disallowed_methods, reason = "processes and times of real disks")]

use gnstor_tests::command::{BUILD_LIMIT, Up, gnstor, gnstor_with};
use gnstor_tests::folder::Folder;
use gnstor_tests::{assert_same, pattern, within};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// Returns a library that slows the syncs of a process. `GNSTOR_SLOW_LIBRARY` names one that is already
/// built.
fn library(folder: &Path) -> String {
    if let Ok(named) = std::env::var("GNSTOR_SLOW_LIBRARY") {
        return named;
    }
    let library = folder.join("slow_syncs.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/slow/slow_syncs.c");
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    let built =
        cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library).arg(source).status();
    assert!(built.expect("a C compiler").success(), "{source} is compiled");
    library.display().to_string()
}

/// The longest and the median time.
fn longest_and_median(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() - 1], times[times.len() / 2])
}

/// Runs a copy, and checks that no connection of it broke. A copy connects anew by itself. So its success
/// does not say that the array answered all the time.
fn copied_without_a_break(up: &Up, args: &[&str]) {
    let copy = ["cp", "--device", "host", "--array", &up.daemon];
    let copied = gnstor_with(&[&copy, args].concat(), &[("GNSTOR_LOG", "debug")]);
    copied.worked();
    assert!(copied.stderr.contains(" is open after "), "it logs: {}", copied.stderr);
    let broken =
        ["link broke", "is broken", "given up", "is not reached", "connecting anew", "reached again"];
    let line = copied.stderr.lines().find(|line| broken.iter().any(|word| line.contains(word)));
    assert_eq!(line, None, "a connection broke");
}

/// Copies go to a volume and back, again and again. None may fail, and each must be complete. The last one
/// must be there after a restart.
#[test]
fn copies_into_an_array_whose_syncs_are_slow_do_not_fail() {
    let (seconds, sync_ms) = (number("GNSTOR_SLOW_DISK_S", 2), number("GNSTOR_SYNC_MS", 100));
    let bytes = usize::try_from(number("GNSTOR_SLOW_DISK_MIB", 8)).expect("it fits memory") << 20;
    within(BUILD_LIMIT + Duration::from_secs(2 * seconds), move || {
        let folder = Folder::new();
        let (data, ms) = (folder.path().join("array"), sync_ms.to_string());
        let through = [
            "env".to_owned(),
            format!("LD_PRELOAD={}", library(folder.path())),
            format!("GNSTOR_SYNC_MS={ms}"),
            format!("GNSTOR_SYNC_COUNT={}", folder.path().join("syncs").display()),
        ];
        let through: Vec<&str> = through.iter().map(String::as_str).collect();
        let (data, size) = (data.display().to_string(), format!("{}MiB", (bytes >> 20) * 3 / 2 + 48));
        let args = ["--data", &data, "--ssds", "4", "--preset", "null", "--ssd-size", &size];
        // Makes the array's files at the disk's own pace, because each takes some forty syncs.
        Up::start_as(&args).end("-TERM");
        let up = Up::start_through(&through, &args);
        let (file, back) = (folder.path().join("file"), folder.path().join("back"));
        let (from, to) = (file.display().to_string(), back.display().to_string());
        let (begun, mut rounds, mut last) = (Instant::now(), Vec::new(), Vec::new());
        while rounds.is_empty() || begun.elapsed() < Duration::from_secs(seconds) {
            last = pattern(rounds.len() as u64, bytes);
            std::fs::write(&file, &last).unwrap();
            let start = Instant::now();
            copied_without_a_break(&up, &[&from, "gn://v", "--replicas", "2"]);
            rounds.push(start.elapsed());
            copied_without_a_break(&up, &["gn://v", &to]);
            assert_same("a copy", &std::fs::read(&back).unwrap(), &last);
        }
        let copies = rounds.len();
        let (longest, median) = longest_and_median(&mut rounds);
        let syncs = std::fs::metadata(folder.path().join("syncs")).map_or(0, |file| file.len());
        assert!(syncs > 0, "no sync of the array was slow");
        eprintln!(
            "{syncs} syncs; {copies} copies of {} MiB, each sync {sync_ms} ms longer: median {median:.1?}, longest {longest:.1?}",
            bytes >> 20
        );
        let status = gnstor(&["status", "--json", "--array", &up.daemon]).state();
        assert_eq!((&status["state"], &status["problems"]), (&"online".into(), &serde_json::json!([])));
        up.end("-TERM");
        let up = Up::start_as(&args);
        up.cp(&["gn://v", &to]).worked();
        assert_same("after a restart", &std::fs::read(&back).unwrap(), &last);
        up.end("-TERM");
    });
}
