// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of the paper, and loads that are run several times.

use super::{SHORT, summary};
use gnstor_tests::command::{BUILD_LIMIT, gnstor};
use gnstor_tests::folder::Folder;
use gnstor_tests::within;
use serde_json::Value;

#[test]
fn a_figure_runs_all_of_its_points_and_is_drawn() {
    within(BUILD_LIMIT, || {
        let folder = Folder::new();
        let plot = folder.path().join("figure.png");
        let words = ["--figure", "13", "--json", "--plot", plot.to_str().expect("a name in UTF-8")];
        let report = gnstor(&[&SHORT[..], &words].concat()).json();
        let points = report["points"].as_array().expect("points");
        assert_eq!(
            (points.len(), &report["planned"], &report["interrupted"]),
            (12, &12.into(), &false.into())
        );
        for point in points {
            let (run, name) = (&point["run"], point["name"].as_str().expect("a name"));
            let writes = name.contains("randwrite");
            summary(run, !writes, writes);
            assert!(point["measured"].as_f64().is_some_and(|value| value > 0.0), "{point}");
            assert_eq!((&point["paper"], &point["error"]), (&Value::Null, &Value::Null), "{point}");
            assert_eq!(
                (&run["array"]["ssds"], &run["load"]["replicas"], &run["load"]["iodepth"]),
                (&4.into(), &2.into(), &32.into())
            );
            let of = [run["load"]["mode"].as_str(), run["load"]["rw"].as_str()]
                .map(Option::unwrap_or_default)
                .join(" ");
            assert!(name.starts_with(&of), "{name}: {of}");
        }
        assert_eq!(report["claims"].as_array().map(Vec::len), Some(6));
        let picture = std::fs::read(&plot).expect("a picture");
        assert!(
            picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 5_000,
            "{} bytes",
            picture.len()
        );
    });
}

#[test]
fn a_figure_of_fewer_points_shows_the_paper_s_values_beside_measured_ones() {
    within(BUILD_LIMIT, || {
        let only = ["--figure", "12", "--points", "gd,read,s5", "--max-clients", "2"];
        let short: Vec<&str> =
            SHORT.iter().map(|&word| if word == "null" { "gnstor-980pro" } else { word }).collect();
        let ended = gnstor(&[&short[..], &only].concat());
        ended.worked();
        let line =
            ended.stdout.lines().find(|line| line.contains("gd read 4k c2 s5")).expect("a line of the point");
        // 13.6 GB/s are "3.6x higher than GD".
        for word in ["2.96*", "fresh", "% full"] {
            assert!(line.contains(word), "'{word}' in: {line}");
        }
        for word in ["figure 12", "gnstor over gd, 4k, reads, 5 SSDs", "--max-clients 2", "emulated"] {
            assert!(ended.stdout.contains(word), "'{word}' in: {}", ended.stdout);
        }
        assert_eq!(
            ended.stdout.matches("gd read 4k c2 s5").count(),
            ended.stdout.matches("4k c2 s5").count()
        );
    });
}

#[test]
fn a_load_that_is_run_several_times_has_median_and_spread() {
    within(BUILD_LIMIT, || {
        let ended = gnstor(&[&SHORT[..], &["--runs", "3", "--json"]].concat());
        let all = ended.json();
        let runs = all["runs"].as_array().expect("runs");
        assert_eq!((runs.len(), &all["planned"], &all["interrupted"]), (3, &3.into(), &false.into()));
        runs.iter().for_each(|run| summary(run, true, false));
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
