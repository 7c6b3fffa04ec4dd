// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Points of figures and the statements about them.

use super::super::paper;
use super::*;
use crate::args::parsed;
use crate::made_up;
use gnstor_base::testing::deadline;

/// A figure whose first point ran once, with or without enough cores.
fn figure_of(core_bound: bool) -> FigureReport {
    let figure = paper::figure(9).expect("a figure");
    let mut report = FigureReport::new(&figure, &parsed(&["--figure", "9"]));
    let mut run = made_up::report(&["--mode", "basic", "--rw", "read"], 50.0);
    run.busy.core_bound = core_bound;
    (run.late.share, run.late.client_share) = (Some(0.02), Some(0.345));
    report.add(&figure.points[0], vec![run]);
    report
}

#[test]
fn a_core_bound_point_has_no_ratio() {
    let _deadline = deadline();
    for (core_bound, ratio) in [(false, Some(0.5)), (true, None)] {
        let point = &figure_of(core_bound).points[0];
        assert_eq!(point.ratio, ratio);
        assert!(point.measured.is_some() && point.ideal.is_some());
        assert_eq!(point.line().contains("core-bound"), core_bound, "{}", point.line());
        assert_eq!(point.line().contains("50.0 %"), !core_bound, "{}", point.line());
    }
}

#[test]
fn a_point_of_two_runs_is_the_worse_one() {
    let _deadline = deadline();
    // Throughput of figure 9, latency of figure 10.
    for number in [9, 10] {
        let figure = paper::figure(number).expect("a figure");
        let mut report = FigureReport::new(&figure, &parsed(&["--figure", &number.to_string()]));
        let run = |mean_us| made_up::report(&["--mode", "basic", "--rw", "read"], mean_us);
        report.add(&figure.points[0], vec![run(50.0), run(100.0)]);
        let point = &report.points[0];
        assert_eq!(point.mean_us, Some(100.0), "figure {number}");
        assert_eq!(point.spread.map(|spread| spread.median), point.measured, "figure {number}");
    }
}

#[test]
fn a_drawing_names_each_point_once() {
    let _deadline = deadline();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("figure.svg");
    crate::plot::write(&path, &figure_of(false)).expect("it can be drawn");
    let drawing = std::fs::read_to_string(&path).expect("a drawing");
    let lines = || drawing.lines().map(str::trim);
    assert_eq!(lines().filter(|line| *line == "basic").count(), 1, "{drawing}");
    assert!(lines().any(|line| line == "read 4 KiB"), "{drawing}");
}

#[test]
fn a_point_has_tails_and_both_late_shares_beside_its_rate() {
    let _deadline = deadline();
    let report = figure_of(false);
    for text in [report.points[0].line(), report.text()] {
        for word in ["50.0     100.0     200.0     400.0", "2.0 %", "34.5 %"] {
            assert!(text.contains(word), "'{word}' in: {text}");
        }
    }
    let json = serde_json::to_value(&report.points[0]).expect("plain data");
    let of = |field: &str| json["latency_us"][field].as_f64();
    assert_eq!([of("p50"), of("p99"), of("p99_9"), of("max")], [50.0, 100.0, 200.0, 400.0].map(Some));
    assert_eq!(json["client_late_share"], 0.345);
}

#[test]
fn every_figure_has_its_points_once() {
    let _deadline = deadline();
    for (number, count) in [(9, 24), (10, 24), (11, 72), (12, 24), (13, 12)] {
        let figure = paper::figure(number).expect("a figure");
        let mut names: Vec<_> =
            figure.points.iter().map(|point| PointSummary::new(point, Quantity::Throughput).name).collect();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), figure.points.len()), (count, count), "figure {number}");
    }
    assert!(paper::figure(8).is_none() && paper::figure(14).is_none());
}

fn is_one(causes: &[String], as_wanted: impl Fn(&str) -> bool) -> bool {
    matches!(causes, [why] if as_wanted(why))
}

#[test]
fn a_value_better_than_the_paper_s_has_its_own_causes() {
    let _deadline = deadline();
    let figure = paper::figure(9).expect("a figure");
    let point = figure.points.iter().find(|point| point.mode == Mode::Basic && point.paper.is_some());
    let mut summary = PointSummary::new(point.expect("the text has one"), Quantity::Throughput);
    summary.ideal = Some(1.0);
    assert!(
        is_one(&summary.why_better(Mode::Basic, 0.5), |why| why.contains("poll") && why.contains("batches"))
    );
    assert!(
        is_one(&summary.why_better(Mode::Gd, 0.5), |why| why.contains("poll") && !why.contains("batches"))
    );
    assert!(matches!(&summary.why_better(Mode::Gnstor, 0.5)[..], [why] if why.contains("2.0 times")));
    assert!(summary.why_better(Mode::Gnstor, 0.95).is_empty());
}

#[test]
fn the_values_of_the_paper_are_where_its_text_has_them() {
    let _deadline = deadline();
    let given = |number| {
        let points = paper::figure(number).expect("a figure").points;
        let summary: Vec<PointSummary> = points
            .iter()
            .map(|point| PointSummary::new(point, Quantity::Throughput))
            .filter(|summary| summary.paper.is_some())
            .collect();
        summary
            .iter()
            .map(|t| (t.name.clone(), format!("{:.2}", t.paper.unwrap_or_default()), t.paper_from))
            .collect::<Vec<_>>()
    };
    let of = |name: &str, value: &str, from| (name.to_owned(), value.to_owned(), Some(from));
    assert_eq!(given(9).len(), 8);
    assert!(given(9).contains(&of("gd randwrite 4k c1 s4", "0.69", "ratio")), "{:?}", given(9));
    assert_eq!(given(11), [of("gnstor randread 64k c2 s4", "21.50", "text")]);
    assert_eq!(
        given(12),
        [
            of("gd read 4k c32 s5", "2.96", "ratio"),
            of("gnstor read 4k c32 s5", "13.60", "text"),
            of("gd write 4k c32 s5", "1.14", "ratio"),
            of("gnstor write 4k c32 s5", "6.60", "text"),
        ]
    );
    assert!(given(10).is_empty() && given(13).is_empty());
}
