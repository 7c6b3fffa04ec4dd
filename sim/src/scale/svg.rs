// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows as curves: one over the clients for each number of SSDs, or the other way round. The drawing uses
//! whole numbers, so that the files of a seed have the same bytes on every machine.

use super::Row;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const WIDTH: u64 = 640;
const HEIGHT: u64 = 400;
/// Space for the labels at the left, and around the other sides.
const LEFT: u64 = 70;
const EDGE: u64 = 40;
const COLOURS: [&str; 6] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf"];

/// A figure: its labels, and the value of a row that it shows.
struct Figure {
    name: &'static str,
    title: &'static str,
    value: fn(&Row) -> u64,
}

const FIGURES: [Figure; 2] = [
    Figure { name: "throughput.svg", title: "MB/s (10^6 bytes)", value: |row| row.mb_per_s },
    Figure { name: "latency.svg", title: "p99 latency, us", value: |row| row.p99_ns / 1000 },
];

/// The curves, each with the name of its file.
pub fn curves(rows: &[Row]) -> Vec<(&'static str, String)> {
    FIGURES.iter().map(|figure| (figure.name, draw(figure, rows))).collect()
}

fn draw(figure: &Figure, rows: &[Row]) -> String {
    let distinct = |of: fn(&Row) -> usize| {
        let mut values: Vec<usize> = rows.iter().map(of).collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    let (clients, ssds) = (distinct(|row| row.clients), distinct(|row| row.ssds));
    let by_clients = clients.len() >= ssds.len();
    let (places, across, of) =
        if by_clients { (&clients, "clients", "SSDs") } else { (&ssds, "SSDs", "clients") };
    let most = rows.iter().map(figure.value).max().unwrap_or(0).max(1);
    let steps = (places.len().max(2) - 1) as u64;
    let x_of = |at: usize| LEFT + (WIDTH - LEFT - EDGE) * at as u64 / steps;
    let y_of = |value: u64| HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * value / most;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\">{} over {across}</text>\n",
        figure.title
    );
    for tick in 0..=4 {
        let value = most * tick / 4;
        let y = y_of(value);
        let right = WIDTH - EDGE;
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y}H{right}\" stroke=\"#ddd\"/><text x=\"4\" y=\"{y}\">{value}</text>"
        );
    }
    for (at, place) in places.iter().enumerate() {
        let (x, y) = (x_of(at), HEIGHT - EDGE / 2);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{place}</text>");
    }
    let mut series: BTreeMap<usize, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        series.entry(if by_clients { row.ssds } else { row.clients }).or_default().push(row);
    }
    for ((number, rows), colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let mut points = String::new();
        let mut last = (LEFT, HEIGHT);
        for row in rows {
            let place = if by_clients { row.clients } else { row.ssds };
            let at = places.binary_search(&place).unwrap_or(0);
            last = (x_of(at), y_of((figure.value)(row)));
            let _ = write!(points, "{},{} ", last.0, last.1);
        }
        let (x, y) = last;
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\"/>\
             <text x=\"{x}\" y=\"{y}\" fill=\"{colour}\" text-anchor=\"end\">{number} {of}</text>"
        );
    }
    svg.push_str("</svg>\n");
    svg
}
