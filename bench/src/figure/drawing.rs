// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A figure of the paper as bars: for each load what the paper's text gives, the modelled ideal, and what
//! was measured.

use super::paper::Quantity;
use super::summary::{FigureReport, PointSummary};
use crate::plot::{Area, Drawing, Drawn, FAMILY};
use crate::report::word;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Bars: their place among a point's, left to right, what they are, and which value they show.
type Bars = (u32, &'static str, RGBColor, fn(&PointSummary, Quantity) -> Option<f64>);
const BARS: [Bars; 4] = [
    (0, "paper", RGBColor(60, 150, 90), |summary, of| summary.paper.filter(|_| of == summary.quantity)),
    (1, "ideal", RGBColor(190, 190, 190), PointSummary::bound),
    (2, "measured", RGBColor(50, 90, 200), |summary, of| summary.found(of).filter(|_| !summary.core_bound)),
    (2, "measured, core-bound", RGBColor(240, 160, 80), |summary, of| {
        summary.found(of).filter(|_| summary.core_bound)
    }),
];
/// Places of a point: three bars and a gap.
const PLACES: u32 = 4;
const WIDTH: u32 = 1600;
const PANEL_HEIGHT: u32 = 360;
const TITLE: u32 = 30;

/// The points of one direction, order and size, and the quantity to draw.
type Panel<'a> = (String, Quantity, Vec<&'a PointSummary>);

fn panels(report: &FigureReport) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for summary in &report.points {
        let name = format!("{} {} KiB", word(summary.point.rw), summary.point.bs >> 10);
        match panels.iter_mut().find(|(known, ..)| *known == name) {
            Some((.., points)) => points.push(summary),
            None => panels.push((name, report.quantity, vec![summary])),
        }
    }
    for (.., points) in &mut panels {
        points.sort_by_key(|summary| (word(summary.point.mode), summary.point.clients, summary.point.ssds));
    }
    if report.figure == 13 {
        // Only this figure shows both quantities.
        let mut again = panels.clone();
        again.iter_mut().for_each(|(_, of, _)| *of = Quantity::Latency);
        panels.append(&mut again);
    }
    panels
}

/// Panels side by side: as many as leave room for the names of their points.
fn columns(report: &FigureReport) -> usize {
    if panels(report).iter().any(|(.., points)| points.len() > 6) { 1 } else { 2 }
}

/// What tells a point from its neighbours: the mode, and the number that the figure varies.
fn label(report: &FigureReport, summary: &PointSummary) -> String {
    let mode = word(summary.point.mode);
    match report.figure {
        11 => format!("{mode} {}", summary.point.clients),
        12 => format!("{mode} {}", summary.point.ssds),
        _ => mode,
    }
}

impl Drawing for FigureReport {
    fn size(&self) -> (u32, u32) {
        let rows = u32::try_from(panels(self).chunks(columns(self)).count()).expect("a few panels");
        (WIDTH, TITLE + rows.max(1) * PANEL_HEIGHT)
    }

    fn on<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn
    where
        DB::ErrorType: 'static,
    {
        let title = format!("figure {}: {} (HCA, link and SSDs emulated)", self.figure, self.title);
        let area = area.titled(&title, (FAMILY, 18))?;
        let panels = panels(self);
        let areas = area.split_evenly((panels.chunks(columns(self)).count().max(1), columns(self)));
        for (panel, area) in panels.iter().zip(&areas) {
            draw_panel(self, area, panel)?;
        }
        Ok(())
    }
}

fn draw_panel<DB: DrawingBackend>(
    report: &FigureReport,
    area: &Area<DB>,
    (name, of, points): &Panel<'_>,
) -> Drawn
where
    DB::ErrorType: 'static,
{
    let all = points.iter().flat_map(|summary| BARS.iter().filter_map(|bars| bars.3(summary, *of)));
    let most = all.fold(f64::MIN_POSITIVE, f64::max);
    let count = u32::try_from(points.len())?;
    let mut chart = ChartBuilder::on(area)
        .caption(name, (FAMILY, 14))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(70)
        .build_cartesian_2d((0..count * PLACES).into_segmented(), 0.0..most * 1.4)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(1)
        // The names of the points stand below; a tick at each place would mean nothing.
        .x_labels((count * PLACES) as usize)
        .x_label_formatter(&|_| String::new())
        .set_tick_mark_size(LabelAreaPosition::Bottom, 0)
        .y_label_style((FAMILY, 12))
        .y_desc(of.unit())
        .draw()?;
    let style = (FAMILY, 12).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
    chart.draw_series((0..).zip(points).map(|(number, summary)| {
        // Below the middle bar, some pixels under the axis.
        let middle = (SegmentValue::CenterOf(number * PLACES + 1), 0.0);
        EmptyElement::at(middle) + Text::new(label(report, summary), (0, 6), style.clone())
    }))?;
    for (place, name, colour, value) in BARS {
        let mut bars = (0..)
            .zip(points)
            .filter_map(|(number, summary)| {
                let (left, value) = (number * PLACES + place, value(summary, *of)?);
                let corners = [(SegmentValue::Exact(left), 0.0), (SegmentValue::Exact(left + 1), value)];
                Some(Rectangle::new(corners, colour.filled()))
            })
            .peekable();
        if bars.peek().is_none() {
            continue;
        }
        let drawn = chart.draw_series(bars)?;
        drawn
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .label_font((FAMILY, 12))
        .draw()?;
    Ok(())
}
