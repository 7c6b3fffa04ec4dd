// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queues of a host channel: receives, work requests and doorbells out, completions in.

use super::{
    Ended, HostChannel, PER_SSD, RQ_BYTES, RQ_ENTRIES, SIGNAL_EVERY, SQ_BLOCKS, SQ_BYTES, Slot, UAR,
};
use gnstor_fabric::mlx5::{self, Cqe64, CtrlSeg, DataSeg, cqe_opcode, opcode, syndrome};
use gnstor_gnor::abi::GN_QP_BROKEN;
use gnstor_proto::nvme::{self, Cqe, Sqe};
use std::sync::atomic::Ordering;
use zerocopy::{FromBytes, IntoBytes};

impl HostChannel {
    fn queue_at(&self, ssd: usize, offset: usize) -> u64 {
        (self.queues_at + ssd * PER_SSD + offset) as u64
    }

    pub(super) fn post_receives(&mut self) {
        for ssd in 0..self.queues.len() {
            for i in 0..RQ_ENTRIES as usize {
                let address = self.base + self.queue_at(ssd, SQ_BYTES + RQ_BYTES + i * 16);
                let seg =
                    DataSeg { byte_count: 16.into(), lkey: self.keys[0].into(), address: address.into() };
                self.memory.write(self.queue_at(ssd, SQ_BYTES + i * 16), seg.as_bytes());
            }
            self.post(ssd, RQ_ENTRIES);
        }
    }

    /// Moves the receive counter: the responses of these receives have been read.
    fn post(&mut self, ssd: usize, count: u32) {
        self.queues[ssd].posted += count;
        let posted = self.queues[ssd].posted & 0xFFFF;
        // Pairs with the acquire in check_receive.
        self.memory
            .word32(self.queue_at(ssd, SQ_BYTES + 2 * RQ_BYTES))
            .store(posted.to_be(), Ordering::Release);
    }

    pub(super) fn send(&mut self, ssd: usize, mut sqe: Sqe, user: u64) -> Result<(), ()> {
        let queue = self.queues[ssd];
        if queue.sent - queue.retired >= SQ_BLOCKS || queue.in_flight >= RQ_ENTRIES {
            return Err(());
        }
        let cid = self.slots.iter().position(Option::is_none).ok_or(())?;
        self.slots[cid] = Some(Slot { ssd, user });
        sqe.cid = u16::try_from(cid).expect("a small table").into();
        let (capsule, key) = ((self.capsules + cid * 64) as u64, self.keys[0]);
        self.memory.write(capsule, sqe.as_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "the low 16 bits count on the wire")]
        let (index, next) = (queue.sent as u16, queue.sent.wrapping_add(1) as u16);
        let qpn = self.first_qpn + u32::try_from(ssd).expect("few SSDs");
        let signal = if (queue.sent + 1).is_multiple_of(SIGNAL_EVERY) { mlx5::CE_CQ_UPDATE } else { 0 };
        let ctrl = CtrlSeg::new(opcode::SEND, index, qpn, 2, signal);
        let data = DataSeg { byte_count: 64.into(), lkey: key.into(), address: (self.base + capsule).into() };
        let block = self.queue_at(ssd, (queue.sent % SQ_BLOCKS) as usize * 64);
        self.memory.write(block, ctrl.as_bytes());
        self.memory.write(block + 16, data.as_bytes());
        self.queues[ssd].sent += 1;
        self.queues[ssd].in_flight += 1;
        // Pairs with the front end's acquire of the doorbell record and of the doorbell.
        let record = self.queue_at(ssd, SQ_BYTES + 2 * RQ_BYTES) + 4;
        self.memory.word32(record).store(u32::from(next).to_be(), Ordering::Release);
        let doorbell = u64::read_from_bytes(&mlx5::doorbell_value(next, qpn)).expect("eight bytes");
        let uar = self.queue_at(ssd, UAR) + mlx5::UAR_DB0;
        self.memory.words64(uar, 1)[0].store(doorbell, Ordering::Release);
        Ok(())
    }

    /// Takes completions. Returns their number, including those completions that only the queues need.
    pub(crate) fn poll(&mut self, ended: &mut Vec<Ended>) -> usize {
        let mut taken = 0;
        while let Some(completion) = self.next_completion() {
            taken += 1;
            let ssd = (completion.sop_qpn.get() & 0xFF_FFFF).wrapping_sub(self.first_qpn) as usize;
            if ssd >= self.queues.len() {
                continue;
            }
            match completion.opcode() {
                cqe_opcode::REQUESTER => {
                    let queue = &mut self.queues[ssd];
                    let behind =
                        u32::from(completion.wqe_counter.get()).wrapping_add(1).wrapping_sub(queue.retired);
                    queue.retired += behind & 0xFFFF;
                }
                cqe_opcode::RESPONDER_SEND => {
                    let slot = u32::from(completion.wqe_counter.get()) % RQ_ENTRIES;
                    let mut raw = [0; nvme::CQE_BYTES];
                    self.memory.read(self.queue_at(ssd, SQ_BYTES + RQ_BYTES + slot as usize * 16), &mut raw);
                    self.post(ssd, 1);
                    let cqe: Cqe = zerocopy::transmute!(raw);
                    let Some(slot) = self.slots.get_mut(usize::from(cqe.cid.get())).and_then(Option::take)
                    else {
                        continue;
                    };
                    self.queues[slot.ssd].in_flight -= 1;
                    ended.push(Ended {
                        user: slot.user,
                        status: cqe.status_word().into(),
                        dw0: cqe.dw0.get(),
                    });
                }
                _ => {
                    let cause = completion.syndrome();
                    tracing::warn!("the connection to SSD {ssd} broke: {}", syndrome::name(cause));
                    let status = GN_QP_BROKEN | u32::from(completion.opcode()) << 8 | u32::from(cause);
                    self.broken = Some(status);
                    let lost = self.slots.iter_mut().filter_map(Option::take);
                    ended.extend(lost.map(|slot| Ended { user: slot.user, status, dw0: 0 }));
                }
            }
        }
        taken
    }

    fn next_completion(&mut self) -> Option<Cqe64> {
        let at = u64::from(self.consumed & ((1 << self.cq_log) - 1)) * 64;
        let last = self.memory.word32(at + 60).load(Ordering::Acquire); // pairs with write_cqe's release
        if !Cqe64::is_valid(last.as_bytes()[3], self.consumed, self.cq_log) {
            return None;
        }
        let mut raw = [0; 64];
        self.memory.read(at, &mut raw);
        self.consumed = self.consumed.wrapping_add(1);
        Some(zerocopy::transmute!(raw))
    }
}
