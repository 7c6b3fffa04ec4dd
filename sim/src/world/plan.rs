// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of a world.

use crate::fleet::Fail;
use crate::load::Rw;
use gnstor_deengine::{Pace, Preset};
use gnstor_fabric::link::LinkConfig;

/// The parameters of a world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// SSDs.
    pub ssds: usize,
    /// Number of clients. Each has its own volume.
    pub clients: usize,
    /// Machines with SSDs, each with a wire of its own.
    pub nodes: usize,
    /// Copies of every block.
    pub replicas: u8,
    /// The pattern of the clients' requests.
    pub rw: Rw,
    /// Blocks of a request.
    pub unit_blocks: u32,
    /// Requests that cover a volume once.
    pub units: u32,
    /// Random places by Zipf's distribution with this exponent, in thousandths; 0: all as often.
    pub zipf_permille: u32,
    /// Requests in flight of each client.
    pub depth: u16,
    /// Preset of the SSDs.
    pub preset: Preset,
    /// How early the SSDs take commands.
    pub pace: Pace,
    /// Logical capacity of each SSD.
    pub ssd_bytes: u64,
    /// The wire of each node.
    pub link: LinkConfig,
    /// Seed of all random draws.
    pub seed: u64,
    /// The SSD that fails. Its array has a daemon, and blocks of real bytes.
    pub fail: Option<Fail>,
}
