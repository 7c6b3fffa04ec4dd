// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Latencies as a drawing: how often each was seen, and what share was faster; below them by how much
//! responses were later than modelled.

use super::{Area, Drawing, Drawn, FAMILY};
use crate::latency::Timed;
use crate::lateness::Lateness;
use crate::report::Report;
use plotters::coord::combinators::LogCoord;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::ops::Range;

type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<LogCoord<f64>, RangedCoordf64>>;

/// Latency in microseconds and how many I/Os had it.
type Counts = Vec<(f64, f64)>;

/// Height of what is below the latencies, pixels.
const LATENESS: u32 = 300;

impl Drawing for Report {
    fn size(&self) -> (u32, u32) {
        (960, if self.late.lateness.is_some() { 720 + LATENESS } else { 720 })
    }

    fn on<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn
    where
        DB::ErrorType: 'static,
    {
        let series: Vec<_> = [("reads", &self.read, BLUE), ("writes", &self.write, RED)]
            .into_iter()
            .filter_map(|(name, timed, colour)| Some((name, counts(timed.as_ref()?), colour)))
            .collect();
        let title = format!(
            "{} SSDs {}, {} KiB, {} x {} in flight, on {} (HCA, link and SSDs emulated)",
            self.array.ssds,
            self.array.preset,
            self.load.bs / 1024,
            self.load.clients,
            self.load.iodepth,
            self.device.name
        );
        let area = area.titled(&title, (FAMILY, 13))?;
        let all = || series.iter().flat_map(|(_, counts, _)| counts);
        let low = all().map(|point| point.0).fold(f64::INFINITY, f64::min) * 0.9;
        let high = all().map(|point| point.0).fold(0.0, f64::max) * 1.1;
        let range = if low < high { low..high } else { 1.0..10.0 };
        let (area, lowest) = area.split_vertically(700);
        if let Some(summary) = &self.late.lateness {
            lateness(&lowest, summary)?;
        }
        let (above, below) = area.split_vertically(340);
        histogram(&above, &series, range.clone())?;
        distribution(&below, &series, range)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a drawing")]
fn counts(timed: &Timed) -> Counts {
    // Wide enough to see, narrow enough to tell: 5 % apart.
    let mut out: Counts = Vec::new();
    for value in timed.histogram.iter_recorded() {
        let (us, count) =
            (value.value_iterated_to() as f64 / 1000.0, value.count_since_last_iteration() as f64);
        match out.last_mut() {
            Some(last) if us < last.0 * 1.05 => last.1 += count,
            _ => out.push((us, count)),
        }
    }
    out
}

/// Latencies from left to right, values from 0 to `most` upwards, with a mesh.
fn axes<'a, DB: DrawingBackend>(
    area: &'a Area<DB>,
    range: Range<f64>,
    most: f64,
    [below, left]: [&str; 2],
) -> Result<Chart<'a, DB>, Box<dyn std::error::Error>>
where
    DB::ErrorType: 'static,
{
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(range.log_scale(), 0.0..most)?;
    chart.configure_mesh().max_light_lines(1).x_desc(below).y_desc(left).draw()?;
    Ok(chart)
}

fn histogram<DB: DrawingBackend>(
    area: &Area<DB>,
    series: &[(&str, Counts, RGBColor)],
    range: Range<f64>,
) -> Drawn
where
    DB::ErrorType: 'static,
{
    let most = series.iter().flat_map(|(_, counts, _)| counts).map(|point| point.1).fold(1.0, f64::max);
    let mut chart = axes(area, range, most * 1.05, ["latency, us", "I/Os"])?;
    for (name, counts, colour) in series {
        let colour = *colour;
        let bars = counts
            .iter()
            .map(|&(us, n)| Rectangle::new([(us, 0.0), (us * 1.04, n)], colour.mix(0.5).filled()));
        let drawn = chart.draw_series(bars)?;
        drawn
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    Ok(())
}

fn distribution<DB: DrawingBackend>(
    area: &Area<DB>,
    series: &[(&str, Counts, RGBColor)],
    range: Range<f64>,
) -> Drawn
where
    DB::ErrorType: 'static,
{
    let mut chart = axes(area, range, 1.0, ["latency, us", "share of I/Os that were at most so slow"])?;
    for (_, counts, colour) in series {
        let total: f64 = counts.iter().map(|point| point.1).sum();
        let mut sum = 0.0;
        let line = counts.iter().map(|&(us, n)| {
            sum += n;
            (us, sum / total)
        });
        chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
    }
    Ok(())
}

fn lateness<DB: DrawingBackend>(area: &Area<DB>, summary: &Lateness) -> Drawn
where
    DB::ErrorType: 'static,
{
    let most = summary.bars().map(|bar| bar.2).fold(1.0, f64::max);
    let end = summary.bars().map(|bar| bar.1).fold(0.002, f64::max);
    let what = "seen so much after the modelled time, us (the first bar: not later)";
    let mut chart = axes(area, 0.001..end, most * 1.05, [what, "responses"])?;
    let colour = RGBColor(60, 150, 90);
    chart.draw_series(
        summary
            .bars()
            .map(|(from, to, count)| Rectangle::new([(from, 0.0), (to, count)], colour.mix(0.5).filled())),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn lateness_is_drawn_with_a_bar_for_each_bucket() {
        let _deadline = deadline();
        super::super::register().expect("the command's own font");
        let mut counts = [0; 32];
        (counts[0], counts[9], counts[12]) = (70, 25, 5);
        let summary = crate::lateness::between(&[], &counts).expect("some were counted");
        let mut drawing = String::new();
        {
            let root = SVGBackend::with_string(&mut drawing, (960, LATENESS)).into_drawing_area();
            lateness(&root, &summary).expect("it can be drawn");
            root.present().expect("it can be drawn");
        }
        assert!(drawing.contains("after the modelled time"), "{drawing}");
        // Bars are filled. Empty ones have no height.
        assert_eq!(drawing.matches("fill=\"#3C965A\"").count(), 13, "{drawing}");
    }
}
