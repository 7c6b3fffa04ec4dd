// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures 9 to 13 of the GNStor paper: their loads, and the values in the text of section 5. The drawings
//! are not read: a value that the text does not state is not given.

use super::claim::{Claim, Of, Select};
use super::point::{Given, Point};
use crate::words::{Mode, Rw};

/// The quantity of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quantity {
    /// The paper's gigabytes a second.
    Throughput,
    /// Mean latency, microseconds.
    Latency,
}

impl Quantity {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "GB/s",
            Self::Latency => "us",
        }
    }
}

/// Bytes of the paper's gigabyte: 21.6 of them are its 22118 MB, and four times 3250 MB/s its 12.7 GB/s.
pub(super) const PAPER_GB: f64 = 1.024e9;

fn text(value: f64) -> Option<Given> {
    Some(Given { value, from: "text" })
}

fn ratio(value: f64) -> Option<Given> {
    Some(Given { value, from: "ratio" })
}

/// A figure.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(super) number: u8,
    pub(super) title: &'static str,
    pub(super) quantity: Quantity,
    pub(super) points: Vec<Point>,
    pub(super) claims: Vec<Claim>,
    /// The figure's points have different numbers of clients. In other figures the number may be lowered.
    pub(super) varies_clients: bool,
    /// Choices that the text leaves open.
    pub(super) chosen: &'static [&'static str],
}

const K4: u64 = 4 << 10;
const K64: u64 = 64 << 10;
const ORDERS: [Rw; 4] = [Rw::Read, Rw::Randread, Rw::Write, Rw::Randwrite];
const RANDOM: [Rw; 2] = [Rw::Randread, Rw::Randwrite];
const MODES: [Mode; 3] = [Mode::Basic, Mode::Gd, Mode::Gnstor];

/// All combinations of modes and other choices. Modes change fastest, so that points that are compared run
/// one after the other.
fn points(modes: &[Mode], orders: &[Rw], sizes: &[u64], clients: &[u32], ssds: &[u16]) -> Vec<Point> {
    let mut all = Vec::new();
    for &bs in sizes {
        for &rw in orders {
            for (&clients, &ssds) in clients.iter().flat_map(|c| ssds.iter().map(move |s| (c, s))) {
                all.extend(modes.iter().map(|&mode| Point { mode, rw, bs, clients, ssds, paper: None }));
            }
        }
    }
    all
}

/// The figure of this number, 9 to 13.
pub(super) fn figure(number: u8) -> Option<Figure> {
    Some(match number {
        9 => figure_9(),
        10 => figure_10(),
        11 => figure_11(),
        12 => figure_12(),
        13 => figure_13(),
        _ => return None,
    })
}

fn figure_9() -> Figure {
    let mut points = points(&MODES, &ORDERS, &[K4, K64], &[1], &[4]);
    for point in points.iter_mut().filter(|point| point.bs == K4) {
        // "Basic delivers only 0.5 GB/s and 0.3 GB/s"; "GD succeeds in improving 4 KB read and write
        // throughput by 1.2x and 1.3x".
        point.paper = match (point.mode, point.is_read()) {
            (Mode::Basic, true) => text(0.5),
            (Mode::Basic, false) => text(0.3),
            (Mode::Gd, true) => ratio(0.5 * 2.2),
            (Mode::Gd, false) => ratio(0.3 * 2.3),
            _ => None,
        };
    }
    let reads = Select::size(K4).reads();
    let writes = Select::size(K4).writes();
    Figure {
        number: 9,
        title: "throughput of one client",
        quantity: Quantity::Throughput,
        points,
        claims: vec![
            Claim::times(2.2, Mode::Gd, Mode::Basic, reads, Of::Throughput),
            Claim::times(2.3, Mode::Gd, Mode::Basic, writes, Of::Throughput),
            Claim::times(4.2, Mode::Gnstor, Mode::Basic, Select::size(K4), Of::Throughput),
            Claim::times(1.8, Mode::Gnstor, Mode::Gd, Select::size(K4), Of::Throughput),
        ],
        varies_clients: false,
        chosen: &["the values of 4 KiB stand for both orders: the text gives one for each direction"],
    }
}

fn figure_10() -> Figure {
    let reads = Select::all().reads();
    let writes = Select::all().writes();
    Figure {
        number: 10,
        title: "latency of one client",
        quantity: Quantity::Latency,
        points: points(&MODES, &ORDERS, &[K4, K64], &[1], &[4]),
        claims: vec![
            Claim::times(1.0 - 0.407, Mode::Gd, Mode::Basic, Select::size(K4), Of::Latency),
            Claim::times(1.0 - 0.261, Mode::Gd, Mode::Basic, Select::size(K64), Of::Latency),
            Claim::times(1.0 - 0.357, Mode::Gnstor, Mode::Gd, reads, Of::Latency),
            Claim::times(1.0 - 0.398, Mode::Gnstor, Mode::Gd, writes, Of::Latency),
        ],
        varies_clients: false,
        chosen: &["the depth of figure 9; the text gives none for this figure"],
    }
}

fn figure_11() -> Figure {
    let mut points = points(&MODES, &RANDOM, &[K4, K64], &[1, 2, 4, 8, 16, 32], &[4]);
    // "In 64 KB test, GNStor improves the throughput to 21.5 GB/s with only two clients".
    let named =
        |p: &&mut Point| p.mode == Mode::Gnstor && p.rw == Rw::Randread && p.bs == K64 && p.clients == 2;
    points.iter_mut().filter(named).for_each(|point| point.paper = text(21.5));
    let best = |value, mode, bs, reads: bool| {
        let select = Select::size(bs);
        Claim::best(value, mode, if reads { select.reads() } else { select.writes() })
    };
    Figure {
        number: 11,
        title: "throughput against clients",
        quantity: Quantity::Throughput,
        points,
        claims: vec![
            best(4.4, Mode::Basic, K64, true),
            best(4.1, Mode::Basic, K64, false),
            best(2.8, Mode::Gd, K4, true),
            best(0.9, Mode::Gd, K4, false),
            best(11.8, Mode::Gnstor, K4, true),
            best(5.6, Mode::Gnstor, K4, false),
            best(9.6, Mode::Gnstor, K64, false),
        ],
        varies_clients: true,
        chosen: &[
            "random order: the text does not name one",
            "values that the text gives no clients for are a series' best",
        ],
    }
}

fn figure_12() -> Figure {
    let mut points = points(&MODES, &[Rw::Read, Rw::Write], &[K4], &[32], &[2, 3, 4, 5]);
    for point in points.iter_mut().filter(|point| point.ssds == 5) {
        // "13.6 GB/s and 6.6 GB/s throughput in 4 KB sequential read and write tests with five SSDs (3.6x
        // and 4.8x higher than GD)".
        point.paper = match (point.mode, point.is_read()) {
            (Mode::Gnstor, true) => text(13.6),
            (Mode::Gnstor, false) => text(6.6),
            (Mode::Gd, true) => ratio(13.6 / 4.6),
            (Mode::Gd, false) => ratio(6.6 / 5.8),
            _ => None,
        };
    }
    let five = |select: Select| select.ssds(5);
    Figure {
        number: 12,
        title: "throughput against SSDs",
        quantity: Quantity::Throughput,
        points,
        claims: vec![
            Claim::times(4.6, Mode::Gnstor, Mode::Gd, five(Select::size(K4).reads()), Of::Throughput),
            Claim::times(5.8, Mode::Gnstor, Mode::Gd, five(Select::size(K4).writes()), Of::Throughput),
        ],
        varies_clients: false,
        chosen: &[
            "2 to 5 SSDs: the text names five only",
            "32 clients: the text gives no number here, and says that so many saturate the array",
            "4 KiB in order: what the text gives values for",
        ],
    }
}

fn figure_13() -> Figure {
    let modes = [Mode::Gd, Mode::GdDeengine, Mode::Gnstor];
    let [small, large] = [K4, K64].map(|bs| Select::size(bs).writes());
    Figure {
        number: 13,
        title: "what deEngine and GNoR add, one client",
        quantity: Quantity::Throughput,
        points: points(&modes, &RANDOM, &[K4, K64], &[1], &[4]),
        claims: vec![
            Claim::times(1.499, Mode::GdDeengine, Mode::Gd, small, Of::Throughput),
            Claim::times(1.247, Mode::GdDeengine, Mode::Gd, large, Of::Throughput),
            Claim::times(1.0 - 0.324, Mode::GdDeengine, Mode::Gd, small, Of::Latency),
            Claim::times(1.0 - 0.111, Mode::GdDeengine, Mode::Gd, large, Of::Latency),
            Claim::times(1.496, Mode::Gnstor, Mode::GdDeengine, Select::all(), Of::Throughput),
            Claim::times(1.0 - 0.312, Mode::Gnstor, Mode::GdDeengine, Select::all(), Of::Latency),
        ],
        varies_clients: false,
        chosen: &["the depth of figure 9; the text gives none for this figure"],
    }
}
