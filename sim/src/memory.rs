// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a world takes of memory, told before it is taken.

use crate::client::SLOTS;
use crate::world::{CELL, Plan};

/// An SSD with nothing mapped, without what grows with its capacity.
const SSD: u64 = 8 << 20;
/// Records, map entry and history of a block that is mapped.
const BLOCK: u64 = 96;
/// A session on one SSD: two connections of the transport, two queues of the firmware.
const SESSION: u64 = 6 << 10;
/// A client without its blocks.
const CLIENT: u64 = 16 << 10;

/// Bytes that the world of this plan takes, about.
pub fn estimate(plan: &Plan) -> u64 {
    let [ssds, clients] = [plan.ssds, plan.clients].map(|count| count as u64);
    let blocks = u64::from(plan.unit_blocks) * u64::from(plan.units);
    let reached = plan.ssds.min(CELL) as u64;
    let mapped = clients * blocks * u64::from(plan.replicas);
    ssds * SSD
        + mapped * BLOCK
        + clients * reached * SESSION
        + clients * (CLIENT + 4 * blocks + SLOTS as u64 * 96)
}
