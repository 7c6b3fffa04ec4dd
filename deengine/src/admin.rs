// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Admin commands of the specification: Identify, features, keep-alive, abort, asynchronous events.

use crate::command::{Answer, OK, TransferKind, Work};
use crate::controller::Ssd;
use crate::hosts::{MAX_IO_QUEUES, MAX_QUEUE_ENTRIES};
use crate::permit::CompletionPermit;
use crate::request::{MDTS, NSID, Refused, check_frame, check_namespace, data_pointer};
use crate::scratch::LARGE_BYTES;
use gnstor_fabric::controller::QueueKey;
use gnstor_fabric::time::{Span, Time};
use gnstor_proto::BLOCK_SHIFT;
use gnstor_proto::fabrics::ssd_subnqn;
use gnstor_proto::nvme::{IdentifyController, Sqe, admin, cns};
use gnstor_proto::status::{Refusal, Status};
use gnstor_proto::vendor::opcode;

/// Asynchronous Event Requests held for each controller.
const MAX_EVENTS: u8 = 4;
/// Asynchronous Event Request Limit Exceeded, do not retry.
const EVENT_LIMIT: Status = Status(0x4105);
/// Feature: number of queues.
const FEATURE_QUEUES: u32 = 0x07;
/// Feature: keep-alive timer.
const FEATURE_KATO: u32 = 0x0F;
/// Keep-alive granularity, units of 100 ms.
const KAS: u16 = 1;
const PAGE_BYTES: u32 = 4096;

impl Ssd {
    pub(crate) fn submit_admin(&mut self, now: Time, permit: CompletionPermit, key: QueueKey, cntlid: u16, sqe: &Sqe) {
        if let Err(refused) = check_frame(sqe) {
            return self.refuse(permit, 0, refused, now);
        }
        let answer = match sqe.opcode {
            admin::IDENTIFY => match self.identify(cntlid, sqe) {
                Ok(data) => return self.deliver(now, permit, key, sqe, PAGE_BYTES, &data, 0),
                Err(refused) => Err(refused),
            },
            admin::KEEP_ALIVE => self.keep_alive(now, cntlid),
            admin::GET_FEATURES => self.get_features(cntlid, sqe),
            admin::SET_FEATURES => self.set_features(now, cntlid, sqe),
            // DW0 bit 0: the command was not aborted. It will complete by itself.
            admin::ABORT => Ok(Answer::dw0(1)),
            admin::ASYNC_EVENT_REQUEST => return self.await_event(now, permit, key, cntlid),
            opcode::VOLUME_ADD
            | opcode::VOLUME_CHMOD
            | opcode::VOLUME_DELETE
            | opcode::VOLUME_LIST
            | opcode::MAP_SET
            | opcode::MAP_GET => return self.submit_vendor(now, permit, key, cntlid, sqe),
            _ => Err(Refusal::InvalidOpcode.into()),
        };
        match answer {
            Ok(answer) => self.complete(permit, answer, now, 0),
            Err(refused) => self.refuse(permit, 0, refused, now),
        }
    }

    /// Sends `data`, cut or padded to `bytes`, to the host and completes with `dw0`.
    #[expect(clippy::too_many_arguments, reason = "the command's context and what to send")]
    pub(crate) fn deliver(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        key: QueueKey,
        sqe: &Sqe,
        bytes: u32,
        data: &[u8],
        dw0: u32,
    ) {
        let remote = match data_pointer(sqe, bytes) {
            Ok(remote) => remote,
            Err(refused) => return self.refuse(permit, 0, refused, now),
        };
        let Some(buffer) = self.scratch.take(bytes) else {
            return self.refuse(permit, 0, Refusal::NotReady.into(), now);
        };
        self.scratch.fill(&buffer, data);
        let local = self.scratch.local(&buffer);
        let id = self.start(permit, key, 0, now, Work::Answer { dw0, buffer });
        self.push(id, TransferKind::Other, remote, local, None);
    }

    /// Fetches the `bytes` that the command's host has for it; `work` goes on with them.
    pub(crate) fn fetch(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        key: QueueKey,
        sqe: &Sqe,
        bytes: u32,
        work: impl FnOnce(crate::scratch::Buffer) -> Work,
    ) {
        let remote = match data_pointer(sqe, bytes) {
            Ok(remote) => remote,
            Err(refused) => return self.refuse(permit, 0, refused, now),
        };
        let Some(buffer) = self.scratch.take(bytes) else {
            return self.refuse(permit, 0, Refusal::NotReady.into(), now);
        };
        let local = self.scratch.local(&buffer);
        let id = self.start(permit, key, 0, now, work(buffer));
        self.pull(id, TransferKind::Other, remote, local);
    }

    fn identify(&self, cntlid: u16, sqe: &Sqe) -> Result<Vec<u8>, Refused> {
        match sqe.cdw10.get().to_le_bytes()[0] {
            cns::CONTROLLER => {
                let identify = IdentifyController {
                    serial: self.config.serial.clone(),
                    model: format!("GNStor emulated SSD ({})", self.config.preset.name),
                    firmware: env!("CARGO_PKG_VERSION").into(),
                    mdts: MDTS,
                    cntlid,
                    kas: KAS,
                    vwc: 0,
                    maxcmd: MAX_QUEUE_ENTRIES,
                    subnqn: ssd_subnqn(self.config.index),
                };
                Ok(identify.encode().to_vec())
            }
            cns::NAMESPACE => {
                check_namespace(sqe)?;
                Ok(self.identify_namespace())
            }
            cns::ACTIVE_NAMESPACES => {
                // The list holds the namespaces above the one named.
                let list: &[u32] = if sqe.nsid.get() < NSID { &[NSID] } else { &[] };
                Ok(list.iter().flat_map(|nsid| nsid.to_le_bytes()).collect())
            }
            _ => Err(Refusal::InvalidField.into()),
        }
    }

    /// Identify Namespace: sizes in blocks, and one format of 4 KiB blocks. The addresses of GNStor commands are
    /// sparse and go beyond NSZE, which tells the capacity.
    fn identify_namespace(&self) -> Vec<u8> {
        let mut data = vec![0; PAGE_BYTES as usize];
        let blocks = self.ftl.logical_pages().to_le_bytes();
        data[0..8].copy_from_slice(&blocks); // NSZE
        data[8..16].copy_from_slice(&blocks); // NCAP
        data[16..24].copy_from_slice(&self.ftl.map.len().to_le_bytes()); // NUSE
        data[128 + 2] = u8::try_from(BLOCK_SHIFT).expect("12"); // LBAF0.LBADS
        data
    }

    fn keep_alive(&mut self, now: Time, cntlid: u16) -> Result<Answer, Refused> {
        self.hosts.host(cntlid).ok_or(Refusal::SequenceError)?.last_alive = now;
        Ok(OK)
    }

    fn get_features(&mut self, cntlid: u16, sqe: &Sqe) -> Result<Answer, Refused> {
        let host = self.hosts.host(cntlid).ok_or(Refusal::SequenceError)?;
        match sqe.cdw10.get() & 0xFF {
            FEATURE_QUEUES => Ok(Answer::dw0(granted_queues())),
            FEATURE_KATO => {
                let ms = host.kato.as_ns() / 1_000_000;
                Ok(Answer::dw0(u32::try_from(ms).unwrap_or(u32::MAX)))
            }
            _ => Err(Refusal::InvalidField.into()),
        }
    }

    fn set_features(&mut self, now: Time, cntlid: u16, sqe: &Sqe) -> Result<Answer, Refused> {
        let host = self.hosts.host(cntlid).ok_or(Refusal::SequenceError)?;
        match sqe.cdw10.get() & 0xFF {
            FEATURE_QUEUES => Ok(Answer::dw0(granted_queues())),
            FEATURE_KATO => {
                host.kato = Span::from_ms(sqe.cdw11.get().into());
                host.last_alive = now;
                let deadline = host.deadline();
                self.wake_at(deadline);
                Ok(OK)
            }
            _ => Err(Refusal::InvalidField.into()),
        }
    }

    fn await_event(&mut self, now: Time, permit: CompletionPermit, key: QueueKey, cntlid: u16) {
        match self.hosts.host(cntlid) {
            Some(host) if host.events_held < MAX_EVENTS => {
                host.events_held += 1;
                self.start(permit, key, 0, now, Work::AwaitEvent);
            }
            _ => self.complete(permit, Answer { status: EVENT_LIMIT, ..OK }, now, 0),
        }
    }
}

/// Number of Queues, DW0: completion queues and submission queues granted, both zero-based.
fn granted_queues() -> u32 {
    let queues_z = u32::from(MAX_IO_QUEUES - 1);
    queues_z << 16 | queues_z
}

/// CDW10 of a vendor command with data: dwords, one-based; the bytes, where that is a transfer this SSD makes.
pub(crate) fn data_bytes(sqe: &Sqe) -> Result<u32, Refused> {
    match sqe.cdw10.get().checked_mul(4) {
        Some(bytes) if (1..=LARGE_BYTES).contains(&bytes) => Ok(bytes),
        _ => Err(Refusal::InvalidField.into()),
    }
}
