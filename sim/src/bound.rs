// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Upper bounds of the request rate: one by the models of the SSDs, one by the wires.

use crate::world::Plan;
use gnstor_model::{Op, Pattern, State, Workload, measure::measure};
use std::collections::BTreeMap;

/// Blocks of a chunk, which is the longest command.
const CHUNK: u32 = 1 << gnstor_proto::placement::DEFAULT_CHUNK_SHIFT;
/// Commands in flight that keep an SSD busy all the time.
const DEPTH: u32 = 256;
/// Pages of the SSD that is measured. With so many the rate is steady.
const PAGES: u32 = 1 << 18;

/// Request rate of one SSD by its model, for each combination of operation, order and blocks.
#[derive(Debug, Default)]
pub(crate) struct Bounds(BTreeMap<(bool, bool, u32), f64>);

impl Bounds {
    /// Rate of all SSDs together, requests a second; `None` if the preset models no time.
    pub(crate) fn ssds(&mut self, plan: &Plan) -> Option<f64> {
        if plan.preset.is_null() {
            return None;
        }
        let (is_write, is_random) = (plan.rw.is_write(), plan.rw.is_random());
        let blocks = plan.unit_blocks.min(CHUNK);
        let one = *self.0.entry((is_write, is_random, blocks)).or_insert_with(|| {
            let op = if is_write { Op::Write } else { Op::Read };
            // Reads in order: if several clients wrote at once, their blocks are not in order on the flash.
            let patterns: &[Pattern] = match (is_write, is_random) {
                (_, true) => &[Pattern::Random],
                (true, false) => &[Pattern::Sequential],
                (false, false) => &[Pattern::Sequential, Pattern::Random],
            };
            let runs = patterns.iter().filter_map(|&pattern| {
                measure(&plan.preset, Workload { op, pattern, blocks, depth: DEPTH }, State::Fresh, PAGES)
                    .ok()
            });
            runs.map(|run| run.iops).fold(0.0, f64::max)
        });
        let copies = if is_write { u32::from(plan.replicas) } else { 1 };
        let ssds = u32::try_from(plan.ssds).ok()?;
        Some(one * f64::from(ssds) / f64::from(copies * plan.unit_blocks.div_ceil(CHUNK)))
    }
}

/// Rate that the wires allow, requests a second; `None` if nothing limits them.
pub(crate) fn wires(plan: &Plan) -> Option<f64> {
    if plan.link.bytes_per_second == 0 {
        return None;
    }
    let copies = if plan.rw.is_write() { u64::from(plan.replicas) } else { 1 };
    let bytes = u64::from(plan.unit_blocks) * u64::from(gnstor_proto::BLOCK_BYTES) * copies;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = (plan.link.bytes_per_second * plan.nodes as u64) as f64 / bytes as f64;
    Some(rate)
}
