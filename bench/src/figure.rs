// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `gnstor bench --figure`: a figure of the paper, point by point, each on an array of its own.

mod claim;
mod drawing;
mod paper;
mod point;
mod summary;
mod table;

pub(super) use summary::FigureReport;

use summary::PointSummary;

use super::args::BenchArgs;
use super::load::Load;
use super::report::Report;
use super::{plot, run_load};
use gnstor_console::CliError;
use gnstor_console::Steps;
use indicatif::ProgressBar;
use paper::Figure;
use point::Point;
use std::time::Duration;

/// Runs the wanted figure, prints and draws it.
///
/// # Errors
/// [`CliError`]: impossible options, a first point that could not be run, and everything wrong in the
/// results.
pub(super) fn command(args: &BenchArgs, steps: &Steps) -> Result<(), CliError> {
    let report = run(args, steps)?;
    report.print(args.json);
    args.plot.as_deref().map_or(Ok(()), |path| plot::write(path, &report))?;
    report.verdict()
}

fn run(args: &BenchArgs, steps: &Steps) -> Result<FigureReport, CliError> {
    let number = args.figure.unwrap_or_default();
    let no_figure = || CliError::Usage(format!("--figure {number} is not one of 9 to 13"));
    let mut figure = paper::figure(number).ok_or_else(no_figure)?;
    limit(&mut figure, args)?;
    let loads =
        figure.points.iter().map(|point| Load::new(&of_point(args, point))).collect::<Result<Vec<_>, _>>()?;
    args.plot.as_deref().map_or(Ok(()), plot::reserve)?;
    let each = args.warmup + args.runtime();
    let all = each * args.runs() * u32::try_from(loads.len()).expect("far fewer points");
    steps.done(format!(
        "figure {number}   {} points of {} x {each:?} load, {}; starting, filling and reading back come on \
         top",
        loads.len(),
        args.runs(),
        human_time(all)
    ));
    let bar = steps.bar("points", loads.len() as u64);
    bar.enable_steady_tick(Duration::from_secs(1));
    let mut report = FigureReport::new(&figure, args);
    for (point, load) in figure.points.iter().zip(loads) {
        if !one(args, point, load, &mut report, (&bar, steps))? {
            break;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.conclude(&figure);
    Ok(report)
}

/// The loads of all figures by name, each once: figures share points.
///
/// # Errors
/// [`CliError::Usage`]: limits that leave nothing.
pub(super) fn loads(args: &BenchArgs) -> Result<Vec<(String, BenchArgs)>, CliError> {
    let mut all: Vec<(String, BenchArgs)> = Vec::new();
    for figure in figures(args)? {
        for point in &figure.points {
            let name = point.words().join(" ");
            if !all.iter().any(|(known, _)| *known == name) {
                all.push((name, of_point(args, point)));
            }
        }
    }
    Ok(all)
}

/// All figures, from the present runs of each point's load.
///
/// # Errors
/// As [`loads`].
pub(super) fn reports(
    args: &BenchArgs,
    runs: impl Fn(&str) -> Option<Vec<Report>>,
) -> Result<Vec<FigureReport>, CliError> {
    let report = |figure: Figure| {
        let mut report = FigureReport::new(&figure, args);
        for point in &figure.points {
            if let Some(runs) = runs(&point.words().join(" ")) {
                report.add(point, runs);
            }
        }
        report.conclude(&figure);
        report
    };
    Ok(figures(args)?.into_iter().map(report).collect())
}

fn figures(args: &BenchArgs) -> Result<Vec<Figure>, CliError> {
    let limited = |mut figure: Figure| limit(&mut figure, args).map(|()| figure);
    (9..=13).filter_map(paper::figure).map(limited).collect()
}

/// Runs one point and adds it to the report. Returns whether to go on.
fn one(
    args: &BenchArgs,
    point: &Point,
    load: Load,
    report: &mut FigureReport,
    (bar, steps): (&ProgressBar, &Steps),
) -> Result<bool, CliError> {
    let name = point.words().join(" ");
    bar.set_message(name.clone());
    let (of_point, mut runs) = (of_point(args, point), Vec::new());
    for _ in 0..args.runs() {
        match run_load(&of_point, load.clone(), &steps.hidden()) {
            Err(CliError::Interrupted) => report.interrupted = true,
            // Nothing has run yet, so the fault is not the point's.
            Err(error) if report.points.is_empty() && runs.is_empty() => return Err(error),
            Err(error) => {
                report.fail(point, &error);
                runs.clear();
                break;
            }
            Ok(run) => runs.push(run),
        }
        if report.interrupted || steps.interrupted() {
            break;
        }
    }
    report.add(point, runs);
    if let Some(line) = report.points.last().filter(|summary| summary.name == name).map(PointSummary::line) {
        bar.suspend(|| steps.done(line));
    }
    Ok(!report.interrupted && !steps.interrupted())
}

/// The arguments of `gnstor bench` for this point.
fn of_point(args: &BenchArgs, point: &Point) -> BenchArgs {
    BenchArgs {
        mode: point.mode,
        rw: point.rw,
        bs: point.bs,
        clients: point.clients,
        ssds: point.ssds,
        replicas: Some(REPLICAS),
        plot: None,
        ..args.clone()
    }
}

/// The paper's, for every figure.
const REPLICAS: u32 = 2;

/// Keeps only the wanted points.
fn limit(figure: &mut Figure, args: &BenchArgs) -> Result<(), CliError> {
    if let Some(most) = args.max_clients {
        if figure.varies_clients {
            figure.points.retain(|point| point.clients <= most);
        } else {
            figure.points.iter_mut().for_each(|point| point.clients = point.clients.min(most));
        }
    }
    let names: Vec<[String; 5]> = figure.points.iter().map(Point::words).collect();
    let is_word = |word: &String| names.iter().any(|name| name.contains(word));
    if let Some(unknown) = args.points.iter().find(|word| !is_word(word)) {
        let mut all: Vec<&str> = Vec::new();
        for kind in 0..5 {
            for name in &names {
                if !all.contains(&name[kind].as_str()) {
                    all.push(&name[kind]);
                }
            }
        }
        let all = all.join(" ");
        return Err(CliError::Usage(format!(
            "--points: figure {} has no '{unknown}'; it has {all}",
            figure.number
        )));
    }
    let wanted = |point: &Point| {
        point.words().iter().enumerate().all(|(kind, word)| {
            let mut of_kind =
                args.points.iter().filter(|asked| names.iter().any(|name| name[kind] == **asked)).peekable();
            of_kind.peek().is_none() || of_kind.any(|asked| asked == word)
        })
    };
    figure.points.retain(wanted);
    if figure.points.is_empty() {
        return Err(CliError::Usage(format!("figure {} has no point with these limits", figure.number)));
    }
    Ok(())
}

fn human_time(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 120 {
        format!("{:.0} s in all", time.as_secs_f64())
    } else {
        format!("{} min in all", seconds.div_ceil(60))
    }
}
