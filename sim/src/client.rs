// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actor of one client: the twin of the initiator, its closed loop, and its connections.
//!
//! ```text
//!   Load: which request next --> Initiator --> Port of each SSD
//!     ^--- latency, ended <---------'  ^------- completions, tokens of blocks
//! ```
//! The time of the GPU itself is not modelled: at each arrival a client does all possible work at once. A
//! request that fails ends the world with an error.

use crate::initiator::{Completion, Host, Initiator, Outcome, Request, Volume, address_of};
use crate::load::{Load, Next};
use crate::port::{Arrived, Port, token};
use crate::ssd::{WorldError, io_qp};
use gnstor_base::time::Time;
use gnstor_proto::nvme::Sqe;

/// log2 of the blocks of a chunk.
pub(crate) const CHUNK_SHIFT: u8 = gnstor_proto::placement::DEFAULT_CHUNK_SHIFT;

/// The request that a lane works on.
#[derive(Clone, Copy, Debug)]
struct Task {
    request: Request,
    start: Time,
}

/// The initiator's surroundings: the source of requests, and the wires.
struct Outside {
    number: u32,
    now: Time,
    ports: Vec<Port>,
    load: Load,
    /// Task of each lane.
    tasks: Vec<Task>,
    /// For each block: the sequence of the last write that was acknowledged.
    versions: Vec<u32>,
    /// Number of blocks read from and written to each SSD, for the spread of the load.
    sent_blocks: Vec<u64>,
    /// SSDs to which the client sent something in this step.
    touched: Vec<u16>,
    chunk_shift: u8,
    /// The time at which the load goes on if nothing arrives before.
    later: Time,
    failure: Option<WorldError>,
}

/// A client.
pub(crate) struct Client {
    initiator: Initiator,
    outside: Outside,
}

impl Client {
    pub(crate) fn new(number: u32, volume: Volume, ports: Vec<Port>, depth: u32, load: Load) -> Self {
        let lanes = load.lanes();
        let task = Task { request: Request::default(), start: Time::ZERO };
        let outside = Outside {
            number,
            now: Time::ZERO,
            tasks: vec![task; lanes],
            versions: vec![0; volume.blocks as usize],
            sent_blocks: vec![0; ports.len()],
            touched: Vec::new(),
            chunk_shift: volume.chunk_shift,
            later: Time::NEVER,
            failure: None,
            load,
            ports,
        };
        Self { initiator: Initiator::new(volume, outside.ports.len(), depth, lanes), outside }
    }

    pub(crate) fn load(&mut self) -> &mut Load {
        &mut self.outside.load
    }

    /// Number of blocks read from and written to each SSD so far.
    pub(crate) fn sent_blocks(&self) -> &[u64] {
        &self.outside.sent_blocks
    }

    /// Requests that have begun and not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.initiator.in_flight()
    }

    /// Takes what an SSD sent to this client.
    pub(crate) fn take(&mut self, ssd: u16, arrived: Arrived) -> Result<(), WorldError> {
        let client = self.outside.number as usize;
        match arrived {
            Arrived::Response(cqe) => {
                let (status, reason) = (cqe.status_word(), cqe.dw0.get() & 0xFF);
                if status != 0 {
                    return Err(WorldError::Refused { ssd: ssd.into(), client, status, reason });
                }
                self.initiator.arrive(ssd, Completion::Response(cqe));
            }
            Arrived::Retired { index } => self.initiator.arrive(ssd, Completion::Retired(index)),
            Arrived::Block { address, token: got } => {
                let block = u32::try_from(address >> 12 & 0xF_FFFF).expect("20 bits");
                let version = self.outside.versions.get(block as usize).copied().unwrap_or(0);
                if got != token(io_qp(self.outside.number), address_of(version.into(), block)) {
                    return Err(WorldError::WrongData { client, block });
                }
            }
            Arrived::Broken => return Err(WorldError::Broken { ssd: ssd.into(), client }),
        }
        Ok(())
    }

    /// Does all possible work now. Returns the time at which the load goes on if nothing arrives before.
    /// `touched` then names the SSDs to which something was sent.
    pub(crate) fn step(&mut self, now: Time) -> Result<Time, WorldError> {
        self.outside.now = now;
        self.outside.later = Time::NEVER;
        self.initiator.run(&mut self.outside);
        match self.outside.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(self.outside.later),
        }
    }

    /// The SSDs to which something was sent since the last call.
    pub(crate) fn touched(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.outside.touched)
    }

    pub(crate) fn keep(&mut self, mut touched: Vec<u16>) {
        touched.clear();
        self.outside.touched = touched;
    }
}

impl Host for Outside {
    fn next(&mut self, lane: usize) -> Option<Request> {
        match self.load.next(self.now, lane) {
            Next::Request { is_write, vba, blocks } => {
                let request = Request { is_write, vba, blocks, ..Request::default() };
                self.tasks[lane] = Task { request, start: self.now };
                Some(request)
            }
            Next::Later(at) => {
                self.later = self.later.min(at);
                None
            }
        }
    }

    fn send(&mut self, _: usize, ssd: u16, (index, is_signalled): (u16, bool), sqe: &Sqe) {
        let at = usize::from(ssd);
        self.sent_blocks[at] += u64::from(sqe.cdw12.get() & 0xFFFF) + 1;
        self.ports[at].send(io_qp(self.number), index, is_signalled, sqe);
        if !self.touched.contains(&ssd) {
            self.touched.push(ssd);
        }
    }

    fn ended(&mut self, lane: usize, outcome: Outcome) {
        let Task { request, start } = self.tasks[lane];
        if outcome.status != 0 {
            let client = self.number as usize;
            self.failure.get_or_insert(WorldError::Failed { client, status: outcome.status });
        }
        if request.is_write {
            // Each part of a write has one sequence.
            for block in request.vba..request.vba + request.blocks {
                let part = u64::from((block >> self.chunk_shift) - (request.vba >> self.chunk_shift));
                let sequence = u32::try_from(outcome.sequence + part).expect("far fewer writes than 2^32");
                self.versions[block as usize] = sequence;
            }
        }
        self.load.ended(start, self.now);
    }
}
