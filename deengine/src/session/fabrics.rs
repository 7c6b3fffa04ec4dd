// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fabrics commands: Connect, Disconnect and the properties of a controller.

use crate::commands::CompletionPermit;
use crate::commands::scratch::Buffer;
use crate::commands::{Answer, OK, Work};
use crate::controller::Ssd;
use crate::hosts::{MAX_QUEUE_ENTRIES, NewHost, Role, keep_alive_of};
use crate::request::{Refused, check_frame, data_pointer};
use gnstor_base::controller::{Effect, QueueKey};
use gnstor_base::time::Time;
use gnstor_proto::fabrics::{
    AUTHENTICATION_REQUIRED, CNTLID_ANY, ConnectData, ConnectFields, Identity, PropertyFields, fctype,
    fctype_of, fields, property, ssd_subnqn,
};
use gnstor_proto::nvme::Sqe;
use gnstor_proto::status::Refusal;
use zerocopy::FromBytes;

/// CAP: MQES, contiguous queues required (bit 16), weighted round robin with an urgent class (AMS, bit 17).
/// Timeout 5 s (TO = 10), the NVM command set (bit 37).
const CAP: u64 = (MAX_QUEUE_ENTRIES as u64 - 1) | 1 << 16 | 1 << 17 | 10 << 24 | 1 << 37;
const CONNECT_BYTES: u32 = 1024;
const _: () = assert!(CONNECT_BYTES as usize == gnstor_proto::fabrics::CONNECT_DATA_BYTES);
/// NVMe 2.0.
const VS: u64 = 0x0002_0000;
/// CC.SHN, shutdown notification.
const CC_SHUTDOWN: u64 = 3 << 14;
/// CSTS.SHST, shutdown complete.
const CSTS_SHUTDOWN_COMPLETE: u64 = 2 << 2;

impl Ssd {
    pub(crate) fn submit_fabrics(&mut self, now: Time, permit: CompletionPermit, role: Role, sqe: &Sqe) {
        let answer = match (fctype_of(sqe), role) {
            (fctype::CONNECT, Role::Fresh) => return self.begin_connect(now, permit, sqe),
            (fctype::PROPERTY_GET, Role::Admin(cntlid)) => self.property_get(cntlid, sqe),
            (fctype::PROPERTY_SET, Role::Admin(cntlid)) => self.property_set(now, cntlid, sqe),
            (fctype::AUTH_SEND, Role::Unproven(_)) => return self.begin_auth_send(now, permit, sqe),
            (fctype::AUTH_RECV, Role::Unproven(cntlid)) => {
                return self.auth_receive(now, permit, cntlid, sqe);
            }
            (_, Role::Unproven(_)) => Err(Refusal::AuthenticationRequired.into()),
            (fctype::DISCONNECT, Role::Io(cntlid, _)) => {
                // The queue pair still belongs to its controller, and is closed with the controller at the
                // latest. Nothing else would end it: a queue has no keep-alive timeout of its own.
                self.hosts.disconnect(permit.queue(), cntlid);
                Ok(OK)
            }
            // An admin queue ends with its connection.
            (fctype::DISCONNECT, Role::Admin(_)) => Err(Refusal::InvalidField.into()),
            (
                fctype::CONNECT
                | fctype::DISCONNECT
                | fctype::PROPERTY_GET
                | fctype::PROPERTY_SET
                | fctype::AUTH_SEND
                | fctype::AUTH_RECV,
                _,
            ) => Err(Refusal::SequenceError.into()),
            _ => Err(Refusal::InvalidOpcode.into()),
        };
        match answer {
            Ok(answer) => self.complete(permit, answer, now, 0),
            Err(refused) => self.refuse(permit, 0, refused, now),
        }
    }

    fn begin_connect(&mut self, now: Time, permit: CompletionPermit, sqe: &Sqe) {
        let checked = check_frame(sqe)
            .and_then(|()| self.connect_fields(permit.queue(), sqe))
            .and_then(|fields| Ok((fields, data_pointer(sqe, CONNECT_BYTES)?)))
            .and_then(|found| {
                Ok((found, self.scratch_for(now, permit.queue(), CONNECT_BYTES).ok_or(Refusal::NotReady)?))
            });
        let ((fields, remote), buffer) = match checked {
            Ok(found) => found,
            Err(refused) => return self.refuse(permit, 0, refused, now),
        };
        self.hosts.begin_connect(permit.queue());
        let local = self.commands.scratch().local(&buffer);
        let id = self.start(permit, 0, now, Work::Connect { fields, buffer });
        self.pull(id, remote, local);
    }

    /// Scratch memory for a command of this queue, as far as its host may have it.
    pub(crate) fn scratch_for(&mut self, now: Time, key: QueueKey, bytes: u32) -> Option<Buffer> {
        let owner = self.hosts.owner(key);
        let buffer = self.commands.scratch_mut().take_for(now, key, owner, bytes);
        if buffer.is_none() {
            self.wake_at(now);
        }
        buffer
    }

    /// Ends queues that have kept scratch memory for long while others find none. Returns when to check
    /// again.
    pub(crate) fn close_holders(&mut self, now: Time) -> Time {
        loop {
            let (queue, next) = self.commands.scratch_mut().holder_to_end(now);
            let Some(queue) = queue else { return next };
            self.smart_mut().count_straggler();
            self.shut(now, queue);
        }
    }

    fn connect_fields(&self, key: QueueKey, sqe: &Sqe) -> Result<ConnectFields, Refused> {
        let fields: ConnectFields = fields(sqe).ok_or(Refusal::ConnectInvalid)?;
        let queue = self.hosts.queue(key).ok_or(Refusal::SequenceError)?;
        if fields.recfmt.get() == 0 && queue.fits(&fields) {
            Ok(fields)
        } else {
            Err(Refusal::ConnectInvalid.into())
        }
    }

    pub(crate) fn finish_connect(
        &mut self,
        now: Time,
        permit: CompletionPermit,
        fields: &ConnectFields,
        data: Result<&[u8], Refused>,
    ) {
        match data.and_then(|data| self.judge_connect(now, permit.queue(), fields, data)) {
            Ok((role, cntlid)) => {
                let who = self.hosts.connect(permit.queue(), role, fields);
                if let Some(who) = who.filter(|_| !matches!(role, Role::Unproven(_))) {
                    self.commands.emit(Effect::Admitted { queue: permit.queue(), who });
                }
                let asks = if matches!(role, Role::Unproven(_)) { AUTHENTICATION_REQUIRED } else { 0 };
                self.complete(permit, Answer::dw0(u32::from(cntlid) | asks), now, 0);
            }
            Err(refused) => {
                self.hosts.refuse_connect(permit.queue());
                self.refuse(permit, 0, refused, now);
            }
        }
    }

    fn judge_connect(
        &mut self,
        now: Time,
        key: QueueKey,
        fields: &ConnectFields,
        data: &[u8],
    ) -> Result<(Role, u16), Refused> {
        let data = ConnectData::ref_from_bytes(data).map_err(|_| Refusal::ConnectInvalid)?;
        if data.subnqn() != ssd_subnqn(self.config().index) {
            return Err(Refusal::ConnectInvalid.into());
        }
        let (identity, serial) = Identity::parse_hostnqn(&data.hostnqn()).ok_or(Refusal::ConnectRefused)?;
        let (cntlid, qid) = (data.cntlid.get(), fields.qid.get());
        if qid == 0 {
            if cntlid != CNTLID_ANY {
                return Err(Refusal::ConnectInvalid.into());
            }
            let kato = keep_alive_of(fields.kato_ms.get());
            let proof = self.ask_proof(now, identity, serial)?;
            let host = NewHost { identity, host_id: data.host_id, serial, kato, proof };
            let is_proven = host.is_proven();
            self.make_room(now, identity);
            self.count_entries(now, key, identity)?;
            // A host that has proven nothing ends the queues of no other.
            if is_proven {
                self.end_former_host(now, identity, data.host_id, 0);
            }
            let cntlid = self.hosts.create(key, host, now).ok_or(Refusal::HostsFull)?;
            self.wake_at(now + kato);
            // The host's activity is counted and saved.
            self.wake_at(self.smart().save_at().max(now));
            let role = if is_proven { Role::Admin(cntlid) } else { Role::Unproven(cntlid) };
            return Ok((role, cntlid));
        }
        let known = self.hosts.known(cntlid, identity, data.host_id, serial)?;
        self.admit_queue(cntlid, qid, data)?;
        if self.hosts.has_qid(known, qid) {
            return Err(Refusal::ConnectInvalid.into());
        }
        let host = self.hosts.host(cntlid).ok_or(Refusal::ConnectInvalid)?;
        if !host.is_enabled() {
            return Err(Refusal::SequenceError.into());
        }
        self.count_entries(now, key, identity)?;
        self.hosts.join(cntlid, key).ok_or(Refusal::ConnectInvalid)?;
        Ok((Role::Io(cntlid, identity), cntlid))
    }

    /// If a host that claims this identity finds no controller id, the oldest one without a proof gives way.
    fn make_room(&mut self, now: Time, identity: Identity) {
        if !self.hosts.has_id(identity)
            && let Some(oldest) = self.hosts.gives_id(identity)
        {
            self.shut(now, oldest);
        }
    }

    /// Counts the entries of a queue. If they do not fit, hosts without a proof give way, the oldest first.
    fn count_entries(&mut self, now: Time, key: QueueKey, identity: Identity) -> Result<(), Refused> {
        while !self.hosts.count_all(key, identity) {
            let oldest = self.hosts.gives_entries().ok_or(Refusal::HostsFull)?;
            self.shut(now, oldest);
        }
        Ok(())
    }

    /// Ends the queues of a former host with the same identity. Only then a client that comes back as another
    /// host gets its identity (protocol rule 4). Several connections of one host may coexist. Of two daemons
    /// the term decides.
    pub(crate) fn end_former_host(&mut self, now: Time, identity: Identity, host_id: [u8; 16], serial: u64) {
        if identity == Identity::Daemon {
            return;
        }
        for admin in self.hosts.of_other_hosts(identity, host_id, serial) {
            self.shut(now, admin);
        }
    }

    fn property_get(&self, cntlid: u16, sqe: &Sqe) -> Result<Answer, Refused> {
        check_frame(sqe)?;
        let fields: PropertyFields = fields(sqe).ok_or(Refusal::InvalidField)?;
        let cc = u64::from(self.hosts.host(cntlid).ok_or(Refusal::SequenceError)?.cc());
        let ready = if cc & property::CC_ENABLE != 0 { property::CSTS_READY } else { 0 };
        let shutdown = if cc & CC_SHUTDOWN != 0 { CSTS_SHUTDOWN_COMPLETE } else { 0 };
        let (value, eight_bytes) = match fields.offset.get() {
            property::CAP => (CAP, true),
            property::VS => (VS, false),
            property::CC => (cc, false),
            property::CSTS => (ready | shutdown, false),
            _ => return Err(Refusal::InvalidField.into()),
        };
        if (fields.attrib & 7) != u8::from(eight_bytes) {
            return Err(Refusal::InvalidField.into());
        }
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
        let (low, high) = (value as u32, (value >> 32) as u32);
        Ok(Answer { dw0: low, dw1: high, ..OK })
    }

    fn property_set(&mut self, now: Time, cntlid: u16, sqe: &Sqe) -> Result<Answer, Refused> {
        check_frame(sqe)?;
        let fields: PropertyFields = fields(sqe).ok_or(Refusal::InvalidField)?;
        if fields.offset.get() != property::CC || fields.attrib & 7 != 0 {
            return Err(Refusal::InvalidField.into());
        }
        let value = u32::try_from(fields.value.get()).map_err(|_| Refusal::InvalidField)?;
        for queue in self.hosts.configure(cntlid, value)? {
            self.shut(now, queue);
        }
        Ok(OK)
    }
}
