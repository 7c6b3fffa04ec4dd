// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ctrl-C: the report has what was measured until then.

use super::{LIMIT, SHORT, SMALL};
use gnstor_tests::command::{BUILD_LIMIT, GNSTOR, Guard, signal, wait};
use gnstor_tests::within;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

/// When the test interrupts a run.
enum After {
    /// After the run's first line of progress.
    Status,
    /// After a time in which the run has measured something.
    Time(Duration),
}

/// The report of a run of this load that is interrupted.
fn interrupted(words: &[&str], after: After) -> Value {
    let mut command = Command::new(&*GNSTOR);
    command.args(words).arg("--json").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Guard(command.spawn().expect("the command starts"));
    // The pipe stays open to the end, so that the command can write to it.
    let mut said = BufReader::new(child.0.stderr.take().expect("piped"));
    match after {
        After::Status => {
            let mut line = String::new();
            while !line.contains("I/Os per s") && said.read_line(&mut line).expect("text") > 0 {}
        }
        After::Time(time) => std::thread::sleep(time),
    }
    signal(&child, "-INT");
    assert_eq!(wait(&mut child, LIMIT), Some(130));
    let mut text = String::new();
    child.0.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(report["interrupted"], true);
    report
}

#[test]
fn ctrl_c_ends_a_run_with_the_figures_so_far() {
    within(BUILD_LIMIT, || {
        let words = ["--preset", "null", "--rw", "randrw", "--runtime", "1h", "--status-interval", "200ms"];
        let report = interrupted(&[&SMALL[..], &words].concat(), After::Status);
        assert!(report["read"]["ios"].as_u64().is_some_and(|ios| ios > 0), "{report}");
        assert_eq!(report["verify"]["first_wrong"], Value::Null);
    });
}

#[test]
fn ctrl_c_ends_a_figure_with_the_points_so_far() {
    within(BUILD_LIMIT, || {
        let endless = SHORT.map(|word| if word == "50ms" { "1h" } else { word });
        let words = [&endless[..], &["--figure", "9", "--points", "gnstor,4k"]].concat();
        let report = interrupted(&words, After::Time(Duration::from_secs(4)));
        assert_eq!(report["planned"], 4);
        let points = report["points"].as_array().expect("points");
        assert!(
            points.len() == 1 && points[0]["measured"].as_f64().is_some_and(|value| value > 0.0),
            "{report}"
        );
    });
}
