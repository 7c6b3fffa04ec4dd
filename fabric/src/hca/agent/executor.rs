// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transport's end of a pair of rings.

use super::Resident;
use super::quiesce::{self, Quiesce, Rounds};
use super::rings::Ring;
use crate::device::{Device, DeviceError};
use crate::hca::abi::*;
use crate::hca::ring::{DOWN_WORDS, DownRing, UpRing};
use crate::hca::{Allowance, Down, Part, QpExecutor, Response, Up};
use gnstor_base::ahead;
use gnstor_base::region::{HostRegion, LocalRef, RegionId};
use rustc_hash::FxHashMap as HashMap;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// A transport's end of the rings.
#[derive(Debug)]
pub struct AgentExecutor {
    device: Arc<Device>,
    resident: Arc<Resident>,
    ring: Ring,
    up: UpRing,
    down: DownRing,
    backlog: VecDeque<[u64; DOWN_WORDS]>,
    quiesce: Quiesce,
    regions: HashMap<RegionId, u64>,
    fused: FusedSlots,
    clock_offset_ns: i64,
    lead_ns: u64,
    /// Whether a queue owner could run when the transport last asked.
    could_run: Cell<bool>,
}

/// Fused responses that the agent has been handed, by their slots.
#[derive(Debug)]
struct FusedSlots {
    slots: Vec<FusedEntry>,
    free: Vec<u16>,
    /// Tag and status of responses that have ended and are not reported to the transport yet.
    ended: VecDeque<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct FusedEntry {
    qpn: u32,
    /// `None` if the transport has taken it back and no longer waits for it.
    tag: Option<u32>,
}

impl FusedSlots {
    fn new() -> Self {
        let all = u16::try_from(FUSED_SLOTS).expect("a small constant");
        Self {
            slots: vec![FusedEntry::default(); FUSED_SLOTS],
            free: (0..all).rev().collect(),
            ended: VecDeque::new(),
        }
    }

    /// The agent's report, slot by slot.
    fn end(&mut self, e: &UpEntry) {
        let items = e.payload.as_chunks::<2>().0.iter().map(|item| u16::from_le_bytes(*item));
        for item in items.take(e.flags as usize) {
            let slot = item & ((1 << FUSED_STATUS_SHIFT) - 1);
            let Some(fused) = self.slots.get_mut(usize::from(slot)) else { continue };
            self.free.push(slot);
            if let Some(tag) = fused.tag.take() {
                self.ended.push_back((tag, u32::from(item >> FUSED_STATUS_SHIFT)));
            }
        }
    }
}

const TAG_MASK: u64 = (1 << 31) - 1;
const QPN_MASK: u64 = 0xFF_FFFF;

/// Whether two parts go in one descriptor: whole blocks, with sums, that the owner has side by side.
fn is_pair(first: &Part, second: &Part) -> bool {
    let is_block = |part: &Part| part.local.bytes == SUM_BYTES && part.sum.is_some();
    let end = first.address.checked_add(SUM_BYTES.into());
    is_block(first) && is_block(second) && first.key == second.key && end == Some(second.address)
}

/// The two times of an allowance in one word of a descriptor (`abi.h`).
fn allowance_word(allowance: Allowance) -> u64 {
    debug_assert_eq!(allowance.late_ns >> 31, 0);
    u64::from(allowance.late_ns & 0x7FFF_FFFF) << 32 | u64::from(allowance.client_late_ns.cast_unsigned())
}

impl AgentExecutor {
    pub(super) fn new(
        device: &Arc<Device>,
        resident: &Arc<Resident>,
        (index, ring): (usize, &Ring),
        rounds: &Arc<Rounds>,
    ) -> Self {
        Self {
            device: Arc::clone(device),
            resident: Arc::clone(resident),
            ring: ring.clone(),
            quiesce: Quiesce::new(rounds, index),
            up: UpRing::default(),
            down: DownRing::default(),
            backlog: VecDeque::new(),
            regions: HashMap::default(),
            fused: FusedSlots::new(),
            clock_offset_ns: 0,
            lead_ns: 0,
            could_run: Cell::new(false),
        }
    }

    /// Maps a region that [`Down`] messages refer to; with CUDA it is pinned.
    ///
    /// # Errors
    /// Driver errors.
    pub fn map(&mut self, region: &Arc<HostRegion>) -> Result<(), DeviceError> {
        self.regions.insert(region.id(), self.device.map(region)?);
        self.resident.regions.lock().expect("no panic while held").push(Arc::clone(region));
        Ok(())
    }

    fn address(&self, local: LocalRef) -> u64 {
        self.regions[&local.region] + local.offset
    }

    fn encode(&self, message: Down) -> [u64; DOWN_WORDS] {
        let head =
            |op: u64, qpn: u32, bytes: u32| op << 56 | (u64::from(qpn) & QPN_MASK) << 32 | u64::from(bytes);
        let key_tag = |key: u32, tag: u32| u64::from(key) << 31 | u64::from(tag) & TAG_MASK;
        let mut w = [0; DOWN_WORDS];
        match message {
            Down::ToOwner { qpn, local, address, key, tag, sum } => {
                w[0] = head(DOWN_TO_DEVICE, qpn, local.bytes);
                w[1] = self.address(local);
                w[2] = address & !PHASE_BIT;
                w[3] = key_tag(key, tag);
                w[5] = sum.map_or(0, |sum| DOWN_CHECK_SUM << 32 | u64::from(sum));
            }
            Down::FromOwner { qpn, local, address, key, tag } => {
                w[0] = head(DOWN_TO_HOST, qpn, local.bytes);
                w[1] = self.address(local);
                w[2] = address & !PHASE_BIT;
                w[3] = key_tag(key, tag);
            }
            Down::Send { qpn, bytes, due_ns, allowance } => {
                let [lo, hi]: [u64; 2] = zerocopy::transmute!(bytes);
                w[0] = head(DOWN_SEND, qpn, 16);
                w[2] = due_ns & !PHASE_BIT;
                w[4] = allowance_word(allowance);
                w[5] = (lo >> 63) << 40 | (hi >> 63) << 41;
                w[6] = lo & !PHASE_BIT;
                w[7] = hi & !PHASE_BIT;
            }
            Down::Cqe { qpn, opcode, syndrome, counter } => {
                w[0] = head(DOWN_CQE, qpn, 0);
                w[1] = u64::from(opcode) << 40 | u64::from(syndrome) << 32 | u64::from(counter);
            }
            Down::QpError { qpn } => w[0] = head(DOWN_QP_ERROR, qpn, 0),
            Down::QpAnew { qpn, tag } => {
                w[0] = head(DOWN_QP_ANEW, qpn, 0);
                w[3] = key_tag(0, tag);
            }
            Down::Ping { tag } => {
                w[0] = head(DOWN_PING, 0, 0);
                w[3] = key_tag(0, tag);
            }
        }
        w
    }

    /// Encodes a part of the fused response in `slot`, and the block `two` after it, if there is one. The
    /// last of `count` descriptors carries the response.
    fn encode_part(
        &self,
        (qpn, slot): (u32, u16),
        part: &Part,
        two: Option<&Part>,
        last: Option<(usize, &Response)>,
    ) -> [u64; DOWN_WORDS] {
        let Part { local, address, key, sum } = *part;
        // As in `push`.
        let (address, key) = if address & PHASE_BIT == 0 { (address, key) } else { (0, 0) };
        let both =
            two.and_then(|second| second.sum).zip(sum).map(|(first, second)| first.wrapping_add(second));
        let mut w = self.encode(Down::ToOwner { qpn, local, address, key, tag: 0, sum: both.or(sum) });
        w[5] |= DOWN_PART << 32 | u64::from(slot) << SLOT_SHIFT;
        if let Some(second) = two {
            w[4] = self.address(second.local);
            w[5] |= DOWN_TWO << 32;
        }
        if let Some((count, response)) = last {
            let [_, second]: [u64; 2] = zerocopy::transmute!(response.bytes);
            w[0] = DOWN_FUSED << 56 | w[0] & !(0x7F << 56);
            w[4] = response.due_ns & !PHASE_BIT;
            w[5] |= (second >> 63) << 41 | (count as u64) << PARTS_SHIFT;
            w[6] = allowance_word(response.allowance);
            w[7] = second & !PHASE_BIT;
        }
        w
    }

    fn push_descriptor(&mut self, descriptor: [u64; DOWN_WORDS]) {
        self.drain_backlog();
        if self.quiesce.holds() || !self.backlog.is_empty() || !self.try_push(descriptor) {
            self.backlog.push_back(descriptor);
        }
    }

    fn try_push(&mut self, descriptor: [u64; DOWN_WORDS]) -> bool {
        let (words, head) = self.ring.down();
        let pushed = self.down.push(words, head, descriptor);
        if pushed {
            self.quiesce.handed_over(&descriptor);
        }
        pushed
    }

    fn drain_backlog(&mut self) {
        if self.quiesce.look() && self.try_push(self.encode(Down::Ping { tag: quiesce::PING })) {
            self.quiesce.pinged();
        }
        while let Some(&descriptor) = self.backlog.front() {
            if self.quiesce.holds() || !self.try_push(descriptor) {
                return;
            }
            self.backlog.pop_front();
        }
    }
}

impl AgentExecutor {
    /// The next entry of the ring that is not a reply to a ping of this executor's own.
    #[inline]
    fn pop_entry(&mut self) -> Option<UpEntry> {
        loop {
            let (words, head) = self.ring.up();
            let entry = self.up.pop(words, head)?;
            if !self.quiesce.hear(&entry) {
                return Some(entry);
            }
        }
    }

    /// The next entry as the agent has written it, reports of fused responses too: for tests that compare the
    /// two executors.
    pub fn poll_entry(&mut self) -> Option<UpEntry> {
        self.drain_backlog();
        self.pop_entry()
    }
}

impl QpExecutor for AgentExecutor {
    fn poll(&mut self) -> Option<Up> {
        self.drain_backlog();
        loop {
            if let Some((tag, status)) = self.fused.ended.pop_front() {
                return Some(Up::FusedDone { tag, status });
            }
            let entry = self.pop_entry()?;
            if entry.kind == UP_FUSED_DONE {
                self.fused.end(&entry);
                continue;
            }
            match entry.decode() {
                Some(up) => return Some(up),
                None => tracing::warn!("the agent has reported an entry of unknown kind {}", entry.kind),
            }
        }
    }

    fn add_region(&mut self, region: &Arc<HostRegion>) {
        if let Err(e) = self.map(region) {
            tracing::error!("a region of {} bytes cannot be mapped: {e}", region.len());
        }
    }

    fn can_fuse(&self) -> bool {
        !self.fused.free.is_empty()
    }

    fn push_fused(&mut self, qpn: u32, tag: u32, parts: &[Part], response: &Response) {
        debug_assert!(response.bytes[..8] == [0; 8], "a descriptor carries the other half of the response");
        let Some(slot) = self.fused.free.pop() else { return };
        self.fused.slots[usize::from(slot)] = FusedEntry { qpn, tag: Some(tag) };
        let (mut rest, mut count) = (parts, 0);
        while let [part, behind @ ..] = rest {
            // The response uses the words of a second block.
            let two =
                behind.split_first().filter(|(second, others)| !others.is_empty() && is_pair(part, second));
            rest = two.map_or(behind, |(_, others)| others);
            count += 1;
            let last = rest.is_empty().then_some((count, response));
            self.push_descriptor(self.encode_part((qpn, slot), part, two.map(|(second, _)| second), last));
        }
    }

    fn push(&mut self, message: Down) {
        // An address with bit 63 set is never valid. The ring cannot carry that bit, so send values whose key
        // check fails.
        let message = match message {
            Down::ToOwner { qpn, local, address, tag, sum, .. } if address & PHASE_BIT != 0 => {
                Down::ToOwner { qpn, local, address: 0, key: 0, tag, sum }
            }
            Down::FromOwner { qpn, local, address, tag, .. } if address & PHASE_BIT != 0 => {
                Down::FromOwner { qpn, local, address: 0, key: 0, tag }
            }
            other => other,
        };
        self.push_descriptor(self.encode(message));
    }

    /// Queue owners run while an agent is resident. Before a launch the transport gets a job
    /// (`RcTransport::calibrate`), and from then on it polls: it may see the job before the agent is there.
    ///
    /// A launch may end behind the transport's last look, and leave reports: it looks once more.
    fn must_be_polled(&self) -> bool {
        let can_run = *self.resident.expected.lock().expect("no panic while held") > 0
            || self.resident.launches.try_lock().is_err();
        self.could_run.replace(can_run) || can_run
    }

    /// If no agent is resident, the copies that wait in the ring get a number that no queue pair has. The
    /// next agent then refuses them. A resident agent ends its copies soon, or its launch ends.
    fn take_back(&mut self, qpn: u32) -> bool {
        let Ok(alone) = self.resident.launches.try_lock() else { return false };
        if alone.failed && !self.device.is_idle() {
            return false;
        }
        let is_ours = |head: u64| {
            let is_copy = matches!(head >> 56, DOWN_TO_DEVICE | DOWN_TO_HOST | DOWN_FUSED);
            is_copy && head >> 32 & QPN_MASK == u64::from(qpn) & QPN_MASK
        };
        let harmless = |head: u64| if is_ours(head) { head & !(QPN_MASK << 32) } else { head };
        // Fused responses keep their place: a part that has gone ahead waits for the others.
        self.backlog.retain(|descriptor| !is_ours(descriptor[0]) || descriptor[5] >> 32 & DOWN_PART != 0);
        self.backlog.iter_mut().for_each(|descriptor| descriptor[0] = harmless(descriptor[0]));
        self.down.rewrite(self.ring.down().0, harmless);
        for fused in self.fused.slots.iter_mut().filter(|fused| fused.qpn == qpn) {
            fused.tag = None;
        }
        true
    }

    fn quiesce(&mut self) -> u64 {
        self.quiesce.begin()
    }

    fn is_quiescent(&self, wait: u64) -> bool {
        self.quiesce.is_quiescent(wait)
    }

    fn clock_offset_ns(&self) -> i64 {
        self.clock_offset_ns
    }

    fn lead_ns(&self) -> u64 {
        self.lead_ns
    }

    fn set_clock_offset_ns(&mut self, offset: i64, rtt_ns: u64) {
        self.clock_offset_ns = offset;
        self.lead_ns = (rtt_ns / 2).min(ahead::HALF_TRIP_MOST.as_ns()) + ahead::SEND.as_ns();
    }
}
