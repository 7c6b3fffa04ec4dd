// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The initiator of the device headers as a host program: the twin of `gnor/cuda/gnor/{io,slots,gate}.cuh`.
//!
//! ```text
//!   Host::next --> lanes of warps: split, placement, stamps, slots --> Gate of each SSD --> Host::send
//!   Host::ended <------- io_finished <----- end commands, make room <---- completions <--- arrive
//! ```
//! A pass of a warp is one pass of a kernel's loop. Lanes without a request begin one, and each lane stages
//! its next command. The warp sends the staged commands, takes up to 32 completions, and checks which
//! requests have ended. [`Initiator::run`] makes passes of all warps until none changes anything. A test in
//! `tests` compares the capsules with those of the headers.
//!
//! The headers do some things that the twin does not: they flush, and use buffers in pieces. Here the caller
//! has requests wait for another map, start over, or end at a deadline (`survive`).

mod gate;
mod lane;
mod pass;
mod slots;

pub(crate) use lane::address_of;
pub use lane::{Data, Request, Volume};
pub use pass::Host;

use gate::Gate;
use gnstor_proto::nvme::{Cqe, Sqe};
use lane::Lane;
use slots::{Got, Slots, Wish};
use std::collections::VecDeque;

/// Commands in flight of one channel (`SLOTS` in `abi.h`).
pub const SLOTS: usize = 128;
/// Number of lanes of a warp, and of completions that it takes in one pass.
pub const LANES: usize = 32;
/// Marks a request without a slot, and a lane without a staged command.
const NONE: u8 = 0xFF;
/// `GN_QP_BROKEN` in `abi.h`: a command's queue pair failed.
pub const QP_BROKEN: u32 = 0x0004_0000;
/// `GN_NO_REPLICA` in `abi.h`: the map names no SSD for the block.
pub const NO_REPLICA: u32 = 0x0040_0000;

/// A write's map changed between two of its commands. It starts over, with the stamps that it had.
pub const STARTS_OVER: u32 = 0x8000_0000;

/// What the HCA reports for one queue pair.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Completion {
    /// A response.
    Response(Cqe),
    /// All SENDs up to the one with this index are done.
    Retired(u16),
    /// The queue pair has failed.
    Failed {
        /// Opcode of the completion.
        opcode: u8,
        /// Its syndrome.
        syndrome: u8,
    },
}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// 0, an NVMe status word, or `GN_*` of `abi.h`.
    pub status: u32,
    /// DW0 of the first failure.
    pub dw0: u32,
    /// DW1 of the first failure.
    pub dw1: u32,
    /// For a write: the sequence of its first part.
    pub sequence: u64,
}

/// A command in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Command {
    sqe: Sqe,
    lane: u16,
    /// The SSD of the command; `None` if the slot has no command.
    ssd: Option<u16>,
}

/// State of a warp's lanes, as masks with a bit for each lane.
#[derive(Clone, Copy, Debug, Default)]
struct Warp {
    /// Lanes without a request.
    idle: u32,
    /// Lanes whose requests have blocks to send.
    wants: u32,
    /// Lanes whose requests may have ended.
    finishes: u32,
}

/// The twin of a channel, and of the lanes that use it for one volume.
#[derive(Debug)]
pub struct Initiator {
    volume: Volume,
    /// The gate of each SSD.
    gates: Vec<Gate>,
    slots: Slots,
    commands: Vec<Command>,
    lanes: Vec<Lane>,
    warps: Vec<Warp>,
    next_sequence: u64,
    /// The completion queue.
    completions: VecDeque<(u16, Completion)>,
    /// Responses that named no command in flight.
    pub protocol_errors: u32,
    /// Reads that were sent again, to another replica.
    pub retries: u32,
    wishes: Vec<(usize, Wish)>,
    got: Vec<Got>,
}

impl Initiator {
    /// A channel to `ssds` SSDs whose Connects have succeeded. It has `depth` send blocks for each SSD, and
    /// `lanes` lanes without requests.
    ///
    /// # Panics
    /// If there are more than 128 lanes or 64 SSDs.
    #[must_use]
    pub fn new(volume: Volume, ssds: usize, depth: u32, lanes: usize) -> Self {
        assert!(lanes <= SLOTS && ssds <= 64, "{lanes} lanes, {ssds} SSDs");
        let warp = |number: usize| Warp {
            idle: u32::MAX >> (LANES - (lanes - number * LANES).min(LANES)),
            ..Warp::default()
        };
        Self {
            volume,
            gates: (0..ssds).map(|_| Gate::new(depth)).collect(),
            slots: Slots::default(),
            commands: vec![Command::default(); SLOTS],
            lanes: vec![Lane::default(); lanes],
            warps: (0..lanes.div_ceil(LANES)).map(warp).collect(),
            next_sequence: 1,
            completions: VecDeque::new(),
            protocol_errors: 0,
            retries: 0,
            wishes: Vec::with_capacity(LANES),
            got: Vec::with_capacity(LANES),
        }
    }

    /// Adds an entry for SSD `ssd` to the completion queue.
    pub fn arrive(&mut self, ssd: u16, completion: Completion) {
        self.completions.push_back((ssd, completion));
    }

    /// Whether its passes have taken all that arrived.
    #[must_use]
    pub fn has_taken_all(&self) -> bool {
        self.completions.is_empty()
    }

    /// Whether a part of some write is sent, and another one is not.
    #[must_use]
    pub fn is_midway(&self) -> bool {
        self.lanes.iter().any(Lane::is_midway)
    }

    /// The lanes whose writes are sent in part, with the sequences of the writes.
    pub fn midway(&self) -> impl Iterator<Item = (usize, u64)> {
        let lanes = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_midway());
        lanes.map(|(number, lane)| (number, lane.outcome.sequence))
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Whether commands wait for room in a send queue.
    #[must_use]
    pub fn is_gate_full(&self) -> bool {
        self.gates.iter().any(Gate::is_blocked)
    }

    /// Requests that have begun and not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let idle: u32 = self.warps.iter().map(|warp| warp.idle.count_ones()).sum();
        self.lanes.len() - idle as usize
    }
}

/// The numbers of the bits that are set in `mask`.
fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < LANES).then_some(bit)
    })
}
