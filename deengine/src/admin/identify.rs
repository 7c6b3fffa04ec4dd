// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Identify, keep-alive, and the dispatch of other admin commands of the specification.

use crate::admin::abort::ABORT_LIMIT_Z;
use crate::admin::events::MAX_EVENTS;
use crate::commands::scratch::{Buffer, LARGE_BYTES};
use crate::commands::{Answer, OK, Work};
use crate::commands::{CompletionPermit, Delivered, Fetched};
use crate::controller::Ssd;
use crate::hosts::MAX_QUEUE_ENTRIES;
use crate::hosts::events::NOTICES;
use crate::request::{MDTS, NSID, Refused, check_frame, check_namespace, data_pointer};
use crate::smart::health::{CRITICAL_KELVIN, WARNING_KELVIN};
use gnstor_base::time::Time;
use gnstor_durable::SsdIdentity;
use gnstor_proto::BLOCK_SHIFT;
use gnstor_proto::fabrics::ssd_subnqn;
use gnstor_proto::log_page::ERROR_ENTRIES;
use gnstor_proto::nvme::{IdentifyController, Sqe, admin, cns};
use gnstor_proto::ssd_identity::SsdSays;
use gnstor_proto::status::Refusal;
use gnstor_proto::vendor::opcode;

/// Keep-alive granularity, units of 100 ms.
const KAS: u16 = 1;
const PAGE_BYTES: u32 = 4096;
/// Time after which a host should repeat a command that got NotReady, in units of 100 ms. Every host gets it,
/// even if it has not said that it uses it (ACRE). Such a host ignores the two bits.
const RETRY_DELAY: u16 = 1;

impl Ssd {
    pub(crate) fn submit_admin(&mut self, now: Time, permit: CompletionPermit, cntlid: u16, sqe: &Sqe) {
        if let Err(refused) = check_frame(sqe) {
            return self.refuse(permit, 0, refused, now);
        }
        let answer = match sqe.opcode {
            admin::IDENTIFY => match self.identify(cntlid, sqe) {
                Ok(data) => {
                    return self.deliver(now, permit, sqe, Delivered::at_once(now, PAGE_BYTES, 0, &data));
                }
                Err(refused) => Err(refused),
            },
            admin::KEEP_ALIVE => self.keep_alive(now, cntlid),
            admin::GET_FEATURES => return self.submit_get_features(now, permit, cntlid, sqe),
            admin::SET_FEATURES => self.set_features(now, cntlid, sqe),
            admin::GET_LOG_PAGE => return self.submit_get_log(now, permit, cntlid, sqe),
            admin::ABORT => return self.submit_abort(now, permit, cntlid, sqe),
            admin::ASYNC_EVENT_REQUEST => return self.await_event(now, permit, cntlid),
            opcode::VOLUME_ADD
            | opcode::VOLUME_CHMOD
            | opcode::VOLUME_DELETE
            | opcode::VOLUME_LIST
            | opcode::LEASE_RENEW
            | opcode::MAP_SET
            | opcode::MAP_GET
            | opcode::MAP_HOLD
            | opcode::TERM_TAKE
            | opcode::ACTIVATE
            | opcode::LEASE_ASK
            | opcode::SETTLE
            | opcode::PEER_READ
            | opcode::REPAIR
            | opcode::CLIENT_END
            | opcode::OPENING => return self.submit_vendor(now, permit, cntlid, sqe),
            _ => Err(Refusal::InvalidOpcode.into()),
        };
        match answer {
            Ok(answer) => self.complete(permit, answer, now, 0),
            Err(refused) => self.refuse(permit, 0, refused, now),
        }
    }

    /// Sends the data to the host and completes with the answer.
    pub(crate) fn deliver(&mut self, now: Time, permit: CompletionPermit, sqe: &Sqe, answer: Delivered<'_>) {
        let Delivered { data, bytes, dw0, at } = answer;
        let remote = match data_pointer(sqe, bytes) {
            Ok(remote) => remote,
            Err(refused) => return self.refuse(permit, 0, refused, now),
        };
        let Some(buffer) = self.scratch_for(now, permit.queue(), bytes) else {
            return self.refuse(permit, 0, Refusal::NotReady.into(), now);
        };
        self.commands.scratch().fill(&buffer, data);
        let local = self.commands.scratch().local(&buffer);
        let id = self.start(permit, 0, at, Work::Answer { dw0, buffer });
        self.push(id, remote, local);
    }

    /// Fetches the command's data from its host.
    pub(crate) fn fetch<W: FnOnce(Buffer) -> Work>(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        sqe: &Sqe,
        wanted: Fetched<W>,
    ) {
        let Fetched { bytes, work } = wanted;
        let remote = match data_pointer(sqe, bytes) {
            Ok(remote) => remote,
            Err(refused) => return self.refuse(permit, 0, refused, now),
        };
        let Some(buffer) = self.scratch_for(now, permit.queue(), bytes) else {
            return self.refuse(permit, 0, Refusal::NotReady.into(), now);
        };
        let local = self.commands.scratch().local(&buffer);
        let id = self.start(permit, 0, now, work(buffer));
        self.pull(id, remote, local);
    }

    fn identify(&self, cntlid: u16, sqe: &Sqe) -> Result<Vec<u8>, Refused> {
        match sqe.cdw10.get().to_le_bytes()[0] {
            cns::CONTROLLER => {
                let identify = IdentifyController {
                    serial: self.config().serial.clone(),
                    model: format!("GNStor emulated SSD ({})", self.config().preset.name),
                    firmware: env!("CARGO_PKG_VERSION").into(),
                    mdts: MDTS,
                    cntlid,
                    kas: KAS,
                    vwc: self.admin.write_cache.present.into(),
                    maxcmd: MAX_QUEUE_ENTRIES,
                    subnqn: ssd_subnqn(self.config().index),
                };
                let mut data = identify.encode();
                put_abilities(&mut data);
                self.says().put(&mut data);
                Ok(data.to_vec())
            }
            cns::NAMESPACE => {
                check_namespace(sqe)?;
                Ok(self.identify_namespace())
            }
            cns::ACTIVE_NAMESPACES => {
                // The list contains the namespaces above the named one.
                let list: &[u32] = if sqe.nsid.get() < NSID { &[NSID] } else { &[] };
                Ok(list.iter().flat_map(|nsid| nsid.to_le_bytes()).collect())
            }
            _ => Err(Refusal::InvalidField.into()),
        }
    }

    /// Identity of the SSD, and number of its content.
    fn says(&self) -> SsdSays {
        let SsdIdentity { uuid, incarnation } = self.identity();
        let takes_map3 = self.can_vote();
        let capacity_bytes = self.ftl().logical_pages() << BLOCK_SHIFT;
        SsdSays { uuid, incarnation, takes_map3, is_lossy: self.is_filling(), capacity_bytes }
    }

    /// Identify Namespace: sizes in blocks, and one format of 4 KiB blocks. The addresses of GNStor
    /// commands are sparse and go beyond NSZE, which tells the capacity.
    fn identify_namespace(&self) -> Vec<u8> {
        let mut data = vec![0; PAGE_BYTES as usize];
        let blocks = self.ftl().logical_pages().to_le_bytes();
        data[0..8].copy_from_slice(&blocks); // NSZE
        data[8..16].copy_from_slice(&blocks); // NCAP
        data[16..24].copy_from_slice(&self.ftl().mapped().to_le_bytes()); // NUSE
        data[24] = 1 << 2; // NSFEAT: unwritten blocks can be told of (DULBE)
        data[128 + 2] = u8::try_from(BLOCK_SHIFT).expect("12"); // LBAF0.LBADS
        data
    }

    fn keep_alive(&mut self, now: Time, cntlid: u16) -> Result<Answer, Refused> {
        self.hosts.host_mut(cntlid).ok_or(Refusal::SequenceError)?.heard(now);
        Ok(OK)
    }
}

/// The fields of Identify Controller for the abilities of this firmware.
fn put_abilities(data: &mut [u8]) {
    data[92..96].copy_from_slice(&NOTICES.to_le_bytes()); // OAES
    data[96] = 1; // CTRATT: host identifiers of 128 bits
    data[128..130].copy_from_slice(&RETRY_DELAY.to_le_bytes()); // CRDT1
    data[258] = ABORT_LIMIT_Z; // ACL
    data[259] = const { less_one(MAX_EVENTS) }; // AERL
    data[260] = 1 << 1 | 1; // FRMW: one slot, read only
    data[261] = 1 << 1 | 1 << 2; // LPA: effects page; length and offset beyond 16 bits
    data[262] = const { less_one(ERROR_ENTRIES) }; // ELPE
    data[266..268].copy_from_slice(&WARNING_KELVIN.to_le_bytes()); // WCTEMP
    data[268..270].copy_from_slice(&CRITICAL_KELVIN.to_le_bytes()); // CCTEMP
    // ONCS: Compare, Dataset Management, Write Zeroes, select in features
    data[520] = 1 | 1 << 2 | 1 << 3 | 1 << 4;
}

/// A count as the specification's zero-based byte.
const fn less_one(count: usize) -> u8 {
    assert!(count >= 1 && count <= 256);
    (count - 1).to_le_bytes()[0]
}

/// Length of a vendor command's data in bytes, from CDW10 (dwords, one-based). It must be a length that this
/// SSD transfers.
pub(crate) fn data_bytes(sqe: &Sqe) -> Result<u32, Refused> {
    match sqe.cdw10.get().checked_mul(4) {
        Some(bytes) if (1..=LARGE_BYTES).contains(&bytes) => Ok(bytes),
        _ => Err(Refusal::InvalidField.into()),
    }
}
