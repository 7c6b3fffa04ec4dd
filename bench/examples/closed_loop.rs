// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tails of a perfect array: a closed loop over SSDs that serve their queues in turn, with equal shares,
//! and with no emulator. `scripts/gpu-tails` measures the same loads on a GPU; what this prints is the least
//! that a row there can have.
//!
//! ```text
//!   32 clients, 128 reads or 64 writes in flight each
//!     reads    client -> SSD (one queue a client, in turn) -> one of 32 dies -> link -> client
//!     writes   client -> link -> SSD, for each copy; done with the last of them
//! ```
//! `cargo run --release -p gnstor-bench --example closed_loop [-- SECONDS [LINK]]`; LINK is `200gbe`,
//! `100gbe` or `none`.
//!
//! Times are those of the preset `gnstor-980pro`: 1,260 ns a read, 33 us a sense, and 1,404 ns a write. The
//! last one is what its SSD takes while it collects. Random numbers have a fixed seed, so the table is the
//! same on every machine.

use gnstor_proto::placement::mix64;
use hdrhistogram::Histogram;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const CLIENTS: usize = 32;
/// Time of one SSD for a command, ps.
const READ: u64 = 1_260_000;
const WRITE: u64 = 1_404_000;
/// What a die takes to sense a page, ps, and the dies of an SSD.
const SENSE: u64 = 33_000_000;
const DIES: usize = 32;
/// Wires, which delay and do not queue, ps.
const DELAY: u64 = 2_000_000;
/// 4 KiB and a completion on a wire of 22,118 MB/s, ps.
const WIRE: u64 = 4112 * 1_000_000 / 22_118;
/// By so many commands a queue must be shorter before a read leaves its turn (`SAME_LOAD` in `io.cuh`).
const SAME_LOAD: u32 = 4;
/// Requests that are not counted, for each client and SSD: the queues fill.
const WARM_UP: u64 = 1000;

#[derive(Clone, Copy)]
struct Row {
    is_write: bool,
    ssds: usize,
    replicas: usize,
}

#[derive(Clone, Copy)]
struct Request {
    client: usize,
    start: u64,
    left: usize,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A command reaches its SSD.
    Arrives { request: usize, ssd: usize },
    /// An SSD has finished a command.
    Served { request: usize, ssd: usize },
    /// A die has sensed the page.
    Sensed { request: usize, ssd: usize },
    /// A copy of a request is done.
    Done { request: usize, ssd: usize },
}

#[derive(Default)]
struct Ssd {
    /// Requests of each client. Clients with requests take turns.
    queues: Vec<VecDeque<usize>>,
    turns: VecDeque<usize>,
    is_busy: bool,
    /// Time at which each die is free.
    dies: Vec<u64>,
}

struct Array {
    row: Row,
    now: u64,
    dice: u64,
    order: u64,
    /// Time, order of arrival, event.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    ssds: Vec<Ssd>,
    requests: Vec<Request>,
    /// Commands of each client at each SSD, as its channel counts them.
    sent: Vec<Vec<u32>>,
    wire_free: u64,
    wire: u64,
}

impl Array {
    fn new(row: Row, wire: u64) -> Self {
        let ssd = || Ssd { queues: vec![VecDeque::new(); CLIENTS], dies: vec![0; DIES], ..Ssd::default() };
        let depth = if row.is_write { 64 } else { 128 };
        let request = |number: usize| Request { client: number / depth, start: 0, left: 0 };
        let mut array = Self {
            row,
            now: 0,
            dice: 1,
            order: 0,
            events: BinaryHeap::new(),
            ssds: (0..row.ssds).map(|_| ssd()).collect(),
            requests: (0..CLIENTS * depth).map(request).collect(),
            sent: vec![vec![0; row.ssds]; CLIENTS],
            wire_free: 0,
            wire,
        };
        (0..array.requests.len()).for_each(|request| array.issue(request));
        array
    }

    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn draw(&mut self, below: usize) -> usize {
        self.dice += 1;
        usize::try_from(mix64(self.dice) % below as u64).expect("below a usize")
    }

    /// The SSDs with the block: as many different ones as there are replicas.
    fn places(&mut self) -> Vec<usize> {
        let mut places = Vec::new();
        while places.len() < self.row.replicas {
            let ssd = self.draw(self.row.ssds);
            if !places.contains(&ssd) {
                places.push(ssd);
            }
        }
        places
    }

    /// Sends 4 KiB over the wire. Returns their time of arrival.
    fn transmit(&mut self) -> u64 {
        self.wire_free = self.wire_free.max(self.now) + self.wire;
        self.wire_free
    }

    fn issue(&mut self, number: usize) {
        let client = self.requests[number].client;
        let mut places = self.places();
        if !self.row.is_write {
            let sent = &self.sent[client];
            let other = *places.get(1).unwrap_or(&places[0]);
            let first = if sent[places[0]] > sent[other] + SAME_LOAD { other } else { places[0] };
            places = vec![first];
        }
        self.requests[number] = Request { client, start: self.now, left: places.len() };
        for ssd in places {
            self.sent[client][ssd] += 1;
            let time = if self.row.is_write { self.transmit() } else { self.now };
            self.at(time, Event::Arrives { request: number, ssd });
        }
    }

    fn serve(&mut self, number: usize) {
        let ssd = &mut self.ssds[number];
        let Some(client) = ssd.turns.pop_front().filter(|_| !ssd.is_busy) else { return };
        let request = ssd.queues[client].pop_front().expect("its turn came with a command");
        if !ssd.queues[client].is_empty() {
            ssd.turns.push_back(client);
        }
        ssd.is_busy = true;
        let takes = if self.row.is_write { WRITE } else { READ };
        self.at(self.now + takes, Event::Served { request, ssd: number });
    }

    /// Does what comes next; the latency of a request that ends with it.
    fn step(&mut self) -> Option<u64> {
        let Reverse((time, _, event)) = self.events.pop()?;
        self.now = time;
        match event {
            Event::Arrives { request, ssd } => {
                let client = self.requests[request].client;
                let target = &mut self.ssds[ssd];
                if target.queues[client].is_empty() {
                    target.turns.push_back(client);
                }
                target.queues[client].push_back(request);
                if !target.is_busy {
                    self.serve(ssd);
                }
            }
            Event::Served { request, ssd } => {
                if self.row.is_write {
                    self.at(time + DELAY, Event::Done { request, ssd });
                } else {
                    let die = self.draw(DIES);
                    let free = &mut self.ssds[ssd].dies[die];
                    *free = time.max(*free) + SENSE;
                    let sensed = *free;
                    self.at(sensed, Event::Sensed { request, ssd });
                }
                self.ssds[ssd].is_busy = false;
                self.serve(ssd);
            }
            Event::Sensed { request, ssd } => {
                let there = self.transmit() + DELAY;
                self.at(there, Event::Done { request, ssd });
            }
            Event::Done { request, ssd } => {
                let its = &mut self.requests[request];
                self.sent[its.client][ssd] -= 1;
                its.left -= 1;
                if its.left == 0 {
                    let latency = time - its.start;
                    self.issue(request);
                    return Some(latency);
                }
            }
        }
        None
    }
}

fn measure(row: Row, seconds: u64, wire: u64) -> (u64, Histogram<u64>) {
    let mut array = Array::new(row, wire);
    let mut ended = 0;
    let mut latencies = Histogram::new(4).expect("four digits");
    let mut begin = 0;
    while array.now < begin + seconds * 1_000_000_000_000 {
        let Some(latency) = array.step() else { continue };
        ended += 1;
        if ended == WARM_UP * (CLIENTS * row.ssds) as u64 {
            begin = array.now;
        }
        if begin > 0 {
            latencies.record(latency / 1000).expect("it has no upper limit");
        }
        assert!(begin > 0 || array.now < 1000 * 1_000_000_000_000, "the queues have filled by then");
    }
    (latencies.len() / seconds, latencies)
}

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let seconds = words.next().map_or(4, |word| word.parse().expect("a number of seconds"));
    let wire = match words.next().as_deref() {
        None | Some("200gbe") => WIRE,
        Some("100gbe") => 2 * WIRE,
        Some("none") => 0,
        Some(_) => return eprintln!("usage: closed_loop [SECONDS [200gbe|100gbe|none]]"),
    };
    println!(
        "| load | SSDs | replicas | thousand I/Os a second | p50 us | p99 us | p99.9 us | max us | \
         p99.9 / p50 | max / p50 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for is_write in [false, true] {
        for ssds in [1, 2, 4, 8, 16] {
            for replicas in (1..=3).filter(|&replicas| replicas <= ssds) {
                let (rate, latencies) = measure(Row { is_write, ssds, replicas }, seconds, wire);
                let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|q| latencies.value_at_quantile(q));
                let max = latencies.max();
                let ratio = |of: u64| of as f64 / p50 as f64;
                println!(
                    "| {} | {ssds} | {replicas} | {} | {} | {} | {} | {} | {:.2} | {:.2} |",
                    if is_write { "writes" } else { "reads" },
                    rate / 1000,
                    p50 / 1000,
                    p99 / 1000,
                    p999 / 1000,
                    max / 1000,
                    ratio(p999),
                    ratio(max)
                );
            }
        }
    }
}
