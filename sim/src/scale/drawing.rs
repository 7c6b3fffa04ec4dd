// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows as curves: one over the clients for each number of SSDs, or the other way round. The marks have
//! whole numbers. So the SVG files of a seed have the same bytes on every machine.

use super::Row;
use std::collections::BTreeMap;

pub(super) const WIDTH: u64 = 640;
pub(super) const HEIGHT: u64 = 400;
/// Space for the labels at the left, and around the other sides.
const LEFT: u64 = 70;
const EDGE: u64 = 40;
const GREY: Colour = (0xDD, 0xDD, 0xDD);
const BLACK: Colour = (0, 0, 0);
const COLOURS: [Colour; 6] = [
    (0x1F, 0x77, 0xB4),
    (0xD6, 0x27, 0x28),
    (0x2C, 0xA0, 0x2C),
    (0x94, 0x67, 0xBD),
    (0xFF, 0x7F, 0x0E),
    (0x17, 0xBE, 0xCF),
];

/// Red, green, blue.
pub(super) type Colour = (u8, u8, u8);

/// Which point of a text lies at its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A part of a drawing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    Line(Vec<(u64, u64)>, Colour),
    Text((u64, u64), String, Anchor, Colour),
}

/// A figure: the name of its files, its label, and the value of a row that it shows.
#[derive(Clone, Copy)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    title: &'static str,
    value: fn(&Row) -> u64,
}

pub(super) const FIGURES: [Figure; 4] = [
    Figure { name: "throughput", title: "MB/s (10^6 bytes)", value: |row| row.mb_per_s },
    Figure { name: "latency", title: "p99 latency, us", value: |row| row.p99_ns / 1000 },
    Figure { name: "latency-p999", title: "p99.9 latency, us", value: |row| row.p999_ns / 1000 },
    Figure { name: "latency-max", title: "largest latency, us", value: |row| row.max_ns / 1000 },
];

fn distinct(rows: &[Row], of: fn(&Row) -> usize) -> Vec<usize> {
    let mut values: Vec<usize> = rows.iter().map(of).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// The marks of a figure.
pub(super) fn marks(figure: &Figure, rows: &[Row]) -> Vec<Mark> {
    let (clients, ssds) = (distinct(rows, |row| row.clients), distinct(rows, |row| row.ssds));
    let by_clients = clients.len() >= ssds.len();
    let (places, across, of) =
        if by_clients { (&clients, "clients", "SSDs") } else { (&ssds, "SSDs", "clients") };
    let most = rows.iter().map(figure.value).max().unwrap_or(0).max(1);
    let steps = (places.len().max(2) - 1) as u64;
    let x_of = |at: usize| LEFT + (WIDTH - LEFT - EDGE) * at as u64 / steps;
    let y_of = |value: u64| HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * value / most;
    let text = |at, text: String, anchor| Mark::Text(at, text, anchor, BLACK);
    let mut marks = vec![text((LEFT, 20), format!("{} over {across}", figure.title), Anchor::Start)];
    for tick in 0..=4 {
        let value = most * tick / 4;
        let y = y_of(value);
        marks.push(Mark::Line(vec![(LEFT, y), (WIDTH - EDGE, y)], GREY));
        marks.push(text((4, y), value.to_string(), Anchor::Start));
    }
    for (at, place) in places.iter().enumerate() {
        marks.push(text((x_of(at), HEIGHT - EDGE / 2), place.to_string(), Anchor::Middle));
    }
    let mut series: BTreeMap<usize, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        series.entry(if by_clients { row.ssds } else { row.clients }).or_default().push(row);
    }
    for ((number, rows), colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let place = |row: &Row| places.binary_search(if by_clients { &row.clients } else { &row.ssds });
        let point = |row: &&Row| (x_of(place(row).unwrap_or(0)), y_of((figure.value)(row)));
        let points: Vec<(u64, u64)> = rows.iter().map(point).collect();
        let last = points.last().copied().unwrap_or((LEFT, HEIGHT));
        marks.push(Mark::Line(points, *colour));
        marks.push(Mark::Text(last, format!("{number} {of}"), Anchor::End, *colour));
    }
    marks
}
