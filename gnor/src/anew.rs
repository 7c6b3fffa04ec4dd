// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue pair that is made anew beside a running kernel (docs/decisions/0058). An SSD has two sets of
//! queues; this fills the one that is not in use, and has the HCA begin anew there. The SSD's answer to
//! Fabrics Connect is the hand-over: the device goes over to that set when it takes the answer
//! (gnor/cuda/gnor/anew.cuh).
//!
//! ```text
//!   old connection ended, old answers read --> doorbells zero --> HCA begins anew --> queues filled
//!                                                                                          |
//!   the device's from here on <-- answered: set in use <-- Connect <-- connection <--------'
//! ```
//! Until the HCA has begun anew, a front end may still look at a work request of the queues' last life. So
//! the host fills the queues only after the HCA reports that it begins anew.

use crate::abi;
use crate::channel::{Channel, Life, QID};
use crate::layout::{VAIN_ENTRIES, nvme_queue_entries};
use crate::node::{IoQueue, Lifeline};
use gnstor_fabric::mlx5::{self, CtrlSeg, DataSeg, opcode};
use gnstor_fabric::transport::{Port, Progress};
use gnstor_proto::fabrics::{self, CmRequest, ConnectData, ConnectFields, fctype};
use gnstor_proto::nvme::{self, Cqe, KeyedSgl};
use gnstor_proto::status::Status;
use std::sync::{MutexGuard, Weak};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// The command id of the Connect: no command of the device's has it.
const CID_CONNECT: u16 = 0xFFFE;
/// Offset in a doorbell record at which the device says that it has taken the answer.
const RECORD_TAKEN: usize = 8;
/// Block of the new send queue with the Connect's capsule. The request is before it, the data behind it.
const CAPSULE_BLOCK: usize = 1;
const DATA_BLOCK: usize = 8;
/// A block of a send queue.
const SEND_BYTES: usize = 64;
/// Most tries whose completions the device may not have taken yet.
const VAIN_TRIES: u32 = 4;
const _: () = assert!(mlx5::WQEBB == SEND_BYTES as u64 && VAIN_ENTRIES >= 2 * VAIN_TRIES as usize);
/// Time between two checks for the answer.
const LOOK: Duration = Duration::from_micros(500);
/// Longest wait for each step.
const STEP: Duration = Duration::from_secs(2);
/// Time after which an executor's messages are in device memory, while the agent runs.
const DELIVERED: Duration = Duration::from_millis(200);

/// Address of the SSD, and the data of its Connect.
#[derive(Debug)]
pub(crate) struct ConnectTarget {
    pub(crate) port: Port,
    pub(crate) cntlid: u16,
    pub(crate) data: ConnectData,
}

/// Why a queue pair was not made anew.
#[derive(Debug)]
pub(crate) enum NotMade {
    /// The old queue pair has not ended completely yet.
    Later,
    /// Impossible while this kernel runs. The next launch makes all queue pairs anew.
    NextLaunch(String),
    /// This try has failed.
    Failed(String),
}

fn later(_: impl std::fmt::Display) -> NotMade {
    NotMade::NextLaunch("the engine or the device fails".into())
}

#[expect(clippy::disallowed_methods, reason = "waits beside a kernel, with deadlines in real time")]
fn wait<R>(most: Duration, mut look: impl FnMut() -> Option<R>) -> Option<R> {
    let begun = Instant::now();
    loop {
        let seen = look();
        if seen.is_some() || begun.elapsed() > most {
            return seen;
        }
        std::thread::sleep(LOOK);
    }
}

impl Life {
    /// Whether the completion queue has room for one more try, given the answers that the device has taken.
    /// Entries up to the last taken answer need no room, except for the flushed end of that try.
    fn may_try(&mut self) -> bool {
        if self.answered[1 - self.set] {
            self.vain = self.vain.min(1);
        }
        self.vain < VAIN_TRIES
    }
}

impl Channel {
    /// Makes the queue pair to an SSD anew beside a running kernel. `target` says where the SSD is, and
    /// `keep` lets the session end the connection. Blocks for some seconds at most.
    pub(crate) fn make_anew(
        &self,
        ssd: usize,
        target: impl FnOnce() -> Option<ConnectTarget>,
        keep: impl FnOnce(&Weak<Lifeline>) -> Option<()>,
    ) -> Result<Weak<Lifeline>, NotMade> {
        let _alone = self.renewing();
        if self.layout.sets < 2 || !self.node.is_running() {
            return Err(NotMade::NextLaunch(
                "no kernel runs whose channel has a second set of queues".into(),
            ));
        }
        let life = self.queues().lives.get(ssd).copied().ok_or(NotMade::Later)?;
        if life.stuck {
            return Err(NotMade::NextLaunch("the end of an earlier try is not known".into()));
        }
        let next = 1 - life.set;
        self.await_over(self.number(ssd, life.set))?;
        self.await_over(self.number(ssd, next))?;
        self.await_taken(ssd, life)?;
        if !self.life(ssd, Life::may_try) {
            return Err(NotMade::NextLaunch("earlier tries have failed".into()));
        }
        let queue = self.number(ssd, next);
        // After the lock, because ending a connection calls the engine.
        let old = self.queues().connections[queue].take();
        drop(old);
        let target = target().ok_or(NotMade::Later)?;
        self.life(ssd, |life| life.answered[next] = false);
        self.silence(queue).map_err(later)?;
        self.begin(ssd, queue)?;
        self.fill(queue, &target.data).map_err(later)?;
        let io = self.io_queue_of(ssd, queue);
        let connected = self.node.connect_within(io, target.port, self.request_to(target.cntlid), STEP);
        let connection = connected.map_err(|e| NotMade::Failed(e.to_string()))?;
        let lifeline = connection.lifeline();
        self.queues().connections[queue] = Some(connection);
        if keep(&lifeline).is_none() {
            return Err(NotMade::Failed("the SSD is lost again".into()));
        }
        self.post(io, queue).map_err(later)?;
        self.await_answer(ssd, next)?;
        Ok(lifeline)
    }

    fn number(&self, ssd: usize, set: usize) -> usize {
        ssd + set * self.ssds()
    }

    fn io_queue_of(&self, ssd: usize, queue: usize) -> IoQueue {
        let made = self.queues().made.expect("a channel whose queues are made");
        IoQueue { ssd, ..self.io_queue_at(made, ssd, queue) }
    }

    fn life<R>(&self, ssd: usize, change: impl FnOnce(&mut Life) -> R) -> R {
        change(&mut self.queues().lives[ssd])
    }

    fn in_vain(&self, ssd: usize, why: String) -> NotMade {
        self.life(ssd, |life| life.vain += 1);
        NotMade::Failed(why)
    }

    /// The state of the HCA is unknown, so only queue pairs with new numbers help.
    fn stuck(&self, ssd: usize, why: &str) -> NotMade {
        self.life(ssd, |life| life.stuck = true);
        NotMade::NextLaunch(why.into())
    }

    fn progress(&self, queue: usize) -> Option<Progress> {
        let line = self.queues().connections.get(queue)?.as_ref().map(|c| c.line());
        match line {
            Some(line) => line.progress(),
            None => Some(Progress { broken: true, over: true, answered: false }),
        }
    }

    /// Ends the last connection of a set, and waits until nothing of it is in flight.
    fn await_over(&self, queue: usize) -> Result<(), NotMade> {
        if let Some(Some(connection)) = self.queues().connections.get(queue) {
            connection.cut();
        }
        let look = || self.progress(queue).filter(|progress| progress.over);
        wait(STEP, look).map(drop).ok_or(NotMade::Later)
    }

    /// Waits until the device has taken the answers of both sets' last Connects: responses before them have
    /// been read then.
    fn await_taken(&self, ssd: usize, life: Life) -> Result<(), NotMade> {
        let is_taken = |set: usize| {
            let mut word = [0; 4];
            let at = self.layout.queue_at(self.number(ssd, set)) + abi::DBR_AT + RECORD_TAKEN;
            !life.answered[set] || self.memory.read(at, &mut word).is_ok_and(|()| word != [0; 4])
        };
        wait(DELIVERED, || (is_taken(0) && is_taken(1)).then_some(())).ok_or(NotMade::Later)
    }

    /// Clears all doorbells, so that an HCA that begins anew finds none.
    fn silence(&self, queue: usize) -> Result<(), gnstor_fabric::device::DeviceError> {
        self.memory.write(self.layout.uars + queue * abi::UAR_BYTES, &[0; abi::UAR_BYTES])
    }

    /// Receives, and the Connect with its capsule and data in the blocks behind it.
    fn fill(&self, queue: usize, data: &ConnectData) -> Result<(), gnstor_fabric::device::DeviceError> {
        let depth = self.layout.depth as usize;
        let at = self.layout.queue_at(queue);
        let address = |offset: usize| self.memory.address() + (at + offset) as u64;
        let mut raw = vec![0; abi::SQ_AT + depth * abi::QUEUE_BYTES_EACH];
        let mut put = |offset: usize, bytes: &[u8]| raw[offset..offset + bytes.len()].copy_from_slice(bytes);
        let key = self.queue_key();
        for i in 0..depth {
            let response = address(abi::SQ_AT + depth * abi::RECV_AT_EACH + i * nvme::CQE_BYTES);
            let seg = DataSeg { byte_count: 16.into(), lkey: key.into(), address: response.into() };
            put(abi::SQ_AT + depth * abi::RQ_AT_EACH + i * 16, seg.as_bytes());
        }
        let block = |number: usize| abi::SQ_AT + number * SEND_BYTES;
        let fields = ConnectFields {
            qid: QID.into(),
            sqsize_z: u16::try_from(nvme_queue_entries(self.layout.depth) - 1).expect("small").into(),
            ..ConnectFields::default()
        };
        let mut sqe = fabrics::command(fctype::CONNECT, &fields);
        sqe.cid = CID_CONNECT.into();
        sqe.flags = nvme::FLAGS_SGL;
        let bytes = u32::try_from(data.as_bytes().len()).expect("a KiB");
        sqe.dptr = KeyedSgl::keyed(address(block(DATA_BLOCK)), bytes, key);
        let qpn = self.io_queue_of(0, queue).qpn;
        let send = CtrlSeg::new(opcode::SEND, 0, qpn, 2, 0);
        let capsule = DataSeg {
            byte_count: 64.into(),
            lkey: key.into(),
            address: address(block(CAPSULE_BLOCK)).into(),
        };
        put(block(0), send.as_bytes());
        put(block(0) + 16, capsule.as_bytes());
        put(block(CAPSULE_BLOCK), sqe.as_bytes());
        put(block(DATA_BLOCK), data.as_bytes());
        self.memory.write(at, &raw)
    }

    /// Makes the HCA begin anew in these queues.
    fn begin(&self, ssd: usize, queue: usize) -> Result<(), NotMade> {
        let answer = self.node.begin_anew(self.io_queue_of(ssd, queue)).map_err(later)?;
        let begun = wait(STEP, || match answer.try_recv() {
            Ok(()) => Some(true),
            Err(_) if !self.node.is_running() => Some(false),
            Err(_) => None,
        });
        match begun {
            Some(true) => Ok(()),
            _ => Err(self.stuck(ssd, "the kernel has ended meanwhile")),
        }
    }

    /// Rings for the Connect: the records, then the doorbell.
    fn post(&self, io: IoQueue, queue: usize) -> Result<(), gnstor_fabric::device::DeviceError> {
        let one = zerocopy::byteorder::big_endian::U32::new(1).to_bytes();
        self.memory.write(self.layout.queue_at(queue) + abi::DBR_AT, &[one, one].concat())?;
        let doorbell =
            self.layout.uars + queue * abi::UAR_BYTES + usize::try_from(mlx5::UAR_DB0).expect("small");
        let value = u64::read_from_bytes(&mlx5::doorbell_value(1, io.qpn)).expect("eight bytes");
        self.memory.publish(doorbell, value)
    }

    /// The SSD's answer, if it is in device memory already.
    fn answer(&self, queue: usize) -> Option<Cqe> {
        let depth = self.layout.depth as usize;
        let at = self.layout.queue_at(queue) + abi::SQ_AT + depth * abi::RECV_AT_EACH;
        let mut raw = [0; nvme::CQE_BYTES];
        self.memory.read(at, &mut raw).ok()?;
        let cqe: Cqe = zerocopy::transmute!(raw);
        (cqe.cid.get() == CID_CONNECT).then_some(cqe)
    }

    fn await_answer(&self, ssd: usize, set: usize) -> Result<(), NotMade> {
        let queue = self.number(ssd, set);
        let ended = || {
            let progress = self.progress(queue).unwrap_or_default();
            let is_lost = progress.over || !self.node.is_running();
            self.answer(queue).map(Some).or(is_lost.then_some(None))
        };
        let answer = wait(STEP, ended).flatten().or_else(|| {
            // Completions that have not come by now will not come, or are on their way to the device.
            self.await_over(queue).ok()?;
            let was_answered = self.progress(queue).is_none_or(|progress| progress.answered);
            wait(if was_answered { DELIVERED } else { Duration::ZERO }, || self.answer(queue))
        });
        let Some(cqe) = answer else {
            let progress = self.progress(queue).unwrap_or_default();
            if progress.over && !progress.answered {
                return Err(self.in_vain(ssd, "the connection broke before the SSD answered".into()));
            }
            return Err(self.stuck(ssd, "the SSD's answer is not known"));
        };
        let status = Status(cqe.status_word());
        self.life(ssd, |life| {
            life.answered[set] = true;
            if status.is_success() {
                (life.set, life.vain) = (set, 0);
            }
        });
        if status.is_success() {
            return Ok(());
        }
        if let Some(Some(connection)) = self.queues().connections.get(queue) {
            connection.cut();
        }
        Err(self.in_vain(ssd, format!("Fabrics Connect: status {status}")))
    }

    /// No queue pair of the channel is made anew while this is held.
    pub(crate) fn renewing(&self) -> MutexGuard<'_, ()> {
        self.renewing.lock().expect("no panic while held")
    }

    fn request_to(&self, cntlid: u16) -> CmRequest {
        CmRequest {
            qid: QID.into(),
            hrqsize: u16::try_from(self.layout.depth).expect("small").into(),
            hsqsize_z: u16::try_from(nvme_queue_entries(self.layout.depth) - 1).expect("small").into(),
            cntlid: cntlid.into(),
            ..CmRequest::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    #[test]
    fn refused_tries_go_on_and_tries_without_an_answer_end() {
        let _deadline = deadline();
        let mut life = Life::default();
        for _ in 0..100 {
            assert!(life.may_try());
            (life.answered[1], life.vain) = (true, life.vain + 1);
        }
        life.answered[1] = false;
        let more = (0..100).take_while(|_| {
            let may = life.may_try();
            life.vain += 1;
            may
        });
        assert_eq!(more.count(), VAIN_TRIES as usize - 2, "one was refused, and one left its end");
    }
}
