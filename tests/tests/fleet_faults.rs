// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One SSD of four is killed, stopped, or cut off, again and again, beside a client that checks all that it
//! reads. `scripts/fleet-faults` runs it, in namespaces of its own. Each SSD process is then in a network
//! namespace, at a port of one bridge; the daemon and the client are at another one.
#![expect(clippy::disallowed_methods, reason = "processes and pauses in real time")]

mod calls;
mod net;

use crate::fleet_daemon::Array;
use calls::{Calls, Kind};
use gnstor_tests::command::gnstor;
use gnstor_tests::{Guest, within};
use net::Bridge;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// From a fault until the array is healthy again.
const LIMIT: Duration = Duration::from_secs(60);
/// The whole campaign.
const CAMPAIGN: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// SIGKILL. The SSD is started again.
    Kill,
    /// SIGSTOP, and SIGCONT.
    Stop,
    /// Nothing that is sent to the SSD or by it arrives, and then all does again.
    Cut,
}

impl Fault {
    const ALL: [Self; 3] = [Self::Kill, Self::Stop, Self::Cut];

    fn begin(self, array: &mut Array, bridge: &Bridge, ssd: u16) {
        match self {
            Self::Kill => array.kill(ssd.into()),
            Self::Stop => array.signal(ssd, "-STOP"),
            Self::Cut => bridge.cut(ssd),
        }
    }

    fn end(self, array: &mut Array, bridge: &Bridge, ssd: u16) {
        match self {
            Self::Kill => array.restart(ssd),
            Self::Stop => array.signal(ssd, "-CONT"),
            Self::Cut => bridge.join(ssd),
        }
    }
}

/// Result of one fault.
struct Round {
    fault: Fault,
    /// From the fault until the daemon's map was without the SSD.
    dropped: Duration,
    /// The longest call that began before the array was healthy again and ended after the fault.
    longest: Duration,
    /// From its end until the array was healthy.
    healthy: Duration,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

fn fleet(array: &Array) -> Value {
    let shown = gnstor(&["fleet", "show", "--array", &array.daemon(), "--json"]);
    serde_json::from_str(&shown.stdout).unwrap_or_else(|e| panic!("{e}: {} {}", shown.stdout, shown.stderr))
}

/// Waits until the fleet is so; how long that took.
fn until(array: &Array, what: &str, is_so: impl Fn(&Value) -> bool) -> Duration {
    let begun = Instant::now();
    loop {
        let now = fleet(array);
        if is_so(&now) {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < LIMIT, "{what}: {now:#}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn round(
    array: &mut Array,
    bridge: &Bridge,
    calls: &Calls,
    (fault, ssd): (Fault, u16),
    away: Duration,
) -> Round {
    let begun = Instant::now();
    fault.begin(array, bridge, ssd);
    let out = |now: &Value| now["ssds"][usize::from(ssd)]["state"] == "out";
    let dropped = until(array, "the SSD is dropped", out);
    std::thread::sleep(away.saturating_sub(begun.elapsed()));
    fault.end(array, bridge, ssd);
    let healthy = until(array, "all copies serve", |now| now["state"] == "healthy");
    let longest = calls.longest_since(begun);
    // An SSD that is back for the third time in ten minutes stays out, unless the operator takes it back.
    gnstor(&["fleet", "resume", &ssd.to_string(), "--array", &array.daemon()]).worked();
    eprintln!(
        "{fault:?} of SSD {ssd}: dropped {dropped:.3?}, longest call {longest:.3?}, healthy {healthy:.3?}"
    );
    Round { fault, dropped, longest, healthy }
}

/// Median and maximum in milliseconds.
fn spread(mut values: Vec<Duration>) -> Value {
    values.sort();
    let ms = |value: Option<&Duration>| value.map(|value| value.as_secs_f64() * 1e3);
    json!({ "median_ms": ms(values.get(values.len() / 2)), "max_ms": ms(values.last()) })
}

fn summary(rounds: &[Round], ended: &[(Kind, usize)]) -> Value {
    let of = |fault: Fault| {
        let of: Vec<&Round> = rounds.iter().filter(|round| round.fault == fault).collect();
        let values = |value: fn(&Round) -> Duration| spread(of.iter().map(|round| value(round)).collect());
        json!({
            "fault": format!("{fault:?}").to_lowercase(),
            "rounds": of.len(),
            "longest_call": values(|round| round.longest),
            "dropped": values(|round| round.dropped),
            "healthy": values(|round| round.healthy),
        })
    };
    let calls: Vec<Value> = ended.iter().map(|(kind, count)| json!({ kind.name(): count })).collect();
    json!({ "faults": Fault::ALL.map(of), "calls": calls, "failed": 0 })
}

/// No call fails, what was written is read, and both copies are equal at the end.
#[test]
#[ignore = "scripts/fleet-faults makes its namespaces"]
fn one_ssd_of_four_fails_again_and_again_and_no_call_does() {
    // It makes network devices: never in the namespace of the machine.
    assert!(std::env::var_os("GNSTOR_FLEET_FAULTS").is_some(), "run scripts/fleet-faults");
    within(CAMPAIGN, || {
        let count = number("GNSTOR_ROUNDS", 1);
        let away = Duration::from_millis(number("GNSTOR_AWAY_MS", 10_000));
        let bridge = Bridge::new(4);
        let mut array = Array::start_in(Box::new(bridge.clone()));
        let guest = Guest::connect(&array.daemon(), "client");
        let calls = Calls::start(&guest);
        std::thread::sleep(Duration::from_secs(1));
        let mut rounds = Vec::new();
        for number in 0..count {
            for (nth, fault) in (0u64..).zip(Fault::ALL) {
                let drawn = gnstor_proto::placement::mix64(number * 3 + nth);
                std::thread::sleep(Duration::from_millis(drawn % 300));
                // A killed SSD needs no time away: another one may be lost once it serves.
                let away = if fault == Fault::Kill { away / 5 } else { away };
                let which = (fault, u16::try_from((number + nth) % 4).expect("small"));
                rounds.push(round(&mut array, &bridge, &calls, which, away));
            }
        }
        let ended = calls.end(&Guest::connect(&array.daemon(), "other"));
        let text = format!("{:#}", summary(&rounds, &ended));
        println!("{text}");
        if let Some(file) = std::env::var_os("GNSTOR_OUT") {
            std::fs::write(file, text).expect("the file is written");
        }
        drop(guest);
        array.end();
    });
}
