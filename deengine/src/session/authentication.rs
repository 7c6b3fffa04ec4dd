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
use crate::hosts::said::{Heard, Judged, Said};
use crate::hosts::{Authentication, Proof, Queue, Role};
use crate::request::{Refused, check_frame};
use gnstor_auth::SessionKey;
use gnstor_auth::message::{self, MAX_MESSAGE};
use gnstor_base::controller::Effect;
use gnstor_base::time::{Span, Time};
use gnstor_proto::fabrics::{AuthFields, ConnectData, Host, Identity, fields, ssd_subnqn};
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
        self.hosts.require_proof(asks);
    }

    /// The proof that the host of a new admin queue must give, and its deadline.
    pub(crate) fn ask_proof(&mut self, now: Time, identity: Identity, serial: u64) -> Result<Proof, Refused> {
        let proof = self.hosts.ask_proof(now + PROOF_DEADLINE, identity, serial)?;
        self.wake_at(proof.deadline());
        Ok(proof)
    }

    /// Judges the proof in the Connect of an I/O queue of controller `cntlid`.
    pub(crate) fn admit_queue(&mut self, cntlid: u16, qid: u16, data: &ConnectData) -> Result<(), Refused> {
        self.hosts.admit_queue(cntlid, qid, data)
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
        let role = self.hosts.queue(permit.queue()).map(Queue::role);
        let Some(Role::Unproven(cntlid)) = role else {
            return self.refuse(permit, 0, Refusal::SequenceError.into(), now);
        };
        let subsystem = ssd_subnqn(self.config().index);
        if let Err(permit) = self.hosts.hear(cntlid, subsystem, (permit, data)) {
            self.refuse(permit, 0, Refusal::AuthenticationRequired.into(), now);
        }
    }

    /// Takes the next message that must be judged.
    pub(crate) fn next_said(&mut self) -> Option<Said> {
        self.hosts.next_said()
    }

    /// Applies the result of a judged message. Its queue may have been closed meanwhile.
    pub(crate) fn finish_judged(&mut self, now: Time, judged: Judged) {
        let Judged { permit, cntlid, heard } = judged;
        let role = self.hosts.queue(permit.queue()).map(Queue::role);
        if role != Some(Role::Unproven(cntlid)) {
            return match role {
                Some(_) => self.refuse(permit, 0, Refusal::SequenceError.into(), now),
                None => self.forfeit(permit),
            };
        }
        match heard {
            Ok(Heard::Challenge(run, answer)) => self.hosts.challenge(cntlid, run, answer),
            Ok(Heard::Answer(run, answer)) => self.hosts.answer(cntlid, run, answer),
            Ok(Heard::Proven(key)) => self.admit_host(now, &permit, cntlid, key),
            Err((transaction, failure)) => {
                tracing::info!(ssd = self.config().index, cntlid, "a host is not proven: {failure}");
                let answer = message::failure(message::id::FAILURE1, transaction, failure);
                self.hosts.fail_proof(cntlid, answer, now + LAST_WORDS);
                self.wake_at(now + LAST_WORDS);
            }
        }
        self.complete(permit, OK, now, 0);
    }

    /// The host is proven: its admin queue serves, and hosts that it replaces end.
    fn admit_host(&mut self, now: Time, permit: &CompletionPermit, cntlid: u16, key: SessionKey) {
        let Some(host) = self.hosts.prove(now, (permit.queue(), cntlid), key) else { return };
        let Host { identity, id: host_id, serial } = host;
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
        match self.hosts.take_answer(cntlid, bytes as usize) {
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
