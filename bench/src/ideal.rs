// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the models of SSDs and link allow for a load: the measured figure is held against the least of three
//! bounds.

use super::load::Load;
use super::words::Rw;
use gnstor_deengine::Preset;
use gnstor_fabric::link::LinkConfig;
use gnstor_model::{Op, Pattern, State, Workload, measure::measure};
use serde::{Deserialize, Serialize};

/// The bound, and what sets it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ideal {
    /// Requests a second.
    pub iops: f64,
    /// Decimal gigabytes a second.
    pub gbps: f64,
    /// `ssds`, `link`, or `latency`: so many requests in flight, each taking as long as a lone one.
    pub limit: String,
    /// Measured I/Os a second divided by these.
    pub ratio: f64,
}

/// Longest command of a request: a chunk.
const CHUNK_BLOCKS: u32 = 16;
/// Commands in flight on a queue pair.
const QUEUE: u32 = 64;
/// Pages of the SSD that is measured: enough for a steady figure, and quick.
const PAGES: u32 = 1 << 18;

/// The ideal of a load that only reads or only writes; `None` for a mix, and where nothing is modelled.
pub(super) fn ideal(
    load: &Load,
    preset: &Preset,
    link: LinkConfig,
    ssds: usize,
    measured_iops: f64,
) -> Option<Ideal> {
    let op = match load.rw {
        Rw::Read | Rw::Randread => Op::Read,
        Rw::Write | Rw::Randwrite => Op::Write,
        Rw::Randrw | Rw::Rw => return None,
    };
    if preset.is_null() {
        return None;
    }
    let ssds = u32::try_from(ssds).ok()?;
    let copies = if op == Op::Write { load.replicas } else { 1 };
    let pieces = load.unit_blocks.div_ceil(CHUNK_BLOCKS);
    let blocks = load.unit_blocks.min(CHUNK_BLOCKS);
    // Data that is read in order is in the order of its writing. That is not sequential if several requests
    // filled it at once. So the faster of both orders bounds the rate.
    let patterns: &[Pattern] = match (op, load.is_random()) {
        (_, true) => &[Pattern::Random],
        (Op::Write, false) => &[Pattern::Sequential],
        (Op::Read, false) => &[Pattern::Sequential, Pattern::Random],
    };
    let in_flight = load.clients * load.iodepth * pieces * copies;
    // A channel has 128 slots, and at most 64 of them for one SSD.
    let depth = in_flight.min(load.clients * 128).div_ceil(ssds).clamp(1, QUEUE * load.clients);
    let run_as =
        |pattern, depth| measure(preset, Workload { op, pattern, blocks, depth }, State::Fresh, PAGES).ok();
    let run = |depth| {
        let runs = patterns.iter().filter_map(|&pattern| run_as(pattern, depth));
        runs.max_by(|a, b| a.iops.total_cmp(&b.iops))
    };
    let (busy, alone) = (run(depth)?, run(1)?);
    let ssd_iops = busy.iops * f64::from(ssds) / f64::from(copies * pieces);
    let bs = f64::from(load.unit_blocks) * f64::from(gnstor_proto::BLOCK_BYTES);
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let link_rate = link.bytes_per_second as f64;
    let link_iops = if link_rate == 0.0 { f64::INFINITY } else { link_rate / (bs * f64::from(copies)) };
    let mut crossing_us = 0.0;
    if link_rate != 0.0 {
        #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
        let latency_us = link.latency.as_ns() as f64 / 1e3;
        // Both ways. A write's data is requested by the other side, which adds two.
        crossing_us = latency_us * if op == Op::Write { 4.0 } else { 2.0 } + bs / link_rate * 1e6;
    }
    let latency_iops = f64::from(load.clients * load.iodepth) * 1e6 / (alone.mean_us + crossing_us);
    let bounds = [("ssds", ssd_iops), ("link", link_iops), ("latency", latency_iops)];
    let (limit, iops) = bounds.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Ideal { iops, gbps: iops * bs / 1e9, limit: limit.into(), ratio: measured_iops / iops })
}
