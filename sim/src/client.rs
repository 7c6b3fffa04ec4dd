// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The actor of one client: the twin of the initiator, its closed loop, and its connections.
//!
//! ```text
//!   Load: which request next --> Initiator --> Port of each SSD
//!     ^--- latency, ended <---------'  ^------- completions, tokens of blocks
//! ```
//! The time of the GPU itself is not modelled: at each arrival a client does all possible work at once. A
//! request that fails ends the world with an error. Where an SSD is to fail, requests start over ([`again`]).

mod again;

use crate::initiator::{Completion, Host, Initiator, Outcome, Request, Volume, address_of};
use crate::load::{Load, Next};
use crate::port::{Arrived, Port, sum_of};
use crate::ssd::{WorldError, io_qp};
use again::{Again, Turn};
use gnstor_base::time::{Span, Time};
use gnstor_proto::nvme::Sqe;
use gnstor_proto::placement::{AnyMap, Rows as _};
use std::sync::Arc;

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
    /// Requests that start over: in an array with a daemon.
    again: Option<Again>,
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
            again: None,
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
        self.initiator.in_flight() + self.outside.again.as_ref().map_or(0, Again::waiting)
    }

    /// The client's host follows maps from now on, and its requests start over. Blocks are real.
    pub(crate) fn follow_maps(&mut self) {
        let (lanes, ssds) = (self.outside.tasks.len(), self.outside.ports.len());
        self.outside.again = Some(Again::new(lanes, ssds, self.initiator.volume().map.epoch()));
    }

    /// Epoch of the map in use.
    pub(crate) fn epoch(&self) -> u64 {
        self.outside.again.as_ref().map_or(0, |again| again.epoch)
    }

    /// Whether something failed since the last call, so that the map may have changed.
    pub(crate) fn suspects(&mut self) -> bool {
        self.outside.again.as_mut().is_some_and(|again| std::mem::take(&mut again.suspects))
    }

    /// Whether the fleet gave it something to do since the last call.
    pub(crate) fn take_news(&mut self) -> bool {
        self.outside.again.as_mut().is_some_and(|again| std::mem::take(&mut again.has_news))
    }

    pub(crate) fn has_suspicion(&self) -> bool {
        self.outside.again.as_ref().is_some_and(|again| again.suspects)
    }

    /// Whether its queue pair to this SSD has failed.
    pub(crate) fn is_without(&self, ssd: usize) -> bool {
        self.outside.again.as_ref().is_some_and(|again| again.without[ssd])
    }

    pub(crate) fn volume(&self) -> &Volume {
        self.initiator.volume()
    }

    /// The SSDs whose queue pairs have not failed, bit N = SSD N.
    pub(crate) fn reaches(&self) -> u64 {
        (0..self.outside.ports.len()).filter(|&ssd| !self.is_without(ssd)).map(|ssd| 1 << ssd).sum()
    }

    /// The load begins to be measured.
    pub(crate) fn begin(&mut self, now: Time) {
        if let Some(again) = &mut self.outside.again {
            again.begin(now);
        }
    }

    /// The longest time without the end of a request.
    pub(crate) fn longest_pause(&self, now: Time) -> Span {
        self.outside.again.as_ref().map_or(Span::ZERO, |again| again.longest(now))
    }

    /// Follows a newer map. Its host gives up queue pairs to SSDs that the map leaves out.
    pub(crate) fn follow(&mut self, map: Arc<AnyMap>, members: &std::collections::BTreeSet<u16>) {
        let Some(again) = &mut self.outside.again else { return };
        again.epoch = map.epoch();
        again.has_news = true;
        let gone = (0u16..).zip(&again.without).filter(|(ssd, without)| !**without && !members.contains(ssd));
        let gone: Vec<u16> = gone.map(|(ssd, _)| ssd).collect();
        self.initiator.follow(map);
        gone.into_iter().for_each(|ssd| self.lose(ssd));
    }

    /// The queue pair to an SSD has failed.
    fn lose(&mut self, ssd: u16) {
        if let Some(again) = &mut self.outside.again
            && !std::mem::replace(&mut again.without[usize::from(ssd)], true)
        {
            again.suspects = true;
            self.initiator.arrive(ssd, Completion::Failed { opcode: 13, syndrome: 0x81 });
        }
    }

    /// Takes what an SSD sent to this client.
    pub(crate) fn take(&mut self, ssd: u16, arrived: Arrived) -> Result<(), WorldError> {
        let client = self.outside.number as usize;
        let starts_over = self.outside.again.is_some();
        if self.is_without(ssd.into()) {
            return Ok(());
        }
        match arrived {
            Arrived::Response(cqe) => {
                let (status, reason) = (cqe.status_word(), cqe.dw0.get() & 0xFF);
                if status != 0 && !starts_over {
                    return Err(WorldError::Refused { ssd: ssd.into(), client, status, reason });
                }
                self.initiator.arrive(ssd, Completion::Response(cqe));
            }
            Arrived::Retired { index } => self.initiator.arrive(ssd, Completion::Retired(index)),
            Arrived::Block { address, token: got } => {
                let block = u32::try_from(address >> 12 & 0xF_FFFF).expect("20 bits");
                let version = self.outside.versions.get(block as usize).copied().unwrap_or(0);
                let qpn = io_qp(self.outside.number);
                if got != sum_of(starts_over, qpn, address_of(version.into(), block)) {
                    return Err(WorldError::WrongData { client, block });
                }
            }
            Arrived::Broken if starts_over => self.lose(ssd),
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
        match self.again.as_mut().map_or(Turn::Free, |again| again.turn(lane, self.now)) {
            Turn::Free => {}
            Turn::Waits(at) => {
                self.later = self.later.min(at);
                return None;
            }
            Turn::Again(request) => {
                self.tasks[lane].request = request;
                return Some(request);
            }
        }
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
        if let Some(again) = &mut self.again
            && again.ended(lane, self.now, request, &outcome)
        {
            return;
        }
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
