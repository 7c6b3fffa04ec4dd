// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of honest clients beside floods of HTTP/2 frames at the daemon.

use crate::beside::Attackers;
use crate::{LIMIT, guest, number, resident_mib};
use gnstor_hostile::http2::Flood;
use gnstor_tests::command::{HOSTILE, Up};
use gnstor_tests::{long, within};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Memory that the daemon's process may take beside a flood, MiB.
const MORE_MIB: u64 = 64;

fn floods(daemon: &str, seconds: u64, flood: Flood) -> Attackers {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(&*HOSTILE).args(["http2", daemon]);
    command.args([seconds.to_string(), format!("{flood:?}")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    Attackers::run(command)
}

/// Makes calls as long as `go_on`, one at least. Returns the time of each in ms, and how long all took.
fn calls(client: &libgnstor::Client, mut go_on: impl FnMut() -> bool) -> (Vec<f64>, Duration) {
    let (mut times, begun) = (Vec::new(), Instant::now());
    while go_on() || times.is_empty() {
        let call = Instant::now();
        client.list().expect("no call may fail");
        times.push(call.elapsed().as_secs_f64() * 1e3);
        assert!(begun.elapsed() < LIMIT, "the floods end");
    }
    (times, begun.elapsed())
}

/// p50, p99 and the longest time.
fn quantiles(times: &mut [f64]) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [times.len() / 2, times.len() * 99 / 100, times.len() - 1].map(|place| times[place])
}

/// Each flood alone, and then all of them together. No call fails, and memory has a bound.
#[test]
fn an_honest_load_of_calls_beside_floods_of_http2_frames_has_no_error() {
    let runs = Flood::ALL.len() as u64 + 1;
    let seconds = (number("GNSTOR_HOSTILE_SECONDS", if long() { 90 } else { 18 }) / runs).max(1);
    within(LIMIT + Duration::from_secs(2 * runs * seconds), move || {
        let up = Up::start(&["--ssds", "1"]);
        let honest = guest(&up.daemon, "honest");
        let before = resident_mib(up.pid());
        let alone = Flood::ALL.map(|flood| vec![flood]);
        for floods_now in alone.iter().chain([&Flood::ALL.to_vec()]) {
            let (quiet, quiet_for) = (Instant::now(), Duration::from_millis(250 * seconds));
            let (mut before_it, _) = calls(&honest.client, || quiet.elapsed() < quiet_for);
            let mut attackers: Vec<_> =
                floods_now.iter().map(|&flood| floods(&up.daemon, seconds, flood)).collect();
            let (mut times, took) = calls(&honest.client, || attackers.iter_mut().any(Attackers::are_there));
            let keeps =
                times.len() as f64 / took.as_secs_f64() * quiet_for.as_secs_f64() / before_it.len() as f64;
            let told: Vec<_> = attackers.into_iter().map(Attackers::wait).collect();
            let [[_, quiet_p99, _], [p50, p99, longest]] = [quantiles(&mut before_it), quantiles(&mut times)];
            let now = resident_mib(up.pid());
            let frames: u64 = told.iter().map(|told| told.sent).sum();
            println!(
                "summary {floods_now:?}: {} calls, keeps {keeps:.2}, p50 {p50:.1} p99 {p99:.1} ms ({quiet_p99:.1} \
                 alone), longest {longest:.0} ms beside {frames} frames; {before} MiB, then {now} MiB",
                times.len()
            );
            told.iter().for_each(|told| println!("{}", told.said.lines().next().unwrap_or_default()));
            assert!(told.iter().all(|told| told.sent > 50), "each flood sent frames");
            assert!(now < before + MORE_MIB, "{now} MiB rather than {before} MiB");
        }
        // New clients come in after the floods.
        drop(guest(&up.daemon, "other"));
        drop(honest);
        up.end("-TERM");
    });
}
