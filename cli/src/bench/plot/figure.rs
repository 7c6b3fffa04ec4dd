// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A figure of the paper as bars: for each load what the paper's text gives, the modelled ideal, and what was measured.

use super::{Area, Drawing, Drawn, FAMILY};
use crate::bench::figure::{FigureReport, PointTold};
use crate::bench::report::word;
use plotters::prelude::*;

/// Bars: their place among a point's, left to right, what they are, and which value they show.
type Bars = (u32, &'static str, RGBColor, fn(&PointTold) -> Option<f64>);
const BARS: [Bars; 4] = [
    (0, "paper", GREEN, |told| told.paper),
    (1, "ideal", RGBColor(190, 190, 190), |told| told.ideal),
    (2, "measured", BLUE, |told| told.measured.filter(|_| !told.core_bound)),
    (2, "measured, core-bound", RGBColor(240, 160, 80), |told| told.measured.filter(|_| told.core_bound)),
];
/// Places of a point: three bars and a gap.
const PLACES: u32 = 4;
const PANEL: (u32, u32) = (800, 360);
const TITLE: u32 = 30;

/// The points of one direction, order and size.
fn panels(report: &FigureReport) -> Vec<(String, Vec<&PointTold>)> {
    let mut panels: Vec<(String, Vec<&PointTold>)> = Vec::new();
    for told in &report.points {
        let name = format!("{} {} KiB", word(told.point.rw), told.point.bs >> 10);
        match panels.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(told),
            None => panels.push((name, vec![told])),
        }
    }
    for (_, points) in &mut panels {
        points.sort_by_key(|told| (word(told.point.mode), told.point.clients, told.point.ssds));
    }
    panels
}

/// What tells a point from its neighbours: the mode, and the number that the figure varies.
fn label(report: &FigureReport, told: &PointTold) -> String {
    let mode = word(told.point.mode);
    match report.figure {
        11 => format!("{mode} {}", told.point.clients),
        12 => format!("{mode} {}", told.point.ssds),
        _ => mode,
    }
}

impl Drawing for FigureReport {
    fn size(&self) -> (u32, u32) {
        let rows = u32::try_from(panels(self).len().div_ceil(2)).expect("a few panels");
        (2 * PANEL.0, TITLE + rows.max(1) * PANEL.1)
    }

    fn on<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn
    where
        DB::ErrorType: 'static,
    {
        let title = format!("figure {}: {} (HCA, link and SSDs emulated)", self.figure, self.title);
        let area = area.titled(&title, (FAMILY, 18))?;
        let panels = panels(self);
        let areas = area.split_evenly((panels.len().div_ceil(2).max(1), 2));
        for ((name, points), area) in panels.iter().zip(&areas) {
            panel(self, area, name, points)?;
        }
        Ok(())
    }
}

fn panel<DB: DrawingBackend>(report: &FigureReport, area: &Area<DB>, name: &str, points: &[&PointTold]) -> Drawn
where
    DB::ErrorType: 'static,
{
    let all = points.iter().flat_map(|told| BARS.iter().filter_map(|bars| bars.3(told)));
    let most = all.fold(f64::MIN_POSITIVE, f64::max);
    let count = u32::try_from(points.len())?;
    let many = points.len() > 4;
    let mut chart = ChartBuilder::on(area)
        .caption(name, (FAMILY, 14))
        .margin(10)
        .x_label_area_size(if many { 110 } else { 30 })
        .y_label_area_size(70)
        .build_cartesian_2d((0..count * PLACES).into_segmented(), 0.0..most * 1.3)?;
    let of_place = |place: &SegmentValue<u32>| match place {
        SegmentValue::CenterOf(place) if place % PLACES == 1 => {
            points.get((place / PLACES) as usize).map_or_else(String::new, |told| label(report, told))
        }
        _ => String::new(),
    };
    let turned = if many { FontTransform::Rotate90 } else { FontTransform::None };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(1)
        .x_labels((count * PLACES) as usize)
        .x_label_formatter(&of_place)
        .x_label_style((FAMILY, 12).into_font().transform(turned))
        .y_label_style((FAMILY, 12))
        .y_desc(report.quantity.unit())
        .draw()?;
    for (place, name, colour, value) in BARS {
        let mut bars = (0..)
            .zip(points)
            .filter_map(|(number, told)| {
                let (left, value) = (number * PLACES + place, value(told)?);
                let corners = [(SegmentValue::Exact(left), 0.0), (SegmentValue::Exact(left + 1), value)];
                Some(Rectangle::new(corners, colour.filled()))
            })
            .peekable();
        if bars.peek().is_none() {
            continue;
        }
        let drawn = chart.draw_series(bars)?;
        drawn.label(name).legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
    }
    let legend = SeriesLabelPosition::UpperRight;
    chart
        .configure_series_labels()
        .position(legend)
        .background_style(WHITE.mix(0.8))
        .label_font((FAMILY, 12))
        .draw()?;
    Ok(())
}
