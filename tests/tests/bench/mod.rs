// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor bench`: every load runs and is verified, wrong data is found and named, and wrong options are
//! refused.

mod figures;
mod interrupted;
mod loads;
mod planted;
mod running;
mod suites;
mod words;

use gnstor_tests::command::gnstor;
use serde_json::Value;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// A short run spends most of its time on filling its volume and reading it back, so its volume is small.
const SMALL: [&str; 7] = ["bench", "--device", "host", "--warmup", "20ms", "--size", "1MiB"];

/// Figures in their shortest form: no modelled time, small volumes, short runs.
const SHORT: [&str; 11] =
    ["bench", "--device", "host", "--preset", "null", "--size", "2MiB", "--warmup", "0", "--runtime", "50ms"];

/// Runtime of a load: short, unless `GNSTOR_LONG` is set.
fn runtime() -> &'static str {
    if gnstor_tests::long() { "1s" } else { "100ms" }
}

/// The report of a small run. `extra` has more options, and may set another size.
fn bench(extra: &[&str]) -> Value {
    let words = if extra.contains(&"--size") { &SMALL[..SMALL.len() - 2] } else { &SMALL[..] };
    gnstor(&[words, extra, &["--json"]].concat()).json()
}

/// Checks the report of a run without modelled time.
fn summary(report: &Value, reads: bool, writes: bool) {
    let verify = &report["verify"];
    let ios = verify["ios"].as_u64().expect("a number");
    assert!(ios > 0 && verify["verified_ios"] == ios, "{report}");
    assert_eq!(verify["first_wrong"], Value::Null);
    assert_eq!(verify["replicas_read_back"], if writes { 2 } else { 0 });
    assert_eq!((report["read"].is_object(), report["write"].is_object()), (reads, writes), "{report}");
    let mut timed = 0;
    for part in ["read", "write"].map(|part| &report[part]).into_iter().filter(|part| part.is_object()) {
        let us = ["p50", "p90", "p99", "p99_9", "p99_99", "max"]
            .map(|p| part["latency_us"][p].as_f64().expect("a time"));
        assert!(us[0] > 0.0 && us.is_sorted(), "{us:?}");
        let mean = part["latency_us"]["mean"].as_f64().expect("a time");
        assert!(mean > 0.0 && mean <= us[5]);
        timed += part["ios"].as_u64().expect("a number");
    }
    assert!(timed > 0 && timed <= ios, "{timed} of {ios} are timed");
    let rate = report["iops"].as_f64().expect("a rate") * report["elapsed_s"].as_f64().expect("a time");
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let timed = timed as f64;
    assert!((rate / timed - 1.0).abs() < 1e-6, "{rate} and {timed}");
    assert_eq!((&report["errors"], &report["interrupted"]), (&Value::Array(vec![]), &Value::Bool(false)));
    assert_eq!((&report["stages"]["leaked"], &report["stages"]["protocol_errors"]), (&0.into(), &0.into()));
    let emulated = report["emulated"].to_string();
    for word in ["HCA", "link", "preset null", "GPU"] {
        assert!(emulated.contains(word), "{word} in {emulated}");
    }
}
