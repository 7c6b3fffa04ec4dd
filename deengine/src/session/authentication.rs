// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proofs of a host's identity: NVMe in-band authentication of admin queues, and the proofs of I/O queues.
//!
//! ```text
//!   Connect (admin)  -> AUTHREQ   role Unproven: only Authentication Send and Receive, until a deadline
//!   Send, Receive .. -> proven    role Admin, and a session key
//!   Connect (I/O) + proof         one round trip; the proof is made with the session key
//! ```
//! An SSD without a manager key asks for no proof: every role is then as Connect makes it.

use crate::commands::{CompletionPermit, Delivered, Fetched};
use crate::commands::{OK, Work};
use crate::controller::Ssd;
use crate::hosts::Role;
use crate::hosts::proof::{Authentication, Proof, Stage};
use crate::hosts::said::{Heard, Judged, Run, Said};
use crate::request::{Refused, check_frame};
use gnstor_auth::message::{self, MAX_MESSAGE};
use gnstor_auth::{Dice, Names, SessionKey};
use gnstor_base::controller::Effect;
use gnstor_base::time::{Span, Time};
use gnstor_proto::fabrics::{AuthFields, ConnectData, Identity, fields, ssd_subnqn};
use gnstor_proto::nvme::Sqe;
use gnstor_proto::status::Refusal;

/// A host proves who it is within this time, or its queue is closed.
pub(crate) const PROOF_DEADLINE: Span = Span::from_ms(5000);
/// Time in which a host that failed can still ask for the reason.
const LAST_WORDS: Span = Span::from_ms(100);
/// Most bytes that Authentication Receive returns.
const MAX_RECEIVE: u32 = 4096;

impl Ssd {
    /// From here on every host must prove who it is. No queue may be open.
    pub fn require_authentication(&mut self, asks: Authentication) {
        self.hosts.gate_mut().require(asks);
    }

    /// The proof that the host of a new admin queue must give, and its deadline.
    pub(crate) fn ask_proof(&mut self, now: Time, identity: Identity, serial: u64) -> Result<Proof, Refused> {
        if !self.hosts.gate().asks() {
            return Ok(Proof::NotAsked);
        }
        if self.hosts.gate_mut().is_replaced(identity, serial) {
            return Err(Refusal::ConnectRefused.into());
        }
        let by = now + PROOF_DEADLINE;
        self.wake_at(by);
        Ok(Proof::Awaited { by, stage: Stage::Begun, answer: None })
    }

    /// Judges the proof in the Connect of an I/O queue of controller `cntlid`.
    pub(crate) fn admit_queue(&mut self, cntlid: u16, qid: u16, data: &ConnectData) -> Result<(), Refused> {
        let host = self.hosts.host(cntlid).ok_or(Refusal::ConnectInvalid)?;
        host.proof.admit(cntlid, qid, data)
    }

    /// Authentication Send.
    pub(crate) fn begin_auth_send(&mut self, now: Time, permit: CompletionPermit, sqe: &Sqe) {
        let most = u32::try_from(MAX_MESSAGE).expect("a few hundred");
        match auth_bytes(sqe, most) {
            Ok(bytes) => {
                self.fetch(now, permit, sqe, Fetched { bytes, work: |buffer| Work::Authenticate { buffer } })
            }
            Err(refused) => self.refuse(permit, 0, refused, now),
        }
    }

    /// The message of an Authentication Send has arrived. It is judged without the lock.
    pub(crate) fn finish_auth_send(&mut self, now: Time, permit: CompletionPermit, data: Vec<u8>) {
        let role = self.hosts.queue(permit.queue()).map(|queue| queue.role);
        let Some(Role::Unproven(cntlid)) = role else {
            return self.refuse(permit, 0, Refusal::SequenceError.into(), now);
        };
        match self.hear(cntlid) {
            Some(run) => self.hosts.gate_mut().said.push_back(Said { permit, cntlid, run, data }),
            None => self.refuse(permit, 0, Refusal::AuthenticationRequired.into(), now),
        }
    }

    /// Takes the next message that must be judged.
    pub(crate) fn next_said(&mut self) -> Option<Said> {
        self.hosts.gate_mut().said.pop_front()
    }

    /// Applies the result of a judged message. Its queue may have been closed meanwhile.
    pub(crate) fn finish_judged(&mut self, now: Time, judged: Judged) {
        let Judged { permit, cntlid, heard } = judged;
        let role = self.hosts.queue(permit.queue()).map(|queue| queue.role);
        if role != Some(Role::Unproven(cntlid)) {
            return match role {
                Some(_) => self.refuse(permit, 0, Refusal::SequenceError.into(), now),
                None => self.forfeit(permit),
            };
        }
        match heard {
            Ok(Heard::Challenge(run, answer)) => self.set_proof(cntlid, Stage::Challenged(run), answer),
            Ok(Heard::Answer(run, answer)) => self.set_proof(cntlid, Stage::Answered(run), answer),
            Ok(Heard::Proven(key)) => self.admit_host(now, &permit, cntlid, key),
            Err((transaction, failure)) => {
                tracing::info!(ssd = self.config().index, cntlid, "a host is not proven: {failure}");
                let answer = message::failure(message::id::FAILURE1, transaction, failure);
                self.set_proof(cntlid, Stage::Failed, answer);
                self.end_soon(now, cntlid);
            }
        }
        self.complete(permit, OK, now, 0);
    }

    fn set_proof(&mut self, cntlid: u16, next: Stage, message: Vec<u8>) {
        if let Some(Proof::Awaited { stage, answer, .. }) =
            self.hosts.host(cntlid).map(|host| &mut host.proof)
        {
            (*stage, *answer) = (next, Some(message));
        }
    }

    fn end_soon(&mut self, now: Time, cntlid: u16) {
        let soon = now + LAST_WORDS;
        if let Some(Proof::Awaited { by, .. }) = self.hosts.host(cntlid).map(|host| &mut host.proof) {
            *by = soon.min(*by);
        }
        self.hosts.look_again(cntlid);
        self.wake_at(soon);
    }

    /// Takes the run of a controller. `None`: it has failed, and hears nothing more.
    fn hear(&mut self, cntlid: u16) -> Option<Run> {
        let subsystem = ssd_subnqn(self.config().index);
        let ((asks, pairs), host) = self.hosts.host_to_prove(cntlid)?;
        let nqn = host.nqn();
        let Proof::Awaited { stage, answer, .. } = &mut host.proof else { return None };
        // A host must fetch each answer before it sends the next message.
        *answer = None;
        match std::mem::replace(stage, Stage::Failed) {
            Stage::Begun => {
                let secret = asks.manager_key.of_host(&nqn);
                let names = Names { host: nqn, subsystem };
                let pair = pairs.next(|bytes| (asks.random)(bytes));
                let dice = Box::new(Dice::with(pair, |bytes| (asks.random)(bytes)));
                Some(Run::Begun { names, secret, group: asks.group, dice })
            }
            Stage::Challenged(run) => Some(Run::Challenged(run)),
            Stage::Answered(run) => Some(Run::Answered(run)),
            Stage::Failed => None,
        }
    }

    /// The host is proven: its admin queue serves, and hosts that it replaces end.
    fn admit_host(&mut self, now: Time, permit: &CompletionPermit, cntlid: u16, key: SessionKey) {
        let Some(host) = self.hosts.host(cntlid) else { return };
        host.proof = Proof::Given { key, last: 0 };
        host.last_alive = host.last_alive.max(now);
        let (identity, host_id, serial) = (host.identity, host.host_id, host.serial);
        if let Some(queue) = self.hosts.queue(permit.queue()) {
            queue.role = Role::Admin(cntlid);
        }
        self.hosts.proven(cntlid);
        self.hosts.gate_mut().note(identity, serial);
        // This must come first, so that resources of the client's former connection do not count beside the
        // new one.
        self.end_former_host(now, identity, host_id, serial);
        self.commands.emit(Effect::Admitted { queue: permit.queue(), who: identity });
    }

    /// Authentication Receive.
    pub(crate) fn auth_receive(&mut self, now: Time, permit: CompletionPermit, cntlid: u16, sqe: &Sqe) {
        let bytes = match auth_bytes(sqe, MAX_RECEIVE) {
            Ok(bytes) => bytes,
            Err(refused) => return self.refuse(permit, 0, refused, now),
        };
        let Some(Proof::Awaited { answer, .. }) = self.hosts.host(cntlid).map(|host| &mut host.proof) else {
            return self.refuse(permit, 0, Refusal::SequenceError.into(), now);
        };
        match answer.take_if(|answer| answer.len() <= bytes as usize) {
            Some(answer) => self.deliver(now, permit, sqe, Delivered::at_once(now, bytes, 0, &answer)),
            None => self.refuse(permit, 0, Refusal::SequenceError.into(), now),
        }
    }
}

/// Number of bytes that an authentication command of NVMe moves.
fn auth_bytes(sqe: &Sqe, most: u32) -> Result<u32, Refused> {
    check_frame(sqe)?;
    let fields: AuthFields = fields(sqe).ok_or(Refusal::InvalidField)?;
    let bytes = fields.bytes.get();
    if fields.is_nvme() && (1..=most).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(Refusal::InvalidField.into())
    }
}
