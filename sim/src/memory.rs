// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Estimate of the memory that a world takes, printed before the world is made. `world_rate` measures the
//! constants, without huge pages.

use crate::initiator::SLOTS;
use crate::world::{CELL, Plan, cells_of};

/// An SSD without volumes and sessions, and without the part that grows with its capacity.
const SSD: u64 = 2 << 20;
/// log2 of the capacity that needs one byte: records of pages, and the part of the map that any write
/// touches.
const CAPACITY_SHIFT: u32 = 6;
/// A block that is mapped on one SSD: its record, its places in the map and in histories.
const BLOCK: u64 = 128;
/// A block of real bytes, in an array with an SSD that fails. Writes leave pages behind that are collected
/// later.
const REAL_BLOCK: u64 = 2 * 4096;
/// Queues of the daemon and of SSDs, for each SSD.
const FLEET: u64 = 4 << 20;
/// A session on one SSD: two connections of the transport, two queues of the firmware, the volume's entry.
const SESSION: u64 = 48 << 10;
/// A client, without its blocks.
const CLIENT: u64 = 32 << 10;

/// Estimate of the bytes that the world of this plan takes. It is rather too high than too low.
pub fn estimate(plan: &Plan) -> u64 {
    let [ssds, clients] = [plan.ssds, plan.clients].map(|count| count as u64);
    let blocks = u64::from(plan.unit_blocks) * u64::from(plan.units);
    let reached = plan.ssds.min(CELL) as u64;
    let mapped = clients * blocks * u64::from(plan.replicas);
    let array = clients.div_ceil(cells_of(plan) as u64) * blocks * u64::from(plan.replicas);
    let real = if plan.fail.is_some() { (array + array / reached) * REAL_BLOCK + reached * FLEET } else { 0 };
    ssds * (SSD + (plan.ssd_bytes >> CAPACITY_SHIFT))
        + mapped * BLOCK
        + clients * reached * SESSION
        + real
        + clients * (CLIENT + 4 * blocks + SLOTS as u64 * 96)
}

/// Disables huge pages for all memory that this process takes from now on. An SSD has a dozen regions, each
/// of which would take at least 2 MiB. If the system refuses, a world takes more memory.
pub fn use_small_pages() {
    let _ = nix::sys::prctl::set_thp_disable(true);
}
