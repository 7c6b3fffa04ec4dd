// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor bench`: every load runs and is verified, wrong data is found and named, and wrong words are refused.

use gnstor_cli::CliError;
use gnstor_cli::args::{DeviceArg, EngineArgs};
use gnstor_cli::bench::{self, BenchArgs, Load, Mode, Report, Rig, Rw, Switch};
use gnstor_cli::report::Steps;
use gnstor_tests::BLOCK;
use gnstor_tests::command::{BUILD_LIMIT, Ended, GNSTOR, Guard, gnstor, run_for, signal, wait};
use gnstor_tests::within;
use libgnstor::File;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const SMALL: [&str; 7] = ["bench", "--device", "host", "--size", "4MiB", "--warmup", "100ms"];

fn bench(extra: &[&str]) -> Value {
    gnstor(&[&SMALL[..], extra, &["--json"]].concat()).json()
}

/// A run without modelled time is told as it should be.
fn told(report: &Value, reads: bool, writes: bool) {
    let verify = &report["verify"];
    let ios = verify["ios"].as_u64().expect("a number");
    assert!(ios > 0 && verify["verified_ios"] == ios, "{report}");
    assert_eq!(verify["first_wrong"], Value::Null);
    assert_eq!(verify["replicas_read_back"], if writes { 2 } else { 0 });
    assert_eq!((report["read"].is_object(), report["write"].is_object()), (reads, writes), "{report}");
    let mut timed = 0;
    for part in ["read", "write"].map(|part| &report[part]).into_iter().filter(|part| part.is_object()) {
        let us =
            ["p50", "p90", "p99", "p99_9", "p99_99", "max"].map(|p| part["latency_us"][p].as_f64().expect("a time"));
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

#[test]
fn every_load_runs_and_all_of_it_is_verified() {
    within(BUILD_LIMIT, || {
        let null = ["--preset", "null", "--runtime", "1s"];
        for (rw, reads, writes) in [
            ("read", true, false),
            ("write", false, true),
            ("randread", true, false),
            ("randwrite", false, true),
            ("randrw", true, true),
        ] {
            told(&bench(&[&null[..], &["--rw", rw]].concat()), reads, writes);
        }
        let clients =
            bench(&[&null[..], &["--rw", "randrw", "--clients", "3", "--iodepth", "5", "--bs", "12k"]].concat());
        told(&clients, true, true);
        assert_eq!((&clients["load"]["clients"], &clients["load"]["bs"]), (&3.into(), &12_288.into()));
        let large = ["--rw", "randrw", "--iodepth", "2", "--bs", "1m", "--one-grid"];
        told(&bench(&[&null[..], &large].concat()), true, true);
        let unchecked = bench(&[&null[..], &["--rw", "randrw", "--verify", "off"]].concat());
        assert_eq!(unchecked["verify"], Value::Null);
        assert!(unchecked["iops"].as_f64().is_some_and(|iops| iops > 0.0));
    });
}

#[test]
fn the_cpu_centric_baselines_run_and_all_of_it_is_verified() {
    within(BUILD_LIMIT, || {
        for mode in ["gd+deengine", "gd", "basic"] {
            let words = ["--preset", "null", "--runtime", "1s", "--mode", mode, "--rw"];
            let report = bench(&[&words[..], &["randrw", "--clients", "2"]].concat());
            told(&report, true, true);
            assert_eq!(report["load"]["mode"], mode);
            assert!(report["cpu"]["threads"]["gn-proxy"].as_f64().is_some_and(|seconds| seconds > 0.0), "{report}");
            let logged = report["stages"]["log_records"].as_u64().expect("a number");
            let writes = report["write"]["ios"].as_u64().expect("a number");
            assert_eq!(logged >= writes, mode != "gd+deengine", "{mode}: {logged} records for {writes} writes");
            // Requests over several chunks, from units that lie askew to them.
            told(&bench(&[&words[..], &["write", "--bs", "200k", "--iodepth", "3"]].concat()), false, true);
            told(&bench(&[&words[..], &["read", "--iodepth", "128"]].concat()), true, false);
        }
    });
}

#[test]
fn what_the_models_allow_and_what_is_late_is_told_and_drawn() {
    within(BUILD_LIMIT, || {
        let folder = tempfile::tempdir().expect("a folder");
        let plot = folder.path().join("latency.svg");
        let plot = plot.to_str().expect("a name in UTF-8");
        let report = bench(&["--runtime", "300ms", "--plot", plot]);
        assert_eq!(report["array"]["preset"], "gnstor-980pro");
        let ideal = &report["ideal"];
        let (measured, bound) = (report["iops"].as_f64().expect("a rate"), ideal["iops"].as_f64().expect("a rate"));
        assert!(bound > 0.0 && ideal["ratio"].as_f64().is_some_and(|r| (r * bound / measured - 1.0).abs() < 1e-6));
        assert!(report["late"]["share"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "{report}");
        assert!(report["cpu"]["threads"]["gn-launch"].as_f64().is_some_and(|seconds| seconds > 0.0));
        let served = report["array"]["served"].as_array().expect("SSDs");
        let sum = |field: &str| served.iter().filter_map(|ssd| ssd[field].as_u64()).sum::<u64>();
        // Two SSDs of four hold a block, and one of them serves a read: each of them has some, and together they have all.
        assert!(served.len() == 4 && served.iter().all(|ssd| ssd["reads"].as_u64() > Some(0)), "{report}");
        assert_eq!((Some(sum("reads")), sum("writes")), (report["verify"]["ios"].as_u64(), 0));
        assert_eq!(sum("read_bytes"), sum("reads") * BLOCK as u64);
        assert_eq!(report["array"]["state"], "fresh");
        let drawing = std::fs::read_to_string(plot).expect("a drawing");
        assert!(drawing.starts_with("<svg") && drawing.contains("latency, us") && drawing.contains("emulated"));
    });
}

/// Figures in their shortest form: no modelled time, small volumes, little time.
const SHORT: [&str; 11] =
    ["bench", "--device", "host", "--preset", "null", "--size", "2MiB", "--warmup", "0", "--runtime", "50ms"];

#[test]
fn a_figure_runs_all_of_its_points_and_is_drawn() {
    within(BUILD_LIMIT, || {
        let folder = tempfile::tempdir().expect("a folder");
        let plot = folder.path().join("figure.png");
        let words = ["--figure", "13", "--json", "--plot", plot.to_str().expect("a name in UTF-8")];
        let report = gnstor(&[&SHORT[..], &words].concat()).json();
        let points = report["points"].as_array().expect("points");
        assert_eq!((points.len(), &report["planned"], &report["interrupted"]), (12, &12.into(), &false.into()));
        for point in points {
            let (run, name) = (&point["run"], point["name"].as_str().expect("a name"));
            let writes = name.contains("randwrite");
            told(run, !writes, writes);
            assert!(point["measured"].as_f64().is_some_and(|value| value > 0.0), "{point}");
            assert_eq!((&point["paper"], &point["error"]), (&Value::Null, &Value::Null), "{point}");
            assert_eq!(
                (&run["array"]["ssds"], &run["load"]["replicas"], &run["load"]["iodepth"]),
                (&4.into(), &2.into(), &32.into())
            );
            let of =
                [run["load"]["mode"].as_str(), run["load"]["rw"].as_str()].map(Option::unwrap_or_default).join(" ");
            assert!(name.starts_with(&of), "{name}: {of}");
        }
        assert_eq!(report["claims"].as_array().map(Vec::len), Some(6));
        let picture = std::fs::read(&plot).expect("a picture");
        assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 5_000, "{} bytes", picture.len());
    });
}

#[test]
fn a_figure_of_fewer_points_tells_the_paper_beside_what_was_measured() {
    within(BUILD_LIMIT, || {
        let only = ["--figure", "12", "--points", "gd,read,s5", "--max-clients", "2"];
        let short: Vec<&str> = SHORT.iter().map(|&word| if word == "null" { "gnstor-980pro" } else { word }).collect();
        let ended = gnstor(&[&short[..], &only].concat());
        ended.worked();
        let line = ended.stdout.lines().find(|line| line.contains("gd read 4k c2 s5")).expect("a line of the point");
        // 13.6 GB/s are "3.6x higher than GD".
        for word in ["2.96*", "fresh", "% full"] {
            assert!(line.contains(word), "'{word}' in: {line}");
        }
        for word in ["figure 12", "gnstor over gd, 4k, reads, 5 SSDs", "--max-clients 2", "emulated"] {
            assert!(ended.stdout.contains(word), "'{word}' in: {}", ended.stdout);
        }
        assert_eq!(ended.stdout.matches("gd read 4k c2 s5").count(), ended.stdout.matches("4k c2 s5").count());
    });
}

#[test]
fn ctrl_c_ends_a_figure_with_the_points_so_far() {
    within(BUILD_LIMIT, || {
        let endless = SHORT.map(|word| if word == "50ms" { "1h" } else { word });
        let mut command = Command::new(&*GNSTOR);
        command.args(endless).args(["--figure", "9", "--points", "gnstor,4k", "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Guard(command.spawn().expect("the command starts"));
        std::thread::sleep(Duration::from_secs(4));
        signal(&child, "-INT");
        assert_eq!(wait(&mut child, LIMIT), Some(130));
        let mut text = String::new();
        child.0.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!((&report["interrupted"], &report["planned"]), (&true.into(), &4.into()));
        let points = report["points"].as_array().expect("points");
        assert!(points.len() == 1 && points[0]["measured"].as_f64().is_some_and(|value| value > 0.0), "{report}");
    });
}

#[test]
fn a_load_that_is_run_several_times_has_median_and_spread() {
    within(BUILD_LIMIT, || {
        let ended = gnstor(&[&SHORT[..], &["--runs", "3", "--json"]].concat());
        let all = ended.json();
        let runs = all["runs"].as_array().expect("runs");
        assert_eq!((runs.len(), &all["planned"], &all["interrupted"]), (3, &3.into(), &false.into()));
        runs.iter().for_each(|run| told(run, true, false));
        let mut rates: Vec<f64> = runs.iter().map(|run| run["iops"].as_f64().expect("a rate")).collect();
        let median = &runs[usize::try_from(all["median_run"].as_u64().expect("a number")).expect("small")];
        assert_eq!(median["iops"], all["iops"]["median"]);
        rates.sort_by(f64::total_cmp);
        for (name, rate) in [("least", rates[0]), ("median", rates[1]), ("most", rates[2])] {
            assert!((all["iops"][name].as_f64().expect("a rate") - rate).abs() < 1e-6, "{name} of {rates:?}");
        }
        let text = gnstor(&[&SHORT[..], &["--runs", "2"]].concat());
        text.worked();
        assert!(text.stdout.contains("of 2; median (least..most) of all:"), "{}", text.stdout);
        let point = ["--figure", "13", "--points", "gnstor,randread,4k", "--runs", "2", "--json"];
        let figure = gnstor(&[&SHORT[..], &point].concat()).json();
        let point = &figure["points"][0];
        assert_eq!((&point["runs"], point["other_runs"].as_array().map(Vec::len)), (&2.into(), Some(1)));
        assert!(point["spread"]["least"].as_f64() <= point["measured"].as_f64(), "{}", point["spread"]);
        assert!(point["measured"].as_f64() <= point["spread"]["most"].as_f64(), "{}", point["spread"]);
    });
}

/// A suite in its shortest form.
fn suite(which: &str, folder: &Path, extra: &[&str]) -> Ended {
    let short = ["--device", "host", "--engines", "1", "--size", "2MiB", "--warmup", "0", "--runtime", "20ms"];
    let words = ["bench", "--suite", which, "--max-clients", "1", "--out", folder.to_str().expect("a name in UTF-8")];
    let mut command = Command::new(&*GNSTOR);
    command.args(words).args(short).args(extra);
    run_for(command, LIMIT)
}

#[test]
fn a_suite_goes_on_where_its_last_call_ended() {
    within(BUILD_LIMIT, || {
        let folder = tempfile::tempdir().expect("a folder");
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
        for row in &rows[1..] {
            let run = &row["kept"]["runs"][0]["load"];
            let verify = &run["verify"];
            assert!(verify["ios"].as_u64() > Some(0) && verify["ios"] == verify["verified_ios"], "{row}");
            assert_eq!((&row["iops"]["median"], &row["failed"]), (&run["iops"], &Value::Array(vec![])));
            // A row with too few cores is held against nothing.
            assert_eq!(row["core_bound"], run["busy"]["core_bound"]);
            assert!(row["core_bound"] == false || row["ratio"].is_null(), "{row}");
            if row["name"].as_str().is_some_and(|name| name.starts_with("bare ")) {
                assert_eq!(run["load"]["central_engine"], false, "{row}");
            }
        }
        // A second round, of what the time allows; the first one's runs stay as they were.
        let more = call(&["--runs", "2", "--budget", "20s"]);
        let done = more["done"].as_u64().expect("a number");
        assert!((31..60).contains(&done) && more["complete"] == false, "{done} runs");
        assert_eq!(more["rows"][0]["kept"]["runs"].as_array().map(Vec::len), Some(2));
        assert_eq!(more["rows"][0]["kept"]["runs"][0], rows[0]["kept"]["runs"][0]);
        let again = suite("targets", folder.path(), &["--runs", "1"]);
        again.worked();
        for word in
            ["suite       targets, complete", "bare copy", "scale gnstor randread 4k c1 s16", "counts for nobody"]
        {
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
        let folder = tempfile::tempdir().expect("a folder");
        let report = suite("figures", folder.path(), &["--budget", "18s", "--json"]).json();
        let done = report["done"].as_u64().expect("a number");
        assert!(done > 0 && report["complete"] == false, "{done}");
        let points = |number: usize| report["figures"][number]["points"].as_array().expect("points").clone();
        // Figures 9 and 10 have the same loads, and 13 has some of them.
        assert_eq!(points(0).len(), points(1).len());
        assert_eq!(points(0)[0]["run"], points(1)[0]["run"]);
        assert_eq!((&report["figures"][1]["unit"], &points(1)[0]["runs"]), (&"us".into(), &1.into()));
        for number in 9..=13 {
            let picture = std::fs::read(folder.path().join(format!("figure-{number}.png"))).expect("a picture");
            assert!(picture.starts_with(b"\x89PNG"), "figure {number}");
        }
    });
}

#[test]
fn ssds_that_are_nearly_full_collect_and_the_report_says_so() {
    within(BUILD_LIMIT, || {
        let load = ["--rw", "randwrite", "--bs", "64k", "--iodepth", "8", "--ssds", "2", "--runtime", "4s"];
        let full = ["--preset", "null", "--size", "56MiB", "--ssd-size", "64MiB"];
        let report =
            gnstor(&[&["bench", "--device", "host", "--warmup", "0", "--json"], &load[..], &full].concat()).json();
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
        for word in
            ["randread of 4.0 KiB", "IOPS", "p99.99", "verified", "CPU time", "emulated", "preset null", "not limited"]
        {
            assert!(ended.stdout.contains(word), "'{word}' in {}", ended.stdout);
        }
    });
}

#[test]
fn fio_s_words_are_all_there_and_explained() {
    within(BUILD_LIMIT, || {
        let help = gnstor(&["bench", "--help"]).stdout;
        for word in [
            "mode", "rw", "bs", "iodepth", "clients", "ssds", "replicas", "preset", "runtime", "verify", "json",
            "device", "plot", "size", "seed", "warmup", "runs", "figure", "suite",
        ] {
            let mut lines = help.lines().skip_while(|line| {
                let mut words = line.split_whitespace();
                words.next() != Some(&format!("--{word}"))
            });
            assert!(lines.next().is_some(), "--{word} in {help}");
            let told = lines.next().expect("a line below it").trim();
            assert!(told.len() > 10 && !told.starts_with('-'), "--{word} is explained: {told}");
        }
        for value in ["randread", "randwrite", "randrw", "gd+deengine", "basic", "200gbe", "targets", "figures"] {
            assert!(help.contains(&format!("- {value}:")), "{value} in {help}");
        }
    });
}

#[test]
fn wrong_words_are_refused_in_a_sentence() {
    within(BUILD_LIMIT, || {
        let refused = |words: &[&str], why: &[&str]| gnstor(&[&["bench"], words].concat()).failed(why);
        refused(&["--bs", "5000"], &["--bs 5000", "multiple of 4096"]);
        refused(&["--bs", "32m"], &["16.0 MiB"]);
        refused(&["--iodepth", "129"], &["1 to 128", "--clients"]);
        refused(&["--iodepth", "0"], &["1 to 128"]);
        refused(&["--clients", "65"], &["1 to 64"]);
        refused(&["--clients", "64", "--ssds", "64"], &["queue pairs"]);
        refused(&["--ssds", "0"], &["1 to 64 SSDs"]);
        refused(&["--ssds", "2", "--replicas", "3"], &["--replicas 3", "1 to 2"]);
        refused(&["--size", "64k"], &["at least", "128.0 KiB"]);
        refused(&["--ssd-size", "16MiB"], &["do not fit", "--ssd-size"]);
        refused(&["--runtime", "0"], &["more than 0"]);
        refused(&["--io-timeout", "0"], &["1ms"]);
        refused(&["--preset", "floppy"], &["'floppy'", "null"]);
        refused(&["--plot", "latency.pdf"], &["latency.pdf", ".svg or .png"]);
        refused(&["--plot", "/nowhere/latency.svg"], &["/nowhere/latency.svg"]);
        refused(&["--figure", "9", "--points", "gnstor,8k"], &["figure 9", "'8k'", "64k"]);
        refused(&["--figure", "9", "--points", "gd", "--size", "64k"], &["at least", "128.0 KiB"]);
        for (words, why) in [
            (["--figure", "8"], "9..=13"),
            (["--figure", "one"], "invalid"),
            (["--points", "gnstor"], "--figure"),
            (["--max-clients", "2"], "--figure"),
            (["--rw", "trim"], "randrw"),
            (["--rwmixread", "101"], "101"),
            (["--runtime", "soon"], "unit of time"),
            (["--mode", "floppy"], "gnstor"),
        ] {
            gnstor(&[&["bench"], &words[..]].concat()).not_understood(&[why]);
        }
        // A figure says itself what is run.
        gnstor(&["bench", "--figure", "9", "--rw", "read"]).not_understood(&["--rw"]);
    });
}

#[test]
fn ctrl_c_ends_a_run_with_the_figures_so_far() {
    within(BUILD_LIMIT, || {
        let words = ["--preset", "null", "--rw", "randrw", "--runtime", "1h", "--json"];
        let mut command = Command::new(&*GNSTOR);
        command.args(SMALL).args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Guard(command.spawn().expect("the command starts"));
        std::thread::sleep(Duration::from_secs(4));
        signal(&child, "-INT");
        assert_eq!(wait(&mut child, LIMIT), Some(130));
        let mut text = String::new();
        child.0.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(report["interrupted"], true);
        assert!(report["read"]["ios"].as_u64().is_some_and(|ios| ios > 0), "{report}");
        assert_eq!(report["verify"]["first_wrong"], Value::Null);
    });
}

fn small(mode: Mode, rw: Rw) -> BenchArgs {
    BenchArgs {
        figure: None,
        suite: None,
        out: None,
        budget: None,
        runs: None,
        points: Vec::new(),
        max_clients: None,
        mode,
        rw,
        rwmixread: 50,
        bs: 8192,
        iodepth: 32,
        clients: 2,
        size: 1 << 20,
        runtime: Some(Duration::from_millis(500)),
        warmup: Duration::ZERO,
        verify: Switch::On,
        seed: 7,
        device: DeviceArg::Host,
        ssds: 2,
        replicas: Some(2),
        preset: "null".into(),
        link: None,
        central_engine: Switch::On,
        ssd_size: Some(64 << 20),
        one_grid: false,
        engines: EngineArgs { engines: Some(2) },
        io_timeout: Duration::from_secs(10),
        json: true,
        plot: None,
    }
}

/// Fills, lets `before` and `after` the measured part change the second client's volume, and reads back.
fn planted(rw: Rw, before: fn(&File), after: fn(&File)) -> Report {
    within(LIMIT, move || {
        let args = small(Mode::Gnstor, rw);
        let steps = Steps::new(true, Arc::new(AtomicBool::new(false)));
        let rig = Rig::new(&args, Load::new(&args).expect("a load that can be run"), &steps).expect("a rig");
        bench::fill(&rig, &steps).expect("the volumes are filled");
        let file = rig.files().nth(1).expect("two clients");
        before(file);
        let mut report = bench::measure(&rig, &args, &steps).expect("figures");
        after(file);
        bench::read_back(&rig, &mut report, &steps).expect("everything can be read");
        report
    })
}

#[test]
fn an_ssd_that_falls_silent_ends_the_run_with_its_status() {
    for mode in [Mode::Gnstor, Mode::GdDeengine, Mode::Gd] {
        within(LIMIT, move || {
            let args = BenchArgs { runtime: Some(Duration::from_secs(3600)), ..small(mode, Rw::Randrw) };
            let steps = Steps::new(true, Arc::new(AtomicBool::new(false)));
            let rig = Rig::new(&args, Load::new(&args).expect("a load that can be run"), &steps).expect("a rig");
            bench::fill(&rig, &steps).expect("the volumes are filled");
            let node = Arc::clone(rig.files().next().expect("a client").client().node());
            node.engine().each(|engine, _| engine.set_silent(0, true)).expect("the engines run");
            let mut report = bench::measure(&rig, &args, &steps).expect("figures");
            node.engine().each(|engine, _| engine.set_silent(0, false)).expect("the engines run");
            bench::read_back(&rig, &mut report, &steps).expect("nothing is read back");
            let Err(CliError::Verify(sentence)) = report.verdict() else { panic!("{:?}", report.verdict()) };
            assert!(sentence.contains("I/Os failed") && sentence.contains("broke"), "{mode:?}: {sentence}");
            let served: Vec<u16> = report.array.served.iter().map(|ssd| ssd.ssd).collect();
            assert_eq!(served, [1], "{mode:?}: the other one does not answer");
            // One for each thread that had a request in flight, and no more.
            assert!(
                (1..=64).contains(&report.errors.iter().map(|error| error.count).sum::<u64>()),
                "{mode:?}: {sentence}"
            );
        });
    }
}

/// The verdict is that the data is wrong, in these words.
fn found(report: &Report, words: &[&str]) {
    let verify = report.verify.as_ref().expect("it was checked");
    assert!(verify.verified_ios < verify.ios, "{verify:?}");
    let Err(CliError::Verify(sentence)) = report.verdict() else { panic!("{:?}", report.verdict()) };
    for word in words {
        assert!(sentence.contains(word), "'{word}' in: {sentence}");
    }
}

fn block(file: &File, number: u64) -> Vec<u8> {
    let mut data = vec![0; BLOCK];
    file.read_at(number * BLOCK as u64, &mut data).expect("it can be read");
    data
}

fn put(file: &File, number: u64, data: &[u8]) {
    file.write_at(number * BLOCK as u64, data).expect("it can be written");
}

fn nothing(_: &File) {}

#[test]
fn nothing_planted_is_nothing_found() {
    for rw in [Rw::Randread, Rw::Randrw] {
        planted(rw, nothing, nothing).verdict().expect("all is well");
    }
}

#[test]
fn a_block_of_a_wrong_generation_is_found() {
    let report = planted(
        Rw::Randread,
        |file| {
            let mut data = block(file, 6);
            data.chunks_exact_mut(512).for_each(|sector| sector[12] += 1);
            put(file, 6, &data);
        },
        nothing,
    );
    found(&report, &["bench-1", "block 6", "sector 0, generation 1", "block 6, sector 0, generation 2"]);
}

#[test]
fn one_stale_sector_of_a_block_is_found() {
    let report = planted(
        Rw::Randread,
        |file| {
            let mut data = block(file, 9);
            data[3 * 512..4 * 512].fill(0);
            put(file, 9, &data);
        },
        nothing,
    );
    found(&report, &["bench-1", "block 9", "sector 3", "zeros"]);
}

#[test]
fn a_block_in_the_place_of_another_is_found() {
    let report = planted(Rw::Read, |file| put(file, 20, &block(file, 21)), nothing);
    found(&report, &["bench-1", "block 20", "block 21"]);
}

#[test]
fn a_lost_write_is_found_when_all_is_read_back() {
    // What was there before the last write stands there again, with its own right checksum.
    let report = planted(Rw::Randwrite, nothing, |file| {
        let mut old = block(file, 30);
        old.chunks_exact_mut(512).for_each(|sector| sector[12] = sector[12].wrapping_sub(1));
        put(file, 30, &old);
    });
    found(&report, &["replica 1", "bench-1", "block 30"]);
}

#[test]
fn a_changed_byte_between_the_headers_is_found_when_all_is_read_back() {
    let report = planted(Rw::Randwrite, nothing, |file| {
        let mut data = block(file, 77);
        data[2000] ^= 1;
        put(file, 77, &data);
    });
    found(&report, &["bench-1", "block 77", "right headers around other bytes"]);
}
